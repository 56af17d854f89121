-- Makes what follows in a function that sets its own lock_timeout give up a wait soon, if this transaction holds lanes: others wait for
-- those, and whoever waits in turn for what they hold would deadlock with them. Sooner than deadlock_timeout, so that nobody is shot: the
-- call itself is refused (55P03), or answers unavailable. Claims before other work in a transaction are best made in one of their own.
-- grants: none
create or replace function sluicegate.wait_briefly() returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if sluicegate.holds_lanes() then
        perform sluicegate.wait_at_most('200 ms');
    end if;
end
$$;
