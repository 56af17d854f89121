"""``sluicegate work``: the handlers of an app, in a process that others start, stop and ask how it is."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Answer, Cli
from tests.support.waiting import eventually

APP = """
import asyncio
import os
import threading
from pathlib import Path

from sluicegate import App, Context, DeadLetter, ThreadContext

app = App({"q": {"max_workers": 4}, "threads": {"max_workers": 2}})


@app.handler(queue="q")
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.handler(queue="q")
async def give_up() -> None:
    raise DeadLetter("no hope")


@app.handler(queue="q")
async def wait(context: Context, door: str) -> str:
    Path(f"{context.job.id}.runs").touch()
    while not Path(door).exists():
        await asyncio.sleep(0.01)
    return "through"


@app.handler(queue="threads")
def stand(context: ThreadContext) -> None:
    Path(f"{context.job.id}.runs").touch()
    threading.Event().wait()


@app.handler(queue="q")
async def stay(context: Context) -> None:
    Path(f"{context.job.id}.runs").touch()
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass


@app.handler(queue="q")
async def send_away(context: Context) -> None:
    Path(f"{context.job.id}.runs").touch()
    await asyncio.to_thread(threading.Event().wait)


@app.handler(queue="q", max_attempts=1)
async def exit_inside(door: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(door))


async def leave(door: str) -> None:
    while not Path(door).exists():
        await asyncio.sleep(0.01)
    raise SystemExit(3)


@app.handler(queue="q")
async def fork(waits: bool) -> int:
    child = os.fork()
    if child == 0:
        if waits:
            await asyncio.sleep(0)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@app.handler(queue="threads")
def fork_in_a_thread() -> int:
    child = os.fork()
    if child == 0:
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


nothing = App()
number = 3
"""


@pytest.fixture
def work(cli: Cli) -> Cli:
    """The command line in a folder with ``doing.py``."""
    (cli.place / "doing.py").write_text(APP)
    return cli


def events(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def job(cli: Cli, job_id: int) -> Any:
    return cli("job", str(job_id), "--json").json


def runs(cli: Cli, job_id: int) -> None:
    eventually((cli.place / f"{job_id}.runs").exists, f"job {job_id} runs")


def told(process: "subprocess.Popen[str]", kind: str) -> Any:
    """The next event of that kind."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        event = json.loads(line)
        if event["event"] == kind:
            return event
    raise AssertionError(f"it ended without {kind}: {process.communicate()}")


def ended(process: "subprocess.Popen[str]") -> Answer:
    out, err = process.communicate(timeout=60)
    assert err == ""
    return Answer(process.returncode, out, err)


def test_the_jobs_of_all_its_queues_are_done_by_its_handlers(work: Cli) -> None:
    work("enqueue", "q", '{"a": 2, "b": 3}', "--kind", "add")
    work("enqueue", "q", "{}", "--kind", "give_up")
    answer = work("work", "doing:app", "--drain", "--json", "--worker", "first")
    seen = events(answer.out)
    assert all(event["at"] and event["worker"] == "first" for event in seen)
    ends = {event["job_id"]: event["event"] for event in seen if event["event"] in ("done", "dead_letter")}
    assert ends == {1: "done", 2: "dead_letter"}
    assert [event["message"] for event in seen if event["event"] == "dead_letter"] == ["no hope"]
    last = seen[-1]
    assert (last["event"], last["claimed"], last["done"], last["dead_letters"]) == ("ended", 2, 1, 1)
    assert "lease_token" not in answer.out
    found = job(work, 1)
    assert (found["job"]["result"], found["attempts"][0]["worker"]) == (5, "first")


def test_people_are_told_in_words(work: Cli) -> None:
    work("enqueue", "q", '{"a": "two"}', "--kind", "add")
    shown = work("work", "doing:app", "--drain").out
    assert "job 1 dead letter" in shown
    assert "add cannot take a" in shown
    assert shown.splitlines()[-1].startswith("1 attempt in ")
    assert "nothing to do" in work("work", "doing:app", "--drain").out


def test_a_queue_that_is_closed_is_told_and_is_no_reason_to_wait_when_draining(work: Cli) -> None:
    work("enqueue", "q", '{"a": 2}', "--kind", "add")
    work("queue", "budget", "pause", "q")
    seen = events(work("work", "doing:app", "--drain", "--json").out)
    assert [event["event"] for event in seen] == ["deferred", "ended"]
    assert (seen[0]["queue"], seen[0]["deferred"]["reason"]) == ("q", "paused")
    assert "q is deferred: paused, until it is opened; 1 job waiting" in work("work", "doing:app", "--drain").out


