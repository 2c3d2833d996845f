"""Make a grid of a given size from a seed: planar, meshed, with parallel circuits and radial nodes.

Places are uniform in a region whose area grows with the buses. Lines are a shortest tree and the shortest edges of a
triangulation, about 1.4 a bus; an eighth of the buses hang on one line. Voltages, ratings and reactances a mile are
those of usual 230, 345 and 500 kV lines [m]: thermal 797, 1793, 2598 MVA; 0.0011, 0.0005, 0.0002 pu on 100 MVA.
"""

import math
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay

MILES_PER_DEGREE = 60.0
CLASSES = ((797.0, 0.0011), (1793.0, 0.0005), (2598.0, 0.0002))


def made_grid(buses: int, candidates: int, seed: int) -> dict[str, Any]:
    """Return a grid with four authorities in one interconnection; the sites may stand at the best connected buses."""
    rng = np.random.default_rng(seed)
    side = math.sqrt(buses) * 0.25
    places = rng.uniform(0, side, (buses, 2))
    ends = _edges(places, rng)
    lines = []
    into = np.zeros(buses)
    for i, (a, b) in enumerate(ends):
        miles = max(float(np.hypot(*(places[a] - places[b]))) * MILES_PER_DEGREE, 1.0)
        thermal, per_mile = CLASSES[rng.choice(3, p=(0.5, 0.3, 0.2))]
        circuits = int(rng.choice(3, p=(0.6, 0.3, 0.1))) + 1
        # A part of the rating is taken by the flows of today.
        usable = round(thermal * float(rng.uniform(0.25, 0.7)), 1)
        into[[a, b]] += circuits * usable
        line = {"id": f"l{i:05}", "a": f"n{a:05}", "b": f"n{b:05}", "circuits": circuits}
        lines.append(line | {"rating_mw": usable, "reactance_pu": round(per_mile * miles, 7)})
    best = set(np.argsort(-into, kind="stable")[:candidates].tolist())
    areas = [f"A{k}" for k in range(4)]
    nodes = [_node(i, places[i], side, areas, i in best, rng) for i in range(buses)]
    authorities = [
        {"id": b, "interconnection": "eastern", "headroom_mw": 1e6, "energy_usd_per_mwh": 35.0 + 2 * k}
        for k, b in enumerate(areas)
    ]
    return {
        "balancing_authorities": authorities,
        "nodes": nodes,
        "lines": lines,
        "source": f"made grid: {buses} buses, seed {seed}",
    }


def _edges(places: Any, rng: Any) -> list[tuple[int, int]]:
    """Return a shortest tree of the meshed buses and short edges beside it, and one line for each radial bus."""
    buses = len(places)
    radial = buses // 8
    core = buses - radial
    triangles = Delaunay(places[:core]).simplices
    pairs = np.unique(
        np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1), axis=0
    )
    miles = np.hypot(*(places[pairs[:, 0]] - places[pairs[:, 1]]).T)
    tree = minimum_spanning_tree(coo_matrix((miles, (pairs[:, 0], pairs[:, 1])), shape=(core, core))).tocoo()
    kept = {(min(a, b), max(a, b)) for a, b in zip(tree.row.tolist(), tree.col.tolist(), strict=True)}
    order = np.argsort(miles * rng.uniform(0.6, 1.4, len(miles)), kind="stable")
    for k in order:
        if len(kept) >= 1.5 * core:
            break
        kept.add((int(pairs[k, 0]), int(pairs[k, 1])))
    near = [int(np.hypot(*(places[:core] - places[i]).T).argmin()) for i in range(core, buses)]
    return sorted(kept) + [(a, core + i) for i, a in enumerate(near)]


def _node(i: int, place: Any, side: float, areas: list[str], site: bool, rng: Any) -> dict[str, Any]:
    plant = bool(rng.random() < 0.3)
    spare = round(float(rng.uniform(20, 400)), 1) if plant else 0.0
    return {
        "id": f"n{i:05}",
        "balancing_authority": areas[min(int(4 * place[0] / side), 3)],
        "latitude": round(30 + float(place[1]) % 40, 5),
        "longitude": round(-120 + float(place[0]) % 60, 5),
        "generation_mw": spare,
        "largest_unit_mw": round(spare * float(rng.choice((0.25, 0.5, 1.0))), 1),
        "site": site,
    }
