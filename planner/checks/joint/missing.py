"""Columns that a proof of the joint optimum forgets: faster than its bound on a free network, and not listed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.checks.joint.columns import Cut, Ints, Pipelines, Space
from planner.checks.joint.racks import MaxRacks
from planner.checks.joint.split import Split, witness
from planner.checks.joint.step_bound import Cells, Counts, Rows, first_rows, min_micro_batches, most_replicas
from planner.checks.rule import broken, show
from planner.instance.instance import Instance, instance_sha256
from planner.plan.certificate import Violation
from planner.plan.proof import ExcludedColumn, JointProof

ROUNDING = 1e-9  # relative: days that differ by less are the same
MARGIN = 1.05  # pipelines whose first bound is under the bound times this are refined in any case
SAMPLED = 200  # others that are refined too
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
        """Yield every column that is faster than the proof says, up to so many."""
        cuts: list[Cut] = []
        counts: list[int] = []
        found: list[tuple[float, int, Cut, Rows]] = []
        for cut in self.space.cuts():
            if self.stop():
                return
            x = cut.pipelines()
            self._meet(cut, x)
            rows = first_rows(cut, x, self.racks, self.limit * MARGIN)
            cuts.append(cut)
            counts.append(len(x))
            if len(rows):
                found.append((float(rows.seconds.min()), len(found), cut, rows))
        zeros = self.space.zero_stages
        for _, _, cut, rows in sorted(found, key=lambda f: f[:2]):
            for zero in zeros:
                yield from self._refine(cut, rows, zero)
                if len(self.wrong) >= MOST_NAMED or self.stop():
                    return
        yield from self._sampled(cuts, np.array(counts, dtype=np.int64), zeros)

    def _meet(self, cut: Cut, x: Pipelines) -> None:
        """Note the listed columns of a cut that the space has."""
        for key in self.by_cut.get(_cut_key(cut), ()):
            zero = key[CUT_NAMES]
            same = (x.p == key[-3]) & (x.v == key[-2]) & (x.stages_per_rack == key[-1])
            if zero in self.space.zero_stages and bool(np.any(same & self.space.runs(zero, x.p))):
                self.met.add(key)

    def _sampled(self, cuts: list[Cut], counts: Ints, zeros: list[int]) -> Iterator[Violation]:
        """Refine columns drawn by the instance's hash as if no first bound were known of them."""
        ends = np.cumsum(counts)
        if not len(ends) or not ends[-1] or not zeros:
            return
        draw = np.random.default_rng(int(instance_sha256(self.space.instance)[:16], 16))
        for place in draw.integers(0, ends[-1], SAMPLED).tolist():
            at = int(np.searchsorted(ends, place, side="right"))
            if self.stop():
                return
            cut, zero = cuts[at], int(draw.choice(zeros))
            x = cut.pipelines().part([place - (int(ends[at - 1]) if at else 0)])
            d, none = most_replicas(cut, x, self.racks), np.zeros(1)
            if d[0] > 0:
                yield from self._refine(cut, Rows(x, d, min_micro_batches(x), none, none, none), zero)

    def _refine(self, cut: Cut, rows: Rows, zero: int) -> Iterator[Violation]:
        """Time every count of replicas and micro-batches of some pipelines that may be below the bound."""
        rows = rows.part(np.flatnonzero(self.space.runs(zero, rows.pipelines.p)))
        if not len(rows):
            return
        counts = Counts(cut=cut, rows=rows, limit=self.limit, stop=self.stop)
        for cells in counts.cells(zero):
            for some, m in counts.micro_batches(cells):
                for which in _pipelines(some):
                    yield from self._pipeline(cut, zero, some.part(which), m[which])
                    if len(self.wrong) >= MOST_NAMED or self.stop():
                        return

    def _pipeline(self, cut: Cut, zero: int, cells: Cells, m: Ints) -> Iterator[Violation]:
        """Compare all replicas and micro-batches of a pipeline, replicas ascending: those that no bound excludes.

        Replicas are halved while one bound does not exclude them all.
        """
        if self.stop() or len(self.wrong) >= MOST_NAMED or self._excluded(cut, zero, cells, m):
            return
        counts = np.unique(cells.d)
        if len(counts) == 1:
            yield from self._column(cut, zero, cells.x.part([0]), int(counts[0]), np.sort(m))
            return
        more = cells.d >= counts[len(counts) // 2]
        for some in (more, ~more):
            yield from self._pipeline(cut, zero, cells.part(some), m[some])

    def _excluded(self, cut: Cut, zero: int, cells: Cells, m: Ints) -> bool:
        """Return whether one bound excludes several replicas of a pipeline with all their micro-batches."""
        most = int(cells.d.max())
        gpus = int(cells.x.p[0]) * cut.shape.gpus
        limit = self.limit * most * cut.shape.micro_batch / float(self.space.stretch_from(int(cells.d.min()), gpus))
        every = Split(
            cut=cut,
            zero_stage=zero,
            x=cells.x.part([0]),
            d=most,
            micro_batches=np.unique(m),
            limit=limit,
            fewest=int(cells.d.min()),
        )
        return math.isinf(every.least())

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


def _runs(*columns: Ints) -> Iterator[Ints]:
    """Yield the places of entries that are alike in all columns, those of the last one ascending."""
    order = np.lexsort(columns[::-1])
    key = np.stack(columns[:-1])[:, order]
    starts = np.flatnonzero(np.append(True, np.any(key[:, 1:] != key[:, :-1], axis=0)))
    for a, b in zip(starts, np.append(starts[1:], len(order)), strict=True):
        yield order[a:b]


def _pipelines(cells: Cells) -> Iterator[Ints]:
    """Yield the places of each pipeline's cells."""
    x = cells.x
    yield from _runs(x.p, x.v, x.stages_per_rack, cells.d)


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
