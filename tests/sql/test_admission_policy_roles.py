"""Who may change a policy: endpoints by what was granted to them, database roles by their privileges."""

import psycopg
import pytest

from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, refused


def _endpoint(sql: Sql, slug: str, *verbs: str) -> str:
    endpoint = sql.one(
        "insert into sluicegate.endpoint (owner_id, slug, name, token_sha256, lease_seconds, created_at)"
        " select o.id, %s, %s, sha256(%s::bytea), 900, now() from sluicegate.owner o where o.slug = 'local' returning id",
        slug,
        slug,
        slug.encode(),
    )
    for verb in verbs:
        sql.do(
            "insert into sluicegate.endpoint_grant (endpoint_id, verb, granted_at) values (%s, %s, now())",
            endpoint,
            verb,
        )
    return f"endpoint:{slug}"


def test_an_endpoint_changes_its_own_budget_only_if_that_was_granted(sql: Sql) -> None:
    bold, plain = _endpoint(sql, "bold", "set_admission_policy"), _endpoint(sql, "plain", "claim")
    policy = {"max_in_flight": 1}
    sql.call("set_admission_policy", queue="q", policy=policy, scope=bold, actor=bold)
    sql.enqueue("q", scope=plain)
    assert sql.call("budget_audit", queue="q", scope=bold)["audit"][0]["endpoint"] == "bold"
    for refusing in (
        lambda: sql.call("set_admission_policy", queue="q", policy=policy, scope=plain, actor=plain),
        lambda: sql.call("clear_admission_policy", queue="q", scope=bold, actor=bold),
        lambda: sql.call("reset_usage", queue="q", scope=bold, actor=bold),
    ):
        with refused(sql, "SG005", "verb"):
            refusing()
    messages = []
    for queue in ("known-not", "q"):
        with pytest.raises(psycopg.Error) as caught:
            sql.call("set_admission_policy", queue=queue, policy=policy, scope=plain, actor=bold)
        assert caught.value.diag.sqlstate == "SG002"
        messages.append(str(caught.value.diag.message_primary).replace(f"'{queue}'", "Q"))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("role", ["sluicegate_worker", "sluicegate_producer", "sluicegate_reader"])
def test_only_an_administrator_reaches_a_policy_function(sql: Sql, another: OpenSql, role: str) -> None:
    govern(sql, "q", window(5))
    member = another()
    member.do(f"set role {role}")
    for call in (
        "set_admission_policy('q', '{\"max_in_flight\": 1}')",
        "patch_admission_policy('q', '{\"max_in_flight\": 1}')",
        "clear_admission_policy('q')",
        "pause_queue('q')",
        "resume_queue('q')",
        "reset_usage('q')",
        "write_policy(1, null, 'set', null, null, null)",
        "settle(1, now())",
        "open_lanes(1)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            member.one(f"select sluicegate.{call}")
    for table in ("policy", "policy_limit", "budget_window", "lane", "usage", "forgiven", "policy_audit", "refusal"):
        for statement in (f"delete from sluicegate.{table}", f"update sluicegate.{table} set queue_id = 1"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                member.do(statement)


def test_a_worker_claims_under_a_policy_it_cannot_read(sql: Sql, another: OpenSql) -> None:
    govern(sql, "q", window(1))
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    worker = another()
    worker.do("set role sluicegate_worker")
    assert worker.take_one()["admission"]["used"] == 1
    assert worker.claim()["deferred"][0]["reason"] == "window_exhausted"
    assert worker.call("admission_status")["queues"][0]["status"] == "window_exhausted"
