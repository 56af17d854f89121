-- Counts a refused claim by reason and minute, without a hot write: each session adds up its own and writes at most once a second
-- a queue. What a session has not yet written when it ends is lost. Never waits: a row that is being written is left for later.
-- grants: none
create or replace function sluicegate.count_refusal(p_queue_id bigint, p_reason text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_name text := format('sluicegate.refused_%s_%s', p_queue_id, p_reason);
    v_kept text := coalesce(nullif(current_setting(v_name, true), ''), '0 0');
    v_count bigint := split_part(v_kept, ' ', 1)::bigint + 1;
    v_written double precision := split_part(v_kept, ' ', 2)::double precision;
    v_wall double precision := extract(epoch from sluicegate.clock());
    v_minute timestamptz := date_trunc('minute', sluicegate.clock(), 'UTC');
begin
    if abs(v_wall - v_written) >= 1
        and pg_try_advisory_xact_lock(sluicegate.request_key(p_queue_id, 'refusal ' || p_reason))
    then
        insert into sluicegate.refusal as r (queue_id, reason, minute, refused)
        values (p_queue_id, p_reason, v_minute, v_count)
        on conflict (queue_id, reason, minute) do update set refused = r.refused + excluded.refused;
        v_count := 0;
        v_written := v_wall;
    end if;
    perform set_config(v_name, format('%s %s', v_count, v_written), false);
end
$$;
