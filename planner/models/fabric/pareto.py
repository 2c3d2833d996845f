"""The fabrics of which none is better in every axis asked for, by caps: the cheapest design within caps on all other axes.

Cost is what the search makes least. Time, leaf size and splits are capped, one within the other, each cap below the worst
that the designs within the last one had: so no design of the frontier is passed over, but for those between the steps of
the ladder of slowdowns, where it is used. Power has no cap in the model; a watt is given prices instead, so of the trade of
cost against power the designs on its convex hull are found. A design is kept only when each capped axis has been tightened
past it and nothing as good came out: with cost, and the price of a watt, least within its caps, no other dominates it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.instance.instance import Instance
from planner.models.fabric.data import TOLERANCE, Problem, leaf_domain_racks, free_at_worst, problem_of
from planner.models.fabric.design import FabricDesign
from planner.models.fabric.search import search
from planner.models.requests import FABRIC_AXES, Alternative, FabricRequest, Options
from planner.physics.network.transport import pipeline_send_slowdown
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.outcome import Stop

HOP_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over phi: caps at which alternatives are sought
BELOW = 1e-7  # relative: slowdowns are quotients of counts, which differ by more
WATT_USD = 0.01, 10_000.0  # least and most that a watt is worth, in whole cents, so that prices stay whole
CAPPED = ("time", "leaf", "splits")  # outermost first


class OutOfTimeError(Exception):
    """The time limit has come before the frontier was whole."""


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

    `every`: at every slowdown that a design has, and not only the best below each of `HOP_CAPS`. Where the time ends, those
    not reached are missing, which is reported.
    """
    f = Frontier(
        problem_of(instance, request), options, ("cost", *(a for a in FABRIC_AXES if a in set(axes) - {"cost"})), every
    )
    try:
        f.walk({}, [a for a in CAPPED if a in f.axes])
    except OutOfTimeError:
        report(f"time ended at {len(f.found)} proven designs; the frontier may have more")
    return _non_dominated(f.found)


