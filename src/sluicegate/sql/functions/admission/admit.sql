-- Admits as many of the locked candidates of one governed queue as its policy has room for, charged to lanes, in their order. state is
-- ok, closed (a verdict proved it), busy (ask again) or unavailable (fail closed; the verdict says why). Locks lanes only. Waits for one no
-- longer than 5 s, without p_wait than a tenth of a second (held then: busy by one who goes on), and not at all if the transaction holds lanes already. A way that
-- took nothing is rolled back, and its lanes with it.
-- grants: none
create or replace function sluicegate.admit(
    p_queue_id bigint, p_ids bigint[], p_lapsed boolean, p_lane smallint, p_wait boolean,
    out ids bigint[], out lanes smallint[], out at timestamptz, out state text, out verdict jsonb
)
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '5s'
as $$
declare
    v_policy record;
    v_lapsed bigint[] := '{}';
    v_homes smallint[] := '{}';
    v_first smallint;
    v_here bigint[];
    v_fresh bigint[];
    v_fast record;
    v_slow record;
    v_held boolean := sluicegate.holds_lanes();
    v_began timestamptz := clock_timestamp();
    v_patience interval := '5 s';
begin
    ids := '{}';
    lanes := '{}';
    if not p_wait then
        v_patience := '100 ms';
        perform sluicegate.wait_at_most(v_patience);
    end if;
    begin
        v_policy := sluicegate.policy_terms(p_queue_id);
        if not v_policy.opening then
            perform sluicegate.check_policy_lately(p_queue_id);
        end if;
    exception
        when query_canceled or serialization_failure or deadlock_detected then
            raise;
        when others then
            state := 'unavailable';
            verdict := sluicegate.unavailable(sqlstate, sqlerrm);
            return;
    end;
    if v_policy.opening then
        begin
            if v_held or not sluicegate.open_lanes(p_queue_id) then
                state := 'busy';
                return;
            end if;
        exception
            when query_canceled or serialization_failure or deadlock_detected then
                raise;
            when others then
                state := case when sqlstate = '55P03' and not p_wait then 'held' else 'unavailable' end;
                verdict := case state when 'unavailable' then sluicegate.unavailable(sqlstate, sqlerrm, true) end;
                return;
        end;
    end if;

    begin
        if p_lapsed then
            select coalesce(array_agg(j.id order by i.ord), '{}'), coalesce(array_agg(j.lane order by i.ord), '{}') into v_lapsed, v_homes
            from unnest(p_ids) with ordinality as i(id, ord)
            -- By id alone: an index of all claimed jobs could answer too.
            cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
            where j.state = 'claimed';
        end if;
        -- Takeovers of one lane at a time are free in it; others take a place like fresh jobs, or wait for the exact way.
        v_first := coalesce(p_lane % v_policy.lanes, floor(random() * v_policy.lanes)::smallint);
        v_here := '{}';
        v_fresh := p_ids;
        if cardinality(v_lapsed) > 0 then
            v_first := coalesce(
                (select l from unnest(v_homes) with ordinality as x(l, ord) where l < v_policy.lanes order by ord limit 1), v_first);
            v_here := array(select x.id from unnest(v_lapsed, v_homes) with ordinality as x(id, lane, ord)
                where x.lane = v_first order by x.ord);
            v_fresh := array(select x.id from unnest(p_ids) with ordinality as x(id, ord) where x.id <> all (v_here) order by x.ord);
        end if;
        v_fast := sluicegate.admit_fast(p_queue_id, v_policy.lanes, v_policy.capped, v_policy.windows, v_policy.shadows, v_first,
            cardinality(v_here), cardinality(v_lapsed) - cardinality(v_here), cardinality(v_fresh), not v_held);
        -- A batch that stopped short of what all lanes hold together is dealt out the exact way.
        if cardinality(v_fast.lanes) > 0 and (v_fast.spare = 0 or v_held) then
            ids := v_here[1:v_fast.takeovers] || v_fresh[1:cardinality(v_fast.lanes) - v_fast.takeovers];
            lanes := v_fast.lanes;
            at := v_fast.at;
            state := 'ok';
            perform set_config('sluicegate.holds_lanes', pg_current_xact_id()::text, true);
            return;
        end if;
        if v_fast.locked > 0 and v_fast.spare = 0 then
            verdict := sluicegate.verdict(p_queue_id);
            state := case when verdict ->> 'state' = 'deferred' then 'closed' end;
        end if;
        -- Drops the lanes: nobody waits for one while he holds another.
        raise exception using errcode = 'SG00A', message = 'no lane had room';
    exception
        when sqlstate 'SG00A' or lock_not_available then
            if sqlstate = '55P03' and clock_timestamp() > v_began + v_patience then
                state := case when p_wait then 'unavailable' else 'held' end;
                verdict := case when p_wait then sluicegate.unavailable(sqlstate, sqlerrm, true) end;
                -- A call that has waited for a lane in vain waits for no other: one wait, however many queues it asks.
                perform set_config('sluicegate.holds_lanes', pg_current_xact_id()::text, true);
            elsif state is null and v_held then
                state := 'busy';
                -- The session's next call begins with this queue: see claim.
                perform set_config('sluicegate.owed', p_queue_id::text, false);
            end if;
        when query_canceled or serialization_failure or deadlock_detected then
            raise;
        when others then
            state := 'unavailable';
            verdict := sluicegate.unavailable(sqlstate, sqlerrm, true);
    end;
    if state is not null then
        return;
    end if;

    verdict := null;
    -- A block of its own: the fast way is to cost one subtransaction, not two.
    begin
        v_slow := sluicegate.admit_slow(p_queue_id, v_homes, cardinality(p_ids) - cardinality(v_lapsed), v_first);
        v_fresh := array(select x.id from unnest(p_ids) with ordinality as x(id, ord) where x.id <> all (v_lapsed) order by x.ord);
        ids := v_lapsed[1:v_slow.takeovers] || v_fresh[1:cardinality(v_slow.lanes) - v_slow.takeovers];
        lanes := v_slow.lanes;
        at := v_slow.at;
        if cardinality(ids) = 0 then
            raise exception using errcode = 'SG00A', message = 'no lane had room';
        end if;
        state := 'ok';
    exception
        when sqlstate 'SG00A' then
            state := 'closed';
        when query_canceled or serialization_failure or deadlock_detected then
            raise;
        when others then
            ids := '{}';
            lanes := '{}';
            state := case when sqlstate = '55P03' and not p_wait then 'held' else 'unavailable' end;
            verdict := case state when 'unavailable' then sluicegate.unavailable(sqlstate, sqlerrm, true) end;
            perform set_config('sluicegate.holds_lanes', pg_current_xact_id()::text, true);
    end;
end
$$;
