"""``./dev bench admission``: what a policy costs a claim, as a ratio to the same work on a queue without one."""

import argparse
import json
from collections.abc import Sequence

from bench import command
from bench.drivers import Clients, Session
from bench.ours import QUEUE, Claims
from bench.report import Line, Rated, Report
from bench.rounds import Rates, ratio
from bench.server import keep_autovacuum_out

CLAIMERS = (1, 8, 32)
BATCHES = (1, 10, 100)
# The goals of the design, by claimers and batch.
GOALS = {(8, 1): "≥ 0.90", (32, 1): "≥ 0.75", (8, 10): "≥ 0.95"}
ELSEWHERE = {(8, 1): "0.75-0.88", (32, 1): "0.65-0.76", (8, 10): "0.95-1.01"}
# Limits that no run reaches: what is measured is the price of being governed, not of being refused.
POLICY = {
    "max_in_flight": 1_000,
    "limits": [
        {"max_claims_per_window": 1_000_000, "window": {"period": "day", "tz": "America/Los_Angeles"}},
        {"max_claims_per_window": 100_000, "window": {"period": "hour", "tz": "UTC"}},
    ],
}
NOTE = """\
÷ without: the same calls on the same queue without a policy, in the same round. Policy: 1,000,000 a day, 100,000 an hour,
1,000 in flight. Folded: the finishes travel with the next claim, as workers send them; separate: a transaction each.
All calls go through the library's store with psycopg. On two CPUs that the clients share, a ratio is one of CPU time."""


class GovernedClaims(Claims):
    """The same claims under the policy."""

    async def fill(self, session: Session, depth: int) -> None:
        await super().fill(session, depth)
        await session.run("select sluicegate.set_admission_policy($1, $2::text::jsonb)", QUEUE, json.dumps(POLICY))
        # Opens the lanes: the runs are to find them as every claim but the first does.
        claimed = await session.value(
            "select sluicegate.claim($1::text::jsonb)::text", json.dumps([{"queues": [QUEUE], "n": 1}])
        )
        assert json.loads(claimed)["responses"][0]["claims"], claimed


def pairs(clients: Clients) -> list[tuple[Claims, GovernedClaims, str, str]]:
    """Each figure without and with the policy, with its goal and the best seen before."""
    found = []
    for folded in (True, False):
        for claimers in CLAIMERS:
            for batch in BATCHES:
                at = (claimers, batch)
                if folded or at in GOALS:
                    without = Claims(clients, "psycopg", claimers, batch, folded=folded)
                    governed = GovernedClaims(clients, "psycopg", claimers, batch, folded=folded)
                    without.key = f"without a policy: {without.key}"
                    found.append((without, governed, GOALS.get(at, ""), ELSEWHERE.get(at, "")))
    return found


def lines(compared: Sequence[tuple[Claims, GovernedClaims, str, str]], rates: dict[str, Rates]) -> list[Line]:
    found = []
    for without, governed, goal, elsewhere in compared:
        own, other = rates[governed.key], rates[without.key]
        found.append(Line(without.key, "jobs/s", other.rounds))
        found.append(Line(governed.key, "jobs/s", own.rounds, {without.key: ratio(own, other)}, goal, elsewhere))
    return found


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    async with Clients(dsn) as clients:
        compared = [pair for pair in pairs(clients) if options.only in pair[1].key]
        works = [work for without, governed, _, _ in compared for work in (without, governed)]
        rates = await command.run_figures(clients, works, options)
    return Report([Rated(("÷ without",), lines(compared, rates), NOTE)])


def main(arguments: Sequence[str]) -> int:
    return command.run("admission", __doc__ or "", keep_autovacuum_out, measure, arguments)
