"""Properties that every grid must keep, on random grids and on grids that were read from files.

With zero racks and a dispatch of its own a grid is feasible under every rule that is not about the campus as a whole.
And a closed candidate, an area that nothing uses, or a lossless copy of a node changes no optimum.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
from best_splits import split

from planner.instance.grid import BalancingAuthority, Grid, Line, PowerNode
from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.sites.split_data import gather
from planner.models.sites.split_model import build
from planner.planning.load import load_instance
from planner.solvers import highs

CAMPUS = ("demand", "pins", "fault_split")  # rules that no campus of zero racks keeps, or that say where it stands
ANY, OPTIONS = SitesRequest(), Options()
Value = tuple[int, float] | None  # most modules, least yearly cost in USD


@dataclass(frozen=True)
class Dispatched:
    """A grid with a dispatch that feeds its own load: what each node's plants feed in, and the flow of each line."""

    grid: Grid
    fed: dict[str, float]
    flow: dict[str, float]


@cache
def _base() -> Instance:
    """Return an instance of modules of one rack that draws 1 MW at the grid."""
    base = load_instance(Path(__file__).parents[2] / "instances" / "two-sites-405b.json")
    rack = base.hardware.rack
    assert not isinstance(rack, str) and rack is not None
    own = base.hardware.replaced(rack__it_kw=1000.0, facility_overhead_factor=1.0)
    return base.replaced(hardware=own, limits__budget_usd=None, wan=None, operation=None, pins={})


def instance_of(grid: Grid, **pins: int) -> Instance:
    """Return an instance on a grid, with pins."""
    return _base().replaced(grid=grid, pins=pins)


def zero_racks(instance: Instance) -> bool:
    """Return whether the split holds with no site open."""
    m = build(gather(instance, ANY), without=CAMPUS)
    for var in m.open.values():
        var.fix(0)
    m.goal = pyo.Objective(expr=sum(m.modules.values()))
    return highs.run(m).solution is not None


def optimum(instance: Instance) -> Value:
    """Return the most modules and their least yearly cost; None where there is no split."""
    outcome = split(instance)
    assert outcome.infeasible or outcome.proved
    plan = outcome.solution
    return None if plan is None else (sum(s.modules for s in plan.sites), plan.certificate.objective or 0.0)


def same(a: Value, b: Value) -> bool:
    """Return whether two optima are one, up to rounding."""
    if a is None or b is None:
        return a == b
    return a[0] == b[0] and abs(a[1] - b[1]) <= max(1.0, 1e-7 * abs(b[1]))


def alike(grid: Grid, r: random.Random) -> Iterator[tuple[str, Instance, Instance]]:
    """Yield pairs of instances that must have one optimum, each with what tells the second from the first."""
    candidates = [n for n in grid.nodes if n.site]
    if len(candidates) > 1:
        shut = r.choice(candidates)
        without = _with(grid, nodes=[n.replaced(site=n.site and n is not shut) for n in grid.nodes])
        pinned = instance_of(grid).replaced(pins={f"sites.racks.{shut.id}": 0})
        yield f"{shut.id} is a closed candidate", instance_of(without), pinned
    yield "an area that nothing uses", instance_of(grid), instance_of(_with_area(grid, r))
    if not grid.rules.interconnect.enabled and grid.rules.n1 in ("off", "margin"):
        node = r.choice(grid.nodes)
        yield f"a lossless copy of {node.id}", instance_of(grid), instance_of(_with_copy(grid, node, r))


def faults(grid: Grid, seed: int) -> list[str]:
    """Return what a grid that can feed its own load breaks of the properties."""
    found = [] if zero_racks(instance_of(grid)) else ["zero racks: infeasible"]
    for what, one, other in alike(grid, random.Random(f"alike {seed}")):
        a, b = optimum(one), optimum(other)
        found += [] if same(a, b) else [f"{what}: {a} is {b} with it"]
    return found


def _with(grid: Grid, **parts: Any) -> Grid:
    return grid.replaced(**{k: tuple(v) for k, v in parts.items()})


def _with_area(grid: Grid, r: random.Random) -> Grid:
    """Return the grid with an area apart that feeds itself, or under no grid model may lack plants of its own."""
    short = grid.rules.grid_model == "none" and r.random() < 0.5
    area = grid.balancing_authorities[0].replaced(id="unused", headroom_mw=0.0)
    like = grid.nodes[0].replaced(upgrade=None, balancing_authority="unused")
    names = {
        "generation_mw": 0.0 if short else 5.0,
        "load_mw": 3.0,
        "largest_unit_mw": None,
        "site": grid.rules.headroom and r.random() < 0.5,
    }
    node = like.replaced(id="unused-node", interconnect_mw=9.0, **names)
    return _with(grid, balancing_authorities=(*grid.balancing_authorities, area), nodes=(*grid.nodes, node))


