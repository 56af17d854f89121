-- First policies whose lanes are still closed, over all scopes: scope, queue, since, and awaited, who holds the opening up. Takes no lock.
-- grants: reader
create or replace function sluicegate.opening_policies() returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('scope', sluicegate.scope_text(q.scope_id), 'queue', q.name, 'since', p.created_at,
            'awaited', sluicegate.awaited_claims(q.id)) order by p.created_at, q.id), '[]')
        from sluicegate.policy p join sluicegate.queue q on q.id = p.queue_id
        where p.opening
    );
end
$$;
