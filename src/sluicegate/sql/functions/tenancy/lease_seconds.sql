-- How long a claim holds without a heartbeat: the call's own, else the endpoint's, else 300 s. Raises SG001.
-- grants: none
create or replace function sluicegate.lease_seconds(p_value jsonb, p_scope_id bigint) returns integer
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
begin
    return coalesce(
        sluicegate.whole_number(p_value, 'lease_seconds', 1, 86400, null),
        (select e.lease_seconds from sluicegate.endpoint e where e.id = p_scope_id),
        300
    );
end
$$;
