"""Small grids with reactances for the tests of the power flow: meshes, parallel circuits, radial nodes, plants of units."""

import importlib.util
import itertools
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from site_grids import case, line, node

from planner.handoff import SitesRequest
from planner.instance import Instance

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str) -> ModuleType:
    """Import a script's module from its path, once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def wire(a: str, b: str, x: float = 0.01, **changes: Any) -> dict[str, Any]:
    """Return a line with a reactance."""
    return line(a, b, reactance_pu=x, **changes)


def power_case(seed: int, *, n1: str = "off", new: int = 0, model: str = "dc") -> tuple[Instance, SitesRequest]:
    """Return a question of four to seven nodes: a tree and some meshes, circuits of one to three, plants of one or more units."""
    r = random.Random(seed)
    names = [f"{r.choice('EW') if seed % 5 == 0 else 'E'}{i}" for i in range(r.randint(4, 7))]
    nodes = [
        node(
            n,
            generation_mw=r.choice([0, 0, 2, 3, 4, 6]) if i else 5,
            largest_unit_mw=r.choice([None, 0, 1, 2, 2]),
            site=i < 3,
            latitude=40.0 + i,
        )
        for i, n in enumerate(names)
    ]
    ends = [(names[r.randrange(i)], names[i]) for i in range(1, len(names)) if r.random() < 0.93]
    spare = [p for p in itertools.combinations(names, 2) if p not in ends]
    ends += r.sample(spare, min(len(spare), r.randint(1, 4)))
    lines = [
        wire(a, b, r.choice([0.005, 0.01, 0.02, 0.03]), rating_mw=r.choice([1.5, 2, 3, 4]), circuits=r.choice([1, 1, 2, 3]), id=f"{i}")
        for i, (a, b) in enumerate(ends)
    ]
    built = [
        {"id": f"new{i}", "a": a, "b": b, "rating_mw": r.choice([1, 2, 4]), "max_circuits": r.choice([1, 2]), "reactance_pu": r.choice([0.005, 0.02])}
        | {"capex_usd": r.choice([0, 3e5, 2e6])}
        for i, (a, b) in enumerate(r.sample(list(itertools.combinations(names, 2)), new))
    ]
    rules = {"grid_model": model, "n1": n1, "headroom": r.random() < 0.5, "max_sites": r.choice([None, 1, 2]), "n1_margin": 0.6}
    prices = {"site_usd": r.choice([0, 3e5]), "building_usd_per_it_mw": 1e5}
    usd = {"E": 40.0, "W": r.choice([30.0, 50.0])}
    instance = case(*nodes, lines=lines, new_lines=built, rules=rules, prices=prices, headroom={"E": 12.0, "W": 9.0}, usd_per_mwh=usd)
    return instance, SitesRequest(racks=r.choice([None, None, 3]))
