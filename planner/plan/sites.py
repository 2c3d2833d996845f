"""The sites section of a plan."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Site(Frozen):
    """One open site."""

    id: str = Field(description="Of its node.")
    balancing_authority: str = Field(description="Its area.")
    interconnection: str = Field(description="Its synchronous area.")
    modules: int = Field(description="Of racks, as they are bought.")
    racks: int = Field(description="At the site.")
    gpus: int = Field(description="At the site.")
    it_mw: float = Field(description="IT load, in MW.")
    facility_mw: float = Field(description="Load with overhead, in MW.")
    interconnect_mw: float | None = Field(description="Usable interconnect; null where the rule is off.")
    cooling_m2: float | None = Field(description="Land that cooling takes, in m2.")
    latitude: float = Field(description="In degrees north.")
    longitude: float = Field(description="In degrees east.")


class Link(Frozen):
    """The wide-area link between two sites."""

    a: str = Field(description="Site at one end.")
    b: str = Field(description="Site at the other end.")
    route_km: float = Field(description="Length of the fibre, in km.")
    rtt_ms: float = Field(description="Round trip, in ms.")
    required_gbps: float = Field(description="Need of the gradient exchange, each direction, headroom included.")
    wavelengths: int = Field(description="That are lit.")
    capacity_gbps: float = Field(description="Their rate, each way, in Gb/s.")
    fibre_pairs: int = Field(description="That they take.")
    usd_per_year: float = Field(description="In dollars, fibre and wavelengths.")


class Flow(Frozen):
    """Power on a corridor, positive from a to b."""

    line: str = Field(description="Its id.")
    mw: float = Field(description="Power from a to b, in MW; below 0: the other way.")


class NewCircuits(Frozen):
    """Circuits built in a corridor."""

    line: str = Field(description="Its id.")
    circuits: int = Field(description="That are built.")


class Upgrade(Frozen):
    """Steps of interconnect bought at a node."""

    node: str = Field(description="Whose interconnect grows.")
    steps: int = Field(description="That are bought.")


class Excess(Frozen):
    """How far a soft rule is broken, and what that weighs."""

    rule: str = Field(description="The row: headroom[PJM].")
    amount: float = Field(description="By which it is broken, in its unit.")
    unit: str = Field(description="MW, m2 or sites.")
    usd_per_year: float = Field(description="What that weighs a year, in dollars.")


class ScenarioRun(Frozen):
    """How the split runs in one scenario."""

    running_mw: dict[str, float] = Field(description="What each site draws.")
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in, in MW.")
    flows: tuple[Flow, ...] = Field((), description="On the lines.")
    energy_usd_per_year: float = Field(description="Energy drawn, and what is left undone at its price.")


class SitesPlan(Frozen):
    """How the campus splits over sites."""

    sites: tuple[Site, ...] = Field(description="That are open.")
    links: tuple[Link, ...] = Field((), description="Between sites, as estimated.")
    new_lines: tuple[NewCircuits, ...] = Field((), description="That are built.")
    upgrades: tuple[Upgrade, ...] = Field((), description="Of interconnects that are bought.")
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in.")
    flows: tuple[Flow, ...] = Field((), description="On the lines.")
    excess: tuple[Excess, ...] = Field((), description="Soft rules that are broken.")
    scenarios: dict[str, ScenarioRun] = Field(
        default_factory=dict, description="What happens in each year that may come, by its name."
    )
    certificate: Certificate = Field(description="What is proven of it.")
