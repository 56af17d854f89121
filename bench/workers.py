"""``./dev bench workers``: what whole worker processes do, as ratios to bare tables in the same run."""

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg

from bench import beside, capped, command, floor
from bench.beside import Drain
from bench.capped import CappedFloor
from bench.drivers import Clients, Psycopg, available
from bench.fleet import FleetRate, Member, fleet
from bench.floor import FloorClaims
from bench.member import Duty
from bench.ours import QUEUE, empty_tables
from bench.report import Delays, Line, Part, Rated, Report, at_least
from bench.rounds import Rates, ratio
from bench.server import another, keep_autovacuum_out
from bench.starts import start_latency
from bench.wake_cost import listener, on_and_off
from bench.wakes import CAUSES, Stage, woken
from bench.work import Figure
from sluicegate import Client

MEMBERS = 4
CAP = 4
SLOTS = (50, 200)
JOB_SECONDS = 0.02
POSSIBLE = CAP / JOB_SECONDS
ENQUEUERS = 8
FLOOR1_CLIENTS = 10

NO_OP_NOTE = """\
÷ floor: a bare table, one client, 100 rows claimed in one transaction and deleted in the next; ÷ floor1: one row at a time
from ten clients; both with psycopg, which the workers use, then with asyncpg. Goals are ÷ psycopg's. Workers are processes
of their own with async handlers that do nothing, and no limits."""
CAP_NOTE = """\
÷ floor: a bare table whose gate row is locked, its running rows counted, and as many claimed as there is room for, in the
transaction that deletes what was done: from four clients, or in one call of a function. A no-op lets the others run once
before it ends. The share of the possible is the median of the rounds. At most so many at once: by the handlers' stamps."""
BESIDE_NOTE = "÷ without: the same drain, by the same process, in a database without them, in the same round."
START_NOTE = (
    "From before the call that enqueues to the first line of the handler, one worker that waits, its poll at 1 s."
)
WAKE_NOTE = """\
From before the call that makes the job possible (boundary: from the end of a pause) to the first line of the handler. The
worker's poll is 60 s, but after it had something to do it looks some more times by itself, so a figure above 100 ms can be
its own look. The call and its commit are part of it; the slowest call of all tries stands by itself as well."""
COST_NOTE = """\
÷ off: the same calls while the function that wakes does nothing, in the same round; one connection listens."""


@dataclass(frozen=True)
class Place:
    """What the parts measure with."""

    dsn: str
    options: argparse.Namespace
    clients: Clients
    client: Client
    session: Psycopg
    members: Sequence[Member]

    async def rates(self, figures: Sequence[Figure], *, times: int = 1) -> dict[str, Rates]:
        """``times`` as many rounds as usual, for what differs by little."""
        options = argparse.Namespace(**{**vars(self.options), "rounds": self.options.rounds * times})
        return await command.run_figures(self.clients, figures, options)


@dataclass(frozen=True)
class Found:
    """What one part came to."""

    part: Part | None
    faults: tuple[str, ...] = ()


async def no_op(place: Place) -> Found:
    """One worker process, and two, against the bare table."""
    floors = {
        driver: (
            FloorClaims(place.clients, driver, 1, 100),
            FloorClaims(place.clients, driver, FLOOR1_CLIENTS, 1),
        )
        for driver in available()
    }

    async def fill(depth: int) -> None:
        await empty_tables(place.session, depth)

    ours = [
        FleetRate(
            f"no-op jobs, {processes} worker process{'es' if processes > 1 else ''} of {slots} slots",
            place.members[:processes],
            Duty(queue=QUEUE, slots=slots),
            fill,
        )
        for processes in (1, 2)
        for slots in SLOTS
    ]
    known = [each for pair in floors.values() for each in pair]
    # The floor that the goals are about runs next to the workers.
    rates = await place.rates([*reversed(known), *ours])
    lines = [Line(each.key, "jobs/s", rates[each.key].rounds) for each in known]
    for one in ours:
        against = {each.key: ratio(rates[one.key], rates[each.key]) for each in known}
        first, second = list(against.values())[:2]
        goal = f"{at_least(first, 0.25, 0.5)}; floor1 {at_least(second, 3)}"
        lines.append(Line(one.key, "jobs/s", rates[one.key].rounds, against, goal, "0.11, 0.09; 0.48 on Node"))
    columns = ["÷ floor", "÷ floor1", "÷ asyncpg's", "floor1"][: 2 * len(floors)]
    return Found(Rated(columns, lines, NO_OP_NOTE))


