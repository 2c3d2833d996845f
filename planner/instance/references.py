"""What does not go with pools of different GPUs, and what they lack."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from planner.errors import InputError
from planner.instance.grid import SOFT_UNITS, Grid
from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.instance.wan import Wan


def pool_problems(instance: Instance) -> Iterator[str]:
    """Name what of an instance with pools cannot be planned; nothing where there are none."""
    h = instance.hardware
    if not h.pools:
        if h.pool_link is not None:
            yield "hardware.pool_link: joins the pools, and hardware.pools holds none; give pools, or remove it"
        return
    if len(h.pools) < 2:
        yield "hardware.pools: must hold at least 2 pools (holds 1); give another, or write accelerator, rack and racks in the place of pools"
    yield from _each(instance)
    yield from _beside(instance)
    if instance.objective.minimize != "days_to_train":
        yield f'objective.minimize: pools of different GPUs are planned for "days_to_train" alone (is "{instance.objective.minimize}"); ask for that'
    for path in sorted(instance.pins):
        yield f"pins.{path}: each pool's layout is its own, and none can be fixed by hand (is {instance.pins[path]!r}); remove the pin"


def refuse_pools(instance: Instance) -> Instance:
    """Return an instance about whose one layout is asked; pools have one each.

    Raises
    ------
    InputError
        The instance has pools.
    """
    if instance.hardware.pools:
        raise InputError(
            "hardware.pools: each pool has a layout of its own; ask about one, its accelerator, rack and racks in the place of pools"
        )
    return instance


def _each(instance: Instance) -> Iterator[str]:
    """Name pools of one name, and GPUs that do not run the products' type."""
    names, compute = Counter(p.name for p in instance.hardware.pools), instance.workload.precision.compute
    for i, p in enumerate(instance.hardware.pools):
        if names[p.name] > 1:
            yield f"hardware.pools[{i}].name: {p.name!r} stands {names[p.name]} times; rename one"
        if isinstance(p.accelerator, Accelerator) and compute not in p.accelerator.peak_flop_per_second:
            has = ", ".join(sorted(p.accelerator.peak_flop_per_second))
            yield f"hardware.pools[{i}].accelerator: {p.accelerator.name} has no {compute}, workload.precision.compute (has {has}); choose another"


def _beside(instance: Instance) -> Iterator[str]:
    """Name what stands beside the pools and would be left out of account."""
    h = instance.hardware
    for part in ("grid", "wan", "network"):
        if getattr(instance, part) is not None:
            yield f"{part}: does not go with hardware.pools: the joint decision takes one type of GPU; remove {part}, or keep one of the pools"
    for key in ("accelerator", "rack"):
        if getattr(h, key) != getattr(h.pools[0], key):
            yield f"hardware.{key}: each pool has its own (is another than the first pool's); remove it"
    for key in ("racks", "nic_bytes_per_second", "cooling_kw_per_m2"):
        if getattr(h, key) is not None:
            yield f"hardware.{key}: does not go with hardware.pools (is {getattr(h, key):g}); remove it, or give it to a pool where a pool has it"
    if h.racks_per_module != 1:
        yield f"hardware.racks_per_module: does not go with hardware.pools (is {h.racks_per_module}); remove it"


def reference_problems(instance: Instance, *, searched: bool) -> Iterator[str]:
    """Name every reference that leads nowhere and every id that stands twice."""
    compute, gpu = instance.workload.precision.compute, instance.hardware.accelerator
    if isinstance(gpu, Accelerator) and compute not in gpu.peak_flop_per_second:
        has = ", ".join(sorted(gpu.peak_flop_per_second))
        yield f"workload.precision.compute: {gpu.name} has no {compute} (has {has}); choose one of these or add its peak"
    yield from pool_problems(instance)
    law = instance.workload.choose.critical_batch if instance.workload.choose else None
    if instance.limits.max_batch_tokens is None and searched and law is None:
        yield "limits.max_batch_tokens: is missing; give the critical batch in tokens (published laws span 1e7 to 1e9)"
    elif (
        instance.limits.max_batch_tokens is not None
        and instance.limits.max_batch_tokens < instance.workload.sequence_length
    ):
        yield (
            f"limits.max_batch_tokens: must be at least one sequence of {instance.workload.sequence_length} tokens "
            f"(is {instance.limits.max_batch_tokens:g}); raise it or shorten workload.sequence_length"
        )
    if instance.network is not None and instance.network.media and instance.network.floor is None:
        yield "network.floor: is missing; media are priced by length, which needs the floor; give {} for the usual one"
    if instance.grid is not None:
        if instance.hardware.racks is not None:
            yield f"hardware.racks: the grid decides how many racks there are (is {instance.hardware.racks}); remove it, or pin sites.racks"
        yield from _grid_problems(instance.grid)
        yield from wan_problems(instance.grid, instance.wan or Wan())
    elif instance.network is not None and instance.hardware.racks is None:
        yield "hardware.racks: is missing; without a grid the one cluster needs its number of racks"
    if instance.objective.minimize == "loss":
        if instance.workload.choose is None:
            yield "workload.choose: is missing; say by which law and of which family the model is chosen"
        if instance.limits.deadline_days is None:
            yield "limits.deadline_days: is missing; the best model without a deadline has no end; give one"
    if instance.objective.minimize == "cost_usd" and instance.limits.deadline_days is None:
        yield "limits.deadline_days: is missing; the cheapest plan that may take for ever is no plan; give a deadline"


