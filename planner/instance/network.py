"""Types of an instance's network, from whose parts a site's fabric may be built, and of its wide area."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.instance.base_types import Count, Fraction, Frozen, NonNegative, Positive, Sourced
from planner.instance.catalogue_entries import Named

MAX_TIERS = 4
# Limits on every fabric, each with its value that limits nothing.
NETWORK_LIMITS: dict[str, Any] = {"max_oversubscription": None, "survives": None, "max_tiers": MAX_TIERS}
PartRate = Annotated[
    Positive | None,
    Field(
        description="Rate in Gb/s, which ports of switches without a link_factor must have; absent: as a name begins "
        "(400G-), or any."
    ),
]
LinkEnds = Annotated[int, Field(ge=0, le=2)]  # of a link, those with a transceiver
FabricFamily = Literal["rail", "rack", "rail-only", "dragonfly", "dragonfly+"]


class Switch(Sourced):
    """A switch box of an instance's network: `planes` chips behind `ports` front-panel ports, split over all chips."""

    name: str = Field(description="By which plans and pins name it.")
    ports: Count = Field(description="Front-panel ports; each chip has as many, at port_gbps / planes.")
    port_gbps: Positive = Field(description="Rate of one front-panel port, all planes together.")
    planes: Count = Field(1, description="Chips in the box; each belongs to a network of its own.")
    price_usd: NonNegative = Field(description="Of one box, in dollars, without transceivers.")
    power_watts: NonNegative = Field(description="Of one box, in watts, without transceivers.")
    link_factor: Positive = Field(
        1.0, description="Price and power of a link at this rate over the network's optics, cables and media."
    )
    breakout: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Most slower ports that a leaf's port towards GPUs can be split into."
    )
    breakout_link_factor: Positive = Field(
        1.0,
        description="Price and power of a link at a port split `breakout` ways over a whole one's; more if split less.",
    )


class Optics(Sourced):
    """The optics of an instance's network: a transceiver at the port rate, with its price and power."""

    name: str = Field(description="By which bills name it.")
    gbps: PartRate = None
    price_usd: NonNegative = Field(description="Of one transceiver, in dollars.")
    power_watts: NonNegative = Field(description="Of one transceiver, in watts.")


class Cables(Sourced):
    """The cables of an instance's network: the price of a link's cable, and its transceivers."""

    endpoint_usd: NonNegative = Field(0.0, description="Cable between GPU and leaf.")
    endpoint_transceivers: LinkEnds = Field(2, description="Transceivers of a link between GPU and leaf.")
    switch_usd: NonNegative = Field(0.0, description="Cable between two switches.")
    switch_transceivers: LinkEnds = Field(2, description="Transceivers of a link between two switches.")


class Medium(Sourced):
    """A medium of an instance's network: a kind of cable at the port rate, for links no longer than its reach."""

    name: str = Field(description="By which bills name it.")
    gbps: PartRate = None
    reach_m: Positive = Field(description="Longest link, in metres.")
    price_usd: NonNegative = Field(description="Of a link without its length: ends, transceivers.")
    usd_per_m: NonNegative = Field(0.0, description="Price of a metre, in dollars.")
    power_watts: NonNegative = Field(0.0, description="Of a link, both ends.")


class Floor(Sourced):
    """The floor that a user gives with a network: a site's grid of racks; switches stand amid the racks they serve."""

    rack_pitch_m: Positive = Field(0.6, description="From rack to rack in a row. EIA-310 racks are 600 mm wide [m].")
    row_pitch_m: Positive = Field(2.4, description="From row to row: racks 1.2 m deep, aisles of 1.2 m [m].")
    racks_per_row: Count | None = Field(None, description="Absent: as many as make the floor nearest to square.")
    hosts_per_rack: Annotated[int, Field(ge=1, le=128)] = Field(
        1, description="Hosts (the plan's racks) that stand in one rack of the floor."
    )
    rise_m: NonNegative = Field(1.0, description="From a port to the tray above, at each end [m].")
    spread_m: NonNegative = Field(5.0, description="Added to every cable between two switches [m].")


