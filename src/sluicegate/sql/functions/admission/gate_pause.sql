-- The pause of a policy as a gate: no room until it ends. Takes no lock.
-- grants: none
create or replace function sluicegate.gate_pause(
    p_queue_id bigint, p_now timestamptz, out gate text, out period text, out mode text, out capacity integer, out used bigint,
    out closed boolean, out reason text, out starts timestamptz, out until timestamptz, out exact boolean, out window_id bigint
) returns setof record
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select 'pause', null::text, 'enforce', 0, 0::bigint, true, 'paused', null::timestamptz, p.paused_until, p.paused_until is not null,
        null::bigint
    from sluicegate.policy p
    where p.queue_id = p_queue_id and p.paused and coalesce(p.paused_until > p_now, true);
end
$$;
