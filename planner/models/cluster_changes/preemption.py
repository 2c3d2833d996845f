"""Which running jobs to stop, at minimum cost, so that a job fits with few split groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.models.placement.data import Kind
from planner.models.requests import Options
from planner.solvers.cpsat import run
from planner.solvers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """A block of a leaf: nodes that are free now, and those that each running job would return."""

    leaf: int
    free: int
    owned: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionProblem:
    """Blocks in nodes, kinds in units of `segment` nodes, the cost of stopping each job, and the split groups."""

    blocks: tuple[LeafBlock, ...]
    kinds: tuple[Kind, ...]
    segment: int
    costs: tuple[int, ...]
    max_split: int


def minimize_stop_cost(q: PreemptionProblem, options: Options) -> Outcome[tuple[int, ...]]:
    """Minimize the cost of the jobs to stop; infeasible where not even all of them are enough."""
    model = cp_model.CpModel()
    stop = [model.new_bool_var(f"stop[{r}]") for r in range(len(q.costs))]
    units = _units(q, model, stop)
    whole: list[list[cp_model.IntVar]] = [[] for _ in q.kinds]
    for leaf, segments in units.items():
        here = []
        for k, kind in enumerate(q.kinds):
            v = model.new_int_var(0, kind.count, f"whole[{leaf},{k}]")
            whole[k].append(v)
            here.append(kind.size * v)
        model.add(sum(here) <= sum(segments)).with_name(f"fit_whole_groups[{leaf}]")
    for k, kind in enumerate(q.kinds):
        model.add(sum(whole[k]) <= kind.count).with_name(f"place_each_group_once[{k}]")
    split = sum(kind.count - sum(v) for kind, v in zip(q.kinds, whole, strict=True))
    model.add(split <= q.max_split).with_name("split_few_groups")
    need = sum(kind.size * kind.count for kind in q.kinds)
    model.add(sum(v for segments in units.values() for v in segments) >= need).with_name("fit_all_groups")
    model.minimize(sum(c * v for c, v in zip(q.costs, stop, strict=True)))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    chosen = None if outcome.solution is None else tuple(r for r, v in enumerate(stop) if outcome.solution.of(v))
    return outcome.with_solution(chosen)


def _units(
    q: PreemptionProblem, model: cp_model.CpModel, stop: Sequence[cp_model.IntVar]
) -> dict[int, list[cp_model.IntVar]]:
    """Count the whole segments of each block once the chosen jobs have stopped."""
    units: dict[int, list[cp_model.IntVar]] = {}
    for b, block in enumerate(q.blocks):
        v = model.new_int_var(0, (block.free + sum(block.owned.values())) // q.segment, f"units[{b}]")
        returned = sum(n * stop[r] for r, n in sorted(block.owned.items()))
        model.add(q.segment * v <= block.free + returned).with_name(f"return_nodes[{b}]")
        units.setdefault(block.leaf, []).append(v)
    return units
