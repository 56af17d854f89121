"""Whatever the session is set to, the verbs do the same: they are called by programs we do not know."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, completed, refused

SETTINGS = {
    "a zone of half hours": "set timezone = 'Australia/Lord_Howe'",
    "a zone of seconds": "set timezone = 'Africa/Monrovia'",
    "texts": "set datestyle = 'German, DMY'; set intervalstyle = 'sql_standard'; set standard_conforming_strings = off;"
    " set escape_string_warning = off; set backslash_quote = on; set bytea_output = 'escape'; set array_nulls = off;"
    " set extra_float_digits = -15; set quote_all_identifiers = on; set transform_null_equals = on",
    "no indexes": "set enable_indexscan = off; set enable_bitmapscan = off; set enable_nestloop = off;"
    " set enable_hashjoin = off; set enable_sort = off; set enable_hashagg = off; set enable_material = off",
    "other plans": "set enable_indexonlyscan = off; set enable_mergejoin = off; set enable_memoize = off;"
    " set plan_cache_mode = force_custom_plan; set join_collapse_limit = 1; set from_collapse_limit = 1;"
    " set geqo_threshold = 2; set work_mem = '64kB'; set max_stack_depth = '100kB'",
    "compiled plans": "set jit = on; set jit_above_cost = 0; set jit_optimize_above_cost = -1; set jit_inline_above_cost = -1",
    "parallel plans": "set max_parallel_workers_per_gather = 4; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;"
    " set min_parallel_table_scan_size = 0; set min_parallel_index_scan_size = 0",
    "the rest": "set search_path = ''; set row_security = off; set lock_timeout = '20s'; set check_function_bodies = off;"
    " set default_transaction_deferrable = on; set idle_in_transaction_session_timeout = '20s'",
}
WHEN = datetime(2030, 1, 31, 9, 30, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_whole_life_of_jobs_is_the_same_under_any_setting(sql: Sql, another: OpenSql, name: str) -> None:
    look = another()
    sql.connection.execute(SETTINGS[name])
    later = sql.enqueue("Öl", {"é": [1.5, None]}, run_at=WHEN, tags=["ü"], dedup_key="ä", request_id="r", title="'\\n")
    assert (
        sql.enqueue("Öl", {"é": [1.5, None]}, run_at=WHEN, tags=["ü"], dedup_key="ä", request_id="r", title="'\\n")
        == later
    )
    row = look.job(later)
    assert (row["run_at"], row["tags"], row["title"], row["payload"]) == (WHEN, ["ü"], "'\\n", {"é": [1.5, None]})
    jobs = sql.enqueue_many(
        {"queue": "Öl", "priority": n % 3, "run_at": "2001-02-03T04:05:06.5+05:45" if n % 2 else None}
        for n in range(12)
    )
    assert look.job(jobs[1])["run_at"] == datetime(2001, 2, 2, 22, 20, 6, 500000, tzinfo=UTC)
    want = look.rows("select id from sluicegate.job where state = 'pending' order by priority, run_at, id")
    claims = sql.take("Öl", n=12, request_id="c", worker="w", lease_seconds=77)
    assert [claim["job"]["id"] for claim in claims] == [job["id"] for job in want]
    claims = sql.take("Öl", n=12, request_id="c", lease_seconds=77)
    expires = look.job(claims[0]["job"]["id"])["lease_expires_at"]
    assert datetime.fromisoformat(claims[0]["lease_expires_at"]) == expires
    assert sql.heartbeat(claims[0], lease_seconds=3600)["status"] == "ok"
    assert sql.complete(claims[0], result={"ö": "\\"})["status"] == "ok"
    waited = sql.fail(claims[1], "\\ ' \" é", retry_in_seconds=95.125)
    ended = look.attempts(waited["job_id"])[0]["ended_at"]
    assert datetime.fromisoformat(waited["run_at"]) - ended == timedelta(seconds=95.125)
    assert datetime.fromisoformat(sql.release(claims[2], not_before=WHEN)["run_at"]) == WHEN
    rest = sql.claim("Öl", finished=[completed(claim) for claim in claims[3:]] + [completed(claims[0])])
    assert [answer["status"] for answer in rest["finished"]] == ["ok"] * 10
    assert rest["finished"][-1]["replayed"] is True
    assert sql.complete({**claims[1], "lease_token": "\\x00"})["status"] == "conflict"
    assert sql.call("retry", job_id=later)["status"] == "ok"
    held = sql.take_one("Öl")
    sql.lapse(later)
    assert sql.call("cancel", job_id=later)["state"] == "cancelled"
    assert sql.complete(held)["status"] == "conflict"
    assert sql.call("reap") == {"requeued": 0, "dead_lettered": 0, "cancelled": 0}
    assert len(sql.call("list_jobs", queue="Öl")["jobs"]) == 13
    assert len(sql.call("get_job", job_id=later)["attempts"]) == 1
    assert sql.call("queue_stats")["queues"][0]["done"] == 10
    assert sql.call("prune", job_days=0)["jobs"] == 11
    for bad in ("a b", "a/b", "a\u00a0b"):
        with refused(sql, "SG001", "queue"):
            sql.enqueue(bad)
    with refused(sql, "SG001", "jobs[0].run_at"):
        sql.enqueue_many([{"queue": "q", "run_at": "03.02.2001 04:05:06+00"}])
    check_ledger(look)


def test_no_verb_of_workers_compiles_its_plans(sql: Sql) -> None:
    """Switched-off plan steps look dear enough to compile, which takes longer than any of them."""
    sql.enqueue_many([{"queue": "q"}] * 3)
    sql.do("set jit = on")
    sql.do(
        "create or replace function sluicegate.clock() returns timestamptz language plpgsql as"
        " $$ begin assert current_setting('jit') = 'off'; return clock_timestamp(); end $$"
    )
    claim = sql.take_one()
    sql.heartbeat(claim)
    sql.fail(claim)
    sql.call("claim_job", job_id=sql.one("select min(id) from sluicegate.job where state = 'pending'"))
    sql.call("cancel", job_id=claim["job"]["id"])
    sql.call("retry", job_id=claim["job"]["id"])
    assert sql.call("reap")["requeued"] == 0


def test_a_read_only_session_is_told_so_by_the_database_and_can_still_read(sql: Sql) -> None:
    job = sql.enqueue()
    sql.do("set default_transaction_read_only = on")
    before = sql.contents()
    for verb in ("enqueue", "claim"):
        with pytest.raises(Exception, match="read-only transaction"):
            getattr(sql, verb)("q")
    assert sql.call("get_job", job_id=job)["status"] == "ok"
    assert sql.contents() == before
