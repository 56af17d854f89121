-- Refuses heartbeats that say nothing usable, naming the field. Raises SG001.
-- grants: none
create or replace function sluicegate.check_heartbeats(p_items jsonb) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_field text;
begin
    if jsonb_typeof(p_items) is distinct from 'array' or jsonb_array_length(p_items) not between 1 and 10000 then
        perform sluicegate.refuse('SG001', 'heartbeats', 'A heartbeat call takes an array of 1 to 10,000 items.',
            'Send [{"job_id": 1, "lease_token": "…"}].');
    end if;
    select f.field into v_field
    from (
        select case
                when jsonb_typeof(e) <> 'object' then 'heartbeats'
                when jsonb_typeof(e -> 'job_id') is distinct from 'number'
                    or e ->> 'job_id' !~ '^[0-9]{1,19}$' or (e ->> 'job_id')::numeric > 9223372036854775807 then 'job_id'
                when jsonb_typeof(e -> 'lease_token') is distinct from 'string' then 'lease_token'
                when case jsonb_typeof(e -> 'lease_seconds')
                        when 'number' then (e -> 'lease_seconds')::numeric not between 1 and 86400
                            or (e -> 'lease_seconds')::numeric <> trunc((e -> 'lease_seconds')::numeric)
                        else jsonb_typeof(e -> 'lease_seconds') <> 'null'
                    end then 'lease_seconds'
                when jsonb_typeof(e -> 'shorten') not in ('boolean', 'null') then 'shorten'
                when jsonb_typeof(e -> 'note') not in ('string', 'null') or octet_length(e ->> 'note') > 512 then 'note'
                when e - '{job_id,lease_token,lease_seconds,shorten,note}'::text[] <> '{}' then (
                    select min(k) from jsonb_object_keys(e) k where k <> all ('{job_id,lease_token,lease_seconds,shorten,note}')
                )
            end as field
        from jsonb_array_elements(p_items) e
    ) f
    where f.field is not null
    limit 1;
    if found then
        perform sluicegate.refuse('SG001', v_field, format('%s is missing or not usable.', v_field),
            case v_field
                when 'job_id' then 'job_id is the id of the claimed job, a number.'
                when 'lease_token' then 'Send the token that the claim gave.'
                when 'lease_seconds' then 'lease_seconds is a whole number from 1 to 86400.'
                when 'shorten' then 'shorten is true or false.'
                when 'note' then 'A note is text of at most 512 bytes.'
                else 'Send {"job_id": 1, "lease_token": "…"}, and lease_seconds, shorten or note if wanted.'
            end);
    end if;
end
$$;
