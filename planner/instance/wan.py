"""The wide area: fibre between sites, what lights it, and other traffic."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.instance.base import Count, NonNegative, Positive, Sourced

# Sourced defaults, so that no fibre is free unless an instance says so; instances/5gw.json states the same.
FIBRE_USD_PER_ROUTE_KM = 9_700.0  # a dark fibre pair for 20 years (IRU) at about $15.6K per route-mile [m]
WAVELENGTH_USD = 60_000.0  # two long-haul 400G transponders of about $20K each, router ports, a share of amplifiers [m]


class FibreNode(Sourced):
    """A place where fibre routes meet; one with the id of a grid node stands at that node."""

    id: str = Field(description="By which edges name it.")
    latitude: Annotated[float, Field(ge=-90, le=90)] = Field(description="In degrees north.")
    longitude: Annotated[float, Field(ge=-180, le=180)] = Field(description="In degrees east.")


class FibreEdge(Sourced):
    """A fibre route between two fibre nodes: what one cut takes out. Demands share its wavelengths."""

    id: str | None = Field(None, description="Absent: the ids of its ends, joined by a hyphen.")
    a: str = Field(description="Fibre node at one end.")
    b: str = Field(description="Fibre node at the other end.")
    route_km: Positive | None = Field(None, description="Absent: the great circle times wan.route_factor.")
    max_fibre_pairs: Count | None = Field(None, description="Absent: wan.max_fibre_pairs.")
    usd_per_pair: NonNegative | None = Field(None, description="Lease; absent: by wan.fibre_usd_per_route_km.")
    wavelength_usd: NonNegative | None = Field(None, description="Both ends; absent: wan.wavelength_usd.")

    @property
    def name(self) -> str:
        """The id, or the ids of its ends."""
        return self.id or f"{self.a}-{self.b}"


class Traffic(Sourced):
    """What sites send each other beside the exchange of gradients, as many bytes each way."""

    name: str = Field(description="By which plans name it.")
    bytes: Positive = Field(description="Bytes from one end to the other, and as many back.")
    period_seconds: Positive | None = Field(None, description="Sent once in so long, spread evenly.")
    deadline_seconds: Positive | None = Field(None, description="From start to arrival, round trip included.")
    priority: Count = Field(1, description="1 is served first, after the exchange of gradients.")
    a: str | None = Field(None, description="A grid or fibre node; with b absent too: between every two sites.")
    b: str | None = Field(None, description="The other end; absent with a: between every two open sites.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Refuse traffic with no time or two, or with one end."""
        if (self.period_seconds is None) == (self.deadline_seconds is None):
            raise ValueError("give exactly one of period_seconds and deadline_seconds")
        if (self.a is None) != (self.b is None):
            raise ValueError("give both a and b, or neither for every two sites")
        return self


class Wan(Sourced):
    """What joins the sites; fibre_edges, protection, exchange or traffic asks for a design of routes."""

    route_factor: Annotated[float, Field(ge=1)] = Field(1.2, description="Fibre route over great circle.")
    rtt_ms_per_100_route_km: Positive = Field(0.98, description="Light in fibre, both ways.")
    round_trips: NonNegative = Field(1.0, description="Round trips that one exchange waits for (k of the need).")
    headroom_factor: Annotated[float, Field(ge=1)] = Field(2.0, description="Capacity over the exchange's need.")
    wavelength_gbps: Positive = Field(400.0, description="Rate of one wavelength, each way, in Gb/s.")
    max_wavelengths_per_pair: Count = Field(96, description="Wavelengths per fibre pair.")
    max_fibre_pairs: Count = Field(16, description="Fibre pairs that can be leased between two sites.")
    fibre_usd_per_route_km: NonNegative = Field(
        FIBRE_USD_PER_ROUTE_KM, description="Lease for its life (IRU) of one fibre pair."
    )
    wavelength_usd: NonNegative = Field(WAVELENGTH_USD, description="Transponders and router ports at both ends.")
    fibre_life_years: Positive = Field(20.0, description="Years over which fibre is paid off.")
    fibre_nodes: tuple[FibreNode, ...] = Field((), description="Where fibre routes meet; sites stand at the nearest.")
    fibre_edges: tuple[FibreEdge, ...] = Field((), description="Fibre routes; absent: one between every two sites.")
    protection: Literal["none", "one_cut"] | None = Field(
        None, description="one_cut: any one fibre edge may be cut; a node that a route and its backup share is named."
    )
    exchange: Literal["auto", "ring", "tree", "hierarchical"] | None = Field(
        None, description="Form of the gradient exchange; auto, or one that the sites cannot take: the fastest."
    )
    traffic: tuple[Traffic, ...] = Field((), description="Demands beside the gradient exchange.")
    routes: Count = Field(4, description="Shortest routes considered for each demand.")

    @property
    def designed(self) -> bool:
        """Whether a design of routes and wavelengths is asked for."""
        return bool(self.fibre_edges or self.traffic) or self.protection is not None or self.exchange is not None
