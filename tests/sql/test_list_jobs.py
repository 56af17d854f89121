"""Reports: a page of jobs, one job whole, figures of the queues."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sluicegate.testing import freeze_clock
from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, refused


def test_pages_are_newest_first_and_follow_each_other(sql: Sql) -> None:
    ids = sql.enqueue_many([{"queue": "q"}] * 7)
    seen, before = [], None
    while True:
        page = sql.call("list_jobs", limit=3, before_id=before)
        seen += [job["id"] for job in page["jobs"]]
        before = page["next_before_id"]
        if before is None:
            break
    assert seen == ids[::-1]


def test_a_row_has_the_documented_fields_and_never_the_payload(sql: Sql) -> None:
    job = sql.enqueue(payload={"secret": "x" * 1000}, tags=["t"], dedup_key="k", kind="mail")
    sql.take_one(worker="w")
    (row,) = sql.call("list_jobs")["jobs"]
    want = {
        "id", "queue", "state", "class", "priority", "run_at", "kind", "title", "tags", "parent_id", "dedup_key",
        "attempt", "max_attempts", "attempts_total", "worker", "lease_expires_at", "dead_letter", "cancel_requested",
        "payload_size", "created_at", "claimed_at", "finished_at", "error", "admission",
    }  # fmt: skip
    assert want <= set(row) <= want | {"note"}
    assert (row["id"], row["state"], row["worker"], row["tags"], row["dead_letter"]) == (
        job,
        "claimed",
        "w",
        ["t"],
        False,
    )
    assert row["payload_size"] == sql.one("select pg_column_size(payload) from sluicegate.job")


def test_filters_narrow_the_list_together(sql: Sql) -> None:
    for n in range(12):
        sql.enqueue(f"q{n % 2}", kind=f"k{n % 3}")
    sql.take("q0", n=3)

    def count(**filters: Any) -> int:
        return len(sql.call("list_jobs", **filters)["jobs"])

    assert (count(), count(queue="q0"), count(kind="k1"), count(state="claimed")) == (12, 6, 4, 3)
    assert count(queue="q0", kind="k0", state="pending") + count(queue="q0", kind="k0", state="claimed") == 2
    assert count(queue="q1", state="claimed") == 0


def test_a_dead_letter_is_marked_wherever_it_is_shown(sql: Sql) -> None:
    job = sql.enqueue()
    sql.fail(sql.take_one(), retry=False)
    assert sql.call("list_jobs", state="failed")["jobs"][0]["dead_letter"] is True
    assert sql.call("get_job", job_id=job)["job"]["dead_letter"] is True


def test_one_job_is_shown_whole_with_its_newest_attempts_first(sql: Sql) -> None:
    job = sql.enqueue(payload={"a": 1}, backoff={"base_seconds": 0}, max_attempts=100)
    for n in range(4):
        sql.fail(sql.take_one(worker=f"w{n}"), f"error {n}", summary=f"s{n}")
    sql.complete(sql.take_one(), result={"r": 1})
    answer = sql.call("get_job", job_id=job)
    assert answer["status"] == "ok"
    assert (answer["job"]["payload"], answer["job"]["result"]) == ({"a": 1}, {"r": 1})
    assert answer["job"]["backoff"] == {"base_seconds": 0}
    assert [attempt["seq"] for attempt in answer["attempts"]] == [5, 4, 3, 2, 1]
    assert [attempt["error"] for attempt in answer["attempts"]] == [None, "error 3", "error 2", "error 1", "error 0"]
    for limit in (0, 2, 50):
        assert len(sql.call("get_job", job_id=job, attempts_limit=limit)["attempts"]) == min(limit, 5)


def test_no_report_shows_a_token_or_its_hash(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one(request_id="r")
    shown = str([sql.call("get_job", job_id=job), sql.call("list_jobs"), sql.call("queue_stats")])
    assert claim["lease_token"] not in shown
    assert "token" not in shown
    assert sql.job(job)["lease_token_hash"].hex() not in shown


def test_the_figures_of_a_queue_count_each_state(sql: Sql) -> None:
    future = datetime.now(UTC) + timedelta(days=1)
    for _ in range(2):
        sql.enqueue()
    sql.enqueue(run_at=future)
    due, lapsed = sql.enqueue("x", run_at=future), sql.enqueue("y")
    sql.do("update sluicegate.job set run_at = clock_timestamp() where id = %s", due)
    sql.take_one("y")
    sql.lapse(lapsed)
    sql.complete(sql.take_one("q"))
    dead = sql.enqueue("z")
    sql.fail(sql.take_one("z"), retry=False)
    sql.call("cancel", job_id=sql.enqueue("z"))
    stats = {queue.pop("queue"): queue for queue in sql.call("queue_stats")["queues"]}
    oldest = stats["q"].pop("oldest_pending_at")
    assert {tuple(queue["inexact"]) for queue in stats.values()} == {()}
    states = ("scheduled", "due", "pending", "claimed", "lapsed", "done", "failed", "cancelled")
    assert {name: tuple(queue[state] for state in states) for name, queue in stats.items()} == {
        "q": (1, 0, 1, 0, 0, 1, 0, 0),
        "x": (1, 1, 0, 0, 0, 0, 0, 0),
        "y": (0, 0, 0, 1, 1, 0, 0, 0),
        "z": (0, 0, 0, 0, 0, 0, 1, 1),
    }
    assert datetime.fromisoformat(oldest) == sql.one("select run_at from sluicegate.job where state = 'pending'")
    assert sql.state(dead) == "failed"


def fill(sql: Sql, queue: str, state: str, count: int, *, priority: str = "10") -> None:
    """Insert jobs as they stand in a state, each a second older than the one before."""
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", queue)
    sql.do(
        "insert into sluicegate.job (queue_id, scope_id, state, priority, run_at, created_at, kind, lease_expires_at, finished_at)"
        f" select q.id, q.scope_id, s.state, {priority}, now() - n * interval '1 s', now(), q.name,"
        "   case when s.state = 'claimed' then now() end,"
        "   case when s.state in ('done', 'failed', 'cancelled') then now() end"
        " from sluicegate.queue q, (select %s::text as state) s, generate_series(1, %s::int) n where q.name = %s",
        state,
        count,
        queue,
    )


def test_a_figure_stops_at_a_thousand_and_says_so(sql: Sql) -> None:
    states = ("scheduled", "pending", "claimed", "done", "failed", "cancelled")
    for state in states:
        fill(sql, "exact", state, 1000)
        fill(sql, "more", state, 1001)
    fill(sql, "few-done", "done", 2)
    fill(sql, "few-done", "failed", 3002)
    stats = {queue["queue"]: queue for queue in sql.call("queue_stats")["queues"]}
    figures = {*states, "due", "lapsed"}
    for queue in ("exact", "more"):
        assert {stats[queue][figure] for figure in figures} == {1000}
    assert set(stats["exact"]["inexact"]) == set()
    assert set(stats["more"]["inexact"]) == figures
    assert (stats["few-done"]["done"], stats["few-done"]["failed"]) == (2, 1000)
    assert stats["few-done"]["inexact"] == ["done", "failed"], "so many have ended that there may be more"


def test_the_oldest_is_found_whatever_its_priority_and_however_many_there_are(sql: Sql) -> None:
    fill(sql, "q", "pending", 3000, priority="mod(n, 7)")
    fill(sql, "due", "scheduled", 3000, priority="mod(n, 7)")
    sql.do("update sluicegate.job set run_at = now() + interval '1 day' where kind = 'due' and priority < 6")
    for queue in sql.call("queue_stats")["queues"]:
        oldest = sql.one("select min(run_at) from sluicegate.job where kind = %s", queue["queue"])
        assert datetime.fromisoformat(queue["oldest_pending_at"]) == oldest
    assert sql.call("budget_show", queue="q")["oldest_pending_at"] is not None


def test_every_filter_gives_every_job_once_over_its_pages_wherever_they_stand(sql: Sql) -> None:
    for number in range(3):
        for queue in ("a", "b"):
            for state in ("scheduled", "pending", "claimed", "done", "failed", "cancelled"):
                fill(sql, queue, state, 2)
        # Between them so many others that neither is among the newest, nor all of one page.
        fill(sql, "many", ("pending", "done", "failed")[number], 9000)
    for queue in (None, "a", "many"):
        for state in (None, "pending", "done", "failed", "cancelled"):
            for kind in (None, "b", "many"):
                want = sql.rows(
                    "select j.id from sluicegate.job j join sluicegate.queue q on q.id = j.queue_id"
                    " where q.name = coalesce(%s, q.name) and j.state = coalesce(%s, j.state)"
                    " and j.kind = coalesce(%s, j.kind) order by j.id desc",
                    queue, state, kind,
                )  # fmt: skip
                if len(want) > 5000:
                    continue
                seen, before, pages = [], None, 0
                while pages == 0 or before is not None:
                    page = sql.call("list_jobs", queue=queue, state=state, kind=kind, limit=150, before_id=before)
                    seen += [job["id"] for job in page["jobs"]]
                    before, pages = page["next_before_id"], pages + 1
                assert seen == [row["id"] for row in want], (queue, state, kind)


def test_what_a_small_queue_holds_is_on_the_first_page_however_old_it_is(sql: Sql) -> None:
    fill(sql, "small", "done", 3)
    fill(sql, "small", "failed", 2)
    fill(sql, "many", "done", 30_000)
    assert len(sql.call("list_jobs", queue="small")["jobs"]) == 5
    assert len(sql.call("list_jobs", state="failed")["jobs"]) == 2
    assert len(sql.call("list_jobs", queue="small", state="done", kind="small")["jobs"]) == 3
    # A kind has no index: of it the page is short, and says where to go on.
    page = sql.call("list_jobs", kind="small")
    assert (page["jobs"], page["next_before_id"] is not None) == ([], True)
    assert len(sql.call("list_jobs", kind="small", before_id=page["next_before_id"])["jobs"]) == 5


def test_bad_input_to_a_report_is_named(sql: Sql) -> None:
    job = sql.enqueue()
    bad: list[tuple[str, str, dict[str, Any]]] = [
        *[("list_jobs", "limit", {"limit": limit}) for limit in (0, 201, -1, None)],
        ("list_jobs", "state", {"state": "dead"}),
        ("list_jobs", "scope", {"scope": "x"}),
        *[("get_job", "attempts_limit", {"job_id": job, "attempts_limit": limit}) for limit in (-1, 51, None)],
        ("queue_stats", "scope", {"scope": "x"}),
    ]
    for verb, field, options in bad:
        with refused(sql, "SG001", field):
            sql.call(verb, **options)
    with refused(sql, "SG002", "queue"):
        sql.call("list_jobs", queue="unknown")
    assert sql.call("get_job", job_id=999)["status"] == "not_found"
    assert sql.one("select sluicegate.get_job(null)")["status"] == "not_found"


ADMITTED = {"state": "admitted", "reason": None, "next_eligible_at": None, "exact": True}


def admissions(sql: Sql, **filters: Any) -> dict[int, Any]:
    """What the list says of each job, which is what the job alone says."""
    found = {job["id"]: job["admission"] for job in sql.call("list_jobs", limit=200, **filters)["jobs"]}
    assert found == {job: sql.call("get_job", job_id=job)["job"]["admission"] for job in found}
    assert found == {job: sql.call("explain", job_id=job)["job"]["admission"] for job in found}
    return found


def test_every_job_that_waits_says_whether_it_may_start_and_no_other_does(sql: Sql) -> None:
    at = datetime(2026, 6, 10, 12, tzinfo=UTC)
    freeze_clock(sql.connection, at)
    govern(sql, "closed", window(1))
    running, taken_over, spent = sql.enqueue_many(
        [{"queue": "lapsing"}] * 2 + [{"queue": "lapsing", "max_attempts": 1}]
    )
    sql.take("lapsing", n=3)
    done, pending, later = sql.enqueue_many(
        [{"queue": "closed"}] * 2 + [{"queue": "closed", "run_at": "2026-06-11T12:00:00Z"}]
    )
    due = sql.enqueue("closed", run_at=at + timedelta(minutes=1))
    free = sql.enqueue("free")
    sql.complete(sql.take_one("closed"))
    assert admissions(sql, queue="closed")[due] is None
    freeze_clock(sql.connection, at + timedelta(minutes=2))
    sql.lapse(taken_over, spent)
    deferred = {
        "state": "deferred",
        "reason": "window_exhausted",
        "next_eligible_at": "2026-06-11T00:00:00+00:00",
        "exact": True,
    }
    assert admissions(sql) == {
        running: None,
        taken_over: ADMITTED,
        spent: None,
        done: None,
        pending: deferred,
        later: None,
        due: deferred,
        free: ADMITTED,
    }
    sql.call("pause_queue", queue="free")
    assert admissions(sql)[free] == {**ADMITTED, "state": "deferred", "reason": "paused", "exact": False}
    assert sql.call("admission_status", queue="closed")["queues"][0]["verdict"].items() >= deferred.items()


def test_a_policy_that_cannot_be_read_is_told_with_each_job(sql: Sql) -> None:
    job = sql.enqueue()
    govern(sql, "q", window(1))
    sql.do("delete from sluicegate.policy")
    assert admissions(sql)[job]["reason"] == "admission_unavailable"


def test_the_rule_is_asked_once_a_queue(sql: Sql) -> None:
    for queue in ("a", "b", "c"):
        govern(sql, queue, window(1))
        sql.enqueue_many({"queue": queue} for _ in range(60))
    sql.enqueue_many({"queue": "free"} for _ in range(10))
    sql.do("set track_functions = 'all'")

    def calls() -> int:
        query = "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where funcname = 'verdict'"
        return int(sql.one(query))

    def asked(call: str) -> int:
        with sql.transaction():
            before = calls()
            sql.one(f"select sluicegate.{call}")
            return calls() - before

    assert asked("list_jobs(p_limit => 200)") == 4
    assert asked("list_jobs('a', p_limit => 60)") == 1
    assert asked("list_jobs('a', 'done')") == 0
    assert asked("list_jobs('free')") == 1
    assert asked("next_jobs(p_limit => 200)") == 4


def test_a_policy_that_is_locked_away_is_waited_for_once_however_many_queues_there_are(
    sql: Sql, another: OpenSql
) -> None:
    for queue in ("a", "b", "c"):
        govern(sql, queue, window(1))
        sql.enqueue(queue)
    free = sql.enqueue("free")
    holder = another()
    sql.do("set track_functions = 'all'")
    with holder.transaction():
        holder.do("lock table sluicegate.policy_limit in access exclusive mode")
        for call in ("list_jobs()", "next_jobs()"):
            with sql.transaction():
                query = "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where funcname = 'verdict'"
                before = sql.one(query)
                found = {job["id"]: job for job in sql.one(f"select sluicegate.{call}")["jobs"]}
                assert sql.one(query) - before == 2, "one of the closed ones, and the free one"
            told = [job.get("reason") or (job.get("admission") or {}).get("reason") for job in found.values()]
            assert (told.count("admission_unavailable"), told.count(None)) == (3, 1)
            assert found[free].get("admission", ADMITTED) == ADMITTED
