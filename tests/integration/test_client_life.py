"""The whole life of a job through the client, once with the asynchronous and once with the synchronous one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sluicegate import (
    Backoff,
    Client,
    Conflict,
    FinishItem,
    InvalidArgument,
    Lease,
    NewJob,
    NotFound,
    SchemaMismatch,
    SyncClient,
    Unavailable,
)

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class InThreads:
    """A SyncClient whose every verb runs in a thread, so that one test body serves both clients."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(verb, *args, **kwargs)

        return call


@pytest.fixture(params=["async", "sync"])
async def queue(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Any]:
    if request.param == "async":
        async with Client(dsn, worker="tester") as client:
            yield client
    else:
        with SyncClient(dsn, worker="tester") as sync_client:
            yield InThreads(sync_client)


async def claim_one(queue: Any, name: str = "q", **terms: Any) -> Any:
    (claim,) = (await queue.claim(name, **terms)).claims
    return claim


async def test_a_job_is_enqueued_claimed_kept_and_completed(queue: Any) -> None:
    payload = {"to": ["ada@example.org", "ü🚀\\u0000"], "n": 1.5, "none": None}
    made = await queue.enqueue("mail", payload, kind="welcome", title="Ada", priority=-3, tags=["eu"], dedup_key="k")
    assert (made.created, made.state, made.queue) == (True, "pending", "mail")

    answer = await queue.claim("mail", lease_seconds=60)
    (claim,) = answer.claims
    assert not answer.empty
    job = claim.job
    assert (job.id, job.queue, job.kind, job.title, job.payload) == (made.id, "mail", "welcome", "Ada", payload)
    assert (job.priority, job.tags, job.attempt, job.max_attempts) == (-3, ("eu",), 1, 5)
    assert (claim.attempt_seq, claim.attempts_total, claim.prior_attempts) == (1, 1, ())
    assert timedelta(seconds=50) < claim.lease_expires_at - answer.server_time <= timedelta(seconds=60)

    beat = await queue.heartbeat(claim, lease_seconds=600, note="half way")
    assert (beat.status, beat.cancelled) == ("ok", False)
    assert beat.lease_expires_at > claim.lease_expires_at
    assert (await queue.heartbeat(claim, lease_seconds=5)).lease_expires_at >= beat.lease_expires_at
    shorter = await queue.heartbeat(claim, lease_seconds=5, shorten=True)
    assert shorter.lease_expires_at - shorter.server_time <= timedelta(seconds=5)

    done = await queue.complete(claim, {"sent": True}, summary="sent it")
    assert (done.status, done.state, done.replayed, done.dead_letter) == ("ok", "done", False, False)
    assert (await queue.complete(claim, {"sent": True})).replayed
    with pytest.raises(Conflict) as caught:
        await queue.fail(claim, "too late")
    assert caught.value.state == "done"

    detail = await queue.get_job(made.id)
    assert (detail.job.state, detail.job.result, detail.job.payload) == ("done", {"sent": True}, payload)
    (attempt,) = detail.attempts
    assert (attempt.outcome, attempt.disposition, attempt.worker, attempt.summary) == (
        "completed",
        "done",
        "tester",
        "sent it",
    )
    assert (await queue.claim("mail")).empty


async def test_a_failing_job_waits_is_retried_and_ends_as_a_dead_letter(queue: Any, db: Connection) -> None:
    made = await queue.enqueue("q", max_attempts=3, backoff=Backoff(base_seconds=100, max_seconds=100))
    first = await queue.fail(await claim_one(queue), "first", summary="s")
    assert (first.state, first.attempt, first.dead_letter) == ("scheduled", 1, False)
    assert timedelta(seconds=80) < first.run_at - datetime.now(UTC) < timedelta(seconds=120)
    assert (await queue.claim("q")).empty

    await db.execute("update sluicegate.job set run_at = clock_timestamp()")
    second = await claim_one(queue)
    assert [(prior.outcome, prior.error) for prior in second.prior_attempts] == [("failed", "first")]
    assert (await queue.fail(second, "second", retry_in_seconds=0)).state == "pending"
    third = await queue.fail(await claim_one(queue), "third")
    assert (third.state, third.dead_letter, third.attempt) == ("failed", True, 3)

    back = await queue.retry(made.id)
    assert (back.job_id, back.state) == (made.id, "pending")
    again = await claim_one(queue)
    assert (again.job.attempt, again.attempts_total) == (1, 4)
    assert (await queue.fail(again, "no more", retry=False)).dead_letter


