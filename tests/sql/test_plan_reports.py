"""What lists and figures read does not grow with the backlog, nor with what has ended, nor with how large payloads are."""

from __future__ import annotations

import pytest

from tests.sql.budgets import govern, window
from tests.sql.reads import Reads, reads
from tests.sql.verbs import Sql
from tests.support.counts import rounds

pytestmark = pytest.mark.both_versions

FEW, MANY = 36_000, rounds(80_000, 300_000)
TIMES = 1.5
STATES = ("scheduled", "pending", "claimed", "done", "failed", "cancelled")
CALLS = {
    "list": "select sluicegate.list_jobs()",
    "list of a kind": "select sluicegate.list_jobs(p_kind => 'rare')",
    "list of a small queue": "select sluicegate.list_jobs('small')",
    "list of a small queue and a state": "select sluicegate.list_jobs('small', 'done')",
    "list of a large queue and a kind": "select sluicegate.list_jobs('large', p_kind => 'rare')",
    **{f"list of {state}": f"select sluicegate.list_jobs(p_state => '{state}')" for state in STATES},
    "list of failed of a kind": "select sluicegate.list_jobs(p_state => 'failed', p_kind => 'rare')",
    "figures": "select sluicegate.queue_stats()",
}
ROWS = """
    insert into sluicegate.job (queue_id, scope_id, state, priority, run_at, created_at, kind, lease_expires_at, finished_at)
    select q.id, q.scope_id, s.state, n % 5, case when s.state = 'scheduled' then now() + interval '1 day' else now() end, now(),
        q.name, case when s.state = 'claimed' then now() + interval '1 day' end,
        case when s.state in ('done', 'failed', 'cancelled') then now() end
    from sluicegate.queue q, generate_series(1, {rows}) n, (values {states}) as s(state) where q.name = '{queue}'
"""


def fill(sql: Sql, queue: str, rows: int, *states: str) -> None:
    values = ", ".join(f"('{state}')" for state in states)
    sql.do(ROWS.format(queue=queue, rows=rows, states=values))


def look(sql: Sql) -> dict[str, Reads]:
    sql.do("vacuum (analyze) sluicegate.job")
    return {name: reads(sql.connection, call) for name, call in CALLS.items()}


def test_reports_read_no_more_however_many_jobs_there_are(sql: Sql) -> None:
    sql.do("alter table sluicegate.job set (autovacuum_enabled = false)")
    for queue in ("small", "large"):
        sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", queue)
    fill(sql, "small", 5, *STATES)
    fill(sql, "large", FEW // 6, *STATES)
    fill(sql, "large", FEW // 2, "done", "scheduled")
    base = look(sql)
    fill(sql, "large", MANY // 6, *STATES)
    fill(sql, "large", MANY // 2, "done", "scheduled")
    seen = look(sql)
    assert {name: (one, base[name]) for name, one in seen.items() if not one.within(base[name], TIMES)} == {}


def test_the_admission_status_of_a_page_costs_what_its_queues_verdicts_cost(sql: Sql) -> None:
    sql.do("alter table sluicegate.job set (autovacuum_enabled = false)")
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), 'large')")
    fill(sql, "large", FEW // 6, *STATES)
    calls = (
        "select sluicegate.list_jobs(p_limit => 200)",
        "select sluicegate.list_jobs('large', 'pending', p_limit => 200)",
    )
    queue_id = sql.one("select id from sluicegate.queue")
    base = {call: reads(sql.connection, call) for call in calls}
    govern(sql, "large", window(1))
    sql.do("vacuum (analyze) sluicegate.job")
    verdict = reads(sql.connection, "select sluicegate.verdict(%s)", queue_id)
    for call in calls:
        seen = reads(sql.connection, call)
        assert seen.pages <= TIMES * base[call].pages + 2 * verdict.pages
        assert seen.rows <= TIMES * base[call].rows + 2 * verdict.rows


def test_a_list_reads_no_payload(sql: Sql) -> None:
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), 'q')")
    call = "select sluicegate.list_jobs(p_limit => 200)"
    sql.enqueue_many([{"queue": "q"}] * 200)
    base = reads(sql.connection, call)
    sql.do("delete from sluicegate.job")
    for _ in range(200):
        # Random digits, so that compression leaves it large.
        sql.do(
            "select sluicegate.enqueue('q', to_jsonb((select string_agg(md5(random()::text), '') from generate_series(1, 1500))))"
        )
    sql.do("vacuum (analyze) sluicegate.job")
    assert sql.one("select avg(pg_column_size(payload)) from sluicegate.job") > 30_000
    assert reads(sql.connection, call).within(base, TIMES)