class Spares(Sourced):
    """Spare ports of a leaf that a user asks of the network, by a share or by chances, whichever is more."""

    share: Fraction = Field(0.0, description="Of the ports in use towards GPUs, rounded up.")
    failure_chance: Fraction = Field(0.0, description="That a port fails before the leaf is repaired.")
    shortage_chance: Annotated[float, Field(gt=0, le=1)] = Field(0.01, description="That spare ports run out.")

    @property
    def asked(self) -> bool:
        """Whether the network of an instance asks for spare ports of a leaf."""
        return self.share > 0 or self.failure_chance > 0


class TransportRuns(Frozen):
    """Keys that a user gives in a network to have transport simulated: a random permutation on a tree of switches."""

    transport: Literal["ecmp", "spray", "adaptive"] = Field(
        description="ecmp: a path a flow; spray: packets over all paths; adaptive: paths by load."
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(16, description="Runs.")
    percentile: Annotated[float, Field(ge=0, le=100)] = Field(50.0, description="Of the slowest flows' slowdowns.")
    hosts: Annotated[int, Field(ge=2, le=65_536)] = Field(1024, description="Of the reference tree.")
    oversubscription: Annotated[float, Field(ge=1)] = Field(1.0, description="Ports down over ports up at its leaves.")


class Transport(Sourced):
    """Slowdown of the transport that a user gives with a network: a constant, or measured in simulated runs."""

    name: str = Field("spray", description="By which reports name it.")
    slowdown: Annotated[float, Field(ge=1)] = Field(1.05, description="Time over the fluid ideal, if not simulated.")
    simulate: TransportRuns | None = Field(None, description="Take the slowdown from runs instead.")


class Network(Sourced):
    """The network of an instance: what the fabric of a site may be built from."""

    switches: tuple[Annotated[Switch, Named("switches")], ...] = Field(
        min_length=1, description="Boxes to choose from, inline or by catalogue name."
    )
    optics: Optics = Field(description="The transceiver at both ends of a link.")
    cables: Cables = Field(Cables(), description="Cables and transceivers of a link.")
    floor: Floor | None = Field(None, description="Absent: lengths are of no account, and every link costs the same.")
    media: tuple[Annotated[Medium, Named("media")], ...] = Field(
        (), description="With a floor: links take the cheapest that reaches."
    )
    transport: Transport = Field(Transport(), description="How much slower flows are than ideal fluid ones.")
    families: tuple[FabricFamily, ...] = Field(
        ("rail",),
        min_length=1,
        description="rail: a leaf takes one GPU index of many racks; rack: all GPUs of some racks; "
        "rail-only: a network for each GPU index, nothing joins them; "
        "dragonfly: leaves as of rail, in groups joined two by two; dragonfly+: groups of leaves below spines.",
    )
    group_routing: Literal["shortest", "valiant"] = Field(
        "shortest",
        description="Of dragonflies. shortest: flows between two groups share the links of those two; "
        "valiant: they go by way of a third drawn at random, twice the links but over all of them.",
    )
    max_rails_per_leaf: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        1, description="Most GPU indices of a rack that share a leaf of the family rail; null: any that divide them."
    )
    max_lanes: Annotated[int, Field(ge=1, le=16)] = Field(1, description="Most networks that a NIC is split over.")
    min_core_share: Fraction = Field(
        0.0,
        description="Least rate out of a full leaf, pod and zone over that of its GPUs' links; 1: every tier is 1:1.",
    )
    max_oversubscription: Positive | Annotated[tuple[Positive, ...], Field(min_length=1, max_length=3)] | None = Field(
        None,
        description="Most rate of GPUs to that of the links out of a full leaf, pod and zone: 1 is non-blocking, 4 is "
        "4:1, 0.5 is 1:2; the same as a min_core_share of one over it. A list, of trees: most rate down to rate up of "
        "a leaf, of a spine where there are several pods, and of a core where there are several zones; the last holds "
        "for the tiers above it: [1, 7] is 1:1 at leaves, 7:1 at spines and at cores. Absent: whatever hides the "
        "traffic.",
    )
    survives: Literal["one_spine", "one_leaf_uplink"] | None = Field(
        None,
        description="Of trees. one_spine: with any one switch above the leaves lost no two leaves of a network are "
        "cut; one_leaf_uplink: with any one link between a leaf and a spine lost. Absent: a loss may cut leaves off.",
    )
    spares: Spares = Field(Spares(), description="Spare ports of a leaf.")
    power_usd_per_watt: NonNegative = Field(0.0, description="Price of a watt over the fabric's years.")
    max_tiers: Annotated[int, Field(ge=1, le=MAX_TIERS)] = Field(MAX_TIERS, description="Most tiers of switches.")
    wan_gateway: bool = Field(False, description="Design the switches at which the wavelengths end.")

    def _faults(self) -> Iterator[str]:
        """Refuse tier ratios or a loss to survive for dragonflies: they have no tiers, and no figure of links left."""
        grouped = [family for family in self.families if family.startswith("dragonfly")]
        by_tier = "a list of max_oversubscription" if isinstance(self.max_oversubscription, tuple) else None
        asked = "survives" if self.survives is not None else by_tier
        if asked and grouped:
            yield f"{asked} is of trees, and families has {grouped[0]}; leave one of them out"

    @property
    def asked_core_share(self) -> float:
        """Least rate out of a full leaf, pod and zone that an instance's network asks for, over that of GPUs' links."""
        most = self.max_oversubscription
        return max(self.min_core_share, 0.0 if most is None or isinstance(most, tuple) else 1 / most)

    @property
    def tier_ratios(self) -> tuple[float, float, float]:
        """Most rate down to rate up that an instance's network lists for leaf, spine and core; infinity: no list."""
        most = self.max_oversubscription
        own = most if isinstance(most, tuple) else (math.inf,)
        leaf, spine, core, *_ = (*own, own[-1], own[-1])
        return leaf, spine, core

    def ratio_of(self, tier: int) -> float:
        """Return the most rate down to rate up that an instance's network allows a leaf (0), spine (1), core (2)."""
        own = self.tier_ratios[tier] if tier < len(self.tier_ratios) else math.inf
        return min(own, 1 / self.asked_core_share if self.asked_core_share else math.inf)

    @property
    def asked_leaf_uplinks(self) -> int:
        """Fewest links from a leaf to spines by which an instance's network survives the loss that it asks about."""
        return 1 if self.survives is None else 2

    @property
    def asked_spines(self) -> int:
        """Fewest spines above each leaf by which an instance's network survives the loss that it asks about."""
        return 2 if self.survives == "one_spine" else 1


