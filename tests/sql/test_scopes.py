"""Scopes: whose queues a verb acts on, and that nobody sees or touches another's."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql as names

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, lease, refused

SCOPES = ("endpoint:default", "endpoint:nightly", "endpoint:default@acme", "team:acme")


@pytest.fixture
def scopes(sql: Sql) -> tuple[str, ...]:
    """The default scope, a second endpoint, a team and an endpoint of that team, which has the default's slug."""
    sql.do("insert into sluicegate.owner (kind, slug) values ('team', 'acme')")
    sql.do(
        "insert into sluicegate.endpoint (owner_id, slug) select id, 'nightly' from sluicegate.owner where slug = 'local'"
    )
    sql.do(
        "insert into sluicegate.endpoint (owner_id, slug) select id, 'default' from sluicegate.owner where slug = 'acme'"
    )
    return SCOPES


def test_a_fresh_install_has_one_owner_and_one_endpoint(sql: Sql) -> None:
    assert sql.rows("select kind, slug from sluicegate.owner") == [{"kind": "human", "slug": "local"}]
    assert sql.rows("select slug, lease_seconds from sluicegate.endpoint") == [
        {"slug": "default", "lease_seconds": 300}
    ]
    assert sql.one("select count(*) from sluicegate.queue") == 0


def test_queues_of_one_name_in_several_scopes_are_several_queues(sql: Sql, scopes: tuple[str, ...]) -> None:
    jobs = {scope: sql.enqueue(payload=scope, scope=scope) for scope in scopes}
    assert sql.one("select count(*) from sluicegate.queue where name = 'q'") == 4
    for scope in scopes:
        (claim,) = sql.take(n=10, scope=scope)
        assert (claim["job"]["id"], claim["job"]["payload"]) == (jobs[scope], scope)
        assert [job["id"] for job in sql.call("list_jobs", scope=scope)["jobs"]] == [jobs[scope]]
        (queue,) = sql.call("queue_stats", scope=scope)["queues"]
        assert queue["claimed"] == 1


def test_the_default_scope_is_the_default_endpoint_of_the_local_owner(sql: Sql, scopes: tuple[str, ...]) -> None:
    ids = {
        sql.enqueue(dedup_key="k", **options) for options in ({}, {"scope": None}, {"scope": "endpoint:default@local"})
    }
    assert len(ids) == 1


def test_a_dedup_key_belongs_to_one_scope(sql: Sql, scopes: tuple[str, ...]) -> None:
    answers = [sql.call("enqueue", queue="q", dedup_key="k", scope=scope) for scope in scopes]
    assert all(answer["created"] for answer in answers)
    assert len({answer["id"] for answer in answers}) == 4


def test_no_verb_reaches_a_job_of_another_scope(sql: Sql, scopes: tuple[str, ...]) -> None:
    job = sql.enqueue(max_attempts=1, scope="team:acme")
    waiting = sql.enqueue("other", scope="team:acme")
    (claim,) = sql.take(scope="team:acme")
    before = sql.contents()
    held = lease(claim)
    for scope in scopes[:-1]:
        for verb, options in (
            ("complete", held),
            ("fail", {**held, "error": "e"}),
            ("release", held),
            ("heartbeat", held),
            ("cancel", {"job_id": job}),
            ("retry", {"job_id": job}),
            ("get_job", {"job_id": job}),
            ("claim_job", {"job_id": waiting}),
        ):
            answer = sql.call(verb, **options, scope=scope)
            assert answer["status"] == "not_found", (verb, scope)
        items = sql.call("heartbeat_many", items=[held], scope=scope)["heartbeats"]
        finished = sql.call("claim", requests=[], finished=[{**held, "outcome": "completed", "scope": scope}])[
            "finished"
        ]
        assert items[0]["status"] == finished[0]["status"] == "not_found"
        assert sql.take("q", "other", n=10, scope=scope) == []
    assert sql.contents() == before
    assert sql.complete(claim, scope="team:acme")["status"] == "ok"


