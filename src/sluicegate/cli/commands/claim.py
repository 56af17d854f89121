"""``sluicegate claim``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sluicegate.cli.admission_views import deferred
from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.connection import connected, worker_name
from sluicegate.cli.output import Output, count, local, shown_json
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import Claim, ClaimAnswer


def run(
    *queues: Annotated[str, Parameter(name="QUEUE", help="The queues to take from, together in order of priority.")],
    job: Annotated[int | None, whole("job", "Take this job instead, by its id.")] = None,
    n: Annotated[int, whole("n", "How many to take at most: 1 to 1000, 1 unless given.", name="-n")] = 1,
    lease: Annotated[
        int | None, whole("lease_seconds", "Seconds the claim holds without a heartbeat: 1 to 86400, 300 unless given.")
    ] = None,
    worker: Annotated[str | None, Parameter(help="Who takes them; USER@HOST unless given.")] = None,
    request_id: Annotated[
        str | None,
        Parameter(
            help="Repeating a claim under the same id opens nothing more, and renews the tokens; none unless given."
        ),
    ] = None,
    common: Common = Common(),
) -> int:
    """Take jobs, and print each with the lease token that proves it is yours.

    Every later call about the job needs that token. Nothing to take is an
    answer, not an error: the exit status is 0. It is 1 while all there is
    is deferred, each closed queue with its reason and time, or being taken
    by others at this moment.

    sluicegate claim reviews --json > claim.json
    sluicegate complete 17 --token-file claim.json
    """
    output = Output(json=common.json)
    if (job is None) == (not queues):
        raise InvalidArgument(
            "claim takes either queues or --job ID.",
            field="queues",
            next_step="Write `sluicegate claim QUEUE`, or `sluicegate claim --job ID`.",
        )
    if job is not None and n != 1:
        raise InvalidArgument("-n does not go with --job.", field="n", next_step="A job is claimed once.")
    with connected(common, worker=worker_name(worker)) as client:
        if job is not None:
            claim = client.claim_job(job, lease_seconds=lease, request_id=request_id)
            output.answer(claim.to_dict(), *_lines(claim))
            return 0
        answer = client.claim(*queues, n=n, lease_seconds=lease, request_id=request_id)
    output.answer(answer.to_dict(), *(line for claim in answer.claims for line in _lines(claim)))
    for gone in answer.gone:
        output.note(f"job {gone.job_id} is no longer held under this request id: it is {gone.state}")
    return _status(answer, output)


def _lines(claim: Claim) -> list[str]:
    job = claim.job
    about = [f"kind {job.kind}" if job.kind else "", f"priority {job.priority}", " ".join(job.tags)]
    lines = [
        f"job {job.id} of {job.queue}, attempt {job.attempt} of {job.max_attempts}"
        + (f": {job.title}" if job.title else ""),
        f"  {', '.join(filter(None, about))}",
        f"  payload  {shown_json(job.payload)}",
        f"  lease    until {local(claim.lease_expires_at)}",
        f"  token    {claim.lease_token}",
    ]
    if claim.prior_attempts:
        last = claim.prior_attempts[0]
        lines.append(
            f"  before   {count(claim.attempts_total - 1, 'attempt')}, the last {last.outcome}: {last.error or ''}".rstrip(
                ": "
            )
        )
    return lines


def _status(answer: ClaimAnswer, output: Output) -> int:
    for deferral in answer.deferred:
        output.note(deferred(deferral))
    if answer.claims or answer.gone:
        return 0
    if answer.empty and not answer.deferred:
        output.note("There is nothing to claim.")
        return 0
    if not answer.deferred:
        output.note(
            "Others are taking these jobs at this moment. Try again after a short wait; "
            "if it lasts, `sluicegate admission` says whether a first policy is not open yet."
        )
    return 1
