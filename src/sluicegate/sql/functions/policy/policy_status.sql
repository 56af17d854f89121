-- A queue's policy with what is used of it and the verdict, null without a policy; opening while the claims that were in the air before
-- a first policy are awaited. Of a policy that cannot be read it says the verdict alone; p_locked is the one on another queue which found a
-- table locked away, so that nobody waits for it twice. Takes no lock.
-- grants: none
create or replace function sluicegate.policy_status(p_queue_id bigint, p_locked jsonb default null) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set lock_timeout = '1s'
as $$
declare
    v_queue record;
    v_verdict jsonb;
    v_document jsonb;
begin
    select q.name, q.governed into v_queue from sluicegate.queue q where q.id = p_queue_id;
    if not v_queue.governed then
        return null;
    end if;
    v_verdict := coalesce(p_locked, sluicegate.verdict(p_queue_id));
    if v_verdict ->> 'fault_code' is distinct from '55P03' then
        begin
            select d.document || jsonb_build_object('opening', p.opening,
                -- A pause that is over is none.
                'paused', p.paused and coalesce(p.paused_until > sluicegate.clock(), true),
                'paused_reason', case when coalesce(p.paused_until > sluicegate.clock(), true) then p.paused_reason end,
                'paused_until', case when p.paused_until > sluicegate.clock() then p.paused_until end,
                'awaited', case when p.opening then sluicegate.awaited_claims(p_queue_id) else '[]'::jsonb end)
            into v_document
            from sluicegate.policy p, (select sluicegate.policy_document(p_queue_id) as document) d
            where p.queue_id = p_queue_id;
        exception
            when others then
                -- What can be told of it is in the verdict.
                null;
        end;
    end if;
    return coalesce(v_document, '{}') || jsonb_build_object(
        'queue', v_queue.name, 'status', case v_verdict ->> 'state' when 'admitted' then 'admitted' else v_verdict ->> 'reason' end,
        'verdict', v_verdict - 'gates', 'gates', v_verdict -> 'gates');
end
$$;
