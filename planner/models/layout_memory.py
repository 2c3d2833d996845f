"""What one search of the layout space leaves to the next: bounds of rows, rows proven no better, and where to start.

A question is *harder* than another where it asks the same of no more racks at any site and of a network that is no faster.
Every layout of the harder question is one of the easier, and no faster there; so whatever bounds a row from below in the
easier question bounds it in the harder. Two things follow. Rows bounded once for somewhat more racks than are asked need
no second look where that bound already excludes them. And where a search ended with a proof, a row whose replicas by site
are no more now than they were then holds nothing better than what that search found.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.layout_best import Best
from planner.models.layout_counts import least_over_counts
from planner.models.layout_order import least_stage
from planner.models.layout_question import Base, Problem, bases
from planner.models.layout_space import Flags, Floats, Ints, Row, RowTable, bound_over_replicas, least_layer, most_counts, replica_caps, row_table
from planner.models.layout_stages import HAIR, Stages
from planner.physics.step import Conditions, Cut

ABOVE, BELOW = 1.08, 0.80  # racks that a family serves, as shares of those it was made for
SLACK = 1.45  # of the incumbent: rows bounded above that are not kept; more than the time that a fifth fewer racks cost
STEP, NEAR = 1.05, 1.12  # slowdowns of a family are rounded down to powers of this; it serves those up to so many times its own
COLUMNS = ("base", "zero", "pipeline", "virtual_stages", "filled")
FAMILIES, PROOFS = 6, 48  # kept; the oldest go first


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A search that ended with a proof: no layout of its question takes less than the best."""

    problem: Problem
    best: Best
    opened: list[Row]


