"""Callers that do whatever people and workers do to governed queues, at random, over connections that may die at any moment.

A caller whose connection is cut repeats the call on a new one, as a worker would: claims by their request_id, finishes by
their lease token. So it knows exactly how many attempts its calls have opened, whatever was cut.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from tests.sql.budgets import window
from tests.sql.verbs import Json, Sql, completed, failed, lease, released

T = TypeVar("T")

QUEUES = ("a", "b", "c")
CAP = 6
WINDOWS = (("hour", "UTC"), ("hour", "Asia/Kathmandu"), ("day", "UTC"), ("day", "America/Los_Angeles"))


class Walker:
    """One caller. ``opened`` is how many attempts it was told of, ``edits`` how many changes of a policy it has made."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"w{seed}"
        self.opened = 0
        self.edits = 0
        self.deaths = 0
        self.calls = 0
        self.seen: Counter[str] = Counter()
        self._held: list[Json] = []
        self._known: list[int] = []
        self._dsn = dsn
        self.sql = self._connect()

    def _connect(self) -> Sql:
        connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
        connection.execute("set statement_timeout = '60s'")
        return Sql(connection)

    def close(self) -> None:
        self.sql.connection.close()

    def _sure(self, call: Callable[[Sql], T]) -> tuple[T, bool]:
        """The answer, asked for again on a new connection whenever the old one was cut; and whether it was."""
        cut = False
        while True:
            try:
                return call(self.sql), cut
            except psycopg.OperationalError as error:
                if not self.sql.connection.closed or error.sqlstate not in {None, "57P01"}:
                    raise
                cut = True
                self.deaths += 1
                self.sql = self._connect()

    def walk(self, steps: int, *, edit_windows: bool) -> None:
        for _ in range(steps):
            self.calls += 1
            verb = self.random.choices(
                ("claim", "claim_job", "finish", "enqueue", "by_id", "sweep", "edit"), (8, 2, 7, 2, 2, 1, 2)
            )[0]
            if verb == "edit":
                self._edit(edit_windows)
            else:
                getattr(self, f"_{verb}")()

    # Work

    def _note(self, claims: list[Json]) -> None:
        self._held += claims
        self._known = (self._known + [claim["job"]["id"] for claim in claims])[-60:]

    def _claim(self) -> None:
        queues = self.random.sample(QUEUES, self.random.randint(1, 3))
        finished = [self._ending(self._drop()) for _ in range(self.random.choice([0, 0, 1, 2])) if self._held]
        request: dict[str, Any] = {
            "n": self.random.choice([1, 1, 2, 5]),
            "lease_seconds": self.random.choice([1, 30, 300]),
            "request_id": f"{self.name}-{self.calls}",
        }
        answer, cut = self._sure(lambda sql: sql.claim(*queues, finished=finished, **request))
        assert answer["error"] is None, answer
        assert cut or not answer["replayed"]
        # What was opened before the cut and has ended since is gone, and was opened.
        self.opened += len(answer["claims"]) + len(answer["gone"])
        self._note(answer["claims"])
        self.seen["claimed" if answer["claims"] else "refused"] += 1
        for entry in answer["deferred"]:
            self.seen[entry["reason"]] += 1
        if answer["claims"] and self.random.random() < 0.2:
            again, _ = self._sure(lambda sql: sql.claim(*queues, **request))
            assert again["replayed"]
            assert len(again["claims"]) + len(again["gone"]) == len(answer["claims"]) + len(answer["gone"])
            self._held = [held for held in self._held if held not in answer["claims"]] + again["claims"]

    def _claim_job(self) -> None:
        some = (
            "select id from sluicegate.job where state in ('pending', 'scheduled', 'claimed') order by random() limit 1"
        )
        job, _ = self._sure(lambda sql: sql.one(some))
        if job is None:
            return
        request_id = f"{self.name}-{self.calls}"
        answer, _ = self._sure(lambda sql: sql.call("claim_job", job_id=job, lease_seconds=30, request_id=request_id))
        if answer["status"] == "ok":
            self.opened += 1
            self._note([answer["claim"]])
        elif answer["status"] == "conflict" and "of this request_id has ended" in answer["message"]:
            self.opened += 1
        self.seen[f"claim_job {answer['status']}"] += 1

    def _drop(self) -> Json:
        return self._held.pop(self.random.randrange(len(self._held)))

    def _ending(self, claim: Json) -> Json:
        build = self.random.choice([completed, completed, failed, released])
        return build(claim)

    def _finish(self) -> None:
        if not self._held:
            return
        claim = self._drop()
        match self.random.randrange(7):
            case 0 | 1 | 2:
                self._sure(lambda sql: sql.complete(claim))
            case 3:
                self._sure(lambda sql: sql.fail(claim, retry_in_seconds=0.0))
            case 4:
                started = self.random.random() < 0.5
                self._sure(lambda sql: sql.release(claim, started=started))
            case 5:
                self._sure(lambda sql: sql.call("heartbeat", **lease(claim), lease_seconds=60))
                self._held.append(claim)
            case _:
                # The worker is gone; its lease runs out.
                self._sure(
                    lambda sql: sql.do(
                        "update sluicegate.job set lease_expires_at = sluicegate.clock()"
                        " where id = %s and attempt_id = %s and state = 'claimed'",
                        claim["job"]["id"],
                        claim["attempt_id"],
                    )
                )

    def _enqueue(self) -> None:
        jobs: list[Json] = [
            {"queue": self.random.choice(QUEUES), "max_attempts": self.random.randint(1, 3), "priority": n % 2}
            for n in range(self.random.randint(1, 5))
        ]
        request_id = f"{self.name}-{self.calls}"
        ids, _ = self._sure(lambda sql: sql.enqueue_many(jobs, request_id=request_id))
        self._known = (self._known + ids)[-60:]

    def _by_id(self) -> None:
        if self._known:
            verb, job = self.random.choice(["retry", "cancel"]), self.random.choice(self._known)
            self._sure(lambda sql: sql.call(verb, job_id=job))

    def _sweep(self) -> None:
        self._sure(lambda sql: sql.call(self.random.choice(["reap", "reap", "prune"])))

    # Policies

    def _edit(self, edit_windows: bool) -> None:
        queue = self.random.choice(QUEUES)
        verbs = ["patch", "patch", "pause", "resume", "reset"] + ["set", "set", "clear"] * edit_windows
        verb = self.random.choice(verbs)
        arguments: dict[str, Any] = {"queue": queue}
        match verb:
            case "set":
                limits = [
                    window(
                        self.random.randint(0, 60),
                        period,
                        tz,
                        mode=self.random.choice(["enforce", "enforce", "shadow"]),
                    )
                    for period, tz in self.random.sample(WINDOWS, self.random.randint(1, 2))
                ]
                cap = self.random.choice([None, self.random.randint(0, CAP)])
                arguments["policy"] = {"limits": limits, "max_in_flight": cap, "lanes": self.random.randint(1, 16)}
            case "patch":
                patch: Json = {"max_in_flight": self.random.randint(1, CAP)}
                arguments["patch"] = self.random.choice(
                    [patch, {"lanes": self.random.randint(1, 8)}, {**patch, "lanes": 1}]
                )
            case "reset":
                arguments["period"] = self.random.choice([None, "hour", "day"])
            case _:
                pass
        function = {
            "set": "set_admission_policy",
            "patch": "patch_admission_policy",
            "clear": "clear_admission_policy",
            "pause": "pause_queue",
            "resume": "resume_queue",
            "reset": "reset_usage",
        }[verb]
        try:
            self._sure(lambda sql: sql.call(function, **arguments))
        except psycopg.Error as error:
            # Nothing to change: another caller was quicker, or the queue has no policy.
            if error.sqlstate not in {"SG001", "SG002", "SG003"}:
                raise
            self.seen[f"{verb} refused"] += 1
            return
        self.edits += 1
        self.seen[verb] += 1
        if verb == "pause" and self.random.random() < 0.7:
            self._edit_back(queue)

    def _edit_back(self, queue: str) -> None:
        try:
            self._sure(lambda sql: sql.call("resume_queue", queue=queue))
        except psycopg.Error as error:
            if error.sqlstate not in {"SG002", "SG003"}:
                raise
            return
        self.edits += 1
