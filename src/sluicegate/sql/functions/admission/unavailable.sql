-- The verdict on a queue whose policy cannot be read or evaluated: closed, until somebody mends it. p_code is the SQLSTATE of what went
-- wrong, p_fault its message; p_lanes says that the lanes were being locked. A fault_code of 55P03 is a table that is locked away, for
-- every queue with a policy.
-- grants: none
create or replace function sluicegate.unavailable(p_code text, p_fault text, p_lanes boolean default false) returns jsonb
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
begin
    return jsonb_build_object('state', 'deferred', 'reason', 'admission_unavailable', 'next_eligible_at', null, 'exact', false,
        'fault', case
            when p_code = '55P03' and p_lanes then 'Another session holds the lanes of the queue for too long.'
            when p_code = '55P03' then 'Another session holds a lock on a table of policies.'
            else p_fault
        end,
        'fault_code', case when p_lanes then 'lanes' else p_code end, 'gates', '[]'::jsonb, 'all', jsonb_build_array(jsonb_build_object(
            'gate', 'policy', 'period', null, 'limit', null, 'used', null, 'until', null, 'exact', false)));
end
$$;
