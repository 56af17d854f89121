"""What holds of admission at every moment, whatever has happened: each rule looks at the tables alone, as an outsider would."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.sql.verbs import Json, Sql, check_ledger

NOON = datetime(2026, 5, 6, 12, tzinfo=UTC)

# What lanes and archive say was charged, beside what the attempts say was opened, a line for each window that was ever charged.
_CHARGED = """
    select c.*, (select count(*) from sluicegate.attempt a
            where a.queue_id = c.queue_id and a.opened_at >= c.starts and a.opened_at < c.ends)
        + (select coalesce(sum(n.attempts), 0) from sluicegate.attempt_count n
            where n.queue_id = c.queue_id and n.minute >= c.starts and n.minute < c.ends) as opened,
        c.ends > sluicegate.clock() as current,
        exists (
            select from sluicegate.policy_limit l join sluicegate.policy p on p.queue_id = l.queue_id and not p.opening
            where l.window_id = c.window_id
        ) as counted
    from (
        select u.queue_id, u.window_id, u.starts, max(u.ends) as ends, sum(u.used) as charged
        from (
            select l.queue_id, x.window_id, x.starts, x.ends, x.used
            from sluicegate.lane l
            cross join unnest(l.windows, l.starts, l.ends, l.used) as x(window_id, starts, ends, used)
            union all
            select o.queue_id, o.window_id, o.starts, o.ends, o.used from sluicegate.usage o
            -- A claim that rolled a lane and was then refused has archived what still stands in the lane.
            where not exists (
                select from sluicegate.lane l
                cross join unnest(l.windows, l.starts) as x(window_id, starts)
                where l.queue_id = o.queue_id and l.lane = o.lane and x.window_id = o.window_id and x.starts = o.starts
            )
        ) u
        group by u.queue_id, u.window_id, u.starts
    ) c
"""

# Shares of a window that do not sum to its limit, and caps that with what is claimed could pass theirs.
_SHARES = """
    select p.queue_id, 'window ' || l.window_id as what, l.max_claims as most, s.dealt
    from sluicegate.policy p
    join sluicegate.policy_limit l on l.queue_id = p.queue_id and l.mode = 'enforce' and not p.opening
    cross join lateral (
        select sum(x.share) as dealt from sluicegate.lane a cross join unnest(a.windows, a.shares) as x(window_id, share)
        where a.queue_id = p.queue_id and x.window_id = l.window_id
    ) s
    where s.dealt is distinct from l.max_claims
    union all
    select p.queue_id, 'in flight', p.max_in_flight, s.dealt
    from sluicegate.policy p
    cross join lateral (
        select sum(greatest(a.cap, n.claimed)) + (
                select count(*) from sluicegate.job j where j.queue_id = p.queue_id and j.state = 'claimed' and j.lane is null
            ) as dealt, bool_and(a.cap = 0) as shut, count(*) filter (where a.cap is null) as uncapped
        from sluicegate.lane a
        cross join lateral (
            select count(*) as claimed from sluicegate.job j
            where j.queue_id = a.queue_id and j.lane = a.lane and j.state = 'claimed'
        ) n
        where a.queue_id = p.queue_id and a.live
    ) s
    where p.max_in_flight is not null and p.in_flight_mode = 'enforce' and not p.opening
        and not s.shut and (s.dealt > p.max_in_flight or s.uncapped > 0)
"""

# A limit that is passed, though its queue has admitted something since the limit was last changed. One statement, so that it
# may be asked at any moment while others claim. Only leases that are alive count, and only claims that were admitted (with a lane).
_PASSED = """
    select p.queue_id, 'in flight' as what, p.max_in_flight as most, f.claimed as used
    from sluicegate.policy p
    cross join lateral (
        select count(*) filter (where j.lease_expires_at > sluicegate.clock()) as claimed,
            max(j.claimed_at) filter (where j.lane is not null) as newest
        from sluicegate.job j where j.queue_id = p.queue_id and j.state = 'claimed'
    ) f
    where p.in_flight_mode = 'enforce' and not p.opening and f.claimed > p.max_in_flight and f.newest > p.updated_at
    union all
    select p.queue_id, 'window ' || l.window_id, l.max_claims, w.used
    from sluicegate.policy p
    join sluicegate.policy_limit l on l.queue_id = p.queue_id and l.mode = 'enforce'
    cross join lateral (
        select sum(x.used - x.forgiven) as used, x.starts, x.ends
        from sluicegate.lane a
        cross join unnest(a.windows, a.starts, a.ends, a.used, a.forgiven) as x(window_id, starts, ends, used, forgiven)
        where a.queue_id = p.queue_id and x.window_id = l.window_id
        group by x.starts, x.ends
    ) w
    -- A lane that nobody has used since its window ended still shows that one; what was claimed later is not in it.
    where not p.opening and w.used > l.max_claims and exists (
        select from sluicegate.job j
        where j.queue_id = p.queue_id and j.lane is not null and j.claimed_at > p.updated_at and j.claimed_at >= w.starts
            and j.claimed_at < w.ends
    )
