"""The wide-area section of a plan."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate

LEAST_CAPITAL = "capital of fibre and wavelengths, USD"  # what a certificate says that a design minimizes


class ExchangeForm(Frozen):
    """One form that the gradient exchange could take."""

    name: Literal["ring", "tree", "hierarchical"]
    order: tuple[str, ...] = Field(description="Sites around the ring; the root first; group after group.")
    link_gbps: float | None = Field(description="Rate on every link at which it fills the window; null: no rate does.")
    seconds: float | None = Field(description="Its time at the rate that the chosen form needs.")


class WanRoute(Frozen):
    """A share of a demand on one route, and where it goes while that is cut."""

    share: float
    edges: tuple[str, ...]
    route_km: float
    rtt_ms: float
    gbps: float = Field(description="Rate of this share, each way, headroom included.")
    backup_edges: tuple[str, ...] | None = None
    backup_rtt_ms: float | None = None
    backup_gbps: float | None = None


class WanDemand(Frozen):
    """What the wide area carries between two places."""

    name: str
    a: str
    b: str
    priority: int = Field(description="0: the gradient exchange, carried whole.")
    requested_gbps: float = Field(description="Rate on the shortest route considered.")
    admitted_gbps: float = Field(description="Of that, what is carried, under protection whichever one edge is cut.")
    missing_gbps: float
    saturated_edges: tuple[str, ...] = Field((), description="Full edges of its routes, where some is missing.")
    routes: tuple[WanRoute, ...]


class WanEdge(Frozen):
    """A lit stretch of fibre."""

    id: str
    a: str
    b: str
    route_km: float
    peak_gbps: float = Field(description="Most that it carries each way, also after any cut.")
    wavelengths: int
    fibre_pairs: int
    capacity_gbps: float
    usd_per_year: float


class WanPlan(Frozen):
    """The fibre between the sites as it is lit."""

    exchange: Literal["ring", "tree", "hierarchical"] | None = Field(description="Null: one site trains.")
    window_seconds: float = Field(description="Time in which the exchange of a stage is done.")
    forms: tuple[ExchangeForm, ...]
    protection: Literal["none", "one_cut"]
    demands: tuple[WanDemand, ...]
    edges: tuple[WanEdge, ...]
    capex_usd: float
    certificate: Certificate

    @property
    def shared_nodes(self) -> dict[str, tuple[str, ...]]:
        """Fibre nodes between the ends of a link that a route and its backup both pass, by link: no cut, but one loss.

        A backup shares no span with its route. Where a site has access to a node elsewhere, that node is an end.
        """
        ends, found = {e.id: (e.a, e.b) for e in self.edges}, {}
        for d in self.demands:
            shared: set[str] = set()
            for r in d.routes:
                shared |= _passed(ends, r.edges, d) & _passed(ends, r.backup_edges or (), d)
            if shared:
                found[f"{d.a} - {d.b}"] = tuple(sorted(shared))
        return found


def _passed(ends: dict[str, tuple[str, str]], route: tuple[str, ...], d: WanDemand) -> set[str]:
    """Return the nodes that a route passes on its way, without those at which its sites are joined to the fibre."""
    joined, seen = {d.a, d.b}, set[str]()
    for e in route:
        a, b = ends.get(e, ("", ""))  # an edge that a check will miss
        joined |= {b} if a in (d.a, d.b) and e == f"{a} access" else set()
        seen |= {a, b}
    return seen - joined - {""}
