-- How long a job waits after its p_attempt-th attempt failed: base, doubling, up to max; 30 s and 15 min
-- unless the job names its own. Without jitter, which the caller adds. Null for a malformed backoff.
-- grants: none
create or replace function sluicegate.backoff_seconds(p_backoff jsonb, p_attempt integer) returns double precision
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
declare
    v_base numeric := 30;
    v_max numeric := 900;
begin
    if p_backoff is not null and p_backoff <> 'null' then
        if jsonb_typeof(p_backoff) <> 'object' or p_backoff - '{base_seconds,max_seconds}'::text[] <> '{}'
            or exists (select from jsonb_each(p_backoff) e where jsonb_typeof(e.value) <> 'number')
        then
            return null;
        end if;
        v_base := coalesce((p_backoff ->> 'base_seconds')::numeric, v_base);
        v_max := coalesce((p_backoff ->> 'max_seconds')::numeric, greatest(v_max, v_base));
        if v_base not between 0 and 2592000 or v_max not between 0 and 2592000 then
            return null;
        end if;
    end if;
    -- To the microsecond: less is nothing, and smaller still no double precision.
    return round(least(v_base * 2::numeric ^ least(greatest(p_attempt, 1) - 1, 30), v_max), 6);
end
$$;
