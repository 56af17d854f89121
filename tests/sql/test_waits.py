"""Verbs that wait for a job's row give up after a while, with a refusal and without a change."""

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql

VERBS: dict[str, Callable[[Sql, Json], object]] = {
    "complete": lambda sql, held: sql.complete(held),
    "fail": lambda sql, held: sql.fail(held),
    "release": lambda sql, held: sql.release(held),
    "cancel": lambda sql, held: sql.call("cancel", job_id=held["job"]["id"]),
    "retry": lambda sql, held: sql.call("retry", job_id=held["job"]["id"]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_row_that_somebody_holds_is_waited_for_a_while_and_no_longer(sql: Sql, another: OpenSql, verb: str) -> None:
    sql.replace(verb, ("lock_timeout = '10s'", "lock_timeout = '50ms'"))
    job = sql.enqueue()
    held = sql.take_one()
    before = sql.job(job)
    holder = another()
    with holder.transaction():
        holder.one("select id from sluicegate.job where id = %s for update", job)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            VERBS[verb](sql, held)
    assert sql.job(job) == before
    VERBS[verb](sql, held)
