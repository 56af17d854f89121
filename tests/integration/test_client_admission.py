"""Budgets through the clients: what is set, what a closed queue answers, and what is told about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate import (
    Client,
    Conflict,
    Deferral,
    Deferred,
    FinishItem,
    InvalidArgument,
    NewJob,
    NotFound,
    SyncClient,
    Window,
    WindowLimit,
)
from tests.conftest import Connect, Connection

pytestmark = pytest.mark.usefixtures("midweek")

DAY = {"period": "day", "tz": "UTC", "start": "00:00"}


def per_day(number: int, **more: Any) -> dict[str, Any]:
    return {"limits": [{"max_claims_per_window": number, "window": DAY}], **more}


async def jobs(client: Client, number: int, queue: str = "q") -> list[int]:
    return [job.id for job in await client.enqueue_many([NewJob(queue, at) for at in range(number)])]


async def test_a_budget_is_used_up_to_its_last_claim(client: Client) -> None:
    await jobs(client, 3)
    set_ = await client.set_policy("q", per_day(2, max_in_flight=5), reason="a quota")
    assert (set_.queue, set_.max_in_flight, set_.revision) == ("q", 5, 1)
    assert set_.limits == (WindowLimit(max_claims_per_window=2, window=Window(**DAY)),)
    answer = await client.claim("q", n=3)
    assert len(answer.claims) == 2
    (deferral,) = answer.deferred
    assert isinstance(deferral, Deferral)
    assert (deferral.queue, deferral.reason, deferral.pending, deferral.exact) == ("q", "window_exhausted", 1, True)
    (gate,) = deferral.all
    assert (gate.gate, gate.period, gate.limit, gate.used, gate.until) == (
        "window",
        "day",
        2,
        2,
        deferral.next_eligible_at,
    )
    midnight = answer.server_time.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    assert deferral.next_eligible_at == midnight
    again = await client.claim("q")
    assert (again.claims, again.busy) == ((), False)
    assert again.deferred[0].reason == "window_exhausted"


async def test_a_first_policy_is_open_when_it_is_answered_and_says_what_is_used(client: Client) -> None:
    await jobs(client, 3)
    await client.claim("q", n=2)
    set_ = await client.set_policy("q", per_day(5))
    assert (set_.opening, set_.awaited, set_.gates[0].used) == (False, (), 2)


async def test_a_first_policy_that_cannot_open_yet_says_whom_it_waits_for(client: Client, connect: Connect) -> None:
    await jobs(client, 3)
    early = await connect(autocommit=False, application_name="a slow claim")
    await early.execute("""select sluicegate.claim('[{"queues": ["q"]}]')""")
    set_ = await client.set_policy("q", per_day(5))
    assert set_.opening
    (awaited,) = set_.awaited
    assert (awaited.pid, awaited.application) == (early.info.backend_pid, "a slow claim")
    assert awaited.since is not None
    assert (await client.claim("q")).busy
    assert (await client.open_admission("q")).opening
    await early.commit()
    opened = await client.open_admission("q")
    assert (opened.opening, opened.awaited, opened.gates[0].used) == (False, (), 1)


async def test_a_claim_under_a_policy_is_told_what_is_left(client: Client) -> None:
    await jobs(client, 1)
    await client.set_policy("q", per_day(7))
    (claim,) = (await client.claim("q")).claims
    assert (claim.admission["max_claims_per_window"], claim.admission["used"], claim.admission["remaining"]) == (
        7,
        1,
        6,
    )
    (limit,) = claim.admission["limits"]
    assert limit["period"] == "day"


async def test_a_job_of_a_closed_queue_is_deferred_and_untouched(client: Client) -> None:
    first, second = await jobs(client, 2)
    await client.set_policy("q", {"max_in_flight": 1})
    claim = await client.claim_job(first)
    with pytest.raises(Deferred) as refused:
        await client.claim_job(second)
    error = refused.value
    assert (error.queue, error.reason, error.exact) == ("q", "in_flight_full", False)
    assert error.next_eligible_at is not None
    assert error.next_eligible_at > claim.lease_expires_at
    assert error.all[0]["gate"] == "in_flight"
    said = error.to_dict()
    assert (said["code"], said["reason"], said["pending"]) == ("deferred", "in_flight_full", 1)
    row = (await client.get_job(second)).job
    assert (row.state, row.attempt, row.attempts_total) == ("pending", 0, 0)
    await client.complete(claim)
    assert (await client.claim_job(second)).job_id == second


async def test_raising_lowering_and_clearing_hold_from_the_next_claim_on(client: Client) -> None:
    await jobs(client, 5)
    await client.set_policy("q", per_day(1))
    assert len((await client.claim("q", n=5)).claims) == 1
    await client.patch_policy("q", per_day(3))
    assert len((await client.claim("q", n=5)).claims) == 2
    lowered = await client.patch_policy("q", per_day(2))
    (gate,) = lowered.gates
    assert (gate.used, gate.limit, gate.closed) == (3, 2, True)
    assert (await client.claim("q")).deferred[0].reason == "window_exhausted"
    assert (await client.clear_policy("q", reason="no more")).status == "ungoverned"
    assert len((await client.claim("q", n=5)).claims) == 2
    with pytest.raises(NotFound):
        await client.clear_policy("q")


async def test_a_patch_changes_what_it_names(client: Client) -> None:
    await client.set_policy("q", per_day(3, max_in_flight=2))
    patched = await client.patch_policy("q", {"max_in_flight": None})
    assert patched.max_in_flight is None
    assert [limit.max_claims_per_window for limit in patched.limits] == [3]
    # What was answered can be sent again as it is.
    same = await client.patch_policy("q", {"limits": patched.limits})
    assert same.limits == patched.limits


async def test_two_editors_do_not_overwrite_each_other(client: Client) -> None:
    await client.set_policy("q", per_day(3), revision=0)
    await client.patch_policy("q", per_day(4), revision=1)
    with pytest.raises(Conflict, match="revision 2"):
        await client.patch_policy("q", per_day(5), revision=1)


async def test_pause_and_resume(client: Client) -> None:
    await jobs(client, 1)
    until = datetime.now(UTC) + timedelta(hours=1)
    paused = await client.pause("q", reason="the provider is down", until=until)
    assert (paused.paused, paused.paused_reason, paused.paused_until) == (True, "the provider is down", until)
    assert paused.status == "paused"
    (deferral,) = (await client.claim("q")).deferred
    assert (deferral.reason, deferral.next_eligible_at, deferral.exact) == ("paused", until, True)
    assert (await client.resume("q")).status == "ungoverned"
    assert len((await client.claim("q")).claims) == 1
    with pytest.raises(Conflict):
        await client.resume("q")


async def test_a_reset_forgives_and_hides_nothing(client: Client) -> None:
    await jobs(client, 2)
    await client.set_policy("q", per_day(1))
    await client.claim("q")
    reset = await client.reset_usage("q", period="day", reason="the provider gave it back")
    assert [gate.used for gate in reset.gates] == [0]
    with pytest.raises(Conflict):
        await client.reset_usage("q")
    assert len((await client.claim("q")).claims) == 1


async def test_what_is_told_about_a_budget(client: Client) -> None:
    await jobs(client, 3)
    await client.set_policy("q", per_day(1), reason="first")
    answer = await client.claim("q")
    await client.finish_many([FinishItem.failed(answer.claims[0], "no", retry_in_seconds=0)])
    budget = await client.budget("q")
    assert (budget.scope, budget.status, budget.charged_for_retries) == (client.scope, "window_exhausted", 0)
    assert (budget.backlog.pending, budget.backlog.exact) == (3, True)
    assert budget.next_boundary_at == budget.gates[0].until
    (status,) = (await client.admission_status()).queues
    assert (status.queue, status.status, status.pending) == ("q", "window_exhausted", 3)
    (entry,) = (await client.budget_audit("q")).audit
    assert (entry.verb, entry.reason, entry.before) == ("set", "first", None)
    rehearsal = await client.rehearse("q", per_day(0))
    assert (rehearsal.claims, rehearsal.never) == (1, 1)
    assert [day.deferred for day in rehearsal.per_day] == [1]


async def test_a_job_is_explained(client: Client) -> None:
    first, second, third = await jobs(client, 3)
    await client.set_policy("q", per_day(1))
    await client.claim("q")
    told = await client.explain(third)
    assert (told.job.id, told.waits_for, told.position) == (third, "admission", 1)
    assert (told.verdict.state, told.verdict.reason) == ("deferred", "window_exhausted")
    assert told.command is not None
    assert told.expected_at is not None
    assert (await client.explain(first)).waits_for == "running"
    coming = await client.next_jobs("q")
    assert [(job.id, job.status, job.reason) for job in coming.jobs] == [
        (second, "deferred", "window_exhausted"),
        (third, "deferred", "window_exhausted"),
    ]
    with pytest.raises(NotFound):
        await client.explain(4711)


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({}, "policy"),
        ("no mapping", "policy"),
        ({"max_in_flight": float("nan")}, "policy"),
        ({"max_in_flight": -1}, "max_in_flight"),
        ({"most": 1}, "most"),
        ({"limits": [{"max_claims_per_window": 1, "window": {**DAY, "tz": "Mars/Olympus"}}]}, "window.tz"),
        ({"limits": [{"max_claims_per_window": 1, "window": {**DAY, "start": "24:00"}}]}, "window.start"),
    ],
)
async def test_a_malformed_policy_changes_nothing(client: Client, policy: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.set_policy("q", policy)
    assert refused.value.field == field
    assert (await client.admission_status()).queues == ()


async def test_a_queue_without_a_policy_is_ungoverned(client: Client, db: Connection) -> None:
    await jobs(client, 1)
    (claim,) = (await client.claim("q")).claims
    assert claim.admission is None
    (status,) = (await client.admission_status("q")).queues
    assert (status.status, status.verdict, status.gates) == ("ungoverned", None, ())
    assert (await (await db.execute("select count(*) from sluicegate.policy")).fetchone()) == (0,)
    with pytest.raises(NotFound):
        await client.budget("nowhere")


def test_the_synchronous_client_has_the_same_verbs(dsn: str) -> None:
    with SyncClient(dsn) as client:
        made = client.enqueue("q")
        assert not client.set_policy("q", {"max_in_flight": 0}).opening
        assert not client.open_admission("q").opening
        with pytest.raises(Deferred) as refused:
            client.claim_job(made.id)
        assert refused.value.reason == "paused"
        assert client.budget("q").status == "paused"


def deep(levels: int) -> list[object]:
    found: list[object] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "policy",
    [
        {"limits": deep(5000)},
        {"paused": True, "paused_reason": "a\0b"},
        {"paused": True, "paused_reason": "\ud800"},
        {"max_in_flight": 1, "\ud800": 1},
        {"max_in_flight": float("nan")},
        {"max_in_flight": 1, "paused_reason": "x" * 2_000_000},
        {"max_in_flight": object()},
        {"max_in_flight": 1, 2: 3},
    ],
    ids=lambda policy: str(sorted(map(str, policy)))[:40],
)
async def test_a_policy_that_is_no_json_to_keep_is_refused_before_it_is_sent(
    client: Client, policy: dict[str, object]
) -> None:
    for call in (client.set_policy("q", policy), client.patch_policy("q", policy), client.rehearse("q", policy)):
        with pytest.raises(InvalidArgument) as refused:
            await call
        assert (refused.value.field or "").startswith("policy")
    with pytest.raises(NotFound):
        await client.budget("q")
