"""Write the synchronous modules from the asynchronous ones: ``python tools/unasync.py [--check]``.

The asynchronous text is the source. The replacements below are the only differences; whatever cannot be said by
replacing words (cancellation, sleeping, threads) stands by hand in ``store/calls.py``, once for each side.
``--check`` writes nothing and fails if a generated file is not what would be written now.
"""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "sluicegate"
GENERATED = (
    ("store/async_connections.py", "store/sync_connections.py"),
    ("store/async_store.py", "store/sync_store.py"),
    ("ops/async_budgets.py", "ops/sync_budgets.py"),
    ("ops/async_ops.py", "ops/sync_ops.py"),
    ("async_budgets.py", "sync_budgets.py"),
    ("client.py", "sync_client.py"),
)
HEADER = "# Generated from {source} by tools/unasync.py: change that file, then run it.\n"

REPLACEMENTS = (
    # What only coroutines can do, and what only threads can.
    (
        r'\n    Cancelling a call (?:.|\n)*?\n    """',
        '\n    One client may be used from several threads at once.\n    """',
    ),
    (r"\basynchronous\b", "synchronous"),
    # Words of the language.
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\basync with\b", "with"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    # Names of the standard library and the driver.
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bCoroutine, ", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAbstractAsyncContextManager\b", "AbstractContextManager"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncConnection\b", "Connection"),
    (r"\bAsyncConnectionPool\b", "ConnectionPool"),
    # Our own names.
    (r"\bAsync([A-Z]\w*)\b", r"Sync\1"),
    (r"\basync_(\w+)", r"sync_\1"),
    (r"\bClient\b", "SyncClient"),
)


def synchronous(text: str) -> str:
    """The synchronous form of an asynchronous module's text, formatted."""
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    for command in (("check", "--quiet", "--fix", "--select", "I"), ("format", "--quiet")):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(PACKAGE / "generated.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main(arguments: list[str]) -> int:
    if set(arguments) - {"--check"}:
        print(__doc__, file=sys.stderr)
        return 2
    differing = []
    for source, target in GENERATED:
        text = HEADER.format(source=source) + synchronous((PACKAGE / source).read_text())
        path = PACKAGE / target
        if path.exists() and path.read_text() == text:
            continue
        differing.append(target)
        if not arguments:
            path.write_text(text)
    if differing and arguments:
        print(f"Not what tools/unasync.py writes now: {', '.join(differing)}. Run: python tools/unasync.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
