"""How figures are shown: tables for people, one JSON object for programs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table


class Part(Protocol):
    """Figures that belong into one table. ``note`` says what was compared with what."""

    note: str

    def table(self) -> Table: ...

    def to_json(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Report:
    """What a measurement found. ``faults`` are what must never be: with one of them it fails."""

    parts: Sequence[Part]
    faults: Sequence[str] = ()


@dataclass(frozen=True)
class Line:
    """One figure: its value in each round, and its ratio to each floor by the floor's key."""

    name: str
    unit: str
    rounds: list[float]
    ratios: dict[str, float] = field(default_factory=dict)
    goal: str = ""
    elsewhere: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)


@dataclass
class Rated:
    """Lines whose ratios are to the same floors: ``columns`` names them, in the order of the lines' own."""

    columns: Sequence[str]
    lines: Sequence[Line]
    note: str = ""

    def table(self) -> Table:
        table = _table("figure", ("median", "least", "most"), ("unit",), self.columns, ("goal", "elsewhere"))
        for line in self.lines:
            ratios = [*(f"{value:.2f}" for value in line.ratios.values()), *("" for _ in self.columns)]
            numbers = (line.value, min(line.rounds), max(line.rounds))
            row = (*map(_number, numbers), line.unit, *ratios[: len(self.columns)], line.goal, line.elsewhere)
            table.add_row(line.name, *row)
        return table

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": line.name,
                "unit": line.unit,
                "value": line.value,
                "rounds": line.rounds,
                "ratios": line.ratios,
                "goal": line.goal or None,
                "elsewhere": line.elsewhere or None,
            }
            for line in self.lines
        ]


@dataclass(frozen=True)
class Delay:
    """How long something took, in ms a try; infinite where it did not come while anybody waited.

    ``calls``: of it, the calls that it began with.
    """

    name: str
    samples: Sequence[float]
    goals: dict[int, float]
    elsewhere: str = ""
    calls: Sequence[float] = ()

    def percentile(self, percent: int) -> float:
        """The least sample that so many percent of them do not exceed."""
        return sorted(self.samples)[max(0, math.ceil(len(self.samples) * percent / 100) - 1)]

    @property
    def missed(self) -> int:
        return sum(map(math.isinf, self.samples))

    @property
    def goal(self) -> str:
        return "; ".join(f"p{at} {at_most(self.percentile(at), most, 'ms')}" for at, most in self.goals.items())


@dataclass
class Delays:
    """Delays, with what one in two and one in a hundred took."""

    lines: Sequence[Delay]
    note: str = ""

    def table(self) -> Table:
        counted = ("not woken", "slowest call")
        table = _table("figure", ("tries", "p50", "p99", "most"), ("unit",), counted, ("goal", "elsewhere"))
        for line in self.lines:
            numbers = (line.percentile(50), line.percentile(99), max(line.samples))
            told = [_number(number) if math.isfinite(number) else "not woken" for number in numbers]
            rare = str(line.missed or ""), _number(max(line.calls)) if line.calls else ""
            table.add_row(line.name, str(len(line.samples)), *told, "ms", *rare, line.goal, line.elsewhere)
        return table

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": line.name,
                "unit": "ms",
                "p50": _finite(line.percentile(50)),
                "p99": _finite(line.percentile(99)),
                "samples": [_finite(sample) for sample in line.samples],
                "not_woken": line.missed,
                "calls": list(line.calls) or None,
                "goal": line.goal,
                "elsewhere": line.elsewhere or None,
            }
            for line in self.lines
        ]


def at_least(value: float, *goals: float) -> str:
    """The goals for a value, each with its verdict; the later ones are further."""
    return ", then ".join(f"≥ {goal:g} {'met' if value >= goal else 'not met'}" for goal in goals)


def at_most(value: float, goal: float, unit: str) -> str:
    return f"≤ {goal:g} {unit} {'met' if value <= goal else 'not met'}"


def print_report(facts: dict[str, str], parts: Sequence[Part]) -> None:
    console = Console()
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False)
    # A pipe has no width: let no figure be cut.
    if not console.is_terminal:
        console = Console(width=190)
    for part in parts:
        console.print()
        console.print(part.table())
        console.print()
        console.print(part.note, highlight=False)


def to_json(facts: dict[str, str], report: Report) -> dict[str, Any]:
    figures = [figure for part in report.parts for figure in part.to_json()]
    return {"facts": facts, "figures": figures, "faults": list(report.faults)}


def _table(first: str, *others: Sequence[str]) -> Table:
    """Columns of text and of numbers in turn, beginning with text."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(first)
    for number, titles in enumerate(others):
        for title in titles:
            if number % 2:
                table.add_column(title)
            else:
                table.add_column(title, justify="right", no_wrap=True)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
