"""Who may do what to budgets, read from the catalog: a worker, a producer or a reader writes none of them by any path."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql as q

from sluicegate.sql.grants import ROLES
from tests.sql.budgets import ask, govern, opened, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql
from tests.support.counts import rounds
from tests.support.servers import Server

WORKER, PRODUCER, READER, ADMIN = "worker", "producer", "reader", "admin"
# By hand, so that a grant that changes has to be meant. The admin may call all of them.
GRANTED = {
    WORKER: {
        *("claim", "claim_job", "clock", "cancel", "complete", "enqueue", "enqueue_many", "fail", "heartbeat"),
        *("heartbeat_many", "prune", "reap", "release", "retry", "open_admission", "admission_status", "budget_show"),
        *("demand", "explain", "get_job", "list_jobs", "next_jobs", "queue_stats", "rehearse", "wake"),
    },
    PRODUCER: {"clock", "enqueue", "enqueue_many", "wake"},
    READER: {
        *("clock", "admission_status", "broken_policies", "budget_audit", "budget_show", "explain", "get_job"),
        *("list_jobs", "next_jobs", "opening_policies", "queue_stats", "rehearse"),
    },
}
CHANGES_POLICIES = {
    *("set_admission_policy", "patch_admission_policy", "clear_admission_policy"),
    *("pause_queue", "resume_queue", "reset_usage"),
}
BUDGETS = ("policy", "policy_limit", "budget_window", "lane", "usage", "forgiven", "policy_audit", "refusal")
FUNCTIONS = """
select p.proname as name, p.pronargs - p.pronargdefaults as required, coalesce(p.proargnames[1:p.pronargs], '{}') as arguments,
    (select coalesce(array_agg(format_type(t, null) order by ord), '{}') from unnest(p.proargtypes) with ordinality as x(t, ord)) as types
