"""How long it takes from an enqueue to the start of its handler, at a steady rate that leaves the worker idle in between."""

import asyncio
import time

from bench.drivers import Session
from bench.fleet import Member
from bench.member import Duty
from bench.ours import QUEUE, empty_tables
from bench.report import Delay
from sluicegate import Client

RATE = 50
GOALS = {50: 5.0, 99: 10.0}
ELSEWHERE = "3-5 / 6-9 ms"
# Jobs at the start that are not counted, and how long the last ones are waited for, in seconds.
_WARM_UP = RATE // 2
_PATIENCE = 3.0


async def start_latency(client: Client, session: Session, member: Member, seconds: float) -> Delay:
    """From before the call that enqueues to the first line of the handler, each call at its own time."""
    await empty_tables(session, 0)
    member.begin(Duty(queue=QUEUE))
    number = _WARM_UP + int(seconds * RATE)
    sent: dict[int, int] = {}

    async def send(n: int) -> None:
        sent[n] = time.monotonic_ns()
        await client.enqueue(QUEUE, {"n": n})

    began = time.monotonic()
    calls = []
    for n in range(number):
        await asyncio.sleep(began + n / RATE - time.monotonic())
        calls.append(asyncio.create_task(send(n)))
    await asyncio.gather(*calls)
    await asyncio.sleep(_PATIENCE)
    started = {n: at for at, _, n in (await member.end()).stamps}
    samples = [(started[n] - sent[n]) / 1e6 if n in started else float("inf") for n in range(_WARM_UP, number)]
    return Delay(f"enqueue to handler start at {RATE} jobs/s", samples, GOALS, ELSEWHERE)
