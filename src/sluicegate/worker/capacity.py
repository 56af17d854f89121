"""How many jobs of each queue may run at once in one process, as it was set: slots of its own, or of a pool.

*Hard-reserved*: each queue has ``max_workers`` slots of its own, 50 unless set. *Weighted*, chosen by
``global_max_workers``: all queues share that many; each has a floor ``min_workers`` (0), a ``weight`` (1), a cap
``max_workers`` (none), and lends what it does not use of its floor, unless ``lend_floor`` is False.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sluicegate.errors import (
    DuplicateQueue,
    InvalidFloor,
    InvalidPool,
    InvalidRate,
    InvalidWeight,
    InvalidWorker,
    MinWorkersExceedGlobal,
    NoQueues,
    PoolRequired,
    UnknownOption,
)
from sluicegate.model.pool import Contender
from sluicegate.ops import validate

DEFAULT_MAX_WORKERS = 50
MOST_QUEUES = 1000
MOST_WORKERS = 10_000
MOST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The settings of one queue; None is the default of the mode.

    ``rate_per_second`` with ``burst`` (1) limits how many jobs of the queue this process starts; it is multiplied by
    every further process. It is never passed; of a high rate with a small burst a part stays unused, about a round trip to
    the database for each token (a tenth at 100 a second). A limit over all processes is a budget, or its ``max_in_flight``.
    """

    max_workers: int | None = None
    min_workers: int | None = None
    weight: int | None = None
    lend_floor: bool | None = None
    rate_per_second: float | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The checked settings of a process: a pool of ``pool`` slots, or None, and its queues by name."""

    pool: int | None
    queues: Mapping[str, QueueConfig]

    @property
    def slots(self) -> int:
        """How many jobs can run at once."""
        return self.pool if self.pool is not None else sum(self.most(queue) for queue in self.queues)

    def most(self, queue: str) -> int:
        """How many of one queue can."""
        cap = self.queues[queue].max_workers
        if self.pool is None:
            return DEFAULT_MAX_WORKERS if cap is None else cap
        return self.pool if cap is None else min(cap, self.pool)

    def contender(self, queue: str) -> Contender:
        """The queue with nothing running and nothing to do."""
        config = self.queues[queue]
        return Contender(
            queue=queue,
            weight=1 if config.weight is None else config.weight,
            floor=config.min_workers or 0,
            cap=config.max_workers,
            lends=config.lend_floor is not False,
        )


def checked(
    queues: Mapping[str, QueueConfig | Mapping[str, Any]] | Iterable[tuple[str, QueueConfig | Mapping[str, Any]]],
    global_max_workers: int | None = None,
) -> Capacity:
    """Raises a named InvalidWorker, whose ``field`` is the queue and the setting, for whatever cannot be meant."""
    given = list(queues.items() if isinstance(queues, Mapping) else queues)
    known: dict[str, QueueConfig] = {}
    for name, config in given:
        (queue,) = validate.queue_names([name])
        if queue in known:
            raise DuplicateQueue(f"Queue {queue} is set twice.", field=queue, next_step="Set it once.")
        known[queue] = _config(queue, config)
    if not known:
        raise NoQueues(
            "A worker without queues would do nothing.", field="queues", next_step="Name at least one queue."
        )
    if len(known) > MOST_QUEUES:
        raise InvalidWorker(
            f"{len(known):,} queues are set.", field="queues", next_step=f"One worker serves at most {MOST_QUEUES:,}."
        )
    if global_max_workers is not None:
        _whole(global_max_workers, "global_max_workers", 1, MOST_WORKERS, InvalidPool)
    for queue, config in known.items():
        _check(queue, config, global_max_workers)
    floors = sum(config.min_workers or 0 for config in known.values())
    if global_max_workers is not None and floors > global_max_workers:
        raise MinWorkersExceedGlobal(
            f"sum of min_workers ({floors}) exceeds global_max_workers ({global_max_workers})",
            field="min_workers",
            next_step="Lower floors, or give the pool more slots.",
        )
    kept = sum(config.min_workers or 0 for config in known.values() if config.lend_floor is False)
    for queue, config in known.items():
        if kept == global_max_workers and not config.min_workers:
            raise InvalidFloor(
                f"Queue {queue} could never run a job: floors that are not lent ({kept}) take the whole pool.",
                field=f"{queue}.min_workers",
                next_step="Give it a floor, lend one of the others, or give the pool more slots.",
            )
    return Capacity(global_max_workers, known)


def _config(queue: str, config: Any) -> QueueConfig:
    if isinstance(config, QueueConfig):
        return config
    options = [field.name for field in fields(QueueConfig)]
    if not isinstance(config, Mapping):
        raise InvalidWorker(
            f"Queue {queue} is set to {validate.shown(config)}, and its settings have names.",
            field=queue,
            next_step=f"Write a mapping, or a QueueConfig. The settings are {', '.join(options)}.",
        )
    for name in config:
        if name not in options:
            raise UnknownOption(
                f"Queue {queue} has no setting {name!r}.",
                field=f"{queue}.{name}",
                next_step=f"The settings are {', '.join(options)}.",
            )
    return QueueConfig(**config)


def _check(queue: str, config: QueueConfig, pool: int | None) -> None:
    if config.max_workers is not None:
        _whole(config.max_workers, f"{queue}.max_workers", 1, MOST_WORKERS, InvalidPool)
    if config.weight is not None:
        _whole(config.weight, f"{queue}.weight", 1, MOST_WEIGHT, InvalidWeight)
    if config.min_workers is not None:
        _whole(config.min_workers, f"{queue}.min_workers", 0, MOST_WORKERS, InvalidFloor)
    lends: Any = config.lend_floor
    if lends is not None and not isinstance(lends, bool):
        raise InvalidFloor("lend_floor is True or False.", field=f"{queue}.lend_floor", next_step="Send one of them.")
    if pool is None:
        for name in ("min_workers", "weight", "lend_floor"):
            if getattr(config, name) is not None:
                raise PoolRequired(
                    f"Queue {queue} sets {name}, and there is no pool that it could divide.",
                    field=f"{queue}.{name}",
                    next_step="Set global_max_workers, or leave it out.",
                )
    if config.max_workers is not None and (config.min_workers or 0) > config.max_workers:
        raise InvalidFloor(
            f"Queue {queue} has a floor of {config.min_workers} and a cap of {config.max_workers}.",
            field=f"{queue}.min_workers",
            next_step="A floor is at most its queue's cap.",
        )
    _check_rate(queue, config)


def _check_rate(queue: str, config: QueueConfig) -> None:
    rate: Any = config.rate_per_second
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1_000_000):
        raise InvalidRate(
            f"Queue {queue} has a rate of {validate.shown(rate)} a second.",
            field=f"{queue}.rate_per_second",
            next_step="Use a number above 0, at most 1,000,000.",
        )
    if config.burst is not None:
        _whole(config.burst, f"{queue}.burst", 1, MOST_WORKERS, InvalidRate)
        if rate is None:
            raise InvalidRate(
                f"Queue {queue} has a burst and no rate.",
                field=f"{queue}.burst",
                next_step="Set rate_per_second as well.",
            )


def _whole(value: Any, field: str, least: int, most: int, kind: type[InvalidWorker]) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise kind(
            f"{field} is {validate.shown(value)}.",
            field=field,
            next_step=f"Use a whole number from {least:,} to {most:,}.",
        )
