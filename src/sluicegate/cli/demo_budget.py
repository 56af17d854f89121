"""The part of the demonstration that is about budgets: a few jobs under a small one, the rest when it is raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluicegate.cli.admission_views import opens, sentence, why
from sluicegate.cli.output import count
from sluicegate.errors import Forbidden

if TYPE_CHECKING:
    from datetime import datetime

    from sluicegate import Client

PER_HOUR, AT_ONCE = 10, 2
# What it is raised to leaves room for every job, and for those that are tried again.
_RAISED = 1_000


@dataclass(frozen=True)
class HeldBack:
    """What a budget of so many an hour and at once came to: how many were charged to it, and how many waited and why."""

    per_hour: int
    at_once: int
    charged: int
    deferred: int
    reason: str | None
    next_eligible_at: datetime | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "per_hour": self.per_hour,
            "at_once": self.at_once,
            "charged": self.charged,
            "deferred": self.deferred,
            "reason": self.reason,
            "next_eligible_at": None if self.next_eligible_at is None else self.next_eligible_at.isoformat(),
        }


async def run_under_a_budget(
    client: Client,
    queue: str,
    jobs: int,
    processes: int,
    run: Callable[[], Awaitable[None]],
    say: Callable[[str], None],
) -> HeldBack | None:
    """Let ``run`` take what a small budget admits, tell what it holds back, and raise it so that all ``jobs`` may run.

    None where the role may not set budgets; then nothing is held back.
    """
    # The hour begins at this minute, so that none ends while the demonstration runs.
    window = {"period": "hour", "tz": "UTC", "start": f"00:{(await client.server_time()).minute:02}"}

    def policy(per_hour: int, at_once: int) -> dict[str, Any]:
        return {"max_in_flight": at_once, "limits": [{"max_claims_per_window": per_hour, "window": window}]}

    try:
        say(sentence(await client.set_policy(queue, policy(PER_HOUR, AT_ONCE), reason="the demonstration")))
    except Forbidden as error:
        say(f"No budget is shown: {error.message}")
        return None
    await run()
    (found,) = (await client.admission_status(queue)).queues
    verdict = found.verdict
    held = HeldBack(
        per_hour=PER_HOUR,
        at_once=AT_ONCE,
        charged=next(gate.used or 0 for gate in found.gates if gate.gate == "window"),
        deferred=found.pending or 0,
        reason=None if verdict is None else verdict.reason,
        next_eligible_at=None if verdict is None else verdict.next_eligible_at,
    )
    if verdict is not None and verdict.state == "deferred":
        until = opens(verdict.next_eligible_at, verdict.reason, exact=verdict.exact)
        waiting = f"{count(held.deferred, 'job')} {'is' if held.deferred == 1 else 'are'} deferred"
        say(f"{held.charged} have started; {waiting}: {why(held.reason)} ({held.reason}), {until}.")
    raised = await client.patch_policy(queue, policy(max(_RAISED, 2 * jobs), processes), reason="the rest may run now")
    say(f"Now it is raised, and the rest runs: {sentence(raised).partition(': ')[2]}")
    return held
