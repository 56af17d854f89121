"""The statements inside the verbs: which plans they get, and that these stay the same while the tables grow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.errors import Diagnostic

from tests.sql.reads import Reads, reads
from tests.sql.verbs import Sql, completed, failed, lease, released
from tests.support.counts import rounds

pytestmark = pytest.mark.both_versions

Json = dict[str, Any]

GROWN = rounds(10_000, 200_000)
LARGE = ("job", "attempt", "attempt_end", "late_call", "request")
ROWS = """
    insert into sluicegate.job (queue_id, scope_id, state, priority, run_at, dedup_key, attempt, attempts_total, attempt_id,
        created_at, lease_expires_at, lease_token_hash, finished_at)
    select q.id, q.scope_id, s.state, 10, now() + s.due + n * interval '1 ms', s.state || n, 1, 1,
        nextval('sluicegate.attempt_id_seq'), now(), s.lease, case when s.state = 'claimed' then sha256(n::text::bytea) end,
        s.ended
    from sluicegate.queue q cross join generate_series({first}, {last}) n
    cross join (values
        ('pending', interval '-1 day', null::timestamptz, null::timestamptz), ('scheduled', interval '1 day', null, null),
        ('claimed', interval '-1 day', now() + interval '1 day', null), ('done', interval '-1 day', null, now())
    ) as s(state, due, lease, ended)
    where q.name = 'grown'
"""
LEDGER = """
    with opened as (
        insert into sluicegate.attempt (id, job_id, queue_id, seq, attempt, opened_at)
        select j.attempt_id, j.id, j.queue_id, 1, 1, now() from sluicegate.job j where j.attempt_id is not null
        on conflict do nothing
        returning id, job_id
    )
    insert into sluicegate.attempt_end (attempt_id, job_id, ended_at, outcome, disposition, lease_token_hash)
    select o.id, o.job_id, now(), 'completed', 'done', sha256(o.id::text::bytea) from opened o on conflict do nothing
