"""A private PostgreSQL for one user: no root, no system package, stopped when nobody needs it.

A small supervisor process owns the server. Commands attach to it, which starts it where it does not run; it ends some
seconds after the last of them. ``supervisor`` is that process, ``lifecycle`` what it does, ``guests`` whom it serves.
"""

from __future__ import annotations

from sluicegate.embedded.attachment import Attachment, attach
from sluicegate.embedded.reports import ClientStatus, EmbeddedStatus, status, stop

__all__ = ["Attachment", "ClientStatus", "EmbeddedStatus", "attach", "status", "stop"]
