"""Two drivers behind one small interface, so that a floor is the same statements with either."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sluicegate.store.async_store import AsyncStore


class Session(Protocol):
    """One connection in autocommit mode. Statements have ``$1`` placeholders and are prepared by the driver."""

    async def run(self, statement: str, *values: Any) -> None:
        """Execute, whatever it answers."""

    async def value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""

    async def column(self, statement: str, *values: Any) -> list[Any]:
        """The first column of every row."""

    async def copy(self, table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        """Load rows by COPY."""

    async def close(self) -> None: ...


class OneConnection:
    """Connections for a store: always the same one, as a client of its own would have."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        yield self._connection


class Psycopg:
    """psycopg 3, which the library itself uses."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self.store = AsyncStore(OneConnection(connection))
        self._cursor = psycopg.AsyncRawCursor(connection)

    @classmethod
    async def connect(cls, dsn: str) -> "Psycopg":
        return cls(await psycopg.AsyncConnection.connect(dsn, autocommit=True, application_name="bench"))

    async def run(self, statement: str, *values: Any) -> None:
        await self._cursor.execute(statement, values, prepare=True)

    async def value(self, statement: str, *values: Any) -> Any:
        await self._cursor.execute(statement, values, prepare=True)
        row = await self._cursor.fetchone()
        return None if row is None else row[0]

    async def column(self, statement: str, *values: Any) -> list[Any]:
        await self._cursor.execute(statement, values, prepare=True)
        return [row[0] for row in await self._cursor.fetchall()]

    async def copy(self, table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        # One formatted block: writing row by row would measure Python.
        lines = ["\t".join(map(str, row)) for row in rows]
        async with self._cursor.copy(f"copy {table} ({', '.join(columns)}) from stdin") as copy:
            await copy.write("\n".join(lines) + "\n")

    async def close(self) -> None:
        await self.connection.close()


class Asyncpg:
    """asyncpg, the fastest driver, with its statement cache."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @classmethod
    async def connect(cls, dsn: str) -> "Asyncpg":
        import asyncpg

        # It reads URIs only, and not libpq's other form.
        names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
        given = {names[name]: value for name, value in conninfo_to_dict(dsn).items() if name in names}
        return cls(await asyncpg.connect(**given, server_settings={"application_name": "bench"}))

    async def run(self, statement: str, *values: Any) -> None:
        await self.connection.execute(statement, *values)

    async def value(self, statement: str, *values: Any) -> Any:
        return await self.connection.fetchval(statement, *values)

    async def column(self, statement: str, *values: Any) -> list[Any]:
        return [row[0] for row in await self.connection.fetch(statement, *values)]

    async def copy(self, table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        await self.connection.copy_records_to_table(table, columns=columns, records=rows)

    async def close(self) -> None:
        await self.connection.close()


Connect = Callable[[str], Awaitable[Session]]
DRIVERS: dict[str, Connect] = {"psycopg": Psycopg.connect, "asyncpg": Asyncpg.connect}


class Clients:
    """Connections to one database, kept for all works: a new one would first read and plan every function."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._open: dict[str, list[Session]] = {}

    async def get(self, driver: str, number: int) -> list[Session]:
        """The first ``number`` connections of a driver."""
        known = self._open.setdefault(driver, [])
        while len(known) < number:
            known.append(await DRIVERS[driver](self._dsn))
        return known[:number]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for sessions in self._open.values():
            for session in sessions:
                await session.close()


def available() -> list[str]:
    """The drivers that are installed here."""
    try:
        import asyncpg  # noqa: F401  # asked for its presence only
    except ImportError:
        return ["psycopg"]
    return list(DRIVERS)
