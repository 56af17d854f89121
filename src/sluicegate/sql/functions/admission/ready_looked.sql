-- Notes where the live head of a ready index stands, after a look from the beginning that was long: the lowest key still
-- visible as pending, so that a peer which rolls back is not passed over. Never waits: who comes second leaves it to
-- the first. ready_below takes the hint away when a job lands below it.
-- grants: none
create or replace function sluicegate.ready_looked(p_queue_id bigint, p_class text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_head record;
begin
    if not pg_try_advisory_xact_lock(hashint8(p_queue_id), hashtext('ready_cursor ' || p_class))
        or exists (
            select from sluicegate.ready_cursor c
            where c.queue_id = p_queue_id and c.class = p_class and c.looked_at between clock_timestamp() - interval '500 ms' and clock_timestamp()
        )
    then
        return;
    end if;
    select j.priority, j.run_at, j.id into v_head
    from sluicegate.job j
    where j.queue_id = p_queue_id and j.class = p_class and j.state = 'pending'
    order by j.priority, j.run_at, j.id
    limit 1;
    if not found then
        return;
    end if;
    insert into sluicegate.ready_cursor as c (queue_id, class, priority, run_at, id, looked_at)
    values (p_queue_id, p_class, v_head.priority, v_head.run_at, v_head.id, clock_timestamp())
    on conflict (queue_id, class) do update
    set priority = excluded.priority, run_at = excluded.run_at, id = excluded.id, looked_at = excluded.looked_at;
end
$$;