async def test_a_released_job_returns_and_gives_its_attempt_back_if_it_never_started(queue: Any) -> None:
    made = await queue.enqueue("q")
    assert (await queue.release(await claim_one(queue), started=False, reason="no slot")).attempt == 0
    assert (await queue.release(await claim_one(queue))).attempt == 1
    later = datetime.now(UTC) + timedelta(hours=1)
    put_off = await queue.release(await claim_one(queue), not_before=later)
    assert (put_off.state, put_off.run_at) == ("scheduled", later)
    row = (await queue.list_jobs(state="scheduled")).jobs[0]
    assert (row.id, row.attempts_total) == (made.id, 3)


async def test_a_cancelled_job_ends_at_once_or_at_its_holders_next_heartbeat(queue: Any) -> None:
    waiting = await queue.enqueue("waiting")
    assert (await queue.cancel(waiting.id, reason="not needed")).state == "cancelled"
    held = await queue.enqueue("held")
    claim = await claim_one(queue, "held")
    asked = await queue.cancel(held.id)
    assert (asked.state, asked.cancel_requested) == ("claimed", True)
    assert (await queue.heartbeat(claim)).cancelled
    assert (await queue.release(claim)).state == "cancelled"


async def test_a_dedup_key_is_taken_while_its_job_lives(queue: Any) -> None:
    first = await queue.enqueue("q", 1, dedup_key="k")
    second = await queue.enqueue("q", 2, dedup_key="k")
    assert (second.id, second.created) == (first.id, False)
    await queue.fail(await claim_one(queue), "x", retry=False)
    newer = await queue.enqueue("q", 3, dedup_key="k")
    assert newer.created
    with pytest.raises(Conflict) as caught:
        await queue.retry(first.id)
    assert caught.value.conflicting_job_id == newer.id
    assert caught.value.to_dict()["conflicting_job_id"] == newer.id


async def test_many_jobs_are_enqueued_in_order_and_claimed_by_priority_across_queues(queue: Any) -> None:
    jobs = [NewJob("a" if index % 2 else "b", {"i": index}, priority=index % 5, tags=("t",)) for index in range(200)]
    made = await queue.enqueue_many(jobs)
    assert len(made) == 200
    assert [job.id for job in made] == sorted(job.id for job in made)
    claims = (await queue.claim("a", "b", n=200)).claims
    assert [claim.job.payload["i"] for claim in claims] == sorted(range(200), key=lambda index: (index % 5, index))
    finished = await queue.finish_many([FinishItem.completed(claim) for claim in claims])
    assert {finish.status for finish in finished} == {"ok"}
    assert [finish.job_id for finish in finished] == [claim.job.id for claim in claims]


async def test_a_claim_carries_finishes_and_a_bad_one_stops_nothing(queue: Any) -> None:
    await queue.enqueue_many([NewJob("q", index) for index in range(4)])
    good, bad, failing = (await queue.claim("q", n=3)).claims
    answer = await queue.claim(
        "q",
        finished=[
            FinishItem.completed(good, "ok"),
            FinishItem.completed(Lease(bad.job_id, "not the token")),
            FinishItem.failed(failing, "no", retry_in_seconds=100),
            FinishItem.completed(Lease(10**12, "t")),
        ],
    )
    assert [finish.status for finish in answer.finished] == ["ok", "conflict", "ok", "not_found"]
    assert len(answer.claims) == 1
    assert (await queue.get_job(good.job_id)).job.result == "ok"


async def test_finishes_stand_although_the_claim_they_travel_with_is_refused(queue: Any) -> None:
    await queue.enqueue("q")
    claim = await claim_one(queue, request_id="used")
    answer = await queue.claim("other", request_id="used", finished=[FinishItem.completed(claim)])
    assert answer.error.code == "conflict"
    assert answer.finished[0].status == "ok"
    assert (await queue.get_job(claim.job_id)).job.state == "done"
    with pytest.raises(Conflict):
        await queue.claim("other", request_id="used")


