-- The verdict on each of some queues. A table that one of them finds locked away is not waited for again: the others get the same answer.
-- Takes no lock.
-- grants: none
create or replace function sluicegate.verdicts(p_queue_ids bigint[]) returns table (queue_id bigint, verdict jsonb)
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
#variable_conflict use_column
declare
    v_queue record;
    v_verdict jsonb;
    v_locked jsonb;
begin
    for v_queue in
        select q.id, q.governed from unnest(p_queue_ids) i join sluicegate.queue q on q.id = i
    loop
        v_verdict := case when v_queue.governed and v_locked is not null then v_locked else sluicegate.verdict(v_queue.id) end;
        if v_verdict ->> 'fault_code' = '55P03' then
            v_locked := v_verdict;
        end if;
        return query select v_queue.id, v_verdict;
    end loop;
end
$$;
