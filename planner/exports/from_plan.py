"""The fabric of one site as built: its design, and the names of its racks and boxes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cluster.hostlist import PREFIX, width
from planner.errors import InputError
from planner.instance.catalogue import catalogue
from planner.instance.network import Floor, Medium
from planner.physics.network.cabling import WAN_GATEWAY, Cables, lay, lengths, switch_counts
from planner.physics.network.links import Ints, Metres, media_of
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.fabric import SiteFabric
from planner.plan.plan import Plan


@dataclass(frozen=True)
class Built:
    """One site's fabric, its design, and the floor and media that its cables are measured by."""

    site: str
    fabric: SiteFabric
    design: Design
    floor: Floor
    media: tuple[Medium, ...]
    usd_per_watt: float

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Names of all boxes by tier, in their order, and of all racks."""
        d = self.design
        positions = max(1, d.spines_per_pod)
        second = {
            "leaf": 1 if d.single else d.rails,
            "spine": positions,
            "core": d.cores // positions,
            WAN_GATEWAY: d.wan_gateways // d.networks,
        }
        if d.zones:
            second |= {"core": d.core_positions, "super-spine": d.core_up // d.core_bundle}
        found = {tier: _pairs(tier, n // second[tier], second[tier]) for tier, n in switch_counts(d).items()}
        return found | {"rack": [f"{PREFIX}{i:0{width(d.racks)}d}" for i in range(d.racks)]}

    def gpu_name(self, gpu: int) -> str:
        """Return the name of a GPU: its rack's and its index there."""
        d = self.design
        return f"{self.names['rack'][gpu // d.gpus_per_rack]}-gpu{gpu % d.gpus_per_rack:0{width(d.gpus_per_rack)}d}"

    def measured(self) -> Iterator[tuple[Cables, Metres]]:
        """Yield every cable with its length."""
        measure = lengths(self.design, self.floor)
        for c in lay(self.design):
            yield c, measure(c)

    def domain_of(self, tier: str, box: Ints) -> Ints:
        """Return the leaf domain of GPUs and leaves."""
        d = self.design
        if d.single:
            return np.zeros_like(box)
        if tier == "gpu":
            return box // d.gpus_per_rack // d.domain_racks
        return box % (d.domains * d.rails) // d.rails

    def pod_of(self, tier: str, box: Ints) -> Ints:
        """Return the pod of leaves and spines, counted over all networks; 0 for what is in none."""
        d = self.design
        if d.single or tier not in ("leaf", "spine"):
            return np.zeros_like(box)
        if tier == "spine":
            return box // d.spines_per_pod
        network, own = box // (d.domains * d.rails), box % (d.domains * d.rails)
        return (
            network * d.pods + own // d.rails // d.domains_per_pod * d.pods_across + own % d.rails // d.rails_per_pod
        )

    def zone_of(self, core: Ints) -> Ints:
        """Return the zone of cores, counted over all networks; 0 where there are none."""
        return core // self.design.core_positions if self.design.zones else np.zeros_like(core)


def _pairs(word: str, first: int, second: int) -> list[str]:
    """Return word-i-j for all i and j, numbers padded to one width."""
    a, b = width(first), width(second)
    return [f"{word}-{i:0{a}d}-{j:0{b}d}" for i in range(first) for j in range(second)]


def built(plan: Plan, site: str | None) -> Built:
    """Return the fabric of a site of a plan, of the only one where none is named.

    Raises
    ------
    InputError
        If the plan holds no such fabric, or one that cannot be wired.
    """
    held = plan.fabric.sites if plan.fabric else {}
    if not held:
        raise InputError("fabric: the plan holds none; plan an instance with a network")
    if site is None and len(held) > 1:
        raise InputError(
            f"--site: must be one of {', '.join(sorted(held))}; the plan has {len(held)} sites, export them one by one"
        )
    name = site or next(iter(held))
    if name not in held:
        raise InputError(f"--site: must be one of {', '.join(sorted(held))} (is {name!r})")
    wired = PlanPhysics(plan=plan).wired
    if name not in wired or plan.instance.network is None:
        raise InputError(
            f"fabric.sites.{name}: cannot be wired as it stands; see what `planner check` says of the plan"
        )
    network = plan.instance.network
    usual = tuple(Medium.model_validate(m) for m in catalogue("media").values())
    floor, media = network.floor or Floor(), media_of(network) or usual
    return Built(name, held[name], wired[name], floor, media, network.power_usd_per_watt)
