"""What the commands about budgets share: whose queue it is, the limits to set, and the policy that they come to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, limit
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate.model import QueueAdmission

PERIODS = ("hour", "day", "week", "month")
_START = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

QueueName = Annotated[str, Parameter(name="QUEUE", help="The name of the queue.")]
Reason = Annotated[str | None, Parameter(help="Why, for the audit; up to 1,024 bytes.")]
Revision = Annotated[
    int | None,
    limit("revision", "Only if the policy is still at this revision, as show tells; 0: only if there is none.", "N"),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Whose:
    """Whose queue it is, shorter than --scope."""

    endpoint: Annotated[
        str | None, Parameter(help="The queue of this endpoint: SLUG or SLUG@OWNER. Else --scope decides.")
    ] = None
    team: Annotated[str | None, Parameter(help="The queue of this team: SLUG.")] = None

    @property
    def options(self) -> list[str]:
        """As they were given."""
        return [
            word
            for option, slug in (("--endpoint", self.endpoint), ("--team", self.team))
            if slug is not None
            for word in (option, slug)
        ]

    def within(self, common: Common) -> Common:
        """The common options with the scope that was meant. Raises InvalidArgument if two were named."""
        named = [
            f"{kind}:{slug}" for kind, slug in (("endpoint", self.endpoint), ("team", self.team)) if slug is not None
        ]
        if not named:
            return common
        if len(named) > 1 or common.scope not in (None, *named):
            raise InvalidArgument(
                "The queue was given two owners.",
                field="scope",
                next_step="Name one of --endpoint, --team and --scope.",
            )
        return replace(common, scope=named[0])


@Parameter(name="*")
@dataclass(frozen=True)
class Limits:
    """The limits that a policy is to have. What is not named stays as it is."""

    per_hour: Annotated[
        int | str | None, limit("max_claims_per_window", "At most so many claims an hour.", option="--per-hour")
    ] = None
    per_day: Annotated[
        int | str | None, limit("max_claims_per_window", "At most so many claims a day.", option="--per-day")
    ] = None
    per_week: Annotated[
        int | str | None, limit("max_claims_per_window", "At most so many claims a week.", option="--per-week")
    ] = None
    per_month: Annotated[
        int | str | None, limit("max_claims_per_window", "At most so many claims a month.", option="--per-month")
    ] = None
    tz: Annotated[
        str | None,
        Parameter(
            help="The zone of the windows, e.g. America/Los_Angeles; else that of the other limits, else the owner's, else UTC."
        ),
    ] = None
    start: Annotated[
        str | None,
        Parameter(help="When a window starts, HH:MM; for an hour 00:MM. 00:00 unless given.", metavar="HH:MM"),
    ] = None
    weekday: Annotated[
        str | None, Parameter(help="The day a week starts on, Mon to Sun; Mon unless given.", metavar="DAY")
    ] = None
    day: Annotated[
        int | str | None,
        limit("window.day", "The day a month starts on: 1 to 28, 1 unless given.", "N", option="--day"),
    ] = None
    max_in_flight: Annotated[
        int | str | None, limit("max_in_flight", "At most so many claimed at once.", option="--max-in-flight")
    ] = None
    shadow: Annotated[
        bool,
        Parameter(
            help="Let the limits named here only count, or all if none is named: they refuse nothing, and show tells what they would have refused."
        ),
    ] = False
    enforce: Annotated[
        bool, Parameter(help="Enforce the limits named here, or all if none is named; a new limit is enforced anyway.")
    ] = False

    def patch(self, now: QueueAdmission | None) -> dict[str, Any]:
        """The fields of a policy to change, given what it is now. Raises InvalidArgument if nothing was named."""
        patch: dict[str, Any] = {}
        mode = self._mode()
        if self.max_in_flight == "none":
            patch |= {"max_in_flight": None, "in_flight_mode": "enforce"}
        elif self.max_in_flight is not None:
            patch["max_in_flight"] = self.max_in_flight
        if mode is not None and (
            self.max_in_flight not in (None, "none")
            or (self._names_none and now is not None and now.max_in_flight is not None)
        ):
            patch["in_flight_mode"] = mode
        limits = self._limits([] if now is None else [one.to_dict() for one in now.limits])
        if limits is not None:
            patch["limits"] = limits
        if mode is not None and not patch:
            raise InvalidArgument(
                f"--{mode} has no limit to apply to.",
                field="mode",
                next_step="Name the limit with it: --per-hour, --per-day, --per-week, --per-month or --max-in-flight.",
            )
        if not patch:
            raise InvalidArgument(
                "No limit was named.",
                field="policy",
                next_step="Name one of --per-hour, --per-day, --per-week, --per-month and --max-in-flight.",
            )
        return patch

    def moved(self, found: QueueAdmission) -> list[str]:
        """What an option that named no limit has changed of all there are, a line each."""
        if any(getattr(self, f"per_{period}") is not None for period in PERIODS) or (self.tz, self.start) == (
            None,
            None,
        ):
            return []
        which = ", ".join(f"per {one.window.period}" for one in found.limits)
        what = " and ".join(
            text
            for text in (
                f"the zone {self.tz}" if self.tz is not None else None,
                f"the start {self.start}" if self.start is not None else None,
            )
            if text
        )
        return [f"  {what} now holds for every limit it fits ({which}); a window that is another now counts anew"]

    @property
    def _names_none(self) -> bool:
        """Whether no limit is named, so that what is said is said of all there are."""
        return self.max_in_flight is None and all(getattr(self, f"per_{period}") is None for period in PERIODS)

    def _mode(self) -> str | None:
        if self.shadow and self.enforce:
            raise InvalidArgument(
                "A limit either only counts or is enforced.",
                field="mode",
                next_step="Name one of --shadow and --enforce; set the other limits in a second command.",
            )
        return "shadow" if self.shadow else "enforce" if self.enforce else None

    def _limits(self, now: Sequence[Mapping[str, Any]]) -> list[Any] | None:
        named = {period: getattr(self, f"per_{period}") for period in PERIODS}
        shapes = (self.tz, self.start, self.weekday, self.day)
        wanted = {period for period, number in named.items() if number is not None}
        mode = {} if self._mode() is None else {"mode": self._mode()}
        kept = [one for one in now if one["window"]["period"] not in wanted]
        if not wanted:
            # Only the windows change, or only the mode: those of every limit there is.
            of_all = mode if self._names_none else {}
            if shapes == (None,) * 4 and not (of_all and kept):
                return None
            hours_only = all(one["window"]["period"] == "hour" for one in kept)
            return self._all_have_a_use([self._shaped(one, alone=hours_only) | of_all for one in kept])
        # None is left out, and then the owner's zone is meant.
        zone = next((one["window"]["tz"] for one in now), None)
        new = []
        for period in PERIODS:
            number = named[period]
            if number is None or number == "none":
                continue
            alike = [one for one in now if one["window"]["period"] == period]
            if len(alike) > 1:
                raise InvalidArgument(
                    f"The queue has {len(alike)} limits a {period}, and --per-{period} would make them one.",
                    field="limits",
                    next_step=f"Change them from Python or in SQL, or take them away first: --per-{period} none.",
                )
            before = alike[0] if alike else None
            window = {"period": period, "tz": zone, "weekday": "Mon" if period == "week" else None}
            one = dict(before or {"window": window}) | {"max_claims_per_window": number}
            new.append(self._shaped(one, alone=len(wanted) == 1) | mode)
        self._all_have_a_use(new)
        return [*kept, *new]

    def _shaped(self, one: Mapping[str, Any], *, alone: bool) -> dict[str, Any]:
        window = {key: value for key, value in one["window"].items() if value is not None}
        period = window["period"]
        if self.tz is not None:
            window["tz"] = self.tz
        # One start serves a day, a week and a month; an hour knows its minute only, and keeps its own beside them.
        if self.start is not None and (alone or period != "hour" or self.start.startswith("00:")):
            window["start"] = self.start
        if self.weekday is not None and period == "week":
            window["weekday"] = self.weekday[:3].title() if self.weekday[:3].title() in _DAYS else self.weekday
        if self.day is not None and period == "month":
            window["day"] = self.day
        return {**one, "window": window}

    def _all_have_a_use(self, limits: list[Any]) -> list[Any]:
        """Refuse an option that shapes no window: it was meant to do something."""
        if self.start is not None and not _START.fullmatch(self.start):
            raise InvalidArgument(
                f"--start is {self.start!r}, which is no time of day.",
                field="window.start",
                next_step="Use HH:MM, 00:00 to 23:59; for an hour 00:00 to 00:59.",
            )
        periods = {one["window"]["period"] for one in limits}
        for option, given, fitting in (
            ("--weekday", self.weekday, {"week"}),
            ("--day", self.day, {"month"}),
            ("--tz", self.tz, set(PERIODS)),
            ("--start", self.start, set(PERIODS)),
        ):
            if given is not None and not periods & fitting:
                raise InvalidArgument(
                    f"{option} has no window to shape.",
                    field=f"window.{option[2:]}",
                    next_step="Name the limit it belongs to: "
                    + ", ".join(f"--per-{period}" for period in PERIODS if period in fitting)
                    + ".",
                )
        return limits