def test_one_call_may_serve_several_scopes(sql: Sql, scopes: tuple[str, ...]) -> None:
    for scope in scopes:
        sql.enqueue(scope=scope)
    responses = sql.call("claim", requests=[{"queues": ["q"], "scope": scope} for scope in scopes])["responses"]
    claims = [response["claims"][0] for response in responses]
    finished = [
        {**lease(claim), "outcome": "completed", "scope": scope} for claim, scope in zip(claims, scopes, strict=True)
    ]
    assert {answer["status"] for answer in sql.call("claim", requests=[], finished=finished)["finished"]} == {"ok"}
    check_ledger(sql)


def test_unknown_and_revoked_scopes_are_not_found_and_malformed_ones_are_refused(
    sql: Sql, scopes: tuple[str, ...]
) -> None:
    sql.do("update sluicegate.endpoint set revoked_at = clock_timestamp() where slug = 'nightly'")
    for scope in (
        "endpoint:nightly",
        "endpoint:none",
        "endpoint:default@none",
        "team:none",
        "team:local",
        "endpoint:acme",
    ):
        with refused(sql, "SG002", "scope"):
            sql.enqueue(scope=scope)
    malformed = (
        "", "default", "endpoint:", "team:", "user:local", "endpoint:UPPER", "endpoint:a b", "endpoint:-a", "endpoint:a@",
        "endpoint:@a", "team:a@b", "team:a/q", "endpoint:" + "a" * 64, "endpoint:a@b@c", "endpoint:a\nteam:b", "endpoint:ä",
    )  # fmt: skip
    for scope in malformed:
        with refused(sql, "SG001", "scope"):
            sql.enqueue(scope=scope)


@pytest.fixture
def as_role(sql: Sql, another: OpenSql) -> Iterator[Callable[[str], Sql]]:
    """``as_role('worker')``: a connection that has the rights of that role and no others."""
    made: list[str] = []
    acting: list[Sql] = []

    def act(role: str) -> Sql:
        name = f"some_{role}_{sql.pid}"
        sql.connection.execute(
            names.SQL("create role {} in role {}").format(
                names.Identifier(name), names.Identifier(f"sluicegate_{role}")
            )
        )
        made.append(name)
        acting.append(another())
        acting[-1].connection.execute(names.SQL("set role {}").format(names.Identifier(name)))
        return acting[-1]

    yield act
    for connection in acting:
        connection.connection.close()
    for name in made:
        for command in ("drop owned by {}", "drop role {}"):
            sql.connection.execute(names.SQL(command).format(names.Identifier(name)))


