"""``sluicegate migrate``."""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common
from sluicegate.cli.connection import located
from sluicegate.cli.output import Output, count, write
from sluicegate.errors import InvalidArgument

_RANGE = re.compile(r"([0-9]{0,6})(?:\.\.([0-9]{0,6}))?")


def run(
    versions: Annotated[
        str | None,
        Parameter(
            name="FROM..TO", help="With --sql: from the version the database has (0 unless given) to which (the last)."
        ),
    ] = None,
    /,
    *,
    sql: Annotated[bool, Parameter(help="Print the SQL for a DBA instead, and connect to nothing.")] = False,
    pre_only: Annotated[
        bool, Parameter(help="Stop before, and keep, what older versions of the library could not work without.")
    ] = False,
    common: Common = Common(),
) -> None:
    """Bring the schema of a database to what this version needs.

    It is safe to repeat, to run many times at once and to interrupt. The
    role needs CREATE on the database, and nothing else.

    sluicegate migrate --dsn postgresql://owner@db.example.org/jobs
    sluicegate migrate --sql > schema.sql
    """
    output = Output(json=common.json)
    if versions is not None and not sql:
        raise InvalidArgument(
            "A range of versions goes with --sql only.",
            field="versions",
            next_step="Without --sql, migrate goes from the version it finds to the last.",
        )
    if sql:
        text = _script(versions or "")
        if output.json:
            output.answer({"sql": text})
        else:
            write(text, end="")
        return

    from sluicegate.ops.installation import migrate_database

    with located(common) as place:
        report = migrate_database(place.dsn, progress=output.note, pre_only=pre_only)
    changes = [
        *(f"applied {name}" for name in report.applied),
        *([f"replaced {count(len(report.functions), 'function')}"] if report.functions else []),
        *(f"dropped function {name}" for name in report.dropped),
        *(["put the clock back"] if report.clock_restored else []),
        *([f"changed {count(report.grants, 'grant')}"] if report.grants else []),
        *([f"left for later: {name}" for name in report.left]),
        *([f"kept for older libraries: function {name}" for name in report.kept]),
        *(
            [
                f"not created, for want of CREATEROLE: {', '.join(report.missing_roles)}; `sluicegate doctor` has the statements"
            ]
            if report.missing_roles
            else []
        ),
        *([report.note] if report.note else []),
    ]
    output.answer(
        report.to_dict(),
        f"The schema is at version {report.version}{'' if report.changed else '; there was nothing to do'}.",
        *changes,
    )


def _script(wanted: str) -> str:
    from sluicegate.ops.installation import script_for_dba

    found = _RANGE.fullmatch(wanted)
    if found is None:
        raise InvalidArgument(
            f"{wanted!r} is not a range of versions.",
            field="versions",
            next_step="Write --sql alone, or --sql 0..1 for FROM and TO.",
        )
    start, end = found.groups()
    return script_for_dba(int(start or 0), int(end) if end else None)
