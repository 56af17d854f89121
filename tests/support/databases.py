"""A database of its own for every test: copied from a template that is migrated once a run."""

import itertools
import os

import psycopg
from psycopg import sql

from tests.support.servers import Server, TestRun

TEMPLATE = "sluicegate_template"

_counter = itertools.count(1)


class Databases:
    """Makes and drops databases on one server, over one maintenance connection."""

    def __init__(self, run: TestRun, server: Server) -> None:
        self._run = run
        self._server = server
        self._connection = psycopg.connect(server.dsn("postgres"), autocommit=True, prepare_threshold=None)

    def close(self) -> None:
        self._connection.close()

    def migrated(self) -> str:
        """The name of a fresh database that holds the current schema."""
        self._make_template()
        return self._create("template {} strategy wal_log", sql.Identifier(TEMPLATE))

    def empty(self) -> str:
        """The name of a fresh database without our schema."""
        return self._create("template template0")

    def drop(self, name: str) -> None:
        """Drop a database, whoever is still connected to it."""
        self._connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _create(self, how: str, *values: sql.Composable) -> str:
        name = f"t_{os.getpid()}_{next(_counter)}"
        command = sql.SQL("create database {} ").format(sql.Identifier(name)) + sql.SQL(how).format(*values)
        self._connection.execute(command)
        return name

    def _make_template(self) -> None:
        done = self._server.place / "template.done"
        if done.exists():
            return
        with self._run.locked(f"{self._server.kind}.template.lock"):
            if done.exists():
                return
            from sluicegate.sql.migrate import migrate

            template = sql.Identifier(TEMPLATE)
            self.drop(TEMPLATE)
            self._connection.execute(sql.SQL("create database {} template template0").format(template))
            with psycopg.connect(self._server.dsn(TEMPLATE), autocommit=True, prepare_threshold=None) as connection:
                migrate(connection)
                connection.execute("vacuum analyze")
            self._connection.execute(sql.SQL("alter database {} allow_connections false").format(template))
            done.touch()
