-- Serialises the callers of one request_id and gives the answer kept for it, null for a new one.
-- Waits, at most, for a call with the same id; take it before any row lock. Raises SG003 when the id
-- was used for another body or verb, SG001 for a malformed id.
-- grants: none
create or replace function sluicegate.request_replay(p_scope_id bigint, p_request_id text, p_verb text, p_body jsonb)
returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_kept record;
begin
    if octet_length(p_request_id) not between 1 and 128 then
        perform sluicegate.refuse('SG001', 'request_id', 'A request_id is 1 to 128 bytes long.',
            'Use a fresh UUID for each request and repeat it only when retrying that request.');
    end if;
    perform pg_advisory_xact_lock(sluicegate.request_key(p_scope_id, p_request_id));
    select r.verb, r.body_sha256, r.answer into v_kept
    from sluicegate.request r
    where r.scope_id = p_scope_id and r.request_id = p_request_id
        and r.created_at > sluicegate.clock() - interval '24 hours';
    if not found then
        return null;
    end if;
    if v_kept.verb <> p_verb or v_kept.body_sha256 <> sha256(convert_to(p_body::text, 'UTF8')) then
        perform sluicegate.refuse('SG003', 'request_id',
            format('The request_id %L was used for another %s request within the last 24 hours.', p_request_id, v_kept.verb),
            'Repeat the first request unchanged, or take a new request_id.');
    end if;
    return v_kept.answer;
end
$$;
