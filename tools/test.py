"""``./dev test [--all] [pytest arguments]``: every assertion of the project.

Without ``--all`` the counts are small: at most ten minutes on two cores. With it they are full, and a test that
cannot run here fails instead of being listed: at most 45 minutes.
"""

import os
import sys

import pytest

WORKERS = str(min((os.cpu_count() or 1) + 1, 8))


def command_line(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments for pytest, and whether this is a full run."""
    everything = "--all" in arguments
    rest = [argument for argument in arguments if argument != "--all"]
    parallel_already = any(argument.startswith(("-n", "--numprocesses", "--pdb", "--dist")) for argument in rest)
    if not parallel_already:
        # One more than there are cores, for many tests wait: for a lease to end, or a lock.
        rest = ["-n", WORKERS, "--dist", "loadgroup", *rest]
    return rest, everything


def main(arguments: list[str]) -> int:
    rest, everything = command_line(arguments)
    if everything:
        os.environ["SLUICEGATE_TEST_FULL"] = "1"
    return int(pytest.main(rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