async def test_a_repeated_request_id_opens_nothing_more_and_renews_the_tokens(queue: Any) -> None:
    first = await queue.enqueue("q", 1, request_id="enqueue-1")
    assert (await queue.enqueue("q", 1, request_id="enqueue-1")).id == first.id
    with pytest.raises(Conflict):
        await queue.enqueue("q", 2, request_id="enqueue-1")
    second = await queue.enqueue("q", 2)

    claims = (await queue.claim("q", n=2, request_id="claim-1")).claims
    await queue.complete(claims[1])
    replay = await queue.claim("q", n=2, request_id="claim-1")
    assert replay.replayed
    assert [claim.job_id for claim in replay.claims] == [first.id]
    assert [(gone.job_id, gone.state) for gone in replay.gone] == [(second.id, "done")]
    with pytest.raises(Conflict):
        await queue.complete(claims[0])
    assert (await queue.complete(replay.claims[0])).status == "ok"


async def test_one_job_is_claimed_by_its_id(queue: Any) -> None:
    await queue.enqueue("q", "first")
    wanted = await queue.enqueue("q", "second")
    claim = await queue.claim_job(wanted.id, lease_seconds=30, request_id="r")
    assert claim.job.payload == "second"
    renewed = await queue.claim_job(wanted.id, lease_seconds=30, request_id="r")
    assert renewed.attempt_id == claim.attempt_id
    with pytest.raises(Conflict, match="claimed until"):
        await queue.claim_job(wanted.id)
    with pytest.raises(NotFound):
        await queue.claim_job(10**12)


async def test_many_heartbeats_answer_one_by_one(queue: Any) -> None:
    await queue.enqueue_many([NewJob("q")] * 2)
    one, two = (await queue.claim("q", n=2, lease_seconds=30)).claims
    await queue.complete(two)
    beats = await queue.heartbeat_many([one, two, Lease(10**12, "t")], lease_seconds=900)
    assert [beat.status for beat in beats] == ["ok", "conflict", "not_found"]
    assert beats[0].lease_expires_at - beats[0].server_time > timedelta(seconds=800)


async def test_a_lapsed_lease_is_taken_over_and_its_token_is_worth_nothing(queue: Any, db: Connection) -> None:
    await queue.enqueue("q")
    late = await claim_one(queue)
    await db.execute("update sluicegate.job set lease_expires_at = clock_timestamp() - interval '1 second'")
    taken = await claim_one(queue)
    assert [prior.outcome for prior in taken.prior_attempts] == ["lease_expired"]
    for verb in (queue.complete, queue.release, queue.heartbeat):
        with pytest.raises(Conflict):
            await verb(late)
    with pytest.raises(Conflict):
        await queue.fail(late, "x")
    assert (await queue.complete(taken)).state == "done"


async def test_the_reaper_and_retention_answer_with_what_they_did(queue: Any, db: Connection) -> None:
    await queue.enqueue("q")
    await claim_one(queue)
    await db.execute("update sluicegate.job set lease_expires_at = clock_timestamp() - interval '1 second'")
    assert (await queue.reap()).requeued == 1
    await queue.complete(await claim_one(queue))
    await db.execute("update sluicegate.job set finished_at = clock_timestamp() - interval '31 days'")
    assert (await queue.prune()).jobs == 1


async def test_lists_go_page_by_page_and_stats_count_every_state(queue: Any) -> None:
    await queue.enqueue_many([NewJob("q", index, kind="k" if index < 3 else "") for index in range(7)])
    await queue.enqueue("later", run_at=datetime.now(UTC) + timedelta(days=1))
    page = await queue.list_jobs(queue="q", limit=5)
    rest = await queue.list_jobs(queue="q", limit=5, before_id=page.next_before_id)
    ids = [row.id for row in (*page.jobs, *rest.jobs)]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 7
    assert rest.next_before_id is None
    assert len((await queue.list_jobs(kind="k")).jobs) == 3
    assert (page.jobs[0].class_, page.jobs[0].error) == ("mid", None)
    assert 0 < page.jobs[0].payload_size < 32
    stats = {counts.queue: counts for counts in (await queue.queue_stats()).queues}
    assert (stats["q"].pending, stats["later"].scheduled, stats["later"].due) == (7, 1, 0)