"""

# A dead letter that no attempt accounts for would have been made by a limit.
_LOST = """
    select j.id, j.state, j.attempts_total, e.disposition
    from sluicegate.job j
    left join lateral (
        select e.disposition from sluicegate.attempt a join sluicegate.attempt_end e on e.attempt_id = a.id
        where a.job_id = j.id order by a.seq desc limit 1
    ) e on true
    where j.state = 'failed' and j.attempts_total > 0 and e.disposition is distinct from 'dead_lettered'
        and exists (select from sluicegate.attempt a where a.job_id = j.id and a.seq = j.attempts_total)
        or j.state = 'failed' and j.attempts_total = 0
"""

# What a queue could start, with how many come before each: lapsed claims by their lease, then the others by priority, due time, id.
_WAITING = """
    select j.id, rank() over (order by j.state <> 'claimed', l.at, l.priority, l.run_at, l.id) - 1 as ahead
    from sluicegate.job j
    cross join lateral (
        select j.lease_expires_at as at, null::smallint as priority, null::timestamptz as run_at, null::bigint as id
        where j.state = 'claimed'
        union all
        select null, j.priority, j.run_at, j.id where j.state <> 'claimed'
    ) l
    where j.queue_id = q.id and (j.state = 'pending' or j.state = 'scheduled' and j.run_at <= sluicegate.clock()
        or j.state = 'claimed' and j.lease_expires_at <= sluicegate.clock()
            and j.attempt < j.max_attempts and j.cancel_requested_at is null)
"""

# Everybody who answers for a queue, at one moment.
_ASKED = f"""
    select q.governed, sluicegate.verdict(q.id) as verdict, sluicegate.budget_show(q.name) as shown,
        sluicegate.admission_status(q.name) as status, sluicegate.deferral(q.id, sluicegate.clock()) as deferral,
        sluicegate.next_jobs(q.name, 200) as following,
        (select coalesce(jsonb_object_agg(w.id, w.ahead), '{{}}') from ({_WAITING}) w) as waiting,
        (select md5(string_agg(j::text, '|' order by j.id)) from sluicegate.job j where j.state in ('pending', 'scheduled')) as kept
    from sluicegate.queue q where q.name = %s
