"""The proxy of these tests does what it says: what it loses, and what the server has done by then."""

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.proxy import Proxy
from tests.support.waiting import eventually


@pytest.fixture(params=["unix", "tcp"])
def proxy(dsn: str, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with Proxy(dsn, tcp=request.param == "tcp") as opened:
        yield opened


def connect(dsn: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None)


def count(dsn: str) -> object:
    with connect(dsn) as direct:
        row = direct.execute("select count(*) from t").fetchone()
        return row and row[0]


def test_it_passes_everything_on_until_told_otherwise(dsn: str, proxy: Proxy) -> None:
    with connect(proxy.dsn) as through:
        big = "x" * 3_000_000
        assert through.execute("select %s || 'y'", (big,)).fetchone() == (big + "y",)
    assert proxy.links_made == 1


def test_a_lost_reply_comes_after_the_commit_and_a_lost_request_never_arrives(dsn: str, proxy: Proxy) -> None:
    with connect(dsn) as direct:
        direct.execute("create table t (n int)")
    for lose, want in ((proxy.lose_reply, 1), (proxy.lose_request, 1)):
        with connect(proxy.dsn) as through:
            loss = lose("insert into t")
            assert through.execute("select 1").fetchone() == (1,)
            with pytest.raises(psycopg.OperationalError):
                through.execute("insert into t select g from generate_series(1, %s) g", (1,))
            loss.wait()
        assert count(dsn) == want


def test_cut_ends_every_connection_and_lets_new_ones_in(proxy: Proxy) -> None:
    first, second = connect(proxy.dsn), connect(proxy.dsn)
    proxy.cut()
    for lost in (first, second):
        with pytest.raises(psycopg.OperationalError):
            lost.execute("select 1")
    with connect(proxy.dsn) as through:
        assert through.execute("select 1").fetchone() == (1,)


def test_a_silent_connection_stays_open_and_new_ones_work(dsn: str, proxy: Proxy) -> None:
    with connect(dsn) as direct:
        direct.execute("create table t (n int)")
    silent = connect(proxy.dsn)
    answers: list[object] = []

    def ask() -> None:
        with pytest.raises(psycopg.OperationalError):
            silent.execute("insert into t values (1)")
        answers.append("cut")

    proxy.silence()
    asking = threading.Thread(target=ask)
    asking.start()
    with connect(proxy.dsn) as through:
        assert through.execute("select 1").fetchone() == (1,)
    assert asking.is_alive()
    assert count(dsn) == 0
    proxy.cut()
    asking.join()
    assert answers == ["cut"]


def test_a_delay_holds_back_replies(proxy: Proxy) -> None:
    with connect(proxy.dsn) as through:
        proxy.delay = 0.2
        began = time.monotonic()
        through.execute("select 1")
        assert time.monotonic() - began >= 0.2


def test_a_black_hole_swallows_silently_and_lets_go_at_its_end(proxy: Proxy) -> None:
    with connect(proxy.dsn) as through:
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(through.execute("select 1").fetchone()))
        with proxy.blackhole():
            asking.start()
            asking.join(0.2)
            assert asking.is_alive()
        eventually(lambda: answers == [(1,)], "the answer arrives after all")
        asking.join()
