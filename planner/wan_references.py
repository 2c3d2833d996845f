"""The names in an instance's wide area: each stands once, and each reference leads somewhere."""

import difflib
from collections.abc import Iterator, Sequence

from planner.instance import Grid, Wan


def wan_problems(grid: Grid, wan: Wan) -> Iterator[str]:
    """Name every reference that leads nowhere, every name that stands twice and every edge with one end."""
    yield from _twice("fibre_nodes", "id", [n.id for n in wan.fibre_nodes])
    yield from _twice("fibre_edges", "id", [e.name for e in wan.fibre_edges])
    yield from _twice("traffic", "name", [t.name for t in wan.traffic])
    nodes = sorted({n.id for n in wan.fibre_nodes})
    if wan.fibre_nodes and not wan.fibre_edges:
        yield f"wan.fibre_edges: is missing; {len(nodes)} fibre_nodes are joined by nothing: give the edges, or remove the nodes"
    for i, e in enumerate(wan.fibre_edges):
        yield from _unknown(f"wan.fibre_edges[{i}].a", e.a, nodes)
        yield from _unknown(f"wan.fibre_edges[{i}].b", e.b, nodes)
        if e.a == e.b:
            yield f"wan.fibre_edges[{i}]: both ends are {e.a!r}; an edge joins two nodes"
        if e.name.endswith(" access"):
            yield f'wan.fibre_edges[{i}].id: must not end in " access" (is {e.name!r}), which names the ways of sites to their nodes; rename it'
    ends = sorted({*nodes, *(n.id for n in grid.nodes)})
    for i, t in enumerate(wan.traffic):
        if t.name == "sync":
            yield f"wan.traffic[{i}].name: must not be 'sync', which names the exchange of gradients; rename it"
        for key, end in (("a", t.a), ("b", t.b)):
            if end is not None:
                yield from _unknown(f"wan.traffic[{i}].{key}", end, ends)
        if t.a is not None and t.a == t.b:
            yield f"wan.traffic[{i}]: both ends are {t.a!r}; traffic goes between two places"


def _twice(family: str, key: str, names: Sequence[str]) -> Iterator[str]:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            yield f"wan.{family}[{i}].{key}: {name!r} is already that of wan.{family}[{first[name]}]; rename one"


def _unknown(path: str, name: str, known: Sequence[str]) -> Iterator[str]:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4)
        yield f"{path}: {name!r} does not exist; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}")
