-- Refuses finishes that say nothing usable, naming the field. Raises SG001.
-- grants: none
create or replace function sluicegate.check_finish(p_items jsonb) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_field text;
begin
    select case
            when jsonb_typeof(e) <> 'object' then 'finished'
            when jsonb_typeof(e -> 'job_id') is distinct from 'number' then 'job_id'
            when jsonb_typeof(e -> 'lease_token') is distinct from 'string' then 'lease_token'
            when coalesce(e ->> 'outcome', '') not in ('completed', 'failed', 'released') then 'outcome'
            when octet_length(e ->> 'result') > 1048576 then 'result'
            when octet_length(e ->> 'error') > 65536 then 'error'
            when octet_length(e ->> 'reason') > 65536 then 'reason'
            when octet_length(e ->> 'summary') > 2048 then 'summary'
            when (e ->> 'retry_in_seconds')::double precision not between 0 and 31536000 then 'retry_in_seconds'
            when (e ->> 'not_before')::timestamptz not between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'
                then 'not_before'
        end
    into v_field
    from jsonb_array_elements(p_items) e
    where jsonb_typeof(e) <> 'object'
        or jsonb_typeof(e -> 'job_id') is distinct from 'number'
        or jsonb_typeof(e -> 'lease_token') is distinct from 'string'
        or coalesce(e ->> 'outcome', '') not in ('completed', 'failed', 'released')
        or octet_length(e ->> 'result') > 1048576
        or octet_length(e ->> 'error') > 65536
        or octet_length(e ->> 'reason') > 65536
        or octet_length(e ->> 'summary') > 2048
        or (e ->> 'retry_in_seconds')::double precision not between 0 and 31536000
        or (e ->> 'not_before')::timestamptz not between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'
    limit 1;
    if found then
        perform sluicegate.refuse('SG001', v_field, format('%s is missing or not usable.', v_field),
            case v_field
                when 'outcome' then 'An outcome is completed, failed or released.'
                when 'result' then 'A result is JSON of at most 1 MiB.'
                when 'summary' then 'A summary has at most 2,048 bytes.'
                when 'retry_in_seconds' then 'retry_in_seconds is 0 to 31,536,000.'
                when 'not_before' then 'not_before is a finite time with a zone, within the years 1 to 9999.'
                else 'Send {"job_id": 1, "lease_token": "…", "outcome": "completed"}; texts have at most 64 KiB.'
            end);
    end if;
end
$$;
