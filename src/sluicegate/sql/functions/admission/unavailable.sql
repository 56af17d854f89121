-- The verdict on a queue whose policy cannot be read or evaluated: closed, until somebody mends it. p_code is the SQLSTATE of what went
-- wrong, p_fault its message.
-- grants: none
create or replace function sluicegate.unavailable(p_code text, p_fault text) returns jsonb
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
begin
    return jsonb_build_object('state', 'deferred', 'reason', 'admission_unavailable', 'next_eligible_at', null, 'exact', false,
        'fault', case p_code when '55P03' then 'A lock on the policy or its lanes was not granted in time.' else p_fault end,
        'fault_code', p_code, 'gates', '[]'::jsonb, 'all', jsonb_build_array(jsonb_build_object(
            'gate', 'policy', 'period', null, 'limit', null, 'used', null, 'until', null, 'exact', false)));
end
$$;
