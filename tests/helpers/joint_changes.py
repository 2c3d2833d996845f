"""Changes of an instance that can only help its joint optimum, that can only harm it, and that change nothing."""

from collections.abc import Callable
from typing import Any

from planner.instance.hardware import Accelerator, Rack
from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.joint.solution import JointSolution

Change = Callable[[Instance], Instance]
MORE, DEARER = 1.13, 1.07


def put(i: Instance, **parts: Any) -> Instance:
    """Return an instance with other parts; `grid__prices__site_usd=...` goes down to a field."""
    changed: Any = i
    for path, value in parts.items():
        changed = _put(changed, path.split("__"), value)
    found: Instance = changed
    return found


def _put(part: Any, path: list[str], value: Any) -> Any:
    new = _put(getattr(part, path[0]), path[1:], value) if len(path) > 1 else value
    return part.model_copy(update={path[0]: new})


def more_budget(i: Instance) -> Instance:
    """Add money."""
    return i if i.limits.budget_usd is None else put(i, limits__budget_usd=i.limits.budget_usd * MORE)


def more_power(i: Instance) -> Instance:
    """Add headroom, plants, interconnect, and the limit on all sites."""
    limit = i.limits.facility_power_mw
    i = i if limit is None else put(i, limits__facility_power_mw=limit * MORE)
    if i.grid is None:
        return i
    areas = [b.model_copy(update={"headroom_mw": b.headroom_mw * MORE}) for b in i.grid.balancing_authorities]
    nodes = [
        n.model_copy(
            update={
                "generation_mw": n.generation_mw * MORE,
                "interconnect_mw": None if n.interconnect_mw is None else n.interconnect_mw * MORE,
            }
        )
        for n in i.grid.nodes
    ]
    return put(i, grid__balancing_authorities=tuple(areas), grid__nodes=tuple(nodes))


def more_sites(i: Instance) -> Instance:
    """Allow one more site."""
    most = None if i.grid is None else i.grid.rules.max_sites
    return i if most is None else put(i, grid__rules__max_sites=most + 1)


def more_fibre(i: Instance) -> Instance:
    """Let one more pair of fibres be had between two sites."""
    return i if i.wan is None else put(i, wan__max_fibre_pairs=i.wan.max_fibre_pairs + 1)


def more_switches(i: Instance) -> Instance:
    """Add a switch with two ports more than the first, at the price of its ports."""
    first = None if i.network is None else i.network.switches[0]
    if i.network is None or not isinstance(first, Switch):
        return i
    ports = first.ports + 2
    more = first.model_copy(update={"name": "more", "ports": ports, "price_usd": first.price_usd * ports / first.ports})
    return put(i, network__switches=(*i.network.switches, more))


def more_batch(i: Instance) -> Instance:
    """Allow one more sequence in a batch."""
    tokens = i.limits.max_batch_tokens or 0.0
    return put(i, limits__max_batch_tokens=tokens + i.workload.sequence_length)


def dearer_racks(i: Instance) -> Instance:
    """Raise the price of racks."""
    rack = i.hardware.rack
    return put(i, hardware__rack__price_usd=rack.price_usd * DEARER) if isinstance(rack, Rack) else i


def dearer_fabric(i: Instance) -> Instance:
    """Raise the prices of switches and transceivers."""
    if i.network is None:
        return i
    switches = [
        s.model_copy(update={"price_usd": s.price_usd * DEARER}) for s in i.network.switches if isinstance(s, Switch)
    ]
    i = put(i, network__switches=tuple(switches)) if len(switches) == len(i.network.switches) else i
    return put(i, network__optics__price_usd=i.network.optics.price_usd * DEARER) if i.network else i


def dearer_sites(i: Instance) -> Instance:
    """Raise the prices of buildings, sites and new lines."""
    if i.grid is None:
        return i
    p = i.grid.prices
    lines = [x.model_copy(update={"capex_usd": x.capex_usd * DEARER}) for x in i.grid.new_lines]
    return put(
        i,
        grid__prices__building_usd_per_it_mw=p.building_usd_per_it_mw * DEARER,
        grid__prices__site_usd=p.site_usd * DEARER,
        grid__new_lines=tuple(lines),
    )


