"""PostgreSQL's own words for a failed start, and what people are told instead."""

from pathlib import Path

import pytest

from sluicegate.embedded.failures import Site, explain, held_by_dying_server
from sluicegate.embedded.logs import log_since

KNOWN = [
    ('FATAL:  could not write to file "pg_wal/xlogtemp.7": No space left on device', "is full", "df -h"),
    ("initdb: error: could not create directory: Disk quota exceeded", "is full", "nothing that was committed is lost"),
    (
        'LOG:  could not bind IPv4 address "127.0.0.1": Address already in use',
        "The TCP port 5544 on 127.0.0.1",
        "--port",
    ),
    (
        'LOG:  could not bind IPv4 address "127.0.0.1": Permission denied\nFATAL:  could not create any TCP/IP sockets',
        "This user may not listen on the TCP port",
        "above 1023",
    ),
    ("FATAL:  could not create any TCP/IP sockets", "is taken by another program", "--port"),
    (
        'LOG:  could not bind Unix address "/x/.s.PGSQL.5432": Operation not permitted',
        "unix socket",
        "SLUICEGATE_SOCKET_DIR",
    ),
    ("initdb: error: could not look up effective user ID 54321: user does not exist", "/etc/passwd", "SLUICEGATE_DSN"),
    (
        "FATAL:  could not map anonymous shared memory: Cannot allocate memory",
        "the memory it asks for",
        "shared_buffers",
    ),
    ('FATAL:  could not resize shared memory segment "/PostgreSQL.1" to 1048576 bytes', "memory", "--shm-size"),
    ('FATAL:  configuration file "/x/postgresql.conf" contains errors', "A setting in", "Correct it"),
    ('FATAL:  could not load library "/x/plpgsql.so": undefined symbol: x', "do not fit each other", "again"),
    ("PANIC:  could not locate a valid checkpoint record at 0/1", "is damaged", "from a backup"),
    ('FATAL:  data directory "/x" has wrong ownership', "their owner or mode has been changed", "give it back"),
    (
        'FATAL:  could not open file "global/pg_filenode.map": Permission denied',
        "may not use its files",
        "give it back",
    ),
]


@pytest.fixture
def at(scratch: Path) -> Site:
    return Site(scratch, scratch / "server.txt", 5544)


@pytest.mark.parametrize(("output", "what", "next_step"), KNOWN)
def test_a_known_failure_is_told_in_words_for_people(output: str, what: str, next_step: str, at: Site) -> None:
    error = explain(f"LOG:  starting PostgreSQL\n{output}\n", at, "start")
    assert what in error.message
    assert next_step in str(error.next_step)
    assert output not in str(error)


def test_an_unknown_failure_is_quoted_and_the_log_named(at: Site) -> None:
    output = "LOG:  hello\n2026-01-01 FATAL:  the moon is in the wrong place\nHINT:  wait\n"
    error = explain(output, at, "start")
    assert error.message == "PostgreSQL failed to start: 2026-01-01 FATAL:  the moon is in the wrong place"
    assert str(at.log) in str(error.next_step)
    assert "it said nothing" in explain("", at, "start").message
    assert len(explain("x" * 100_000, at, "start").message) < 3_000


def test_a_server_that_is_only_still_ending_is_told_apart() -> None:
    said = "FATAL:  pre-existing shared memory block (key 16039942, ID 32792) is still in use\nHINT:  Terminate any old"
    assert held_by_dying_server(said)
    assert not held_by_dying_server("FATAL:  no")


def test_only_what_was_logged_since_counts(scratch: Path) -> None:
    log = scratch / "server.txt"
    assert log_since(log, 0) == ""
    log.write_bytes(b"old\n" + b"new \xff\n")
    assert log_since(log, 4) == "new \ufffd\n"
    log.write_bytes(b"cut\n")
    assert log_since(log, 100) == "cut\n", "the log was cut meanwhile"
    log.write_bytes(b"x" * 200_000)
    assert len(log_since(log, 0)) == 64 * 1024
