"""The Python client repeats a call whose connection was cut, and the caller never learns of it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from sluicegate import Client, SyncClient
from sluicegate.errors import Unavailable
from sluicegate.model import FinishItem, NewJob
from tests.sql.verbs import Sql, check_ledger
from tests.support.proxy import Proxy


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as opened:
        yield opened


@pytest.fixture
def direct(dsn: str) -> Iterator[Sql]:
    """A connection beside the proxy."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        yield Sql(connection)


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    async with Client(proxy.dsn, scope="endpoint:default") as opened:
        yield opened


@pytest.fixture(params=["reply", "request"])
def lose(proxy: Proxy, request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Lose the reply to the next call of this function after its commit, or the call itself."""
    what = proxy.lose_reply if request.param == "reply" else proxy.lose_request
    return lambda function: what(f"sluicegate.{function}(")


async def test_an_enqueue_adds_one_job(client: Client, lose: Callable[[str], Any], direct: Sql) -> None:
    loss = lose("enqueue")
    added = await client.enqueue("q", {"a": 1})
    loss.wait()
    assert added.created
    assert direct.rows("select id from sluicegate.job") == [{"id": added.id}]


async def test_a_batch_adds_its_jobs_once(client: Client, lose: Callable[[str], Any], direct: Sql) -> None:
    loss = lose("enqueue_many")
    added = await client.enqueue_many([NewJob("q", n) for n in range(100)])
    loss.wait()
    assert direct.one("select array_agg(id order by id) from sluicegate.job") == [job.id for job in added.jobs]


async def test_a_claim_opens_its_attempts_once_and_its_tokens_are_the_living_ones(
    client: Client, lose: Callable[[str], Any], direct: Sql
) -> None:
    direct.enqueue_many([{"queue": "q"}] * 5)
    loss = lose("claim")
    answer = await client.claim("q", n=3)
    loss.wait()
    assert len(answer.claims) == 3
    assert check_ledger(direct) == 3
    for claim in answer.claims:
        await client.complete(claim)
    assert direct.one("select count(*) from sluicegate.job where state = 'done'") == 3


async def test_a_claim_of_one_job_opens_its_attempt_once(
    client: Client, lose: Callable[[str], Any], direct: Sql
) -> None:
    job = direct.enqueue()
    loss = lose("claim_job")
    claim = await client.claim_job(job)
    loss.wait()
    assert (await client.complete(claim)).state == "done"
    assert check_ledger(direct) == 1


async def test_every_finish_counts_once(client: Client, lose: Callable[[str], Any], direct: Sql) -> None:
    verbs: list[tuple[str, Callable[[Any], Awaitable[Any]], str]] = [
        ("complete", lambda claim: client.complete(claim, {"r": 1}), "done"),
        ("fail", lambda claim: client.fail(claim, "boom"), "scheduled"),
        ("release", lambda claim: client.release(claim, started=False), "pending"),
    ]
    for function, finish, state in verbs:
        job = direct.enqueue(priority=-1)
        (claim,) = (await client.claim("q")).claims
        loss = lose(function)
        answer = await finish(claim)
        loss.wait()
        assert (answer.status, answer.state) == ("ok", state)
        assert len(direct.attempts(job)) == 1
        direct.do("delete from sluicegate.job")
    check_ledger(direct)


async def test_finishes_that_ride_along_count_once(client: Client, lose: Callable[[str], Any], direct: Sql) -> None:
    direct.enqueue_many([{"queue": "q"}] * 6)
    a, b, c = (await client.claim("q", n=3)).claims
    items = [FinishItem.completed(a), FinishItem.failed(b, "boom"), FinishItem.released(c)]
    loss = lose("claim")
    answer = await client.claim("q", n=2, finished=items)
    loss.wait()
    assert [finish.status for finish in answer.finished] == ["ok"] * 3
    assert len(answer.claims) == 2
    loss = lose("claim")
    finishes = await client.finish_many([FinishItem.completed(claim) for claim in answer.claims])
    loss.wait()
    assert [finish.state for finish in finishes] == ["done"] * 2
    assert check_ledger(direct) == 5


async def test_heartbeats_and_cancels_are_repeated_too(client: Client, lose: Callable[[str], Any], direct: Sql) -> None:
    direct.enqueue()
    (claim,) = (await client.claim("q")).claims
    loss = lose("heartbeat")
    assert (await client.heartbeat(claim)).status == "ok"
    loss.wait()
    loss = lose("heartbeat_many")
    assert [beat.status for beat in await client.heartbeat_many([claim])] == ["ok"]
    loss.wait()
    loss = lose("cancel")
    assert (await client.cancel(claim.job.id)).state == "claimed"
    loss.wait()


async def test_without_retries_the_caller_is_told_that_the_outcome_is_unknown(proxy: Proxy, direct: Sql) -> None:
    async with Client(proxy.dsn, scope="endpoint:default", retries=False) as client:
        loss = proxy.lose_reply("sluicegate.enqueue(")
        with pytest.raises(Unavailable) as caught:
            await client.enqueue("q", request_id="mine")
        loss.wait()
        assert caught.value.outcome_unknown
        again = await client.enqueue("q", request_id="mine")
    assert direct.rows("select id from sluicegate.job") == [{"id": again.id}]


async def test_a_call_that_is_cut_twice_says_so_and_may_be_repeated_by_its_caller(
    client: Client, proxy: Proxy, direct: Sql
) -> None:
    for _ in range(2):
        proxy.lose_reply("sluicegate.enqueue(")
    with pytest.raises(Unavailable) as caught:
        await client.enqueue("q", request_id="mine")
    assert caught.value.outcome_unknown
    again = await client.enqueue("q", request_id="mine")
    assert direct.rows("select id from sluicegate.job") == [{"id": again.id}]


def test_the_synchronous_client_does_the_same(proxy: Proxy, lose: Callable[[str], Any], direct: Sql) -> None:
    with SyncClient(proxy.dsn, scope="endpoint:default") as client:
        losses = [lose("enqueue")]
        added = client.enqueue("q")
        losses.append(lose("claim"))
        (claim,) = client.claim("q").claims
        losses.append(lose("complete"))
        assert client.complete(claim).state == "done"
        for loss in losses:
            loss.wait()
    assert direct.rows("select id, state from sluicegate.job") == [{"id": added.id, "state": "done"}]
    assert check_ledger(direct) == 1
