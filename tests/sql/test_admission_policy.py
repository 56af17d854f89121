"""Policies: what they accept, who may change them, what a change does to what is already used, and its audit."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, check_lanes, fill, gates, govern, opened, used, window
from tests.sql.verbs import Sql, refused

pytestmark = pytest.mark.usefixtures("midweek")

DAY = {"period": "day", "tz": "UTC"}


def _limit(**fields: Any) -> dict[str, Any]:
    return {"limits": [{"max_claims_per_window": 1, "window": {**DAY, **fields}}]}


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({}, "policy"),
        ([], "policy"),
        ({"max_in_flight": -1}, "max_in_flight"),
        ({"max_in_flight": 10_001}, "max_in_flight"),
        ({"max_in_flight": "4"}, "max_in_flight"),
        ({"max_in_flight": 1, "in_flight_mode": "off"}, "in_flight_mode"),
        ({"max_inflight": 1}, "max_inflight"),
        ({"paused": "yes"}, "paused"),
        ({"paused": True, "paused_until": "soon"}, "paused_until"),
        ({"paused": True, "paused_until": "tomorrow"}, "paused_until"),
        ({"paused": True, "paused_until": "infinity"}, "paused_until"),
        ({"paused": True, "paused_until": "01/02/2030"}, "paused_until"),
        ({"paused": True, "paused_until": "2030-01-02 03:04"}, "paused_until"),
        ({"paused": True, "paused_until": 2030}, "paused_until"),
        ({"paused": True, "paused_reason": "x" * 1025}, "paused_reason"),
        ({"paused": True, "paused_reason": ["x"]}, "paused_reason"),
        ({"paused": True, "paused_until": "2020-01-02T03:04:05Z"}, "paused_until"),
        ({"max_in_flight": 1, "paused_until": "2100-01-02T03:04:05Z"}, "paused_until"),
        ({"max_in_flight": 1, "paused": False, "paused_reason": "x"}, "paused_reason"),
        ({"max_in_flight": 1, "mode": "shadow"}, "mode"),
        ({"limits": [window(1)], "mode": "shadow"}, "mode"),
        ({"max_in_flight": 1, "lanes": 65}, "lanes"),
        ({"limits": {}}, "limits"),
        ({"limits": [window(1)] * 17}, "limits"),
        ({"limits": [window(1), window(2)]}, "limits"),
        ({"max_claims_per_window": 1, "window": DAY, "limits": {"max_claims_per_window": 1}}, "limits"),
        ({"max_claims_per_window": 1, "window": DAY, "limits": "none"}, "limits"),
        ({"max_in_flight": 4.5}, "max_in_flight"),
        ({"max_claims_per_window": 1}, "window"),
        ({"window": DAY}, "max_claims_per_window"),
        ({"max_claims_per_window": 1_000_001, "window": DAY}, "max_claims_per_window"),
        ({"max_claims_per_window": 1.5, "window": DAY}, "max_claims_per_window"),
        ({"limits": [window(1, mode="loud")]}, "mode"),
        (_limit(period="year"), "window.period"),
        (_limit(tz="Mars/Olympus"), "window.tz"),
        (_limit(tz=None), "window.tz"),
        (_limit(tz="utc"), "window.tz"),
        (_limit(tz="UTC+8"), "window.tz"),
        (_limit(tz="posix/UTC"), "window.tz"),
        (_limit(tz="right/UTC"), "window.tz"),
        (_limit(tz="localtime"), "window.tz"),
        (_limit(tz="posixrules"), "window.tz"),
        (_limit(tz="Factory"), "window.tz"),
        (_limit(tz=["UTC"]), "window.tz"),
        (_limit(start="24:00"), "window.start"),
        (_limit(start="9:00"), "window.start"),
        (_limit(start=0), "window.start"),
        (_limit(period="hour", start="01:00"), "window.start"),
        (_limit(weekday="Mon"), "window.weekday"),
        (_limit(period="week"), "window.weekday"),
        (_limit(period="week", weekday="Monday"), "window.weekday"),
        (_limit(day=1), "window.day"),
        (_limit(period="month", day=29), "window.day"),
        (_limit(year=1), "window"),
        ({"limits": [window(1), window(1, "hour", tz="nowhere")]}, "limits[1].window.tz"),
        ({"limits": [window(1), 7]}, "limits[1].max_claims_per_window"),
    ],
    ids=str,
)
def test_a_malformed_policy_is_refused_by_its_field_and_the_old_one_stays(sql: Sql, policy: Any, field: str) -> None:
    govern(sql, "q", window(3))
    with refused(sql, "SG001", field):
        sql.call("set_admission_policy", queue="q", policy=policy)


@pytest.mark.parametrize(
    "limit",
    [
        window(0),
        window(1_000_000, "hour", "Asia/Kathmandu", start="00:59"),
        window(1, "week", "America/Los_Angeles", start="23:59", weekday="Sun"),
        window(1, "month", "Australia/Lord_Howe", day=28, start="02:30"),
    ],
    ids=lambda limit: limit["window"]["period"],
)
def test_what_is_shown_can_be_set_again(sql: Sql, limit: dict[str, Any]) -> None:
    govern(sql, "q", limit, max_in_flight=0)
    shown = sql.call("budget_show", queue="q")
    assert shown["limits"][0]["max_claims_per_window"] == limit["max_claims_per_window"]
    again = {name: shown[name] for name in ("max_in_flight", "in_flight_mode", "limits", "paused")}
    sql.call("set_admission_policy", queue="q", policy=again)
    assert sql.call("budget_show", queue="q")["limits"] == shown["limits"]


def test_the_single_form_means_one_limit(sql: Sql) -> None:
    sql.call(
        "set_admission_policy", queue="q", policy={"max_in_flight": None, "max_claims_per_window": 7, "window": DAY}
    )
    (limit,) = sql.call("budget_show", queue="q")["limits"]
    assert (limit["max_claims_per_window"], limit["window"]["start"]) == (7, "00:00")


def test_lowered_below_its_use_it_shows_both_and_cancels_nothing(sql: Sql) -> None:
    govern(sql, "q", window(10), lanes=4)
    sql.enqueue_many({"queue": "q"} for _ in range(20))
    assert sum(len(ask(sql, n=8 - opened(sql))["claims"]) for _ in range(4) if opened(sql) < 8) == 8
    govern(sql, "q", window(5), lanes=4)
    (closed,) = ask(sql)["deferred"][0]["all"]
    assert (closed["used"], closed["limit"]) == (8, 5)
    assert sql.one("select count(*) from sluicegate.job where state = 'claimed'") == 8
    govern(sql, "q", window(10), lanes=2)
    assert len(ask(sql, n=9)["claims"]) == 2
    check_lanes(sql)


@pytest.mark.parametrize("lanes", [1, 5])
def test_a_cap_lowered_below_its_use_is_worked_off_before_anything_starts(sql: Sql, lanes: int) -> None:
    govern(sql, max_in_flight=6, lanes=lanes)
    sql.enqueue_many({"queue": "q"} for _ in range(12))
    held = [claim for _ in range(6) for claim in ask(sql)["claims"]]
    assert len(held) == 6
    govern(sql, max_in_flight=2, lanes=3)
    for number, claim in enumerate(reversed(held), 1):
        sql.complete(claim)
        if number < 5:
            assert ask(sql)["deferred"][0]["reason"] == "in_flight_full"
    assert len(ask(sql, n=9)["claims"]) == 2


def test_a_pause_keeps_the_numbers_and_ends_when_resumed(sql: Sql) -> None:
    govern(sql, "q", window(10))
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    sql.take_one()
    assert sql.call("pause_queue", queue="q", reason="release day")["status"] == "paused"
    (entry,) = sql.claim()["deferred"]
    assert (entry["reason"], entry["next_eligible_at"]) == ("paused", None)
    govern(sql, "q", window(20), opened=False, paused=True)
    assert sql.claim()["deferred"][0]["reason"] == "paused"
    assert sql.call("resume_queue", queue="q")["limits"][0]["max_claims_per_window"] == 20
    sql.take_one()
    assert used(sql) == 2
    with refused(sql, "SG003", "paused"):
        sql.call("resume_queue", queue="q")


def test_a_queue_without_limits_is_paused_and_ungoverned_again(sql: Sql) -> None:
    sql.enqueue()
    sql.call("pause_queue", queue="q")
    assert ask(sql)["deferred"][0]["reason"] == "paused"
    sql.call("resume_queue", queue="q")
    assert sql.take_one()["admission"] is None


@pytest.mark.parametrize("policy", [{"max_in_flight": 0}, {"limits": [window(0)]}], ids=["in flight", "window"])
def test_a_limit_of_nothing_is_a_pause(sql: Sql, policy: dict[str, Any]) -> None:
    sql.enqueue()
    sql.call("set_admission_policy", queue="q", policy=policy)
    (entry,) = ask(sql)["deferred"]
    assert (entry["reason"], entry["next_eligible_at"]) == ("paused", None)


def test_cleared_and_set_again_it_has_used_what_it_had(sql: Sql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    assert len(ask(sql, n=3)["claims"]) == 3
    assert sql.call("clear_admission_policy", queue="q")["status"] == "ungoverned"
    assert sql.take_one()["admission"] is None
    govern(sql, "q", window(5), window(50, "hour"))
    assert (used(sql), used(sql, "hour")) == (4, 4)
    assert len(ask(sql, n=9)["claims"]) == 1
    assert (used(sql), opened(sql)) == (5, 5)


def test_a_window_that_leaves_and_comes_back_has_used_what_it_had(sql: Sql) -> None:
    govern(sql, "q", window(5), window(50, "week", weekday="Mon"))
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    ask(sql, n=2)
    govern(sql, "q", window(50, "week", weekday="Mon"))
    ask(sql, n=2)
    govern(sql, "q", window(5), window(50, "week", weekday="Mon"))
    assert (used(sql), used(sql, "week")) == (4, 4)


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_reset_forgives_and_what_was_charged_stays(sql: Sql, lanes: int) -> None:
    govern(sql, "q", window(2), window(100, "week", weekday="Mon"), lanes=lanes)
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    assert fill(sql) == 2
    assert sql.call("reset_usage", queue="q", period="day", reason="a good day")["status"] == "admitted"
    assert (used(sql), used(sql, "week")) == (0, 2)
    assert fill(sql) == 2
    assert (used(sql), used(sql, "week"), opened(sql)) == (2, 4, 4)
    assert sql.one("select sum(u) from sluicegate.lane l cross join unnest(l.used) u") == 8
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"
    govern(sql, "q", window(3), lanes=5 - lanes)
    assert fill(sql) == 1
    sql.call("reset_usage", queue="q")
    with refused(sql, "SG003", "used"):
        sql.call("reset_usage", queue="q")


def test_a_shadow_limit_counts_and_refuses_nothing(sql: Sql) -> None:
    govern(sql, "q", window(1, mode="shadow"), window(3, "hour"), max_in_flight=1, in_flight_mode="shadow")
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    assert len(ask(sql, n=9)["claims"]) == 3
    shown = gates(sql)
    assert (shown["day"]["used"], shown["day"]["mode"], shown["day"]["closed"]) == (3, "shadow", False)
    assert (shown["in_flight"]["used"], shown["in_flight"]["closed"]) == (3, False)


def test_no_zone_is_looked_up_while_claims_have_to_wait(sql: Sql) -> None:
    # A look takes the database a tenth of a second, for each of up to 16 limits.
    limits = [
        window(5, tz="Asia/Tokyo"),
        window(9, "hour", start="00:30"),
        window(50, "week", weekday="Wed", start="09:00"),
    ]
    govern(sql, "q", *limits)
    before = (
        sql.call("budget_show", queue="q")["limits"],
        sql.rows("select * from sluicegate.budget_window order by id"),
    )
    sql.replace(
        "lock_policy",
        ("lock_lanes(p_queue_id);", "lock_lanes(p_queue_id); perform set_config('test.locked', 'yes', true);"),
    )
    sql.replace(
        "limit_fields",
        (
            "v_origin timestamptz;",
            "v_origin timestamptz; v_free text := 1 / (current_setting('test.locked', true) is distinct from 'yes')::int;",
        ),
    )
    sql.call("pause_queue", queue="q")
    sql.call("resume_queue", queue="q")
    sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 3})
    assert before == (
        sql.call("budget_show", queue="q")["limits"],
        sql.rows("select * from sluicegate.budget_window order by id"),
    )
    sql.call("patch_admission_policy", queue="q", patch={"limits": [limits[0]]})
    sql.call("set_admission_policy", queue="q", policy={"limits": [limits[1]]})
    assert [limit["window"]["period"] for limit in sql.call("budget_show", queue="q")["limits"]] == ["hour"]


def test_the_end_of_a_pause_is_the_same_instant_in_every_session(sql: Sql) -> None:
    sql.do("set timezone = 'Asia/Tokyo'; set datestyle = 'German, DMY'")
    policy = {"max_in_flight": 1, "paused": True, "paused_until": "2090-01-02T03:04:05+01:00"}
    sql.call("set_admission_policy", queue="q", policy=policy)
    sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 2})
    assert sql.one("select paused_until = '2090-01-02 02:04:05Z' from sluicegate.policy")
    sql.call("pause_queue", queue="q", until=datetime(2091, 1, 2, tzinfo=UTC))
    assert sql.one("select paused_until = '2091-01-02Z' from sluicegate.policy")


def test_two_editors_do_not_overwrite_each_other(sql: Sql) -> None:
    first = govern(sql, "q", window(5))["revision"]
    sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 2}, revision=first)
    for verb in ("patch_admission_policy", "set_admission_policy"):
        with refused(sql, "SG003", "revision"):
            sql.call(
                verb, queue="q", revision=first, **{verb.split("_")[0].replace("set", "policy"): {"max_in_flight": 3}}
            )
    with refused(sql, "SG003", "revision"):
        sql.call("clear_admission_policy", queue="q", revision=first)
    shown = sql.call("budget_show", queue="q")
    assert (shown["max_in_flight"], len(shown["limits"])) == (2, 1)


def test_an_editor_of_a_policy_that_was_cleared_does_not_overwrite_the_next_one(sql: Sql) -> None:
    seen = govern(sql, "q", window(5))["revision"]
    sql.call("clear_admission_policy", queue="q", revision=seen)
    again = govern(sql, "q", window(1))["revision"]
    assert again > seen
    sql.do("delete from sluicegate.policy_audit")
    sql.call("clear_admission_policy", queue="q")
    assert govern(sql, "q", window(1))["revision"] == again + 1, "whatever is left of the audit"
    again += 1
    with refused(sql, "SG003", "revision"):
        sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 9}, revision=seen)
    assert (
        sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 9}, revision=again)["max_in_flight"] == 9
    )


def test_a_patch_in_the_single_form_replaces_the_limits(sql: Sql) -> None:
    govern(sql, "q", window(5), window(2, "hour"), max_in_flight=3)
    sql.call("patch_admission_policy", queue="q", patch={"max_claims_per_window": 7, "window": {**DAY}})
    shown = sql.call("budget_show", queue="q")
    assert [limit["max_claims_per_window"] for limit in shown["limits"]] == [7]
    assert shown["max_in_flight"] == 3


def test_a_pause_that_is_over_is_shown_as_none_and_is_in_no_patch_s_way(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 2)
    freeze_clock(sql.connection, datetime(2026, 6, 10, 12, tzinfo=UTC))
    govern(sql, "q", window(5))
    paused = sql.call("pause_queue", queue="q", reason="lunch", until=datetime(2026, 6, 10, 13, tzinfo=UTC))
    assert (paused["status"], paused["paused"], paused["paused_reason"]) == ("paused", True, "lunch")
    # Numbers change, and the pause stays.
    for change in ("set_admission_policy", "patch_admission_policy"):
        name = "policy" if change.startswith("set") else "patch"
        assert sql.call(change, queue="q", **{name: {"limits": [window(4)]}})["paused_until"] is not None
    advance_clock(sql.connection, timedelta(hours=1))
    shown = sql.call("budget_show", queue="q")
    assert (shown["status"], shown["paused"], shown["paused_reason"], shown["paused_until"]) == (
        "admitted", False, None, None,
    )  # fmt: skip
    assert len(ask(sql)["claims"]) == 1
    assert sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 3})["paused"] is False
    for end in (False, None):
        sql.call("pause_queue", queue="q", reason="lunch", until=datetime(2026, 6, 10, 14, tzinfo=UTC))
        assert sql.call("patch_admission_policy", queue="q", patch={"paused": end})["paused"] is False
        again = sql.call("patch_admission_policy", queue="q", patch={"paused": True})
        assert (again["paused_reason"], again["paused_until"]) == (None, None)
    sql.call("pause_queue", queue="q", reason="lunch", until=datetime(2026, 6, 10, 14, tzinfo=UTC))
    told = sql.call("set_admission_policy", queue="q", policy={"limits": [window(4)], "paused_reason": "dinner"})
    assert (told["paused"], told["paused_reason"]) == (True, "dinner")
    assert datetime.fromisoformat(told["paused_until"]) == datetime(2026, 6, 10, 14, tzinfo=UTC)
    advance_clock(sql.connection, timedelta(hours=2))
    assert sql.call("patch_admission_policy", queue="q", patch={"paused": True})["paused_until"] is None


def test_whole_numbers_may_be_written_with_a_point(sql: Sql) -> None:
    policy = {"max_in_flight": 4.0, "lanes": 2.0, "limits": [window(5.0)]}  # type: ignore[arg-type]
    told = sql.call("set_admission_policy", queue="q", policy=policy)
    assert (told["max_in_flight"], told["lanes"], told["limits"][0]["max_claims_per_window"]) == (4, 2, 5)
    assert sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": -0.0})["max_in_flight"] == 0
    assert sql.call("rehearse", queue="q", policy=policy)["claims"] == 0


def test_a_pause_to_the_end_of_the_calendar_is_in_no_session_s_way(sql: Sql) -> None:
    sql.call("pause_queue", queue="q", until="9999-12-31 23:59:59+00")
    sql.do("set timezone = 'Asia/Tokyo'")
    assert sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": 3})["paused"] is True


def test_a_patch_changes_what_it_names_and_null_clears(sql: Sql) -> None:
    govern(sql, "q", window(5), max_in_flight=2)
    sql.call("patch_admission_policy", queue="q", patch={"max_in_flight": None})
    shown = sql.call("budget_show", queue="q")
    assert (shown["max_in_flight"], len(shown["limits"])) == (None, 1)
    with refused(sql, "SG001", "policy"):
        sql.call("patch_admission_policy", queue="q", patch={"limits": []})


def test_the_lanes_asked_for_stay_until_they_are_asked_for_otherwise(sql: Sql) -> None:
    def lanes() -> tuple[int, int | None, int | None]:
        audited = sql.call("budget_audit", queue="q")["audit"][0]["after"]["lanes"]
        return sql.one("select lanes from sluicegate.policy"), sql.call("budget_show", queue="q")["lanes"], audited

    govern(sql, max_in_flight=400, lanes=3)
    assert lanes() == (3, 3, 3)
    for verb, arguments in (
        ("pause_queue", {}),
        ("resume_queue", {}),
        ("patch_admission_policy", {"patch": {"max_in_flight": 300}}),
    ):
        sql.call(verb, queue="q", **arguments)
        assert lanes() == (3, 3, 3)
    sql.call("patch_admission_policy", queue="q", patch={"lanes": None})
    assert lanes() == (9, None, None)
    sql.call("pause_queue", queue="q")
    assert lanes() == (9, None, None)


def test_every_change_is_audited_with_before_after_and_reason(sql: Sql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue()
    sql.take_one()
    sql.call("pause_queue", queue="q", reason="why not")
    sql.call("resume_queue", queue="q")
    sql.call("reset_usage", queue="q", reason="again")
    sql.call("clear_admission_policy", queue="q", reason="enough")
    audit = sql.call("budget_audit", queue="q")["audit"]
    assert [entry["verb"] for entry in audit] == ["clear", "reset", "resume", "pause", "set"]
    assert [entry["reason"] for entry in audit] == ["enough", "again", None, "why not", None]
    assert (audit[4]["before"], audit[0]["after"]) == (None, None)
    assert (audit[3]["before"]["paused"], audit[3]["after"]["paused"]) == (False, True)
    assert all(entry["human"] and entry["database_user"] for entry in audit)
