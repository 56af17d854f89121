"""What prune reads depends on what it deletes, not on what stays."""

from __future__ import annotations

import pytest

from tests.sql.reads import Reads, reads
from tests.sql.verbs import Sql
from tests.support.counts import rounds

pytestmark = pytest.mark.both_versions

FEW, MANY = 1_000, rounds(20_000, 200_000)
OLD = 50
TIMES = 3.0
# Jobs that ended a minute apart, the newest now, and what else is kept for long; none of it is old enough to go.
ENDED = """
    insert into sluicegate.job (queue_id, scope_id, state, run_at, created_at, finished_at)
    select q.id, q.scope_id, (array['done', 'done', 'failed', 'cancelled'])[n %% 4 + 1], now(), now(), now() - n * interval '0.1 s'
    from sluicegate.queue q, generate_series(%s::int, %s::int) n where q.name = 'q'
"""
KEPT = """
    with n as materialized (select n from generate_series(%s::int, %s::int) n),
    counts as (insert into sluicegate.attempt_count select 1, now() - n * interval '10 s', 1 from n),
    late as (
        insert into sluicegate.late_call (job_id, token_hash, verb, first_at, last_at)
        select n, '', 'completed', now(), now() - n * interval '1 s' from n
    ), use as (
        insert into sluicegate.usage (window_id, starts, lane, queue_id, ends, used)
        select 1, now() - n * interval '1 minute', 0, 1, now() - n * interval '1 minute', 1 from n
    ), refused as (insert into sluicegate.refusal select 1, 'paused', now() - n * interval '1 minute', 1 from n),
    asked as (
        insert into sluicegate.request select 1, n::text, 'claim', '', 'null', now() - n * interval '0.1 s' from n
    ), ends as (
        insert into sluicegate.attempt_end (attempt_id, job_id, ended_at, outcome, disposition)
        select n, n, now(), 'completed', 'done' from n
    )
    insert into sluicegate.attempt (id, job_id, queue_id, seq, attempt, opened_at) select n, n, 1, 1, 1, now() from n
"""
AGED = f"""
    update sluicegate.job set finished_at = finished_at - interval '100 days'
    where id = any(array(select id from sluicegate.job order by id limit {OLD}))
"""


def grow(sql: Sql, first: int, last: int) -> None:
    for statement in (ENDED, KEPT):
        sql.do(statement, first, last)
    # What was deleted in between and rolled back leaves nothing.
    sql.do("vacuum (analyze, index_cleanup on)")


def look(sql: Sql) -> dict[str, Reads]:
    """What prune reads when there is nothing to do, when jobs are too old, and when there are too many."""
    surplus = sql.one("select count(*) from sluicegate.job") - OLD
    return {
        "nothing": reads(sql.connection, "select sluicegate.prune(p_keep_jobs => %s)", 10**6),
        "old": reads(sql.connection, "select sluicegate.prune(p_keep_jobs => %s)", 10**6, before=AGED),
        "many": reads(sql.connection, "select sluicegate.prune(p_keep_jobs => %s, p_limit => %s)", 500, 100),
        "surplus": reads(sql.connection, "select sluicegate.prune(p_keep_jobs => %s)", surplus),
    }


def test_prune_reads_no_more_however_much_stays(sql: Sql) -> None:
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), 'q')")
    for table in ("job", "attempt", "attempt_end", "usage"):
        sql.do(f"alter table sluicegate.{table} set (autovacuum_enabled = false)")
    grow(sql, 1, FEW)
    look(sql)
    base = look(sql)
    grow(sql, FEW + 1, MANY)
    seen = look(sql)
    assert seen["many"].within(base["many"], TIMES), (seen, base)
    # To know how many there are, each ended job is counted once, in the index, up to the number to keep.
    for one in ("nothing", "old", "surplus"):
        assert seen[one].rows <= TIMES * base[one].rows + MANY, (one, seen, base)
        assert seen[one].pages <= TIMES * base[one].pages + MANY / 50, (one, seen, base)
