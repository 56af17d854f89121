-- Refuses heartbeats that say nothing usable, naming the field. Raises SG001.
-- grants: none
create or replace function sluicegate.check_heartbeats(p_items jsonb) returns void
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
declare
    v_item jsonb;
begin
    if jsonb_typeof(p_items) is distinct from 'array' or jsonb_array_length(p_items) not between 1 and 10000 then
        perform sluicegate.refuse('SG001', 'heartbeats', 'A heartbeat call takes an array of 1 to 10,000 items.',
            'Send [{"job_id": 1, "lease_token": "…"}].');
    end if;
    for v_item in select e from jsonb_array_elements(p_items) e loop
        if jsonb_typeof(v_item -> 'job_id') is distinct from 'number' then
            perform sluicegate.refuse('SG001', 'job_id', 'job_id is missing or not a number.', 'Send the id of the claimed job.');
        end if;
        if jsonb_typeof(v_item -> 'lease_token') is distinct from 'string' then
            perform sluicegate.refuse('SG001', 'lease_token', 'lease_token is missing.', 'Send the token that the claim gave.');
        end if;
        perform sluicegate.whole_number(v_item -> 'lease_seconds', 'lease_seconds', 1, 86400, null);
        if octet_length(v_item ->> 'note') > 512 then
            perform sluicegate.refuse('SG001', 'note', 'The note is over 512 bytes long.', 'Shorten it.');
        end if;
    end loop;
end
$$;