@dataclass(slots=True)
class Frontier:
    """The designs found, and what every search has told."""

    problem: Problem
    options: Options
    axes: tuple[str, ...]
    every: bool
    found: list[Alternative] = field(default_factory=list)
    told: list[tuple[Mapping[str, float], float, Alternative | None]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def walk(self, caps: Mapping[str, float], rest: Sequence[str]) -> list[Alternative]:
        """Cap the first axis more and more, the others within it; return the designs found on the way."""
        if not rest:
            held = self.traded(caps)
            self.found += held
            return held
        axis, found, within = rest[0], [], dict(caps)
        while part := self.walk(within, rest[1:]):
            found += part
            cap = self.tighter(axis, max(x.merits[FABRIC_AXES[axis]] for x in part), every=self.every)
            if cap is None:
                break
            within[axis] = cap
        return found

    def tighter(self, axis: str, value: float, *, every: bool) -> float | None:
        """Return the next cap of an axis below a value, None where nothing is better."""
        if axis != "time":
            return value - 1 if value >= 1 else None
        transport_slowdown = transport_slowdown_of(self.problem.network)
        below = value * (1 - BELOW)
        if not every:
            return max((transport_slowdown * c for c in HOP_CAPS if transport_slowdown * c < below), default=None)
        return below if below > transport_slowdown else None

    def traded(self, caps: Mapping[str, float]) -> list[Alternative]:
        """Return the least cost within caps; with power, every trade of the two that some price of a watt makes best."""
        if "power" not in self.axes:
            return self._at(caps, 0.0)
        cheap, thrifty = (self._at(caps, usd) for usd in WATT_USD)
        return [*cheap, *(x for a, b in zip(cheap, thrifty, strict=True) for x in self._between(caps, a, b)), *thrifty]

    def _at(self, caps: Mapping[str, float], watt_usd: float) -> list[Alternative]:
        """Return the best design within caps at a price of a watt, if there is one."""
        found = self.least(caps, watt_usd)
        return [] if found is None else [self.settled(found, watt_usd)]

    def _between(self, caps: Mapping[str, float], a: Alternative, b: Alternative) -> list[Alternative]:
        """Return the trades between two: at the price of a watt at which these are worth the same, a third may be worth less (Cohon 1978)."""
        watts = (a.merits["power_mw"] - b.merits["power_mw"]) * 1e6
        if watts <= 0:
            return []
        usd = round((b.merits["cost_usd"] - a.merits["cost_usd"]) / watts, 2)
        if not WATT_USD[0] <= usd <= WATT_USD[1]:
            return []
        better = [c for c in self._at(caps, usd) if worth(c, usd) < min(worth(a, usd), worth(b, usd)) * (1 - TOLERANCE)]
        return [x for c in better for x in (*self._between(caps, a, c), c, *self._between(caps, c, b))]

    def settled(self, x: Alternative, watt_usd: float) -> Alternative:
        """Return the design, or one worth no more that is better in a capped axis, until tightening any of them costs something."""
        caps = {a: x.merits[FABRIC_AXES[a]] for a in CAPPED if a in self.axes}
        for axis, value in caps.items():
            cap = self.tighter(axis, value, every=True)
            better = None if cap is None else self.least(caps | {axis: cap}, watt_usd)
            if better is not None and worth(better, watt_usd) <= worth(x, watt_usd) * (1 + 1e-12):
                return self.settled(better, watt_usd)
        return x

    def least(self, caps: Mapping[str, float], watt_usd: float) -> Alternative | None:
        """Return the proven cheapest design within caps, a watt at a price; None where there is none.

        What a search under looser caps found is the answer where it meets these, and where it found nothing.
        """
        for looser, usd, found in self.told:
            inside = usd == watt_usd and all(axis in caps and caps[axis] <= cap for axis, cap in looser.items())
            if inside and (found is None or self._meets(found, caps)):
                return found
        found = self._searched(caps, watt_usd)
        self.told.append((dict(caps), watt_usd, found))
        return found

    def _meets(self, x: Alternative, caps: Mapping[str, float]) -> bool:
        return all(x.merits[FABRIC_AXES[axis]] <= cap * (1 + TOLERANCE) for axis, cap in caps.items())

    def _searched(self, caps: Mapping[str, float], watt_usd: float) -> Alternative | None:
        p, limit = self.problem, self.options.time_limit
        left = None if limit is None else self.started + limit - time.perf_counter()
        if left is not None and left <= 0:
            raise OutOfTimeError
        hop = min(p.ratios.hop, caps.get("time", float("inf")) / transport_slowdown_of(p.network) * (1 + TOLERANCE))
        capped = replace(
            p,
            ratios=replace(p.ratios, hop=hop),
            most_splits=int(caps["splits"]) if "splits" in caps else None,
            least_domain=p.request.racks - int(caps.get("leaf", p.request.racks)),
            watt_usd=watt_usd,
            unit_cents=1 if watt_usd else p.unit_cents,
        )
        out = search(capped, replace(self.options, time_limit=left), "alternatives")
        if out.stop is not Stop.PROVED:
            raise OutOfTimeError
        return None if out.solution is None else self._weighed(out.solution)

    def _weighed(self, found: FabricDesign) -> Alternative:
        """Weigh a design by its worst case: every flow leaves its leaf, and its pod and zone where there are several side by side."""
        d, p = found.design, self.problem
        free = free_at_worst(p.request, d, found.switch.port_gbps)
        crossed = (d.domains > 1, 0 < d.domains_per_pod < d.domains, 0 < d.domains_per_zone < d.domains)
        slow = pipeline_send_slowdown(transport_slowdown_of(p.network), d, *map(float, crossed), free=free)
        figures: dict[str, float] = {
            "cost_usd": found.cost_usd,
            "pipeline_send_slowdown": slow,
            "power_mw": found.power_mw,
            "racks_outside_leaf": max(0, p.request.racks - leaf_domain_racks(d)),
            "unavoidable_splits": found.unavoidable_splits,
        }
        merits = {FABRIC_AXES[a]: float(figures.pop(FABRIC_AXES[a])) for a in self.axes}
        choices: dict[str, object] = figures | {
            "switches": d.switches,
            "switch": found.switch.name,
            "planes": found.mode.planes,
        }
        choices |= {"family": found.mode.family, "tiers": d.tiers, "leaf_domain_racks": leaf_domain_racks(d)}
        choices |= {
            name: getattr(d, name)
            for name in ("leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "spine_up", "spine_bundle")
        }
        choices |= (
            {name: getattr(d, name) for name in ("rails_per_zone", "domains_per_zone", "core_up", "core_bundle")}
            if d.zones
            else {}
        )
        return Alternative(merits=merits, choices=choices)


def worth(x: Alternative, watt_usd: float) -> float:
    """Price of a design with its power at a price of a watt."""
    return x.merits["cost_usd"] + (watt_usd * x.merits["power_mw"] * 1e6 if watt_usd else 0.0)


def _non_dominated(found: list[Alternative]) -> list[Alternative]:
    """Keep, by cost, each alternative that no other matches or beats in every merit."""
    kept: list[Alternative] = []
    for a in sorted(found, key=lambda a: tuple(a.merits.values())):
        if not any(all(b.merits[m] <= a.merits[m] for m in a.merits) for b in kept):
            kept.append(a)
    return kept
