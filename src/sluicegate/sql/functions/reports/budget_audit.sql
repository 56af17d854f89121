-- Who changed a queue's policy, newest first: at, verb, human, endpoint, before, after, reason. Takes no lock. Raises SG001, SG002.
-- grants: reader
create or replace function sluicegate.budget_audit(p_queue text, p_limit integer default 50, p_scope text default 'endpoint:default')
returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_queue_id bigint;
begin
    if p_limit is null or p_limit not between 1 and 200 then
        perform sluicegate.refuse('SG001', 'limit', 'A page has 1 to 200 entries.', 'Ask for fewer.');
    end if;
    v_queue_id := sluicegate.known_queue(v_scope_id, p_queue);
    return jsonb_build_object('queue', p_queue, 'audit', (
        select coalesce(jsonb_agg(to_jsonb(a) order by a.at desc, a.id desc), '[]')
        from (
            select p.id, p.at, p.verb, o.slug as human, e.slug as endpoint, p.database_user, p.before, p.after, p.reason
            from sluicegate.policy_audit p
            left join sluicegate.owner o on o.id = p.owner_id
            left join sluicegate.endpoint e on e.id = p.endpoint_id
            where p.queue_id = v_queue_id
            order by p.at desc, p.id desc
            limit p_limit
        ) a
    ));
end
$$;
