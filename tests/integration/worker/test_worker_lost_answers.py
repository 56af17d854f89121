"""Claims that were made and whose answer never came: no job is left to nobody."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from sluicegate import App, Client, NewJob, Worker
from tests.conftest import Connection
from tests.integration.worker.doors import truth
from tests.support.proxy import Loss, Proxy
from tests.support.waiting import eventually_async


class LockingProxy(Proxy):
    """Locks one of the claimed jobs between the commit of a claim, whose answer is lost, and anything that follows."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.other = psycopg.connect(dsn, prepare_threshold=None)

    def lost(self, loss: Loss) -> None:
        self.other.execute("select from sluicegate.job where state = 'claimed' order by id limit 1 for update")
        super().lost(loss)

    def close(self) -> None:
        self.other.close()
        super().close()


@pytest.mark.parametrize("queues", [("a",), ("a", "b")])
async def test_what_the_repetition_cannot_have_yet_is_asked_for_until_it_can(
    client: Client, db: Connection, dsn: str, queues: tuple[str, ...]
) -> None:
    # Or it would wait for the locked job for ten seconds.
    await db.execute("alter function sluicegate.claim(jsonb, text, jsonb, boolean) set lock_timeout = '100ms'")
    app = App({queue: {"rate_per_second": 0.001, "burst": 3} for queue in queues})

    async def do(payload: Any) -> None: ...

    for queue in queues:
        app.handler(queue=queue, kind="")(do)
    made = await client.enqueue_many([NewJob(queue) for queue in queues for _ in range(3)])
    kinds: list[str] = []
    with LockingProxy(dsn) as proxy:
        loss = proxy.lose_reply("sluicegate.claim(")
        async with Client(proxy.dsn) as cut:
            worker = Worker(cut, app, on_event=lambda event: kinds.append(event.kind))
            async with worker:
                await eventually_async(lambda: truth("database_away" in kinds), "the repetition was in vain")
                loss.wait()
                assert worker._slots is not None
                assert worker._slots._permits.total == len(made.jobs), "they are kept for what may have been claimed"
                proxy.other.rollback()
                await eventually_async(lambda: truth(kinds.count("done") == len(made.jobs)), "all are done")
                assert worker._slots._permits.total == 0
                report = await worker.stop()
    assert (report.claimed, report.done, report.lost) == (len(made.jobs), len(made.jobs), 0)
    assert {(await client.get_job(job.id)).job.attempts_total for job in made.jobs} == {1}
