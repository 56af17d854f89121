"""Retention of what budgets leave behind: it ends what is old, and never shortens what is current."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sluicegate.testing import advance_clock, set_clock
from tests.sql.budgets import gates, govern, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, in_background, wait_blocked

# A month of 31 days begins.
NEW_YEAR = datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC)


def work(sql: Sql, count: int = 1) -> None:
    """Claim and complete so many jobs."""
    for _ in range(count):
        sql.enqueue()
        assert sql.complete(sql.take_one())["status"] == "ok"


def pruned(sql: Sql, **arguments: int) -> Json:
    """What went, without what was nothing."""
    return {kind: rows for kind, rows in sql.call("prune", **arguments).items() if rows}


def unaccounted(sql: Sql) -> list[Json]:
    """Windows on record whose charge is not the number of attempts opened in them, pruned ones included."""
    return sql.rows(
        """
        select u.* from (
            select u.queue_id, u.starts, u.ends, sum(u.used) as used from sluicegate.usage u group by 1, 2, 3
        ) u
        where u.used <> (
                select count(*) from sluicegate.attempt a
                where a.queue_id = u.queue_id and a.opened_at >= u.starts and a.opened_at < u.ends
            ) + (
                select coalesce(sum(c.attempts), 0) from sluicegate.attempt_count c
                where c.queue_id = u.queue_id and c.minute >= u.starts and c.minute < u.ends
            )
        """
    )


@pytest.mark.parametrize("period", ["hour", "day", "week", "month"])
def test_use_goes_400_days_after_its_window_with_what_was_forgiven_and_can_be_checked_till_then(
    sql: Sql, dsn: str, period: str
) -> None:
    set_clock(dsn, NEW_YEAR)
    fields = {"weekday": "Fri"} if period == "week" else {}
    govern(sql, "q", window(100, period, **fields), lanes=2)
    work(sql, 5)
    sql.call("reset_usage", queue="q")
    (ends,) = (datetime.fromisoformat(gate["until"]) for gate in gates(sql).values())
    set_clock(dsn, ends + timedelta(minutes=1))
    work(sql, 3)
    # The lane that was not charged again archives its window when it is next looked at.
    sql.call("patch_admission_policy", queue="q", patch={"lanes": 1})
    assert (sql.one("select sum(used) from sluicegate.usage"), used(sql, period)) == (5, 3)
    set_clock(dsn, ends + timedelta(days=400) - timedelta(minutes=1))
    assert pruned(sql) == {"jobs": 8, "attempts": 8, "audit": 3}
    assert unaccounted(sql) == []
    assert sql.one("select sum(amount) from sluicegate.forgiven") == 5
    set_clock(dsn, ends + timedelta(days=400, minutes=1))
    gone = pruned(sql)
    assert (gone.pop("usage") > 0, gone.pop("forgiven"), gone) == (True, 1, {})
    set_clock(dsn, ends + timedelta(days=433))
    assert pruned(sql)["attempt_counts"] > 0
    assert gates(sql)[period]["limit"] == 100


def test_what_is_forgiven_stays_while_an_idle_lane_has_not_archived_its_window(sql: Sql, dsn: str) -> None:
    set_clock(dsn, NEW_YEAR)
    govern(sql, "q", window(100), lanes=1)
    work(sql)
    sql.call("reset_usage", queue="q")
    set_clock(dsn, NEW_YEAR + timedelta(days=420))
    assert pruned(sql) == {"jobs": 1, "attempts": 1, "audit": 2}
    (shown,) = sql.call("budget_show", queue="q")["windows"]
    assert (shown["charged"], shown["forgiven"]) == (1, 1)
    work(sql)
    assert pruned(sql) == {"usage": 1, "forgiven": 1}


def test_the_least_that_may_be_kept_shortens_no_current_window(sql: Sql, dsn: str) -> None:
    set_clock(dsn, NEW_YEAR)
    govern(sql, "q", window(10, "month"))
    work(sql, 4)
    set_clock(dsn, NEW_YEAR + timedelta(days=30, hours=23))
    assert pruned(sql, job_days=0, keep_jobs=0, attempt_days=32) == {"jobs": 4}
    sql.call("clear_admission_policy", queue="q")
    assert pruned(sql, job_days=0, keep_jobs=0, attempt_days=32) == {}
    govern(sql, "q", window(10, "month"))
    assert used(sql, "month") == 4
    assert unaccounted(sql) == []


def test_refusals_and_the_audit_are_kept_a_year_and_no_role_shortens_it(sql: Sql, dsn: str, another: OpenSql) -> None:
    set_clock(dsn, NEW_YEAR)
    govern(sql, "q", window(0))
    sql.enqueue()
    assert sql.claim()["deferred"]
    sql.call("pause_queue", queue="q")
    assert sql.claim()["deferred"]
    kept = [sql.one(f"select count(*) from sluicegate.{table}") for table in ("refusal", "policy_audit")]
    assert kept[1] == 2
    worker = another()
    worker.do("set role sluicegate_worker")
    set_clock(dsn, NEW_YEAR + timedelta(days=364))
    assert pruned(worker) == {}
    assert "policy_audit" not in worker.one("select string_agg(p.proname, ' ') from pg_proc p"
        " where p.pronamespace = 'sluicegate'::regnamespace and has_function_privilege(p.oid, 'execute')")  # fmt: skip
    advance_clock(dsn, timedelta(days=2))
    assert pruned(worker, limit=1) == {"refusals": 1, "audit": 1}
    pruned(worker)
    assert [sql.one(f"select count(*) from sluicegate.{table}") for table in ("refusal", "policy_audit")] == [0, 0]


def test_only_windows_that_nothing_names_any_more_go(sql: Sql, dsn: str) -> None:
    set_clock(dsn, NEW_YEAR)

    def periods() -> list[str]:
        return [row["period"] for row in sql.rows("select period from sluicegate.budget_window order by id")]

    govern(sql, "q", window(5, "hour"), window(5, "day"))
    govern(sql, "other", window(5, "week", weekday="Mon"))
    assert pruned(sql) == {}
    govern(sql, "q", window(5, "day"))
    assert pruned(sql) == {"windows": 1}
    assert periods() == ["day", "week"]
    work(sql)
    govern(sql, "q", window(5, "month"))
    sql.call("clear_admission_policy", queue="other")
    assert pruned(sql) == {"windows": 1}
    assert periods() == ["day", "month"], "the day's use is on record"
    # Named again, it goes on with its use.
    govern(sql, "q", window(5, "day"), window(5, "month"))
    assert (used(sql, "day"), pruned(sql)) == (1, {})
    govern(sql, "q", window(5, "month"))
    set_clock(dsn, NEW_YEAR + timedelta(days=402))
    gone = pruned(sql)
    assert (gone["usage"], gone["windows"]) == (1, 1)
    assert periods() == ["month"]


def test_a_window_is_not_taken_from_under_whoever_is_naming_it_again(sql: Sql, another: OpenSql) -> None:
    govern(sql, "q", window(5, "hour"), window(7, "day"))
    govern(sql, "q", window(5, "hour"))
    both = {"limits": [window(5, "hour"), window(7, "day")]}
    editor, pruner = another(), another()
    with editor.transaction():
        editor.call("set_admission_policy", queue="q", policy=both)
        assert pruned(pruner) == {}
        editor.commit()
    assert set(gates(sql)) == {"hour", "day"}

    govern(sql, "q", window(5, "hour"))
    with pruner.transaction():
        assert pruned(pruner) == {"windows": 1}
        naming = in_background(lambda: editor.call("set_admission_policy", queue="q", policy=both))
        wait_blocked(sql, editor.pid, by=pruner.pid)
        pruner.commit()
    naming.result(30)
    assert {period: gate["limit"] for period, gate in gates(sql).items()} == {"hour": 5, "day": 7}
