"""Small grids with reactances for the tests of the power flow: meshes, parallel circuits, radial nodes, units."""

import itertools
import random
from typing import Any

import angle_formulation
import pyomo.environ as pyo
import pytest
from best_splits import asking, yearly_musd
from site_grids import case, line, node

from planner.checks import power_flow
from planner.checks import power_flow as site_rules
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.plan import Plan
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs

Value = tuple[int, float] | None  # racks and yearly cost


def wire(a: str, b: str, x: float = 0.01, **changes: Any) -> dict[str, Any]:
    return line(a, b, reactance_pu=x, **changes)


def power_case(seed: int, *, n1: str = "off", new: int = 0, model: str = "dc") -> tuple[Instance, SitesRequest]:
    """Return a split of four to seven nodes: a tree and some meshes, one to three circuits, plants of several units."""
    r = random.Random(seed)
    names = [f"{r.choice('EW') if seed % 5 == 0 else 'E'}{i}" for i in range(r.randint(4, 7))]
    nodes = [
        node(n, generation_mw=r.choice([0, 0, 2, 3, 4, 6]) if i else 5, largest_unit_mw=r.choice([None, 0, 1, 2, 2]),
         site=i < 3, latitude=40.0 + i)
        for i, n in enumerate(names)
    ]  # fmt: skip
    ends = [(names[r.randrange(i)], names[i]) for i in range(1, len(names)) if r.random() < 0.93]
    spare = [p for p in itertools.combinations(names, 2) if p not in ends]
    ends += r.sample(spare, min(len(spare), r.randint(1, 4)))
    lines = [
        wire(a, b, r.choice([0.005, 0.01, 0.02, 0.03]), rating_mw=r.choice([1.5, 2, 3, 4]),
             circuits=r.choice([1, 1, 2, 3]), id=f"{i}")
        for i, (a, b) in enumerate(ends)
    ]  # fmt: skip
    built = [
        line(a, b, id=f"new{i}", rating_mw=r.choice([1, 2, 4]), max_circuits=r.choice([1, 2]),
             reactance_pu=r.choice([0.005, 0.02]), capex_usd=r.choice([0, 3e5, 2e6]))
        for i, (a, b) in enumerate(r.sample(list(itertools.combinations(names, 2)), new))
    ]  # fmt: skip
    rules = {"grid_model": model, "n1": n1, "headroom": r.random() < 0.5, "max_sites": r.choice([None, 1, 2])}
    prices = {"site_usd": r.choice([0, 3e5]), "building_usd_per_it_mw": 1e5}
    areas = {"headroom": {"E": 12.0, "W": 9.0}, "usd_per_mwh": {"E": 40.0, "W": r.choice([30.0, 50.0])}}
    grid = {"lines": lines, "new_lines": built, "rules": rules | {"n1_margin": 0.6}, "prices": prices}
    return asking(case(*nodes, **grid, **areas), r.choice([None, None, 3])), SitesRequest()


def loaded_case(seed: int, *, n1: str = "off", new: int = 0) -> tuple[Instance, SitesRequest]:
    """Return such a split whose nodes draw power of their own, one line of it compensated beyond its reactance."""
    # Some nodes feed in whatever is planned, and in some splits the first node has no plants.
    instance, request = power_case(seed, n1=n1, new=new)
    data, r = instance.model_dump(), random.Random(f"loaded {seed}")
    nodes, lines = data["grid"]["nodes"], data["grid"]["lines"]
    plants = [n["generation_mw"] for n in reversed(nodes)]
    for n, mw in zip(nodes, plants, strict=True):
        n["load_mw"] = r.choice([0.0, 0.0, 0.5, 1.0, -0.4])
        n["generation_mw"] = mw if seed % 3 == 0 else n["generation_mw"]
    if lines:
        r.choice(lines)["reactance_pu"] = -0.0037
    return Instance.model_validate(data), request


def angles(instance: Instance, request: SitesRequest) -> Value:
    """Solve the formulation by angles: most racks, then least cost."""
    m, data = angle_formulation.by_angles(instance, request)
    if data.pins.racks is None:
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        first = highs.run(m, absolute_gap=0.99)
        if first.solution is None:
            return None
        of = first.solution.of
        m.del_component(m.goal)
        m.most = pyo.Constraint(expr=sum(m.modules.values()) == round(sum(of(v) for v in m.modules.values())))
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    outcome = highs.run(m)
    if outcome.solution is None or outcome.objective is None:
        return None
    return data.module_racks * round(sum(outcome.solution.of(v) for v in m.modules.values())), outcome.objective * 1e6


def same(a: Value, b: Value) -> bool:
    return a == b if a is None or b is None else a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-7, abs=1.0)


def violations(instance: Instance, plan: SitesPlan) -> list[Violation]:
    """Judge a split's power by the checker, as if it were planned for this instance."""
    none = dict.fromkeys(("layout", "fabric", "placement", "cost"))
    c = PlanPhysics(plan=Plan.model_construct(planner_version="0", instance=instance, sites=plan, **none))
    rules = (site_rules.balance, site_rules.rating, site_rules.generation, *power_flow.RULES)
    return [v for rule in rules for v in rule(c)]


def with_years(instance: Instance, mode: str, *scenarios: dict[str, Any], **rules: Any) -> Instance:
    data = instance.model_dump()
    data["grid"]["scenarios"] = list(scenarios)
    data["grid"]["rules"] |= {"scenarios": mode} | rules
    return Instance.model_validate(data)


def years_case(seed: int, mode: str, *, n1: str = "off", new: int = 0) -> tuple[Instance, SitesRequest]:
    """Return a random dc split with a scenario without a plant and one of other prices and more plants."""
    instance, request = power_case(seed, n1=n1, new=new)
    assert instance.grid is not None
    r, areas = random.Random(seed + 999), [b.id for b in instance.grid.balancing_authorities]
    plants, bare = ([n.id for n in instance.grid.nodes if (n.generation_mw > 0) == has] for has in (True, False))
    dry = {"name": "dry", "weight": 0.25, "generation_mw": {n: r.choice([0.0, 1.0, 3.0]) for n in r.sample(plants, 1)}}
    dry |= {"headroom_mw": {areas[0]: r.choice([4.0, 8.0])}}
    dear = {"name": "dear", "weight": r.choice([0.0, 0.5]), "generation_mw": dict.fromkeys(bare[:1], 2.0)}
    dear |= {"energy_usd_per_mwh": {area: r.choice([20.0, 90.0]) for area in areas}}
    return with_years(instance, mode, dry, dear, curtailment_usd_per_mwh=r.choice([10.0, 300.0])), request