from pg_proc p where p.pronamespace = 'sluicegate'::regnamespace order by p.proname
"""
RELATIONS = """
select c.relname as name, c.relkind::text as kind,
    (select array_agg(a.attname::text order by a.attnum) from pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
from pg_class c where c.relnamespace = 'sluicegate'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') order by 1
"""
# What claims and finishes may change of a lane is what was charged, what of it has ended, and the window it stands in.
KEPT = dict.fromkeys(
    ("policy_limit", "budget_window", "usage", "forgiven", "policy_audit", "endpoint_grant"), "t::text"
) | {
    "policy": "row(queue_id, max_in_flight, in_flight_mode, paused, paused_reason, paused_until, lanes, made, revision,"
    " made_by, created_at, updated_at)::text",
    "lane": "row(queue_id, lane, live, is_open, paused_until, windows, (select sum(s) from unnest(t.shares) s))::text",
    "queue": "row(id, scope_id, name, governed)::text",
}
CLOCK = "select prosrc, proowner::text, proacl::text from pg_proc where oid = 'sluicegate.clock()'::regprocedure"


@pytest.fixture
def stocked(sql: Sql) -> Sql:
    """Queue "q" with a policy, something charged, archived, forgiven and refused; "free" without one."""
    govern(sql, "q", window(4), window(50, "hour"), max_in_flight=3, lanes=2)
    sql.enqueue_many([{"queue": "q"}] * 9 + [{"queue": "free"}] * 9)
    for claim in ask(sql)["claims"] + ask(sql)["claims"]:
        sql.complete(claim)
    sql.call("reset_usage", queue="q", period="hour")
    sql.do(
        "insert into sluicegate.usage select id, now() - '9 days'::interval, 0, queue_id, now() - '8 days'::interval, 3 from sluicegate.budget_window"
    )
    govern(sql, "other", window(0))
    sql.enqueue("other")
    assert ask(sql, "other")["deferred"]
    return sql


@pytest.fixture(params=[*GRANTED, "nobody"])
def login(sql: Sql, server: Server, request: pytest.FixtureRequest) -> Iterator[tuple[str, Sql]]:
    """A login that is a member of one role, or of none: the role and a connection of that login."""
    name = f"login_{secrets.token_hex(4)}"
    sql.do(f"create role {name} login password 'plain'")
    if request.param != "nobody":
        sql.do(f"grant sluicegate_{request.param} to {name}")
    dsn = server.dsn(sql.connection.info.dbname, user=name, password="plain")
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("set statement_timeout = '30s'")
        yield request.param, Sql(connection)
    sql.do(f"drop owned by {name}")
    sql.do(f"drop role {name}")


def kept(sql: Sql) -> Json:
    """All of budgets that no claim may change, and the clock."""
    found: Json = {
        table: sql.rows(f"select {columns} as r from sluicegate.{table} t order by 1")
        for table, columns in KEPT.items()
    }
    return {**found, "clock": sql.rows(CLOCK)}


def call(member: Sql, function: Json, dice: random.Random) -> bool:
    """Call it with arguments of the right types, some left out; whether it answered. It may refuse, and never break."""
    values = []
    for number, (name, kind) in enumerate(zip(function["arguments"], function["types"], strict=True)):
        if name == "p_queue" and dice.random() < 0.7:
            values.append(f"p_queue => {dice.choice(['q', 'free', 'other'])!r}")
        elif number < function["required"] or dice.random() < 0.2:
            values.append(f"{name} => {dice.choice(POOL[kind])}::{kind}")
    statement = f"select sluicegate.{function['name']}({', '.join(values)})"
    state = _state(member, statement)
    assert state is None or state.startswith(("SG", "22", "42")), (statement, state)
    return state is None


def _state(member: Sql, statement: str) -> str | None:
    try:
        member.one(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def denied(member: Sql, statement: str | q.Composed) -> bool:
    """Whether PostgreSQL itself refuses it for want of a privilege; whatever else happens is undone."""
    try:
        with member.connection.transaction(force_rollback=True):
            member.connection.execute(statement.encode() if isinstance(statement, str) else statement)
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.Error:
        return False
    return False


@pytest.mark.both_versions
def test_every_role_executes_exactly_what_is_written_here(sql: Sql) -> None:
    names = {row["name"] for row in sql.rows(FUNCTIONS)}
    wanted = {**GRANTED, ADMIN: CHANGES_POLICIES.union(*GRANTED.values()), "public": set()}
    for role, granted in wanted.items():
        who = role if role == "public" else f"sluicegate_{role}"
        found = sql.rows(
            "select distinct p.proname as name from pg_proc p where p.pronamespace = 'sluicegate'::regnamespace"
            " and has_function_privilege(%s, p.oid, 'execute')",
            who,
        )
        assert {row["name"] for row in found} == granted, role
        assert granted <= names
    assert set(ROLES) == {f"sluicegate_{role}" for role in (*GRANTED, ADMIN)}


@pytest.mark.both_versions
def test_no_role_and_not_public_may_write_any_relation_or_column(sql: Sql) -> None:
    """Read from the catalog, so that a table of tomorrow is covered, and a grant on one column is not overlooked."""
    relations = sql.rows(RELATIONS)
    assert {row["name"] for row in relations} >= {*BUDGETS, "lane_now", "job"}
    for role in ("public", *ROLES):
        for relation in relations:
            name = f"sluicegate.{relation['name']}"
            if relation["kind"] == "S":
                privileges = [("sequence", privilege) for privilege in ("usage", "update")]
            else:
                privileges = [
                    ("table", one) for one in ("insert", "update", "delete", "truncate", "references", "trigger")
                ]
                privileges += [("any_column", one) for one in ("insert", "update", "references")]
            found = [
                one for kind, one in privileges if sql.one(f"select has_{kind}_privilege(%s, %s, %s)", role, name, one)
            ]
            assert found == [], (role, name)
        assert not sql.one("select has_schema_privilege(%s, 'sluicegate', 'create')", role)


@pytest.mark.both_versions
def test_budgets_are_read_by_readers_and_the_admin_column_by_column(sql: Sql) -> None:
    for relation in sql.rows(RELATIONS):
        if relation["name"] not in BUDGETS:
            continue
        for column, role in itertools.product(relation["columns"], ("public", *ROLES)):
            may = sql.one(
                "select has_column_privilege(%s, %s, %s, 'select')", role, f"sluicegate.{relation['name']}", column
            )
            assert may == (role in {"sluicegate_reader", "sluicegate_admin"}), (role, relation["name"], column)


def test_every_direct_way_to_a_budget_is_refused_by_the_database(stocked: Sql, login: tuple[str, Sql]) -> None:
    role, member = login
    before = kept(stocked)
    for relation in stocked.rows(RELATIONS):
        if relation["name"] not in (*BUDGETS, "lane_now", "queue", "endpoint_grant", "endpoint", "attempt"):
            continue
        name = q.Identifier("sluicegate", relation["name"])
        column = q.Identifier(relation["columns"][-1])
        statements = [
            "insert into {t} default values", "update {t} set {c} = {c}", "delete from {t}", "truncate {t} cascade",
            "merge into {t} using (select 1) x on true when matched then delete", "copy {t} from program 'true'",
            "copy {t} from stdin", "select 1 from {t} for update", "select 1 from {t} for key share",
            "lock table {t} in row exclusive mode", "alter table {t} disable trigger all", "alter table {t} owner to current_user",
            "create rule r as on insert to {t} do instead nothing", "create index on {t} ({c})", "drop table {t} cascade",
            "alter table {t} drop constraint if exists x", "comment on table {t} is 'mine'",
            "create policy p on {t}", "vacuum {t}", "cluster {t}", "analyze {t}",
        ]  # fmt: skip
        for text in statements:
            statement = q.SQL(text).format(t=name, c=column)
            if text.split()[0] in {"vacuum", "analyze", "cluster"}:
                continue
            if "copy" in text and "stdin" in text:
                continue
            assert denied(member, statement) or relation["kind"] == "v", (role, statement.as_string())
    assert kept(stocked) == before


def test_no_way_leads_to_another_role(stocked: Sql, login: tuple[str, Sql]) -> None:
    role, member = login
    owner = stocked.one("select nspowner::regrole::text from pg_namespace where nspname = 'sluicegate'")
    others = [owner, *(other for other in ROLES if other != f"sluicegate_{role}")]
    for other in others:
        for statement in (f"set role {other}", f"set session authorization {other}", f"grant {other} to current_user"):
            assert denied(member, statement), statement
        assert denied(member, f"alter role {other} superuser")
    for statement in (
        "create or replace function sluicegate.clock() returns timestamptz language sql as 'select now()'",
        "alter function sluicegate.clock() owner to current_user",
        "create function sluicegate.mine() returns int language sql as 'select 1'",
        "alter schema sluicegate owner to current_user",
        "set session_replication_role = replica",
        "set log_lock_waits = on",
        "select pg_read_file('PG_VERSION')",
    ):
        assert denied(member, statement), statement


@pytest.mark.both_versions
def test_every_function_that_is_not_granted_is_refused_whatever_it_is_given(
    stocked: Sql, login: tuple[str, Sql]
) -> None:
    role, member = login
    before = kept(stocked)
    refused = 0
    for function in stocked.rows(FUNCTIONS):
        if function["name"] in GRANTED.get(role, set()):
            continue
        arguments = ", ".join(f"null::{kind}" for kind in function["types"])
        assert denied(member, f"select sluicegate.{function['name']}({arguments})"), (role, function["name"])
        refused += 1
    assert refused >= len(CHANGES_POLICIES) + 30
    assert kept(stocked) == before


POOL: dict[str, list[str]] = {
    "text": [
        "'q'", "'free'", "'other'", "'endpoint:default'", "'endpoint:x'", "null", "''", "'set'", "'day'", "'boom'",
        "'q''; delete from sluicegate.policy; --'", "'sluicegate.policy'", "'completed'", "'local'",
    ],
    "bigint": ["1", "2", "3", "null", "0", "-1", "500000", "9223372036854775807"],
    "integer": ["1", "30", "45", "32", "0", "null", "10000", "-1"],
    "double precision": ["0", "1.5", "null", "'NaN'"],
    "boolean": ["true", "false", "null"],
    "timestamp with time zone": ["now()", "null", "'infinity'", "now() - interval '2 years'"],
    "jsonb": [
        """'{"max_in_flight": 9999}'""", """'{"limits": [], "paused": false, "max_in_flight": 100}'""", "'[]'", "'{}'", "null",
        """'[{"job_id": 1, "lease_token": "t"}]'""", """'[{"queues": ["q", "free", "other"], "n": 50}]'""", """'[{"queue": "q"}, {"queue": "new"}]'""",
        """'[{"job_id": 1, "lease_token": "t", "outcome": "completed"}]'""", "'1'",
    ],
    "text[]": ["'{}'", "'{q}'", "null"],
}  # fmt: skip

TRICKS = (
    "create temporary table policy (queue_id bigint, max_in_flight int, opening boolean)",
    "create temporary table lane (queue_id bigint, lane smallint, cap int)",
    "create temporary table lane_now (queue_id bigint, lane smallint, cap int)",
    "create temporary table usage (window_id bigint)",
    "create temporary table policy_audit (id bigint)",
    "create temporary table queue (id bigint, governed boolean)",
    "create temporary table endpoint_grant (endpoint_id bigint, verb text)",
    "create function pg_temp.clock() returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00Z' $$",
    "create function pg_temp.least(integer, integer) returns integer language sql as $$ select 1000000 $$",
    "create function pg_temp.array_positions(anyarray, anyelement) returns integer[] language sql as $$ select '{}'::integer[] $$",
    "create function pg_temp.greater(bigint, integer) returns boolean language sql as $$ select false $$",
    "create operator pg_temp.>= (leftarg = bigint, rightarg = integer, function = pg_temp.greater)",
    "set search_path = pg_temp, pg_catalog, sluicegate",
    "set timezone = 'Pacific/Kiritimati'",
    "set sluicegate.checked_1 = '99999999999'",
    "set sluicegate.governed = 'off'",
    "set plan_cache_mode = force_custom_plan",
    "set lock_timeout = '1ms'",
    "set synchronous_commit = off",
    "set default_transaction_isolation = 'read committed'",
)


@pytest.mark.parametrize("tricks", [False, True], ids=["plain", "with tricks"])
def test_whatever_it_calls_a_role_changes_no_policy_usage_audit_lane_or_clock(
    stocked: Sql, login: tuple[str, Sql], tricks: bool
) -> None:
    """A claim charges; that is the only way to a lane, and it is what was opened that stands there."""
    role, member = login
    before = kept(stocked)
    for trick in TRICKS if tricks else ():
        if role == "nobody":
            break
        member.do(trick)
    dice = random.Random(f"{role}{tricks}")
    functions = [one for one in stocked.rows(FUNCTIONS) if one["name"] in GRANTED.get(role, set())]
    answered = {one["name"] for one in functions for _ in range(rounds(100, 150)) if call(member, one, dice)}
    assert answered == {one["name"] for one in functions}
    after = kept(stocked)
    # The first enqueue makes a queue; it has no policy.
    known, now = ({row["r"] for row in found.pop("queue")} for found in (before, after))
    assert known <= now
    assert all(row.endswith(",f)") for row in now - known)
    assert after == before
    day = "select sum(u.used) from sluicegate.lane l cross join unnest(l.windows, l.used) u(id, used) join sluicegate.budget_window b on b.id = u.id where b.period = 'day' and l.queue_id = 1"
    assert stocked.one(day) == opened(stocked) <= 4


def test_the_audit_is_only_ever_added_to_also_by_the_admin(stocked: Sql, another: OpenSql) -> None:
    admin = another()
    admin.do("set role sluicegate_admin")
    column = q.Identifier("reason")
    audit = q.Identifier("sluicegate", "policy_audit")
    for text in ("insert into {t} default values", "update {t} set {c} = {c}", "delete from {t}", "truncate {t}"):
        assert denied(admin, q.SQL(text).format(t=audit, c=column))
    known = {row["r"] for row in stocked.rows("select t::text as r from sluicegate.policy_audit t")}
    assert len(known) >= 3
    dice = random.Random(7)
    functions = [one for one in stocked.rows(FUNCTIONS) if one["name"] in CHANGES_POLICIES.union(*GRANTED.values())]
    answered = {one["name"] for one in functions for _ in range(rounds(50, 150)) if call(admin, one, dice)}
    # There may be nothing to forgive by then.
    assert answered >= CHANGES_POLICIES - {"reset_usage"}
    assert known < {row["r"] for row in stocked.rows("select t::text as r from sluicegate.policy_audit t")}
