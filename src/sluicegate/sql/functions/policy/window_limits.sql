-- The window limits of a policy as people write it (limits, or the single form), checked and made canonical. One look for all zones, since
-- that takes the database a tenth of a second: to be called before a lane is locked. p_tz: see limit_fields. Raises SG001 naming the field.
-- grants: none
create or replace function sluicegate.window_limits(p_policy jsonb, p_tz text) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_single boolean := p_policy ? 'max_claims_per_window' or p_policy ? 'window';
    v_limits jsonb;
    v_zones text[];
    v_limit jsonb;
    v_done jsonb := '[]';
    v_at integer;
begin
    v_limits := case
        when v_single then jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'max_claims_per_window', p_policy -> 'max_claims_per_window', 'window', p_policy -> 'window', 'mode', p_policy -> 'mode')))
        else coalesce(nullif(p_policy -> 'limits', 'null'), '[]')
    end;
    if v_limits = '[{}]' then
        v_limits := '[]';
    end if;
    if jsonb_typeof(v_limits) <> 'array' or jsonb_array_length(v_limits) > 16 then
        perform sluicegate.refuse('SG001', 'limits', 'limits is an array of at most 16 window limits.',
            'Send [{"max_claims_per_window": 100, "window": {"period": "day", "tz": "UTC", "start": "00:00"}}].');
    end if;
    if v_limits <> '[]' then
        v_zones := array(
            select z.name from pg_timezone_names z
            where z.name in (select coalesce(e #>> '{window,tz}', p_tz) from jsonb_array_elements(v_limits) e));
    end if;
    for v_limit, v_at in select e, ord - 1 from jsonb_array_elements(v_limits) with ordinality as x(e, ord) loop
        v_done := v_done || jsonb_build_array(sluicegate.limit_fields(v_limit, p_tz,
            case when v_single or jsonb_array_length(v_limits) = 1 then '' else format('limits[%s].', v_at) end, v_zones));
    end loop;
    if exists (select from jsonb_array_elements(v_done) e group by e -> 'period', e -> 'tz', e -> 'starts_at' having count(*) > 1) then
        perform sluicegate.refuse('SG001', 'limits', 'Two limits have the same window.', 'Keep the tighter one.');
    end if;
    return v_done;
end
$$;
