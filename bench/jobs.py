"""``./dev bench jobs``: claims, finishes and enqueues, each as a ratio to its floor in the same run."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from bench import command, floor
from bench.costs import Costs, costs
from bench.drivers import Clients, available
from bench.floor import FloorClaims, FloorCopy, FloorInserts
from bench.ours import BulkEnqueues, Claims, Enqueues
from bench.report import Line, Rated, Report
from bench.rounds import Rates, ratio
from bench.server import keep_autovacuum_out
from bench.work import Work

CLAIMERS = (1, 8)
BATCHES = (1, 100)
FLOOR1_CLIENTS = 10
COST_BATCHES = (1, 100)

NOTE = """\
÷ floor: a bare table, the same number of clients and the same driver, 100 rows claimed in one transaction and deleted in
the next; for enqueues one insert a transaction, or COPY. ÷ floor1: one row at a time from ten clients. A ratio is the
median of the rounds' ratios. Folded: the finishes travel with the next claim. psycopg calls go through the library's
store, without prepared statements; floors use prepared ones. "elsewhere" is the best seen in other queues on another
noisy machine with 2 CPUs: compare ratios only, and no difference under 2x between two runs."""


@dataclass(frozen=True)
class Compared:
    """A work of ours, the keys of the floors it is measured against, and the goals for the first of those ratios."""

    work: Work
    floors: tuple[str, ...]
    goal: str = ""
    elsewhere: str = ""


def floors(clients: Clients, drivers: Sequence[str]) -> list[Work]:
    found: list[Work] = []
    for driver in drivers:
        found += [FloorClaims(clients, driver, claimers, 100) for claimers in CLAIMERS]
        found += [FloorClaims(clients, driver, FLOOR1_CLIENTS, 1)]
        found += [FloorInserts(clients, driver, 8), FloorCopy(clients, driver)]
    return found


def ours(clients: Clients, drivers: Sequence[str]) -> list[Compared]:
    """Every figure with psycopg through the library's store; those that have a goal with asyncpg too."""
    found: list[Compared] = []
    for driver in drivers:
        for claimers in CLAIMERS:
            for batch in BATCHES:
                for folded in (True, False):
                    best = batch == 100 and folded
                    if driver == "psycopg" or best:
                        against = (
                            f"floor: claim and delete, {claimers} x 100, {driver}",
                            f"floor: claim and delete, {FLOOR1_CLIENTS} x 1, {driver}",
                        )
                        found.append(
                            Compared(
                                Claims(clients, driver, claimers, batch, folded=folded),
                                against,
                                "≥ 0.25, then ≥ 0.5; ≥ 3 ÷ floor1" if best else "",
                                "0.11, 0.09; 0.48 on Node" if best else "",
                            )
                        )
        insert = f"floor: insert, 8 x 1, {driver}"
        found.append(Compared(Enqueues(clients, driver, 8), (insert,), "≥ 0.6", "0.42"))
        if driver == "psycopg":
            found.append(Compared(Enqueues(clients, driver, 8, named=True), (insert,)))
        copy = f"floor: COPY, 1 x {floor.BULK}, {driver}"
        found.append(Compared(BulkEnqueues(clients, driver), (copy,), "≥ 0.4", "0.26"))
    return found


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(floor.TABLE)
    keep_autovacuum_out(dsn)


def lines(compared: Sequence[Compared], rates: dict[str, Rates], left: dict[int, Costs]) -> list[Line]:
    """The report: floors first, then ours with their ratios, then what a job leaves behind."""
    found = [Line(key, "jobs/s", each.rounds) for key, each in rates.items() if key.startswith("floor")]
    for one in compared:
        own = rates[one.work.key]
        against = {key: ratio(own, rates[key]) for key in one.floors}
        found.append(Line(one.work.key, "jobs/s", own.rounds, against, one.goal, one.elsewhere))
    for batch, cost in left.items():
        goal = "≤ 2, then < 1"
        found.append(Line(f"dead rows a job, {batch} a transaction", "rows", [cost.dead_rows], {}, goal, "2.0; 0.0"))
        found.append(Line(f"write-ahead log a job, {batch} a transaction", "bytes", [cost.wal_bytes]))
    return found


def in_turn(compared: Sequence[Compared], known: Sequence[Work]) -> list[Work]:
    """The works of a round: each floor right before the first figure that is measured against it."""
    by_key = {work.key: work for work in known}
    found: dict[str, Work] = {}
    for one in compared:
        for key in one.floors:
            found.setdefault(key, by_key[key])
        found[one.work.key] = one.work
    return list(found.values())


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    drivers = available()
    async with Clients(dsn) as clients:
        compared = [one for one in ours(clients, drivers) if options.only in one.work.key]
        works = in_turn(compared, floors(clients, drivers))
        rates = await command.run_figures(clients, works, options)
    # With the other connections gone: until then they may keep back statistics of what they did.
    async with Clients(dsn) as clients:
        left = {} if options.only else {batch: await costs(clients, batch) for batch in COST_BATCHES}
    return Report([Rated(("÷ floor", "÷ floor1"), lines(compared, rates, left), NOTE)])


def main(arguments: Sequence[str]) -> int:
    return command.run("jobs", __doc__ or "", prepare, measure, arguments)