class FibreNode(Sourced):
    """A fibre node of an instance's wide area, where routes meet; one with the id of a grid node is at that node."""

    id: str = Field(description="By which edges name it.")
    latitude: Annotated[float, Field(ge=-90, le=90)] = Field(description="In degrees north.")
    longitude: Annotated[float, Field(ge=-180, le=180)] = Field(description="In degrees east.")


class FibreEdge(Sourced):
    """A fibre edge of an instance's wide area: a route between two fibre nodes, which one cut takes out."""

    id: str | None = Field(None, description="Absent: the ids of its ends, joined by a hyphen.")
    a: str = Field(description="Fibre node at one end.")
    b: str = Field(description="Fibre node at the other end.")
    route_km: Positive | None = Field(None, description="Absent: the great circle times wan.route_factor.")
    max_fibre_pairs: Count | None = Field(None, description="Absent: wan.max_fibre_pairs.")
    usd_per_pair: NonNegative | None = Field(None, description="Lease; absent: by wan.fibre_usd_per_route_km.")
    wavelength_usd: NonNegative | None = Field(None, description="Both ends; absent: wan.wavelength_usd.")

    @property
    def name(self) -> str:
        """The name of a fibre edge of an instance's wide area: its id, or the ids of its ends."""
        return self.id or f"{self.a}-{self.b}"


