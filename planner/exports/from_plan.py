"""The fabric of one site as built: its design, and the names of its racks and switches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cluster.hostlist import PREFIX, width
from planner.errors import InputError
from planner.instance.network import Floor, Medium, Network, Switch
from planner.physics.network.cabling import WAN_GATEWAY, Cables, lay, lengths, switch_counts
from planner.physics.network.links import Ints, Metres, media_of
from planner.physics.network.price import by_reach, models_of
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.fabric import SiteFabric
from planner.plan.plan import Plan


@dataclass(frozen=True)
class BuiltFabric:
    """One site's fabric, its design and switch, the network that prices it, and the floor that gives cables a length.

    `above` are the models of the tiers above the leaves. `media` are those of the instance where it gives a floor too;
    else every link is the instance's one of its kind.
    """

    site: str
    fabric: SiteFabric
    design: Design
    network: Network
    switch: Switch
    floor: Floor
    above: tuple[Switch, ...] = ()

    @property
    def models(self) -> dict[str, Switch]:
        """The model of each tier, and of the WAN gateway."""
        return models_of(self.switch, self.above) | {WAN_GATEWAY: self.switch}

    @property
    def media(self) -> tuple[Medium, ...]:
        """Media that cables are chosen from by their length; none where links have one price of their kind."""
        return media_of(self.network) if by_reach(self.network) else ()

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Names of all switches by tier, in their order, and of all racks."""
        d = self.design
        spines = max(1, d.spines_per_pod)
        second = {"leaf": 1 if d.single else d.rails, "spine": spines, "core": d.cores // spines}
        second |= {"core": d.zone_cores} if d.core_boxes or d.zones else {}
        second[WAN_GATEWAY] = d.wan_gateways // d.networks
        if d.zones:
            second |= {"super-spine": d.super_spine_boxes or d.core_up // d.core_bundle}
        names = {tier: _pairs(tier, n // second[tier], second[tier]) for tier, n in switch_counts(d).items()}
        return names | {"rack": [f"{PREFIX}{i:0{width(d.racks)}d}" for i in range(d.racks)]}

    def gpu_name(self, gpu: int) -> str:
        """Return the name of a GPU: its rack's and its index there."""
        d = self.design
        return f"{self.names['rack'][gpu // d.gpus_per_rack]}-gpu{gpu % d.gpus_per_rack:0{width(d.gpus_per_rack)}d}"

    def measured(self) -> Iterator[tuple[Cables, Metres]]:
        """Yield every cable with its length."""
        measure = lengths(self.design, self.floor)
        for c in lay(self.design):
            yield c, measure(c)

    def domain_of(self, tier: str, index: Ints) -> Ints:
        """Return the leaf domain of GPUs and leaves."""
        d = self.design
        if d.single:
            return np.zeros_like(index)
        if tier == "gpu":
            return index // d.gpus_per_rack // d.domain_racks
        return index % (d.domains * d.rails) // d.rails

    def pod_of(self, tier: str, switch: Ints) -> Ints:
        """Return the pod of leaves and spines, counted over all networks; 0 for what is in none."""
        d = self.design
        if d.single or tier not in ("leaf", "spine"):
            return np.zeros_like(switch)
        if tier == "spine":
            return switch // d.spines_per_pod
        network, own = switch // (d.domains * d.rails), switch % (d.domains * d.rails)
        row, column = own // d.rails // d.domains_per_pod, own % d.rails // d.rails_per_pod
        return network * d.pods + row * d.pods_across + column

    def zone_of(self, core: Ints) -> Ints:
        """Return the zone of cores, counted over all networks; 0 where there are none."""
        return core // self.design.zone_cores if self.design.zones else np.zeros_like(core)


def _pairs(word: str, first: int, second: int) -> list[str]:
    """Return word-i-j for all i and j, numbers padded to one width."""
    a, b = width(first), width(second)
    return [f"{word}-{i:0{a}d}-{j:0{b}d}" for i in range(first) for j in range(second)]


def built_fabric(plan: Plan, site: str | None) -> BuiltFabric:
    """Return the fabric of a site of a plan, of the only one where none is named.

    Raises
    ------
    InputError
        If the plan has no such fabric, or one that cannot be wired.
    """
    fabrics = plan.fabric.sites if plan.fabric else {}
    known = ", ".join(sorted(fabrics))
    if not fabrics:
        raise InputError("fabric: the plan has none; plan an instance with a network")
    if site is None and len(fabrics) > 1:
        sites = f"the plan has {len(fabrics)} sites, export them one by one"
        raise InputError(f"--site: must be one of {known}; {sites}")
    name = site or next(iter(fabrics))
    if name not in fabrics:
        raise InputError(f"--site: must be one of {known} (is {name!r})")
    c = PlanPhysics(plan=plan)
    network = plan.instance.network
    if name not in c.wired or network is None:
        hint = "see what `planner check` says of the plan"
        raise InputError(f"fabric.sites.{name}: cannot be wired as it stands; {hint}")
    built = fabrics[name]
    leaf, above, floor = c.switches[built.switch], c.above(built), network.floor or Floor()
    return BuiltFabric(name, built, c.wired[name], network, leaf, floor, above)
