-- Counts a refused claim by reason and minute, without a hot write: each session adds up its own, and writes when nobody has written that
-- reason of that queue for a second. What a session has not yet written when it ends is lost. Never waits: a row that is being written
-- is left for later.
-- grants: none
create or replace function sluicegate.count_refusal(p_queue_id bigint, p_reason text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_name text := format('sluicegate.refused_%s_%s', p_queue_id, p_reason);
    v_kept text := current_setting(v_name, true);
    v_now timestamptz := sluicegate.clock();
    v_wall double precision := extract(epoch from v_now);
    v_count bigint := 1;
    v_looked double precision := 0;
begin
    -- The session may have put anything there.
    if v_kept ~ '^\d{1,9} \d{1,12}(\.\d{1,9})?$' then
        v_count := split_part(v_kept, ' ', 1)::bigint + 1;
        v_looked := split_part(v_kept, ' ', 2)::double precision;
    end if;
    if abs(v_wall - v_looked) >= 1 then
        v_looked := v_wall;
        if pg_try_advisory_xact_lock(sluicegate.request_key(p_queue_id, 'refusal ' || p_reason)) and not exists (
            select from sluicegate.refusal r
            where r.queue_id = p_queue_id and r.reason = p_reason and r.minute >= date_trunc('minute', v_now, 'UTC') - interval '1 minute'
                and r.written_at > v_now - interval '1 second' and r.written_at < v_now + interval '1 second'
        ) then
            insert into sluicegate.refusal as r (queue_id, reason, minute, refused, written_at)
            values (p_queue_id, p_reason, date_trunc('minute', v_now, 'UTC'), v_count, v_now)
            on conflict (queue_id, reason, minute) do update
            set refused = r.refused + excluded.refused, written_at = excluded.written_at;
            v_count := 0;
        end if;
    end if;
    perform set_config(v_name, format('%s %s', v_count, v_looked), false);
end
$$;