async def test_last_words_that_postgresql_cannot_store_do_not_stop_a_job_from_finishing(queue: Any) -> None:
    await queue.enqueue_many([NewJob("q")] * 3)
    one, two, three = (await queue.claim("q", n=3)).claims
    await queue.complete(one, {"out\0": ["\ud800", float("nan")]}, summary="a\0b")
    await queue.fail(two, "boom \0 \udfff", retry=False, summary="x" * 10_000)
    await queue.release(three, reason="\0" * 70_000)
    assert (await queue.get_job(one.job_id)).job.result == {"out\\u0000": ["\\ud800", "nan"]}
    failed = (await queue.get_job(two.job_id)).job
    assert (failed.state, failed.error) == ("failed", "boom \\u0000 \\udfff")
    assert (await queue.get_job(three.job_id)).job.state == "pending"


async def test_bad_input_names_its_field_and_changes_nothing(queue: Any) -> None:
    for call in (
        queue.enqueue("q", "\0"),
        queue.enqueue("q", run_at=datetime(2030, 1, 1)),  # noqa: DTZ001
        queue.enqueue("q", tags=5),
        queue.enqueue_many([NewJob("q"), NewJob("q", priority=40_000)]),
        queue.enqueue("q", parent_id=10**12),
        queue.claim("q", lease_seconds=86_401),
        queue.claim("q", request_id=""),
    ):
        with pytest.raises(InvalidArgument) as caught:
            await call
        assert caught.value.field in {
            "payload",
            "run_at",
            "tags",
            "jobs[1].priority",
            "parent_id",
            "lease_seconds",
            "request_id",
        }
    assert (await queue.list_jobs()).jobs == ()


async def test_what_other_languages_enqueue_arrives_whatever_it_holds(queue: Any, db: Connection) -> None:
    await db.execute("select sluicegate.enqueue('q', ('[' || repeat('9', 5000) || ', 1e400, \"x\"]')::jsonb)")
    long_number, big, text = (await claim_one(queue)).job.payload
    assert (long_number, big, text) == ("9" * 5000, 10**400, "x")


async def test_unknown_jobs_and_scopes_are_not_found(queue: Any, dsn: str) -> None:
    for call in (queue.get_job(1), queue.retry(1), queue.cancel(1), queue.complete(Lease(1, "t"))):
        with pytest.raises(NotFound):
            await call
    async with Client(dsn, scope="endpoint:nobody") as stranger:
        with pytest.raises(NotFound, match="no scope"):
            await stranger.enqueue("q")


@pytest.mark.parametrize("kind", [Client, SyncClient])
@pytest.mark.parametrize(
    ("field", "value"),
    [("min_size", -1), ("min_size", 5), ("max_size", 0), ("max_size", "4"), ("timeout", float("nan")), ("timeout", -1), ("retries", "no")],
)  # fmt: skip
def test_what_no_client_can_be_made_with_is_refused_by_name(kind: Any, field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        kind("dbname=unused", **{field: value})
    assert refused.value.field == field


async def test_a_client_that_is_not_open_says_so(dsn: str) -> None:
    client = Client(dsn)
    with pytest.raises(Unavailable, match="not open"):
        await client.enqueue("q")
    async with client:
        await client.enqueue("q")
    await client.close()
    with pytest.raises(Unavailable, match="not open"):
        await client.claim("q")
    async with client:
        assert len((await client.claim("q")).claims) == 1


async def test_a_database_without_the_schema_says_what_to_run(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="sluicegate migrate"):
        await Client(empty_dsn).open()
    with pytest.raises(SchemaMismatch, match="sluicegate migrate"):
        SyncClient(empty_dsn).open()


async def test_a_database_that_cannot_be_reached_says_why_and_never_shows_the_password(dsn: str) -> None:
    with pytest.raises(Unavailable, match="Cannot connect") as caught:
        await Client("postgresql://u:hunter2@127.0.0.1:1/db").open()
    assert caught.value.retriable
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Unavailable, match='database "no_such_database" does not exist'):
        SyncClient(f"{dsn}&dbname=no_such_database").open()
    with pytest.raises(InvalidArgument) as refused:
        SyncClient("host=x hunter2").open()
    assert refused.value.field == "dsn"
    assert "hunter2" not in str(refused.value)
