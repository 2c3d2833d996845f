"""Small grids for the tests of the site split, and a brute force that knows the rules from the physics alone."""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

from best_splits import asking, split
from joint_brute_sites import SiteCosts
from joint_toys import PRECISION

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.physics.site import cost, site_power
from planner.plan.plan_sections import SitesPlan
from planner.solvers.outcome import Stop

ACCELERATOR = {
    "name": "gpu", "hbm_bytes": 1e11, "hbm_bytes_per_second": 1e12, "peak_flop_per_second": {"bf16": 1e15},
    "gemm_efficiency": {"max_share": {"bf16": 0.7}}, "scale_up_bytes_per_second": 1e11,
    "scale_up_latency_seconds": 1e-6, "nic_bytes_per_second": 5e10, "nic_latency_seconds": 1e-6,
}  # fmt: skip
WORKLOAD = {
    "model": {"name": "m", "layers": 4, "hidden": 64, "heads": 4, "ffn": 256, "vocabulary": 100}, "tokens": 1e9,
    "sequence_length": 128, "software": {"name": "ideal"}, "precision": PRECISION | {"gradient_bytes": 2},
}  # fmt: skip
AREAS = {"E": "eastern", "W": "western"}
ANY, OPTIONS = SitesRequest(), Options()


def solved(instance: Instance, request: SitesRequest = ANY) -> SitesPlan | None:
    """Return the best split, None where there is provably none."""
    outcome = split(instance, request)
    assert outcome.stop == Stop.PROVED
    assert outcome.infeasible == (outcome.solution is None)
    return outcome.solution


def racks(instance: Instance, request: SitesRequest = ANY) -> int:
    """Return the racks of the best split, 0 where there is none."""
    plan = solved(instance, request)
    return sum(s.racks for s in plan.sites) if plan else 0


def node(name: str, **changes: Any) -> dict[str, Any]:
    """Return a node; its authority is the first letter of its name."""
    place = {"E": (40.0, -76.0), "W": (33.0, -112.0)}[name[0]]
    return {
        "id": name, "balancing_authority": name[0], "latitude": place[0] + int(name[1:]), "longitude": place[1],
        "generation_mw": 10.0,
    } | changes  # fmt: skip


def line(a: str, b: str, **changes: Any) -> dict[str, Any]:
    """Return a line of one circuit of 10 MW."""
    return {"id": f"{a}-{b}", "a": a, "b": b, "rating_mw": 10.0} | changes


def case(
    *nodes: dict[str, Any],
    headroom: dict[str, float] | None = None,
    usd_per_mwh: dict[str, float] | None = None,
    **parts: Any,
) -> Instance:
    """Return an instance whose module is one rack of 1 MW at the grid and 1 M$, with room for it."""
    spare, price = {"E": 10.0, "W": 10.0} | (headroom or {}), {"E": 40.0, "W": 40.0} | (usd_per_mwh or {})
    used = sorted({n["balancing_authority"] for n in nodes})
    grid = {
        "balancing_authorities": [
            {"id": b, "interconnection": AREAS[b], "headroom_mw": spare[b], "energy_usd_per_mwh": price[b]}
            for b in used
        ],
        "nodes": list(nodes),
        "lines": parts.get("lines", []),
        "new_lines": parts.get("new_lines", []),
        "rules": parts.get("rules", {}),
        "prices": parts.get("prices", {}),
    }
    rack = {"name": "r", "gpus": 8, "it_kw": 1000, "price_usd": 1e6}
    hardware = {"accelerator": ACCELERATOR, "rack": rack} | parts.get("hardware", {})
    rest = {k: parts[k] for k in ("limits", "wan", "pins") if k in parts}
    return Instance.model_validate({"name": "case", "workload": WORKLOAD, "hardware": hardware, "grid": grid, **rest})


