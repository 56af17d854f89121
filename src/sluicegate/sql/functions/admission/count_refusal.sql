-- Counts a refused claim by reason and minute: a session writes at most once a second, and keeps what it has not written until its next
-- refusal, each minute apart; when it ends first, that is lost. A row a slot, so that no row is hot and nobody waits for one: a slot in
-- use is passed by. Never raises: a figure is not worth a claim.
-- grants: none
create or replace function sluicegate.count_refusal(p_queue_id bigint, p_reason text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_name text := format('sluicegate.refused_%s_%s', p_queue_id, p_reason);
    v_kept text := current_setting(v_name, true);
    v_wall bigint := floor(extract(epoch from sluicegate.clock()) * 1000);
    v_minute bigint := v_wall / 60000;
    v_looked bigint;
    v_minutes bigint[] := '{}';
    v_counts bigint[] := '{}';
    v_slot integer;
begin
    -- When it last wrote, then minutes with their counts. The session may have put anything there.
    if v_kept ~ '^\d{1,15}( \d{1,11} \d{1,9}){0,4}$' then
        v_looked := split_part(v_kept, ' ', 1)::bigint;
        select coalesce(array_agg(p[1]::bigint), '{}'), coalesce(array_agg(p[2]::bigint), '{}') into v_minutes, v_counts
        from regexp_matches(v_kept, ' (\d+) (\d+)', 'g') p;
    end if;
    if v_minutes[1] = v_minute then
        v_counts[1] := v_counts[1] + 1;
    else
        -- What cannot be written for minutes is let go, the oldest first.
        v_minutes := v_minute || v_minutes[:3];
        v_counts := 1 || v_counts[:3];
    end if;
    if v_looked is null or abs(v_wall - v_looked) >= 1000 then
        v_looked := v_wall;
        begin
            lock table sluicegate.refusal in row exclusive mode nowait;
            select s into v_slot
            from (select (pg_backend_pid() + n) % 16 as s from generate_series(0, 15) n offset 0) x
            where pg_try_advisory_xact_lock(hashint8(p_queue_id), hashtext(format('refusal %s %s', s, p_reason)))
            limit 1;
            if v_slot is not null then
                insert into sluicegate.refusal as r (queue_id, reason, minute, slot, refused)
                select p_queue_id, p_reason, to_timestamp(m * 60), v_slot, c from unnest(v_minutes, v_counts) x(m, c)
                on conflict (queue_id, reason, minute, slot) do update set refused = r.refused + excluded.refused;
                v_minutes := '{}';
                v_counts := '{}';
            end if;
        exception
            when others then
                null;
        end;
    end if;
    perform set_config(v_name, concat_ws(' ', v_looked, (
        select string_agg(format('%s %s', x.m, x.c), ' ' order by x.ord) from unnest(v_minutes, v_counts) with ordinality x(m, c, ord)
    )), false);
end
$$;