"""


class Life:
    """Calls of every verb that works on jobs, on one connection, each with what it needs prepared beforehand."""

    def __init__(self, sql: Sql) -> None:
        self.sql = sql
        self.queue = "grown"

    def calls(self) -> dict[str, tuple[str, tuple[Any, ...]]]:
        """A statement and its values for each verb; those who need one get a claim of their own."""
        one, two, three, four, five, six, seven, eight, *many = self.sql.take(self.queue, n=20)
        old = self.sql.take(self.queue, n=1)[0]
        assert self.sql.complete(old)["status"] == "ok"
        dead = self.sql.take(self.queue, n=1)[0]
        assert self.sql.fail(dead, retry=False)["status"] == "ok"
        finishes = [completed(many[0]), failed(many[1]), released(many[2]), {**completed(old), "outcome": "failed"}]
        beats = [lease(claim) for claim in many[3:]]
        keyed = [{"queue": self.queue, "dedup_key": f"pending{n}"} for n in range(1, 6)] + [{"queue": self.queue}] * 5
        return {
            "claim": ("select sluicegate.claim(%s::jsonb)", (self.request(5),)),
            "claim of two queues": ("select sluicegate.claim(%s::jsonb)", (self.request(5, "other"),)),
            "claim with finishes": (
                "select sluicegate.claim(%s::jsonb, 'w', %s::jsonb)",
                (self.request(5), json.dumps(finishes)),
            ),
            "claim again": ("select sluicegate.claim(%s::jsonb)", (self.request(5, request_id="again"),)),
            "claim_job": ("select sluicegate.claim_job(%s)", (self.pending(),)),
            "complete": ("select sluicegate.complete(%s, %s)", held(one)),
            "fail": ("select sluicegate.fail(%s, %s, 'boom')", held(two)),
            "release": ("select sluicegate.release(%s, %s)", held(three)),
            "complete with an old token": ("select sluicegate.complete(%s, %s)", held(old)),
            "fail with an old token": ("select sluicegate.fail(%s, %s, 'boom')", held(old)),
            "heartbeat": ("select sluicegate.heartbeat(%s, %s)", held(four)),
            "heartbeat with an old token": ("select sluicegate.heartbeat(%s, %s)", held(old)),
            "heartbeat_many": ("select sluicegate.heartbeat_many(%s::jsonb)", (json.dumps(beats),)),
            "cancel of a claim": ("select sluicegate.cancel(%s)", (five["job"]["id"],)),
            "cancel": ("select sluicegate.cancel(%s)", (self.pending(),)),
            "retry": ("select sluicegate.retry(%s)", (dead["job"]["id"],)),
            "get_job": ("select sluicegate.get_job(%s)", (six["job"]["id"],)),
            "reap": ("select sluicegate.reap()", ()),
            "enqueue": ("select sluicegate.enqueue(%s)", (self.queue,)),
            "enqueue of a live key": ("select sluicegate.enqueue(%s, p_dedup_key => 'pending1')", (self.queue,)),
            "enqueue_many": ("select sluicegate.enqueue_many(%s::jsonb)", (json.dumps(keyed),)),
            "enqueue of a child": (
                "select sluicegate.enqueue(%s, p_parent_id => %s)",
                (self.queue, seven["job"]["id"]),
            ),
            "enqueue under a request id": (
                "select sluicegate.enqueue(%s, p_request_id => %s)",
                (self.queue, str(eight["job"]["id"])),
            ),
        }

    def request(self, n: int, *more: str, request_id: str | None = None) -> str:
        return json.dumps([{"queues": [self.queue, *more], "n": n, "request_id": request_id}])

    def pending(self) -> int:
        query = "select max(id) from sluicegate.job where state = 'pending'"
        return int(self.sql.one(query))


def held(claim: Json) -> tuple[int, str]:
    return claim["job"]["id"], claim["lease_token"]


def grow(sql: Sql, first: int, last: int) -> None:
    for queue in ("grown", "other"):
        sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", queue)
    sql.do(ROWS.format(first=first, last=last))
    sql.do(LEDGER)
    sql.take("grown", n=5, request_id="again")


@contextmanager
def plans(connection: psycopg.Connection[Any]) -> Iterator[list[Json]]:
    """The plan of every statement that runs in the block, also inside functions."""
    found: list[Json] = []

    def keep(notice: Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:\n" in text:
            found.append(json.loads(text.partition("plan:\n")[2]))

    connection.add_notice_handler(keep)
    for setting in ("min_duration = 0", "nested_statements = on", "format = json", "level = notice", "analyze = off"):
        connection.execute(f"set auto_explain.log_{setting}")
    connection.execute("set client_min_messages = notice")
    try:
        yield found
    finally:
        connection.execute("set auto_explain.log_min_duration = -1")
        connection.remove_notice_handler(keep)


def nodes(plan: Json) -> Iterator[Json]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def whole_scans(found: list[Json]) -> list[str]:
    """Every scan of a large table, or of an index of it, that has no condition to start or end at."""
    return [
        f"{node['Node Type']} of {node.get('Index Name', node.get('Relation Name'))} in: {plan['Query Text'][:200]}"
        for plan in found
        for node in nodes(plan["Plan"])
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE)
        or (
            "Index" in node["Node Type"]
            and node["Index Name"].startswith(LARGE)
            and "Index Cond" not in node
            and node["Node Type"] != "BitmapAnd"
        )
    ]


@pytest.fixture
def plans_of_empty_tables(sql: Sql, another: Callable[[], Sql]) -> Sql:
    """A connection whose plans were all made while the tables held nearly nothing, and had never been analysed."""
    sql.do("alter table sluicegate.job set (autovacuum_enabled = false)")
    sql.do("alter table sluicegate.attempt set (autovacuum_enabled = false)")
    grow(sql, 1, 50)
    life = Life(sql)
    for _ in range(2):
        for statement, values in life.calls().values():
            with sql.transaction():
                sql.one(statement, *values)
    grow(another(), 51, GROWN)
    return sql


@pytest.fixture
def plans_of_grown_tables(sql: Sql, another: Callable[[], Sql]) -> Sql:
    grow(another(), 1, GROWN)
    sql.do("vacuum analyze")
    return sql


def check(sql: Sql) -> None:
    sql.do("load 'auto_explain'")
    seen: dict[str, Reads] = {}
    whole: list[str] = []
    for verb, (statement, values) in Life(sql).calls().items():
        seen[verb] = reads(sql.connection, statement, *values)
        with plans(sql.connection) as found, sql.transaction():
            sql.one(statement, *values)
        assert found, verb
        whole += [f"{verb}: {scan}" for scan in whole_scans(found)]
    assert whole == []
    # A dozen jobs at the most are touched by any of these calls; each is looked up a few times.
    assert {verb: one for verb, one in seen.items() if one.rows > 150 or one.pages > 800} == {}


@pytest.mark.slow
def test_no_verb_reads_a_table_whole_with_plans_made_while_the_tables_were_empty(plans_of_empty_tables: Sql) -> None:
    check(plans_of_empty_tables)


@pytest.mark.slow
def test_no_verb_reads_a_table_whole_with_plans_made_when_the_tables_were_large(plans_of_grown_tables: Sql) -> None:
    check(plans_of_grown_tables)


def test_the_check_sees_a_whole_scan(sql: Sql) -> None:
    sql.do("load 'auto_explain'")
    sql.do("set enable_seqscan = off")
    with plans(sql.connection) as found:
        sql.rows("select id from sluicegate.job where kind = 'x'")
        sql.rows("select id from sluicegate.job order by id limit 1")
        sql.rows("select id from sluicegate.job where id = 1")
    assert len(found) == 3
    assert len(whole_scans(found)) == 2
