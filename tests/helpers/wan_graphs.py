"""Small fibre graphs, and every design of them: what the formulation must agree with."""

import math
import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from site_grids import case, node

from planner.instance.instance import Instance
from planner.models.wan_design import WanRequest

PLACES = {"n0": (40.0, -76.0), "n1": (41.0, -88.0), "n2": (35.0, -90.0), "n3": (39.0, -105.0), "n4": (33.0, -112.0)}
SITES = {"E0": "n0", "W0": "n4", "E1": "n1"}


def fibre(
    edges: list[dict[str, Any]],
    *,
    sites: tuple[str, ...] = ("E0", "W0"),
    rules: dict[str, Any] | None = None,
    **more: Any,
) -> Instance:
    """Return an instance whose sites stand on fibre nodes of their own, named as the sites, joined by so many edges."""
    ids = {v: k for k, v in SITES.items() if k in sites}
    nodes = [{"id": ids.get(n, n), "latitude": p[0], "longitude": p[1]} for n, p in PLACES.items()]
    named = [{**e, "a": ids.get(e["a"], e["a"]), "b": ids.get(e["b"], e["b"])} for e in edges]
    grid = [node(s, latitude=PLACES[SITES[s]][0], longitude=PLACES[SITES[s]][1]) for s in sites]
    wan = {"fibre_nodes": nodes, "fibre_edges": named, "wavelength_gbps": 100, "max_wavelengths_per_pair": 4}
    return case(*grid, wan=wan | {"headroom_factor": 1.0} | more, rules=rules or {})


def asked(size: float = 1e9, window: float = 0.2, sites: tuple[str, ...] = ("E0", "W0")) -> WanRequest:
    return WanRequest(sites=sites, exchanging=sites, stage_bytes=size, window_seconds=window)


def edge(a: str, b: str, km: float, **more: Any) -> dict[str, Any]:
    """Return an edge with a price of its own, so that no two designs cost the same."""
    return {"a": a, "b": b, "route_km": km, "usd_per_pair": km * 10, "wavelength_usd": 1000} | more


def random_case(seed: int) -> tuple[Instance, WanRequest]:
    """Return a random graph on five nodes with two or three sites, and an exchange between them."""
    r = random.Random(seed)
    pairs = [p for p in combinations(PLACES, 2) if r.random() < 0.65]
    edges = [edge(a, b, r.randint(500, 2500), max_fibre_pairs=r.choice([1, 1, 2, 3])) for a, b in pairs]
    sites = r.choice([("E0", "W0"), ("E0", "E1", "W0")])
    rules, form = {"max_rtt_ms": r.choice([None, None, 40.0, 60.0])}, r.choice(["auto", "ring", "tree"])
    own = {"protection": r.choice(["none", "one_cut"]), "exchange": form, "routes": 40}
    instance = fibre(edges, sites=sites, rules=rules, **own)
    return instance, asked(r.choice([2e9, 5e9, 1e10]), r.choice([0.1, 0.3]), sites)


def paths(edges: dict[str, tuple[str, str]], a: str, b: str, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if a == b:
        yield ()
        return
    for name, ends in sorted(edges.items()):
        if a in ends:
            onward = ends[1] if a == ends[0] else ends[0]
            if onward not in (*seen, a):
                for rest in paths(edges, onward, b, (*seen, a)):
                    yield (name, *rest)


def cheapest(instance: Instance, links: list[tuple[str, str, float, float, float]]) -> float | None:
    """Return the least capital over all routes for links of (a, b, bytes, window, round trips), or None."""
    w = instance.wan
    known = {e.name: e for e in w.fibre_edges}
    ends = {name: (e.a, e.b) for name, e in known.items()}
    limit = instance.grid.rules.max_rtt_ms or math.inf
    choices = []
    for a, b, size, window, trips in links:
        found = []
        for p in paths(ends, a, b):
            rtt = sum(known[e].route_km for e in p) * 0.0098
            left = window - trips * rtt / 1e3
            if rtt <= limit and left > 0:
                found.append((p, 8 * size / left / 1e9))
        if w.protection == "one_cut":
            choices.append([(p, q) for p in found for q in found if not set(p[0]) & set(q[0])])
        else:
            choices.append([(p, None) for p in found])
    costs = [c for choice in product(*choices) for c in [_cost(instance, known, choice)] if c is not None]
    return min(costs, default=None)


def _cost(instance: Instance, known: dict[str, Any], choice: Any) -> float | None:
    """Price a choice of routes: light each edge for its worst state."""
    total = 0.0
    for name, e in known.items():
        worst = 0.0
        for cut in [None, *(c for c in known if instance.wan.protection == "one_cut" and c != name)]:
            used = [(q if q is not None and cut in p[0] else p) for p, q in choice]
            worst = max(worst, sum(rate for path, rate in used if name in path))
        waves = math.ceil(worst / 100 - 1e-9)
        pairs = math.ceil(waves / 4)
        if pairs > (e.max_fibre_pairs or 16):
            return None
        total += pairs * e.usd_per_pair + waves * e.wavelength_usd
    return total
