-- Notes, as ready_looked does, where the first visible claim of a queue stands among its leases: no claim can lapse before
-- it, but for one whose transaction is still open or whose lease is being shortened. Never waits.
-- grants: none
create or replace function sluicegate.lapsed_looked(p_queue_id bigint, p_now timestamptz) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_first timestamptz;
begin
    if not pg_try_advisory_xact_lock(hashint8(p_queue_id), hashtext('lapse_hint'))
        or exists (
            select from sluicegate.lapse_hint h
            where h.queue_id = p_queue_id
                and h.looked_at between clock_timestamp() - interval '500 ms' and clock_timestamp()
        )
    then
        return;
    end if;
    select j.lease_expires_at into v_first
    from sluicegate.job j
    where j.queue_id = p_queue_id and j.state = 'claimed'
    order by j.lease_expires_at
    limit 1;
    insert into sluicegate.lapse_hint as h (queue_id, first_at, looked_at)
    values (p_queue_id, least(coalesce(v_first, p_now), p_now), clock_timestamp())
    on conflict (queue_id) do update set first_at = excluded.first_at, looked_at = excluded.looked_at;
end
$$;