def test_what_is_no_app_is_refused_before_anything_is_claimed(work: Cli) -> None:
    work("enqueue", "q", '{"a": 2}', "--kind", "add")
    (work.place / "broken.py").write_text("import nowhere_to_be_found\n")
    (work.place / "wrong.py").write_text("1 / 0\n")
    (work.place / "settings.py").write_text(
        "from sluicegate import App\napp = App({'q': {'wieght': 2}}, global_max_workers=4)\n"
    )
    wrong = [
        ("doing", "module:app", "names no app"),
        ("doing:", "module:app", "names no app"),
        (":app", "module:app", "names no app"),
        ("elsewhere:app", "module:app", "There is no module elsewhere"),
        ("doing.py:app", "module:app", "doing.py is a file"),
        ("doing.deeper:app", "module:app", "There is no module doing.deeper"),
        ("broken:app", "module:app", "broken cannot be imported: ModuleNotFoundError"),
        ("wrong:app", "module:app", "wrong cannot be imported: ZeroDivisionError"),
        ("doing:missing", "module:app", "doing has no App called missing"),
        ("doing:number", "module:app", "doing:number is no App"),
        ("doing:nothing", "queues", "A worker without queues"),
        ("settings:app", "q.wieght", "Queue q has no setting 'wieght'"),
    ]
    for where, field, message in wrong:
        error = work("work", where, "--json", status=2).error
        assert (error["code"], error["field"]) == ("invalid_argument", field), where
        assert message in error["message"]
        assert error["next_step"]
    assert job(work, 1)["job"]["attempts_total"] == 0


def test_wrong_options_are_refused_before_anything_is_claimed(work: Cli) -> None:
    work("enqueue", "q", '{"a": 2}', "--kind", "add")
    wrong = [
        (("--lease", "0"), "lease_seconds"),
        (("--grace", "-1"), "grace"),
        (("--poll", "0"), "poll"),
        (("--health", "nowhere"), "health"),
        (("--health-file", "no/such/folder/health.json"), "health_file"),
    ]
    for arguments, field in wrong:
        error = work("work", "doing:app", "--json", *arguments, status=2).error
        assert (error["code"], error["field"]) == ("invalid_argument", field), arguments
    assert job(work, 1)["job"]["attempts_total"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_no_more_jobs_and_lets_the_running_ones_end(work: Cli, number: signal.Signals) -> None:
    process = work.start("work", "doing:app", "--json")
    for _ in range(6):
        work("enqueue", "q", '{"door": "open"}', "--kind", "wait")
    for job_id in range(1, 5):
        runs(work, job_id)
    process.send_signal(number)
    assert told(process, "stopping")["message"] == f"{number.name} was received"
    (work.place / "open").touch()
    answer = ended(process)
    last = events(answer.out)[-1]
    assert (answer.status, last["claimed"], last["done"], last["released"], last["lost"]) == (0, 4, 4, 0, 0)
    states = [job(work, job_id)["job"] for job_id in range(1, 7)]
    assert [found["state"] for found in states] == ["done"] * 4 + ["pending"] * 2
    assert [found["attempts_total"] for found in states] == [1] * 4 + [0] * 2


def test_what_outlasts_the_grace_is_cancelled_and_given_back(work: Cli) -> None:
    process = work.start("work", "doing:app", "--json", "--grace", "0.2")
    work("enqueue", "q", '{"door": "never"}', "--kind", "wait")
    runs(work, 1)
    process.send_signal(signal.SIGTERM)
    answer = ended(process)
    last = events(answer.out)[-1]
    assert (answer.status, last["released"], last["lost"]) == (0, 1, 0)
    found = job(work, 1)
    assert (found["job"]["state"], found["job"]["attempt"], found["attempts"][0]["outcome"]) == (
        "pending",
        1,
        "released",
    )


def test_a_second_signal_cancels_at_once(work: Cli) -> None:
    process = work.start("work", "doing:app", "--json", "--grace", "600")
    work("enqueue", "q", '{"door": "never"}', "--kind", "wait")
    runs(work, 1)
    process.send_signal(signal.SIGTERM)
    told(process, "stopping")
    process.send_signal(signal.SIGTERM)
    assert events(ended(process).out)[-1]["released"] == 1
    assert job(work, 1)["job"]["state"] == "pending"


def test_a_thread_that_does_not_listen_cannot_hold_the_worker(work: Cli) -> None:
    """It may still do its job, so that is not given back: its lease decides."""
    process = work.start("work", "doing:app", "--json", "--grace", "0")
    work("enqueue", "threads", "{}", "--kind", "stand")
    runs(work, 1)
    process.send_signal(signal.SIGTERM)
    told(process, "stopping")
    process.send_signal(signal.SIGTERM)
    answer = ended(process)
    (lost,) = [event for event in events(answer.out) if event["event"] == "lost"]
    assert (answer.status, lost["job_id"]) == (0, 1)
    assert "did not end when the worker was stopped" in lost["message"]
    assert job(work, 1)["job"]["state"] == "claimed"


def test_a_task_that_does_not_listen_cannot_hold_the_process(work: Cli) -> None:
    """Python itself would wait for it for ever."""
    process = work.start("work", "doing:app", "--grace", "0")
    work("enqueue", "q", "{}", "--kind", "stay")
    runs(work, 1)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    while "Stopping" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    found = job(work, 1)
    assert (process.returncode, found["job"]["state"]) == (0, "claimed")
    assert out.splitlines()[-1].endswith("1 lost"), "its report is whole"
    message = (
        "Handler stay did not end when the worker was stopped. Another worker may run job 1 when its lease ends, at"
    )
    assert (out.count(message), err.count("did not end")) == (1, 0), "told once"
    assert found["job"]["lease_expires_at"][:16] in out
    assert "The process ends, although this has not: task Handling.run" in err


def test_a_thread_of_a_handler_cannot_hold_the_process(work: Cli) -> None:
    """One that a handler has sent its work to, and that does not end with it."""
    process = work.start("work", "doing:app", "--grace", "0")
    work("enqueue", "q", "{}", "--kind", "send_away")
    runs(work, 1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, job(work, 1)["job"]["state"]) == (0, "pending")
    assert out.splitlines()[-1].endswith("1 released")
    assert "The process ends, although this has not: thread" in err


def test_a_task_of_a_handler_that_exits_ends_its_own_job_and_no_other(work: Cli) -> None:
    work("enqueue", "q", '{"door": "first"}', "--kind", "exit_inside", "--max-attempts", "1")
    work("enqueue", "q", '{"door": "second"}', "--kind", "wait")
    process = work.start("work", "doing:app", "--drain")
    runs(work, 2)
    (work.place / "first").touch()
    eventually(lambda: job(work, 1)["job"]["state"] == "failed", "the end of the first job")
    (work.place / "second").touch()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, job(work, 2)["job"]["result"]) == (0, "through")
    assert "called sys.exit(3). The worker goes on." in err
    assert "SystemExit: 3" in job(work, 1)["job"]["error"]


