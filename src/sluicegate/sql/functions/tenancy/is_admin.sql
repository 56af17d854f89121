-- Whether the caller administers the schema: its owner, or a member of sluicegate_admin. The caller is the role set for the
-- session, else its login: inside a security definer function current_user is the owner for everybody.
-- grants: none
create or replace function sluicegate.is_admin() returns boolean
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
    return exists (
        select from pg_roles r
        where pg_has_role(v_caller, r.oid, 'member')
            and (r.rolname = 'sluicegate_admin' or r.oid = (select n.nspowner from pg_namespace n where n.nspname = 'sluicegate'))
    );
end
$$;
