-- Governed queues whose policy cannot be read or evaluated, so that they admit nothing, over all scopes: scope, queue and fault. Takes
-- no lock.
-- grants: reader
create or replace function sluicegate.broken_policies() returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('scope', sluicegate.scope_text(q.scope_id), 'queue', q.name,
            'fault', v.verdict -> 'fault') order by q.id), '[]')
        from sluicegate.verdicts(array(select g.id from sluicegate.queue g where g.governed)) v
        join sluicegate.queue q on q.id = v.queue_id
        where v.verdict ->> 'reason' = 'admission_unavailable'
    );
end
$$;
