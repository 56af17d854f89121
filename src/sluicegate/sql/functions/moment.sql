-- A time of a JSON request: ISO 8601 with a zone, within the years 1 to 9999, or null for anything else. Strict, because
-- what PostgreSQL reads into other texts depends on settings of the session.
-- grants: none
create or replace function sluicegate.moment(p_value jsonb) returns timestamptz
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
declare
    v_moment timestamptz;
begin
    if jsonb_typeof(p_value) = 'string' and p_value #>> '{}' ~
        '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2}(:[0-9]{2})?)?)$'
    then
        v_moment := (p_value #>> '{}')::timestamptz;
        if v_moment between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00' then
            return v_moment;
        end if;
    end if;
    return null;
exception
    when data_exception then
        return null;
end
$$;
