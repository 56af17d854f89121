"""Any JSON at all: a verb answers or raises one of our own errors with a field, and a refused call changes nothing."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.sql.verbs import Sql, check_ledger
from tests.support.counts import rounds

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.0, 1.5, -0.0, 1e-300, 10**18, 2**63 - 1, 2**63, -(2**63), 10**40, 10**400,
    "", " ", "0", "1", "-1", "null", "true", "NaN", "Infinity", "-infinity", "now", "epoch", "allballs", "today",
    "q", "a b", "a/b", "é", "\u200b", "\U0001f600", "'", '"', "\\", "%s", "{}", "[1,2]", "x" * 129, "x" * 600,
    "2030-01-01T00:00:00Z", "2030-13-01T00:00:00Z", "2030-01-01", "99999-01-01T00:00:00Z", "2030-01-01T00:00:00+99:99",
    "0000-01-01T00:00:00Z", "2030-02-30T12:00:00Z", "2030-01-01T24:00:00Z", "2030-01-01T00:00:60Z", "endpoint:default",
    "endpoint:default@local", "team:x", "completed", "failed", "released", [], {}, [None], [[]], {"a": 1}, ["q"], ["q", "q"],
    {"base_seconds": 0}, {"base_seconds": 1e300}, {"base_seconds": 1, "max_seconds": 0}, ["a"] * 40, [1],
]  # fmt: skip

FIELDS = {
    "jobs": ("queue", "payload", "kind", "title", "priority", "run_at", "dedup_key", "tags", "parent_id", "max_attempts", "backoff"),
    "requests": ("scope", "queues", "n", "lease_seconds", "request_id"),
    "finished": (
        "job_id", "lease_token", "outcome", "result", "summary", "error", "retry_in_seconds", "retry", "reason", "not_before",
        "started", "scope",
    ),
    "items": ("job_id", "lease_token", "lease_seconds", "shorten", "note"),
}  # fmt: skip


class Fuzz:
    def __init__(self, sql: Sql, seed: int) -> None:
        self.sql = sql
        self.random = random.Random(seed)
        self.claims: list[dict[str, Any]] = []

    def plain(self, argument: str) -> dict[str, Any]:
        """An object that would be accepted."""
        claim = self.random.choice(self.claims or [{"job": {"id": 1}, "lease_token": "t"}])
        held = {"job_id": claim["job"]["id"], "lease_token": claim["lease_token"]}
        plain: dict[str, dict[str, Any]] = {
            "jobs": {"queue": "q"},
            "requests": {"queues": ["q"]},
            "finished": {**held, "outcome": self.random.choice(["completed", "failed", "released"])},
            "items": held,
        }
        return plain[argument]

    def object(self, argument: str) -> Any:
        if self.random.random() < 0.05:
            return self.random.choice(ODD)
        made = self.plain(argument)
        for _ in range(self.random.randint(0, 3)):
            name = (
                self.random.choice(FIELDS[argument])
                if self.random.random() < 0.97
                else self.random.choice(["x", "Queue"])
            )
            made[name] = self.random.choice(ODD)
        return made

    def objects(self, argument: str) -> Any:
        if self.random.random() < 0.03:
            return self.random.choice(ODD)
        return [self.object(argument) for _ in range(self.random.randint(0, 4))]

    def step(self) -> None:
        match self.random.randrange(3):
            case 0:
                self.sql.call("enqueue_many", jobs=self.objects("jobs"))
            case 1:
                self.sql.call("heartbeat_many", items=self.objects("items"))
            case _:
                answer = self.sql.call("claim", requests=self.objects("requests"), finished=self.objects("finished"))
                self.look_at(answer)

    def look_at(self, answer: dict[str, Any]) -> None:
        for response in answer["responses"]:
            self.claims = (self.claims + response["claims"])[-30:]
            if error := response["error"]:
                assert error["sqlstate"].startswith("SG"), error
                assert error["field"], error
        for finish in answer["finished"]:
            assert finish["status"] in ("ok", "conflict", "not_found", "invalid_argument"), finish
            if finish["status"] == "invalid_argument":
                assert finish["field"], finish


def refusal(call: Callable[[], None]) -> psycopg.Error | None:
    try:
        call()
    except psycopg.Error as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(rounds(2, 8)))
def test_a_verb_answers_or_names_the_field_whatever_it_is_sent(sql: Sql, seed: int) -> None:
    fuzz = Fuzz(sql, seed)
    sql.enqueue_many([{"queue": "q"}] * 20)
    outcomes: Counter[str] = Counter()
    for _ in range(rounds(200, 1000)):
        before = sql.contents()
        error = refusal(fuzz.step)
        if error is None:
            outcomes["ok"] += 1
            continue
        diag = error.diag
        assert (diag.sqlstate or "").startswith("SG"), error
        assert diag.message_detail, error
        assert diag.message_hint, error
        assert sql.contents() == before, error
        outcomes[diag.sqlstate or ""] += 1
    assert outcomes["ok"] > 20
    assert outcomes["SG001"] > 20
    check_ledger(sql)
