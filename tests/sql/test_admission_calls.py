"""Several requests in one call, several calls in one transaction, and changes of a policy in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sluicegate.testing import freeze_clock
from tests.sql.budgets import ask, check_lanes, govern, opened, rows_and_locks, window
from tests.sql.verbs import Sql, completed, in_background, wait_blocked

OpenSql = Callable[[], Sql]


def test_no_request_of_a_call_starves_behind_another(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "a"}] * 100)
    sql.enqueue_many([{"queue": "b"}] * 12)
    govern(sql, "a", max_in_flight=1_000, lanes=2)
    govern(sql, "b", max_in_flight=8, lanes=2)
    early = sql.take("b", n=8)
    assert len(early) == 8
    # Below use: no lane of b has room until its shares are dealt anew.
    govern(sql, "b", max_in_flight=2, lanes=2)
    sql.call("claim", requests=[], finished=[completed(claim) for claim in early])
    for _ in range(50):
        answer = sql.call("claim", requests=[{"queues": ["a"]}, {"queues": ["b"]}])
        first, second = answer["responses"]
        assert [claim["job"]["queue"] for claim in first["claims"]] in (["a"], [])
        if second["claims"]:
            break
    assert [claim["job"]["queue"] for claim in second["claims"]] == ["b"]


def test_two_transactions_that_claim_crosswise_do_not_wait_for_each_other(sql: Sql, another: OpenSql) -> None:
    for queue in ("p", "r"):
        sql.enqueue_many([{"queue": queue}] * 4)
        govern(sql, queue, window(10))
    one, two = another(), another()
    one.do("begin")
    two.do("begin")
    assert len(one.take("p")) == 1
    assert len(two.take("r")) == 1
    # Neither waits: both calls return while the other transaction is open.
    for session, queue in ((one, "r"), (two, "p")):
        answer = session.claim(queue)
        assert (answer["claims"], answer["deferred"], answer["empty"]) == ([], [], False)
    (job,) = [row["id"] for row in sql.rows("select max(id) as id from sluicegate.job where state = 'pending'")]
    assert one.call("claim_job", job_id=job)["status"] in ("ok", "busy")
    one.commit()
    two.commit()
    assert len(ask(sql, "p")["claims"]) == len(ask(sql, "r")["claims"]) == 1


def test_a_claim_by_id_that_waited_for_a_policy_to_go_is_not_refused(sql: Sql, another: OpenSql) -> None:
    job = sql.enqueue()
    govern(sql, "q", window(5))
    editor, claimer = another(), another()
    editor.do("begin")
    editor.call("clear_admission_policy", queue="q")
    waiting = in_background(lambda: claimer.call("claim_job", job_id=job))
    wait_blocked(sql, claimer.pid, by=editor.pid)
    editor.commit()
    assert waiting.result(30)["status"] == "busy"
    assert sql.call("claim_job", job_id=job)["status"] == "ok"


def test_what_a_session_remembers_cannot_break_its_claims(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "closed"}] * 3 + [{"queue": "free"}] * 2)
    govern(sql, "closed", window(1))
    assert len(sql.take("closed")) == 1
    queue_id = sql.one("select id from sluicegate.queue where name = 'closed'")
    for value in ("x", "", "-1", "1e400", "9" * 40, "infinity"):
        sql.one(f"select set_config('sluicegate.pending_{queue_id}', %s, false)", value)
        (entry,) = sql.claim("closed", "free", n=5)["deferred"]
        assert (entry["queue"], entry["pending"]) == ("closed", 2)


def test_no_lock_that_any_login_may_take_stops_a_pause(sql: Sql, another: OpenSql) -> None:
    sql.enqueue()
    stranger = another()
    stranger.do("begin")
    for name in ("policy", "refusal paused"):
        # By the key of a request_id, and by a key of two numbers.
        stranger.do("select pg_advisory_xact_lock(sluicegate.request_key(id, %s)) from sluicegate.queue", name)
        stranger.do("select pg_advisory_xact_lock(hashint8(id), hashtext(%s)) from sluicegate.queue", name)
    stranger.claim("q", request_id="policy")
    sql.do("set lock_timeout = '1s'")
    assert sql.call("pause_queue", queue="q")["status"] == "paused"
    stranger.do("rollback")
    assert sql.claim()["deferred"][0]["reason"] == "paused"


def test_polls_of_a_full_queue_write_nothing_however_high_its_cap(sql: Sql) -> None:
    for cap in (101, 300):
        queue = f"cap{cap}"
        sql.enqueue_many([{"queue": queue}] * (cap + 5))
        govern(sql, queue, max_in_flight=cap)
        while not ask(sql, queue, n=100, lease_seconds=600)["deferred"]:
            pass
        assert opened(sql, queue) == cap
        before = rows_and_locks(sql)
        for _ in range(5):
            assert sql.claim(queue)["deferred"][0]["reason"] == "in_flight_full"
        assert rows_and_locks(sql) == before


def test_new_numbers_do_not_end_a_pause(sql: Sql) -> None:
    sql.enqueue()
    govern(sql, "q", window(5))
    sql.call("pause_queue", queue="q")
    status = sql.call("set_admission_policy", queue="q", policy={"limits": [window(50)]})
    assert status["status"] == "paused"
    assert ask(sql)["deferred"][0]["reason"] == "paused"
    status = sql.call("set_admission_policy", queue="q", policy={"limits": [window(50)], "paused": False})
    assert status["status"] == "admitted"
    assert len(ask(sql)["claims"]) == 1


def test_a_damaged_lane_is_repaired_by_setting_the_policy_and_gives_no_fresh_budget(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 20)
    policy = {"limits": [window(5)], "lanes": 2}
    govern(sql, "q", window(5), lanes=2)
    while not ask(sql)["deferred"]:
        pass
    assert opened(sql) == 5
    listener = another()
    listener.do("listen sluicegate_admission")
    for damage in (
        "update sluicegate.lane set windows = '{}', shares = '{}', used = '{}', forgiven = '{}', starts = '{}', ends = '{}'",
        "delete from sluicegate.lane where lane = 1",
        "update sluicegate.lane set shares[1] = null",
        "delete from sluicegate.policy",
    ):
        sql.do(damage)
        assert ask(sql)["deferred"][0]["reason"] == "admission_unavailable"
        sql.call("set_admission_policy", queue="q", policy=policy)
        sql.call("open_admission", queue="q")
        (entry,) = ask(sql)["deferred"]
        assert (entry["reason"], entry["all"][0]["used"]) == ("window_exhausted", 5)
        check_lanes(sql)
    assert opened(sql) == 5
    # Whoever waited for the policy to be mended is told, since it may admit him.
    sql.do("delete from sluicegate.policy_limit")
    sql.call("set_admission_policy", queue="q", policy={"limits": [window(6)], "lanes": 2})
    assert list(listener.connection.notifies(timeout=5, stop_after=1))
    assert len(ask(sql)["claims"]) == 1
    assert opened(sql) == 6


def test_new_rules_for_a_zone_neither_lend_a_window_nor_close_one_twice(sql: Sql, dsn: str) -> None:
    sql.enqueue_many([{"queue": "q"}] * 40)
    for later in (True, False):
        noon = datetime(2030, 5, 6 if later else 16, 12, tzinfo=UTC)
        freeze_clock(dsn, noon)
        govern(sql, "q", window(3))
        while not ask(sql)["deferred"]:
            pass
        made = opened(sql)
        # As if the zone's rules had moved midnight: six hours later, or earlier.
        sql.do("update sluicegate.budget_window set starts_at = %s", timedelta(hours=18 if later else 9))
        for hours in (0, 3, 7, 11):
            freeze_clock(dsn, noon + timedelta(hours=hours))
            (entry,) = ask(sql)["deferred"]
            assert (entry["reason"], entry["all"][0]["used"]) == ("window_exhausted", 3), hours
        assert opened(sql) == made
        freeze_clock(dsn, noon + timedelta(hours=13))
        assert len(ask(sql, n=10)["claims"]) == 3
        assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"
        sql.call("clear_admission_policy", queue="q")
        sql.do("delete from sluicegate.budget_window")


def test_a_clock_set_back_and_limits_set_again_give_no_second_window(sql: Sql, dsn: str) -> None:
    boundary = datetime(2030, 5, 6, 15, tzinfo=UTC)
    freeze_clock(dsn, boundary + timedelta(seconds=1))
    sql.enqueue_many([{"queue": "q"}] * 20)
    for change in ("limits", "clear"):
        govern(sql, "q", window(5, "hour"))
        while not ask(sql)["deferred"]:
            pass
        freeze_clock(dsn, boundary - timedelta(seconds=2))
        if change == "clear":
            sql.call("clear_admission_policy", queue="q")
        else:
            govern(sql, "q", max_in_flight=100)
        govern(sql, "q", window(5, "hour"))
        freeze_clock(dsn, boundary + timedelta(seconds=2))
        assert ask(sql)["deferred"][0]["all"][0]["used"] == 5
        assert opened(sql) == 5


def test_takeovers_of_several_queues_end_each_at_its_own_instant(sql: Sql) -> None:
    for queue in ("one", "two", "three"):
        sql.enqueue(queue)
        govern(sql, queue, max_in_flight=1)
    for _ in range(3):
        held: list[int] = []
        while len(held) < 3:
            held += [claim["job"]["id"] for claim in sql.take("one", "two", "three", n=3)]
        sql.lapse(*held)
    overlaps = """
        select count(*) from sluicegate.attempt a
        join sluicegate.attempt_end e on e.attempt_id = a.id
        join sluicegate.attempt later on later.job_id = a.job_id and later.seq = a.seq + 1
        where e.ended_at > later.opened_at
    """
    assert opened(sql, "one") >= 3
    assert sql.one(overlaps) == 0


def test_a_call_waits_for_lanes_once_however_many_queues_it_asks(sql: Sql, another: OpenSql) -> None:
    queues = [f"q{number}" for number in range(3)]
    for queue in queues:
        sql.enqueue_many([{"queue": queue}] * 3)
        govern(sql, queue, window(10))
    sql.replace("admit", ("set lock_timeout = '5s'", "set lock_timeout = '200ms'"))
    holder, claimer = another(), another()
    holder.do("begin")
    for queue in queues:
        holder.take(queue)
    # The first holds lanes, so the others were taken without a wait; all three are held now.
    answer = claimer.call("claim", requests=[{"queues": [queue]} for queue in queues])
    reasons = [[entry["reason"] for entry in response["deferred"]] for response in answer["responses"]]
    assert sorted(map(len, reasons)) == [0, 0, 1]
    assert ["admission_unavailable"] in reasons
    holder.commit()
    assert len(ask(sql, *queues, n=3)["claims"]) == 3


def test_a_cancelled_call_does_not_go_on_with_its_other_requests(sql: Sql, another: OpenSql) -> None:
    queues = [f"q{number}" for number in range(3)]
    for queue in queues:
        sql.enqueue_many([{"queue": queue}] * 3)
        govern(sql, queue, window(10))
    holder, claimer = another(), another()
    holder.do("begin")
    for queue in queues:
        holder.take(queue)
    asking = [{"queues": [queue]} for queue in queues]
    waiting = in_background(lambda: claimer.call("claim", requests=asking))
    wait_blocked(sql, claimer.pid, by=holder.pid)
    sql.one("select pg_cancel_backend(%s)", claimer.pid)
    answer = waiting.result(30)
    assert [response["error"]["sqlstate"] for response in answer["responses"]] == ["57014"] * 3
    holder.commit()
