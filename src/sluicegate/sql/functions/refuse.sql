-- Raises one of our own errors: SG001 invalid_argument, SG002 not_found, SG003 conflict, SG004 wrong
-- isolation level, SG005 forbidden. The field at fault goes into DETAIL, the next step into HINT.
-- grants: none
create or replace function sluicegate.refuse(p_code text, p_field text, p_message text, p_hint text default null)
returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    raise exception using errcode = p_code, message = p_message,
        detail = coalesce(p_field, ''), hint = coalesce(p_hint, '');
end
$$;
