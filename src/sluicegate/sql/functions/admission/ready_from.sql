-- Where to start looking in a ready index: at the hint while it is under a second old, else at the beginning. A hint is kept
-- only while the beginning is expensive to read (ready_looked), that is, while an old snapshot keeps dead entries there.
-- Reads the wall clock itself: the age of a hint is no matter of the queue's time.
-- grants: none
create or replace function sluicegate.ready_from(
    p_queue_id bigint, p_class text, p_hints boolean, out priority smallint, out run_at timestamptz, out id bigint
)
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
begin
    if p_hints then
        select c.priority, c.run_at, c.id into priority, run_at, id
        from sluicegate.ready_cursor c
        where c.queue_id = p_queue_id and c.class = p_class and c.looked_at between clock_timestamp() - interval '1 second' and clock_timestamp();
    end if;
    if id is null then
        priority := -32768;
        run_at := '-infinity';
        id := 0;
    end if;
end
$$;
