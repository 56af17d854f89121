"""Worker processes as a bench sees them: started once, sent to work and called back, and what their handlers stamped."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.member import Duty
from bench.work import Figure

_ROOT = Path(__file__).resolve().parents[1]
# A line holds the stamps of a whole run.
_LONGEST_LINE = 1 << 28
_PATIENCE = 60.0
# What a run leaves out at its start: the first plans, the first claims.
_LEAD = 0.2
_NS = 1_000_000_000


@dataclass(frozen=True)
class Stint:
    """What one process did: of each job when its handler began and ended, in ns, and the job's number."""

    stamps: list[tuple[int, int, int]]


class Member:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._begun: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, dsn: str, name: str) -> Member:
        """A process whose client is open."""
        # Anybody may read the arguments of a process, and a DSN may hold a password.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.member", name,
            cwd=_ROOT, env={**os.environ, "SLUICEGATE_DSN": dsn}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE, start_new_session=True,
        )  # fmt: skip
        member = cls(process)
        await member._answer()
        return member

    def begin(self, duty: Duty) -> None:
        """Start a worker."""
        self._tell(json.dumps(asdict(duty)))

    async def end(self) -> Stint:
        """Stop it; what it did."""
        self._tell("")
        return await self.ended()

    async def ended(self) -> Stint:
        """Wait until it has drained; what it did."""
        answer = await self._answer()
        report = answer["report"]
        lost = {name: report[name] for name in ("failed", "cancelled", "lost") if report[name]}
        if lost:
            raise RuntimeError(f"A worker reported {lost}; every job was to be done.")
        return Stint([(began, ended, n) for began, ended, n in answer["stamps"]])

    async def began(self, n: int, seconds: float) -> int | None:
        """When the handler of job ``n`` began, in ns; None if it has not within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    number, began = await self._begun.get()
                    if number == n:
                        return began
        return None

    async def close(self) -> None:
        """End the process: softly, else by force."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def _answer(self) -> dict[str, Any]:
        async with asyncio.timeout(_PATIENCE):
            answer = await self._answers.get()
        if answer is None:
            raise RuntimeError("A worker process has ended; what it said is above.")
        return answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            if "began" in answer:
                self._begun.put_nowait((answer["n"], answer["began"]))
            else:
                self._answers.put_nowait(answer)
        self._answers.put_nowait(None)


@asynccontextmanager
async def fleet(dsn: str, number: int) -> AsyncIterator[list[Member]]:
    """So many worker processes."""
    members: list[Member] = []
    try:
        for count in range(number):
            members.append(await Member.start(dsn, f"bench-{count + 1}"))  # noqa: PERF401 - those that did start are ended
        yield members
    finally:
        for member in members:
            await member.close()


class FleetRate(Figure):
    """Jobs/s that all of ``members`` do together, by the stamps of their handlers; ``most`` is how many ever ran at once.

    ``fill`` prepares that many jobs. Of a run that lasts the first moments do not count; one that drains is counted whole.
    """

    def __init__(
        self,
        key: str,
        members: Sequence[Member],
        duty: Duty,
        fill: Callable[[int], Awaitable[object]],
        *,
        guess: float = 3_000,
        least_seconds: float = 0.0,
    ) -> None:
        self.key = key
        self.guess = guess
        self.most = 0
        self._members = members
        self._duty = duty
        self._fill = fill
        self._least_seconds = least_seconds

    async def rate(self, seconds: float, guess: float) -> float:
        seconds = max(seconds, self._least_seconds)
        if self._duty.drain:
            await self._fill(int(guess * seconds))
            for member in self._members:
                member.begin(self._duty)
            stints = [await member.ended() for member in self._members]
            return self._judge(stints, lead=0.0, seconds=float("inf"))
        await self._fill(int(guess * (seconds + 3 * _LEAD) * 1.6))
        for member in self._members:
            member.begin(self._duty)
        await asyncio.sleep(seconds + 2 * _LEAD)
        stints = await asyncio.gather(*(member.end() for member in self._members))
        return self._judge(stints, lead=_LEAD, seconds=seconds)

    def _judge(self, stints: Sequence[Stint], *, lead: float, seconds: float) -> float:
        self.most = max(self.most, most_at_once(stints))
        ends = sorted(end for stint in stints for _, end, _ in stint.stamps)
        if not ends:
            return 0.0
        since = ends[0] + lead * _NS
        until = min(since + seconds * _NS, ends[-1])
        return sum(since < end <= until for end in ends) / max((until - since) / _NS, 1e-9)


def most_at_once(stints: Sequence[Stint]) -> int:
    """How many handlers ran at the same time, over all processes."""
    # At one instant, whoever ends goes first.
    events = sorted(event for stint in stints for began, end, _ in stint.stamps for event in ((began, 1), (end, -1)))
    most = running = 0
    for _, step in events:
        running += step
        most = max(most, running)
    return most
