"""What every measurement has in common: its options, its database, its rounds, and how it prints."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from bench.drivers import Clients, available
from bench.report import Report, print_report, to_json
from bench.rounds import Rates
from bench.rounds import run as run_rounds
from bench.server import database
from bench.work import Figure

Prepare = Callable[[str], None]
Measure = Callable[[str, argparse.Namespace], Awaitable[Report]]
More = Callable[[argparse.ArgumentParser], None]


def run(
    name: str,
    sentence: str,
    prepare: Prepare,
    measure: Measure,
    arguments: Sequence[str],
    more: More | None = None,
) -> int:
    """Run ``./dev bench NAME``: a fresh database, ``prepare`` and ``measure`` on its DSN, then the tables or JSON.

    ``more`` adds options of its own. Answers 1 if something was found that must never be.
    """
    options = parse(name, sentence, arguments, more)
    started = time.monotonic()

    async def measured(dsn: str) -> Report:
        return await measure(dsn, options)

    with database(options.dsn) as place:
        prepare(place.dsn)
        report = asyncio.run(measured(place.dsn))
    progress("")
    facts = {
        **place.facts,
        "drivers": ", ".join(available()),
        "rounds": f"{options.rounds} of {options.seconds:g} s a figure, taking turns",
        "took": f"{time.monotonic() - started:.0f} s",
    }
    if options.json:
        print(json.dumps(to_json(facts, report), indent=1))
    else:
        print_report(facts, report.parts)
    for fault in report.faults:
        print(f"failed: {fault}", file=sys.stderr)
    return 1 if report.faults else 0


async def run_figures(clients: Clients, figures: Sequence[Figure], options: argparse.Namespace) -> dict[str, Rates]:
    """The rates of ``figures`` by key, a checkpoint before each round."""
    (admin,) = await clients.get("psycopg", 1)

    async def checkpoint() -> None:
        await admin.run("checkpoint")

    return await run_rounds(
        figures, rounds=options.rounds, seconds=options.seconds, before=checkpoint, progress=progress
    )


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:78]}", end="", file=sys.stderr, flush=True)


def parse(name: str, sentence: str, arguments: Sequence[str], more: More | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"./dev bench {name}", description=sentence)
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="length of one run of one figure (default: %(default)g)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each figure runs (default: %(default)d)")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only figures whose name holds TEXT, and what they are measured against",
    )
    parser.add_argument(
        "--dsn", help="a server to make a database on (default: a private PostgreSQL, removed afterwards)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    if more is not None:
        more(parser)
    options = parser.parse_args(arguments)
    if options.seconds <= 0 or options.rounds < 1:
        parser.error("--seconds must be above 0 and --rounds at least 1")
    return options
