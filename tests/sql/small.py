"""A small schema of the tests' own, written file by file, and what is needed to look at the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from sluicegate.sql.migrate import MigrationReport, migrate

THING = "create table sluicegate.thing (id bigint primary key, token_hash bytea, note text);\n"


class Small:
    """Writes migrations and functions below a folder and runs them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "migrations").mkdir(parents=True)
        (root / "functions").mkdir()

    def migration(self, name: str, text: str) -> Path:
        path = self.root / "migrations" / f"{name}.sql"
        path.write_text(text)
        return path

    def function(
        self, name: str, arguments: str = "", returns: str = "text", body: str = "select 'one'", grants: str = "worker"
    ) -> Path:
        path = self.root / "functions" / f"{name}.sql"
        path.write_text(
            f"-- For a test.\n-- grants: {grants}\n"
            f"create or replace function sluicegate.{name}({arguments}) returns {returns}\nlanguage sql\n"
            f"set search_path = sluicegate, pg_temp\nas $$ {body} $$;\n"
        )
        return path

    def migrate(self, target: str | psycopg.Connection[Any], **options: Any) -> MigrationReport:
        if isinstance(target, psycopg.Connection):
            return migrate(target, directory=self.root, **options)
        with psycopg.connect(target, autocommit=True, prepare_threshold=None) as conn:
            return migrate(conn, directory=self.root, **options)


def ask(target: str | psycopg.Connection[Any], query: str, values: Any = None) -> Any:
    """The first value of the first row."""
    if isinstance(target, psycopg.Connection):
        row = target.execute(query, values).fetchone()
        return None if row is None else row[0]
    with psycopg.connect(target, autocommit=True, prepare_threshold=None) as conn:
        return ask(conn, query, values)


def run(target: str, *statements: str) -> None:
    """Execute statements, each committed by itself."""
    with psycopg.connect(target, autocommit=True, prepare_threshold=None) as conn:
        for statement in statements:
            conn.execute(statement)


def versions(dsn: str) -> list[int]:
    """The versions that are applied and finished."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
        rows = conn.execute("select version from sluicegate.migration where applied_at is not null order by version")
        return [row[0] for row in rows]
