"""Enqueue: one job or many, in the caller's transaction, deduplicated among live jobs."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, each, refused

WHEN = datetime(2030, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=1)))


def test_a_job_has_the_defaults_of_the_documentation(sql: Sql) -> None:
    answer = sql.call("enqueue", queue="q", payload={"a": [1, None, "ü"]})
    job = sql.job(answer["id"])
    assert answer == {"id": job["id"], "created": True, "state": "pending", "queue": "q"}
    want = {
        "payload": {"a": [1, None, "ü"]},
        "priority": 10,
        "kind": "",
        "title": "",
        "tags": [],
        "class": "mid",
        "max_attempts": 5,
        "attempt": 0,
        "attempts_total": 0,
        "dedup_key": None,
        "parent_id": None,
        "backoff": None,
    }
    assert {name: job[name] for name in want} == want
    assert job["run_at"] == job["created_at"]


def test_every_field_of_a_job_is_kept(sql: Sql) -> None:
    parent = sql.enqueue()
    fields: dict[str, Any] = {
        "payload": {"n": 1},
        "kind": "mail",
        "title": "Welcome",
        "priority": -32768,
        "run_at": WHEN,
        "dedup_key": "k",
        "tags": ["a", "b", "a"],
        "parent_id": parent,
        "max_attempts": 1000,
        "backoff": {"base_seconds": 1.5, "max_seconds": 60},
    }
    one = sql.job(sql.enqueue("other", **fields))
    several = {**fields, "run_at": WHEN.isoformat(), "queue": "other", "dedup_key": "l"}
    many = sql.job(sql.enqueue_many([several])[0])
    assert {name: one[name] for name in fields} == fields
    assert {name: many[name] for name in fields} == {**fields, "dedup_key": "l"}
    assert one["state"] == many["state"] == "scheduled"


def test_null_means_the_default_in_both_forms(sql: Sql) -> None:
    nothing: dict[str, Any] = {
        "payload": None, "kind": None, "title": None, "priority": None, "run_at": None, "dedup_key": None,
        "tags": None, "parent_id": None, "max_attempts": None, "backoff": None,
    }  # fmt: skip
    one = sql.job(sql.enqueue(**nothing))
    many = sql.job(sql.enqueue_many([{"queue": "q", **nothing}])[0])
    bare = sql.job(sql.enqueue_many([{"queue": "q"}])[0])
    for job in (one, many, bare):
        assert (job["kind"], job["title"], job["priority"], job["tags"], job["max_attempts"]) == ("", "", 10, [], 5)
        assert job["payload"] is None


def test_a_job_whose_time_has_passed_is_pending_at_that_time(sql: Sql) -> None:
    job = sql.job(sql.enqueue(run_at=datetime(2001, 1, 1, tzinfo=UTC)))
    assert (job["state"], job["run_at"].year) == ("pending", 2001)


def test_a_child_inherits_the_priority_of_its_parent_unless_it_has_its_own(sql: Sql) -> None:
    parent = sql.enqueue(priority=-7)
    assert sql.job(sql.enqueue(parent_id=parent))["priority"] == -7
    assert sql.job(sql.enqueue(parent_id=parent, priority=3))["priority"] == 3


def test_the_first_enqueue_creates_the_queue_and_others_find_it(sql: Sql) -> None:
    names = ["a", "Ä/b".replace("/", "-"), "x" * 128, "日本", "-", "queue.with:odd_chars;'\"\\%"]
    for name in names * 2:
        assert sql.call("enqueue", queue=name)["queue"] == name
    assert sorted(row["name"] for row in sql.rows("select name from sluicegate.queue")) == sorted(names)


def test_an_enqueue_belongs_to_the_transaction_of_its_caller(sql: Sql, another: OpenSql) -> None:
    with sql.transaction():
        sql.call("enqueue", queue="new", payload=1, dedup_key="k", request_id="r")
        sql.call("enqueue_many", jobs=[{"queue": "newer"}] * 3)
        assert another().one("select count(*) from sluicegate.job") == 0
    assert sql.one("select (select count(*) from sluicegate.job) + (select count(*) from sluicegate.queue)") == 0
    assert sql.one("select count(*) from sluicegate.request") == 0
    with sql.transaction():
        sql.enqueue("new")
        sql.commit()
    assert sql.one("select count(*) from sluicegate.job") == 1


def test_enqueue_works_under_every_isolation_level(sql: Sql) -> None:
    for level in ("read committed", "repeatable read", "serializable"):
        sql.do(f"begin isolation level {level}")
        sql.enqueue(dedup_key="same")
        sql.commit()
    assert sql.one("select count(*) from sluicegate.job") == 1


def test_a_dedup_key_gives_the_live_job_that_has_it(sql: Sql) -> None:
    first = sql.call("enqueue", queue="a", dedup_key="k")
    again = sql.call("enqueue", queue="b", dedup_key="k", payload="other")
    assert again == {**first, "created": False}
    sql.take_one("a")
    assert sql.call("enqueue", queue="b", dedup_key="k") == {**first, "created": False, "state": "claimed"}
    assert sql.one("select count(*) from sluicegate.job") == 1


def test_a_dedup_key_is_free_again_once_its_job_has_ended(sql: Sql) -> None:
    seen = []
    for end in ("done", "failed", "cancelled"):
        answer = sql.call("enqueue", queue="q", dedup_key="k", max_attempts=1)
        assert answer["created"]
        if end == "cancelled":
            sql.call("cancel", job_id=answer["id"])
        else:
            claim = sql.take_one()
            _ = sql.complete(claim) if end == "done" else sql.fail(claim)
        assert sql.state(answer["id"]) == end
        seen.append(answer["id"])
    assert len(set(seen)) == 3


def test_a_waiting_retry_keeps_its_dedup_key(sql: Sql) -> None:
    first = sql.enqueue(dedup_key="k")
    sql.fail(sql.take_one())
    assert sql.call("enqueue", queue="q", dedup_key="k") == {
        "id": first, "created": False, "state": "scheduled", "queue": "q",
    }  # fmt: skip


def test_a_batch_is_answered_in_the_order_of_its_input(sql: Sql) -> None:
    known = sql.enqueue(dedup_key="m")
    keys = ["z", "a", None, "m", "a", "b", None, "z"]
    answer = sql.call("enqueue_many", jobs=[{"queue": "q", "dedup_key": key} for key in keys])
    jobs = answer["jobs"]
    assert [job["created"] for job in jobs] == [True, True, True, False, False, True, True, False]
    assert jobs[3]["id"] == known
    assert jobs[4]["id"] == jobs[1]["id"]
    assert jobs[7]["id"] == jobs[0]["id"]
    new = [job["id"] for job in jobs if job["created"]]
    assert new == sorted(new)
    assert answer["replayed"] is False


def test_ten_thousand_jobs_go_in_one_call(sql: Sql) -> None:
    jobs = [{"queue": f"q{n % 7}", "payload": {"n": n}, "dedup_key": f"key {n * 7919 % 10_000}"} for n in range(10_000)]
    ids = sql.enqueue_many(jobs)
    assert len(set(ids)) == 10_000
    rows = sql.rows("select id, (payload ->> 'n')::int as n from sluicegate.job order by id")
    assert [(row["id"], row["n"]) for row in rows] == list(zip(ids, range(10_000), strict=True))
    again = sql.call("enqueue_many", jobs=jobs[:5000])
    assert not any(job["created"] for job in again["jobs"])
    assert sql.one("select count(*) from sluicegate.job") == 10_000


BAD_NAMES = [
    "", "a b", "a/b", "tab\there", "new\nline", "\x7f", "\x85", "nbsp\u00a0", "em\u2003space", "line\u2028", "\u3000",
    "x" * 129, "é" * 65,
]  # fmt: skip


def test_a_queue_name_that_breaks_the_rule_is_refused(sql: Sql) -> None:
    for name in BAD_NAMES:
        with refused(sql, "SG001", "queue"):
            sql.enqueue(name)
        with refused(sql, "SG001", "jobs[1].queue"):
            sql.enqueue_many([{"queue": "fine"}, {"queue": name}])
        with refused(sql, "SG001", "queues"):
            sql.claim(name)


def test_a_missing_queue_name_is_refused(sql: Sql) -> None:
    with refused(sql, "SG001", "queue"):
        sql.call("enqueue", queue=None)
    with refused(sql, "SG001", "jobs[0].queue"):
        sql.enqueue_many([{"payload": 1}])


BAD_FIELDS: list[tuple[str, Any]] = [
    ("payload", "x" * 1_048_577),
    ("kind", "x" * 129),
    ("title", "é" * 257),
    ("priority", 32768),
    ("priority", -32769),
    ("run_at", "infinity"),
    ("run_at", "-infinity"),
    ("run_at", "10000-01-01T00:00:00Z"),
    ("run_at", "294276-12-31 23:59:59Z"),
    ("run_at", "0044-03-15 00:00:00+00 BC"),
    ("dedup_key", ""),
    ("dedup_key", "x" * 513),
    ("tags", [""]),
    ("tags", ["x" * 65]),
    ("tags", [None]),
    ("tags", ["x"] * 33),
    ("parent_id", 2**62),
    ("parent_id", -1),
    ("max_attempts", 0),
    ("max_attempts", -5),
    ("max_attempts", 1001),
    ("backoff", {"base_seconds": -1}),
    ("backoff", {"max_seconds": 2592001}),
    ("backoff", {"base_seconds": "30"}),
    ("backoff", {"base_seconds": None}),
    ("backoff", {"base": 1}),
    ("backoff", [1, 2]),
    ("backoff", 30),
]
ONLY_IN_JSON: list[tuple[str, Any]] = [
    ("queue", 5),
    ("queue", {"name": "q"}),
    ("kind", 5),
    ("kind", ["a"]),
    ("title", True),
    ("dedup_key", 5),
    ("priority", 1.5),
    ("priority", "1"),
    ("priority", "NaN"),
    ("priority", True),
    ("priority", {}),
    ("priority", 10**400),
    ("max_attempts", 1.5),
    ("max_attempts", "5"),
    ("parent_id", 1.5),
    ("parent_id", 10**30),
    ("parent_id", "1"),
    ("run_at", "soon"),
    ("run_at", "now"),
    ("run_at", "tomorrow"),
    ("run_at", "2030-02-30T00:00:00Z"),
    ("run_at", "2030-01-01T00:00:00"),
    ("run_at", "2030-01-01"),
    ("run_at", "01/02/2030 00:00:00+00"),
    ("run_at", "2030-01-01T25:00:00Z"),
    ("run_at", "2030-01-01T00:00:00+99:00"),
    ("run_at", "2030-01-01T00:00:00 CET"),
    ("run_at", 20300101),
    ("run_at", True),
    ("run_at", {}),
    ("tags", "a"),
    ("tags", {"a": 1}),
    ("tags", [5]),
    ("tags", [["a"]]),
    ("colour", "red"),
    ("Queue", "q"),
]


def test_a_bad_field_of_a_job_is_named_and_changes_nothing(sql: Sql) -> None:
    for field, value in BAD_FIELDS:
        with refused(sql, "SG001", field):
            sql.call("enqueue", **{"queue": "new", field: value})


def test_a_bad_field_in_a_batch_is_named_with_its_place_and_changes_nothing(sql: Sql) -> None:
    sql.enqueue(dedup_key="known")
    good = {"queue": "another-new", "dedup_key": "known"}
    for field, value in BAD_FIELDS + ONLY_IN_JSON:
        with refused(sql, "SG001", f"jobs[2].{field}"):
            sql.enqueue_many([good, {"queue": "new"}, {"queue": "new", field: value}, {"queue": "new", field: value}])


def test_a_batch_is_an_array_of_one_to_ten_thousand_jobs(sql: Sql) -> None:
    for jobs in each([], {}, None, "jobs", 5, [{"queue": "q"}] * 10_001):
        with refused(sql, "SG001", "jobs"):
            sql.call("enqueue_many", jobs=jobs)


def test_each_job_of_a_batch_is_an_object(sql: Sql) -> None:
    for job in (5, None, "q", [], [{"queue": "q"}], True):
        with refused(sql, "SG001", "jobs[1]"):
            sql.call("enqueue_many", jobs=[{"queue": "q"}, job])


def test_a_batch_that_is_null_is_refused(sql: Sql) -> None:
    with refused(sql, "SG001", "jobs"):
        sql.one("select sluicegate.enqueue_many(null)")


def test_a_payload_that_is_no_json_never_reaches_a_table(sql: Sql) -> None:
    before = sql.contents()
    for payload in (r'"\u0000"', r'{"\u0000": 1}', r'"\ud800"', "{", "NaN", "[1,]", "'a'", ""):
        with pytest.raises(psycopg.DataError):
            sql.one("select sluicegate.enqueue('q', %s::jsonb)", payload)
    assert sql.contents() == before


def test_a_bomb_of_brackets_is_refused_and_the_session_goes_on(sql: Sql) -> None:
    before = sql.contents()
    bomb = "[" * 100_000 + "]" * 100_000
    with pytest.raises(psycopg.Error):
        sql.one("select sluicegate.enqueue('q', %s::jsonb)", bomb)
    with pytest.raises(psycopg.Error):
        sql.one("select sluicegate.enqueue_many(%s::jsonb)", f'[{{"queue": "q", "payload": {bomb}}}]')
    assert sql.contents() == before
    assert sql.enqueue(payload={"deep": "enough"})


def test_a_number_that_unfolds_to_megabytes_is_refused_by_its_unfolded_size(sql: Sql) -> None:
    with refused(sql, "SG001", "payload"):
        sql.one("select sluicegate.enqueue('q', %s::jsonb)", "[" + ",".join(["1e131000"] * 9) + "]")


def test_a_payload_of_exactly_one_mebibyte_fits(sql: Sql) -> None:
    job = sql.enqueue(payload="x" * (1_048_576 - 2))
    assert sql.one("select octet_length(payload::text) from sluicegate.job where id = %s", job) == 1_048_576


def test_a_parent_of_another_scope_is_refused_like_an_unknown_one(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    foreign = sql.enqueue(scope="endpoint:other")
    messages = []
    for parent in (foreign, 999_999):
        with pytest.raises(psycopg.Error) as caught:
            sql.enqueue(parent_id=parent)
        messages.append((caught.value.diag.message_primary, caught.value.diag.message_detail))
    assert messages[0] == messages[1] == ("parent_id is not usable.", "parent_id")
