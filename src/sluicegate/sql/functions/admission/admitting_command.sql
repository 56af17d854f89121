-- The command that would admit a job now, though p_ahead others go before it: it ends a pause, and raises each enforced limit that has no room
-- for all of them. p_fresh and p_takeover as in expected_at. Null when nothing is in its way, or when no number would do: beyond
-- what a limit may be, or two limits of one period, of which the command knows one.
-- grants: none
create or replace function sluicegate.admitting_command(
    p_queue text, p_scope text, p_verdict jsonb, p_ahead bigint, p_fresh bigint, p_takeover boolean
) returns text
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_whose text := sluicegate.scope_options(p_scope);
    v_queue text := sluicegate.shell_word(p_queue);
    v_raise text;
    v_fits boolean;
begin
    if p_verdict ->> 'reason' = 'admission_unavailable' then
        return 'sluicegate doctor';
    end if;
    select string_agg(case when r.gate = 'in_flight' then '--max-in-flight ' else '--per-' || r.period || ' ' end || r.need, ' '
            order by r.gate desc, r.period),
        bool_and(r.need <= case when r.gate = 'in_flight' then 10000 else 1000000 end and (r.gate = 'in_flight' or r.alike = 1))
    into v_raise, v_fits
    from (
        select g ->> 'gate' as gate, g ->> 'period' as period, (g ->> 'limit')::bigint as most, g ->> 'mode' as mode,
            count(*) over (partition by g ->> 'period') as alike,
            (g ->> 'used')::bigint + case when g ->> 'gate' = 'window' then p_ahead + 1 when p_takeover then 0 else p_fresh + 1 end as need
        from jsonb_array_elements(p_verdict -> 'gates') g
        where g ->> 'gate' in ('window', 'in_flight')
    ) r
    where r.mode = 'enforce' and r.need > r.most;
    if not v_fits then
        return null;
    end if;
    return nullif(concat_ws(' && ',
        case when p_verdict -> 'all' @> '[{"gate": "pause"}]' then concat_ws(' ', 'sluicegate queue budget resume', v_whose, v_queue) end,
        case when v_raise is not null then concat_ws(' ', 'sluicegate queue budget set', v_raise, v_whose, v_queue) end), '');
end
$$;
