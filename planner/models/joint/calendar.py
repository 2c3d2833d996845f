"""Days on a calendar in the search: what stops stretch a column's time by at least, and the choice of spares.

Every bound of the search in seconds a sequence is one on a clock: seconds of steps times the stretch of failures. Of
a number of GPUs it is the least over all ways to go on, spares costing nothing; it grows with the GPUs at work and
with those of a replica. So ranges of replicas take the stretch of the fewest, and seconds that fall as 1/GPUs take the
least of stretch/GPUs over all numbers up to the most.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance.instance import Instance
from planner.instance.reliability import Reliability
from planner.instance.workload import Model
from planner.physics.reliability import stops
from planner.physics.reliability.recovery import Job, min_stretch, ways
from planner.physics.reliability.standing import checkpoint_bytes, counted

Floats = NDArray[np.float64]
STEP = 1.002  # from one number of GPUs of the table to the next
MOST_GPUS = 2**31  # of the table; more than any plan has
ROUNDING = 1 - 1e-12  # of floors that sums in another order may differ from


@dataclass(frozen=True, slots=True)
class Sparing:
    """Spare racks that leave enough at every site for a share of time (0: none); idle GPUs of a rack cabled or not."""

    target: float = 0.0
    wired: bool = False


NO_SPARES = Sparing()


@dataclass(frozen=True, kw_only=True, eq=False)
class Calendar:
    """Failures of an instance, as the search counts them."""

    r: Reliability
    state_bytes: float

    @cached_property
    def base(self) -> Job:
        """The job of which bounds change the size: any number of replicas, all GPUs that there may be write."""
        return Job(r=self.r, gpus=1.0, replica_gpus=0.0, state_bytes=self.state_bytes)

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Tabulate by GPUs the least stretch of whole restarts, and of going on without a replica of no GPUs."""
        count = math.ceil(math.log(MOST_GPUS) / math.log(STEP)) + 1
        gpus: Floats = np.asarray(STEP ** np.arange(count), dtype=np.float64)
        job = replace(self.base, gpus=gpus, writers=float(MOST_GPUS))
        least = {True: np.full(count, np.inf), False: np.full(count, np.inf)}
        for way in ways(job, spares=True):
            kind = way.recovery == "elastic"
            least[kind] = np.minimum(least[kind], way.stretch)
        return gpus, least[False] * ROUNDING, least[True] * ROUNDING

    @cached_property
    def _per_gpu(self) -> tuple[Floats, Floats]:
        """Tabulate the least of stretch/GPUs over all numbers up to each of the table, both kinds."""
        gpus, whole, elastic = self._table
        following = np.append(gpus[1:], np.inf)
        with np.errstate(invalid="ignore"):
            found = [np.minimum.accumulate(np.where(np.isfinite(x), x / following, np.inf)) for x in (whole, elastic)]
        return found[0], found[1]

    def _away(self, replica_gpus: Any) -> Any:
        """Return 1 and the replicas away for one there: G·λ·T at the measured rate, the least."""
        return 1 + replica_gpus * stops.stops_per_gpu_second(self.r) * self.r.rejoin_seconds * ROUNDING

    def _at(self, gpus: Any) -> Any:
        """Return the place in the table of the largest number that is no more."""
        found = np.floor(np.log(np.maximum(gpus, 1.0)) / math.log(STEP) * ROUNDING).astype(np.int64)
        return np.clip(found, 0, len(self._table[0]) - 1)

    def floor(self, min_gpus: Any, replica_gpus: Any) -> Any:
        """Bound the stretch of every job of at least so many GPUs, in replicas of at least so many."""
        _, whole, elastic = self._table
        at = self._at(min_gpus)
        return np.minimum(whole[at], elastic[at] * self._away(replica_gpus))

    def per_gpu(self, max_gpus: Any, replica_gpus: Any) -> Any:
        """Bound stretch/GPUs of every job of at most so many GPUs."""
        whole, elastic = self._per_gpu
        at = self._at(max_gpus)
        found = np.minimum(whole[at], elastic[at] * self._away(replica_gpus))
        # The last step of the table ends at the most GPUs, and not behind them.
        return np.where(
            at > 0, np.minimum(self._before(at, replica_gpus), self._last(at, max_gpus, replica_gpus)), found
        )

    def _before(self, at: Any, replica_gpus: Any) -> Any:
        whole, elastic = self._per_gpu
        return np.minimum(whole[at - 1], elastic[at - 1] * self._away(replica_gpus))

    def _last(self, at: Any, max_gpus: Any, replica_gpus: Any) -> Any:
        _, whole, elastic = self._table
        return np.minimum(whole[at], elastic[at] * self._away(replica_gpus)) / np.maximum(max_gpus, 1.0)

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one search, with which it ends
    def least_stretch(self, replicas: int, replica_gpus: int) -> float:
        """Return the same of one column."""
        return float(self.column_floor(replicas, replica_gpus))

    def column_floor(self, replicas: Any, replica_gpus: Any) -> Any:
        """Return the least stretch of jobs of so many replicas, spares for nothing, steps however short."""
        job = replace(self.base, gpus=replicas * replica_gpus * 1.0, replica_gpus=replica_gpus, replicas=replicas)
        return min_stretch(job)

    def min_seconds(self, each: Any, once: Any, replicas: Any, replica_gpus: Any) -> Any:
        """Bound each/d + once on a clock over every number of replicas d up to one."""
        spread = each * replica_gpus * self.per_gpu(replicas * replica_gpus, replica_gpus)
        return spread + once * self.floor(replica_gpus, replica_gpus)

    def step_limit(self, limit: float, each: float, once: float, most: int, replica_gpus: int) -> tuple[float, int]:
        """Return a limit on each/d + once that no d under a limit on a clock exceeds, and the fewest such replicas.

        Fewer replicas than each takes in time are none; of the rest the fewest stretch least, which leaves less time.
        """
        low = 1
        while True:
            alone = limit / float(self.floor(low * replica_gpus, replica_gpus))
            fewest = math.floor(each / (alone - once) * (1 - 1e-9)) if alone > once else most + 1
            if fewest <= low or low > most:
                return alone, max(low, min(fewest, most + 1))
            low = min(fewest, most + 1)

    def job(self, replicas: int, replica_gpus: int, step_seconds: Any, *, shares_state: bool) -> Job:
        """Return the job of a column whose step takes so many seconds."""
        return replace(
            self.base,
            gpus=float(replicas * replica_gpus),
            replica_gpus=replica_gpus,
            replicas=replicas,
            step_seconds=step_seconds,
            shares_state=shares_state,
        )


def sparings(r: Reliability, *, idle: bool) -> list[Sparing]:
    """List the choices of spares; `idle`: racks have GPUs that the layout leaves idle, and a fabric to join them."""
    repaired = any(p.repair_hours for p in r.parts.values())
    targets = (
        sorted(set(r.spare_targets)) if repaired else sorted({0.0, min((t for t in r.spare_targets if t), default=0.0)})
    )
    if not repaired and 0.0 not in r.spare_targets:
        targets = targets[1:]
    wires = (False, True) if idle and r.spare_gpus and repaired else (False,)
    return [Sparing(t, w) for t, w in itertools.product(targets, wires)]


def calendar_of(instance: Instance, model: Model) -> Calendar | None:
    """Return the failures that the search counts; None where none do."""
    r = counted(instance)
    return None if r is None else Calendar(r=r, state_bytes=checkpoint_bytes(instance, model))
