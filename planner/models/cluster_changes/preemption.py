"""Which running jobs to stop, at the least cost, so that a job fits with few split groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.models.placement.data import Kind
from planner.models.requests import Options
from planner.solvers.cpsat import run
from planner.solvers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """A block of a leaf: nodes that are free now, and those that each running job would give back."""

    leaf: int
    free: int
    held: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionProblem:
    """Rooms in nodes, kinds in units of `segment` nodes, the cost of stopping each job, and the split groups that are allowed."""

    rooms: tuple[LeafBlock, ...]
    kinds: tuple[Kind, ...]
    segment: int
    costs: tuple[int, ...]
    max_split: int


def minimize_stop_cost(q: PreemptionProblem, options: Options) -> Outcome[tuple[int, ...]]:
    """Return the jobs to stop; infeasible where not even all of them are enough."""
    model = cp_model.CpModel()
    stop = [model.new_bool_var(f"stop[{r}]") for r in range(len(q.costs))]
    units = _units(q, model, stop)
    whole: list[list[cp_model.IntVar]] = [[] for _ in q.kinds]
    for leaf, room in units.items():
        here = []
        for k, kind in enumerate(q.kinds):
            v = model.new_int_var(0, kind.count, f"whole[{leaf},{k}]")
            whole[k].append(v)
            here.append(kind.size * v)
        model.add(sum(here) <= sum(room)).with_name(f"hold_whole_groups[{leaf}]")
    for k, kind in enumerate(q.kinds):
        model.add(sum(whole[k]) <= kind.count).with_name(f"place_each_group_once[{k}]")
    model.add(sum(kind.count - sum(v) for kind, v in zip(q.kinds, whole, strict=True)) <= q.max_split).with_name(
        "split_few_groups"
    )
    need = sum(kind.size * kind.count for kind in q.kinds)
    model.add(sum(v for room in units.values() for v in room) >= need).with_name("hold_all_groups")
    model.minimize(sum(c * v for c, v in zip(q.costs, stop, strict=True)))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    chosen = None if outcome.solution is None else tuple(r for r, v in enumerate(stop) if outcome.solution.of(v))
    return outcome.with_solution(chosen)


def _units(
    q: PreemptionProblem, model: cp_model.CpModel, stop: Sequence[cp_model.IntVar]
) -> dict[int, list[cp_model.IntVar]]:
    """Declare the whole segments that each room has once the chosen jobs are gone."""
    units: dict[int, list[cp_model.IntVar]] = {}
    for b, room in enumerate(q.rooms):
        most = (room.free + sum(room.held.values())) // q.segment
        v = model.new_int_var(0, most, f"units[{b}]")
        model.add(q.segment * v <= room.free + sum(n * stop[r] for r, n in sorted(room.held.items()))).with_name(
            f"give_nodes_back[{b}]"
        )
        units.setdefault(room.leaf, []).append(v)
    return units
