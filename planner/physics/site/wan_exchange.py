"""The gradient exchange between sites over the wide area: its forms, their round trips, seconds and rates."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from planner.instance.network import Wan
from planner.plan.plan_sections import Link, WanPlan


def exchange_bytes(gradient_bytes: float, sites: int) -> float:
    """Compute the bytes of each link, each way, in a WAN exchange by a ring of sites: 2·(n-1)/n of the gradient."""
    return 2 * (sites - 1) / sites * gradient_bytes


def need_gbps(size_bytes: float, window_seconds: float, wait_seconds: float) -> float:
    """Compute a WAN link's Gbps to exchange bytes one way in a window less a wait: 8·S/(T - k·RTT), or infinite."""
    left = window_seconds - wait_seconds
    return 8 * size_bytes / left / 1e9 if left > 0 else math.inf


def exchange_gbps(
    wan: Wan,
    links: Iterable[Link],
    design: WanPlan | None,
    site: str,
    training: Collection[str],
    exchange: tuple[float, float],
) -> float:
    """Compute the Gb/s, each way, of a site's gradients over the WAN: as designed, else of bytes and seconds."""
    if site not in training:
        return 0.0
    if design is not None:
        sync = (need.requested_gbps for need in design.demands if need.priority == 0 and site in (need.a, need.b))
        return math.fsum(sync) / wan.headroom_factor
    own = (link for link in links if site in (link.a, link.b) and {link.a, link.b} <= set(training))
    return math.fsum(need_gbps(*exchange, wan.round_trips * link.rtt_ms / 1e3) for link in own)


