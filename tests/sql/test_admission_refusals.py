"""How often a closed queue refused: what is counted, to which minute, and what counting may never do to a claim."""

from datetime import UTC, datetime, timedelta

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql


def counted(sql: Sql) -> int:
    return int(sql.one("select coalesce(sum(refused), 0) from sluicegate.refusal"))


@pytest.fixture
def closed(sql: Sql) -> Sql:
    """Queue q is closed, with two jobs; queue free has one."""
    govern(sql, "q", window(0))
    sql.enqueue_many([{"queue": "q"}] * 2 + [{"queue": "free"}])
    return sql


def test_every_session_that_polls_once_is_counted(closed: Sql, another: OpenSql) -> None:
    for _ in range(30):
        assert another().claim()["deferred"]
    assert counted(closed) == 30
    assert closed.call("budget_show", queue="q")["refused"] == {"paused": 30}


def test_a_session_writes_once_a_second_and_each_minute_to_its_own(closed: Sql, another: OpenSql) -> None:
    freeze_clock(closed.connection, datetime(2026, 6, 10, 12, 0, 59, tzinfo=UTC))
    member = another()
    for _ in range(20):
        member.claim()
    assert counted(closed) == 1
    advance_clock(closed.connection, timedelta(milliseconds=900))
    member.claim()
    assert counted(closed) == 1
    advance_clock(closed.connection, timedelta(minutes=2))
    member.claim()
    assert closed.rows("select minute, refused from sluicegate.refusal order by minute") == [
        {"minute": datetime(2026, 6, 10, 12, 0, tzinfo=UTC), "refused": 21},
        {"minute": datetime(2026, 6, 10, 12, 2, tzinfo=UTC), "refused": 1},
    ]


def test_sessions_that_count_at_once_neither_wait_nor_lose_anything(closed: Sql, another: OpenSql) -> None:
    # All begin at the same row.
    closed.replace("count_refusal", ("pg_backend_pid()", "0"))
    members = [another() for _ in range(4)]
    for member in members:
        member.do("begin")
        member.do("set local statement_timeout = '20s'")
        assert member.claim()["deferred"]
    for member in members:
        member.commit()
    assert closed.rows("select slot, refused from sluicegate.refusal order by slot") == [
        {"slot": slot, "refused": 1} for slot in range(4)
    ]


def test_what_cannot_be_counted_costs_no_claim(closed: Sql, another: OpenSql) -> None:
    closed.do("alter table sluicegate.refusal rename to elsewhere")
    answer = closed.claim("q", "free", n=3)
    assert ([claim["job"]["queue"] for claim in answer["claims"]], len(answer["deferred"])) == (["free"], 1)
    closed.do("alter table sluicegate.elsewhere rename to refusal")
    closed.enqueue("free")
    holder, member = another(), another()
    with holder.transaction():
        holder.do("lock table sluicegate.refusal in access exclusive mode")
        member.do("set statement_timeout = '5s'")
        answer = member.claim("q", "free", n=3)
        assert ([claim["job"]["queue"] for claim in answer["claims"]], len(answer["deferred"])) == (["free"], 1)


@pytest.mark.parametrize("kept", ["x", "1 2", "99999999999999999999 1 1", "1 29000000 999999999 x"])
def test_whatever_a_session_put_where_it_counts_costs_no_claim(closed: Sql, kept: str) -> None:
    queue_id = closed.one("select id from sluicegate.queue where name = 'q'")
    closed.one("select set_config(%s, %s, false)", f"sluicegate.refused_{queue_id}_paused", kept)
    assert closed.claim()["deferred"]
    assert counted(closed) == 1
