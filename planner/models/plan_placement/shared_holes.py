"""Split groups over the holes that unsplit groups leave: counts of clusters by size, fewest extra pieces.

Groups and holes joined by pieces fall into clusters. a groups over b holes need a + b - 1 pieces (more would close a
cycle, along which racks can be moved until a piece is gone), so extra pieces are sum(b - 1) with b = ceil(a·G/h). A
cluster that two smaller ones can replace with as many holes is never best; those that remain are the record minima of
the racks left over, b·h - a·G. One cluster may hold the hole of the part-full domain besides.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.models.plan_placement.numbering import Shape
from planner.solvers.cpsat import Values
from planner.solvers.outcome import Outcome

Run = Callable[[cp_model.CpModel], Outcome[Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Clusters worth having: groups -> holes of full domains; `mixed` ones have the part-full domain's hole besides."""

    plain: dict[int, int]
    mixed: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Clusters as (groups, holes of full domains), the largest first; `mixed` is the one with the part-full domain."""

    plain: tuple[tuple[int, int], ...] = ()
    mixed: tuple[int, int] | None = None

    @property
    def groups(self) -> int:
        """Split groups of all clusters."""
        return sum(a for a, _ in self.plain) + (self.mixed[0] if self.mixed else 0)

    @property
    def extra_pieces(self) -> int:
        """Holes less one, of every cluster."""
        return sum(b - 1 for _, b in self.plain) + (self.mixed[1] if self.mixed else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Clusters by groups, as variables of a model."""

    plain: dict[int, cp_model.IntVar]
    mixed: dict[int, cp_model.IntVar]


def cluster_sizes(shape: Shape, split: int) -> Sizes:
    """List the clusters that no two smaller ones, nor one without the part-full domain, can replace."""
    plain = _records(shape, split, besides=0)
    mixed = _records(shape, split, besides=shape.rest_hole) if shape.rest_hole else {}
    return Sizes(plain=plain, mixed={a: m for a, m in mixed.items() if m < _holes(shape, a)})


def min_pieces(shape: Shape, sizes: Sizes, split: int, run: Run) -> tuple[Choice, int]:
    """Return clusters that cover the split groups with the fewest pieces, and a lower bound on the extra ones."""
    if split == 0:
        return Choice(), 0
    model = cp_model.CpModel()
    counts = count_clusters(model, shape, sizes, split)
    model.minimize(extra_pieces(sizes, counts))
    outcome = run(model)
    analytic = analytic_extra_pieces(shape, split)
    if outcome.solution is None:
        return _one_chain(shape, split), analytic
    of = outcome.solution.of
    plain = tuple((a, sizes.plain[a]) for a, v in sorted(counts.plain.items(), reverse=True) for _ in range(of(v)))
    mixed = next(((a, sizes.mixed[a]) for a, v in counts.mixed.items() if of(v)), None)
    return Choice(plain=plain, mixed=mixed), max(analytic, math.ceil((outcome.bound or 0.0) - 1e-6))


def count_clusters(model: cp_model.CpModel, shape: Shape, sizes: Sizes, split: int) -> Counts:
    """Declare clusters by size, covering every split group within the holes there are."""
    plain = {
        a: model.new_int_var(0, min(split // a, shape.full // b), f"clusters[{a}]") for a, b in sizes.plain.items()
    }
    mixed = {a: model.new_bool_var(f"mixed[{a}]") for a in sizes.mixed}
    model.add(sum(a * v for a, v in [*plain.items(), *mixed.items()]) == split).with_name("cover_split_groups")
    holes = [(sizes.plain[a], v) for a, v in plain.items()] + [(sizes.mixed[a], v) for a, v in mixed.items()]
    model.add(sum(b * v for b, v in holes) <= shape.full).with_name("use_each_hole_once")
    model.add_at_most_one(mixed.values()).with_name("use_the_part_full_domain_once")
    return Counts(plain=plain, mixed=mixed)


def extra_pieces(sizes: Sizes, counts: Counts) -> cp_model.LinearExprT:
    """Return the sum of holes less one, the part-full domain's hole counted among them."""
    return sum((sizes.plain[a] - 1) * v for a, v in counts.plain.items()) + sum(
        sizes.mixed[a] * v for a, v in counts.mixed.items()
    )


def analytic_extra_pieces(shape: Shape, split: int) -> int:
    """Bound the extra pieces without a solver: one group needs as many of the largest holes, and all groups as many."""
    if split == 0:
        return 0
    holes = sorted((f % shape.group for f in shape.free), reverse=True)
    need, used = split * shape.group, 0
    while need > 0:
        need, used = need - holes[used], used + 1
    return max(split * math.ceil(shape.group / holes[0]), used) - split


def _records(shape: Shape, split: int, *, besides: int) -> dict[int, int]:
    """Return groups -> fewest holes, where fewer racks are left over than with any smaller number of groups."""
    holes: dict[int, int] = {}
    smallest = shape.group
    for a in range(1, split + 1 if shape.hole else 1):
        b = _holes(shape, a, besides=besides)
        over = b * shape.hole + besides - a * shape.group
        if b <= shape.full and over < smallest:
            holes[a], smallest = b, over
    return holes


def _holes(shape: Shape, groups: int, *, besides: int = 0) -> int:
    """Return the fewest holes of full domains that take so many groups, with racks besides."""
    return math.ceil((groups * shape.group - besides) / shape.hole)


def _one_chain(shape: Shape, split: int) -> Choice:
    """Fill one hole after another: a cover that needs no search."""
    holes = _holes(shape, split)
    if holes <= shape.full:
        return Choice(plain=((split, holes),))
    return Choice(mixed=(split, _holes(shape, split, besides=shape.rest_hole)))
