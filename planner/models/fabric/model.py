"""The CP-SAT model of some rows of the fabric's table: a way to wire leaves to pods, and a spine group that fits it."""

from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from planner.models.fabric.columns import completion_costs, leaf_cost, spine_group
from planner.models.fabric.data import Ints, Problem
from planner.models.fabric.table import COL, COLUMNS, KEY
from planner.solvers.cpsat import Values


@dataclass(frozen=True, slots=True)
class Formulation:
    """The CP-SAT model of some rows of the table, and its variables by name."""

    problem: Problem
    rows: Ints
    model: cp_model.CpModel
    at: dict[str, cp_model.IntVar]


def formulate(p: Problem, rows: Ints) -> Formulation:
    """Return the model that chooses a row and a spine group that fits it, at no more than the cheapest completion."""
    max_cost = int(completion_costs(p, rows).min())
    f = Formulation(p, rows, cp_model.CpModel(), {})
    keys, key = np.unique(rows[:, KEY], axis=0, return_inverse=True)
    key = key.ravel()
    linked = ("groups", "min_spine_up", "max_spine_up", "leaves", "splits", "domain")
    columns = [np.arange(len(rows)), key, leaf_cost(rows), *(rows[:, COL[c]] for c in linked)]
    _choose(f, "wiring", ("row", "key", "leaf_cost", *linked), columns)
    groups = [_spine_groups(p, rows[key == i], i, max_cost) for i in range(len(keys))]
    _choose(f, "spine_group", ("key", "spine_up", "group_cost", "group_switches"), list(np.concatenate(groups).T))
    for rule in (fit_spine_ports, pod_uplink_bandwidth, add_cost):
        rule(f)
    return f


def _choose(f: Formulation, table: str, names: tuple[str, ...], columns: list[Ints]) -> None:
    """Require one row of a table: its columns become variables."""
    for name, column in zip(names, columns, strict=True):
        if name not in f.at:
            f.at[name] = f.model.new_int_var_from_domain(cp_model.Domain.from_values(np.unique(column).tolist()), name)
    f.model.add_allowed_assignments([f.at[n] for n in names], np.stack(columns, axis=1).tolist()).with_name(table)


def _spine_groups(p: Problem, rows: Ints, key: int, max_cost: int) -> Ints:
    """Return the ways to build one spine group under these rows that cost at most `max_cost` with some row."""
    up = np.arange(rows[:, COL["min_spine_up"]].min(), rows[:, COL["max_spine_up"]].max() + 1, dtype=np.int64)
    cost, switches = spine_group(p, rows[0, KEY], up)
    keep = leaf_cost(rows).min() + rows[:, COL["groups"]].min() * cost <= max_cost
    ways: Ints = np.stack([np.full_like(up, key), up, cost, switches], axis=1)[keep]
    return ways


def fit_spine_ports(f: Formulation) -> None:
    """Limit a spine's uplinks to the ports that the bundles of a full pod's leaves leave free."""
    f.model.add(f.at["spine_up"] <= f.at["max_spine_up"]).with_name("spine_ports")


def pod_uplink_bandwidth(f: Formulation) -> None:
    """Require the uplinks of a pod that hide what leaves it, over its s spines."""
    f.model.add(f.at["spine_up"] >= f.at["min_spine_up"]).with_name("pod_uplink_bandwidth")


def add_cost(f: Formulation) -> None:
    """Count the cost of leaves, their uplinks and s spine groups."""
    max_cost = int(completion_costs(f.problem, f.rows).min())
    f.at["spine_cost"] = f.model.new_int_var(0, max_cost, "spine_cost")
    f.model.add_multiplication_equality(f.at["spine_cost"], [f.at["groups"], f.at["group_cost"]])
    f.at["cost"] = f.model.new_int_var(int(f.rows[:, COL["bound"]].min()), max_cost, "cost")
    f.model.add(f.at["cost"] == f.at["leaf_cost"] + f.at["spine_cost"]).with_name("cost")


def break_ties(f: Formulation) -> None:
    """Prefer the fewest unavoidable splits, then the fewest switches, then the smallest leaf domain."""
    max_spines = _largest(f, "groups") * _largest(f, "group_switches")
    spines = f.model.new_int_var(0, max_spines, "spine_switches")
    f.model.add_multiplication_equality(spines, [f.at["groups"], f.at["group_switches"]])
    split, switch = (max_spines + _largest(f, "leaves") + 1), _largest(f, "domain") + 1
    f.model.minimize(split * switch * f.at["splits"] + switch * (f.at["leaves"] + spines) + f.at["domain"])


def _largest(f: Formulation, name: str) -> int:
    """Return the largest value in a variable's domain."""
    return int(list(f.at[name].proto.domain)[-1])


def read(f: Formulation, values: Values) -> dict[str, int]:
    """Return what a solution chose: the row of the table and the spine's uplinks."""
    row = f.rows[values.of(f.at["row"])]
    return {c: int(v) for c, v in zip(COLUMNS, row, strict=True)} | {"spine_up": values.of(f.at["spine_up"])}
