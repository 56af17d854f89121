-- One finish in a part of its own: whatever is wrong with it becomes its answer. Waits for its job as long as
-- the caller lets it: held up by another transaction it answers unavailable, and is to be sent again.
-- grants: none
create or replace function sluicegate.finish_one(p_item jsonb, out answer json, out queues bigint[], out lanes smallint[])
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_finished record;
    v_message text;
    v_field text;
begin
    v_finished := sluicegate.finish_jobs(jsonb_build_array(p_item), false);
    answer := v_finished.answer -> 0;
    queues := v_finished.queues;
    lanes := v_finished.lanes;
exception
    when lock_not_available then
        answer := json_build_object('job_id', p_item -> 'job_id', 'status', 'unavailable', 'replayed', false, 'message',
            format('Another transaction holds job %s, so nothing was changed. Send this finish again.', p_item ->> 'job_id'));
    when data_exception or sqlstate 'SG001' or sqlstate 'SG002' or statement_too_complex then
        get stacked diagnostics v_message = message_text, v_field = pg_exception_detail;
        answer := json_build_object('job_id', p_item -> 'job_id', 'status',
            case when sqlstate = 'SG002' then 'not_found' else 'invalid_argument' end, 'replayed', false,
            'field', case when sqlstate like 'SG%' then nullif(v_field, '') end, 'message', v_message);
end
$$;
