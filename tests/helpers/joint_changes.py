"""Changes of an instance that can only help its joint optimum, that can only harm it, and that change nothing."""

from collections.abc import Callable
from typing import Any, get_args

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.joint.joint_solution import JointSolution, strategy_of
from planner.physics.training.parallel_strategy import layout_values
from planner.physics.training.schedule import Schedule

Change = Callable[[Instance], Instance]
MORE, DEARER = 1.13, 1.07


def at(*paths: str, times: float = 1, plus: float = 0) -> Change:
    """Return a change of the figures at paths, `*` for each item; what an instance does not have stays out."""

    def changed(part: Any, path: list[str]) -> Any:
        if part is None or isinstance(part, str):
            return None
        if not path:
            return part * times + plus
        if path[0] == "*":
            return tuple(changed(x, path[1:]) for x in part)
        return part.replaced(**{path[0]: changed(getattr(part, path[0]), path[1:])})

    def change(i: Instance) -> Instance:
        for path in paths:
            i = changed(i, path.split("__"))
        return i

    return change


def more_switches(i: Instance) -> Instance:
    """Add a switch with two ports more than the first, at the price of its ports."""
    if i.network is None or not isinstance(first := i.network.switches[0], Switch):
        return i
    ports = first.ports + 2
    more = first.replaced(name="more", ports=ports, price_usd=first.price_usd * ports / first.ports)
    return i.replaced(network__switches=(*i.network.switches, more))


def reordered(i: Instance) -> Instance:
    """List nodes, areas, lines and switches in the other order."""
    if i.network is not None:
        i = i.replaced(network__switches=tuple(reversed(i.network.switches)))
    if i.grid is not None:
        lists = ("nodes", "balancing_authorities", "lines", "new_lines")
        i = i.replaced(**{f"grid__{name}": tuple(reversed(getattr(i.grid, name))) for name in lists})
    return i


def renamed(i: Instance) -> Instance:
    """Give the nodes of a grid each other's names, the first the last's: only the order of names differs."""
    if i.grid is None:
        return i
    g = i.grid
    names = dict(zip(sorted(n.id for n in g.nodes), sorted((n.id for n in g.nodes), reverse=True), strict=True))

    def ends(lines: Any) -> Any:
        return tuple(x.replaced(a=names[x.a], b=names[x.b]) for x in lines)

    nodes = tuple(n.replaced(id=names[n.id]) for n in g.nodes)
    return i.replaced(grid__nodes=nodes, grid__lines=ends(g.lines), grid__new_lines=ends(g.new_lines))


GRID_POWER = (
    "grid__balancing_authorities__*__headroom_mw", "grid__nodes__*__generation_mw", "grid__nodes__*__interconnect_mw",
)  # fmt: skip
SITE_PRICES = ("grid__prices__building_usd_per_it_mw", "grid__prices__site_usd", "grid__new_lines__*__capex_usd")
HELPS: dict[str, Change] = {
    "budget": at("limits__budget_usd", times=MORE),
    "power": at("limits__facility_power_mw", *GRID_POWER, times=MORE),
    "sites": at("grid__rules__max_sites", plus=1),
    "fibre": at("wan__max_fibre_pairs", plus=1),
    "switches": more_switches,
    "racks": lambda i: at("hardware__racks", plus=2)(i) if i.limits.budget_usd is None else i,
    "batch": lambda i: at("limits__max_batch_tokens", plus=i.workload.sequence_length)(i),
}
HARMS: dict[str, Change] = {
    "racks": at("hardware__rack__price_usd", times=DEARER),
    "fabric": at("network__switches__*__price_usd", "network__optics__price_usd", times=DEARER),
    "sites": at(*SITE_PRICES, times=DEARER),
    "fibre": at("wan__fibre_usd_per_route_km", "wan__wavelength_usd", times=DEARER),
    "NICs": at("hardware__accelerator__nic_bytes_per_second", times=1 / DEARER),
}
SAME: dict[str, Change] = {"order": reordered, "names": renamed}


def own_choices(found: JointSolution) -> dict[str, Any]:
    """Return the choices of a plan as pins."""
    plan = found.plan
    assert plan is not None
    own = ((name, x) for name, x in layout_values(strategy_of(plan)).items() if x not in (None, ()))
    pins: dict[str, Any] = {f"layout.{name}": [*x] if isinstance(x, tuple) else x for name, x in own}
    pins |= {f"placement.blocks.{x}": n for x, n in plan.blocks_by_site.items()}
    if len({t.stripes for t in plan.templates.values()}) == 1:
        pins["placement.stripes"] = next(iter(plan.templates.values())).stripes
    if len(plan.blocks_by_site) > 1:
        pins["wan.wavelengths"] = plan.wavelengths
    return pins


def other_values(name: str, value: Any) -> list[Any]:
    """List values of a choice near one: half, one less, one more, double; and 1. Of layers by stage those of two."""
    if isinstance(value, bool):
        return [not value]
    if name == "layout.schedule":
        return [x for x in get_args(Schedule) if x != value]
    if isinstance(value, list):
        n = sum(value)
        return [] if "recomputed" in name else [x for x in ([n], [1, n - 1], [n - 1, 1]) if x != value]
    if name == "layout.recompute":
        return [x for x in ("none", "selective", "full") if x != value]
    near = {1, value // 2, value - 1, value + 1, value * 2} - {value}
    if name == "layout.zero_stage":
        return sorted(x for x in {0, 1, 2, 3} - {value})
    return sorted(x for x in near if x >= 1)
