"""Which changes of a policy wake those that wait for its queue: whatever lets something start earlier, and nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.budgets import ask, govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql

NOW = datetime(2026, 6, 10, 12, 10, tzinfo=UTC)
MONTH = window(1, "month")
HOUR = window(1, "hour")


class Ear:
    """Listens as a worker does."""

    def __init__(self, listener: Sql, speaker: Sql) -> None:
        self._listener = listener
        self._speaker = speaker
        listener.do("listen sluicegate_admission")

    def heard(self) -> int:
        """How many notifications there were since the last call."""
        self._speaker.do("notify sluicegate_admission, 'that is all'")
        told: list[str] = []
        for notification in self._listener.connection.notifies(timeout=60):
            if notification.payload == "that is all":
                # Any role may listen, so nothing is told.
                assert set(told) <= {""}
                return len(told)
            told.append(notification.payload)
        raise AssertionError("the last notification never came")


@pytest.fixture
def ear(sql: Sql, another: OpenSql) -> Iterator[Ear]:
    return Ear(another(), sql)


def closed(sql: Sql, *limits: Json, **fields: Any) -> None:
    """A queue whose every limit is used up by one claim, with work waiting."""
    freeze_clock(sql.connection, NOW)
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    govern(sql, "q", *limits, **fields)
    if not fields.get("paused"):
        assert len(ask(sql)["claims"]) == 1
    assert ask(sql)["deferred"]


def patch(sql: Sql, **fields: Any) -> None:
    sql.call("patch_admission_policy", queue="q", patch=fields)


def pause(sql: Sql, day: int | None = None) -> None:
    until = None if day is None else datetime(2026, 7, day, tzinfo=UTC)
    sql.call("pause_queue", queue="q", until=until)


def test_raising_a_used_up_window_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH)
    patch(sql, limits=[window(2, "month")])
    assert ear.heard() == 1
    assert len(ask(sql)["claims"]) == 1


def test_raising_a_full_cap_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, max_in_flight=1)
    patch(sql, max_in_flight=2)
    assert ear.heard() == 1


def test_removing_a_limit_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH, max_in_flight=5)
    patch(sql, limits=[])
    assert ear.heard() == 1


def test_removing_the_limit_that_opens_last_wakes_though_another_one_is_used_up(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH, HOUR)
    patch(sql, limits=[HOUR])
    assert ear.heard() == 1


def test_letting_a_limit_only_count_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH)
    patch(sql, limits=[{**MONTH, "mode": "shadow"}])
    assert ear.heard() == 1


def test_clearing_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH)
    sql.call("clear_admission_policy", queue="q")
    assert ear.heard() == 1


def test_a_reset_wakes(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH)
    sql.call("reset_usage", queue="q")
    assert ear.heard() == 1


@pytest.mark.parametrize("limits", [[], [window(5, "month")]], ids=["nothing but a pause", "a limit beside it"])
def test_resuming_wakes(sql: Sql, ear: Ear, limits: list[Json]) -> None:
    closed(sql, *limits, paused=True, paused_until="2026-07-05T00:00:00Z")
    ear.heard()
    sql.call("resume_queue", queue="q")
    assert ear.heard() == 1


def test_resuming_wakes_also_when_a_window_stays_used_up_because_its_time_is_now_known(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH)
    pause(sql)
    ear.heard()
    sql.call("resume_queue", queue="q")
    assert ear.heard() == 1


def test_ending_a_pause_earlier_wakes_and_later_does_not(sql: Sql, ear: Ear) -> None:
    closed(sql, paused=True, paused_until="2026-07-05T00:00:00Z")
    ear.heard()
    pause(sql, day=9)
    assert ear.heard() == 0
    pause(sql, day=2)
    assert ear.heard() == 1


def test_lowering_and_pausing_wake_nobody(sql: Sql, ear: Ear) -> None:
    closed(sql, MONTH, max_in_flight=1)
    patch(sql, limits=[window(0, "month")])
    patch(sql, limits=[MONTH])
    # Out of 0, which no time ends, comes a time that is known.
    assert ear.heard() == 1
    patch(sql, max_in_flight=0)
    pause(sql)
    patch(sql, limits=[MONTH, HOUR])
    assert ear.heard() == 0


def test_no_change_of_an_open_queue_wakes_anybody(sql: Sql, ear: Ear) -> None:
    sql.enqueue()
    govern(sql, "q", window(5))
    patch(sql, limits=[window(50)], max_in_flight=9)
    patch(sql, limits=[])
    sql.call("clear_admission_policy", queue="q")
    assert ear.heard() == 0


def test_a_change_that_is_rolled_back_wakes_nobody(sql: Sql, ear: Ear, another: OpenSql) -> None:
    closed(sql, MONTH)
    editor = another()
    with editor.transaction():
        patch(editor, limits=[window(2, "month")])
    assert ear.heard() == 0
