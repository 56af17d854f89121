"""Bad input is refused before anything is sent, by an error that names the field."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sluicegate.errors import InvalidArgument
from sluicegate.model import Backoff, FinishItem, Lease, NewJob
from sluicegate.ops import requests
from sluicegate.ops.validate import parsed_moment, shown

SCOPE = "endpoint:default"
LEASE = Lease(7, "token")


def enqueue(**fields: Any) -> requests.Arguments:
    return requests.enqueue(NewJob(**{"queue": "q", **fields}), scope=SCOPE, request_id=None)


def claim(*queues: Any, **fields: Any) -> requests.Arguments:
    terms = {"n": 1, "lease_seconds": None, "request_id": None, "finished": (), "worker": None, "scope": SCOPE}
    return requests.claim(queues or ("q",), **{**terms, **fields})


def fail(**fields: Any) -> requests.Arguments:
    terms = {"error": "e", "retry_in_seconds": None, "retry": True, "summary": None, "scope": SCOPE}
    return requests.fail(LEASE, **{**terms, **fields})


def heartbeat(**fields: Any) -> requests.Arguments:
    return requests.heartbeat(
        LEASE, **{"lease_seconds": None, "shorten": False, "note": None, "scope": SCOPE, **fields}
    )


def refused(call: Callable[[], object]) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert caught.value.field is not None
    assert caught.value.next_step
    str(caught.value).encode()  # a message can always be printed
    return caught.value


BAD_NAMES = [
    "",
    "a b",
    "a\tb",
    "a\nb",
    "a/b",
    "a\u00a0b",
    "a\u2003b",
    "a\u3000b",
    "a\u2028b",
    "a\u0085b",
    "a\x07b",
    "a\x7fb",
    "x" * 129,
    "é" * 65,
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "a\0b", "a\ud800b", None, 5, b"q", ["q"]])
def test_a_queue_name_is_1_to_128_bytes_without_white_space_controls_and_slash(name: Any) -> None:
    assert refused(lambda: enqueue(queue=name)).field == "queue"
    assert refused(lambda: claim("ok", name)).field == "queues[1]"


@pytest.mark.parametrize("name", ["q", "x" * 128, "é" * 64, "mail.eu-1:low", "日本", "🚀"])
def test_other_queue_names_are_taken_as_they_are(name: str) -> None:
    assert enqueue(queue=name)["queue"] == name


@pytest.mark.parametrize("priority", [-32769, 32768, 10**30, 1.5, 3.0, True, "3", float("nan")])
def test_a_priority_is_a_whole_smallint(priority: Any) -> None:
    assert refused(lambda: enqueue(priority=priority)).field == "priority"


@pytest.mark.parametrize("priority", [-32768, 0, 32767, None])
def test_any_smallint_is_a_priority(priority: int | None) -> None:
    assert enqueue(priority=priority)["priority"] == priority


def test_a_naive_run_at_is_refused_and_shown() -> None:
    error = refused(lambda: enqueue(run_at=datetime(2030, 1, 31, 9, 30)))  # noqa: DTZ001
    assert error.field == "run_at"
    assert "2030-01-31T09:30:00" in error.message
    assert "without a zone" in error.message


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        "2030-01-01T00:00:00Z",
        0,
    ],
)
def test_a_run_at_outside_the_years_1_to_9999_or_of_another_type_is_refused(moment: Any) -> None:
    assert refused(lambda: enqueue(run_at=moment)).field == "run_at"


@pytest.mark.parametrize(
    "text",
    [
        "infinity",
        "-infinity",
        "10000-01-01T00:00:00Z",
        "+10000-01-01",
        "tomorrow",
        "2030-01-01T00:00:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_a_time_given_as_text_is_finite_has_a_zone_and_a_year_up_to_9999(text: str) -> None:
    assert refused(lambda: parsed_moment(text, "run_at")).field == "run_at"


def test_a_time_is_sent_in_utc() -> None:
    assert enqueue(run_at=parsed_moment("2030-01-31T09:30:00+05:30", "run_at"))["run_at"] == "2030-01-31T04:00:00+00:00"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("kind", "k" * 129, "kind"),
        ("kind", None, "kind"),
        ("kind", "a\0", "kind"),
        ("title", "é" * 257, "title"),
        ("title", "\udfff", "title"),
        ("dedup_key", "", "dedup_key"),
        ("dedup_key", "k" * 513, "dedup_key"),
        ("tags", ["t"] * 33, "tags"),
        ("tags", "eu", "tags"),
        ("tags", 5, "tags"),
        ("tags", ["ok", "t" * 65], "tags[1]"),
        ("tags", ["ok", ""], "tags[1]"),
        ("tags", [None], "tags[0]"),
        ("parent_id", 0, "parent_id"),
        ("parent_id", 2**63, "parent_id"),
        ("parent_id", "7", "parent_id"),
        ("max_attempts", 0, "max_attempts"),
        ("max_attempts", 1001, "max_attempts"),
        ("max_attempts", True, "max_attempts"),
        ("backoff", {"base_seconds": 1}, "backoff"),
        ("backoff", Backoff(-1, 5), "backoff.base_seconds"),
        ("backoff", Backoff(1, float("inf")), "backoff.max_seconds"),
    ],
)
def test_every_field_of_a_job_is_checked_by_name(field: str, value: Any, named: str) -> None:
    assert refused(lambda: enqueue(**{field: value})).field == named


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "k" * 128),
        ("title", "é" * 256),
        ("dedup_key", "k" * 512),
        ("tags", ["t" * 64] * 32),
        ("parent_id", 2**63 - 1),
        ("max_attempts", 1000),
    ],
)
def test_the_largest_allowed_values_are_sent(field: str, value: Any) -> None:
    assert enqueue(**{field: value})[field] == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 1001),
        ("n", 1.0),
        ("n", True),
        ("lease_seconds", 0),
        ("lease_seconds", 86_401),
        ("lease_seconds", 1.5),
        ("lease_seconds", True),
        ("request_id", ""),
        ("request_id", "r" * 129),
        ("request_id", "r\0"),
        ("worker", "w" * 129),
        ("worker", "\ud800"),
    ],
)
def test_every_term_of_a_claim_is_checked_by_name(field: str, value: Any) -> None:
    assert refused(lambda: claim(**{field: value})).field == field


def test_a_claim_names_1_to_1000_queues() -> None:
    assert (
        refused(
            lambda: requests.claim((), n=1, lease_seconds=None, request_id=None, finished=(), worker=None, scope=SCOPE)
        ).field
        == "queues"
    )
    assert refused(lambda: claim(*["q"] * 1001)).field == "queues"


@pytest.mark.parametrize(
    "scope",
    [
        "",
        "default",
        "endpoint:",
        "endpoint:A",
        "endpoint:a b",
        "endpoint:a@",
        "team:a@b",
        "queue:a",
        "endpoint:" + "a" * 64,
        None,
        "endpoint:a\n",
    ],
)
def test_a_scope_is_an_endpoint_or_a_team(scope: Any) -> None:
    assert refused(lambda: requests.queue_stats(scope=scope)).field == "scope"


@pytest.mark.parametrize("scope", ["endpoint:default", "endpoint:ci.runner-1@acme", "team:acme_2"])
def test_scopes_in_text_form_are_taken(scope: str) -> None:
    assert requests.queue_stats(scope=scope) == {"scope": scope}


@pytest.mark.parametrize("job_id", [0, -1, 2**63, 1.0, "1", True, None])
def test_a_job_id_is_a_positive_bigint(job_id: Any) -> None:
    assert refused(lambda: requests.get_job(job_id, attempts_limit=20, scope=SCOPE)).field == "job_id"
    assert refused(lambda: requests.complete(Lease(job_id, "token"), None, summary=None, scope=SCOPE)).field == "job_id"


@pytest.mark.parametrize("lease", [7, None, "token", (7, "token")])
def test_a_lease_is_a_claim_or_a_lease(lease: Any) -> None:
    assert refused(lambda: requests.complete(lease, None, summary=None, scope=SCOPE)).field == "lease"


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), 31_536_001, 10**400, True, "5"])
def test_a_retry_is_within_a_year(seconds: Any) -> None:
    assert refused(lambda: fail(retry_in_seconds=seconds)).field == "retry_in_seconds"


def test_what_cannot_be_shown_is_refused_all_the_same() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    assert shown(10**5000) == "something of type int"
    assert refused(lambda: requests.get_job(10**5000, attempts_limit=20, scope=SCOPE)).field == "job_id"
    assert refused(lambda: fail(retry=Shy())).field == "retry"


def test_flags_are_bools_and_not_what_looks_like_one() -> None:
    assert refused(lambda: fail(retry="no")).field == "retry"
    assert refused(lambda: heartbeat(shorten=1)).field == "shorten"


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
        ({"state": "waiting"}, "state"),
        ({"before_id": 0}, "before_id"),
        ({"queue": "a b"}, "queue"),
    ],
)
def test_the_terms_of_a_list_are_checked_by_name(terms: dict[str, Any], field: str) -> None:
    every = {"queue": None, "state": None, "kind": None, "limit": 50, "before_id": None, "scope": SCOPE}
    assert refused(lambda: requests.list_jobs(**{**every, **terms})).field == field


def test_a_bulk_enqueue_names_the_job_and_the_field() -> None:
    def many(*jobs: Any) -> requests.Arguments:
        return requests.enqueue_many(jobs, scope=SCOPE, request_id=None)

    good = NewJob("q")
    assert refused(lambda: many(good, good, good, NewJob("q", "\0"))).field == "jobs[3].payload"
    assert refused(lambda: many(good, NewJob("a b"))).field == "jobs[1].queue"
    assert refused(lambda: many(good, {"queue": "q"})).field == "jobs[1]"
    assert refused(many).field == "jobs"
    assert refused(lambda: many(*[good] * 10_001)).field == "jobs"
    assert refused(lambda: many(*[NewJob("q", "x" * 1_000_000)] * 68)).field == "jobs"


def test_a_bad_finish_names_its_place() -> None:
    good = FinishItem.completed(LEASE)
    assert refused(lambda: claim(finished=[good, FinishItem.completed(LEASE, object())])).field == "finished[1].result"
    assert refused(lambda: claim(finished=[good, "done"])).field == "finished[1]"
    naive = FinishItem.released(LEASE, not_before=datetime(2030, 1, 1))  # noqa: DTZ001
    assert refused(lambda: claim(finished=[naive])).field == "finished[0].not_before"


def test_a_backoff_without_a_longest_wait_sends_none() -> None:
    def sent(backoff: Backoff) -> Any:
        return json.loads(enqueue(backoff=backoff)["backoff"])

    assert sent(Backoff(base_seconds=3600)) == {"base_seconds": 3600}
    assert sent(Backoff(3600, 7200)) == {"base_seconds": 3600, "max_seconds": 7200}
    assert Backoff(base_seconds=3600).to_dict() == {"base_seconds": 3600}


def test_the_size_of_a_bulk_is_counted_in_bytes() -> None:
    jobs = [NewJob("q", letter * 500_000) for letter in "aä" for _ in range(80)]  # 40 and 80 MB, as many characters

    def many(*some: NewJob) -> requests.Arguments:
        return requests.enqueue_many(some, scope=SCOPE, request_id=None)

    many(*jobs[:80])
    assert refused(lambda: many(*jobs[80:])).field == "jobs"
