"""Every moment at which jobs of a queue were held, from records that a trigger writes beside them.

A claim counts from its decision to the earlier of its end and its lease's lapse; a heartbeat after a lapse counts anew.
The end is the attempt's own, or the moment at which the row of the job was deleted.
"""

from typing import Any

import psycopg

_RECORD = """
create table public.held (
    n bigint generated always as identity, at timestamptz not null, queue_id bigint not null, job_id bigint not null,
    attempt_id bigint, since timestamptz, until timestamptz
);
create function public.note_held() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'UPDATE' and new.state = 'claimed' then
        insert into public.held (at, queue_id, job_id, attempt_id, since, until)
        values (clock_timestamp(), new.queue_id, new.id, new.attempt_id, new.claimed_at, new.lease_expires_at);
    else
        insert into public.held (at, queue_id, job_id) values (clock_timestamp(), old.queue_id, old.id);
    end if;
    return null;
end $$;
create trigger note_held after update of state, attempt_id, lease_expires_at on sluicegate.job for each row
    when (new.state = 'claimed' or old.state = 'claimed') execute function public.note_held();
create trigger note_gone after delete on sluicegate.job for each row
    when (old.state = 'claimed') execute function public.note_held();
"""
_MOST = """
with step as (
    select h.*, lag(h.attempt_id) over w as before, lead(h.attempt_id) over w as next, lead(h.at) over w as next_at
    from public.held h join sluicegate.queue q on q.id = h.queue_id and q.name = %(queue)s
    window w as (partition by h.job_id order by h.n)
), stretch as (
    select case when s.before is distinct from s.attempt_id then s.since else s.at end as begins,
        least(case when %(lapse)s then s.until end, case when s.next is distinct from s.attempt_id
            then coalesce((select e.ended_at from sluicegate.attempt_end e where e.attempt_id = s.attempt_id), s.next_at)
            else s.next_at end) as ends
    from step s where s.attempt_id is not null
), event as (
    select e.at, e.change from stretch s cross join lateral (values (s.begins, 1), (s.ends, -1)) as e(at, change)
    where s.ends is null or s.ends > s.begins
)
select coalesce(max(f.n), 0)::integer
from (select sum(e.change) over (order by e.at, e.change rows unbounded preceding) as n from event e where e.at is not null) f
"""


class FlightRecorder:
    """Records from now on; ``connection`` is the superuser's, in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute(_RECORD)

    def most(self, queue: str) -> int:
        """The most claims that counted at one moment."""
        return self._look(queue, lapse=True)

    def most_held(self, queue: str) -> int:
        """The same if a claim counted beyond its lease, until somebody ends it or takes it over."""
        return self._look(queue, lapse=False)

    def _look(self, queue: str, *, lapse: bool) -> int:
        row = self._connection.execute(_MOST, {"queue": queue, "lapse": lapse}).fetchone()
        assert row is not None
        return int(row[0])
