-- When a job that is due at p_from is expected to be admitted if nothing changes: p_ahead others go before it, p_fresh of which need a place
-- of their own, as does the job unless it is a takeover. Null when nobody can tell. exact while windows and the end of a pause alone
-- decide; a full cap gives a hint only, since a place is free when a job ends. Takes no lock.
-- grants: none
create or replace function sluicegate.expected_at(
    p_queue_id bigint, p_verdict jsonb, p_ahead bigint, p_fresh bigint, p_takeover boolean, p_from timestamptz,
    out at timestamptz, out exact boolean
)
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_gate jsonb;
begin
    at := p_from;
    exact := true;
    if p_verdict ->> 'reason' = 'admission_unavailable' then
        at := null;
    end if;
    for v_gate in
        select g from jsonb_array_elements(p_verdict -> 'gates') g where g ->> 'gate' <> 'window' and g ->> 'mode' = 'enforce'
    loop
        if v_gate ->> 'gate' = 'pause' then
            at := case when v_gate ->> 'until' is not null then greatest(at, (v_gate ->> 'until')::timestamptz) end;
        elsif (v_gate ->> 'limit')::bigint = 0 then
            at := null;
        elsif (v_gate ->> 'used')::bigint + (case when p_takeover then 0 else p_fresh + 1 end) > (v_gate ->> 'limit')::bigint then
            exact := false;
            at := case when at is not null then greatest(at, (v_gate ->> 'until')::timestamptz) end;
        end if;
        exit when at is null;
    end loop;
    if at is not null and p_verdict -> 'gates' <> '[]' then
        at := sluicegate.expected_window(p_queue_id, p_ahead, at);
    end if;
    exact := exact and at is not null;
end
$$;