def test_a_worker_needs_no_rights_on_tables(sql: Sql, as_role: Callable[[str], Sql]) -> None:
    worker = as_role("worker")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.one("select count(*) from sluicegate.job")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.do("delete from sluicegate.attempt")
    for internal in ("insert_jobs('[]', null, null, '', true)", "finish_jobs('[]')", "refuse('SG001', '', '')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.one(f"select sluicegate.{internal}")
    for n in range(4):
        worker.enqueue(payload=n, dedup_key=f"k{n}", request_id=f"r{n}")
    worker.enqueue_many([{"queue": "q"}], request_id="many")
    claims = worker.take(n=3, request_id="c")
    claims = worker.take(n=3, request_id="c")
    assert worker.call("heartbeat_many", items=[lease(claim) for claim in claims])["heartbeats"][0]["status"] == "ok"
    assert worker.complete(claims[0])["status"] == "ok"
    assert worker.fail(claims[1], retry=False)["status"] == "ok"
    assert worker.release(claims[2])["status"] == "ok"
    assert worker.complete(claims[1])["status"] == "conflict"
    assert worker.call("retry", job_id=claims[1]["job"]["id"])["status"] == "ok"
    assert worker.call("cancel", job_id=claims[1]["job"]["id"])["status"] == "ok"
    job = worker.call("list_jobs", state="pending")["jobs"][0]["id"]
    assert worker.call("claim_job", job_id=job, request_id="j")["status"] == "ok"
    assert worker.call("get_job", job_id=job)["status"] == "ok"
    assert worker.call("queue_stats")["queues"]
    assert worker.call("reap") == {"requeued": 0, "dead_lettered": 0, "cancelled": 0}
    assert set(worker.call("prune").values()) == {0}
    with pytest.raises(psycopg.DatabaseError) as refused:
        worker.call("prune", job_days=1)
    assert refused.value.sqlstate == "SG005"
    check_ledger(sql)


def test_a_producer_can_enqueue_and_nothing_else(sql: Sql, as_role: Callable[[str], Sql]) -> None:
    producer = as_role("producer")
    job = producer.enqueue()
    producer.enqueue_many([{"queue": "q"}])
    calls: list[tuple[str, dict[str, Any]]] = [
        ("claim", {"requests": []}),
        ("claim_job", {"job_id": job}),
        ("cancel", {"job_id": job}),
        ("retry", {"job_id": job}),
        ("reap", {}),
        ("prune", {}),
        ("get_job", {"job_id": job}),
        ("list_jobs", {}),
        ("queue_stats", {}),
        ("complete", {"job_id": job, "lease_token": ""}),
    ]
    for verb, options in calls:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            producer.call(verb, **options)


def test_a_reader_sees_everything_but_tokens_and_changes_nothing(sql: Sql, as_role: Callable[[str], Sql]) -> None:
    job = sql.enqueue()
    sql.take_one()
    reader = as_role("reader")
    assert reader.call("get_job", job_id=job)["status"] == "ok"
    assert len(reader.call("list_jobs")["jobs"]) == len(reader.call("queue_stats")["queues"]) == 1
    assert reader.one("select state from sluicegate.job") == "claimed"
    for query in (
        "select lease_token_hash from sluicegate.job",
        "select token_sha256 from sluicegate.endpoint",
        "select lease_token_hash from sluicegate.attempt_end",
        "update sluicegate.job set priority = 1",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.one(query)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.enqueue()


def test_objects_of_the_caller_in_his_own_schemas_never_stand_in_for_ours(
    sql: Sql, as_role: Callable[[str], Sql]
) -> None:
    sql.do("create schema evil; grant all on schema evil to public")
    worker = as_role("worker")
    for schema in ("pg_temp", "evil"):
        worker.do(f"create table {schema}.job (id bigint, state text)")
        worker.do(f"create table {schema}.queue (id bigint, name text)")
        worker.do(
            f"create function {schema}.clock() returns timestamptz language plpgsql as"
            " $$ begin raise 'the wrong clock'; end $$"
        )
        worker.do(
            f"create function {schema}.format(text, variadic text[]) returns text language plpgsql as"
            " $$ begin raise 'the wrong format'; end $$"
        )
        worker.do(
            f"create function {schema}.nothing_equal(text, text) returns boolean language plpgsql as"
            " $$ begin raise 'the wrong operator'; end $$"
        )
        worker.do(f"create operator {schema}.= (leftarg = text, rightarg = text, function = {schema}.nothing_equal)")
    worker.do("set search_path = evil, pg_temp, pg_catalog")
    worker.enqueue(dedup_key="k")
    claim = worker.take_one()
    worker.heartbeat(claim)
    assert worker.fail(claim)["status"] == "ok"
    assert worker.complete(claim)["status"] == "conflict"
    assert worker.call("list_jobs")["jobs"][0]["state"] == "scheduled"
    check_ledger(sql)


def test_a_job_of_another_scope_is_neither_locked_nor_told_apart_while_its_owner_holds_it(
    sql: Sql, scopes: tuple[str, ...], another: OpenSql
) -> None:
    mine, theirs = scopes[0], scopes[1]
    job = sql.enqueue(scope=theirs)
    holder = another()
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", job)
        items = [
            {"job_id": number, "lease_token": "guess", "outcome": "completed", "scope": mine}
            for number in (job, job + 1000)
        ]
        finished = sql.claim("none", finished=items)["finished"]
    assert [answer["status"] for answer in finished] == ["not_found", "not_found"]
    known, unknown = (
        answer["message"].replace(str(number), "N") for answer, number in zip(finished, (job, job + 1000), strict=True)
    )
    assert known == unknown
