"""The same by Sluicegate's own calls: through the library's store with psycopg, or the bare SQL function with asyncpg."""

import json
from typing import Any

from bench.drivers import Clients, Psycopg, Session
from bench.floor import BULK
from bench.work import RanDry, Step, Work
from sluicegate.ops.wakes import Wakes

QUEUE = "bench"
_SCOPE = "endpoint:default"
_TABLES = """sluicegate.job, sluicegate.attempt, sluicegate.attempt_end, sluicegate.late_call, sluicegate.request,
    sluicegate.policy, sluicegate.policy_limit, sluicegate.budget_window, sluicegate.lane, sluicegate.usage,
    sluicegate.refusal"""
FILL = """
    insert into sluicegate.job (queue_id, scope_id, state, run_at, payload, created_at)
    select q.id, q.scope_id, 'pending', t.now - interval '1 hour' + n * interval '1 us', jsonb_build_object('n', n), t.now
    from sluicegate.queue q cross join (select clock_timestamp() as now) t cross join generate_series(1, $1::integer) n
    where q.name = 'bench'
"""
_QUEUE = "select sluicegate.queue_id(sluicegate.scope_id(null), 'bench')"
_CLAIM = "select sluicegate.claim($1::text::jsonb, $2, $3::text::jsonb)::text"
_ENQUEUE = "select sluicegate.enqueue($1, $2::text::jsonb)::text"
_ENQUEUE_MANY = "select sluicegate.enqueue_many($1::text::jsonb)::text"

Answer = dict[str, Any]


async def claim(session: Session, request: str, finished: str) -> Answer:
    """One claim call: through the store where the session has one."""
    answer: Answer
    if isinstance(session, Psycopg):
        answer = await session.store.claim({"requests": request, "worker": "bench", "finished": finished})
    else:
        answer = json.loads(await session.value(_CLAIM, request, "bench", finished))
    return answer


async def empty_tables(session: Session, depth: int) -> None:
    """Start from nothing but ``depth`` pending jobs, with statistics as autovacuum would have made them."""
    await session.run(f"truncate {_TABLES}")
    await session.run(_QUEUE)
    await session.run("update sluicegate.queue set governed = false where governed")
    if depth:
        await session.run(FILL, depth)
        await session.run("analyze sluicegate.job")


class Claims(Work):
    """Jobs claimed and completed. Folded: the finishes travel with the next claim, one transaction a batch, not two."""

    def __init__(self, clients: Clients, driver: str, number: int, batch: int, *, folded: bool) -> None:
        super().__init__(f"claim and complete, {'folded' if folded else 'separate'}", clients, driver, number, batch)
        self._folded = folded
        self._request = json.dumps([{"queues": [QUEUE], "n": batch}])

    async def fill(self, session: Session, depth: int) -> None:
        await empty_tables(session, depth)

    def step(self, session: Session) -> Step:
        return self._folded_step(session) if self._folded else self._separate_step(session)

    def _folded_step(self, session: Session) -> Step:
        finished = "[]"

        async def step() -> int:
            nonlocal finished
            answer = await claim(session, self._request, finished)
            finished = json.dumps(completed(answer))
            return done(answer)

        return step

    def _separate_step(self, session: Session) -> Step:
        async def step() -> int:
            items = completed(await claim(session, self._request, "[]"))
            if self.per_step == 1 and items and isinstance(session, Psycopg):
                item = items[0]
                await session.store.complete(
                    {
                        "job_id": item["job_id"],
                        "lease_token": item["lease_token"],
                        "result": None,
                        "summary": None,
                        "scope": _SCOPE,
                    }
                )
                return 1
            return done(await claim(session, "[]", json.dumps(items))) if items else 0

        return step


def completed(answer: Answer) -> list[dict[str, Any]]:
    """The finishes of everything that was claimed. Raises RanDry when the queue is empty."""
    response = answer["responses"][0]
    # An answer that is deferred is empty too: at a full cap, a client waits for its peers' finishes.
    if response["empty"] and not response["deferred"]:
        raise RanDry
    return [
        {"job_id": claim["job"]["id"], "lease_token": claim["lease_token"], "outcome": "completed"}
        for claim in response["claims"]
    ]


def done(answer: Answer) -> int:
    """How many finishes were accepted; any other answer means that the bench is wrong."""
    finished = answer["finished"]
    assert all(item["status"] == "ok" for item in finished), finished[:3]
    return len(finished)


class Enqueues(Work):
    """One job a call, the payload encoded by the client; with a request id each if ``named``, as the client sends it."""

    def __init__(self, clients: Clients, driver: str, number: int, *, named: bool = False) -> None:
        super().__init__("enqueue with a request id" if named else "enqueue", clients, driver, number, 1)
        self._named = named
        self._calls = 0

    async def fill(self, session: Session, depth: int) -> None:  # noqa: ARG002  # needs no jobs beforehand
        await empty_tables(session, 0)

    def step(self, session: Session) -> Step:
        return self._stored(session) if isinstance(session, Psycopg) else self._plain(session)

    def _stored(self, session: Psycopg) -> Step:
        arguments: dict[str, Any] = dict.fromkeys(("priority", "run_at", "dedup_key", "parent_id", "backoff"))
        arguments |= {"queue": QUEUE, "kind": "", "title": "", "tags": [], "max_attempts": 5, "scope": _SCOPE}
        made = Wakes()

        async def step() -> int:
            self._calls += 1
            name = f"{self._calls}" if self._named else None
            # As a client decides whether to tell workers of it.
            call = made.call(_SCOPE, (QUEUE,))
            await session.store.enqueue({**arguments, "payload": '{"n": 1}', "request_id": name, "wake": call.wake})
            made.done(call, (QUEUE,))
            return 1

        return step

    def _plain(self, session: Session) -> Step:
        async def step() -> int:
            await session.value(_ENQUEUE, QUEUE, '{"n": 1}')
            return 1

        return step


class BulkEnqueues(Work):
    """10,000 jobs a call, encoded by the client."""

    def __init__(self, clients: Clients, driver: str) -> None:
        super().__init__("enqueue_many", clients, driver, 1, BULK)

    async def fill(self, session: Session, depth: int) -> None:  # noqa: ARG002  # needs no jobs beforehand
        await empty_tables(session, 0)

    def step(self, session: Session) -> Step:
        async def step() -> int:
            jobs = json.dumps([{"queue": QUEUE, "payload": {"n": n}} for n in range(BULK)])
            if isinstance(session, Psycopg):
                await session.store.enqueue_many({"jobs": jobs, "request_id": None, "scope": _SCOPE})
            else:
                await session.value(_ENQUEUE_MANY, jobs)
            return BULK

        return step