class Traffic(Sourced):
    """Traffic of an instance's wide area: what sites send each other in addition to gradients, equal both ways."""

    name: str = Field(description="By which plans name it.")
    bytes: Positive = Field(description="Bytes from one end to the other, and as many back.")
    period_seconds: Positive | None = Field(None, description="Sent once in so long, spread evenly.")
    deadline_seconds: Positive | None = Field(None, description="From start to arrival, round trip included.")
    priority: Count = Field(1, description="1 is served first, after the exchange of gradients.")
    a: str | None = Field(None, description="A grid or fibre node; with b absent too: between every two sites.")
    b: str | None = Field(None, description="The other end; absent with a: between every two open sites.")

    def _faults(self) -> Iterator[str]:
        if (self.period_seconds is None) == (self.deadline_seconds is None):
            yield "give exactly one of period_seconds and deadline_seconds"
        if (self.a is None) != (self.b is None):
            yield "give both a and b, or neither for every two sites"


class Wan(Sourced):
    """The wide area of an instance that joins its sites: fibre, protection and traffic, or the usual prices."""

    route_factor: Annotated[float, Field(ge=1)] = Field(1.2, description="Fibre route over great circle.")
    rtt_ms_per_100_route_km: Positive = Field(0.98, description="Light in fibre, both ways.")
    round_trips: NonNegative = Field(1.0, description="Round trips that one exchange waits for (k of the need).")
    headroom_factor: Annotated[float, Field(ge=1)] = Field(2.0, description="Capacity over the exchange's need.")
    wavelength_gbps: Positive = Field(400.0, description="Rate of one wavelength, each way, in Gb/s.")
    max_wavelengths_per_pair: Count = Field(96, description="Wavelengths per fibre pair.")
    max_fibre_pairs: Count = Field(16, description="Fibre pairs that can be leased between two sites.")
    # Sourced defaults, so that no fibre is free unless an instance says so; instances/5gw.json states the same:
    # a dark fibre pair for 20 years (IRU) at about $15.6K per route-mile [m];
    fibre_usd_per_route_km: NonNegative = Field(9_700.0, description="Lease for its life (IRU) of one fibre pair.")
    # two long-haul 400G transponders of about $20K each, router ports, a share of amplifiers [m].
    wavelength_usd: NonNegative = Field(60_000.0, description="Transponders and router ports at both ends.")
    fibre_life_years: Positive = Field(20.0, description="Years over which fibre is paid off.")
    fibre_nodes: tuple[FibreNode, ...] = Field((), description="Where fibre routes meet; sites stand at the nearest.")
    fibre_edges: tuple[FibreEdge, ...] = Field((), description="Fibre routes; absent: one between every two sites.")
    protection: Literal["none", "one_cut"] | None = Field(
        None, description="one_cut: any one fibre edge may be cut; a node that a route and its backup share is named."
    )
    exchange: Literal["auto", "ring", "tree", "hierarchical"] | None = Field(
        None, description="Form of the gradient exchange; auto, or one that the sites cannot take: the fastest."
    )
    traffic: tuple[Traffic, ...] = Field((), description="Demands in addition to the gradient exchange.")
    routes: Count = Field(4, description="Shortest routes considered for each demand.")

    @property
    def designed(self) -> bool:
        """Whether the wide area of an instance asks for a design of fibre routes and wavelengths."""
        return bool(self.fibre_edges or self.traffic) or self.protection is not None or self.exchange is not None