def _grid_problems(grid: Grid) -> Iterator[str]:
    families = (
        [(f"grid.balancing_authorities[{i}]", b.id) for i, b in enumerate(grid.balancing_authorities)],
        [(f"grid.nodes[{i}]", n.id) for i, n in enumerate(grid.nodes)],
        [(f"grid.lines[{i}]", c.id) for i, c in enumerate(grid.lines)]
        + [(f"grid.new_lines[{i}]", c.id) for i, c in enumerate(grid.new_lines)],
    )
    for family in families:
        first: dict[str, str] = {}
        for path, name in family:
            if first.setdefault(name, path) != path:
                yield f"{path}.id: {name!r} is already the id of {first[name]}; rename one"
    authorities = sorted({b.id for b in grid.balancing_authorities})
    nodes = sorted({n.id for n in grid.nodes})
    for i, n in enumerate(grid.nodes):
        if n.balancing_authority not in authorities:
            yield f"grid.nodes[{i}].balancing_authority: {_unknown(n.balancing_authority, authorities)}"
    corridors = [(f"grid.lines[{i}]", c.a, c.b) for i, c in enumerate(grid.lines)]
    corridors += [(f"grid.new_lines[{i}]", c.a, c.b) for i, c in enumerate(grid.new_lines)]
    yield from _scenario_problems(grid, authorities, nodes)
    for name in sorted(set(grid.rules.soft) - set(SOFT_UNITS)):
        yield f"grid.rules.soft.{name}: no rule of that name can be soft; known: {', '.join(SOFT_UNITS)}"
    if "rating" in grid.rules.soft and grid.rules.grid_model == "dc":
        yield 'grid.rules.soft.rating: needs the grid model "transport" (is "dc"); remove it'
    for path, a, b in corridors:
        for end, node in (("a", a), ("b", b)):
            if node not in nodes:
                yield f"{path}.{end}: {_unknown(node, nodes)}"
        if a == b:
            yield f"{path}: both ends are {a!r}; a line joins two nodes"
    yield from power_flow_gaps(grid)


def _scenario_problems(grid: Grid, authorities: list[str], nodes: list[str]) -> Iterator[str]:
    total = sum(s.weight for s in grid.scenarios)
    if total > 1 + 1e-9:
        yield f"grid.scenarios: weights must sum to at most 1 (are {total:g}); lower them"
    names = Counter(s.name for s in grid.scenarios)
    for i, s in enumerate(grid.scenarios):
        if not s.name:
            yield f"grid.scenarios[{i}].name: is empty; rows and reports tell a scenario by its name, so give one"
        elif names[s.name] > 1:
            yield f"grid.scenarios[{i}].name: {s.name!r} stands {names[s.name]} times; rename one"
        for key, known in (("headroom_mw", authorities), ("energy_usd_per_mwh", authorities), ("generation_mw", nodes)):
            for name in sorted(set(getattr(s, key)) - set(known)):
                yield f"grid.scenarios[{i}].{key}: {_unknown(name, known)}"


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.4)
    return f"{name!r} does not exist; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}")


def power_flow_gaps(grid: Grid) -> Iterator[str]:
    """Say what a grid lacks for the power flow that its rules ask for."""
    rules = grid.rules
    if rules.n1 in ("node", "full") and rules.grid_model != "dc":
        yield f'grid.rules.n1: {rules.n1!r} follows flows after an outage, which grid_model {rules.grid_model!r} has not; set grid_model "dc"'
    if rules.n1 == "margin" and rules.grid_model == "none":
        yield 'grid.rules.n1: "margin" keeps back a share of ratings, which grid_model "none" does not read; set grid_model "transport" or "dc"'
    if rules.grid_model != "dc":
        return
    lines = [(f"grid.lines[{i}]", x.id, x.reactance_pu) for i, x in enumerate(grid.lines)]
    lines += [(f"grid.new_lines[{i}]", x.id, x.reactance_pu) for i, x in enumerate(grid.new_lines)]
    for path, name, reactance in lines:
        if reactance is None:
            yield f'{path}.reactance_pu: missing for {name!r}; grid_model "dc" needs it: give it on 100 MVA for one circuit, or choose "transport"'


def wan_problems(grid: Grid, wan: Wan) -> Iterator[str]:
    """Name every reference that leads nowhere, every name that stands twice and every edge with one end."""
    yield from _twice("fibre_nodes", "id", [n.id for n in wan.fibre_nodes])
    yield from _twice("fibre_edges", "id", [e.name for e in wan.fibre_edges])
    yield from _twice("traffic", "name", [t.name for t in wan.traffic])
    nodes = sorted({n.id for n in wan.fibre_nodes})
    if wan.fibre_nodes and not wan.fibre_edges:
        yield f"wan.fibre_edges: is missing; {len(nodes)} fibre_nodes are joined by nothing: give the edges, or remove the nodes"
    for i, e in enumerate(wan.fibre_edges):
        yield from _unknown_end(f"wan.fibre_edges[{i}].a", e.a, nodes)
        yield from _unknown_end(f"wan.fibre_edges[{i}].b", e.b, nodes)
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
                yield from _unknown_end(f"wan.traffic[{i}].{key}", end, ends)
        if t.a is not None and t.a == t.b:
            yield f"wan.traffic[{i}]: both ends are {t.a!r}; traffic goes between two places"


def _twice(family: str, key: str, names: Sequence[str]) -> Iterator[str]:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            yield f"wan.{family}[{i}].{key}: {name!r} is already that of wan.{family}[{first[name]}]; rename one"


def _unknown_end(path: str, name: str, known: Sequence[str]) -> Iterator[str]:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4)
        yield f"{path}: {name!r} does not exist; " + (
            f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        )
