-- The transactions, prepared ones too, that hold what a claim holds until it ends: a RowShareLock on sluicegate.job. All but the
-- caller's own, or those of p_awaited only. Takes no lock.
-- grants: none
create or replace function sluicegate.claims_in_the_air(p_awaited text[])
returns table (virtualtransaction text, pid integer)
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
begin
    return query
    select k.virtualtransaction, k.pid
    from pg_locks k
    where k.locktype = 'relation' and k.relation = 'sluicegate.job'::regclass and k.mode = 'RowShareLock' and k.granted
        and k.database = (select d.oid from pg_database d where d.datname = current_database())
        and k.pid is distinct from pg_backend_pid()
        -- A prepared one changes its name when the server restarts: it is awaited whenever there is one.
        and (p_awaited is null or k.virtualtransaction = any (p_awaited) or k.virtualtransaction like '-1/%');
end
$$;
