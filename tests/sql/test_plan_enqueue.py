"""The short way of enqueue, a plain insert for a plain job, does what the long way of enqueue_many does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.sql.verbs import Sql

Json = dict[str, Any]

AT_THE_EDGE: list[Json] = [
    {},
    {"payload": None},
    {"payload": {"a": [1, 2.50, "x", None, True]}},
    {"payload": "x" * 198},
    {"payload": "x" * 199},
    {"payload": "ü" * 120},
    {"payload": "x" * 1_048_574},
    {"payload": "x" * 1_048_575},
    *({"kind": text} for text in ("", "k", "x" * 128, "x" * 129, "ü" * 64, "ü" * 65)),
    *({"title": text} for text in ("", "t", "x" * 512, "x" * 513, "ü" * 256, "ü" * 257)),
    *({"priority": number} for number in (-32769, -32768, -1, 0, 10, 32767, 32768)),
    *({"max_attempts": number} for number in (-1, 0, 1, 1000, 1001)),
    *({"dedup_key": text} for text in ("", "d", "x" * 512, "x" * 513, "ü" * 256, "ü" * 257)),
    *({"tags": tags} for tags in ([], ["a"], [""], ["x" * 64], ["x" * 65], ["t"] * 32, ["t"] * 33)),
    *({"backoff": backoff} for backoff in ({}, {"base_seconds": 1}, {"base_seconds": -1}, {"other": 1})),
    {"parent_id": 1},
    {"parent_id": 999_999},
    *({"run_at": at} for at in ("2001-01-01T00:00:00Z", "2101-01-01T00:00:00Z")),
    *({"queue": name} for name in ("new", "", "x" * 128, "x" * 129, "a b", "a/b")),
    *({"scope": scope} for scope in ("endpoint:default", "endpoint:default@local", "endpoint:none", "team:none", "x")),
    {"kind": "k", "title": "t", "priority": 3, "max_attempts": 7, "dedup_key": "all", "payload": [1]},
]
SAME = "(select q.name from sluicegate.queue q where q.id = queue_id) as queue, scope_id, state, class, priority, kind, title, tags, payload, parent_id, dedup_key, max_attempts, attempt"
SAME += ", attempts_total, backoff, run_at = created_at as at_once, finished_at, lease_expires_at, cancel_requested_at, note"


def outcome(sql: Sql, add: Callable[[], int]) -> Any:
    """The row that was added, or the refusal; nothing of it stays."""
    with sql.transaction():
        try:
            (row,) = sql.rows(f"select {SAME} from sluicegate.job where id = %s", add())
        except psycopg.Error as error:
            field = (error.diag.message_detail or "").rpartition("]")[2].lstrip(".")
            return error.sqlstate, field, error.diag.message_hint
        else:
            return row


@pytest.mark.both_versions
def test_both_ways_accept_and_refuse_the_same(sql: Sql) -> None:
    assert sql.enqueue() == 1
    different = {}
    for job in AT_THE_EDGE:
        scope = {"scope": job["scope"]} if "scope" in job else {}
        fields = {"queue": "q", **{name: value for name, value in job.items() if name != "scope"}}
        short = outcome(sql, lambda: sql.enqueue(**fields, **scope))  # noqa: B023  # called at once
        long = outcome(sql, lambda: sql.enqueue_many([fields], **scope)[0])  # noqa: B023
        if short != long:
            different[str(job)[:80]] = (short, long)
    assert different == {}


def test_a_plain_job_is_one_insert_and_its_answer_names_it(sql: Sql) -> None:
    first = sql.call("enqueue", queue="q")
    written = "select pg_stat_get_xact_tuples_inserted('sluicegate.job'::regclass)"
    with sql.transaction():
        before = sql.one(written)
        answer = sql.call("enqueue", queue="q", payload={"a": 1}, kind="k", priority=-5, dedup_key="d")
        assert sql.one(written) - before == 1
        assert answer == {"id": first["id"] + 1, "created": True, "state": "pending", "queue": "q"}


def test_a_live_key_is_found_and_a_request_id_repeated_on_the_short_way_too(sql: Sql) -> None:
    sql.enqueue("q")
    first = sql.call("enqueue", queue="q", dedup_key="d", request_id="r")
    assert first["created"] is True
    assert sql.call("enqueue", queue="q", dedup_key="d", request_id="r") == first
    assert sql.call("enqueue", queue="other", dedup_key="d") == {**first, "created": False}
    assert sql.one("select count(*) from sluicegate.job") == 2
    with pytest.raises(psycopg.Error) as refusal:
        sql.call("enqueue", queue="q", dedup_key="e", request_id="r")
    assert refusal.value.sqlstate == "SG003"
