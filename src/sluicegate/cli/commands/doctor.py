"""``sluicegate doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.arguments import Common
from sluicegate.cli.connection import located
from sluicegate.cli.output import Output

if TYPE_CHECKING:
    from sluicegate.ops.doctor import Check


def run(*, common: Common = Common()) -> int:
    """Look at an installation, and say what is wrong and what to do.

    Versions, the schema, the clock, zone data, isolation, old snapshots,
    policies that cannot open or be evaluated, privileges, and who can read
    the DSN. It changes nothing; only the private PostgreSQL is started, and
    given its schema, as by any command. The exit status is 1 if anything
    has failed; a warning alone is 0.

    sluicegate doctor
    """
    from sluicegate.ops.doctor import diagnose
    from sluicegate.ops.installation import circumstances

    with located(common) as place:
        diagnosis = diagnose(circumstances(place.dsn, place.settings, place.attachment))
    lines = [line for check in diagnosis.checks for line in _lines(check)]
    Output(json=common.json).answer(diagnosis.to_dict(), *lines)
    return 1 if diagnosis.status == "fail" else 0


def _lines(check: Check) -> list[str]:
    lines = [f"{check.status:<4}  {check.name:<12} {check.found}"]
    if check.status != "ok":
        lines.append(f"{'':19}Why it matters: {check.why}")
    if check.next_step is not None:
        lines.append(f"{'':19}What to do: {check.next_step}")
    lines.extend(f"{'':21}{line}" for statement in check.statements for line in statement.splitlines())
    return lines
