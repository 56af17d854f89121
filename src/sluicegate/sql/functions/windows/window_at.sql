-- The calendar window that contains an instant: starts <= p_at < ends, always. Days, weeks and months follow the local wall clock
-- of the zone from p_start (a week's counted from Monday, a month's from the 1st); hours are steps of 3,600 s from p_origin, so no
-- zone can repeat or skip one. Windows tile time: a boundary that a change of offset takes away has none of its own.
-- grants: none
create or replace function sluicegate.window_at(
    p_period text, p_tz text, p_start interval, p_origin timestamptz, p_at timestamptz,
    out starts timestamptz, out ends timestamptz
)
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_step interval := case p_period when 'day' then interval '1 day' when 'week' then interval '1 week' else interval '1 month' end;
    -- The colon: by its file, never as an abbreviation. Plain CET would be one hour east of UTC all the year round.
    v_tz text := ':' || p_tz;
    v_unit timestamp;
begin
    if p_period = 'hour' then
        starts := date_bin('1 hour', p_at, p_origin);
        ends := starts + interval '1 hour';
        return;
    end if;
    -- All arithmetic is on local time without zone, then converted: an hour subtracted from an instant is not one on the wall.
    v_unit := date_trunc(p_period, (p_at at time zone v_tz) - p_start) + v_step;
    starts := sluicegate.local_instant(v_unit + p_start, p_tz);
    while starts > p_at loop
        ends := starts;
        v_unit := date_trunc(p_period, v_unit - interval '1 second');
        starts := sluicegate.local_instant(v_unit + p_start, p_tz);
    end loop;
    while ends is null or ends <= p_at loop
        starts := coalesce(ends, starts);
        v_unit := v_unit + v_step;
        ends := sluicegate.local_instant(v_unit + p_start, p_tz);
    end loop;
end
$$;
