"""Callers in processes of their own, each with many connections, let go at one moment by a lock in the database.

``python -m tests.sql.burst DSN CALLERS`` serves rounds: a JSON line ``{"gate", "queue", "n"}`` comes in, the answers of
its callers go out as one line. Processes and connections live as long as the ``Burst`` that started them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.sql.budgets import ask
from tests.sql.verbs import Json, Sql
from tests.support.servers import ROOT
from tests.support.waiting import eventually

GATE = 4_711
_WAITING = """
select count(*) from pg_locks
where locktype = 'advisory' and classid = 0 and objid = %s and not granted
    and database = (select oid from pg_database where datname = current_database())
"""


class Burst:
    """Processes with so many callers each, and the gate that holds them back."""

    def __init__(self, dsn: str, *, processes: int = 2, callers: int = 25) -> None:
        self._gate = Sql(psycopg.connect(dsn, autocommit=True, prepare_threshold=None))
        self._callers = processes * callers
        command = [sys.executable, "-m", "tests.sql.burst", dsn, str(callers)]
        self._processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for process in self._processes:
                process.kill()
        for process in self._processes:
            process.communicate()
        self._gate.connection.close()

    def round(self, queue: str, n: int) -> list[Json]:
        """All callers ask for ``n`` jobs at once, and again while peers are in their way; their last answers."""
        self._gate.one("select pg_advisory_lock(%s)", GATE)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"gate": GATE, "queue": queue, "n": n}) + "\n")
            process.stdin.flush()
        eventually(lambda: self._gate.one(_WAITING, GATE) == self._callers, "every caller at the gate", timeout=60)
        self._gate.one("select pg_advisory_unlock(%s)", GATE)
        answers: list[Json] = []
        for process in self._processes:
            assert process.stdout is not None
            answers += json.loads(process.stdout.readline())
        assert len(answers) == self._callers
        return answers


def _caller(dsn: str) -> Sql:
    connection: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    connection.execute("set statement_timeout = '60s'")
    return Sql(connection)


def _answer(caller: Sql, gate: int, queue: str, n: int) -> Json:
    """The first claim runs on the server the moment the gate opens, without a word from here."""
    request = json.dumps([{"queues": [queue], "n": n}])
    cursor = caller.connection.execute(
        f"select pg_advisory_xact_lock_shared({gate}); select sluicegate.claim($request${request}$request$::jsonb)"
    )
    assert cursor.nextset()
    row = cursor.fetchone()
    assert row is not None
    answer: Json = row[0]["responses"][0]
    if answer["claims"] or answer["deferred"] or answer["empty"] or answer["error"]:
        return answer
    return ask(caller, queue, n=n)


def main(dsn: str, callers: int) -> None:
    with ThreadPoolExecutor(callers) as pool:
        members = list(pool.map(_caller, [dsn] * callers))
        for line in sys.stdin:
            todo = json.loads(line)
            answers = pool.map(lambda member, todo=todo: _answer(member, **todo), members)
            sys.stdout.write(json.dumps(list(answers)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
