-- The earliest instant whose local wall clock has reached a nominal local time: its first occurrence where it occurs
-- twice, the end of the gap where it does not exist. PostgreSQL itself takes the second occurrence, and shifts by the
-- gap's length. Takes no lock.
-- grants: none
create or replace function sluicegate.local_instant(p_local timestamp, p_tz text) returns timestamptz
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_tz text := ':' || p_tz;
    v_guess timestamptz := p_local at time zone v_tz;
    v_before timestamptz;
    v_found timestamptz;
    v_low timestamptz;
    v_high timestamptz;
    v_mid timestamptz;
begin
    -- Far from any change of offset the guess is the only answer.
    v_before := v_guess - interval '26 hours';
    if (v_before at time zone v_tz) = p_local - interval '26 hours'
        and ((v_guess + interval '26 hours') at time zone v_tz) = p_local + interval '26 hours'
    then
        return v_guess;
    end if;
    -- Each offset in force nearby gives an instant at which the clock may show this time.
    select min(c.at) filter (where (c.at at time zone v_tz) = p_local), min(c.at), max(c.at)
    into v_found, v_low, v_high
    from (
        select (p_local - ((s.at at time zone v_tz) - (s.at at time zone 'UTC'))) at time zone 'UTC' as at
        from (
            select v_guess + make_interval(hours => h) as at from generate_series(-26, 26) as h
        ) s
    ) c;
    if v_found is not null then
        return v_found;
    end if;
    -- A gap: offsets change at whole seconds, so look for the second at which the clock jumps past it.
    while v_high - v_low > interval '1 second' loop
        v_mid := date_trunc('second', v_low + (v_high - v_low) / 2);
        if (v_mid at time zone v_tz) >= p_local then
            v_high := v_mid;
        else
            v_low := v_mid;
        end if;
    end loop;
    return v_high;
end
$$;