MAX_ORDERED = 8  # sites up to which every order of a ring is tried: 5,040 orders
Pair = tuple[str, str]
Rtt = Callable[[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of the WAN exchange of gradients: links at work at once, bytes of each, the slowest's round trips."""

    links: tuple[Pair, ...]
    link_bytes: float
    trips: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of WAN exchange between sites, its phases in turn. `order`: on the ring, root first, or by group."""

    name: str
    order: tuple[str, ...]
    phases: tuple[Phase, ...]


def ring(sites: Sequence[str], size_bytes: float, rtt_ms: Rtt) -> Form:
    """Return the WAN exchange by a ring: reduce-scatter, all-gather in 2·(n-1) steps of S/n, one way of slowest link.

    That is 2·(n-1)/n·S a link and (n-1) round trips (Patarasuk and Yuan 2009; Thakur 2005). The order is the one with
    the shortest slowest link, then the shortest sum; beyond `MAX_ORDERED` sites each goes on to the nearest left.
    """

    def length(order: Sequence[str]) -> tuple[float, float]:
        hops = [rtt_ms(one, other) for one, other in pairwise((*order, order[0])) if one != other]
        return (max(hops, default=0.0), sum(hops))

    first, *left = sorted(sites)
    if len(left) < MAX_ORDERED:
        order = min(((first, *rest) for rest in permutations(left)), key=length)
    else:
        nearest = [first]
        while left:
            nearest.append(min(left, key=lambda site: (rtt_ms(nearest[-1], site), site)))
            left.remove(nearest[-1])
        order = tuple(nearest)
    n = len(order)
    hops = {(min(hop), max(hop)) for hop in pairwise((*order, order[0]))}
    links = tuple(sorted(hop for hop in hops if hop[0] != hop[1]))
    phase = Phase(links=links, link_bytes=exchange_bytes(size_bytes, n), trips=n - 1)
    return Form(name="ring", order=order, phases=(phase,))


def tree(sites: Sequence[str], size_bytes: float, rtt_ms: Rtt) -> Form:
    """Return the WAN exchange by a tree of sites: reduce to a root, S up each link, broadcast, S down (Thakur 2005)."""
    # One round trip. The root is the site with the shortest slowest link. Deeper trees wait longer and carry as much on
    # each link.
    trips = {site: sorted((rtt_ms(site, x) for x in sites if x != site), reverse=True) for site in sorted(sites)}
    root = min(trips, key=lambda site: trips[site])
    leaves = [site for site in sorted(sites) if site != root]
    links = tuple(sorted((min(root, leaf), max(root, leaf)) for leaf in leaves))
    return Form(name="tree", order=(root, *leaves), phases=(Phase(links=links, link_bytes=2 * size_bytes, trips=1),))


def hierarchical(groups: Sequence[Sequence[str]], size_bytes: float, rtt_ms: Rtt) -> Form | None:
    """Return the WAN exchange by two levels of sites, reduce-scatter inside groups, all-reduce across; None if unequal.

    With m groups of g, both 2 or more, a link inside carries 2·(g-1)/g·S and one across 2·(m-1)/m·S/g: together the
    bytes of one ring over all, but (g-1) + (m-1) round trips (the 2D torus of Mikami 2018, arXiv 1811.05233).
    """
    g, m = len(groups[0]) if groups else 0, len(groups)
    if m < 2 or g < 2 or any(len(group) != g for group in groups):
        return None

    def together(rings: Sequence[Form]) -> Phase:  # of one size, at the same time
        return replace(rings[0].phases[0], links=tuple(sorted(link for ring in rings for link in ring.phases[0].links)))

    inside = [ring(group, size_bytes, rtt_ms) for group in groups]
    across = [ring(row, size_bytes / g, rtt_ms) for row in zip(*(sorted(group) for group in groups), strict=True)]
    return Form(
        name="hierarchical",
        order=tuple(site for ring in inside for site in ring.order),
        phases=(together(inside), together(across)),
    )


def forms(groups: Mapping[str, Sequence[str]], size_bytes: float, rtt_ms: Rtt) -> tuple[Form, ...]:
    """Return the forms of WAN exchange that sites in groups can take: ring, tree and two levels where possible."""
    sites = sorted(site for group in groups.values() for site in group)
    if len(sites) < 2:
        return ()
    two_level = hierarchical([sorted(groups[name]) for name in sorted(groups)], size_bytes, rtt_ms)
    plain = ring(sites, size_bytes, rtt_ms), tree(sites, size_bytes, rtt_ms)
    return plain if two_level is None else (*plain, two_level)


def waits(form: Form, wan: Wan, rtt_ms: Rtt) -> Iterator[float]:
    """Yield the seconds of a WAN exchange's round trips between sites, phase by phase."""
    for phase in form.phases:
        yield wan.round_trips * phase.trips * max(rtt_ms(one, other) for one, other in phase.links) / 1e3


def seconds(form: Form, wan: Wan, gbps: float, rtt_ms: Rtt) -> float:
    """Compute the seconds of a WAN exchange between sites at a rate in Gbps on every link of it."""
    return sum(8 * phase.link_bytes / (gbps * 1e9) for phase in form.phases) + sum(waits(form, wan, rtt_ms))


def form_need_gbps(form: Form, wan: Wan, window_seconds: float, rtt_ms: Rtt) -> float:
    """Compute the Gbps on every link at which a WAN exchange fills the window: 8·S/(T - k·RTT), over all phases."""
    return need_gbps(sum(phase.link_bytes for phase in form.phases), window_seconds, sum(waits(form, wan, rtt_ms)))


def choose_form(wan: Wan, offered: Sequence[Form], window_seconds: float, rtt_ms: Rtt) -> Form | None:
    """Return the form of WAN exchange that the instance names or, if sites cannot take it, the lowest rate's."""
    named = [form for form in offered if form.name == wan.exchange] or offered
    return min(named, key=lambda form: form_need_gbps(form, wan, window_seconds, rtt_ms), default=None)


def assumed_window_seconds(
    wan: Wan, size_bytes: float, sites: int, window_seconds: float, gbps: float | None, rtt_ms: float | None
) -> float:
    """Compute the seconds that a step allows the WAN exchange: a ring at a rate and round trip, else the window."""
    if not gbps:
        return window_seconds
    return 8 * exchange_bytes(size_bytes, sites) / (gbps * 1e9) + wan.round_trips * (rtt_ms or 0.0) / 1e3
