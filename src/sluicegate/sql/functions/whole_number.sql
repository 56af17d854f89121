-- A whole number of a JSON request within its range, or the default when absent. Raises SG001.
-- grants: none
create or replace function sluicegate.whole_number(
    p_value jsonb, p_field text, p_least integer, p_most integer, p_default integer
) returns integer
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if p_value is null or p_value = 'null' then
        return p_default;
    end if;
    if jsonb_typeof(p_value) <> 'number' or p_value::numeric <> trunc(p_value::numeric)
        or p_value::numeric not between p_least and p_most
    then
        perform sluicegate.refuse('SG001', p_field, format('%s is %s, which is not usable.', p_field, left(p_value::text, 40)),
            format('%s is a whole number from %s to %s.', p_field, p_least, p_most));
    end if;
    return p_value::integer;
end
$$;
