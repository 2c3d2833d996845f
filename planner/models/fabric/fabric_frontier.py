"""The frontier of fabrics: those of which none is better in every axis, for traffic at its worst placement.

The tables of templates are undominated in price, power and the slowdown of sends. Leaf sizes and unavoidable splits
follow from the racks of a leaf domain, so there is a table for each kind of leaf domains that are equal in the axes
asked for, the best kind first: the templates of kinds at least as good are rivals, which a template must beat. At the
worst placement every send leaves, and as many groups as can cross.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.instance.hardware import Rack
from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models import FABRIC_AXES, Alternative, FabricRequest, Options, resolved_switches
from planner.models.fabric.design_table import AT, NO_OPTIONS, DesignTable, Floats, Ints, pareto_front, undominated
from planner.models.fabric.fabric_templates import Template, Templates
from planner.models.fabric.site_mode import TOLERANCE
from planner.models.fabric.site_traffic import EXCHANGES, FLOWS, SHARES, SiteTraffic
from planner.physics.network.transport import exchange_bound
from planner.simulation.flow_times import transport_slowdown_of
from planner.solvers.signals import Deadline, OutOfTimeError

Kind = tuple[int, int]  # of leaf domains: racks outside, and splits, where these are axes
SEND_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over the transport's: the ladder of slowdowns
DIGITS = 11  # significant ones in which figures are compared
DESIGN_CHOICES = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "core_boxes",
)  # fmt: skip
ZONE_CHOICES = ("rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "super_spine_boxes")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTraffic(SiteTraffic):
    """The traffic of a request for a fabric frontier, at its worst placement; racks count as blocks."""

    group_racks: int  # of a stage, which all-reduce
    groups: int  # stages
    exchange_racks: int  # of a stage, one after another, that exchange tokens with experts; 1: none do
    max_allreduce: float  # largest factor of the fabric on the transport's slowdown that the time of all-reduces allows

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the cache key of the worst traffic's loads: all that they depend on but the number of racks."""
        return self.exchange_racks, self.group_racks, self.groups, self.max_allreduce

    def leaving(self, blocks: int, stripes: Ints, sizes: Ints, *, shares: bool, first_only: bool = False) -> Floats:
        """Count the loads of the worst traffic out of runs of racks, of `blocks` racks in all, whatever their order."""
        del first_only  # each run has as much
        # All-reduces have a limit and are no axis of a frontier, so they are counted with the exchanges: by the links
        # that keep the limit, so that no design slows them further. A run that holds all racks has no load.
        found, inside = np.zeros((len(stripes), len(sizes), 4)), sizes < self.racks(blocks)
        groups = np.minimum(-(-sizes // self.group_racks) + 1, self.groups) * (self.group_racks > 1)
        found[..., FLOWS] = sizes * inside
        found[..., SHARES] = np.minimum(1.0, sizes / self.group_racks) * shares
        tokens = exchange_bound(groups, sizes, self.exchange_racks)
        found[..., EXCHANGES] = np.maximum(tokens, groups / self.max_allreduce) * inside
        return found


def worst_traffic(network: Network, request: FabricRequest, gpus: int) -> tuple[WorstTraffic, float]:
    """Return the worst traffic of a fabric request on racks of `gpus` GPUs, and its largest send slowdown (or inf)."""
    own, r = transport_slowdown_of(network), request

    def largest(ideal_seconds: float, window_seconds: float) -> float:  # or the transport's own; any if none is sent
        return max(window_seconds / ideal_seconds, own) * (1 + TOLERANCE) if ideal_seconds > 0 else float("inf")

    send = largest(r.pipeline_send_seconds, r.pipeline_send_window_seconds)
    most = largest(r.allreduce_seconds, r.allreduce_window_seconds) / own
    traffic = WorstTraffic(
        stages=1, unit_racks=1, wrap=False, rails=r.rack_gpus or gpus, exchange_racks=r.exchange_racks,
        wan_gbps=r.wan_gbps, exchange_gbps=r.exchange_gbps, group_racks=r.group_racks, groups=r.groups,
        max_allreduce=most,
    )  # fmt: skip
    return traffic, send


def alternatives(
    instance: Instance,
    request: FabricRequest,
    options: Options,
    *,
    site: str | None = None,
    axes: Iterable[str] = ("cost", "time", "splits"),
    every: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[Alternative]:
    """Return a frontier of fabrics, none matched or beaten in all axes (of `FABRIC_AXES`; cost always counts), by cost.

    `every`: at every slowdown that a design has, and not only the best below each of `SEND_CAPS`. Where the time ends,
    those not reached are missing, which is reported.
    """
    network, rack = instance.network, instance.hardware.rack
    if network is None or not isinstance(rack, Rack):
        raise ValueError("a fabric needs a network and a rack; load the instance through planner.load")
    counted = ("cost", *(a for a in FABRIC_AXES if a in set(axes) - {"cost"}))
    pins = {path: value for path, value in instance.pins.items() if path.startswith("fabric.")}  # no order of racks
    t = Templates(
        instance=instance.replaced(pins=pins),
        transport_slowdown=transport_slowdown_of(network),
        power_counts="power" in counted,
        whole=True,
        deadline=Deadline(options.time_limit),
    )
    traffic, max_send = worst_traffic(network, request, rack.gpus)
    limits = max_send, t.transport_slowdown * traffic.max_allreduce
    # Sizes of leaf domains by racks outside and unavoidable splits, as far as these are axes.
    largest = max((m.switch.ports * m.split // m.rail_gpus for m in t.modes(traffic.rails)), default=0)
    kinds, found, ended = dict[Kind, list[int]](), dict[Kind, DesignTable](), ""
    for size in sorted({*range(1, largest + 1), request.racks}):
        outside = max(0, request.racks - size) if "leaf" in counted else 0
        split = unavoidable_splits(request.racks, traffic.group_racks, traffic.groups, size)
        kinds.setdefault((outside, split if "splits" in counted else 0), []).append(size)
    try:
        for kind, sizes in sorted(kinds.items()):
            better = [x for k, x in found.items() if all(a <= b for a, b in zip(k, kind, strict=True))]
            rivals = undominated(better, power_counts=t.power_counts)
            of_kind = replace(t, leaf_sizes=frozenset(sizes), rivals=rivals, options_of={})
            x = of_kind.options(traffic, request.racks, site=site, max_slowdowns=limits)
            found[kind] = x.part(np.isin(x.key[:, AT["domain"]], sizes))
    except OutOfTimeError:
        ended = "time ended at {} proven designs; the frontier may have more"
    # Those that none matches or beats, by the figures of the table, and of these by the exact ones.
    x = DesignTable.joined([NO_OPTIONS, *found.values()])
    domain = x.key[:, AT["domain"]]
    splits = [unavoidable_splits(request.racks, traffic.group_racks, traffic.groups, n) for n in domain.tolist()]
    by_axis = {"cost": x.usd, "time": x.send, "power": x.mw, "splits": splits}
    by_axis["leaf"] = np.maximum(0, request.racks - domain)
    kept = pareto_front(_rounded(np.array([by_axis[a] for a in counted], dtype=np.float64).T)).tolist()
    designs = [_alternative(t, traffic, t.template(traffic, request.racks, x, i), counted) for i in kept]
    designs = [designs[i] for i in pareto_front(_rounded(_figures(designs, counted))).tolist()]
    if not every and "time" in counted:
        designs = _ladder(designs, counted, t.transport_slowdown)
    if ended:
        report(ended.format(len(designs)))
    return designs


def unavoidable_splits(racks: int, group_racks: int, groups: int, domain: int) -> int:
    """Count the groups of worst traffic that no placement keeps in one leaf domain: those beyond all domains' room."""
    full, last = divmod(racks, domain)
    return max(0, groups - full * (domain // group_racks) - last // group_racks)


def _figures(designs: Sequence[Alternative], axes: Iterable[str]) -> Floats:
    names = [FABRIC_AXES[a] for a in axes]
    return np.array([[x.merits[name] for name in names] for x in designs]).reshape(len(designs), len(names))


def _rounded(figures: Floats) -> Floats:
    """Round a frontier's figures, so that prices are equal that differ only by the order in which they were summed."""
    return np.array([float(f"{x:.{DIGITS}g}") for x in figures.ravel().tolist()]).reshape(figures.shape)


def _ladder(designs: list[Alternative], axes: Sequence[str], transport_slowdown: float) -> list[Alternative]:
    """Return the designs of a frontier that are the best below some step of the ladder of send slowdowns."""
    # No other design below that step costs or draws less without being worse in leaf size or splits. At equal prices
    # all trade-offs are kept.
    scarce = _rounded(_figures(designs, [a for a in axes if a in ("cost", "power")]))
    others = _rounded(_figures(designs, [a for a in axes if a in ("leaf", "splits")]))
    send, kept = _figures(designs, ["time"])[:, 0], set[int]()
    for cap in (*SEND_CAPS, np.inf):
        within = np.flatnonzero(send <= transport_slowdown * cap * (1 + TOLERANCE))
        for i in within.tolist():
            as_good = within[(others[within] <= others[i]).all(axis=1) & (scarce[within] <= scarce[i]).all(axis=1)]
            if (scarce[as_good] == scarce[i]).all():
                kept.add(i)
    return [designs[i] for i in sorted(kept)]


def _alternative(t: Templates, traffic: WorstTraffic, x: Template, axes: Sequence[str]) -> Alternative:
    d, planes = x.design, {s.name: s.planes for s in resolved_switches(t.network.switches)}
    figures: dict[str, float] = {
        "cost_usd": x.usd,
        "pipeline_send_slowdown": x.send,
        "power_mw": x.mw,
        "racks_outside_leaf": max(0, d.racks - d.domain_racks),
        "unavoidable_splits": unavoidable_splits(d.racks, traffic.group_racks, traffic.groups, d.domain_racks),
    }
    merits = {FABRIC_AXES[a]: float(figures.pop(FABRIC_AXES[a])) for a in axes}
    choices: dict[str, object] = {"switches": d.switches, "switch": x.switch, "planes": planes[x.switch] * d.lanes}
    others = zip(("spine_switch", "core_switch"), x.above[: d.tiers - 1], strict=False)
    choices |= {pin: name for pin, name in others if name != x.switch}
    choices |= {"rails_per_leaf": d.rail_gpus} if x.family == "rail" else {}
    choices |= {"family": x.family, "tiers": d.tiers, "leaf_domain_racks": d.domain_racks}
    choices |= {name: getattr(d, name) for name in (*DESIGN_CHOICES, *(ZONE_CHOICES if d.zones else ()))}
    return Alternative(merits=merits, choices=figures | choices)
