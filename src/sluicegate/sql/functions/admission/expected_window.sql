-- When a job with p_ahead others before it starts if nothing changes but the windows: plays the enforced window limits forward from what is
-- used at p_now, which may lie ahead. Null when a limit is 0, and when it is further off than 1,000 boundaries. Takes no lock.
-- grants: none
create or replace function sluicegate.expected_window(p_queue_id bigint, p_ahead bigint, p_now timestamptz) returns timestamptz
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_windows bigint[];
    v_most bigint[];
    v_left bigint[];
    v_ends timestamptz[];
    v_at timestamptz := p_now;
    v_ahead bigint := p_ahead;
    v_room bigint;
begin
    select array_agg(g.window_id order by g.window_id), array_agg(g.capacity order by g.window_id),
        array_agg(greatest(g.capacity - g.used, 0) order by g.window_id), array_agg(g.until order by g.window_id)
    into v_windows, v_most, v_left, v_ends
    from sluicegate.gate_windows(p_queue_id, p_now) g
    where g.mode = 'enforce';
    if v_windows is null then
        return p_now;
    end if;
    if 0 = any (v_most) then
        return null;
    end if;
    for v_try in 1 .. 1000 loop
        v_room := (select min(r) from unnest(v_left) r);
        if v_ahead < v_room then
            return v_at;
        end if;
        v_ahead := v_ahead - v_room;
        v_left := array(select r - v_room from unnest(v_left) with ordinality as x(r, ord) order by ord);
        -- On to the boundary at which the last of the closed windows opens, refilling each that ends on the way.
        v_at := (select max(e) from unnest(v_ends, v_left) as x(e, r) where r = 0);
        for i in 1 .. cardinality(v_windows) loop
            while v_ends[i] <= v_at loop
                v_left[i] := v_most[i];
                v_ends[i] := (select w.ends from sluicegate.budget_window b,
                    sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, v_ends[i]) w where b.id = v_windows[i]);
            end loop;
        end loop;
    end loop;
    return null;
end
$$;
