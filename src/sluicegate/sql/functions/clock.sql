-- The one clock of every decision. It reads no setting and no table, so nobody can move it but the
-- owner of the schema, who may replace it in a test; migrate puts this text back.
-- grants: worker, producer, reader
create or replace function sluicegate.clock() returns timestamptz
language plpgsql volatile parallel safe
set search_path = sluicegate, pg_temp
as $$
begin
    return clock_timestamp();
end
$$;
