"""What ``import sluicegate`` promises: a short list of names, and that it costs next to nothing."""

import subprocess
import sys
from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest

import sluicegate
from sluicegate import errors
from sluicegate.model._record import Record


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_public_names_are_exactly_those_promised() -> None:
    assert set(sluicegate.__all__) == {
        *errors.__all__,
        "AdmissionStatus",
        "App",
        "Attempt",
        "AuditEntry",
        "AwaitedClaim",
        "Backlog",
        "Backoff",
        "Budget",
        "BudgetAudit",
        "Cancel",
        "Cancelled",
        "Claim",
        "ClaimAnswer",
        "ClaimAnswers",
        "ClaimRefusal",
        "ClaimRequest",
        "Client",
        "ClosedGate",
        "Context",
        "DeadLetter",
        "Deferral",
        "Demand",
        "Enqueued",
        "EnqueuedMany",
        "Explanation",
        "Finish",
        "FinishItem",
        "Forgiven",
        "FullJob",
        "Gate",
        "GoneJob",
        "HardReserved",
        "Heartbeat",
        "Holder",
        "Job",
        "JobAdmission",
        "JobDetail",
        "JobPage",
        "JobRow",
        "Lease",
        "NewJob",
        "NextJob",
        "NextJobs",
        "PriorAttempt",
        "Pruned",
        "QueueAdmission",
        "QueueCapacity",
        "QueueConfig",
        "QueueCounts",
        "QueueDemand",
        "QueueHealth",
        "QueueStats",
        "QuotaExceeded",
        "Reaped",
        "Rehearsal",
        "RehearsedDay",
        "Release",
        "Retried",
        "RetryAfter",
        "ShadowLimit",
        "SyncClient",
        "ThreadContext",
        "UsedWindow",
        "Verdict",
        "Weighted",
        "Window",
        "WindowLimit",
        "Worker",
        "WorkerEvent",
        "WorkerHealth",
        "WorkerReport",
    }
    assert sluicegate.__all__ == sorted(sluicegate.__all__)


def _records(hint: Any) -> set[str]:
    """The names of the model's types in a type hint, with those that their own fields hold."""
    if isinstance(hint, type) and issubclass(hint, Record):
        return {hint.__name__}.union(*map(_records, get_type_hints(hint).values()))
    return set().union(*map(_records, get_args(hint)))


@pytest.mark.parametrize("client", [sluicegate.Client, sluicegate.SyncClient])
def test_whatever_a_client_answers_is_a_public_name(client: type) -> None:
    verbs = [verb for name, verb in vars(client).items() if not name.startswith("_") and callable(verb)]
    answered = set().union(*(_records(get_type_hints(verb).get("return")) for verb in verbs))
    assert {"EnqueuedMany", "JobPage", "QueueCounts"} <= answered <= set(sluicegate.__all__)


@pytest.mark.parametrize("name", sluicegate.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(sluicegate, name)
    assert isinstance(value, UnionType) or value.__name__ == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sluicegate.nonsense


def test_errors_and_model_come_without_the_driver() -> None:
    code = (
        "import sys, sluicegate, sluicegate.errors, sluicegate.ops.validate, sluicegate.ops.requests;"
        "sluicegate.NewJob('q'); sluicegate.InvalidArgument('x');"
        "print([name for name in ('psycopg', 'asyncio') if name in sys.modules])"
    )
    assert _python(code) == "[]"


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_says_what_happened_and_what_to_do_next(name: str) -> None:
    kind: type[errors.SluicegateError] = getattr(errors, name)
    error = kind("It broke.", next_step="Mend it.")
    assert str(error) == "It broke. Mend it."
    said = error.to_dict()
    assert (said["code"], said["message"], said["next_step"]) == (kind.code, "It broke.", "Mend it.")
    assert f"{name} " in (errors.__doc__ or "")


def test_error_codes_are_distinct() -> None:
    """The settings of a worker have errors of their own in Python; elsewhere they are invalid arguments."""
    kinds = [kind for name in errors.__all__ if not issubclass(kind := getattr(errors, name), errors.InvalidWorker)]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert errors.NoQueues.code == errors.InvalidArgument.code
