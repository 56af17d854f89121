-- A policy as people write it, checked and made canonical for write_policy; its limits already are, by window_limits or policy_kept.
-- Raises SG001 naming the field.
-- grants: none
create or replace function sluicegate.policy_fields(p_policy jsonb, p_limits jsonb) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_single boolean := p_policy ? 'max_claims_per_window' or p_policy ? 'window';
    v_paused boolean;
    v_most integer;
    v_lanes integer;
    v_field text;
    v_until timestamptz;
begin
    if jsonb_typeof(p_policy) is distinct from 'object' then
        perform sluicegate.refuse('SG001', 'policy', 'A policy is a JSON object.', 'Send {"max_in_flight": 4}.');
    end if;
    select min(k) into v_field from jsonb_object_keys(p_policy) k where k <> all (
        '{max_in_flight,in_flight_mode,limits,max_claims_per_window,window,mode,paused,paused_reason,paused_until,lanes}'::text[]);
    if v_field is not null then
        perform sluicegate.refuse('SG001', v_field, format('%s is not a field of a policy.', v_field),
            'The fields are max_in_flight, in_flight_mode, limits, paused, paused_reason, paused_until and lanes.');
    end if;
    if v_single and p_policy -> 'limits' not in ('[]', 'null') then
        perform sluicegate.refuse('SG001', 'limits', 'A policy gives either limits, or one max_claims_per_window with its window.',
            'Use limits.');
    end if;
    if p_policy ? 'mode' and not v_single then
        perform sluicegate.refuse('SG001', 'mode', 'mode belongs to a limit, not to the policy.',
            'Put it into each of limits, or use in_flight_mode for max_in_flight.');
    end if;
    v_most := sluicegate.whole_number(p_policy -> 'max_in_flight', 'max_in_flight', 0, 10000, null);
    v_lanes := sluicegate.whole_number(p_policy -> 'lanes', 'lanes', 1, 64, null);
    if coalesce(p_policy ->> 'in_flight_mode', 'enforce') not in ('enforce', 'shadow') then
        perform sluicegate.refuse('SG001', 'in_flight_mode', 'in_flight_mode is enforce or shadow.', 'Leave it out to enforce.');
    end if;
    if jsonb_typeof(p_policy -> 'paused') not in ('boolean', 'null') then
        perform sluicegate.refuse('SG001', 'paused', 'paused is true or false.', 'Send a boolean.');
    end if;
    v_paused := coalesce((p_policy ->> 'paused')::boolean, false);
    if jsonb_typeof(p_policy -> 'paused_reason') not in ('string', 'null') or octet_length(p_policy ->> 'paused_reason') > 1024 then
        perform sluicegate.refuse('SG001', 'paused_reason', 'The reason of a pause is text of at most 1,024 bytes.', 'Shorten it.');
    end if;
    v_until := sluicegate.moment(p_policy -> 'paused_until');
    if v_until is null and p_policy ->> 'paused_until' is not null then
        perform sluicegate.refuse('SG001', 'paused_until', 'paused_until is not a usable time.', 'Send an ISO 8601 time with its zone.');
    end if;
    v_field := case when p_policy ->> 'paused_until' is not null then 'paused_until'
        when p_policy ->> 'paused_reason' is not null then 'paused_reason' end;
    if v_field is not null and not v_paused then
        perform sluicegate.refuse('SG001', v_field, format('%s says something about a pause, and there is none.', v_field),
            'Send "paused": true with it, or leave it out.');
    end if;
    if p_limits = '[]' and v_most is null and not v_paused then
        perform sluicegate.refuse('SG001', 'policy', 'A policy sets at least one limit, or paused.', 'To take a policy away, clear it.');
    end if;
    return jsonb_build_object('max_in_flight', v_most,
        'in_flight_mode', coalesce(p_policy ->> 'in_flight_mode', 'enforce'),
        'paused', v_paused, 'paused_reason', p_policy -> 'paused_reason', 'paused_until', v_until,
        'lanes', v_lanes, 'limits', p_limits);
end
$$;
