"""The wide-area section of a plan."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate

LEAST_CAPITAL = "capital of fibre and wavelengths, USD"  # what a certificate says that a design minimizes


class ExchangeForm(Frozen):
    """One form that the gradient exchange could take."""

    name: Literal["ring", "tree", "hierarchical"] = Field(description="How sites exchange gradients.")
    order: tuple[str, ...] = Field(description="Sites around the ring; the root first; group after group.")
    link_gbps: float | None = Field(description="Rate on every link at which it fills the window; null: no rate does.")
    seconds: float | None = Field(description="Its time at the rate that the chosen form needs.")


class WanRoute(Frozen):
    """A share of a demand on one route, and where it goes while that is cut."""

    share: float = Field(description="Of the demand.")
    edges: tuple[str, ...] = Field(description="Ids from end to end.")
    route_km: float = Field(description="Length, in km.")
    rtt_ms: float = Field(description="Round trip, in ms.")
    gbps: float = Field(description="Rate of this share, each way, headroom included.")
    backup_edges: tuple[str, ...] | None = Field(
        None, description="Ids of the route after a cut; null without protection."
    )
    backup_rtt_ms: float | None = Field(None, description="Its round trip, in ms.")
    backup_gbps: float | None = Field(None, description="Its rate, each way, in Gb/s.")


class WanDemand(Frozen):
    """What the wide area carries between two places."""

    name: str = Field(description="Of the demand.")
    a: str = Field(description="Site at one end.")
    b: str = Field(description="Site at the other end.")
    priority: int = Field(description="0: the gradient exchange, carried whole.")
    requested_gbps: float = Field(description="Rate on the shortest route considered.")
    admitted_gbps: float = Field(description="Of that, what is carried, under protection whichever one edge is cut.")
    missing_gbps: float = Field(description="Rate that is asked for and not carried, in Gb/s.")
    saturated_edges: tuple[str, ...] = Field((), description="Full edges of its routes, where some is missing.")
    routes: tuple[WanRoute, ...] = Field(description="That carry it.")


class WanEdge(Frozen):
    """A lit stretch of fibre."""

    id: str = Field(description="Of the edge.")
    a: str = Field(description="Fibre node or site at one end.")
    b: str = Field(description="Fibre node or site at the other end.")
    route_km: float = Field(description="Length of the fibre, in km.")
    peak_gbps: float = Field(description="Most that it carries each way, also after any cut.")
    wavelengths: int = Field(description="That are lit.")
    fibre_pairs: int = Field(description="That they take.")
    capacity_gbps: float = Field(description="Their rate, each way, in Gb/s.")
    usd_per_year: float = Field(description="In dollars, fibre and wavelengths.")


class WanPlan(Frozen):
    """The fibre between the sites as it is lit."""

    exchange: Literal["ring", "tree", "hierarchical"] | None = Field(description="Null: one site trains.")
    window_seconds: float = Field(description="Time in which the exchange of a stage is done.")
    forms: tuple[ExchangeForm, ...] = Field(description="Ways to exchange that were compared.")
    protection: Literal["none", "one_cut"] = Field(description="What the routes survive.")
    demands: tuple[WanDemand, ...] = Field(description="In the order of their priority.")
    edges: tuple[WanEdge, ...] = Field(description="With light on them.")
    capex_usd: float = Field(description="Fibre and wavelengths, in dollars.")
    certificate: Certificate = Field(description="What is proven of it.")

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
