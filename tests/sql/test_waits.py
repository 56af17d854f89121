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


@pytest.mark.parametrize("seconds", ["1e-400", "1e-7", "0"])
def test_a_retry_sooner_than_any_clock_can_tell_is_at_once(sql: Sql, seconds: str) -> None:
    sql.one("select sluicegate.enqueue('q', p_backoff => %s::jsonb)", f'{{"base_seconds": {seconds}}}')
    held = sql.take_one()
    answer = sql.one(
        "select sluicegate.claim('[]', null, %s::jsonb)",
        f'[{{"job_id": {held["job"]["id"]}, "lease_token": "{held["lease_token"]}", "outcome": "failed", "error": "e",'
        f' "retry_in_seconds": {seconds}}}]',
    )
    assert answer["finished"][0]["status"] == "ok"
    assert sql.fail(sql.take_one())["state"] == "pending"
