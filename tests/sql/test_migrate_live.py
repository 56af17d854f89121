"""Migrating a database that is at work."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sluicegate.sql
from sluicegate.sql.migrate import migrate
from tests.sql.background import connect
from tests.sql.small import ask
from tests.support.counts import rounds

SHIPPED = Path(sluicegate.sql.__file__).parent


def work(dsn: str, queue: str, stop: threading.Event) -> int:
    """Enqueue, claim and complete until told to stop; how many jobs that were."""
    done = 0
    with connect(dsn, autocommit=True) as conn:
        conn.execute("set role sluicegate_worker")
        while not stop.is_set():
            conn.execute("select sluicegate.enqueue(%s, '1')", (queue,))
            row = conn.execute(
                "select sluicegate.claim(jsonb_build_array(jsonb_build_object('queues', jsonb_build_array(%s::text))))",
                (queue,),
            ).fetchone()
            assert row is not None
            claim = row[0]["responses"][0]["claims"][0]
            answer = conn.execute(
                "select sluicegate.complete(%s, %s)", (claim["job"]["id"], claim["lease_token"])
            ).fetchone()
            assert answer is not None
            assert answer[0]["status"] == "ok"
            done += 1
    return done


@pytest.mark.both_versions
def test_replacing_every_function_disturbs_no_call(dsn: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for part in ("migrations", "functions"):
        shutil.copytree(SHIPPED / part, source / part)
    stop = threading.Event()
    with ThreadPoolExecutor(3) as pool, connect(dsn, autocommit=True) as conn:
        workers = [pool.submit(work, dsn, f"q{number}", stop) for number in range(3)]
        try:
            for number in range(rounds(3, 10)):
                for path in (source / "functions").rglob("*.sql"):
                    path.write_text(f"{path.read_text().rstrip()}\n-- round {number}\n")
                assert "claim" in migrate(conn, directory=source).functions
        finally:
            stop.set()
        done = sum(worker.result() for worker in workers)
    assert done > 0
    assert ask(dsn, "select count(*) from sluicegate.job where state = 'done'") == done
