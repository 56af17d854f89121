"""What PostgreSQL and the network say, in our own errors: the one place where that is decided."""

from __future__ import annotations

import psycopg
import psycopg_pool

from sluicegate.errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    NotFound,
    SchemaMismatch,
    SluicegateError,
    Unavailable,
    WrongIsolation,
)

_OURS: dict[str | None, type[SluicegateError]] = {
    kind.sqlstate: kind for kind in (InvalidArgument, NotFound, Conflict, WrongIsolation, Forbidden)
}
_DOCTOR = "Run `sluicegate doctor` to see what is wrong."
_MIGRATE = "Run `sluicegate migrate` with the owner's DSN, then try again."
_GRANT = "Connect as a member of the role that may do this; `sluicegate doctor` lists roles and privileges."
_PRIMARY = "Connect to the primary: add target_session_attrs=read-write to the DSN."
_ISOLATION = (
    "Its default comes from the database or the role: "
    "alter database … set default_transaction_isolation to 'read committed', then connect again."
)
_REPEAT = "Repeat it with the same request id or lease token; that is safe even if the first try took effect."
_AGAIN = "Try again after a short wait."

# What PostgreSQL raises when a schema or a function that this library calls is not there.
_NOT_THERE = {"3F000", "42883", "42P01", "42703"}


def refusal(sqlstate: str, message: str, *, field: str | None, hint: str | None) -> SluicegateError:
    """The error for a SQLSTATE of ours, or the nearest one for a SQLSTATE of PostgreSQL's."""
    hint = hint or None
    kind = _OURS.get(sqlstate)
    if kind is InvalidArgument:
        return InvalidArgument(message, field=field or None, next_step=hint)
    if kind is not None:
        return kind(message, next_step=hint)
    if sqlstate in _NOT_THERE:
        return SchemaMismatch(f"The database schema does not fit this library: {message}.", next_step=_MIGRATE)
    if sqlstate == "42501":
        return Forbidden(f"The database role may not do this: {message}.", next_step=_GRANT)
    if sqlstate == "25006":
        return Unavailable(f"This PostgreSQL does not take writes: {message}.", retriable=False, next_step=_PRIMARY)
    match sqlstate[:2]:
        case "08" | "53" | "57" | "58" | "40" | "55":
            return Unavailable(f"PostgreSQL could not do this now: {message}.", next_step=hint or _AGAIN)
        case "22" | "54":
            return InvalidArgument(f"PostgreSQL refused a value: {message}.", next_step=hint)
        case _:
            return SluicegateError(f"PostgreSQL reported {sqlstate}: {message}.", next_step=hint or _DOCTOR)


def from_call(error: Exception, *, lost: bool) -> SluicegateError:
    """The error for a failed call; ``lost`` says that its connection broke, so that it may have taken effect."""
    if isinstance(error, psycopg.Error) and not lost and error.sqlstate is not None:
        said = error.diag
        # Our calls are transactions of their own, so the hint for callers inside one would mislead.
        hint = _ISOLATION if error.sqlstate == WrongIsolation.sqlstate else said.message_hint
        return refusal(error.sqlstate, said.message_primary or str(error), field=said.message_detail, hint=hint)
    if lost:
        return Unavailable(
            f"The connection to PostgreSQL was lost during the call: {first_line(error)}.",
            outcome_unknown=True,
            next_step=_REPEAT,
        )
    return SluicegateError(f"The PostgreSQL driver failed: {first_line(error)}.", next_step=_DOCTOR)


def from_connect(error: Exception) -> SluicegateError:
    """The error for a connection that could not be made. Never repeats the DSN, which may hold a password."""
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return InvalidArgument(
            "The DSN cannot be parsed.",
            field="dsn",
            next_step="Write postgresql://user:password@host:port/database, or host=… dbname=…, special characters quoted.",
        )
    tried = str(error).count("\n- host:")  # a line of its own for each, when there were several
    more = f" ({tried} addresses were tried)" if tried else ""
    return Unavailable(
        f"Cannot connect to PostgreSQL: {first_line(error).removeprefix('connection failed: ')}{more}.",
        next_step=f"Check the DSN and that the server runs. {_DOCTOR}",
    )


def from_pool(error: psycopg_pool.PoolTimeout | psycopg_pool.PoolClosed) -> Unavailable:
    """The error for a pool that had no connection to give."""
    if isinstance(error, psycopg_pool.PoolClosed):
        return Unavailable(
            "This client is not open.",
            retriable=False,
            next_step="Use it inside `async with` or `with`, or call open() first and close() last.",
        )
    return Unavailable(
        "No database connection became free in time: PostgreSQL cannot be reached, or every connection is in use.",
        next_step=f"Raise max_size if many calls run at once. {_DOCTOR}",
    )


def without_doctor(next_step: str | None) -> str | None:
    """A next step for whoever is running doctor already."""
    return None if next_step is None else next_step.removesuffix(_DOCTOR).rstrip() or None


def first_line(error: Exception) -> str:
    """What happened, on one line and without a full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")
