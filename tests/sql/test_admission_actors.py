"""Who changes a budget: an endpoint only where its owner granted it, checked in SQL, and each change on record once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sluicegate.testing import freeze_clock
from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, refused

NOON = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)
SMALL: Json = {"limits": [window(7)]}
# Each verb with what it is given, and the grant that it needs.
VERBS: dict[str, tuple[Json, str]] = {
    "set_admission_policy": ({"policy": SMALL}, "set_admission_policy"),
    "patch_admission_policy": ({"patch": {"max_in_flight": 3}}, "set_admission_policy"),
    "clear_admission_policy": ({}, "clear_admission_policy"),
    "pause_queue": ({"until": NOON + timedelta(hours=1)}, "set_admission_policy"),
    "resume_queue": ({}, "set_admission_policy"),
    "reset_usage": ({"period": "day"}, "reset_usage"),
}
CREATING = {"set_admission_policy", "patch_admission_policy", "pause_queue"}
AUDITED = {
    "set_admission_policy": "set",
    "patch_admission_policy": "set",
    "clear_admission_policy": "clear",
    "pause_queue": "pause",
    "resume_queue": "resume",
    "reset_usage": "reset",
}
GRANTS = {grant for _, grant in VERBS.values()}


class People:
    """Owners and endpoints as the server will make them, and what endpoints were granted."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._endpoints: dict[str, int] = {}

    def owner(self, slug: str, kind: str = "human") -> None:
        self._sql.do("insert into sluicegate.owner (kind, slug) values (%s, %s)", kind, slug)

    def endpoint(self, name: str) -> str:
        """``slug`` or ``slug@owner``: its scope."""
        slug, _, owner = name.partition("@")
        self._endpoints[name] = self._sql.one(
            "insert into sluicegate.endpoint (owner_id, slug, token_sha256)"
            " select id, %s, sha256(%s::bytea) from sluicegate.owner where slug = %s returning id",
            slug,
            name.encode(),
            owner or "local",
        )
        return f"endpoint:{name}"

    def grant(self, name: str, *verbs: str, queue: str | None = None) -> None:
        for verb in verbs:
            self._sql.do(
                "insert into sluicegate.endpoint_grant (endpoint_id, verb, queue_id) values (%s, %s,"
                " (select id from sluicegate.queue where scope_id = %s and name = %s))",
                self._endpoints[name],
                verb,
                self._endpoints[name],
                queue,
            )

    def withdraw(self, name: str) -> None:
        self._sql.do("delete from sluicegate.endpoint_grant where endpoint_id = %s", self._endpoints[name])

    def revoke(self, name: str) -> None:
        self._sql.do("update sluicegate.endpoint set revoked_at = now() where id = %s", self._endpoints[name])


@pytest.fixture
def people(sql: Sql) -> People:
    """Endpoint "agent" of the local owner; the clock stands still."""
    freeze_clock(sql.connection, NOON)
    people = People(sql)
    people.endpoint("agent")
    return people


def prepare(sql: Sql, verb: str, scope: str, queue: str = "q") -> None:
    """Let there be something for the verb to do, done by an administrator."""
    sql.call("set_admission_policy", queue=queue, policy={"limits": [window(9)], "max_in_flight": 4}, scope=scope)
    sql.call("open_admission", queue=queue, scope=scope)
    if verb == "resume_queue":
        sql.call("pause_queue", queue=queue, scope=scope)
    if verb == "reset_usage":
        sql.enqueue(queue, scope=scope)
        assert sql.take(queue, scope=scope)


def act(sql: Sql, verb: str, actor: str | None, scope: str, queue: str = "q", **more: Any) -> Json:
    arguments, _ = VERBS[verb]
    answer: Json = sql.call(verb, queue=queue, scope=scope, actor=actor, **arguments, **more)
    return answer


def audit(sql: Sql) -> list[Json]:
    return sql.rows("select * from sluicegate.policy_audit order by id")


def told(sql: Sql, call: Callable[[], object]) -> tuple[str | None, ...]:
    """Everything that a refusal says."""
    with pytest.raises(psycopg.Error) as caught:
        call()
    diag = caught.value.diag
    return diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("to", ["every queue", "this queue"])