def _with_copy(grid: Grid, node: PowerNode, r: random.Random) -> Grid:
    """Return the grid with half of a node's plants and load, and some of its lines, at a copy next to it."""
    share = r.choice([0.0, 0.5, 1.0])
    half = {"generation_mw": node.generation_mw * share, "load_mw": node.load_mw * share}
    rest = {"generation_mw": node.generation_mw * (1 - share), "load_mw": node.load_mw * (1 - share)}
    copy = node.replaced(**half, id=f"{node.id}~", site=False, upgrade=None)
    nodes = [n.replaced(**rest) if n is node else n for n in grid.nodes]
    lines = [_moved(x, node.id, copy.id) if r.random() < 0.5 else x for x in grid.lines]
    tie = Line(id=f"{node.id}~tie", a=node.id, b=copy.id, rating_mw=1e6, reactance_pu=1e-6)
    return _with(grid, nodes=(*nodes, copy), lines=(*lines, tie))


def _moved(line: Line, old: str, new: str) -> Line:
    return line.replaced(**{k: new for k in ("a", "b") if getattr(line, k) == old})


def random_grid(seed: int) -> Dispatched:
    """Return a small grid of two or three areas, made around a dispatch: ratings and plants are those that it needs.

    Areas export, nodes feed in whatever is planned, and each rule of a site is on in some.
    """
    r = random.Random(f"grid {seed}")
    model = r.choice(["none", "transport", "transport", "dc"])
    areas = r.sample(["north", "south", "west"], r.choice([2, 2, 3]))
    names = [f"{a}-{i}" for a in areas for i in range(r.choice([1, 2]))]
    ends = [(names[r.randrange(i)], names[i]) for i in range(1, len(names))]  # a tree: all nodes hang together
    ends += [(a, b) for a, b in (r.sample(names, 2) for _ in range(r.choice([0, 1, 2])))]
    margin = r.choice(["off", "margin"]) if model == "transport" else "off"
    angle = {n: r.uniform(-0.05, 0.05) for n in names}
    lines, flow, out = [], {}, dict.fromkeys(names, 0.0)
    for i, (a, b) in enumerate(ends):
        x, circuits = r.choice([0.5, 1.0, 2.0]), r.choice([1, 2])
        mw = 100 * circuits / x * (angle[a] - angle[b])
        slack = r.choice([1.0, 1.0, 1.5, 3.0]) / (0.7 if margin == "margin" else 1.0)
        rating = max(abs(mw) / circuits * slack * (1 + 1e-4), 0.1)  # more than a tie of a copy shifts
        lines.append(Line(id=f"{a}-{b}-{i}", a=a, b=b, circuits=circuits, rating_mw=rating, reactance_pu=x))
        flow[lines[-1].id] = mw
        out[a], out[b] = out[a] + mw, out[b] - mw
    nodes, fed = [], {}
    for i, n in enumerate(names):
        load, must = r.choice([0.0, 0.3, 4.0]), r.random() < 0.2
        fed[n] = 0.0 if must else max(0.0, out[n] + load)
        nodes.append(_node(n, r, fed[n], fed[n] - out[n], site=i == 0 or r.random() < 0.8))
    interconnect = {
        "enabled": r.random() < 0.6,
        "share": r.choice([0.5, 1.0]),
        "reading": r.choice(["explicit", "capacity", "capacity_n1", "import_share", "import_share"]),
    }
    limited = r.choice(["headroom", "generation", "both", "both", "both"])
    rules = {
        "grid_model": model,
        "n1": margin if model != "dc" or limited == "headroom" else r.choice(["off", "node"]),
        "headroom": limited != "generation",
        "generation": limited != "headroom",
        "interconnect": interconnect,
        "max_sites": r.choice([None, 1, 2]),
        "min_site_modules": r.choice([1, 1, 2]),
    }
    authorities = [
        BalancingAuthority(
            id=a,
            interconnection=r.choice(["eastern", "western"]),
            headroom_mw=r.choice([0.0, 2.0, 6.0]),
            energy_usd_per_mwh=r.choice([20.0, 40.0, 190.0]),
        )
        for a in areas
    ]
    return Dispatched(
        Grid.model_validate({"balancing_authorities": authorities, "nodes": nodes, "lines": lines, "rules": rules}),
        fed,
        flow,
    )


def _node(name: str, r: random.Random, fed: float, load: float, *, site: bool) -> PowerNode:
    return PowerNode(
        id=name,
        balancing_authority=name.rpartition("-")[0],
        latitude=40.0,
        longitude=-80.0,
        generation_mw=fed + r.choice([0.0, 0.0, 1.0, 8.0]),
        load_mw=load,
        interconnect_mw=r.choice([0.5, 3.0]),
        site=site,
    )
