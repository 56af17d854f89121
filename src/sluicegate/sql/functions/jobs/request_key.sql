-- The advisory lock of a request_id. A collision of two ids costs one of them a wait, nothing more.
-- grants: none
create or replace function sluicegate.request_key(p_scope_id bigint, p_request_id text) returns bigint
language plpgsql immutable parallel safe
set search_path = sluicegate, pg_temp
as $$
begin
    return hashtextextended(p_request_id, p_scope_id);
end
$$;
