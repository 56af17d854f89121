"""What a claim holds while its transaction is open: nothing that another claim could wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.sql.verbs import Sql, completed

pytestmark = pytest.mark.both_versions

# Locks of tables by name, those of an index counted as its table's; all others by their kind.
HELD = """
    select case l.locktype
            when 'relation' then (
                select coalesce(t.relname, c.relname)
                from pg_class c left join pg_index i on i.indexrelid = c.oid left join pg_class t on t.oid = i.indrelid
                where c.oid = l.relation and c.relnamespace = 'sluicegate'::regnamespace
            )
            else l.locktype
        end as what, l.mode
    from pg_locks l
    where l.pid = %s and l.granted and (l.locktype <> 'relation' or l.database = (
        select d.oid from pg_database d where d.datname = current_database()
    ))
"""
READ = {"AccessShareLock"}
TAKEN = {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
# A transaction holds its own number, and those of its parts: only who meets its row waits for that.
OWN = {"transactionid": {"ExclusiveLock"}, "virtualxid": {"ExclusiveLock"}}
# Where a queue is found, and read alone.
FOUND = {"owner": READ, "endpoint": READ, "queue": READ, "ready_cursor": READ, "lapse_hint": READ}
WRITTEN = READ | {"RowExclusiveLock"}
MAY = {**OWN, **FOUND, "job": TAKEN, "attempt": WRITTEN, "attempt_end": WRITTEN, "attempt_id_seq": WRITTEN}


@pytest.fixture
def held(sql: Sql, another: Callable[[], Sql]) -> Callable[[], dict[str, set[str]]]:
    """The locks of ``sql`` as another connection sees them."""
    watcher = another()

    def look() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for row in watcher.rows(HELD, sql.pid):
            if row["what"] is not None:
                found.setdefault(row["what"], set()).add(row["mode"])
        return found

    return look


@contextmanager
def open_claim(sql: Sql, *queues: str, n: int = 1) -> Iterator[None]:
    with sql.transaction():
        assert len(sql.take(*queues, n=n)) == n
        yield


def beyond(locks: dict[str, set[str]]) -> dict[str, set[str]]:
    """The locks that a claim may not hold."""
    extra = {what: modes - MAY.get(what, set()) for what, modes in locks.items()}
    return {what: modes for what, modes in extra.items() if modes}


def test_a_claim_holds_only_its_rows(sql: Sql, held: Callable[[], dict[str, set[str]]]) -> None:
    sql.enqueue_many([{"queue": "q"}] * 5)
    with open_claim(sql, n=3):
        locks = held()
    assert "RowExclusiveLock" in locks["job"]
    assert "RowExclusiveLock" in locks["attempt"]
    assert beyond(locks) == {}


def test_claims_of_several_queues_with_takeovers_due_jobs_and_finishes_hold_only_their_rows(
    sql: Sql, held: Callable[[], dict[str, set[str]]]
) -> None:
    sql.enqueue_many([{"queue": queue} for queue in ("a", "b", "c")] * 3)
    due = sql.enqueue("b")
    sql.do("update sluicegate.job set state = 'scheduled' where id = %s", due)
    lapsed = sql.take_one("c")
    sql.lapse(lapsed["job"]["id"])
    mine = sql.take("a", n=2)
    with sql.transaction():
        response = sql.claim("a", "b", "c", n=8, finished=[completed(claim) for claim in mine])
        locks = held()
    assert len(response["claims"]) == 8
    assert [item["status"] for item in response["finished"]] == ["ok", "ok"]
    assert beyond(locks) == {}


def test_a_claim_that_finds_nothing_writes_nothing(sql: Sql, held: Callable[[], dict[str, set[str]]]) -> None:
    sql.enqueue(run_at="2100-01-01T00:00Z")
    with sql.transaction():
        assert sql.claim()["empty"] is True
        locks = held()
        assert "transactionid" not in locks, "it needs no number, and its commit no disk"
    assert {what for what, modes in locks.items() if "RowExclusiveLock" in modes} == set()


def test_only_a_request_id_adds_a_lock_that_can_be_waited_for(
    sql: Sql, held: Callable[[], dict[str, set[str]]]
) -> None:
    sql.enqueue_many([{"queue": "q"}] * 2)
    with sql.transaction():
        sql.take(request_id="once")
        locks = held()
    assert locks.pop("advisory") == {"ExclusiveLock"}
    assert locks.pop("request") <= WRITTEN
    assert beyond(locks) == {}


def test_a_claim_looks_its_queue_up_no_more_often_than_it_must(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 3)
    sql.take_one()
    looks = """
        select sum(pg_stat_get_xact_numscans(c.oid))::bigint
        from pg_class c left join pg_index i on i.indexrelid = c.oid
        where 'sluicegate.queue'::regclass in (c.oid, i.indrelid)
    """
    with sql.transaction():
        before = sql.one(looks)
        assert sql.claim("unknown")["empty"] is True
        assert sql.one(looks) - before == 1
    with sql.transaction():
        before = sql.one(looks)
        assert len(sql.take()) == 1
        # One for its name in the claim, one for whether it is governed, which counts only once the job is locked.
        assert sql.one(looks) - before == 3