def test_an_endpoint_that_was_granted_the_verb_uses_it_and_is_on_record(
    sql: Sql, people: People, verb: str, to: str
) -> None:
    scope = "endpoint:agent"
    prepare(sql, verb, scope)
    people.grant("agent", VERBS[verb][1], queue="q" if to == "this queue" else None)
    before = audit(sql)
    act(sql, verb, scope, scope, reason="because")
    assert audit(sql)[:-1] == before
    (entry, *_) = sql.call("budget_audit", queue="q", scope=scope)["audit"]
    assert (entry["verb"], entry["human"], entry["endpoint"]) == (AUDITED[verb], "local", "agent")
    assert (entry["reason"], entry["database_user"]) == ("because", sql.one("select session_user"))
    assert datetime.fromisoformat(entry["at"]) == NOON
    assert entry["before"] != entry["after"]


@pytest.mark.parametrize("verb", VERBS)
def test_an_administrator_is_on_record_with_what_was_and_what_is(sql: Sql, people: People, verb: str) -> None:
    prepare(sql, verb, "endpoint:agent")
    document = "select sluicegate.policy_document(id) from sluicegate.queue where name = 'q'"
    before, known = sql.one(document), audit(sql)
    act(sql, verb, None, "endpoint:agent", reason="so it be")
    now = sql.one(document)
    (row,) = audit(sql)[len(known) :]
    assert (row["verb"], row["endpoint_id"], row["at"], row["reason"]) == (AUDITED[verb], None, NOON, "so it be")
    assert row["owner_id"] == sql.one("select id from sluicegate.owner where slug = 'local'")
    if verb == "reset_usage":
        # The policy stays as it is: what is used of it changes.
        assert [gate["used"] for gate in row["before"]["gates"] if gate["gate"] == "window"] == [1]
        assert [gate["used"] for gate in row["after"]["gates"] if gate["gate"] == "window"] == [0]
    else:
        assert (row["before"], row["after"]) == (before, now)
        assert before != now


@pytest.mark.parametrize("verb", VERBS)
def test_an_endpoint_without_the_grant_is_refused_whatever_it_names(sql: Sql, people: People, verb: str) -> None:
    """Also with every other grant there is, and for queues and scopes that do not exist."""
    prepare(sql, verb, "endpoint:agent")
    people.grant("agent", *(GRANTS - {VERBS[verb][1]}), "claim", "claim_next", "enqueue", "complete")
    words = set()
    for scope, queue in (
        ("endpoint:agent", "q"),
        ("endpoint:agent", "nowhere"),
        ("endpoint:default", "q"),
        ("endpoint:nobody", "q"),
        ("team:nobody", "q"),
    ):
        with refused(sql, "SG005", "verb"):
            act(sql, verb, "endpoint:agent", scope, queue)
        words.add(told(sql, lambda scope=scope, queue=queue: act(sql, verb, "endpoint:agent", scope, queue)))  # type: ignore[misc]
    assert len(words) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_what_an_endpoint_does_not_reach_is_not_there_for_it(sql: Sql, people: People, verb: str) -> None:
    """Another endpoint of the same owner, of another one, a team, an unknown scope: one answer, word for word."""
    people.owner("other")
    people.owner("crew", "team")
    scopes = ["endpoint:default", people.endpoint("agent@other"), people.endpoint("neighbour"), "team:crew"]
    for scope in scopes:
        prepare(sql, verb, scope)
    people.grant("agent", *GRANTS)
    words = set()
    for scope in (*scopes, "endpoint:nobody", "endpoint:agent@nobody", "team:nobody", "endpoint:agent@crew"):
        with refused(sql, "SG002", "queue"):
            act(sql, verb, "endpoint:agent", scope)
        words.add(told(sql, lambda scope=scope: act(sql, verb, "endpoint:agent", scope)))  # type: ignore[misc]
    if verb not in CREATING:
        words.add(told(sql, lambda: act(sql, verb, "endpoint:agent", "endpoint:agent")))
    assert len(words) == 1
    assert not [row for row in audit(sql) if row["endpoint_id"] is not None]


@pytest.mark.parametrize("verb", VERBS)
def test_a_grant_for_one_queue_reaches_no_other(sql: Sql, people: People, verb: str) -> None:
    scope = "endpoint:agent"
    for queue in ("mine", "q"):
        prepare(sql, verb, scope, queue)
    people.grant("agent", *GRANTS, queue="mine")
    words = set()
    for queue in ("q", "nowhere"):
        said = told(sql, lambda queue=queue: act(sql, verb, scope, scope, queue))  # type: ignore[misc]
        words.add(tuple((part or "").replace("'nowhere'", "'q'") for part in said))
    assert len(words) == 1
    for queue in ("q", "nowhere"):
        with refused(sql, "SG002", "queue"):
            act(sql, verb, scope, scope, queue)
    act(sql, verb, scope, scope, "mine")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", ["grant withdrawn", "endpoint revoked"])
