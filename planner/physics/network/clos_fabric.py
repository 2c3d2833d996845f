"""Counts and cables of a multi-plane, rail-optimised Clos fabric of up to four tiers wired with equal bundles.

Endpoints: the GPUs of a rack are `rails` sets of `rail_gpus`, and set g of the D racks of a leaf domain meets at one
leaf, so a domain has `rails` leaves: one GPU to a set is rail-optimised, all GPUs of a rack in one set are rack leaves.
Several networks may be separate: `apart` of them take GPUs of different index (rail-only), `lanes` of
them a part each of every NIC. A pod joins x rails of y domains under s = u1/b1 spines, b1 links from each leaf to each
of them. Each of the s groups of spines (one of every pod) has c = u2/b2 cores, b2 links from each spine to each core of
its group. Of three tiers `core_boxes` of a network may take all these core positions in turn, each with the ports of
several: pods meet in a box by any position that it has. Where cores have uplinks, they join the pods of a zone only,
some rails of some domains again; every zone has cores of its own, one for each position or `core_boxes` that take
equally many, so that no uplink has more below it than another. Each core of a zone has e = u3/b3 positions above, b3
links from that core of each zone to each of them: a super-spine each, or `super_spine_boxes` of a network take all of
them in turn.

Ports and bundles are those of one switch. A leaf's port may be split into `split` slower ones, each for a GPU:
`leaf_down` and `leaf_spare` count these; a link between switches takes a whole port and runs at its rate. A tier may
have switches of more or fewer ports than a leaf, at the same rate and in as many planes. Counts are of switches and
cables of all networks, but for domains and pods, which every network has alike: a switch holds one chip of every plane
and a cable carries every plane. A WAN gateway, of the leaf's model, takes `wan_ports` of the wide area in every network
and sends as many links on to free ports of the top tier, to one switch after another. Its switches belong to no tier.

Switches are numbered within their tier, network after network: leaf domain·rails + rail, spine pod·s + position, core
zone·(cores of a zone) + place in the zone, super-spine network·(super-spines of a network) + place there. Boxes take
the positions of their tier in turn, each with ports of its own. The ports of a switch are numbered from 0, those
towards the GPUs first, by part of a port where a leaf's are split. A GPU is rack·(GPUs of a rack) + its index, its NIC
has a port for each lane.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from planner.physics.network.cable_lengths import Metres, Places

TIERS = ("leaf", "spine", "core", "super-spine")  # of switches, from the GPUs up
BLOCKS = ("leaf", "pod", "zone")  # whose links out flows share
Ints = NDArray[np.int64]
CableRun = tuple[Metres, Ints | int]  # lengths, and how many cables there are of each
Ends = tuple[Ints, Ints, Ints, Ints]  # low switch, its port, high switch, its port


@dataclass(frozen=True, slots=True)
class Stage:
    """The cables between two tiers of a Clos fabric or a dragonfly: how many, and the ends of any by number."""

    low: str
    high: str
    count: int
    ends: Callable[[Ints], Ends]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The design of a Clos fabric: the choices that fix every count of one site's; zero where a tier is not there."""

    grouped: ClassVar[bool] = False  # pods are groups of which every two are joined, and no core joins them
    tier_names: ClassVar[tuple[str, ...]] = TIERS  # of which a tree may have the first only

    ports: int
    rails: int
    racks: int
    leaf_down: int
    leaf_up: int = 0
    leaf_bundle: int = 0
    rails_per_pod: int = 0
    domains_per_pod: int = 0
    spine_up: int = 0
    spine_bundle: int = 0
    rail_gpus: int = 1
    apart: int = 1
    lanes: int = 1
    leaf_spare: int = 0
    split: int = 1
    nic_gbps: float = 1.0  # of a GPU's link to its leaf: the rate of its NIC, or of one lane of it
    link_gbps: float = 1.0  # of a link between switches: the rate of a whole port
    wan_ports: int = 0
    rails_per_zone: int = 0
    domains_per_zone: int = 0
    core_up: int = 0
    core_bundle: int = 0
    core_boxes: int = 0  # of a network, or of a zone, which its core positions share; 0: a box for each position
    super_spine_boxes: int = 0  # of a network, which the positions above its cores share; 0: a box for each
    group_links: int = 0  # between two groups of a dragonfly
    valiant: bool = False  # whether its flows go by way of a random group
    spine_ports: int = 0  # of a spine, and below of a core and a super-spine: 0 where it is the leaf's model
    core_ports: int = 0
    super_spine_ports: int = 0

    @classmethod
    def of(cls, **choices: Any) -> Self:
        """Return a Clos fabric's design of some choices, with the values that follow from them."""
        return cls(**choices)

    @property
    def networks(self) -> int:
        """Count the networks of a Clos fabric side by side."""
        return self.apart * self.lanes

    @property
    def gpus_per_rack(self) -> int:
        """Count the cabled GPUs of a rack in a Clos fabric."""
        return self.rails * self.rail_gpus * self.apart

    @property
    def link_nics(self) -> float:
        """Return how many NICs, or lanes of them, at full rate a link between switches of a Clos fabric carries."""
        return self.link_gbps / self.nic_gbps

    @property
    def single(self) -> bool:
        """Return whether one switch of each network holds every endpoint of a Clos fabric: that is no dragonfly."""
        return self.leaf_up == 0 and not self.grouped

    @property
    def domain_racks(self) -> int:
        """Count the racks of a leaf domain of a Clos fabric; a single switch takes all."""
        return self.racks if self.single else self.leaf_down // self.rail_gpus

    @property
    def block_racks(self) -> tuple[int, ...]:
        """Count the racks of a leaf domain, a pod and, where there are any, a zone of a Clos fabric."""
        domains = 1, max(1, self.domains_per_pod), self.domains_per_zone
        return tuple(self.domain_racks * count for count in domains if count)

    @property
    def tiers(self) -> int:
        """Count the tiers of switches of a Clos fabric."""
        if self.grouped:
            return len(self.tier_names)
        return 1 if self.single else 2 if self.spine_up == 0 else 3 if self.core_up == 0 else 4

    @property
    def domains(self) -> int:
        """Count the leaf domains of a Clos fabric, the last perhaps part full; one tier is one switch for all."""
        return 1 if self.single else math.ceil(self.racks / self.domain_racks)

    @property
    def endpoint_links(self) -> int:
        """Count a Clos fabric's cables between GPUs and leaves."""
        return self.racks * self.gpus_per_rack * self.lanes

    @property
    def leaves(self) -> int:
        """Count the leaf switches of a Clos fabric."""
        return self.networks * (1 if self.single else self.domains * self.rails)

    @property
    def pods_across(self) -> int:
        """Count the pods of a Clos fabric side by side that take the rails of one set of leaf domains."""
        return math.ceil(self.rails / self.rails_per_pod)

    @property
    def pods(self) -> int:
        """Count the pods of a network of a Clos fabric; 0 without a second tier."""
        return 0 if self.single else self.pods_across * math.ceil(self.domains / self.domains_per_pod)

    @property
    def spines_per_pod(self) -> int:
        """Count the spines that each leaf of a pod of a Clos fabric reaches."""
        return 0 if self.tiers < 2 else self.leaf_up // self.leaf_bundle

    @property
    def spine_down(self) -> int:
        """Count the ports of a spine towards the leaves of a full pod of a Clos fabric."""
        return self.rails_per_pod * self.domains_per_pod * self.leaf_bundle

    @property
    def spines(self) -> int:
        """Count the spine switches of a Clos fabric."""
        return self.networks * self.pods * self.spines_per_pod

    @property
    def cores(self) -> int:
        """Count the core switches of a Clos fabric: those that core positions share, or one for each position."""
        return 0 if self.tiers < 3 else self.networks * max(1, self.zones) * self.zone_cores

    @property
    def zone_cores(self) -> int:
        """Count the cores of a zone of a Clos fabric, of three tiers those of a network."""
        return self.core_boxes or self.core_positions

    @property
    def core_positions(self) -> int:
        """Count the places for a core that a pod of a Clos fabric reaches: one for each bundle up from its spines."""
        return self.spines_per_pod * (self.spine_up // self.spine_bundle)

    @property
    def positions_per_core(self) -> int:
        """Count the core positions of a Clos fabric's core that has most of them."""
        return math.ceil(self.core_positions / self.core_boxes) if self.core_boxes else 1

    @property
    def zones_across(self) -> int:
        """Count the zones of a Clos fabric side by side that take the rails of one set of leaf domains."""
        return math.ceil(self.rails / self.rails_per_zone)

    @property
    def zones(self) -> int:
        """Count the zones of a network of a Clos fabric; 0 without super-spines."""
        return 0 if self.tiers < 4 else self.zones_across * math.ceil(self.domains / self.domains_per_zone)

    @property
    def core_pods(self) -> int:
        """Count the pods that a core of a Clos fabric keeps ports for: those of a full zone, or all without zones."""
        if self.tiers < 4:
            return self.pods
        return self.rails_per_zone // self.rails_per_pod * (self.domains_per_zone // self.domains_per_pod)

    @property
    def core_down(self) -> int:
        """Count the ports of a core of a Clos fabric towards spines."""
        return self.positions_per_core * self.core_pods * self.spine_bundle

    @property
    def super_spine_down(self) -> int:
        """Count the ports of a super-spine of a Clos fabric towards cores."""
        return self.positions_per_super_spine * self.zones * self.core_bundle

    @property
    def super_spine_positions(self) -> int:
        """Count the super-spine places that a zone of a Clos fabric reaches: one for each bundle up from its cores."""
        return 0 if self.tiers < 4 else self.zone_cores * (self.core_up // self.core_bundle)

    @property
    def positions_per_super_spine(self) -> int:
        """Count the positions above cores of a Clos fabric's super-spine that has most of them."""
        return math.ceil(self.super_spine_positions / self.super_spine_boxes) if self.super_spine_boxes else 1

    @property
    def super_spines(self) -> int:
        """Count the super-spines of a Clos fabric: those that positions above cores share, or one for each."""
        return self.networks * (self.super_spine_boxes or self.super_spine_positions)

    @property
    def tier_switches(self) -> dict[str, int]:
        """Count the switches of each tier that a Clos fabric can have, leaves first."""
        return dict(zip(TIERS, (self.leaves, self.spines, self.cores, self.super_spines), strict=True))

    @property
    def tier_ports(self) -> dict[str, int]:
        """Count the ports of a switch of each tier that a Clos fabric can have, leaves first."""
        above = self.spine_ports, self.core_ports, self.super_spine_ports
        return dict(zip(TIERS, (self.ports, *(ports or self.ports for ports in above)), strict=True))

    @property
    def switches(self) -> int:
        """Count all switches of a Clos fabric."""
        return sum(self.tier_switches.values())

    @property
    def switch_links(self) -> int:
        """Count a Clos fabric's cables between switches."""
        return sum(stage.count for stage in self.stages())

    @property
    def switch_pairs(self) -> int:
        """Count a Clos fabric's pairs of switches that a bundle joins; a dragonfly's links between groups singly."""
        pairs = self.leaves * self.spines_per_pod
        if self.tiers > 2:
            cores = self.spine_up // self.spine_bundle
            pairs += self.spines * min(cores, self.core_boxes or cores)
        if self.tiers > 3:
            above = self.core_up // self.core_bundle
            pairs += self.cores * min(above, self.super_spine_boxes or above)
        return pairs

    @property
    def leaf_down_used(self) -> int:
        """Count the whole ports of a leaf that GPUs take in a Clos fabric."""
        return math.ceil(self.leaf_down / self.split)

    @property
    def up_port_range(self) -> tuple[int, int]:
        """Count the ports towards switches of a Clos fabric's leaf with the fewest, and of that with the most."""
        return self.leaf_up, self.leaf_up

    @property
    def pod_uplinks(self) -> int:
        """Count the links that leave a pod of a Clos fabric; 0 where nothing joins pods."""
        return self.spines_per_pod * self.spine_up

    @property
    def zone_uplinks(self) -> int:
        """Count the links that leave a zone of a Clos fabric; 0 where nothing joins zones."""
        return 0 if self.tiers < 4 else self.zone_cores * self.core_up

    @property
    def exits(self) -> dict[str, float]:
        """Return a Clos fabric's links assured to traffic out of a leaf, pod and zone, for those with links out."""
        links = self.leaf_up, self.pod_uplinks, self.zone_uplinks
        return dict(zip(BLOCKS[: self.tiers - 1], links, strict=False))

    @property
    def oversubscription(self) -> dict[str, float]:
        """Return the oversubscription of a Clos fabric's leaf, spine and core: rate down over up of links assured."""
        # That of a leaf times that of a spine is the rate of a full pod's or group's endpoints over that of its links.
        exits, leaves = self.exits, self.rails_per_pod * self.domains_per_pod
        leaf = 1.0 if self.single else self.leaf_down / (exits["leaf"] * self.link_nics)
        spine = leaves * exits["leaf"] / exits["pod"] if "pod" in exits else 1.0
        core = 1.0 if self.tiers < 4 else self.core_down / self.core_up
        return {"leaf": leaf, "spine": spine, "core": core}

    @property
    def exit_shares(self) -> list[tuple[int, float]]:
        """Return (endpoints, share of rate that can leave) of a Clos fabric's full leaf, pod and zone, if not alone."""
        shares = [] if self.single else [(self.leaf_down, min(self.up_port_range) * self.link_nics / self.leaf_down)]
        for blocks, leaves, links in (
            (self.pods, self.rails_per_pod * self.domains_per_pod, self.pod_uplinks),
            (self.zones, self.rails_per_zone * self.domains_per_zone, self.zone_uplinks),
        ):
            if blocks > 1:
                endpoints = self.leaf_down * leaves
                shares.append((endpoints, links * self.link_nics / endpoints))
        return shares

    @property
    def bisection_share(self) -> float:
        """Return the share of endpoints' rate, at most 1, that can leave a Clos fabric's full leaf, pod and zone."""
        return min([1.0, *(share for _, share in self.exit_shares)])

    def racks_around(self, tier: str) -> int:
        """Count the racks amid which a Clos fabric has a tier's switch, or a GPU: those it, or its group, serves."""
        pod = self.domain_racks * self.domains_per_pod
        zone = self.domain_racks * self.domains_per_zone if self.tiers > 3 else self.racks
        leaf = pod if self.grouped and self.tiers == 1 else self.domain_racks
        return {"gpu": 1, "leaf": leaf, "spine": pod, "core": zone}.get(tier, self.racks)

    @property
    def wan_gateways(self) -> int:
        """Count a Clos fabric's WAN gateway switches: half of the ports of each may be towards the wide area."""
        return self.networks * math.ceil(self.wan_ports / max(1, self.ports // 2))

    @property
    def wan_gateway_links(self) -> int:
        """Count a Clos fabric's cables between the WAN gateway and the top tier."""
        return self.networks * self.wan_ports

    @property
    def top(self) -> tuple[str, int]:
        """Return the tier of a Clos fabric that the WAN gateway is joined to, and its switches in one network."""
        tier, switches = list(self.tier_switches.items())[self.tiers - 1]
        return tier, switches // self.networks

    @property
    def top_ports(self) -> tuple[int, int]:
        """Count ports taken, and links from the WAN gateway, of a Clos fabric's top switch with fewest ports free."""
        taken = math.ceil((self.endpoint_links // self.networks + self.leaf_spare) / self.split)
        if not self.single:
            taken = (self.spine_down, self.core_down, self.super_spine_down)[self.tiers - 2]
        return taken, math.ceil(self.wan_ports / self.top[1]) if self.wan_ports else 0

    def exchange_loads(self, gbps: float, *shares: float) -> dict[str, tuple[float, float]]:
        """Return for each level of a Clos fabric with uplinks how many the exchange of sites takes, and all of them.

        `gbps`: of the exchange. `shares`: of a stage's racks in one leaf domain, pod and zone, at most. Whole pods may
        make a zone of more rails than there are; only those that are send.
        """
        leaf_links = gbps / (self.networks * self.rails) / self.link_gbps  # of a leaf whose domain has a whole stage
        rails = 1, self.rails_per_pod, min(self.rails, self.rails_per_zone)
        some = zip(self.exits.items(), shares, rails, strict=False)
        return {block: (leaf_links * share * count, float(links)) for (block, links), share, count in some}

    def stages(self) -> list[Stage]:
        """Return the stages of cables above the leaves of a Clos fabric, those that have cables."""
        stages = [
            Stage("leaf", "spine", self.leaves * self.leaf_up, self.leaf_uplinks),
            Stage("spine", "core", self.spines * self.spine_up, self._spine_uplinks),
            Stage("core", "super-spine", self.cores * self.core_up, self._core_uplinks),
        ]
        return [stage for stage in stages if stage.count]

    def leaf_uplinks(self, link: Ints) -> Ends:
        """Return the ends of leaf uplinks of a Clos fabric: a bundle to every spine of the pod."""
        leaf, up = link // self.leaf_up, link % self.leaf_up
        network, own = leaf // (self.domains * self.rails), leaf % (self.domains * self.rails)
        domain, rail = own // self.rails, own % self.rails
        pod = network * self.pods + domain // self.domains_per_pod * self.pods_across + rail // self.rails_per_pod
        seat = domain % self.domains_per_pod * self.rails_per_pod + rail % self.rails_per_pod
        spine, port = pod * self.spines_per_pod + up // self.leaf_bundle, seat * self.leaf_bundle
        return leaf, self.leaf_down_used + up, spine, port + up % self.leaf_bundle

    def _spine_uplinks(self, link: Ints) -> Ends:
        """Return the ends of a Clos fabric's spine uplinks: a bundle from spine i of each pod to cores of group i."""
        spine, up = link // self.spine_up, link % self.spine_up
        pod, group = spine // self.spines_per_pod, spine % self.spines_per_pod
        zone, seat = pod // self.pods, pod % self.pods  # without zones a network is one
        if self.tiers > 3:
            row, column = seat // self.pods_across, seat % self.pods_across
            rows, columns = self.domains_per_zone // self.domains_per_pod, self.rails_per_zone // self.rails_per_pod
            zone = zone * self.zones + row // rows * self.zones_across + column // columns
            seat = row % rows * columns + column % columns
        position, boxes = group * (self.spine_up // self.spine_bundle) + up // self.spine_bundle, self.zone_cores
        port = (position // boxes * self.core_pods + seat) * self.spine_bundle + up % self.spine_bundle
        return spine, self.spine_down + up, zone * boxes + position % boxes, port

    def _core_uplinks(self, link: Ints) -> Ends:
        """Return the ends of a Clos fabric's core uplinks: bundles from core i of each zone to positions above it."""
        core, up = link // self.core_up, link % self.core_up
        zone, own = core // self.zone_cores, core % self.zone_cores
        network, zone, boxes = zone // self.zones, zone % self.zones, self.super_spines // self.networks
        position = own * (self.core_up // self.core_bundle) + up // self.core_bundle
        port = (position // boxes * self.zones + zone) * self.core_bundle + up % self.core_bundle
        return core, self.core_down + up, network * boxes + position % boxes, port

    def wan_ends(self, network: Ints, number: Ints) -> tuple[Ints, Ints]:
        """Return a Clos fabric's top-tier switch and port at which numbered links of a network's WAN gateway end."""
        (_, tops), (taken, _) = self.top, self.top_ports
        return network * tops + number % tops, taken + number // tops

    def runs(self, places: Places) -> Iterator[CableRun]:
        """Yield a Clos fabric's cables between tiers by length, GPUs' first; a switch is amid the racks it serves."""
        yield places.to_middle(1, self.racks_around("leaf"), spread=False), self.endpoint_links // self.racks
        for stage in self.stages():
            if stage.low != stage.high:
                metres = places.to_middle(self.racks_around(stage.low), self.racks_around(stage.high))
                yield metres, stage.count // len(metres)

    def wan_runs(self, places: Places) -> Iterator[CableRun]:
        """Yield the cables by length between the WAN gateway and a Clos fabric's top tier, both amid the site."""
        yield places.adjacent_metres(), self.wan_gateway_links

    def _wan_gateway_faults(self) -> list[str]:
        if self.wan_ports and self.ports < 2:
            return [f"WAN gateway ports: 1 to the wide area + 1 up > {self.ports} ports"]
        (taken, links), ports = self.top_ports, self.tier_ports[self.top[0]]
        text = f"{self.top[0]} ports: {taken} taken + {links} of the WAN gateway > {ports} ports"
        return [text] * (self.wan_ports > 0 and taken + links > ports)

    def faults(self) -> list[str]:
        """Return why a Clos fabric cannot be wired: ports or bundles that do not add up, GPUs out of reach."""
        if self.single:
            ends = self.endpoint_links // self.networks
            over = ends + self.leaf_spare > self.ports * self.split
            return [f"leaf ports: {ends} endpoints{self._leaf_edge}"] * over or self._wan_gateway_faults()
        bad = self._leaf_faults(self.leaf_up)
        if self.leaf_bundle < 1 or self.leaf_up % self.leaf_bundle:
            bad.append(f"leaf bundle: {self.leaf_up} uplinks are not whole bundles of {self.leaf_bundle}")
        if bad:
            return bad
        ports = self.tier_ports
        if self.spine_down + self.spine_up > ports["spine"]:
            bad.append(f"spine ports: {self.spine_down} down + {self.spine_up} up > {ports['spine']} ports")
        if self.tiers > 2:
            if self.spine_bundle < 1 or self.spine_up % self.spine_bundle:
                bad.append(f"spine bundle: {self.spine_up} uplinks are not whole bundles of {self.spine_bundle}")
            elif not 0 <= self.core_boxes <= self.core_positions:
                bad.append(f"core boxes: {self.core_boxes} for {self.core_positions} positions")
            elif self.tiers == 4:
                bad += self._zone_faults()
            elif self.core_down > ports["core"]:
                shared = f"{self.positions_per_core} positions of " * (self.core_boxes > 0)
                bad.append(f"core ports: {shared}{self.pods} pods x {self.spine_bundle} links > {ports['core']} ports")
        for name, boxes, least in ("core", self.core_boxes, 3), ("super-spine", self.super_spine_boxes, 4):
            if boxes and self.tiers < least:
                bad.append(f"{name} boxes: shared in {self.tiers} tiers; at least {least} expected")
        bad = bad or self._wan_gateway_faults()
        if not bad and self.pods > 1 and self.tiers == 2:
            bad.append(f"reach: {self.pods} pods and no core to join them")
        return bad

    def _zone_faults(self) -> list[str]:
        sizes = (self.rails_per_zone, self.rails_per_pod), (self.domains_per_zone, self.domains_per_pod)
        if any(zone < 1 or zone % pod for zone, pod in sizes) or self.rails_per_zone - self.rails >= self.rails_per_pod:
            zone, pod = (f"{rails} rails and {domains} domains" for rails, domains in zip(*sizes, strict=True))
            return [f"zone: {zone} are not whole pods of {pod}, rails within {self.rails}"]
        core, top = self.tier_ports["core"], self.tier_ports["super-spine"]
        several = f"{self.positions_per_core} positions of " * (self.core_boxes > 0)
        down = f"{several}{self.core_pods} pods x {self.spine_bundle} links"
        bad = [f"core ports: {down} + {self.core_up} up > {core} ports"] * (self.core_down + self.core_up > core)
        if self.core_boxes and self.core_positions % self.core_boxes:
            bad.append(f"core boxes: {self.core_boxes} for {self.core_positions} positions; equally many expected")
        if self.core_bundle < 1 or self.core_up % self.core_bundle:
            return [*bad, f"core bundle: {self.core_up} uplinks are not whole bundles of {self.core_bundle}"]
        boxes, positions = self.super_spine_boxes, self.super_spine_positions
        if not 0 <= boxes <= positions:
            bad.append(f"super-spine boxes: {boxes} for {positions} positions")
        elif self.super_spine_down > top:
            several = f"{self.positions_per_super_spine} positions of " * (boxes > 0)
            bad.append(f"super-spine ports: {several}{self.zones} zones x {self.core_bundle} links > {top} ports")
        return bad

    @property
    def _leaf_edge(self) -> str:
        each = f", each for {self.split} GPUs or a link up" if self.split > 1 else ""
        return (f" + {self.leaf_spare} spare" if self.leaf_spare else "") + f" > {self.ports} ports{each}"

    def _leaf_faults(self, up: int) -> list[str]:
        bad = []
        if self.leaf_down + up * self.split + self.leaf_spare > self.ports * self.split:
            bad.append(f"leaf ports: {self.leaf_down} down + {up} up{self._leaf_edge}")
        if self.leaf_down % self.rail_gpus:
            bad.append(f"leaf domain: {self.leaf_down} ports are not whole racks of {self.rail_gpus} GPUs")
        if not 1 <= self.rails_per_pod <= self.rails or self.domains_per_pod < 1:
            bad.append(f"pod: {self.rails_per_pod} rails of {self.rails}, {self.domains_per_pod} domains")
        return bad
