"""What the wide area must carry: the links of the gradient exchange first, then the traffic between sites."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.instance.wan import Traffic, Wan
from planner.physics.site.fibre import Place
from planner.physics.site.gradient_exchange import Form, Rtt, every_two, fastest, link_needs
from planner.physics.site.wan import need_gbps

SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes between two places, as many each way, within a window of which round trips are spent waiting.

    Priority 0 is the gradient exchange: carried whole, on one route.
    """

    name: str
    a: str
    b: str
    priority: int
    size_bytes: float
    window_seconds: float
    trips: float
    factor: float = 1.0

    @property
    def key(self) -> str:
        """Return the name that tells demands apart: `sync[a,b]`."""
        return f"{self.name}[{self.a},{self.b}]"

    def gbps(self, rtt_ms: float) -> float:
        """Compute the rate over a route of a round trip; infinite where the waiting fills the window."""
        wait = self.trips * rtt_ms / 1e3 if self.trips else 0.0
        return need_gbps(self.size_bytes, self.window_seconds, wait) * self.factor


def sync_demands(wan: Wan, form: Form | None, window_seconds: float, rtt_ms: Rtt) -> tuple[Demand, ...]:
    """Return a demand for each link of the exchange, its headroom included."""
    if form is None:
        return ()
    return tuple(
        Demand(
            name=SYNC,
            a=x.link[0],
            b=x.link[1],
            priority=0,
            size_bytes=x.link_bytes,
            window_seconds=x.window_seconds,
            trips=x.trips,
            factor=wan.headroom_factor,
        )
        for x in link_needs(form, wan, window_seconds, rtt_ms)
    )


def traffic_demands(wan: Wan, sites: Sequence[str], known: Mapping[str, object]) -> tuple[Demand, ...]:
    """Return the demands of the traffic between known places; traffic that ends at a closed site does not arise."""
    demands = []
    for t in wan.traffic:
        pairs = every_two(sites) if t.a is None or t.b is None else ((t.a, t.b),)
        demands += [_traffic(t, a, b) for a, b in pairs if a in known and b in known and a != b]
    return tuple(demands)


def _traffic(t: Traffic, a: str, b: str) -> Demand:
    """Return a demand spread over a period, or done by a deadline of which one round trip is waiting."""
    window = t.period_seconds or t.deadline_seconds or math.nan
    return Demand(
        name=t.name,
        a=a,
        b=b,
        priority=t.priority,
        size_bytes=t.bytes,
        window_seconds=window,
        trips=0.0 if t.deadline_seconds is None else 1.0,
    )


def places_of(wan: Wan, sites: Mapping[str, Place]) -> dict[str, Place]:
    """Return the places that demands can end at: the open sites, and fibre nodes that traffic names."""
    ends = {end for t in wan.traffic for end in (t.a, t.b)}
    nodes = {n.id: (n.latitude, n.longitude) for n in wan.fibre_nodes if n.id in ends} if wan.fibre_edges else {}
    return {**nodes, **sites}


def choose_form(wan: Wan, offered: Sequence[Form], window_seconds: float, rtt_ms: Rtt) -> Form | None:
    """Return the form that the instance names; the fastest where it names none that the sites can take."""
    named = [f for f in offered if f.name == wan.exchange]
    return named[0] if named else fastest(offered, wan, window_seconds, rtt_ms) if offered else None
