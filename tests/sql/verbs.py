"""The SQL verbs over plain connections, and what tests of them need to look at the result and to race."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from sluicegate.sql.source import shipped_function
from tests.support.waiting import eventually

T = TypeVar("T")
Json = dict[str, Any]

_JSON_ARGUMENTS = {"payload", "backoff", "jobs", "requests", "finished", "items", "result", "policy", "patch"}
_TABLES = (
    "owner",
    "endpoint",
    "endpoint_grant",
    "queue",
    "job",
    "attempt",
    "attempt_end",
    "attempt_count",
    "late_call",
    "request",
    "ready_cursor",
    "lapse_hint",
    "policy",
    "policy_limit",
    "budget_window",
    "lane",
    "usage",
    "forgiven",
    "policy_audit",
)


class Sql:
    """One connection, the verbs as methods, and short ways to look at the tables."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.pid = connection.info.backend_pid

    def call(self, function: str, /, **arguments: Any) -> Any:
        """The answer of ``sluicegate.function``; arguments by their names without ``p_``."""
        values = [Jsonb(value) if name in _JSON_ARGUMENTS else value for name, value in arguments.items()]
        named = ", ".join(f"p_{name} => %s" for name in arguments)
        return self.one(f"select sluicegate.{function}({named})", *values)

    def one(self, query: str, *values: Any) -> Any:
        """The first value of the first row."""
        row = self.connection.execute(query, values or None).fetchone()
        return None if row is None else row[0]

    def rows(self, query: str, *values: Any) -> list[Json]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, values or None).fetchall()

    def do(self, statement: str, *values: Any) -> int:
        """Execute; how many rows it was about."""
        return self.connection.execute(statement, values or None).rowcount

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that stays open for the length of the block and is rolled back at its end."""
        self.connection.execute("begin")
        try:
            yield
        finally:
            self.connection.execute("rollback")

    def commit(self) -> None:
        self.connection.execute("commit")

    def enqueue(self, queue: str = "q", payload: Any = None, **options: Any) -> int:
        """The id of the job."""
        job_id = self.call("enqueue", queue=queue, payload=payload, **options)["id"]
        assert isinstance(job_id, int)
        return job_id

    def enqueue_many(self, jobs: Iterable[Json], **options: Any) -> list[int]:
        return [job["id"] for job in self.call("enqueue_many", jobs=list(jobs), **options)["jobs"]]

    def claim(self, *queues: str, worker: str | None = None, finished: Sequence[Json] = (), **request: Any) -> Json:
        """The response to one request, with the answers to the finishes under ``finished``."""
        request = {"queues": list(queues or ("q",)), **request}
        answer = self.call("claim", requests=[request], worker=worker, finished=list(finished))
        response: Json = answer["responses"][0]
        return {**response, "finished": answer["finished"]}

    def take(self, *queues: str, **request: Any) -> list[Json]:
        """The claims."""
        claims: list[Json] = self.claim(*queues, **request)["claims"]
        return claims

    def take_one(self, *queues: str, **request: Any) -> Json:
        (claim,) = self.take(*queues, **request)
        return claim

    def complete(self, claim: Json, **options: Any) -> Json:
        return self._held("complete", claim, options)

    def fail(self, claim: Json, error: str | None = "boom", **options: Any) -> Json:
        return self._held("fail", claim, {"error": error, **options})

    def release(self, claim: Json, **options: Any) -> Json:
        return self._held("release", claim, options)

    def heartbeat(self, claim: Json, **options: Any) -> Json:
        return self._held("heartbeat", claim, options)

    def _held(self, verb: str, claim: Json, options: Json) -> Json:
        answer: Json = self.call(verb, **lease(claim), **options)
        return answer

    def job(self, job_id: int) -> Json:
        """The whole row."""
        (row,) = self.rows("select * from sluicegate.job where id = %s", job_id)
        return row

    def state(self, job_id: int) -> str:
        return str(self.one("select state from sluicegate.job where id = %s", job_id))

    def attempts(self, job_id: int) -> list[Json]:
        """The attempts of a job with their ends, oldest first."""
        return self.rows(
            "select a.*, e.ended_at, e.outcome, e.disposition, e.started, e.error, e.summary"
            " from sluicegate.attempt a left join sluicegate.attempt_end e on e.attempt_id = a.id"
            " where a.job_id = %s order by a.seq",
            job_id,
        )

    def ends(self, job_id: int) -> list[tuple[str | None, str | None]]:
        """How each attempt ended, oldest first; (None, None) is the open one."""
        return [(attempt["outcome"], attempt["disposition"]) for attempt in self.attempts(job_id)]

    def late_calls(self, job_id: int) -> dict[str, int]:
        rows = self.rows(
            "select verb, sum(calls)::int as calls from sluicegate.late_call where job_id = %s group by verb", job_id
        )
        return {row["verb"]: row["calls"] for row in rows}

    def lapse(self, *job_ids: int) -> None:
        """Let the leases of claimed jobs run out a minute ago. No lease of theirs does: a claim may have noted that none has."""
        self.do("delete from sluicegate.lapse_hint")
        changed = self.do(
            "update sluicegate.job set lease_expires_at = sluicegate.clock() - interval '1 minute'"
            " where id = any(%s) and state = 'claimed'",
            list(job_ids),
        )
        assert changed == len(job_ids)

    def contents(self) -> dict[str, tuple[int, str]]:
        """How many rows each table holds, and a hash over all of them."""
        query = "select count(*), md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from sluicegate.{} t"
        found = {}
        for table in _TABLES:
            row = self.connection.execute(query.format(table)).fetchone()
            assert row is not None
            found[table] = (row[0], row[1])
        return found

    def replace(self, function: str, *changes: tuple[str, str]) -> None:
        """Put a variant of a shipped function into this database: each text of it replaced by another."""
        text = shipped_function(function).text
        for old, new in changes:
            assert old in text, f"{function} does not contain {old!r} any more"
            text = text.replace(old, new)
        self.connection.execute(text)

    def restore(self, function: str) -> None:
        self.connection.execute(shipped_function(function).text)


def each(*values: Any) -> tuple[Any, ...]:
    """Values of any types, to go through one after the other."""
    return values


def lease(claim: Json) -> Json:
    """The two values that prove a claim."""
    return {"job_id": claim["job"]["id"], "lease_token": claim["lease_token"]}


def completed(claim: Json, **fields: Any) -> Json:
    return {**lease(claim), "outcome": "completed", **fields}


def failed(claim: Json, error: str = "boom", **fields: Any) -> Json:
    return {**lease(claim), "outcome": "failed", "error": error, **fields}


def released(claim: Json, **fields: Any) -> Json:
    return {**lease(claim), "outcome": "released", **fields}


@contextlib.contextmanager
def refused(sql: Sql, code: str, field: str | None) -> Iterator[None]:
    """The block raises our error ``code`` about ``field``, says what to do, and changes nothing at all."""
    before = sql.contents()
    with pytest.raises(psycopg.Error) as caught:
        yield
    diag = caught.value.diag
    assert (diag.sqlstate, diag.message_detail or None) == (code, field), str(caught.value)
    assert diag.message_primary
    assert diag.message_hint
    assert sql.contents() == before


def check_ledger(sql: Sql) -> int:
    """Attempts, their ends and the counters of the jobs agree; how many attempts there are, pruned ones too."""
    wrong = sql.rows(
        """
        select j.id, j.state, j.attempts_total, j.attempt, j.max_attempts, a.*
        from sluicegate.job j
        left join lateral (
            select count(*) as rows, count(distinct a.seq) as seqs, coalesce(max(a.seq), 0) as last,
                count(*) filter (where e.attempt_id is null) as open,
                max(a.id) filter (where e.attempt_id is null) as open_id,
                min(a.seq) as first
            from sluicegate.attempt a left join sluicegate.attempt_end e on e.attempt_id = a.id
            where a.job_id = j.id
        ) a on true
        where a.last <> j.attempts_total and a.rows > 0
            or a.rows <> a.seqs
            or a.rows > 0 and a.rows <> a.last - a.first + 1
            or a.open <> (j.state = 'claimed')::int
            or j.state = 'claimed' and a.open_id is distinct from j.attempt_id
            or j.attempt not between 0 and j.max_attempts
        """
    )
    assert not wrong, wrong[:5]
    assert (
        sql.one(
            "select count(*) from sluicegate.attempt_end e where not exists (select from sluicegate.attempt a where a.id = e.attempt_id)"
        )
        == 0
    )
    opened: int = sql.one(
        "select (select count(*) from sluicegate.attempt)"
        " + (select coalesce(sum(attempts), 0) from sluicegate.attempt_count)::bigint"
    )
    return opened


def in_background(call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def wait_blocked(watcher: Sql, pid: int, *, by: int | None = None) -> None:
    """Return as soon as the database says that backend ``pid`` waits, for ``by`` if that is given."""

    def look() -> bool:
        blockers = watcher.one("select pg_blocking_pids(%s)", pid)
        return bool(blockers) and (by is None or by in blockers)

    eventually(look, f"backend {pid} waits{'' if by is None else f' for {by}'}")


def is_locked(watcher: Sql, job_id: int) -> bool:
    """Whether some transaction holds the row of a job."""
    with watcher.transaction():
        free = watcher.one("select id from sluicegate.job where id = %s for update skip locked", job_id)
    return free is None


class Crowd:
    """Many callers, a thread and a connection each, let go at one moment."""

    def __init__(self, members: Sequence[Sql]) -> None:
        self.members = members
        self._pool = ThreadPoolExecutor(len(members))
        self._barrier = threading.Barrier(len(members))

    def all(self, call: Callable[[Sql, int], T]) -> list[T]:
        """``call(sql, number)`` by every member at once; the answers in the order of the members."""

        def run(number: int) -> T:
            self._barrier.wait(60)
            return call(self.members[number], number)

        return list(self._pool.map(run, range(len(self.members))))

    def close(self) -> None:
        self._pool.shutdown()
