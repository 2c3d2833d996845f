"""Columns that a proof of the joint optimum forgets: faster than its bound on a free network, and not listed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.checks.joint.columns import Cut, Ints, Pipelines, Space
from planner.checks.joint.racks import MaxRacks
from planner.checks.joint.split import witness
from planner.checks.joint.step_bound import Floor, Ranges, columns_in_time, fastest_ranges
from planner.checks.rule import broken, show
from planner.instance.instance import Instance
from planner.plan.certificate import Violation
from planner.plan.proof import ExcludedColumn, JointProof

ROUNDING = 1e-9  # relative: days that differ by less are the same
MOST_NAMED = 20  # columns; a proof that misses as many is wrong in the same way for the rest
RULE = "joint_columns"

Key = tuple[Any, ...]


NAMES = (
    "tensor_parallel",
    "tensor_parallel_inner",
    "context_parallel",
    "expert_parallel",
    "microbatch_sequences",
    "sequence_parallel",
    "recompute",
    "schedule",
    "zero_stage",
    "pipeline_parallel",
    "virtual_stages",
    "stages_per_rack",
)
CUT_NAMES = 8  # of them belong to the cut


def key_of_column(c: ExcludedColumn) -> Key:
    """Return what a listed column is known by, replicas apart."""
    return tuple(getattr(c, name) for name in NAMES)


def _cut_key(cut: Cut) -> Key:
    s = cut.shape
    own = (s.tensor_parallel, s.tensor_inner, s.context_parallel, s.expert_parallel, s.micro_batch)
    return (*own, s.sequence_parallel, s.recompute, cut.schedule)


def key_of(cut: Cut, zero_stage: int, x: Pipelines, i: int) -> Key:
    """Return what an enumerated column is known by, replicas apart."""
    return (*_cut_key(cut), zero_stage, int(x.p[i]), int(x.v[i]), int(x.stages_per_rack[i]))


def name_of(key: Key) -> str:
    """Name a column in words."""
    t, i, k, e, b, together, recompute, schedule, zero, p, v, q = key
    parts = [f"TP {t}" + (f" (inner {i})" if i > 1 else ""), f"CP {k}" if k > 1 else "", f"EP {e}" if e > 1 else ""]
    degrees = " x ".join([x for x in parts if x] + [f"PP {p}"])
    rest = [f"v {v}", f"micro-batch {b}", f"ZeRO {zero}", schedule, f"recompute {recompute}"]
    rest += ["sequence parallel"] if together else []
    rest += [f"{q} stages a rack"] if q > 1 else []
    return ", ".join([degrees, *rest])


@dataclass(kw_only=True)
class Inspection:
    """One pass over the declared space against a bound in days and the columns that a proof lists."""

    space: Space
    days: float
    listed: dict[Key, list[ExcludedColumn]]
    racks: MaxRacks
    stop: Callable[[], bool] = lambda: False
    by_cut: dict[Key, list[Key]] = field(default_factory=dict)
    met: set[Key] = field(default_factory=set)  # listed columns that the space has
    wrong: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Sort the listed columns by their cuts."""
        for key in self.listed:
            self.by_cut.setdefault(key[:CUT_NAMES], []).append(key)

    @property
    def limit(self) -> float:
        """Seconds a sequence of the bound."""
        return self.space.seconds_per_sequence(self.days) * (1 - ROUNDING)

    def violations(self) -> Iterator[Violation]:
        """Yield every column that is faster than the proof says, up to so many; cuts of the lowest floors first."""
        found: list[tuple[float, int, Cut, Ranges]] = []
        for cut in self.space.cuts():
            if self.stop():
                return
            x = cut.pipelines()
            self._meet(cut, x)
            floor = Floor(cut=cut, zero_stage=None, ranges=fastest_ranges(cut, x, self.racks, self.limit))
            ranges = floor.in_time(self.limit) if len(floor.ranges) else floor.ranges
            if len(ranges):
                found.append((float(floor.seconds.min()), len(found), cut, ranges))
        for _, _, cut, ranges in sorted(found, key=lambda f: f[:2]):
            for zero in self.space.zero_stages:
                runs = ranges.part(np.flatnonzero(self.space.runs(zero, ranges.pipelines.p)))
                for some in columns_in_time(cut, zero, runs, self.limit, self.stop):
                    for x, d, m in some.columns():
                        yield from self._column(cut, zero, x, d, m)
                        if len(self.wrong) >= MOST_NAMED or self.stop():
                            return

    def _meet(self, cut: Cut, x: Pipelines) -> None:
        """Note the listed columns of a cut that the space has."""
        for key in self.by_cut.get(_cut_key(cut), ()):
            zero = key[CUT_NAMES]
            same = (x.p == key[-3]) & (x.v == key[-2]) & (x.stages_per_rack == key[-1])
            if zero in self.space.zero_stages and bool(np.any(same & self.space.runs(zero, x.p))):
                self.met.add(key)

    def _column(self, cut: Cut, zero: int, x: Pipelines, d: int, m: Ints) -> Iterator[Violation]:
        """Compare one column's least time with what the proof says of it."""
        key = key_of(cut, zero, x, 0)
        if key in self.wrong:
            return
        stated = [c for c in self.listed.get(key, []) if c.min_data_parallel <= d <= c.max_data_parallel]
        bound = max((c.lower_bound_days for c in stated), default=self.days)
        limit = self.space.seconds_per_sequence(min(self.days, bound)) * (1 - ROUNDING)
        per_batch = d * cut.shape.micro_batch / self.space.column_stretch(d, int(x.p[0]) * cut.shape.gpus)
        found = witness(cut, zero, x, d, m, limit * per_batch)
        if found is None:
            return
        self.wrong.add(key)
        days = self.space.days(found[1] / per_batch)
        own = f"{name_of(key)}: {show(days)} days with {d:,} replicas and {found[0]:,} micro-batches on a free network"
        if stated:
            yield broken(RULE, f"{own} < {show(bound)}, the lower_bound_days that the proof states for it")
        else:
            yield broken(RULE, f"{own} < {show(self.days)}, the bound, and the proof does not list it")


def missing_columns(
    instance: Instance,
    days: float,
    proof: JointProof,
    *,
    transport_slowdown: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Violation]:
    """Check that no column of the declared space is below a bound in days, but for those that the proof lists.

    A column is a way to cut the model, at any number of replicas that the money may buy; its least time is that of
    every split of layers that memory holds, on a network that nothing slows but the transport, with free fibre. Once
    `stop` is true, no further column is looked at.
    """
    listed: dict[Key, list[ExcludedColumn]] = {}
    for c in proof.columns:
        listed.setdefault(key_of_column(c), []).append(c)
    pass_over = Inspection(
        space=Space(instance=instance, transport_slowdown=transport_slowdown),
        days=days,
        listed=listed,
        racks=MaxRacks(instance, proof.max_racks_by_wired_gpus),
        stop=stop,
    )
    yield from pass_over.violations()
    for key in () if stop() else listed:
        if key not in pass_over.met:
            yield broken(RULE, f"{name_of(key)}: listed by the proof, and not in the declared space (0 such columns)")
