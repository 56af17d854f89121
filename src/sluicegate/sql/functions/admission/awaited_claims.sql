-- Who holds up the opening of a queue's first policy, longest first: pid, application, state, the gid of a prepared transaction, and
-- since when its transaction is open, as far as the owner of the schema may see. Empty once it is open. Takes no lock.
-- grants: none
create or replace function sluicegate.awaited_claims(p_queue_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('pid', a.pid, 'application', nullif(s.application_name, ''), 'state', s.state,
            'prepared', x.gid, 'since', coalesce(s.xact_start, x.prepared)) order by coalesce(s.xact_start, x.prepared)), '[]')
        from sluicegate.policy p
        cross join lateral sluicegate.claims_in_the_air(p.awaited) a
        left join pg_stat_activity s on s.pid = a.pid
        left join pg_locks t on a.pid is null and t.virtualtransaction = a.virtualtransaction and t.locktype = 'transactionid' and t.granted
        left join pg_prepared_xacts x on x.transaction = t.transactionid
        where p.queue_id = p_queue_id and p.opening
    );
end
$$;
