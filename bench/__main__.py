"""``python -m bench [NAME [options]]``: list the measurements, or run one."""

import importlib
import sys

# Name, module with a main(arguments) -> int, one sentence.
BENCHES = (
    ("jobs", "bench.jobs", "claims, finishes and enqueues against a bare table in the same PostgreSQL"),
    ("admission", "bench.admission", "claims under a policy against the same claims without one"),
    ("workers", "bench.workers", "what whole worker processes do, against bare tables, and how soon they wake"),
)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("Usage: ./dev bench NAME [options]      (./dev bench NAME --help shows its options)\n")
        for name, _, sentence in BENCHES:
            print(f"  {name:<10} {sentence}")
        return 0
    modules = {name: module for name, module, _ in BENCHES}
    if arguments[0] not in modules:
        print(f"There is no measurement {arguments[0]!r}; there are: {', '.join(modules)}.", file=sys.stderr)
        return 2
    return int(importlib.import_module(modules[arguments[0]]).main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
