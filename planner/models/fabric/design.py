"""The fabric chosen for a site: its design, its price, and which rules bind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.instance.network import Switch
from planner.models.fabric import four_tier_groups
from planner.models.fabric.columns import core_bundle
from planner.models.fabric.data import Mode, Problem
from planner.physics.network.dragonfly import Dragonfly, dragonfly
from planner.physics.network.families import FAMILIES, ROUTER_GROUPS
from planner.physics.network.price import bill
from planner.physics.network.topology import Design


@dataclass(frozen=True, slots=True)
class FabricDesign:
    """The fabric chosen for a site, and how much of the space each argument excluded."""

    mode: Mode
    design: Design
    cost_usd: float
    power_mw: float
    unavoidable_splits: int
    binding: tuple[str, ...] = ()
    space: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def switch(self) -> Switch:
        """The switch that it is built of."""
        return self.mode.switch


def fabric_design(p: Problem, v: dict[str, int], space: Mapping[str, int]) -> FabricDesign:
    """Return the design that a solution stands for, with the largest spine bundle that its core allows."""
    mode = p.modes[v["mode"]]
    d = _design(p, mode, v)
    price = bill(p.network, mode.switch, d)
    return FabricDesign(
        mode=mode,
        design=d,
        cost_usd=price.usd,
        power_mw=price.mw,
        unavoidable_splits=v["splits"],
        binding=tuple(_binding(d, v)),
        space=space,
        declared=declared(p),
    )


def _design(p: Problem, mode: Mode, v: dict[str, int]) -> Design:
    """Return the design of a row of the tables and the spine's uplinks."""
    wiring = FAMILIES[mode.family].wiring
    own = {"ports": mode.switch.ports, "racks": p.request.racks, "leaf_down": v["down_ports"]}
    own |= {"rails": mode.rails, "rail_gpus": mode.rail_gpus, "apart": mode.apart}
    own |= {"lanes": mode.lanes, "split": mode.split, "leaf_spare": mode.spare(p.network, v["down_ports"])}
    own |= {"rails_per_pod": v["rails"], "domains_per_pod": v["domains_per_pod"], "wan_ports": v["wan_ports"]}
    leaf = {"leaf_up": v["leaf_up"], "leaf_bundle": v["leaf_bundle"]}
    own |= {"leaf_bundle": v["router_bundle"]} if wiring is ROUTER_GROUPS else leaf
    if issubclass(wiring.design, Dragonfly):
        valiant = p.network.group_routing == "valiant"
        return dragonfly(wiring.design, **own, group_links=v["group_links"], valiant=valiant)
    if v["tiers"] == 4:
        own |= {"rails_per_zone": v["rails_per_zone"], "domains_per_zone": v["domains_per_zone"]}
        own |= four_tier_groups.group_design(four_tier_groups.group_request(p, v), v["spine_up"])
    elif v["tiers"] == 3:
        own["spine_bundle"] = int(core_bundle(p, v, np.array([v["spine_up"]]))[0])
    return Design(**own, spine_up=v["spine_up"])


def declared(p: Problem) -> dict[str, str]:
    """Return over which values the decisions range; pins narrow them."""
    ports = max(m.switch.ports for m in p.modes)
    zoned = p.network.max_tiers > 3
    zones = {"zones": "1..all, each of some rails of some leaf domains in whole pods"} if zoned else {}
    return {
        "modes": ", ".join(_mode_name(m) for m in p.modes),
        "tiers": f"1..{p.network.max_tiers}",
        "ports_of_each_kind": f"1..{ports - 1}, every bundle that divides them, unused ports allowed",
        "rails_per_pod": f"1..{max(m.rails for m in p.modes)}",
        "leaf_domains_per_pod": "1..all",
        **zones,
        "pins": ", ".join(f"{name}={value}" for name, value in sorted(p.pins.items())) or "none",
    }


def _binding(d: Design, v: dict[str, int]) -> Iterator[str]:
    """Yield the rules that one port fewer would break, or that leave no port over."""
    if d.wan_ports and d.top_taken + d.top_wan_links == d.ports:
        yield "wan_gateway_ports"
    if d.single:
        return
    if isinstance(d, Dragonfly):
        yield from _group_binding(d)
        return
    if d.leaf_up == v["min_up"]:
        yield "leaf_uplink_bandwidth"
    if d.leaf_ports_used == d.ports:
        yield "leaf_ports"
    if d.spine_down + d.spine_up == d.ports:
        yield "spine_ports"
    if d.tiers > 2 and d.spines_per_pod * (d.spine_up - 1) < v["need_up"]:
        yield "pod_uplink_bandwidth"
    if d.tiers > 2 and d.core_down + d.core_up == d.ports:
        yield "core_ports"
    if d.zones and d.core_positions * (d.core_up - 1) < v["need_zone"]:
        yield "zone_uplink_bandwidth"
    if d.zones and d.super_spine_down == d.ports:
        yield "super_spine_ports"


def _group_binding(d: Dragonfly) -> Iterator[str]:
    """Yield the rules of a dragonfly that leave no port over, and the traffic between groups that needs links."""
    if d.leaf_ports_used == d.ports:
        yield "leaf_ports"
    if d.spines and d.spine_down + d.global_ports == d.ports:
        yield "spine_ports"
    if d.group_links > 1:
        yield "pod_uplink_bandwidth"


def _mode_name(m: Mode) -> str:
    """Return a mode as the plan names it."""
    split = f", ports split in {m.split}" if m.split > 1 else ""
    return f"{m.switch.name} ({m.switch.ports} ports, {m.planes} planes, {m.family}{split})"
