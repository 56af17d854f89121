"""A private PostgreSQL for one user: no root, no system package, stopped when nobody needs it."""

from __future__ import annotations

from sluicegate.embedded.attachment import Attachment, attach, stop

__all__ = ["Attachment", "attach", "stop"]
