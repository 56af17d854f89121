"""What tests of admission share: policies in few words, and how to judge what was admitted from the attempts alone."""

from __future__ import annotations

import time
from typing import Any

from tests.sql.verbs import Json, Sql
from tests.support.waiting import eventually


def window(most: int, period: str = "day", tz: str = "UTC", *, mode: str | None = None, **fields: Any) -> Json:
    """One window limit."""
    limit: Json = {"max_claims_per_window": most, "window": {"period": period, "tz": tz, **fields}}
    return limit if mode is None else {**limit, "mode": mode}


def govern(sql: Sql, queue: str = "q", *limits: Json, opened: bool = True, **fields: Any) -> Json:
    """Set the policy of a queue; its lanes are open at the end unless told otherwise."""
    status: Json = sql.call("set_admission_policy", queue=queue, policy={"limits": list(limits), **fields})
    if opened:
        queue_id = sql.one("select id from sluicegate.queue where name = %s", queue)
        eventually(lambda: sql.one("select sluicegate.open_lanes(%s)", queue_id), "open lanes")
    return status


def ask(sql: Sql, *queues: str, **request: Any) -> Json:
    """A claim, asked again while peers are in the way."""
    deadline = time.monotonic() + 60
    while True:
        answer = sql.claim(*queues, **request)
        if answer["claims"] or answer["deferred"] or answer["empty"] or answer["error"]:
            return answer
        assert time.monotonic() < deadline, "peers are in the way, it says, for a minute"


def fill(sql: Sql, queue: str = "q") -> int:
    """Claim in batches of nine until the queue is closed; how many came."""
    found = 0
    while True:
        answer = ask(sql, queue, n=9)
        found += len(answer["claims"])
        if answer["deferred"]:
            return found


def gates(sql: Sql, queue: str = "q") -> dict[str, Json]:
    """The gates of a queue by period, or by name where they have none."""
    shown = sql.call("budget_show", queue=queue)
    return {gate["period"] or gate["gate"]: gate for gate in shown["gates"]}


def used(sql: Sql, period: str = "day", queue: str = "q") -> int:
    """What a window shows as used."""
    return int(gates(sql, queue)[period]["used"])


def opened(sql: Sql, queue: str = "q") -> int:
    """How many attempts a queue has had."""
    return int(
        sql.one(
            "select count(*) from sluicegate.attempt a join sluicegate.queue q on q.id = a.queue_id where q.name = %s",
            queue,
        )
    )


def rows_and_locks(sql: Sql) -> Json:
    """Every row version, and who last locked it, of the tables that a poll must leave alone."""
    return {
        table: sql.rows(f"select ctid::text, xmin::text, xmax::text, t::text from sluicegate.{table} t order by 1")
        for table in ("job", "attempt", "attempt_end", "lane", "usage", "queue", "policy")
    }


def check_lanes(sql: Sql) -> None:
    """The shares of the lanes sum to their limit, in debt too, while all are in one window."""
    wrong = sql.rows(
        """
        select l.queue_id, l.max_claims, x.*
        from sluicegate.policy_limit l
        join lateral (
            select sum(u.share) as shares, sum(u.used - u.forgiven) as used, count(distinct u.starts) as windows
            from sluicegate.lane a
            cross join unnest(a.windows, a.shares, a.used, a.forgiven, a.starts) as u(window_id, share, used, forgiven, starts)
            where a.queue_id = l.queue_id and u.window_id = l.window_id
        ) x on true
        where l.mode = 'enforce' and x.windows = 1 and x.shares is distinct from l.max_claims
        """
    )
    assert not wrong, wrong


def most_in_flight(sql: Sql, queue: str = "q") -> int:
    """The most attempts that were open at one moment, from their own records."""
    return int(
        sql.one(
            """
            with events as (
                select a.opened_at as at, 1 as step from sluicegate.attempt a join sluicegate.queue q on q.id = a.queue_id and q.name = %s
                union all
                select e.ended_at, -1 from sluicegate.attempt_end e join sluicegate.attempt a on a.id = e.attempt_id
                join sluicegate.queue q on q.id = a.queue_id and q.name = %s
            )
            select coalesce(max(n), 0) from (select sum(step) over (order by at, step rows unbounded preceding) as n from events) s
            """,
            queue,
            queue,
        )
    )
