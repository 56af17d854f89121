-- What was forgiven in the current windows of a queue's limits, whose gates are given: [{period, tz, starts, amount}]. None where they cannot
-- be read, like the policy itself. Takes no lock.
-- grants: none
create or replace function sluicegate.forgiven_now(p_queue_id bigint, p_gates jsonb) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set lock_timeout = '1s'
as $$
begin
    if not exists (select from jsonb_array_elements(p_gates) g where g ->> 'gate' = 'window') then
        return '[]'::jsonb;
    end if;
    return (
        select coalesce(jsonb_agg(jsonb_build_object('period', b.period, 'tz', b.tz, 'starts', f.starts, 'amount', f.amount)
            order by f.starts desc, b.id), '[]')
        from sluicegate.policy_limit l
        join sluicegate.budget_window b on b.id = l.window_id
        join sluicegate.forgiven f on f.window_id = l.window_id
        where l.queue_id = p_queue_id and exists (
            select from jsonb_array_elements(p_gates) g where g ->> 'period' = b.period and (g ->> 'starts')::timestamptz = f.starts
        )
    );
exception
    when undefined_table or lock_not_available then
        return '[]'::jsonb;
end
$$;
