-- Refuses finishes that say nothing usable, naming the field. Raises SG001.
-- grants: none
create or replace function sluicegate.check_finish(p_items jsonb) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    v_field text;
begin
    select f.field into v_field
    from (
        select case
                when jsonb_typeof(e) <> 'object' then 'finished'
                when jsonb_typeof(e -> 'job_id') is distinct from 'number'
                    or e ->> 'job_id' !~ '^[0-9]{1,19}$' or (e ->> 'job_id')::numeric > 9223372036854775807 then 'job_id'
                when jsonb_typeof(e -> 'lease_token') is distinct from 'string' then 'lease_token'
                when coalesce(e ->> 'outcome', '') not in ('completed', 'failed', 'released', 'cancelled') then 'outcome'
                when octet_length(e ->> 'result') > 200 and (octet_length((e -> 'result')::text) > 1048576
                    or jsonb_path_exists(e -> 'result', 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")'))
                    then 'result'
                when jsonb_typeof(e -> 'error') not in ('string', 'null') or octet_length(e ->> 'error') > 65536 then 'error'
                when jsonb_typeof(e -> 'reason') not in ('string', 'null') or octet_length(e ->> 'reason') > 65536
                    then 'reason'
                when jsonb_typeof(e -> 'summary') not in ('string', 'null') or octet_length(e ->> 'summary') > 2048
                    then 'summary'
                when case jsonb_typeof(e -> 'retry_in_seconds')
                        when 'number' then (e -> 'retry_in_seconds')::numeric not between 0 and 31536000
                        else jsonb_typeof(e -> 'retry_in_seconds') <> 'null'
                    end then 'retry_in_seconds'
                when jsonb_typeof(e -> 'retry') not in ('boolean', 'null') then 'retry'
                when jsonb_typeof(e -> 'started') not in ('boolean', 'null') then 'started'
                when jsonb_typeof(e -> 'account') not in ('string', 'null') or octet_length(e ->> 'account') not between 1 and 128
                    then 'account'
                when case when jsonb_typeof(e -> 'not_before') <> 'null' then sluicegate.moment(e -> 'not_before') is null end
                    then 'not_before'
                when jsonb_typeof(e -> 'scope') not in ('string', 'null') then 'scope'
                when e - '{job_id,lease_token,outcome,result,error,reason,summary,retry_in_seconds,retry,started,account,not_before,scope}'::text[]
                    <> '{}' then (
                    select min(k) from jsonb_object_keys(e) k
                    where k <> all ('{job_id,lease_token,outcome,result,error,reason,summary,retry_in_seconds,retry,started,account,not_before,scope}')
                )
            end as field
        from jsonb_array_elements(p_items) e
        -- A plain finish, as most are, needs no closer look.
        where not coalesce(
            jsonb_typeof(e) = 'object' and jsonb_typeof(e -> 'job_id') = 'number'
            and ltrim(e ->> 'job_id', '0123456789') = '' and length(e ->> 'job_id') <= 18
            and jsonb_typeof(e -> 'lease_token') = 'string' and e ->> 'outcome' in ('completed', 'failed', 'released', 'cancelled')
            and jsonb_typeof(coalesce(e -> 'scope', '""')) = 'string' and octet_length(coalesce(e ->> 'result', '')) <= 200
            and e - '{job_id,lease_token,outcome,scope,result}'::text[] <@ '{"error": null, "reason": null, "summary": null,
                "retry_in_seconds": null, "retry": true, "started": true, "account": null, "not_before": null}', false)
    ) f
    where f.field is not null
    limit 1;
    if found then
        perform sluicegate.refuse('SG001', v_field, format('%s is missing or not usable.', v_field),
            case v_field
                when 'job_id' then 'job_id is the id of the claimed job, a number.'
                when 'outcome' then 'An outcome is completed, failed, released or cancelled.'
                when 'result' then 'A result is JSON of at most 1 MiB that nests at most 100 levels.'
                when 'error' then 'An error is text of at most 64 KiB.'
                when 'reason' then 'A reason is text of at most 64 KiB.'
                when 'summary' then 'A summary is text of at most 2,048 bytes.'
                when 'retry_in_seconds' then 'retry_in_seconds is a number from 0 to 31,536,000.'
                when 'retry' then 'retry is true or false.'
                when 'started' then 'started is true or false.'
                when 'account' then 'An account is text of 1 to 128 bytes.'
                when 'not_before' then 'not_before is a time with a zone, like 2030-01-31T09:30:00Z, within the years 1 to 9999.'
                when 'scope' then 'A scope is text: endpoint:SLUG, endpoint:SLUG@OWNER or team:SLUG.'
                else 'Send {"job_id": 1, "lease_token": "…", "outcome": "completed"}; texts have at most 64 KiB.'
            end);
    end if;
end
$$;
