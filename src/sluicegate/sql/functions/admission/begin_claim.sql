-- What every claiming transaction promises before its first lock: READ COMMITTED, because a count made under an
-- older snapshot admits too much, and a commit that survives a crash, whatever the session says. Raises SG004.
-- grants: none
create or replace function sluicegate.begin_claim() returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform sluicegate.refuse('SG004', 'transaction_isolation',
            format('A claim runs under READ COMMITTED, this transaction is %s.', upper(current_setting('transaction_isolation'))),
            'Claim outside that transaction, or begin it with: begin isolation level read committed');
    end if;
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end
$$;