async def cap(place: Place) -> Found:
    """A cap over four worker processes, against a bare table under the same cap."""
    floors = [
        CappedFloor("capped floor: statements", place.clients, driver, MEMBERS, CAP, capped.statements)
        for driver in available()
    ]
    floors.append(CappedFloor("capped floor: one call", place.clients, "psycopg", MEMBERS, CAP, capped.one_call))

    async def fill(depth: int) -> None:
        await empty_tables(place.session, depth)
        await place.client.set_policy(QUEUE, {"max_in_flight": CAP})

    no_ops, naps = (
        FleetRate(
            f"{name} under a cap of {CAP}, {MEMBERS} worker processes",
            place.members,
            Duty(queue=QUEUE, pause=pause),
            fill,
            guess=guess,
            least_seconds=least,
        )
        for name, pause, guess, least in (
            ("no-op jobs", 0.0, 2_000, 0.0),
            (f"{JOB_SECONDS * 1000:g} ms jobs", JOB_SECONDS, POSSIBLE, 3.0),
        )
    )
    rates = await place.rates([*reversed(floors), no_ops, naps])
    lines = [Line(each.key, "jobs/s", rates[each.key].rounds) for each in floors]
    against = {each.key: ratio(rates[no_ops.key], rates[each.key]) for each in floors}
    goal = at_least(next(iter(against.values())), 0.8)
    lines.append(Line(no_ops.key, "jobs/s", rates[no_ops.key].rounds, against, goal, "0.04, 0.045"))
    shares = [100 * rate / POSSIBLE for rate in rates[naps.key].rounds]
    share = Line(f"{naps.key}: of the possible {POSSIBLE:g}/s", "%", shares)
    lines.append(Line(share.name, "%", shares, {}, at_least(share.value, 90), "54"))
    lines += [Line(f"{each.key}: most at once", "jobs", [each.most], {}, f"≤ {CAP}") for each in (no_ops, naps)]
    faults = tuple(
        f"{each.key}: {each.most} ran at once, and no more than {CAP} may."
        for each in (no_ops, naps)
        if each.most > CAP
    )
    columns = [*(f"÷ floor, {driver}" for driver in available()), "÷ in one call"]
    return Found(Rated(columns, lines, CAP_NOTE), faults)


async def future(place: Place) -> Found:
    """A drain beside many jobs for later, against one without."""
    number = place.options.future
    with another(place.dsn) as dsn:
        keep_autovacuum_out(dsn)
        command.progress(f"scheduling {number:,} jobs for tomorrow")
        async with Clients(dsn) as clients, fleet(dsn, 1) as members:
            without = Drain("drain by 1 worker process", await beside.schedule(place.clients, 0), place.members[:1])
            crowded = Drain(
                f"drain by 1 worker process, {number:,} future jobs beside it",
                await beside.schedule(clients, number),
                members,
            )
            rates = await place.rates([without, crowded])
    own, other = rates[crowded.key], rates[without.key]
    against = ratio(own, other)
    lines = [
        Line(without.key, "jobs/s", other.rounds),
        Line(crowded.key, "jobs/s", own.rounds, {without.key: against}, at_least(against, 0.9), "0.01, 0.48, 0.82"),
    ]
    return Found(Rated(("÷ without",), lines, BESIDE_NOTE))


async def start(place: Place) -> Found:
    """How long a waiting worker takes to start what is enqueued."""
    command.progress("start latency")
    delay = await start_latency(place.client, place.session, place.members[0], place.options.latency_seconds)
    return Found(Delays([delay], START_NOTE))


async def wakes(place: Place) -> Found:
    """How long a waiting worker takes to notice each cause."""
    stage = Stage(place.client, place.session, place.members[0])
    delays = [await woken(stage, cause, place.options.tries, command.progress) for cause in CAUSES]
    return Found(Delays(delays, WAKE_NOTE))


async def wake_cost(place: Place) -> Found:
    """What it costs whoever enqueues that workers are woken."""
    both = await on_and_off(place.clients, ENQUEUERS)
    if both is None:
        return Found(None)
    async with listener(place.dsn):
        rates = await place.rates(both, times=3)
    on, off = (rates[each.key] for each in both)
    against = ratio(on, off)
    lines = [
        Line(both[1].key, "jobs/s", off.rounds),
        Line(both[0].key, "jobs/s", on.rounds, {both[1].key: against}, at_least(against, 0.9)),
    ]
    return Found(Rated(("÷ off",), lines, COST_NOTE))


PARTS = {"no-op": no_op, "cap": cap, "future": future, "start": start, "wakes": wakes, "wake-cost": wake_cost}


def more(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(seconds=1.5)
    parser.epilog = f"--only chooses among the parts {', '.join(PARTS)}."
    parser.add_argument(
        "--future", type=int, default=1_000_000, help="how many jobs lie beside a drain (default: %(default)d)"
    )
    parser.add_argument(
        "--latency-seconds", type=float, default=10.0, help="how long start latency is measured (default: %(default)g)"
    )
    parser.add_argument(
        "--tries", type=int, default=30, help="how often each cause wakes a worker (default: %(default)d)"
    )


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(floor.TABLE)
        connection.execute(capped.TABLE)
    keep_autovacuum_out(dsn)


@asynccontextmanager
async def placed(dsn: str, options: argparse.Namespace) -> AsyncIterator[Place]:
    async with Clients(dsn) as clients, Client(dsn) as client, fleet(dsn, MEMBERS) as members:
        (session,) = await clients.get("psycopg", 1)
        assert isinstance(session, Psycopg)
        yield Place(dsn, options, clients, client, session, members)


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    parts: list[Part] = []
    faults: list[str] = []
    async with placed(dsn, options) as place:
        for name, part in PARTS.items():
            if options.only in name:
                found = await part(place)
                parts += [] if found.part is None else [found.part]
                faults += found.faults
    return Report(parts, faults)


def main(arguments: Sequence[str]) -> int:
    return command.run("workers", __doc__ or "", prepare, measure, arguments, more)
