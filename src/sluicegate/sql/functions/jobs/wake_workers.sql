-- Tells the workers of some queues to look for jobs: NOTIFY sluicegate_jobs, sent by the commit, at most once a queue in a transaction. It
-- carries a hash of the queue's name, since any role may listen. Each commit that notifies waits for the one before it, so the library leaves
-- it out where its last one still makes workers look again; and a queue that is paused or has used up its windows for another second wakes
-- nobody, as its reopening does; but not with p_always, nor in a transaction that has gone on for a while: the queue may open before the commit.
-- grants: none
create or replace function sluicegate.wake_workers(p_queue_ids bigint[], p_always boolean default false) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_queue record;
begin
    for v_queue in
        select q.* from unnest(p_queue_ids) i cross join lateral (
            select k.id, k.name, k.governed from sluicegate.queue k where k.id = i offset 0
        ) q
    loop
        if v_queue.governed and not p_always and statement_timestamp() - transaction_timestamp() < interval '100 milliseconds'
            and sluicegate.stays_closed(v_queue.id, sluicegate.clock() + interval '1 second')
        then
            continue;
        end if;
        perform pg_notify('sluicegate_jobs', encode(substr(sha256(convert_to(v_queue.name, 'UTF8')), 1, 8), 'hex'));
    end loop;
end
$$;
