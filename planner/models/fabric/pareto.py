"""The fabrics of which none is better in every axis, by caps: the cheapest design within caps on all other axes.

Cost is the objective of the search. Time, leaf size and splits are capped, one within the other, each cap below the
worst that the designs within the last one had: so no design of the frontier is passed over, but for those between the
steps of the ladder of slowdowns, where it is used. Power has no cap in the model; a watt is given prices instead, so of
the trade of cost against power the designs on its convex hull are chosen. A design is kept only when each capped axis
has been tightened past it and nothing as good came out: as its cost, and the price of its watts, is minimal within its
caps, no other dominates it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.instance.instance import Instance
from planner.models.fabric.data import TOLERANCE, Problem, free_at_worst, problem_of
from planner.models.fabric.design import FabricDesign
from planner.models.fabric.search import search
from planner.models.requests import FABRIC_AXES, Alternative, FabricRequest, Options
from planner.physics.network.transport import pipeline_send_slowdown
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Stop

SEND_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over the transport's: the ladder of caps
BELOW = 1e-7  # relative: slowdowns are quotients of counts, which differ by more
WATT_USD = 0.01, 10_000.0  # lowest and highest price of a watt, in whole cents, so that prices stay whole
CAPPED = ("time", "leaf", "splits")  # outermost first
DESIGN_CHOICES = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle",
)  # fmt: skip
ZONE_CHOICES = ("rails_per_zone", "domains_per_zone", "core_up", "core_bundle")


class OutOfTimeError(Exception):
    """The time limit has come before the frontier was complete."""


def alternatives(
    instance: Instance,
    request: FabricRequest,
    options: Options,
    *,
    axes: Iterable[str] = ("cost", "time", "splits"),
    every: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[Alternative]:
    """Return designs of which none is matched or beaten in all axes (of `FABRIC_AXES`; cost always counts), by cost.

    `every`: at every slowdown that a design has, and not only the best below each of `SEND_CAPS`. Where the time ends,
    those not reached are missing, which is reported.
    """
    counted = ("cost", *(a for a in FABRIC_AXES if a in set(axes) - {"cost"}))
    f = Frontier(problem_of(instance, request), options, counted, every, Deadline(options.time_limit))
    try:
        f.walk({}, [a for a in CAPPED if a in f.axes])
    except OutOfTimeError:
        report(f"time ended at {len(f.designs)} proven designs; the frontier may have more")
    return _non_dominated(f.designs)


@dataclass(slots=True)
class Frontier:
    """The designs of the frontier so far, and the result of every search."""

    problem: Problem
    options: Options
    axes: tuple[str, ...]
    every: bool
    deadline: Deadline
    designs: list[Alternative] = field(default_factory=list)
    results: list[tuple[Mapping[str, float], float, Alternative | None]] = field(default_factory=list)

    def walk(self, caps: Mapping[str, float], rest: Sequence[str]) -> list[Alternative]:
        """Cap the first axis more and more, the others within it; return the designs met on the way."""
        if not rest:
            designs = self.trade(caps)
            self.designs += designs
            return designs
        axis, met, within = rest[0], [], dict(caps)
        while designs := self.walk(within, rest[1:]):
            met += designs
            cap = self.tighter(axis, max(x.merits[FABRIC_AXES[axis]] for x in designs), every=self.every)
            if cap is None:
                break
            within[axis] = cap
        return met

    def tighter(self, axis: str, value: float, *, every: bool) -> float | None:
        """Return the next cap of an axis below a value, None where nothing is better."""
        if axis != "time":
            return value - 1 if value >= 1 else None
        own, below = transport_slowdown_of(self.problem.network), value * (1 - BELOW)
        if not every:
            return max((own * c for c in SEND_CAPS if own * c < below), default=None)
        return below if below > own else None

    def trade(self, caps: Mapping[str, float]) -> list[Alternative]:
        """Return the lowest cost within caps; with power, every trade of both that some price of a watt makes best."""
        if "power" not in self.axes:
            return self._at(caps, 0.0)
        cheap, thrifty = (self._at(caps, usd) for usd in WATT_USD)
        return [*cheap, *(x for a, b in zip(cheap, thrifty, strict=True) for x in self._between(caps, a, b)), *thrifty]

    def _at(self, caps: Mapping[str, float], watt_usd: float) -> list[Alternative]:
        """Return the best design within caps at a price of a watt, if there is one."""
        best = self.cheapest(caps, watt_usd)
        return [] if best is None else [self.undominated(best, watt_usd)]

    def _between(self, caps: Mapping[str, float], a: Alternative, b: Alternative) -> list[Alternative]:
        """Return the trades between two: a third may be better at the price of a watt that equals them (Cohon 1978)."""
        watts = (a.merits["power_mw"] - b.merits["power_mw"]) * 1e6
        if watts <= 0:
            return []
        usd = round((b.merits["cost_usd"] - a.merits["cost_usd"]) / watts, 2)
        if not WATT_USD[0] <= usd <= WATT_USD[1]:
            return []
        equal = min(weighted_cost(a, usd), weighted_cost(b, usd)) * (1 - TOLERANCE)
        better = [c for c in self._at(caps, usd) if weighted_cost(c, usd) < equal]
        return [x for c in better for x in (*self._between(caps, a, c), c, *self._between(caps, c, b))]

    def undominated(self, x: Alternative, watt_usd: float) -> Alternative:
        """Return the design, or one as cheap and better in a capped axis, until tightening any costs more."""
        caps = {a: x.merits[FABRIC_AXES[a]] for a in CAPPED if a in self.axes}
        for axis, value in caps.items():
            cap = self.tighter(axis, value, every=True)
            better = None if cap is None else self.cheapest(caps | {axis: cap}, watt_usd)
            if better is not None and weighted_cost(better, watt_usd) <= weighted_cost(x, watt_usd) * (1 + 1e-12):
                return self.undominated(better, watt_usd)
        return x

    def cheapest(self, caps: Mapping[str, float], watt_usd: float) -> Alternative | None:
        """Return the proven cheapest design within caps, a watt at a price; None where there is none.

        The result of a search under looser caps is the answer where it meets these, and where it was none.
        """
        for looser, usd, result in self.results:
            inside = usd == watt_usd and all(axis in caps and caps[axis] <= cap for axis, cap in looser.items())
            if inside and (result is None or self._meets(result, caps)):
                return result
        result = self._searched(caps, watt_usd)
        self.results.append((dict(caps), watt_usd, result))
        return result

    def _meets(self, x: Alternative, caps: Mapping[str, float]) -> bool:
        """Return whether a design is within caps."""
        return all(x.merits[FABRIC_AXES[axis]] <= cap * (1 + TOLERANCE) for axis, cap in caps.items())

    def _searched(self, caps: Mapping[str, float], watt_usd: float) -> Alternative | None:
        """Search for the cheapest design within caps, a watt at a price."""
        if self.deadline.passed:
            raise OutOfTimeError
        p = self.problem
        send = caps.get("time", float("inf")) / transport_slowdown_of(p.network) * (1 + TOLERANCE)
        capped = replace(
            p,
            ratios=replace(p.ratios, send=min(p.ratios.send, send)),
            max_splits=int(caps["splits"]) if "splits" in caps else None,
            min_domain=p.request.racks - int(caps.get("leaf", p.request.racks)),
            watt_usd=watt_usd,
            unit_cents=1 if watt_usd else p.unit_cents,
        )
        out = search(capped, replace(self.options, time_limit=self.deadline.limit), "alternatives")
        if out.stop is not Stop.PROVED:
            raise OutOfTimeError
        return None if out.solution is None else self._alternative(out.solution)

    def _alternative(self, chosen: FabricDesign) -> Alternative:
        """Return a design with its merits at worst: every flow leaves its leaf, and its pod and zone of several."""
        d, p = chosen.design, self.problem
        free = free_at_worst(p.request, d, chosen.switch.port_gbps)
        crossed = (d.domains > 1, 0 < d.domains_per_pod < d.domains, 0 < d.domains_per_zone < d.domains)
        slow = pipeline_send_slowdown(transport_slowdown_of(p.network), d, *map(float, crossed), free=free)
        figures: dict[str, float] = {
            "cost_usd": chosen.cost_usd,
            "pipeline_send_slowdown": slow,
            "power_mw": chosen.power_mw,
            "racks_outside_leaf": max(0, p.request.racks - d.domain_racks),
            "unavoidable_splits": chosen.unavoidable_splits,
        }
        merits = {FABRIC_AXES[a]: float(figures.pop(FABRIC_AXES[a])) for a in self.axes}
        mode = chosen.mode
        choices: dict[str, object] = {"switches": d.switches, "switch": chosen.switch.name, "planes": mode.planes}
        choices |= {"family": mode.family, "tiers": d.tiers, "leaf_domain_racks": d.domain_racks}
        choices |= {name: getattr(d, name) for name in (*DESIGN_CHOICES, *(ZONE_CHOICES if d.zones else ()))}
        return Alternative(merits=merits, choices=figures | choices)


def weighted_cost(x: Alternative, watt_usd: float) -> float:
    """Return the cost of a design with its power at a price of a watt."""
    return x.merits["cost_usd"] + (watt_usd * x.merits["power_mw"] * 1e6 if watt_usd else 0.0)


def _non_dominated(designs: list[Alternative]) -> list[Alternative]:
    """Keep, by cost, each alternative that no other matches or beats in every merit."""
    kept: list[Alternative] = []
    for a in sorted(designs, key=lambda a: tuple(a.merits.values())):
        if not any(all(b.merits[m] <= a.merits[m] for m in a.merits) for b in kept):
            kept.append(a)
    return kept
