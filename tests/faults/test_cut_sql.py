"""Connections cut right after COMMIT, or before the request arrived, then the same call again: nothing double, nothing lost."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.sql.verbs import Sql, check_ledger, completed, failed, in_background, lease, released
from tests.support.counts import rounds
from tests.support.proxy import Loss, Proxy

Json = dict[str, Any]


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as opened:
        yield opened


@pytest.fixture
def direct(dsn: str) -> Iterator[Sql]:
    """A connection beside the proxy."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        yield Sql(connection)


@pytest.fixture(params=["reply", "request"])
def lose(proxy: Proxy, request: pytest.FixtureRequest) -> Callable[[], Loss]:
    """Lose the reply to the next verb after its commit, or the verb itself."""
    what = proxy.lose_reply if request.param == "reply" else proxy.lose_request
    return lambda: what("sluicegate.")


class Stubborn:
    """A caller whose connection is cut at every first try of a call; it connects again and repeats the call."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    def once(self, call: Callable[[Sql], Any]) -> Any:
        with psycopg.connect(self.proxy.dsn, autocommit=True, prepare_threshold=None) as connection:
            return call(Sql(connection))

    def cut(self, lose: Callable[[], Loss], call: Callable[[Sql], Any], *, times: int = 1) -> Any:
        for _ in range(times):
            loss = lose()
            with pytest.raises(psycopg.OperationalError):
                self.once(call)
            loss.wait()
        return self.once(call)


@pytest.fixture
def caller(proxy: Proxy) -> Stubborn:
    return Stubborn(proxy)


def test_an_enqueue_that_is_repeated_adds_one_job(caller: Stubborn, lose: Callable[[], Loss], direct: Sql) -> None:
    answer = caller.cut(lose, lambda sql: sql.call("enqueue", queue="q", payload={"a": 1}, request_id="r"), times=3)
    assert answer["created"] is True
    assert [row["id"] for row in direct.rows("select id from sluicegate.job")] == [answer["id"]]


def test_an_enqueue_with_a_dedup_key_is_safe_without_a_request_id(
    caller: Stubborn, lose: Callable[[], Loss], direct: Sql
) -> None:
    caller.cut(lose, lambda sql: sql.call("enqueue", queue="q", dedup_key="k"), times=2)
    assert direct.one("select count(*) from sluicegate.job") == 1


def test_a_batch_that_is_repeated_adds_its_jobs_once(caller: Stubborn, lose: Callable[[], Loss], direct: Sql) -> None:
    jobs = [{"queue": "q", "payload": n} for n in range(500)]
    ids = caller.cut(lose, lambda sql: sql.enqueue_many(jobs, request_id="r"), times=2)
    assert [row["id"] for row in direct.rows("select id from sluicegate.job order by id")] == ids
    assert len(ids) == 500


def test_a_claim_that_is_repeated_opens_its_attempts_once(
    caller: Stubborn, lose: Callable[[], Loss], direct: Sql
) -> None:
    direct.enqueue_many([{"queue": "q"}] * 5)
    claims = caller.cut(lose, lambda sql: sql.take(n=3, request_id="r"), times=2)
    assert len(claims) == 3
    assert check_ledger(direct) == 3
    assert {caller.once(lambda sql, c=claim: sql.complete(c))["status"] for claim in claims} == {"ok"}  # type: ignore[misc]
    assert direct.one("select count(*) from sluicegate.job where state = 'pending'") == 2


def test_a_claim_of_one_job_that_is_repeated_opens_its_attempt_once(
    caller: Stubborn, lose: Callable[[], Loss], direct: Sql
) -> None:
    job = direct.enqueue()
    answer = caller.cut(lose, lambda sql: sql.call("claim_job", job_id=job, request_id="r"), times=2)
    assert answer["status"] == "ok"
    assert check_ledger(direct) == 1
    assert caller.once(lambda sql: sql.complete(answer["claim"]))["status"] == "ok"


FINISHES: list[tuple[str, Callable[[Sql, Json], Json], str]] = [
    ("complete", lambda sql, claim: sql.complete(claim, result={"r": 1}), "done"),
    ("fail", lambda sql, claim: sql.fail(claim), "scheduled"),
    ("fail for good", lambda sql, claim: sql.fail(claim, retry=False), "failed"),
    ("release", lambda sql, claim: sql.release(claim), "pending"),
    ("release unstarted", lambda sql, claim: sql.release(claim, started=False), "pending"),
]


@pytest.mark.parametrize(("name", "finish", "state"), FINISHES, ids=[name for name, _, _ in FINISHES])
def test_a_finish_that_is_repeated_counts_once(
    caller: Stubborn, lose: Callable[[], Loss], direct: Sql, name: str, finish: Callable[[Sql, Json], Json], state: str
) -> None:
    job = direct.enqueue()
    claim = direct.take_one()
    answer = caller.cut(lose, lambda sql: finish(sql, claim), times=2)
    assert (answer["status"], answer["state"]) == ("ok", state)
    assert len(direct.attempts(job)) == len([end for end in direct.ends(job) if end[0]]) == 1
    row = direct.job(job)
    assert (row["state"], row["attempt"]) == (state, 0 if name == "release unstarted" else 1)
    check_ledger(direct)


def test_finishes_that_ride_along_with_a_repeated_claim_count_once_and_nothing_more_is_claimed(
    caller: Stubborn, lose: Callable[[], Loss], direct: Sql
) -> None:
    direct.enqueue_many([{"queue": "q", "payload": n} for n in range(6)])
    a, b, c = direct.take(n=3)
    items = [completed(a, result=1), failed(b, retry=False), released(c, started=False)]
    response = caller.cut(lose, lambda sql: sql.claim(n=2, request_id="r", finished=items), times=2)
    assert [(answer["status"], answer["state"]) for answer in response["finished"][:2]] == [
        ("ok", "done"),
        ("ok", "failed"),
    ]
    assert response["finished"][2]["status"] == "ok"
    assert len(response["claims"]) == 2
    assert check_ledger(direct) == 5
    answers = caller.once(lambda sql: sql.claim("none", finished=[completed(claim) for claim in response["claims"]]))
    assert {answer["status"] for answer in answers["finished"]} == {"ok"}


def test_heartbeats_and_cancels_may_be_repeated(caller: Stubborn, lose: Callable[[], Loss], direct: Sql) -> None:
    job = direct.enqueue()
    claim = direct.take_one()
    assert caller.cut(lose, lambda sql: sql.heartbeat(claim, lease_seconds=600))["status"] == "ok"
    answers = caller.cut(lose, lambda sql: sql.call("heartbeat_many", items=[lease(claim)]))["heartbeats"]
    assert answers[0]["status"] == "ok"
    assert caller.cut(lose, lambda sql: sql.call("cancel", job_id=job))["status"] == "ok"
    assert caller.cut(lose, lambda sql: sql.heartbeat(claim))["cancelled"] is True


def test_a_retried_job_is_pending_once_even_if_the_first_answer_was_lost(
    caller: Stubborn, proxy: Proxy, direct: Sql
) -> None:
    job = direct.enqueue()
    direct.fail(direct.take_one(), retry=False)
    answer = caller.cut(lambda: proxy.lose_reply("retry"), lambda sql: sql.call("retry", job_id=job))
    assert (answer["status"], answer["state"]) == ("conflict", "pending")
    assert len(direct.take(n=5)) == 1


def test_a_job_whose_worker_was_cut_off_before_it_knew_is_taken_over_after_its_lease(proxy: Proxy, direct: Sql) -> None:
    job = direct.enqueue()
    loss = proxy.lose_reply("claim")
    with pytest.raises(psycopg.OperationalError):
        Stubborn(proxy).once(lambda sql: sql.take())
    loss.wait()
    assert direct.state(job) == "claimed"
    assert direct.claim()["empty"] is True
    direct.lapse(job)
    assert direct.take_one()["attempt_seq"] == 2
    check_ledger(direct)


def test_a_transaction_that_is_cut_leaves_nothing(proxy: Proxy, direct: Sql) -> None:
    direct.enqueue()
    before = direct.contents()
    with psycopg.connect(proxy.dsn, autocommit=True, prepare_threshold=None) as connection:
        sql = Sql(connection)
        sql.do("begin")
        sql.take_one(request_id="r")
        sql.enqueue(request_id="s")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            sql.commit()
    assert direct.contents() == before


class Unlucky:
    """Repeats a call until an answer comes through; one try in three is cut, before or after it was carried out."""

    def __init__(self, proxy: Proxy, chance: random.Random) -> None:
        self.proxy = proxy
        self.chance = chance
        self.sql: Sql | None = None

    def ask(self, call: Callable[[Sql], Any]) -> Any:
        while True:
            if self.sql is None:
                self.sql = Sql(psycopg.connect(self.proxy.dsn, autocommit=True, prepare_threshold=None))
            if self.chance.random() < 0.33:
                self.chance.choice([self.proxy.lose_reply, self.proxy.lose_request])("sluicegate.")
            try:
                return call(self.sql)
            except psycopg.OperationalError:
                self.close()

    def close(self) -> None:
        if self.sql is not None:
            self.sql.connection.close()
            self.sql = None


def test_workers_that_are_cut_at_random_do_every_job_once(proxy: Proxy, direct: Sql) -> None:
    """Two producers and two workers repeat themselves until they are answered; each job ends done, in one attempt."""
    each = rounds(40, 500)
    done: set[int] = set()

    def produce(number: int) -> None:
        caller = Unlucky(proxy, random.Random(number))
        for step in range(each):
            caller.ask(lambda sql, s=step: sql.enqueue(payload=[number, s], request_id=f"p{number}.{s}"))  # type: ignore[misc]
        caller.close()

    def work(number: int) -> None:
        caller = Unlucky(proxy, random.Random(number))
        claims: list[Json] = []
        step = 0
        while len(done) < 2 * each:
            step += 1
            items = [completed(claim) for claim in claims]
            response = caller.ask(
                lambda sql, i=items, s=step: sql.claim(n=3, request_id=f"w{number}.{s}", finished=i)  # type: ignore[misc]
            )
            assert {answer["status"] for answer in response["finished"]} <= {"ok"}
            done.update(answer["job_id"] for answer in response["finished"])
            claims = response["claims"]
        caller.close()

    direct.enqueue("seed")
    runs = [in_background(lambda f=f, n=n: f(n)) for f in (produce, work) for n in range(2)]  # type: ignore[misc]
    for run in runs:
        run.result(300)
    assert len(done) == 2 * each
    payloads = direct.rows(
        "select payload from sluicegate.job where state = 'done' and attempts_total = 1 order by payload"
    )
    assert [row["payload"] for row in payloads] == [[n, s] for n in range(2) for s in range(each)]
    assert check_ledger(direct) == 2 * each