def test_what_was_taken_from_an_endpoint_holds_from_the_next_call_on(
    sql: Sql, people: People, verb: str, how: str
) -> None:
    scope = "endpoint:agent"
    prepare(sql, verb, scope)
    people.grant("agent", *GRANTS)
    act(sql, verb, scope, scope)
    if how == "grant withdrawn":
        people.withdraw("agent")
    else:
        people.revoke("agent")
    with refused(sql, *(("SG005", "verb") if how == "grant withdrawn" else ("SG002", "scope"))):
        act(sql, verb, scope, scope)


def test_the_same_slug_of_two_owners_is_two_endpoints(sql: Sql, people: People) -> None:
    people.owner("other")
    other = people.endpoint("agent@other")
    people.grant("agent", *GRANTS)
    sql.call("set_admission_policy", queue="q", policy=SMALL, scope="endpoint:agent", actor="endpoint:agent")
    with refused(sql, "SG005", "verb"):
        sql.call("set_admission_policy", queue="q", policy=SMALL, scope=other, actor=other)
    people.grant("agent@other", *GRANTS)
    sql.call("set_admission_policy", queue="q", policy=SMALL, scope=other, actor=other)
    (entry,) = sql.call("budget_audit", queue="q", scope=other)["audit"]
    assert (entry["human"], entry["endpoint"]) == ("other", "agent")
    assert len(sql.call("budget_audit", queue="q", scope="endpoint:agent")["audit"]) == 1


def test_a_team_s_queue_is_changed_for_the_team(sql: Sql, people: People) -> None:
    people.owner("crew", "team")
    sql.call("set_admission_policy", queue="q", policy=SMALL, scope="team:crew", reason="all of us")
    (entry,) = sql.call("budget_audit", queue="q", scope="team:crew")["audit"]
    assert (entry["human"], entry["endpoint"], entry["reason"]) == ("crew", None, "all of us")
    with refused(sql, "SG005", "verb"):
        sql.call("set_admission_policy", queue="q", policy=SMALL, scope="team:crew", actor="team:crew")


def test_a_refused_or_rolled_back_change_leaves_no_record(sql: Sql, people: People, another: OpenSql) -> None:
    govern(sql, "q", window(9))
    known = audit(sql)
    refusals: list[tuple[str, str | None, Json]] = [
        ("SG001", "window.tz", {"policy": {"limits": [window(1, tz="Mars/Olympus")]}}),
        ("SG001", "reason", {"policy": SMALL, "reason": "x" * 1_025}),
        ("SG003", "revision", {"policy": SMALL, "revision": 99}),
        ("SG002", "scope", {"policy": SMALL, "scope": "endpoint:nobody"}),
    ]
    for code, field, arguments in refusals:
        with refused(sql, code, field):
            sql.call("set_admission_policy", queue="q", **arguments)
    for verb in ("pause_queue", "resume_queue", "reset_usage", "clear_admission_policy"):
        with refused(sql, "SG001", "reason"):
            sql.call(verb, queue="q", reason="x" * 1_025)
    with sql.transaction():
        sql.call("set_admission_policy", queue="q", policy=SMALL)
    assert audit(sql) == known
    assert sql.call("budget_show", queue="q")["limits"][0]["max_claims_per_window"] == 9


def test_the_record_outlives_policy_and_jobs_and_is_told_newest_first(sql: Sql, people: People) -> None:
    govern(sql, "q", window(9))
    sql.call("clear_admission_policy", queue="q", reason="enough")
    for number in range(60):
        sql.call("set_admission_policy", queue="q", policy={"max_in_flight": number}, reason=f"{number}")
    page = sql.call("budget_audit", queue="q", limit=50)["audit"]
    assert [entry["reason"] for entry in page] == [f"{number}" for number in range(59, 9, -1)]
    assert len(sql.call("budget_audit", queue="q", limit=200)["audit"]) == 62
    assert [entry["after"]["revision"] for entry in page[:3]] == [61, 60, 59]
