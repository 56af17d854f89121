"""How figures are shown: a table for people, one JSON object for programs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table


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


def print_report(facts: dict[str, str], lines: Sequence[Line], columns: Sequence[str], note: str) -> None:
    """``columns`` names the ratios of each line, in their order; ``note`` says what was compared with what."""
    console = Console()
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False)
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("figure")
    for title in ("median", "least", "most"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("unit")
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("goal")
    table.add_column("elsewhere")
    for line in lines:
        ratios = [*(f"{value:.2f}" for value in line.ratios.values()), *("" for _ in columns)][: len(columns)]
        numbers = (line.value, min(line.rounds), max(line.rounds))
        table.add_row(line.name, *map(_number, numbers), line.unit, *ratios, line.goal, line.elsewhere)
    console.print()
    # A pipe has no width: let no figure be cut.
    if not console.is_terminal:
        console = Console(width=190)
    console.print(table)
    console.print()
    console.print(note, highlight=False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def to_json(facts: dict[str, str], lines: Sequence[Line]) -> dict[str, Any]:
    return {
        "facts": facts,
        "figures": [
            {
                "name": line.name,
                "unit": line.unit,
                "value": line.value,
                "rounds": line.rounds,
                "ratios": line.ratios,
                "goal": line.goal or None,
                "elsewhere": line.elsewhere or None,
            }
            for line in lines
        ],
    }
