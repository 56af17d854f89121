"""A first policy opens when the claims have ended that may not have seen it: without a claim, never too early."""

from datetime import datetime

import psycopg
import pytest

from tests.sql.budgets import ask, gates, govern, opened, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql


def try_to_open(sql: Sql, queue: str = "q") -> Json:
    answer: Json = sql.call("open_admission", queue=queue)
    return answer


def test_it_opens_without_a_claim_and_has_used_what_was_claimed_before(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    sql.take("q", n=2)
    first = govern(sql, "q", window(5), opened=False)
    assert (first["opening"], first["awaited"], gates(sql)["day"]["used"]) == (True, [], 2)
    second = try_to_open(sql)
    assert (second["opening"], second["awaited"], second["gates"][0]["used"]) == (False, [], 2)
    assert try_to_open(sql) == second
    assert opened(sql) == 2


def test_it_says_whom_it_waits_for_and_since_when(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    early = another()
    early.do("set application_name = 'a slow claim'")
    early.do("begin")
    assert len(early.take("q")) == 1
    govern(sql, "q", window(1), opened=False)
    answer = try_to_open(sql)
    assert answer["opening"] is True
    (awaited,) = answer["awaited"]
    assert (awaited["pid"], awaited["application"], awaited["state"], awaited["prepared"]) == (
        early.pid,
        "a slow claim",
        "idle in transaction",
        None,
    )
    began = sql.one("select xact_start from pg_stat_activity where pid = %s", early.pid)
    assert datetime.fromisoformat(awaited["since"]) == began
    assert sql.call("budget_show", queue="q")["awaited"] == answer["awaited"]
    (told,) = sql.call("opening_policies")
    assert (told["scope"], told["queue"], told["awaited"]) == ("endpoint:default", "q", answer["awaited"])
    early.commit()
    assert try_to_open(sql)["opening"] is False
    assert (used(sql), sql.call("opening_policies")) == (1, [])
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"


def test_claims_that_began_after_the_first_look_are_not_waited_for(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": queue} for queue in ("q", "other"))
    early, late = another(), another()
    early.do("begin")
    assert len(early.take("q")) == 1
    govern(sql, "q", window(1), opened=False)
    assert [one["pid"] for one in try_to_open(sql)["awaited"]] == [early.pid]
    with late.transaction():
        assert len(late.take("other")) == 1
        assert [one["pid"] for one in try_to_open(sql)["awaited"]] == [early.pid]
        early.commit()
        assert try_to_open(sql)["opening"] is False


def test_the_transaction_that_makes_the_policy_cannot_open_it(sql: Sql, another: OpenSql) -> None:
    """Until it commits, others claim without the policy, and would not be counted."""
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    editor, peer = another(), another()
    editor.do("begin")
    govern(editor, "q", window(2), opened=False)
    assert try_to_open(editor)["opening"] is True
    answer = editor.claim()
    assert (answer["claims"], answer["deferred"], answer["empty"]) == ([], [], False)
    assert len(peer.take("q")) == 1
    editor.commit()
    assert try_to_open(sql)["opening"] is False
    assert len(ask(sql, n=9)["claims"]) == 1
    assert (opened(sql), used(sql)) == (2, 2)


def test_a_policy_made_in_a_savepoint_is_no_exception(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    editor = another()
    with editor.transaction():
        editor.do("savepoint s")
        govern(editor, "q", window(1), opened=False)
        editor.do("release savepoint s")
        assert try_to_open(editor)["opening"] is True


def test_a_queue_without_a_policy_has_nothing_to_open(sql: Sql) -> None:
    sql.enqueue()
    assert try_to_open(sql) == {"queue": "q", "status": "ungoverned"}
    with pytest.raises(psycopg.Error) as refused:
        try_to_open(sql, "nowhere")
    assert refused.value.diag.sqlstate == "SG002"


def test_a_worker_may_open_what_an_administrator_made(sql: Sql, another: OpenSql) -> None:
    sql.enqueue()
    govern(sql, "q", window(1), opened=False)
    worker = another()
    worker.do("set role sluicegate_worker")
    assert try_to_open(worker)["opening"] is False
    reader = another()
    reader.do("set role sluicegate_reader")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        try_to_open(reader)


def test_an_older_snapshot_is_refused_because_it_would_count_too_little(sql: Sql) -> None:
    sql.enqueue()
    govern(sql, "q", window(1), opened=False)
    sql.do("begin isolation level repeatable read")
    with pytest.raises(psycopg.Error) as refused:
        try_to_open(sql)
    assert refused.value.diag.sqlstate == "SG004"
    sql.do("rollback")