def random_case(seed: int) -> tuple[Instance, SitesRequest]:
    """Return a tiny question in whole MW: two to four nodes, few modules, each rule on or off."""
    r = random.Random(seed)
    names = r.sample(["E0", "E1", "E4", "W0", "W2"], r.randint(2, 4))
    nodes = [
        node(n, generation_mw=r.randint(0, 3) if i else r.randint(1, 4), interconnect_mw=r.randint(1, 3),
         site=i == 0 or r.random() < 0.9, area_m2=r.choice([None, 1500, 2500]))
        for i, n in enumerate(names)
    ]  # fmt: skip
    pairs = list(itertools.combinations(names, 2))
    lines = [line(a, b, rating_mw=r.randint(1, 3), circuits=r.randint(1, 2)) for a, b in pairs if r.random() < 0.4]
    ((a, b),) = r.sample(pairs, 1)
    new = line(a, b, id=f"new-{a}-{b}", rating_mw=r.randint(1, 4), max_circuits=r.randint(1, 2))
    new["capex_usd"] = r.choice([0, 2e5, 9e5])
    rules = {
        "grid_model": r.choice(["none", "transport", "transport"]), "headroom": r.random() < 0.8,
        "interconnect": {
            "enabled": r.random() < 0.5, "share": r.choice([0.5, 1.0]),
            "reading": r.choice(["explicit", "capacity", "capacity_n1"]),
        },
        "fault_split": {
            "enabled": r.random() < 0.2, "min_interconnections": r.choice([1, 2]),
            "max_share": r.choice([0.5, 0.6, 1.0]),
        },
        "max_sites": r.choice([None] * 5 + [1, 2]), "min_site_modules": r.choice([1, 1, 1, 2]),
        "max_rtt_ms": r.choice([None] * 6 + [1.5, 20.0]),
    }  # fmt: skip
    prices = {"building_usd_per_it_mw": 1e5, "interconnection_usd_per_mw": 5e4, "site_usd": r.choice([0, 3e5])}
    prices |= {"discount_rate": r.choice([0.0, 0.07])}
    limits = {"operation_years": r.choice([0, 2])}
    if r.random() < 0.5:
        limits["budget_usd"] = r.uniform(3e6, 14e6)
    if r.random() < 0.3:
        limits["facility_power_mw"] = r.randint(2, 8)
    hardware = {"racks_per_module": r.choice([1, 1, 1, 2]), "cooling_kw_per_m2": 1.0}
    spare = {"E": r.randint(2, 8), "W": r.randint(2, 8)}
    price = {"E": r.choice([30, 40]), "W": r.choice([35, 40])}
    instance = case(
        *nodes, headroom=spare, usd_per_mwh=price, lines=lines, new_lines=[new], rules=rules, prices=prices,
        limits=limits, hardware=hardware, wan={},
    )  # fmt: skip
    return asking(instance, r.choice([None] * 5 + [2, 4])), SitesRequest(fabric_usd_per_rack=1e5)


def best(instance: Instance, request: SitesRequest) -> tuple[int, float] | None:
    """Return the most racks and then the least yearly cost over every split, or None."""
    found = ((sum(racks.values()), usd) for racks, usd in placed_splits(instance, request))
    return min(found, key=lambda x: (-x[0], x[1]), default=None)


def placed_splits(instance: Instance, request: SitesRequest) -> Iterator[tuple[dict[str, int], float]]:
    """Yield racks by site and yearly cost of every split that keeps the rules."""
    costs, h, limits = SiteCosts(i=instance), instance.hardware, instance.limits
    g, rules = costs.grid, costs.grid.rules
    most = math.floor(sum(n.generation_mw for n in g.nodes) / site_power.facility_mw(h, h.racks_per_module))
    for modules in itertools.product(range(most + 1), repeat=len(costs.nodes)):
        racks = {n.id: m * h.racks_per_module for n, m in zip(costs.nodes, modules, strict=True) if m}
        total = sum(racks.values())
        if not racks or instance.pins.get("sites.racks", total) != total or not costs.allowed(modules):
            continue
        if costs.rtt_ms(modules) > (rules.max_rtt_ms or math.inf):
            continue
        sites_usd = energy = 0.0
        for n in (n for n in costs.nodes if n.id in racks):
            mw = site_power.facility_mw(h, racks[n.id])
            sites_usd += cost.site_capex_usd(g, it_mw=site_power.it_mw(h, racks[n.id]), facility_mw=mw)
            energy += cost.energy_usd_per_year(mw, costs.areas[n.balancing_authority].energy_usd_per_mwh)
        for built in costs.constructions:
            usd = sites_usd + built.usd
            capital = total * (h.rack.price_usd + request.fabric_usd_per_rack) + usd
            paid = capital + limits.budgeted_years * energy <= (limits.budget_usd or math.inf)
            if paid and costs.powered(modules, [0.0] * len(modules), built):
                yield racks, energy + usd * cost.annuity(g.prices.discount_rate, g.prices.site_life_years)
