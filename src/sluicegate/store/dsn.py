"""How our connections differ from the driver's defaults."""

from __future__ import annotations

import os
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sluicegate.store import faults

# A network that drops packets silently must not hold a call for the quarter of an hour TCP would wait.
_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "30", "keepalives_interval": "10"}
_FROM_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT"}


def connect_arguments(dsn: str) -> dict[str, Any]:
    """The arguments for ``connect``: what the DSN says, our defaults for what it leaves open, autocommit, UTF-8.

    No start-up ``options`` and no server-side prepared statements, so that a pooler in transaction mode fits.
    Raises InvalidArgument for a DSN that cannot be parsed.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise faults.from_connect(error) from None
    defaults = {
        name: value for name, value in _DEFAULTS.items() if os.environ.get(_FROM_ENVIRONMENT.get(name, "")) is None
    }
    return {
        "fallback_application_name": "sluicegate",
        **defaults,
        **given,
        "client_encoding": "utf8",
        "autocommit": True,
        "prepare_threshold": None,
    }
