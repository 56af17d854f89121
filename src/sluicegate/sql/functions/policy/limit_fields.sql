-- One window limit, checked and made canonical: {max_claims, mode, period, tz, starts_at, origin}; its zone is p_tz unless it names one.
-- p_zones are those of its call that the database knows. Raises SG001 naming the field.
-- grants: none
create or replace function sluicegate.limit_fields(p_limit jsonb, p_tz text, p_path text, p_zones text[]) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_window jsonb := p_limit -> 'window';
    v_period text := v_window ->> 'period';
    v_tz text := case when v_window ? 'tz' then v_window ->> 'tz' else p_tz end;
    v_most integer;
    v_start text := coalesce(v_window ->> 'start', '00:00');
    v_day integer := 0;
    v_year integer;
    v_offset interval;
    v_origin timestamptz;
begin
    if jsonb_typeof(p_limit) <> 'object' or p_limit - '{max_claims_per_window,window,mode}'::text[] <> '{}' then
        perform sluicegate.refuse('SG001', p_path || 'max_claims_per_window', 'A window limit is {max_claims_per_window, window, mode}.',
            'Correct it.');
    end if;
    v_most := sluicegate.whole_number(p_limit -> 'max_claims_per_window', p_path || 'max_claims_per_window', 0, 1000000, null);
    if v_most is null then
        perform sluicegate.refuse('SG001', p_path || 'max_claims_per_window', 'A window needs max_claims_per_window.',
            'Send 0 to 1,000,000.');
    end if;
    if coalesce(p_limit ->> 'mode', 'enforce') not in ('enforce', 'shadow') then
        perform sluicegate.refuse('SG001', p_path || 'mode', 'mode is enforce or shadow.', 'Leave it out to enforce.');
    end if;
    if jsonb_typeof(v_window) is distinct from 'object' or v_window - '{period,tz,start,weekday,day}'::text[] <> '{}' then
        perform sluicegate.refuse('SG001', p_path || 'window', 'A window is {period, tz, start, weekday, day}.',
            'Send {"period": "day", "tz": "UTC", "start": "00:00"}.');
    end if;
    if coalesce(v_period, '') not in ('hour', 'day', 'week', 'month') then
        perform sluicegate.refuse('SG001', p_path || 'window.period', 'The period is not one of ours.', 'Use hour, day, week or month.');
    end if;
    -- By exact name: the database itself would also take UTC+8 (which is UTC-8), EST5, or any letter case.
    if v_tz is null or v_tz ~ '^(posix|right)/' or v_tz in ('localtime', 'posixrules', 'Factory')
        or v_tz <> all (p_zones)
    then
        perform sluicegate.refuse('SG001', p_path || 'window.tz',
            format('%L is not a zone that the database knows.', left(coalesce(v_tz, ''), 64)),
            'Use an IANA name such as America/Los_Angeles, or UTC.');
    end if;
    if jsonb_typeof(v_window -> 'start') not in ('string', 'null')
        or v_start !~ (case when v_period = 'hour' then '^00:[0-5][0-9]$' else '^([01][0-9]|2[0-3]):[0-5][0-9]$' end)
    then
        perform sluicegate.refuse('SG001', p_path || 'window.start',
            format('The start %L does not fit a window of one %s.', left(v_start, 20), v_period),
            case when v_period = 'hour' then 'An hour starts at its minute: 00:00 to 00:59.' else 'Use HH:MM, 00:00 to 23:59.' end);
    end if;
    if (v_period = 'week') <> (v_window ? 'weekday' and v_window ->> 'weekday' is not null)
        or (v_period = 'week' and (v_window ->> 'weekday') <> all ('{Mon,Tue,Wed,Thu,Fri,Sat,Sun}'::text[]))
    then
        perform sluicegate.refuse('SG001', p_path || 'window.weekday', 'A week, and only a week, starts on a weekday.',
            'Use Mon, Tue, Wed, Thu, Fri, Sat or Sun.');
    end if;
    if v_period <> 'month' and v_window ->> 'day' is not null then
        perform sluicegate.refuse('SG001', p_path || 'window.day', 'Only a month starts on a day.', 'Leave it out.');
    end if;
    v_day := case v_period
        when 'week' then array_position('{Mon,Tue,Wed,Thu,Fri,Sat,Sun}'::text[], v_window ->> 'weekday') - 1
        when 'month' then sluicegate.whole_number(v_window -> 'day', p_path || 'window.day', 1, 28, 1) - 1
        else 0
    end;
    if v_period = 'hour' then
        v_year := extract(year from sluicegate.clock() at time zone (':' || v_tz));
        select min((x.at at time zone (':' || v_tz)) - (x.at at time zone 'UTC')) into v_offset
        from (values (make_timestamptz(v_year, 1, 1, 12, 0, 0, 'UTC')), (make_timestamptz(v_year, 7, 1, 12, 0, 0, 'UTC'))) x(at);
        v_origin := (make_timestamp(v_year, 1, 1, 0, 0, 0) + v_start::interval - v_offset) at time zone 'UTC';
    end if;
    return jsonb_build_object('max_claims', v_most, 'mode', coalesce(p_limit ->> 'mode', 'enforce'),
        'period', v_period, 'tz', v_tz, 'starts_at', (make_interval(days => v_day) + v_start::interval)::text, 'origin', v_origin);
end
$$;
