-- The next p_limit jobs of a queue whose time has not come, by that time. A loose scan: some entries a priority, however many there are.
-- Takes no lock.
-- grants: none
create or replace function sluicegate.scheduled_heads(p_queue_id bigint, p_now timestamptz, p_limit integer)
returns table (id bigint, run_at timestamptz)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_class text;
    v_priority integer;
    v_ids bigint[] := '{}';
begin
    foreach v_class in array '{alert,p1,mid,low}'::text[] loop
        v_priority := -32769;
        loop
            select j.priority into v_priority
            from sluicegate.job j
            where j.queue_id = p_queue_id and j.class = v_class and j.state = 'scheduled' and j.priority > v_priority
            order by j.priority
            limit 1;
            exit when not found;
            v_ids := v_ids || array(
                select j.id from sluicegate.job j
                where j.queue_id = p_queue_id and j.class = v_class and j.state = 'scheduled' and j.priority = v_priority
                    and j.run_at > p_now
                order by j.run_at, j.id
                limit p_limit
            );
        end loop;
    end loop;
    return query
    select j.id, j.run_at
    from unnest(v_ids) as i(id) cross join lateral (select k.id, k.run_at from sluicegate.job k where k.id = i.id offset 0) j
    order by j.run_at, j.id
    limit p_limit;
end
$$;
