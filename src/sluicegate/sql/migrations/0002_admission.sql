-- phase: pre
-- Policies, their windows, the lanes that carry their shares, and what was charged.

-- governed is what a claim reads instead of the policy: a queue without one is unaffected by whatever
-- befalls the policy's table.
alter table sluicegate.queue add column governed boolean not null default false;
-- The lane a governed claim was charged to; null for a claim made while the queue had no policy.
alter table sluicegate.job add column lane smallint;
-- Whether the present claim raised attempt: one at the cap does not, and then has none to give back. Null: claimed before this.
alter table sluicegate.job add column attempt_counted boolean;

-- The zone in which an owner's windows are counted unless they name one; null: UTC.
alter table sluicegate.owner add column tz text collate "C";

create table sluicegate.policy (
    queue_id bigint primary key,
    max_in_flight integer check (max_in_flight between 0 and 10000),
    in_flight_mode text collate "C" not null default 'enforce' check (in_flight_mode in ('enforce', 'shadow')),
    paused boolean not null default false,
    paused_reason text,
    paused_until timestamptz,
    lanes smallint not null check (lanes between 1 and 64),
    -- How many lanes were asked for; null: as many as the limits call for.
    lanes_wished smallint check (lanes_wished between 1 and 64),
    -- Lanes the queue has ever had: those beyond lanes only keep what they were charged.
    made smallint not null check (made >= lanes),
    revision bigint not null default 1,
    -- Claims that were in the air when the first policy was committed: its lanes open when they have ended.
    opening boolean not null default true,
    made_by xid8 not null,
    awaited text[],
    -- Whether claims from before the policy, which no lane holds, may still be in flight.
    loose boolean not null default true,
    created_at timestamptz not null,
    updated_at timestamptz not null
);

-- A window's definition, never its number: what was charged to it outlives the policy that named it.
create table sluicegate.budget_window (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    period text collate "C" not null check (period in ('hour', 'day', 'week', 'month')),
    tz text collate "C" not null,
    starts_at interval not null,
    origin timestamptz,
    unique (queue_id, period, tz, starts_at),
    check ((period = 'hour') = (origin is not null))
);

create table sluicegate.policy_limit (
    queue_id bigint not null,
    window_id bigint not null,
    max_claims integer not null check (max_claims between 0 and 1000000),
    mode text collate "C" not null default 'enforce' check (mode in ('enforce', 'shadow')),
    primary key (queue_id, window_id)
);

-- A governed queue's lock rows. One holds a share of every limit, so a claim takes one lock and writes one row,
-- however many limits there are (decision 0007). The arrays run parallel to windows. cap null: no cap.
create table sluicegate.lane (
    queue_id bigint not null,
    lane smallint not null,
    live boolean not null,
    is_open boolean not null,
    paused_until timestamptz,
    cap integer check (cap >= 0),
    windows bigint[] not null,
    shares integer[] not null,
    used integer[] not null,
    forgiven integer[] not null,
    starts timestamptz[] not null,
    ends timestamptz[] not null,
    -- No claim of this lane in flight has a lower attempt_id. Written under the lane's lock, so exact, not a hint.
    low bigint not null default 0,
    -- Raised every 64 writes of a claim, so that whoever looks from the highest downwards passes few dead versions, even while an old
    -- snapshot keeps all of them.
    gen integer not null default 0,
    writes smallint not null default 0,
    primary key (queue_id, lane, gen),
    -- Only a share may be null, that of a limit which counts and never refuses. Anything else null would admit too much.
    check (cardinality(shares) = cardinality(windows) and cardinality(used) = cardinality(windows)
        and cardinality(forgiven) = cardinality(windows) and cardinality(starts) = cardinality(windows)
        and cardinality(ends) = cardinality(windows)),
    check (array_position(windows, null) is null and array_position(used, null) is null and array_position(forgiven, null) is null
        and array_position(starts, null) is null and array_position(ends, null) is null),
    check (0 <= all (used) and 0 <= all (forgiven) and coalesce(0 <= all (shares), true))
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The lanes of a policy, one probe each.
create view sluicegate.lane_now as
select p.queue_id, l.lane, l.live, l.is_open, l.cap, l.windows, l.shares, l.used, l.forgiven, l.starts, l.ends, l.low
from sluicegate.policy p
cross join lateral generate_series(0, p.made - 1) s(lane)
cross join lateral (
    select * from sluicegate.lane k where k.queue_id = p.queue_id and k.lane = s.lane order by k.gen desc limit 1
) l;

-- What past windows were charged, lane by lane, kept 400 days; the current window stands in the lanes.
create table sluicegate.usage (
    window_id bigint not null,
    starts timestamptz not null,
    lane smallint not null,
    queue_id bigint not null,
    ends timestamptz not null,
    used integer not null check (used >= 0),
    -- The limit went before the window had ended: what was claimed after that is not in it.
    partial boolean not null default false,
    primary key (window_id, starts, lane)
);

-- A reset never lowers what was charged: it adds what is forgiven.
create table sluicegate.forgiven (
    window_id bigint not null,
    starts timestamptz not null,
    queue_id bigint not null,
    amount integer not null check (amount > 0),
    primary key (window_id, starts)
);

create table sluicegate.refusal (
    queue_id bigint not null,
    reason text collate "C" not null,
    minute timestamptz not null,
    refused bigint not null,
    -- Sessions that count at the same time write different rows.
    slot smallint not null default 0,
    primary key (queue_id, reason, minute, slot)
);

-- Append-only, and without a foreign key, so that it outlives the policy.
create table sluicegate.policy_audit (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    scope_id bigint not null,
    at timestamptz not null,
    verb text collate "C" not null,
    owner_id bigint,
    endpoint_id bigint,
    database_user text not null,
    before jsonb,
    after jsonb,
    reason text
);
create index policy_audit_queue on sluicegate.policy_audit (queue_id, at desc);

-- Where the first lease of a queue stood when last looked for: a hint like those of ready_cursor, which held it as class lapsed before.
create table sluicegate.lapse_hint (
    queue_id bigint primary key,
    first_at timestamptz not null,
    looked_at timestamptz not null
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
delete from sluicegate.ready_cursor where class = 'lapsed';