def dearer_fibre(i: Instance) -> Instance:
    """Raise the prices of fibre and wavelengths."""
    if i.wan is None:
        return i
    return put(
        i,
        wan__fibre_usd_per_route_km=i.wan.fibre_usd_per_route_km * DEARER,
        wan__wavelength_usd=i.wan.wavelength_usd * DEARER,
    )


def slower_nics(i: Instance) -> Instance:
    """Lower the rate of NICs."""
    gpu = i.hardware.accelerator
    if not isinstance(gpu, Accelerator):
        return i
    return put(i, hardware__accelerator__nic_bytes_per_second=gpu.nic_bytes_per_second / DEARER)


def reordered(i: Instance) -> Instance:
    """List nodes, areas, lines and switches in the other order."""
    if i.network is not None:
        i = put(i, network__switches=tuple(reversed(i.network.switches)))
    if i.grid is not None:
        g = i.grid
        i = put(
            i,
            grid__nodes=tuple(reversed(g.nodes)),
            grid__balancing_authorities=tuple(reversed(g.balancing_authorities)),
            grid__lines=tuple(reversed(g.lines)),
            grid__new_lines=tuple(reversed(g.new_lines)),
        )
    return i


def renamed(i: Instance) -> Instance:
    """Give the nodes of a grid each other's names, the first the last's: only the order of names differs."""
    if i.grid is None:
        return i
    g = i.grid
    names = dict(zip(sorted(n.id for n in g.nodes), sorted((n.id for n in g.nodes), reverse=True), strict=True))

    def ends(lines: Any) -> Any:
        return tuple(x.model_copy(update={"a": names[x.a], "b": names[x.b]}) for x in lines)

    nodes = tuple(n.model_copy(update={"id": names[n.id]}) for n in g.nodes)
    return put(i, grid__nodes=nodes, grid__lines=ends(g.lines), grid__new_lines=ends(g.new_lines))


HELPS: tuple[Change, ...] = (
    more_budget,
    more_power,
    more_sites,
    more_fibre,
    more_switches,
    more_batch,
)
HARMS: tuple[Change, ...] = (dearer_racks, dearer_fabric, dearer_sites, dearer_fibre, slower_nics)
SAME: tuple[Change, ...] = (reordered, renamed)


def own_choices(found: JointSolution) -> dict[str, Any]:
    """Return the choices of a plan as pins."""
    plan = found.plan
    assert plan is not None
    c, s = plan.column, plan.column.strategy.shape
    pins: dict[str, Any] = {
        "layout.tensor_parallel": s.tensor_parallel,
        "layout.context_parallel": s.context_parallel,
        "layout.expert_parallel": s.expert_parallel,
        "layout.pipeline_parallel": c.p,
        "layout.virtual_stages": c.v,
        "layout.microbatch_sequences": s.micro_batch,
        "layout.data_parallel": c.d,
        "layout.microbatches_per_step": c.m,
        "layout.zero_stage": c.zero,
        "layout.sequence_parallel": s.sequence_parallel,
        "layout.recompute": "full" if any(plan.split.recomputed) else s.recompute,
    }
    pins |= {f"placement.blocks.{x}": n for x, n in plan.blocks_by_site.items()}
    if len({t.stripes for t in plan.templates.values()}) == 1:
        pins["placement.stripes"] = next(iter(plan.templates.values())).stripes
    if len(plan.blocks_by_site) > 1:
        pins["wan.wavelengths"] = plan.wavelengths
    return pins


def other_values(name: str, value: Any) -> list[Any]:
    """List values of a choice near one: half, one less, one more, double; and 1."""
    if isinstance(value, bool):
        return [not value]
    if name == "layout.recompute":
        return [x for x in ("none", "selective", "full") if x != value]
    near = {1, value // 2, value - 1, value + 1, value * 2} - {value}
    if name == "layout.zero_stage":
        return sorted(x for x in {0, 1, 2, 3} - {value})
    return sorted(x for x in near if x >= 1)


def with_pins(i: Instance, pins: dict[str, Any]) -> Instance:
    """Return an instance with more pins."""
    return i.model_copy(update={"pins": {**i.pins, **pins}})
