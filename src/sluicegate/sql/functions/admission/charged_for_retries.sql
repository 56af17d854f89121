-- Of the claims charged since an instant, how many were not the first of their job: retries and takeovers.
-- grants: none
create or replace function sluicegate.charged_for_retries(p_queue_id bigint, p_since timestamptz) returns bigint
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
begin
    return (
        select count(*) filter (where a.seq > 1)
        from sluicegate.attempt a where a.queue_id = p_queue_id and a.opened_at >= p_since
    );
end
$$;
