"""The SQL functions the library calls, each with its arguments and their types.

Every call answers one jsonb value. It is fetched as text and decoded here, so that it does not matter which adapters
or row factories a borrowed connection has.
"""

from __future__ import annotations

import json
from typing import Any

from sluicegate.errors import SluicegateError


def _call(function: str, **types: str) -> str:
    arguments = ", ".join(f"p_{name} => %({name})s::{kind}" for name, kind in types.items())
    return f"select sluicegate.{function}({arguments})::text"


ENQUEUE = _call(
    "enqueue",
    queue="text",
    payload="jsonb",
    kind="text",
    title="text",
    priority="integer",
    run_at="timestamptz",
    dedup_key="text",
    tags="text[]",
    parent_id="bigint",
    max_attempts="integer",
    backoff="jsonb",
    request_id="text",
    scope="text",
    wake="boolean",
)
ENQUEUE_MANY = _call("enqueue_many", jobs="jsonb", request_id="text", scope="text", wake="boolean")
WAKE = _call("wake", queues="text[]", scope="text")
CLAIM = _call("claim", requests="jsonb", worker="text", finished="jsonb", wait="boolean")
CLAIM_JOB = _call("claim_job", job_id="bigint", lease_seconds="integer", worker="text", request_id="text", scope="text")
COMPLETE = _call("complete", job_id="bigint", lease_token="text", result="jsonb", summary="text", scope="text")
FAIL = _call(
    "fail",
    job_id="bigint",
    lease_token="text",
    error="text",
    retry_in_seconds="double precision",
    retry="boolean",
    summary="text",
    scope="text",
)
RELEASE = _call(
    "release",
    job_id="bigint",
    lease_token="text",
    reason="text",
    not_before="timestamptz",
    started="boolean",
    scope="text",
)
HEARTBEAT = _call(
    "heartbeat",
    job_id="bigint",
    lease_token="text",
    lease_seconds="integer",
    shorten="boolean",
    note="text",
    scope="text",
)
HEARTBEAT_MANY = _call("heartbeat_many", items="jsonb", scope="text")
RETRY = _call("retry", job_id="bigint", scope="text")
CANCEL = _call("cancel", job_id="bigint", reason="text", scope="text")
REAP = _call("reap", limit="integer", scope="text")
PRUNE = _call("prune", job_days="integer", keep_jobs="bigint", attempt_days="integer", limit="integer")
LIST_JOBS = _call(
    "list_jobs", queue="text", state="text", kind="text", limit="integer", before_id="bigint", scope="text"
)
GET_JOB = _call("get_job", job_id="bigint", attempts_limit="integer", scope="text")
QUEUE_STATS = _call("queue_stats", scope="text")
SET_ADMISSION_POLICY = _call(
    "set_admission_policy", queue="text", policy="jsonb", reason="text", revision="bigint", scope="text"
)
PATCH_ADMISSION_POLICY = _call(
    "patch_admission_policy", queue="text", patch="jsonb", reason="text", revision="bigint", scope="text"
)
CLEAR_ADMISSION_POLICY = _call("clear_admission_policy", queue="text", reason="text", revision="bigint", scope="text")
PAUSE_QUEUE = _call("pause_queue", queue="text", reason="text", until="timestamptz", scope="text")
RESUME_QUEUE = _call("resume_queue", queue="text", reason="text", scope="text")
RESET_USAGE = _call("reset_usage", queue="text", period="text", reason="text", scope="text")
OPEN_ADMISSION = _call("open_admission", queue="text", scope="text")
DEMAND = _call("demand", queues="text[]", most="integer", scope="text")
ADMISSION_STATUS = _call("admission_status", queue="text", scope="text")
BUDGET_SHOW = _call("budget_show", queue="text", scope="text")
BUDGET_AUDIT = _call("budget_audit", queue="text", limit="integer", scope="text")
REHEARSE = _call("rehearse", queue="text", policy="jsonb", days="integer", scope="text")
EXPLAIN = _call("explain", job_id="bigint", scope="text")
NEXT_JOBS = _call("next_jobs", queue="text", limit="integer", scope="text")
CLOCK = "select to_jsonb(sluicegate.clock())::text"


def decode(text: str) -> Any:
    """The answer of a call. Whole numbers too long for Python's own limit arrive as text instead of failing.

    Raises SluicegateError for an answer that is nested deeper than Python can read.
    """
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise SluicegateError(
            "A value in the answer is nested deeper than Python can read; it was not enqueued by this library.",
            next_step="Look at it in SQL, and cancel its job or flatten its payload.",
        ) from None


def _whole_number(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits
