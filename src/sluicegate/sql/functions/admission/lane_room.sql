-- How many claims the windows of a rolled lane still admit; null without an enforced window. A share of null is that of a
-- shadow limit: counted, never enforced. Used is what was charged less what was forgiven.
-- grants: none
create or replace function sluicegate.lane_room(p_lane sluicegate.lane) returns integer
language plpgsql immutable
set search_path = sluicegate, pg_temp
as $$
begin
    return (
select min(greatest(l.share + l.forgiven - l.used, 0))
from unnest(p_lane.shares, p_lane.forgiven, p_lane.used) as l(share, forgiven, used)
where l.share is not null
    );
end
$$;
