-- Keeps the answer to a request_id for 24 hours; its lock is held by request_replay.
-- grants: none
create or replace function sluicegate.request_keep(
    p_scope_id bigint, p_request_id text, p_verb text, p_body jsonb, p_answer jsonb
) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    insert into sluicegate.request as r (scope_id, request_id, verb, body_sha256, answer, created_at)
    values (p_scope_id, p_request_id, p_verb, sha256(convert_to(p_body::text, 'UTF8')), p_answer, sluicegate.clock())
    on conflict (scope_id, request_id) do update
    set verb = excluded.verb, body_sha256 = excluded.body_sha256, answer = excluded.answer, created_at = excluded.created_at;
end
$$;
