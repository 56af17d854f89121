-- Refuses a worker's name of over 128 bytes; none at all is fine. Raises SG001.
-- grants: none
create or replace function sluicegate.check_worker(p_worker text) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if octet_length(p_worker) > 128 then
        perform sluicegate.refuse('SG001', 'worker', 'The name of the worker is over 128 bytes long.', 'Shorten it.');
    end if;
end
$$;
