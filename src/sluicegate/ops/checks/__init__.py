"""What ``doctor`` looks at, one file a subject."""

from __future__ import annotations

from sluicegate.ops.checks.clock import check_clock
from sluicegate.ops.checks.dead_rows import check_dead_rows
from sluicegate.ops.checks.isolation import check_isolation
from sluicegate.ops.checks.opening import check_opening
from sluicegate.ops.checks.policies import check_policies
from sluicegate.ops.checks.privileges import check_privileges
from sluicegate.ops.checks.result import CheckFunction
from sluicegate.ops.checks.schema import check_schema
from sluicegate.ops.checks.secrecy import check_secrecy
from sluicegate.ops.checks.snapshots import check_snapshots
from sluicegate.ops.checks.versions import check_versions
from sluicegate.ops.checks.zones import check_zones

__all__ = ["CHECKS"]

# In the order of the report; the names are what the report calls them.
CHECKS: tuple[tuple[str, CheckFunction], ...] = (
    ("versions", check_versions),
    ("schema", check_schema),
    ("clock", check_clock),
    ("zones", check_zones),
    ("isolation", check_isolation),
    ("snapshots", check_snapshots),
    ("opening", check_opening),
    ("policies", check_policies),
    ("privileges", check_privileges),
    ("dead_rows", check_dead_rows),
    ("secrecy", check_secrecy),
)
