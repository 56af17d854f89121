-- Wakes whoever waits for a queue when the change just made lets something start earlier than p_before, the queue's verdict before
-- it, has said: NOTIFY sluicegate_admission, sent by the commit. It carries nothing, since any role may listen; lowering wakes nobody.
-- grants: none
create or replace function sluicegate.wake_waiters(p_queue_id bigint, p_before jsonb) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_after jsonb;
begin
    if coalesce(p_before ->> 'state', 'admitted') = 'admitted' then
        return;
    end if;
    v_after := sluicegate.verdict(p_queue_id);
    if v_after ->> 'state' = 'admitted'
        or (v_after ->> 'next_eligible_at')::timestamptz < coalesce((p_before ->> 'next_eligible_at')::timestamptz, 'infinity')
    then
        perform pg_notify('sluicegate_admission', '');
    end if;
end
$$;
