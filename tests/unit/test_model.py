"""The model is the API's own JSON, both ways."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sluicegate.model import (
    Claim,
    ClaimAnswer,
    FinishItem,
    JobDetail,
    JobPage,
    JobRow,
    Lease,
    NewJob,
    QueueStats,
)
from sluicegate.model._record import Record

CLAIM = {
    "job": {
        "id": 7,
        "queue": "mail",
        "kind": "welcome",
        "title": "Ada",
        "payload": {"to": ["ada@example.org"]},
        "priority": -3,
        "tags": ["eu", "new"],
        "parent_id": None,
        "attempt": 2,
        "max_attempts": 5,
    },
    "attempt_id": 91,
    "attempt_seq": 3,
    "attempts_total": 3,
    "prior_attempts": [
        {
            "seq": 2,
            "opened_at": "2030-01-01T10:00:00+00:00",
            "ended_at": "2030-01-01T10:00:05.250000+00:00",
            "outcome": "failed",
            "disposition": "retry_scheduled",
            "error": "no route",
        }
    ],
    "lease_token": "secret-token",
    "lease_expires_at": "2030-01-01T10:05:00+00:00",
    "account": None,
    "admission": None,
}
ROW = {
    "id": 7,
    "queue": "mail",
    "state": "claimed",
    "class": "mid",
    "priority": 10,
    "run_at": "2030-01-01T10:00:00+00:00",
    "kind": "",
    "title": "",
    "tags": [],
    "parent_id": 3,
    "dedup_key": "k",
    "attempt": 1,
    "max_attempts": 5,
    "attempts_total": 1,
    "worker": "w",
    "lease_expires_at": "2030-01-01T10:05:00+00:00",
    "dead_letter": False,
    "cancel_requested": False,
    "note": None,
    "payload_size": 4,
    "created_at": "2030-01-01T09:00:00+00:00",
    "claimed_at": "2030-01-01T10:00:00+00:00",
    "finished_at": None,
    "error": None,
    "admission": None,
}
ATTEMPT = {
    "id": 91,
    "seq": 1,
    "attempt": 1,
    "opened_at": "2030-01-01T10:00:00+00:00",
    "worker": "w",
    "ended_at": None,
    "outcome": None,
    "disposition": None,
    "started": None,
    "account": None,
    "error": None,
    "summary": None,
}
ANSWER = {
    "claims": [CLAIM],
    "deferred": [],
    "empty": False,
    "gone": [{"job_id": 8, "state": "done"}],
    "replayed": True,
    "finished": [
        {
            "job_id": 6,
            "status": "ok",
            "replayed": False,
            "state": "scheduled",
            "dead_letter": False,
            "run_at": "2030-01-01T10:00:30+00:00",
            "attempt": 1,
            "max_attempts": 5,
            "message": None,
        }
    ],
    "server_time": "2030-01-01T10:00:00+00:00",
    "error": {
        "code": "not_found",
        "message": "There is no scope.",
        "field": None,
        "next_step": None,
        "outcome_unknown": False,
    },
    "held": ["mail"],
}
STATS = {
    "queues": [
        {
            "queue": "mail",
            "scheduled": 1,
            "due": 1,
            "pending": 2,
            "claimed": 3,
            "lapsed": 1,
            "done": 4,
            "failed": 5,
            "cancelled": 6,
            "oldest_pending_at": None,
            "inexact": ["done"],
        }
    ],
    "server_time": "2030-01-01T10:00:00+00:00",
    "counted_to": 1000,
}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Claim, CLAIM),
        (ClaimAnswer, ANSWER),
        (JobPage, {"jobs": [ROW], "next_before_id": 7}),
        (
            JobDetail,
            {
                "job": {**ROW, "payload": [1], "result": None, "backoff": {"base_seconds": 1, "max_seconds": 9}},
                "attempts": [ATTEMPT],
            },
        ),
        (QueueStats, STATS),
    ],
)
def test_what_the_database_says_is_read_and_said_again_unchanged(kind: type[Record], data: dict[str, object]) -> None:
    said = kind.from_dict(data).to_dict()
    assert said == data
    assert json.loads(json.dumps(said)) == data


def test_moments_are_aware_and_in_utc_whatever_zone_they_came_in() -> None:
    claim = Claim.from_dict({**CLAIM, "lease_expires_at": "2030-01-01T12:05:00.5+02:00"})
    assert claim.lease_expires_at == datetime(2030, 1, 1, 10, 5, 0, 500_000, tzinfo=UTC)
    assert claim.lease_expires_at.tzinfo is UTC


def test_keys_of_a_newer_database_are_ignored() -> None:
    assert Claim.from_dict({**CLAIM, "introduced_later": {"x": 1}}) == Claim.from_dict(CLAIM)


def test_a_missing_required_key_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(TypeError, match="attempt_id"):
        Claim.from_dict({key: value for key, value in CLAIM.items() if key != "attempt_id"})


@pytest.mark.parametrize(
    "holder", [Claim.from_dict(CLAIM), Lease(7, "secret-token"), FinishItem(7, "secret-token", "completed")]
)
def test_a_lease_token_is_never_shown_by_repr(holder: object) -> None:
    assert "secret-token" not in repr(holder)


def test_the_field_for_class_has_an_underscore_and_its_key_has_none() -> None:
    row = JobRow.from_dict(ROW)
    assert row.class_ == "mid"
    assert row.to_dict()["class"] == "mid"


def test_an_answer_without_anything_that_is_not_empty_is_busy() -> None:
    nothing = {**ANSWER, "claims": [], "gone": [], "error": None}
    assert ClaimAnswer.from_dict(nothing).busy
    assert not ClaimAnswer.from_dict({**nothing, "empty": True}).busy
    assert not ClaimAnswer.from_dict({**nothing, "claims": [CLAIM]}).busy
    assert not ClaimAnswer.from_dict(ANSWER).busy


def test_a_new_job_is_written_as_the_api_takes_it() -> None:
    job = NewJob("mail", {"a": 1}, run_at=datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), tags=("x",))
    assert job.to_dict() == {
        "queue": "mail",
        "payload": {"a": 1},
        "kind": "",
        "title": "",
        "priority": None,
        "run_at": "2030-01-01T10:00:00+00:00",
        "dedup_key": None,
        "tags": ["x"],
        "parent_id": None,
        "max_attempts": 5,
        "backoff": None,
    }


def test_finish_items_take_a_claim_or_a_lease_alike() -> None:
    claim = Claim.from_dict(CLAIM)
    assert FinishItem.completed(claim, [1]) == FinishItem.completed(Lease(7, "secret-token"), [1])
    assert FinishItem.released(claim, started=False).outcome == "released"
    assert FinishItem.failed(claim, "boom", retry=False).error == "boom"
