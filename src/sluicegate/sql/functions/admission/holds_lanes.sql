-- Whether this transaction holds lanes, in this call or an earlier one: then it waits for none, and for no job's row. The mark ends with
-- the transaction, or with the subtransaction that took them. Who forges it only makes his own call wait less.
-- grants: none
create or replace function sluicegate.holds_lanes() returns boolean
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    return coalesce(current_setting('sluicegate.holds_lanes', true) = pg_current_xact_id_if_assigned()::text, false);
end
$$;
