"""The sites section of a plan."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Site(Frozen):
    """One open site."""

    id: str
    balancing_authority: str
    interconnection: str
    modules: int
    racks: int
    gpus: int
    it_mw: float
    facility_mw: float
    interconnect_mw: float | None = Field(description="Usable interconnect; null where the rule is off.")
    cooling_m2: float | None
    latitude: float
    longitude: float


class Link(Frozen):
    """The wide-area link between two sites."""

    a: str
    b: str
    route_km: float
    rtt_ms: float
    required_gbps: float = Field(description="Need of the gradient exchange, each direction, headroom included.")
    wavelengths: int
    capacity_gbps: float
    fibre_pairs: int
    usd_per_year: float


class Flow(Frozen):
    """Power on a corridor, positive from a to b."""

    line: str
    mw: float


class NewCircuits(Frozen):
    """Circuits built in a corridor."""

    line: str
    circuits: int


class Upgrade(Frozen):
    """Steps of interconnect bought at a node."""

    node: str
    steps: int


class Excess(Frozen):
    """How far a soft rule is broken, and what that weighs."""

    rule: str = Field(description="The row: headroom[PJM].")
    amount: float
    unit: str
    usd_per_year: float


class ScenarioRun(Frozen):
    """How the split runs in one scenario."""

    running_mw: dict[str, float] = Field(description="What each site draws.")
    generation_mw: dict[str, float] = Field(default_factory=dict)
    flows: tuple[Flow, ...] = ()
    energy_usd_per_year: float = Field(description="Energy drawn, and what is left undone at its price.")


class SitesPlan(Frozen):
    """How the campus splits over sites."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...] = ()
    new_lines: tuple[NewCircuits, ...] = ()
    upgrades: tuple[Upgrade, ...] = ()
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in.")
    flows: tuple[Flow, ...] = ()
    excess: tuple[Excess, ...] = Field((), description="Soft rules that are broken.")
    scenarios: dict[str, ScenarioRun] = Field(default_factory=dict)
    certificate: Certificate
