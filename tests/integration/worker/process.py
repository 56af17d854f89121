"""A worker process for tests: ``run_exec`` with the options of one JSON argument; events and report as JSON lines."""

import asyncio
import json
import signal
import sys
from typing import Any

from sluicegate import Client
from sluicegate.worker.exec import WorkerEvent, run_exec


def tell(event: WorkerEvent) -> None:
    job_id = None if event.claim is None else event.claim.job_id
    write({"kind": event.kind, "job_id": job_id, "message": event.message})


def write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(options: dict[str, Any]) -> None:
    queue, command = options.pop("queue"), options.pop("command")
    async with Client(**options.pop("client", {})) as client:
        report = await run_exec(client, queue, command, on_event=tell, **options)
    write({"report": report.to_dict()})


if __name__ == "__main__":
    # Whoever runs the tests under nohup ignores it, and a worker would do so as well.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    asyncio.run(main(json.loads(sys.argv[1])))
