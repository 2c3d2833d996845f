"""Stops by failures in the search: lower bounds on the stretch of a column's time.

Every bound of the search in seconds a sequence is one on a clock: seconds of steps times the stretch of failures. Of
a number of GPUs it is the least over all ways to go on, spares costing nothing. Ranges of replicas take the least
stretch over the steps of a table from the fewest on, and seconds that fall as 1/GPUs the least of stretch/GPUs over
the steps up to the most.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from planner.instance.network import Network
from planner.instance.reliability import Reliability
from planner.models.fabric.template_table import Floats
from planner.physics import recovery
from planner.physics.recovery import NO_LINKS, CheckpointedJob, GpuLinks, Way, inverse_share_there, min_stretch, ways

STEP = 1.002  # from one number of GPUs of the table to the next
# Of the table, up to more than any plan has.
GPUS = np.power(STEP, np.arange(math.ceil(math.log(2**31) / math.log(STEP)) + 1), dtype=np.float64)
# Steps back from a range's upper end to those of the pieces that bound it, about 1, 0.95, 0.9, 0.8, 0.6, 0.3 of it.
BACK = np.array([0, 26, 53, 112, 256, 602])
ENDS = np.power(STEP, -BACK.astype(np.float64))
ROUNDING = 1 - 1e-12  # of floors that sums in another order may differ from


@dataclass(frozen=True, kw_only=True, eq=False)
class Calendar:
    """Failures of an instance as the search counts them: bounds on how much their stops stretch steps."""

    r: Reliability
    state_bytes: float
    network: Network | None = None
    links: GpuLinks = NO_LINKS  # of the fabric whose links stop the job least often, as bounds count

    @cached_property
    def base(self) -> CheckpointedJob:
        """The checkpointed job whose size the bounds on stops change: any number of replicas, all GPUs write."""
        return CheckpointedJob(r=self.r, gpus=1.0, replica_gpus=0.0, state_bytes=self.state_bytes, links=self.links)

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, float]:
        """Tabulate the least stretch of steps by stops: of all counts of GPUs from each on; by kind, piece and GPUs."""
        # Of ranges that end in a step: stretch/GPUs up to a piece's end, times the range's GPUs, of whole restarts and
        # of elastic jobs that miss a replica of no GPUs; and the stretch in the piece or above. A step's fewest GPUs
        # are stretched least: stops grow at least as fast as the GPUs that share the writing.
        least = {True: np.full(len(GPUS), np.inf), False: np.full(len(GPUS), np.inf)}
        for way in ways(replace(self.base, gpus=GPUS), spares=True):
            least[way.recovery == "elastic"] = np.minimum(least[way.recovery == "elastic"], way.stretch)
        both = least[False] * ROUNDING, least[True] * ROUNDING
        above = np.asarray(np.minimum.accumulate(np.minimum(*both)[::-1])[::-1])
        pieces = BACK, np.append(BACK[1:], len(GPUS))
        ends, starts = (np.maximum(np.arange(len(GPUS)) - back[:, None], 0) for back in pieces)
        before = (np.append(np.inf, np.minimum.accumulate(x[:-1] / GPUS[1:])) * GPUS for x in both)
        per_end = (np.minimum(x, y)[ends] / ENDS[:, None] for x, y in zip(both, before, strict=True))
        gone = recovery.stops_per_gpu_second(self.r, self.links) * self.r.rejoin_seconds * ROUNDING
        return above, np.array([*per_end, above[starts]]), gone  # replicas at any time, for each GPU of one

    def _at(self, gpus: Any) -> Any:
        return np.minimum((np.log(np.maximum(gpus, 1.0)) * (ROUNDING / math.log(STEP))).astype(np.int64), len(GPUS) - 1)

    def floor(self, min_gpus: Any) -> Any:
        """Bound from below the stretch by stops of every job of at least `min_gpus` GPUs."""
        return self._tables[0][self._at(min_gpus)]

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one search, with which it ends
    def least_stretch(self, replicas: int, replica_gpus: int) -> float:
        """Bound from below the stretch of one column's steps by stops, as a float."""
        return float(self.column_floor(replicas, replica_gpus))

    def column_floor(self, replicas: Any, replica_gpus: Any) -> Any:
        """Bound from below the stretch of jobs by stops, by replicas: spares are free, steps take no time."""
        # The interval of the least stretch is exact, and none does better but by the rounding that is taken off.
        job = replace(self.base, gpus=replicas * replica_gpus * 1.0, replica_gpus=replica_gpus, replicas=replicas)
        return min_stretch(job) * ROUNDING

    def min_seconds(self, each: Any, once: Any, replicas: Any, replica_gpus: Any) -> Any:
        """Bound each/d + once on a clock, stops included, over every number of replicas d up to one."""
        # Piece by piece of the range, from its upper end down: in a piece of a to b GPUs stretch/GPUs is at least that
        # up to b, and at least the stretch from a on over b.
        most = np.maximum(replicas * replica_gpus, 1.0)
        at, ends = self._at(most), ENDS.reshape(-1, *(1,) * np.ndim(most))
        _, by_kind, gone = self._tables
        whole, elastic, stretch = by_kind.take(at, axis=-1)
        # Absent replicas add to elastic jobs, at the measured rate: of the least stretch E up to the range's end E - 1
        # may be stalls, and they add least where the stalls are largest.
        away = np.maximum(inverse_share_there(replica_gpus * gone, elastic[0] - 1) * ROUNDING - 1, 0.0)
        least = np.maximum(np.minimum(whole, elastic + away / ends), stretch / ends)
        return np.min(each * replica_gpus / most * least + once * stretch, axis=0)

    def step_limit(self, limit: float, each: float, once: float, most: int, replica_gpus: int) -> tuple[float, int]:
        """Return a limit on each/d + once in seconds of steps, and the fewest replicas d to meet it, stops included."""
        # No number of replicas that meets the clock's limit exceeds the returned one. Replica counts too few to meet it
        # are excluded; a larger fewest count stretches steps more, which leaves less time, so this is repeated.
        low = 1
        while True:
            alone = limit / float(self.floor(low * replica_gpus))
            fewest = math.floor(each / (alone - once) * (1 - 1e-9)) if alone > once else most + 1
            if fewest <= low or low > most:
                return alone, max(low, min(fewest, most + 1))
            low = min(fewest, most + 1)

    def job(
        self, replicas: int, replica_gpus: int, step_seconds: Any, *, shares_state: bool, lanes: int
    ) -> CheckpointedJob:
        """Return the job of a column by the seconds of its step; `lanes` of 0: unknown, the links that stop least."""
        return replace(
            self.base,
            links=recovery.gpu_links(self.network, lanes) if lanes else self.links,
            gpus=float(replicas * replica_gpus),
            replica_gpus=replica_gpus,
            replicas=replicas,
            step_seconds=step_seconds,
            shares_state=shares_state,
        )

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one search, with which it ends
    def ways(self, replicas: int, replica_gpus: int, spares: bool, **how: Any) -> tuple[CheckpointedJob, list[Way]]:
        """Return the job of a column whose steps take no time, and its ways to resume after a failure."""
        job = self.job(replicas, replica_gpus, 0.0, **how)
        return job, list(ways(job, spares=spares))