"""


@dataclass
class Charges:
    """*Charged = attempts opened*, per queue and window, over the life of a test.

    A window that leaves its policy before it ends is charged no more; it is followed again when it is counted anew.
    """

    left: set[tuple[int, Any]] = field(default_factory=set)

    def check(self, sql: Sql) -> int:
        """How many windows were compared. Call it whenever a policy or the time may have changed."""
        compared = 0
        for row in sql.rows(_CHARGED):
            key = (row["window_id"], row["starts"])
            if row["current"]:
                (self.left.discard if row["counted"] else self.left.add)(key)
            if key not in self.left:
                assert row["charged"] == row["opened"], row
                compared += 1
        return compared


def check_limits(sql: Sql) -> None:
    """Nothing is above a limit, and the shares of the lanes are such that nothing will be."""
    assert not (wrong := sql.rows(_PASSED)), wrong
    assert not (wrong := sql.rows(_SHARES)), wrong
    assert not (wrong := sql.rows(_LOST)), wrong


def passed(sql: Sql) -> list[Json]:
    """Limits that are passed at this moment, in one look."""
    return sql.rows(_PASSED)


def claimed(sql: Sql, queue: str) -> int:
    """How many jobs of a queue are claimed, lapsed ones too."""
    return int(
        sql.one(
            "select count(*) from sluicegate.job j join sluicegate.queue q on q.id = j.queue_id"
            " where q.name = %s and j.state = 'claimed'",
            queue,
        )
    )


def trial(sql: Sql, queue: str, kept: str) -> Json:
    """What a claim of one job, made now and alone, answers; a refused one leaves what waits as it was. It is taken back."""
    with sql.transaction():
        answer = sql.claim(queue)
        if not answer["claims"]:
            assert sql.rows(_ASKED, queue)[0]["kept"] == kept
    return answer


def check_told(told: Json | None, verdict: Json) -> None:
    """A claim is told what the gates showed before it, and itself."""
    if told is None:
        assert verdict["gates"] == []
        return
    used = Counter(
        (gate["period"], gate["used"], gate["limit"]) for gate in verdict["gates"] if gate["gate"] == "window"
    )
    shown = Counter((limit["period"], limit["used"] - 1, limit["max_claims_per_window"]) for limit in told["limits"])
    assert shown == used, (told, verdict)


def check_rule(sql: Sql, queue: str) -> str:
    """Whoever is asked about a queue says the same, and a claim does what they say. The clock stands still, nobody else acts.

    Answers ``empty``, or the state or reason they agreed on.
    """
    (asked,) = sql.rows(_ASKED, queue)
    verdict, shown, deferral = asked["verdict"], asked["shown"], asked["deferral"]
    waiting = {int(job): ahead for job, ahead in asked["waiting"].items()}
    admitted = verdict["state"] == "admitted"
    standing = "admitted" if admitted else verdict["reason"]
    bare = {name: value for name, value in verdict.items() if name != "gates"}

    (status,) = asked["status"]["queues"]
    for answer in (shown, status):
        assert answer["status"] == (standing if asked["governed"] else "ungoverned"), (answer, verdict)
        assert not asked["governed"] or answer["verdict"] == bare
    assert shown["backlog"] == {"pending": len(waiting), "exact": True}
    assert status["pending"] == len(waiting)

    answer = trial(sql, queue, asked["kept"])
    following = [job for job in asked["following"]["jobs"] if job["status"] != "scheduled"]
    assert [waiting[job["id"]] for job in following] == sorted(waiting.values())[: len(following)]
    assert len(following) == len(waiting) or len(asked["following"]["jobs"]) == 200
    if not waiting:
        nothing = (answer["empty"], answer["claims"], answer["deferred"], deferral)
        assert nothing == (True, [], [], None), (answer, verdict)
        return "empty"
    assert following
    # Empty beside a deferred queue says: nothing now. Alone it would say: nothing at all.
    assert answer["empty"] is not admitted, (answer, verdict)
    if admitted:
        assert [waiting[claim["job"]["id"]] for claim in answer["claims"]] == [0], (answer, verdict)
        assert (answer["deferred"], deferral) == ([], None)
        check_told(answer["claims"][0]["admission"], verdict)
    else:
        assert (answer["claims"], answer["deferred"]) == ([], [deferral]), (answer, verdict)
        told = {name: deferral[name] for name in ("reason", "next_eligible_at", "exact", "all")}
        assert told == {name: verdict[name] for name in told}
        assert deferral["pending"] == len(waiting)
    for job, why in zip(
        (following[0], following[-1]),
        sql.connection.execute(
            "select sluicegate.explain(%s), sluicegate.explain(%s)", [following[0]["id"], following[-1]["id"]]
        ).fetchone()
        or (),
        strict=True,
    ):
        assert (why["waits_for"], why["verdict"]) == ("admission", bare)
        # Of claims that lapsed at one instant any may be the first.
        ahead = waiting[job["id"]]
        assert 0 <= why["position"] - ahead < list(waiting.values()).count(ahead)
        assert why["expected_at"] == job["expected_at"], (why, job)
        assert (job["status"], job["reason"]) == (verdict["state"], verdict["reason"])
    return str(standing)


def stock(sql: Sql, queue: str, jobs: int, **fields: object) -> list[int]:
    return sql.enqueue_many({"queue": queue, **fields} for _ in range(jobs))


def ask_alone(sql: Sql, *queues: str, **request: Any) -> Json:
    """A claim with nobody else about: it takes something, or knows why not."""
    answer = sql.claim(*queues, **request)
    assert answer["claims"] or answer["deferred"] or answer["empty"], answer
    return answer


def check_all(sql: Sql, *queues: str) -> None:
    """Charges, limits and shares are right, and everybody agrees about the queues. The clock must stand still."""
    Charges().check(sql)
    check_limits(sql)
    check_ledger(sql)
    for queue in queues:
        check_rule(sql, queue)
