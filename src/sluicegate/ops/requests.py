"""Calls, checked and shaped: each function gives the arguments of one SQL function, or raises InvalidArgument."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sluicegate.errors import InvalidArgument
from sluicegate.model import Claim, ClaimRequest, FinishItem, Lease, NewJob
from sluicegate.ops import validate
from sluicegate.ops.json_text import encode
from sluicegate.ops.text import MAX_ERROR_BYTES, MAX_SUMMARY_BYTES, clipped, storable

Arguments = Mapping[str, Any]

MAX_JOBS = 10_000
MAX_BULK_BYTES = 67_108_864
MAX_FINISHES = 10_000
MAX_REQUESTS = 100
MAX_LEASE_SECONDS = 86_400
MAX_RETRY_SECONDS = 31_536_000


def enqueue(job: NewJob, *, scope: str, request_id: str | None) -> Arguments:
    fields, payload = _job(job, "")
    backoff = fields["backoff"]
    return {
        **fields,
        "payload": payload,
        "backoff": None if backoff is None else json.dumps(backoff),
        "request_id": _request_id(request_id),
        "scope": validate.scope(scope),
        "wake": True,
    }


def enqueue_many(jobs: Sequence[Any], *, scope: str, request_id: str | None) -> Arguments:
    if not 1 <= len(jobs) <= MAX_JOBS:
        validate.refuse(
            "jobs", f"holds {len(jobs):,} jobs", f"One call takes 1 to {MAX_JOBS:,}; send more in several calls."
        )
    texts = []
    room = MAX_BULK_BYTES
    for index, job in enumerate(jobs):
        where = f"jobs[{index}]"
        if not isinstance(job, NewJob):
            validate.refuse(where, f"is {validate.shown(job)}, not a NewJob", 'Pass sluicegate.NewJob("queue", …).')
        fields, payload = _job(job, f"{where}.")
        # The payload is JSON already; writing it into the object saves encoding it a second time.
        texts.append(f'{{"payload": {payload}, {json.dumps(fields)[1:]}')
        room -= len(payload) if payload.isascii() else len(payload.encode())
        if room < 0:
            validate.refuse("jobs", "holds over 64 MiB of payloads", "Send the jobs in several calls.")
    return {
        "jobs": f"[{', '.join(texts)}]",
        "request_id": _request_id(request_id),
        "scope": validate.scope(scope),
        "wake": True,
    }


def _job(job: NewJob, where: str) -> tuple[dict[str, Any], str]:
    """The fields of a job without its payload, and the payload as JSON text."""
    fields = {
        "queue": validate.queue_name(job.queue, f"{where}queue"),
        "kind": validate.text(job.kind, f"{where}kind", 128),
        "title": validate.text(job.title, f"{where}title", 512),
        "priority": None if job.priority is None else validate.whole(job.priority, f"{where}priority", -32768, 32767),
        "run_at": None if job.run_at is None else validate.moment(job.run_at, f"{where}run_at"),
        "dedup_key": None if job.dedup_key is None else validate.text(job.dedup_key, f"{where}dedup_key", 512, least=1),
        "tags": validate.tags(job.tags, f"{where}tags"),
        "parent_id": None if job.parent_id is None else validate.row_id(job.parent_id, f"{where}parent_id"),
        "max_attempts": validate.whole(job.max_attempts, f"{where}max_attempts", 1, 1000),
        "backoff": None if job.backoff is None else validate.backoff(job.backoff, f"{where}backoff"),
    }
    return fields, encode(job.payload, f"{where}payload")


def claim_many(
    asks: Sequence[ClaimRequest], *, finished: Iterable[FinishItem], worker: str | None, scope: str, wait: bool
) -> Arguments:
    if not 1 <= len(asks) <= MAX_REQUESTS:
        validate.refuse("requests", f"holds {len(asks):,} claims", f"One call takes 1 to {MAX_REQUESTS:,}.")
    return {
        "requests": json.dumps([_request(ask, scope, f"requests[{index}].") for index, ask in enumerate(asks)]),
        "worker": _worker(worker),
        "finished": _finished(finished, scope),
        "wait": validate.flag(wait, "wait"),
    }


def claim(
    queues: Sequence[str],
    *,
    n: int,
    lease_seconds: int | None,
    request_id: str | None,
    finished: Iterable[FinishItem],
    worker: str | None,
    scope: str,
) -> Arguments:
    ask = ClaimRequest(tuple([queues] if isinstance(queues, str) else queues), n, lease_seconds, request_id)
    return {
        "requests": json.dumps([_request(ask, scope, "")]),
        "worker": _worker(worker),
        "finished": _finished(finished, scope),
        "wait": True,
    }


def finish_many(items: Iterable[FinishItem], *, scope: str, wait: bool) -> Arguments:
    """Finishes without a claim: a claim of nothing."""
    finished = _finished(items, validate.scope(scope))
    return {"requests": "[]", "worker": None, "finished": finished, "wait": validate.flag(wait, "wait")}


def claim_job(
    job_id: int, *, lease_seconds: int | None, request_id: str | None, worker: str | None, scope: str
) -> Arguments:
    return {
        "job_id": validate.row_id(job_id, "job_id"),
        "lease_seconds": _lease_seconds(lease_seconds),
        "worker": _worker(worker),
        "request_id": _request_id(request_id),
        "scope": validate.scope(scope),
    }


def complete(lease: Claim | Lease, result: Any, *, summary: str | None, scope: str) -> Arguments:
    return {
        **_held(lease),
        "result": encode(result, "result", forgiving=True),
        "summary": _last_words(summary, "summary", MAX_SUMMARY_BYTES),
        "scope": validate.scope(scope),
    }


def fail(
    lease: Claim | Lease,
    error: str,
    *,
    retry_in_seconds: float | None,
    retry: bool,
    summary: str | None,
    scope: str,
) -> Arguments:
    return {
        **_held(lease),
        "error": _last_words(error, "error", MAX_ERROR_BYTES),
        "retry_in_seconds": _retry_in_seconds(retry_in_seconds, "retry_in_seconds"),
        "retry": validate.flag(retry, "retry"),
        "summary": _last_words(summary, "summary", MAX_SUMMARY_BYTES),
        "scope": validate.scope(scope),
    }


def release(
    lease: Claim | Lease, *, reason: str | None, not_before: datetime | None, started: bool, scope: str
) -> Arguments:
    return {
        **_held(lease),
        "reason": _last_words(reason, "reason", MAX_ERROR_BYTES),
        "not_before": None if not_before is None else validate.moment(not_before, "not_before"),
        "started": validate.flag(started, "started"),
        "scope": validate.scope(scope),
    }


def heartbeat(
    lease: Claim | Lease, *, lease_seconds: int | None, shorten: bool, note: str | None, scope: str
) -> Arguments:
    return {
        **_held(lease),
        "lease_seconds": _lease_seconds(lease_seconds),
        "shorten": validate.flag(shorten, "shorten"),
        "note": _last_words(note, "note", 512),
        "scope": validate.scope(scope),
    }


def heartbeat_many(
    leases: Iterable[Claim | Lease], *, lease_seconds: int | None, shorten: bool, scope: str
) -> Arguments:
    terms = {"lease_seconds": _lease_seconds(lease_seconds), "shorten": validate.flag(shorten, "shorten")}
    items = [{**_held(lease, f"leases[{index}]"), **terms} for index, lease in enumerate(leases)]
    if not 1 <= len(items) <= MAX_JOBS:
        validate.refuse("leases", f"holds {len(items):,} leases", f"One call takes 1 to {MAX_JOBS:,}.")
    return {"items": json.dumps(items), "scope": validate.scope(scope)}


def retry(job_id: int, *, scope: str) -> Arguments:
    return {"job_id": validate.row_id(job_id, "job_id"), "scope": validate.scope(scope)}


def cancel(job_id: int, *, reason: str | None, scope: str) -> Arguments:
    return {**retry(job_id, scope=scope), "reason": _last_words(reason, "reason", MAX_ERROR_BYTES)}


def reap(limit: int, *, scope: str) -> Arguments:
    return {"limit": validate.whole(limit, "limit", 1, 100_000), "scope": validate.scope(scope)}


def prune(job_days: int, keep_jobs: int, attempt_days: int, limit: int) -> Arguments:
    return {
        "job_days": validate.whole(job_days, "job_days", 0, 36_500),
        "keep_jobs": validate.whole(keep_jobs, "keep_jobs", 0, validate.MAX_ID),
        "attempt_days": validate.whole(attempt_days, "attempt_days", 32, 36_500),
        "limit": validate.whole(limit, "limit", 1, 1_000_000),
    }


def list_jobs(
    *, queue: str | None, state: str | None, kind: str | None, limit: int, before_id: int | None, scope: str
) -> Arguments:
    return {
        "queue": None if queue is None else validate.queue_name(queue),
        "state": None if state is None else validate.job_state(state),
        "kind": None if kind is None else validate.text(kind, "kind", 128),
        "limit": validate.whole(limit, "limit", 1, 200),
        "before_id": None if before_id is None else validate.row_id(before_id, "before_id"),
        "scope": validate.scope(scope),
    }


def get_job(job_id: int, *, attempts_limit: int, scope: str) -> Arguments:
    return {
        "job_id": validate.row_id(job_id, "job_id"),
        "attempts_limit": validate.whole(attempts_limit, "attempts_limit", 0, 50),
        "scope": validate.scope(scope),
    }


def queue_stats(*, scope: str) -> Arguments:
    return {"scope": validate.scope(scope)}


def _request(ask: ClaimRequest, scope: str, where: str) -> dict[str, Any]:
    return {
        "scope": validate.scope(scope),
        "queues": validate.queue_names(ask.queues),
        "n": validate.whole(ask.n, f"{where}n", 1, 1000),
        "lease_seconds": _lease_seconds(ask.lease_seconds),
        "request_id": _request_id(ask.request_id),
    }


def check_finish(item: FinishItem) -> None:
    """Raises InvalidArgument for what could not be sent; ``field`` is that of the item."""
    _finish(item, "finish", "")


def _finished(items: Iterable[FinishItem], scope: str) -> str:
    shaped = [_finish(item, f"finished[{index}]", scope) for index, item in enumerate(items)]
    if len(shaped) > MAX_FINISHES:
        validate.refuse("finished", f"holds {len(shaped):,} items", f"One call takes at most {MAX_FINISHES:,}.")
    return f"[{', '.join(shaped)}]"


def _finish(item: Any, where: str, scope: str) -> str:
    if not isinstance(item, FinishItem):
        validate.refuse(
            where,
            f"is {validate.shown(item)}, not a FinishItem",
            "Build it with FinishItem.completed, failed or released.",
        )
    fields: dict[str, Any] = {**_proof(item), "outcome": item.outcome, "scope": scope}
    # Most say no more than that. What is left out is null to the database, and true of retry and started.
    if item.summary is not None:
        fields["summary"] = _last_words(item.summary, f"{where}.summary", MAX_SUMMARY_BYTES)
    if item.error is not None:
        fields["error"] = _last_words(item.error, f"{where}.error", MAX_ERROR_BYTES)
    if item.retry_in_seconds is not None:
        fields["retry_in_seconds"] = _retry_in_seconds(item.retry_in_seconds, f"{where}.retry_in_seconds")
    if item.retry is not True:
        fields["retry"] = validate.flag(item.retry, f"{where}.retry")
    if item.reason is not None:
        fields["reason"] = _last_words(item.reason, f"{where}.reason", MAX_ERROR_BYTES)
    if item.not_before is not None:
        fields["not_before"] = validate.moment(item.not_before, f"{where}.not_before")
    if item.started is not True:
        fields["started"] = validate.flag(item.started, f"{where}.started")
    if item.account is not None:
        fields["account"] = validate.text(item.account, f"{where}.account", 128, least=1)
    text = json.dumps(fields)
    if item.result is None:
        return text
    return f'{{"result": {encode(item.result, f"{where}.result", forgiving=True)}, {text[1:]}'


def _held(lease: Any, where: str = "lease") -> dict[str, Any]:
    if not isinstance(lease, Claim | Lease):
        validate.refuse(
            where, f"is {validate.shown(lease)}, not a claim or lease", "Pass the Claim, or Lease(job_id, lease_token)."
        )
    return _proof(lease)


def _proof(lease: Claim | Lease | FinishItem) -> dict[str, Any]:
    if not isinstance(lease.lease_token, str):
        raise InvalidArgument(
            "lease_token is not text.", field="lease_token", next_step="Pass the token that the claim gave."
        )
    return {
        "job_id": validate.row_id(lease.job_id, "job_id"),
        "lease_token": validate.text(lease.lease_token, "lease_token", 512, least=1),
    }


def _last_words(text: Any, field: str, most: int) -> str | None:
    """Text that goes with a finish: made storable and clipped, never refused for what it holds."""
    if text is None:
        return None
    if not isinstance(text, str):
        validate.refuse(field, f"is {validate.shown(text)}, not text", f"Pass text; for an exception, repr({field}).")
    return clipped(storable(text), most)


def _lease_seconds(value: Any) -> int | None:
    return None if value is None else validate.whole(value, "lease_seconds", 1, MAX_LEASE_SECONDS)


def _retry_in_seconds(value: Any, field: str) -> float | None:
    return None if value is None else validate.seconds(value, field, MAX_RETRY_SECONDS)


def _request_id(value: Any) -> str | None:
    return None if value is None else validate.text(value, "request_id", 128, least=1)


def _worker(value: Any) -> str | None:
    return None if value is None else validate.text(value, "worker", 128)
