-- Says what a field of a job may be, for whatever wrote something else into it. Raises SG001.
-- grants: none
create or replace function sluicegate.refuse_job_field(p_field text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    perform sluicegate.refuse('SG001', p_field, format('%s is not usable.', p_field),
        case substring(p_field from '[a-z_]+$')
            when 'queue' then 'A queue is text: 1 to 128 bytes of UTF-8 without white space, control characters or a slash.'
            when 'payload' then 'A payload is JSON of at most 1 MiB that nests at most 100 levels. Store larger data elsewhere and enqueue a reference.'
            when 'kind' then 'A kind has at most 128 bytes.'
            when 'title' then 'A title has at most 512 bytes.'
            when 'priority' then 'A priority is a whole number from -32768 to 32767; lower is more important.'
            when 'run_at' then 'run_at is a finite time with a zone, within the years 1 to 9999.'
            when 'dedup_key' then 'A dedup_key has 1 to 512 bytes.'
            when 'tags' then 'Tags are an array of at most 32 texts of 1 to 64 bytes.'
            when 'parent_id' then 'parent_id is the id of a job of this scope.'
            when 'max_attempts' then 'max_attempts is a whole number from 1 to 1000.'
            when 'backoff' then 'A backoff is {"base_seconds": 0 to 2592000, "max_seconds": 0 to 2592000}.'
            else 'Send an array of job objects.'
        end);
end
$$;