@dataclass(slots=True, kw_only=True)
class Family:
    """The rows of an easy question, and bounds of them that hold for every harder one down to the fewest racks.

    `least` is the least time of the largest stage by row, with more than half of the replicas that the fewest racks hold: NaN
    where it was not asked yet, else for divisible layers or, where `whole`, for whole ones.
    """

    easy: Problem
    fewest: Problem
    table: RowTable
    cutoff: float
    least: Floats
    whole: Flags
    bound: Floats

    def serves(self, problem: Problem, cutoff: float) -> bool:
        """Tell whether the bounds hold for a question and leave out no row under a cutoff."""
        return cutoff < self.cutoff and self._near(problem) and is_harder(problem, self.easy) and _no_fewer(problem, self.fewest)

    def _near(self, problem: Problem) -> bool:
        """Tell whether the network asked is hardly slower than the family's: bounds for a far faster one would say little."""
        x, y = problem.conditions, self.easy.conditions
        return max(x.hop_slowdown / y.hop_slowdown, x.allreduce_slowdown / y.allreduce_slowdown) < NEAR

    def rows(self, problem: Problem, paces: list[Base], cutoff: float) -> RowTable:
        """Return the rows that may hold a layout under a cutoff, with bounds for the question asked."""
        some = np.arange(int(np.searchsorted(self.table.bound, cutoff)))
        self._sharpen(some[np.isnan(self.least[some])])
        left = some[self.bound[some] < cutoff]
        bound = np.full(len(left), math.inf)
        for index, zero, own in _groups(self.table, left):
            which, base = left[own], paces[index]
            p, v, filled = self.table.pipeline[which], self.table.virtual_stages[which], self.table.filled[which]
            replicas, batches = most_counts(problem, base, p, filled)
            found = bound_over_replicas(problem, base, zero, p, v, batches, np.maximum(replicas, 1), self.least[which])
            found[replicas * base.shape.gpus < max(1, base.shape.expert_parallel)] = math.inf
            bound[own] = found
        hopeless = int(np.sum(np.isposinf(self.least[some])))
        kept = {k: getattr(self.table, k)[left] for k in COLUMNS}
        whole = replace(self.table, problem=problem, bases=paces, bound=bound, memory=self.table.memory + hopeless, sharp=True, origin=left, **kept)
        return whole.part(bound < cutoff)

    def counted(self, table: RowTable, cutoff: float) -> RowTable:
        """Bound rows again by the best of their counts, then with the stages of whole layers that memory leaves; in order of their bounds."""
        table = self._over_counts(table, cutoff)
        if self._exact(table):
            table = self._over_counts(table, cutoff)
        order = np.argsort(table.bound, kind="stable")
        return replace(table, origin=table.origin[order], bound=table.bound[order], **{k: getattr(table, k)[order] for k in COLUMNS})

    def _over_counts(self, table: RowTable, cutoff: float) -> RowTable:
        """Bound rows by the best of their counts, with the least times of stages that are known; leave out those over the cutoff."""
        bound = table.bound.copy()
        for index, zero, own in _groups(table, np.arange(len(table))):
            base, origin = table.bases[index], table.origin[own]
            p, v, filled = table.pipeline[own], table.virtual_stages[own], table.filled[own]
            above = self._half(base, p, filled)
            least = least_over_counts(table.problem, base, zero, p, v, filled, cutoff, self.least[origin], above)
            bound[own] = np.maximum(bound[own], least)
        return replace(table, bound=bound).part(bound < cutoff)

    def _half(self, base: Base, p: Ints, filled: Flags) -> Ints:
        """Return half of the replicas that the fewest racks hold: with more the least times of stages hold."""
        return np.asarray(np.maximum(most_counts(self.fewest, base, p, filled)[0], 1) // 2)

    def _shards(self, base: Base, p: Ints, filled: Flags) -> Ints:
        """Return the most replicas that the smallest working site may have."""
        sites = np.maximum(1, np.sum(replica_caps(self.fewest, base, p) > 0, axis=0))
        return np.asarray(np.maximum(1, most_counts(self.easy, base, p, filled)[0] // sites))

    def _sharpen(self, which: Ints) -> None:
        """Work out the least time of the largest stage of some rows: the most shards, and the pace of the fewest replicas in question."""
        for index, zero, own in _groups(self.table, which):
            rows, base = which[own], self.table.bases[index]
            p, v, filled = self.table.pipeline[rows], self.table.virtual_stages[rows], self.table.filled[rows]
            replicas, batches = most_counts(self.easy, base, p, filled)
            layer = least_layer(self.easy, base, zero, p, self._half(base, p, filled) + 1)
            least = np.zeros(len(rows))
            if not self._split_is_pinned:
                least = least_stage(self.easy, base, zero, p, v, filled, self._shards(base, p, filled), layer)
            self.least[rows] = least
            found = bound_over_replicas(self.easy, base, zero, p, v, batches, np.maximum(replicas, 1), least)
            self.bound[rows] = np.maximum(self.table.bound[rows], found)

    def _exact(self, table: RowTable) -> bool:
        """Work out the least time of the largest stage of filled pipelines again, with whole layers; tell whether any was new."""
        if self._split_is_pinned:
            return False
        some = table.origin[table.filled & ~self.whole[table.origin]]
        for index, zero, own in _groups(self.table, some):
            rows, base = some[own], self.table.bases[index]
            p, filled = self.table.pipeline[rows], self.table.filled[rows]
            layer = least_layer(self.easy, base, zero, p, self._half(base, p, filled) + 1)
            for i, shards, x in zip(rows, self._shards(base, p, filled), layer, strict=True):
                row = self.table.row(int(i), 0.0)
                most = self.easy.machine.model.layers - (row.pipeline - 1) * row.virtual_stages
                stages = Stages(problem=self.easy, row=row, replicas=int(shards), batches=row.pipeline, layer=float(x), most_layers=most)
                first = stages.first_budget()
                self.least[i] = math.inf if first is None else max(self.least[i], float(stages.budgets[first]) * (1 - HAIR))
                self.whole[i] = True
        return len(some) > 0

    @property
    def _split_is_pinned(self) -> bool:
        """Whether the layers of stages, or those recomputed, are not the search's to place."""
        return any(self.easy.pin(name) is not None for name in ("layers_per_stage", "recomputed_layers_per_stage"))


def _groups(table: RowTable, which: Ints) -> list[tuple[int, int, Ints]]:
    """Group rows by their way to cut a layer and ZeRO stage; positions within `which`."""
    keys = table.base[which] * 8 + table.zero[which]
    order = np.argsort(keys, kind="stable")
    values, first = np.unique(keys[order], return_index=True)
    return [(int(k) // 8, int(k) % 8, np.sort(own)) for k, own in zip(values, np.split(order, first[1:]), strict=True)] if len(which) else []


@dataclass(slots=True, kw_only=True)
class Memory:
    """What was learned of layout questions, over one solve or over many."""

    families: list[Family] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    cuts: list[tuple[Problem, list[Base]]] = field(default_factory=list)

    def paces(self, problem: Problem) -> list[Base]:
        """Return every way to cut a layer: racks do not change it, nor what crosses them but pipeline exchanges."""
        hop = problem.conditions.hop_slowdown
        for asked, paces in self.cuts:
            if asked.conditions.hop_slowdown == hop and is_alike(asked, problem):
                return paces
        self.cuts.append((problem, bases(problem)))
        del self.cuts[:-PROOFS]
        return self.cuts[-1][1]

    def near(self, problem: Problem) -> Cut | None:
        """Return the layout last found for the same question on other racks, on a network as like the one asked as can be."""
        hop = problem.conditions.hop_slowdown
        alike = [p for p in reversed(self.proofs) if is_alike(p.problem, problem)]
        return min(alike, key=lambda p: abs(math.log(p.problem.conditions.hop_slowdown / hop))).best.cut if alike else None

    def keep(self, proof: Proof) -> None:
        """Remember a proof."""
        self.proofs.append(proof)
        del self.proofs[:-PROOFS]

    def rows(self, problem: Problem, paces: list[Base], cutoff: float) -> tuple[RowTable, list[Row]]:
        """Return the rows that may hold a layout under a cutoff, and those that an earlier search opened and excluded."""
        family = next((f for f in reversed(self.families) if f.serves(problem, cutoff)), None)
        if family is None:
            family = _family(problem, cutoff)
            self.families.append(family)
            del self.families[:-FAMILIES]
        table, carried = self._unproven(family.rows(problem, paces, cutoff), cutoff)
        return family.counted(table, cutoff), carried

    def _unproven(self, table: RowTable, cutoff: float) -> tuple[RowTable, list[Row]]:
        """Leave out the rows in which an earlier search proved that nothing is under the cutoff; return those it opened, too."""
        problem = table.problem
        carried: dict[tuple[object, ...], Row] = {}
        for proof in reversed(self.proofs):
            if not len(table):
                break
            if proof.best.seconds < cutoff or not _same_pace(problem, proof.problem):
                continue
            known = _within(table, proof.problem)
            if known.any():
                carried |= {_name(row): row for row in proof.opened}
                table = table.part(~known)
        return table, list(carried.values())


def _name(row: Row) -> tuple[object, ...]:
    """Name a row by what tells it from all others."""
    return (row.base.shape, row.base.order, row.base.packed, row.zero, row.pipeline, row.virtual_stages, row.filled)


def _within(table: RowTable, easier: Problem) -> Flags:
    """Say of which rows the racks hold no more replicas at any site than those of another question, at as many sites."""
    found = np.zeros(len(table), dtype=bool)
    for index, _, own in _groups(table, np.arange(len(table))):
        base, p = table.bases[index], table.pipeline[own]
        now, then = (np.sort(replica_caps(q, base, p), axis=0) for q in (table.problem, easier))
        found[own] = np.all(now <= then, axis=0) & (np.sum(now > 0, axis=0) == np.sum(then > 0, axis=0))
    return found


def _family(problem: Problem, cutoff: float) -> Family:
    """Bound all rows for more racks than are asked, and for a network that is somewhat faster."""
    swift = _swift(problem.conditions)
    easy = replace(problem, racks=tuple(math.ceil(ABOVE * r) for r in problem.racks), conditions=swift)
    fewest = replace(problem, racks=tuple(math.ceil(BELOW * r) for r in problem.racks), conditions=swift)
    table = row_table(easy, cutoff=SLACK * cutoff)
    table = table.part(table.bound < SLACK * cutoff)
    unknown, none = np.full(len(table), np.nan), np.zeros(len(table), dtype=bool)
    return Family(easy=easy, fewest=fewest, table=table, cutoff=SLACK * cutoff, least=unknown, whole=none, bound=table.bound.copy())


def _swift(c: Conditions) -> Conditions:
    """Return a network that is somewhat faster, and takes no time between sites."""
    return Conditions(hop_slowdown=_rounded(c.hop_slowdown), allreduce_slowdown=_rounded(c.allreduce_slowdown), wan_round_trips=c.wan_round_trips)


def _rounded(slowdown: float) -> float:
    """Round a slowdown down, so that questions that hardly differ share a family."""
    return min(slowdown, STEP ** math.floor(math.log(slowdown) / math.log(STEP) + 1e-9)) if slowdown > 1 else slowdown


def is_alike(a: Problem, b: Problem) -> bool:
    """Tell whether two questions differ in racks and network alone, and name as many sites."""
    sizes = len(a.racks) == len(b.racks) and a.most_sequences == b.most_sequences and a.memory_limit == b.memory_limit
    return sizes and a.pins == b.pins and a.machine == b.machine and "layout.data_parallel_by_site" not in a.pins


def is_harder(a: Problem, b: Problem) -> bool:
    """Tell whether a question has no more racks at any site, as many sites, and a network no faster than another."""
    x, y = a.conditions, b.conditions
    slower = x.hop_slowdown >= y.hop_slowdown and x.allreduce_slowdown >= y.allreduce_slowdown and _slower_between(x, y)
    return slower and is_alike(a, b) and _no_fewer(b, a)


def _slower_between(x: Conditions, y: Conditions) -> bool:
    """Tell whether the exchange between sites takes no less time; where no rate is known it takes none."""
    if y.wan_gbps is None:
        return True
    same = x.wan_round_trips == y.wan_round_trips
    return x.wan_gbps is not None and x.wan_gbps <= y.wan_gbps and x.wan_rtt_ms >= y.wan_rtt_ms and same


def _same_pace(a: Problem, b: Problem) -> bool:
    """Tell whether a question cuts layers at the very pace of another and exchanges no faster between sites, on whatever racks."""
    x, y = a.conditions, b.conditions
    same = x.hop_slowdown == y.hop_slowdown and x.allreduce_slowdown == y.allreduce_slowdown
    return same and _slower_between(x, y) and is_alike(a, b)


def _no_fewer(a: Problem, b: Problem) -> bool:
    """Tell whether one question has at least the racks of another at each of as many working sites."""
    more, less = sorted(a.racks), sorted(b.racks)
    return all(x >= y and (x > 0) == (y > 0) for x, y in zip(more, less, strict=True))
