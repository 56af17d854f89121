-- Refuses a queue name that is not 1 to 128 bytes without white space, control characters or '/'.
-- Names its characters one by one: what \s means depends on the database's locale. Raises SG001.
-- grants: none
create or replace function sluicegate.check_queue_name(p_name text, p_field text default 'queue') returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if p_name is null or octet_length(p_name) not between 1 and 128
        or p_name ~ '[\u0001-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000/]'
    then
        perform sluicegate.refuse('SG001', p_field,
            format('The queue name %L is not usable.', left(coalesce(p_name, ''), 140)),
            'A queue name is 1 to 128 bytes of UTF-8 without white space, control characters or a slash.');
    end if;
end
$$;