@pytest.mark.parametrize(
    ("queue", "kind", "payload"),
    [("q", "fork", '{"waits": false}'), ("q", "fork", '{"waits": true}'), ("threads", "fork_in_a_thread", "{}")],
    ids=["returns", "waits", "thread"],
)
def test_what_a_handler_forks_ends_where_it_comes_back_to_the_worker(
    work: Cli, queue: str, kind: str, payload: str
) -> None:
    work("enqueue", queue, payload, "--kind", kind)
    work("enqueue", "q", '{"a": 2}', "--kind", "add")
    process = work.start("work", "doing:app", "--drain", "--json")
    out, err = process.communicate(timeout=60)
    assert "called os.fork, and its child came back to the worker. It ends here" in err
    assert (process.returncode, events(out)[-1]["done"], events(out)[-1]["claimed"]) == (0, 2, 2)
    found = job(work, 1)
    assert (found["job"]["result"], len(found["attempts"])) == (70, 1), "the child's exit status, told by its parent"


def test_others_can_ask_how_it_is(work: Cli) -> None:
    process = work.start("work", "doing:app", "--json", "--health", "127.0.0.1:0", "--health-file", "health.json")
    work("enqueue", "q", '{"door": "open"}', "--kind", "wait")
    runs(work, 1)

    def health() -> Any:
        path = work.place / "health.json"
        return path.exists() and (found := json.loads(path.read_text()))["running"] == 1 and found

    found = eventually(health, "the file tells of the running job")
    assert (found["live"], found["ready"], found["state"]) == (True, True, "started")
    assert [(queue["queue"], queue["running"], queue["capacity"]) for queue in found["queues"]] == [
        ("q", 1, {"mode": "hard_reserved", "max_workers": 4}),
        ("threads", 0, {"mode": "hard_reserved", "max_workers": 2}),
    ]
    address = listens(process.pid)
    assert address in told(process, "listening")["url"]
    for path, status in (("/live", 200), ("/ready", 200), ("/health", 200), ("/", 404)):
        assert asked(address, path)[0] == status
    assert asked(address, "/foo")[1] == {"code": "not_found", "paths": ["/live", "/ready", "/health"]}
    process.send_signal(signal.SIGTERM)
    told(process, "stopping")
    assert [asked(address, path)[0] for path in ("/live", "/ready")] == [200, 503]
    (work.place / "open").touch()
    assert ended(process).status == 0
    assert not (work.place / "health.json").exists()


def listens(pid: int) -> str:
    """The TCP port at which the process listens on 127.0.0.1."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return f"127.0.0.1:{int(fields[1].partition(':')[2], 16)}"
    raise AssertionError("it listens nowhere")


def asked(address: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
