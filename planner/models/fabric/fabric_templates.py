"""The fabric templates of one site: what each costs and draws, and how it slows a column's traffic; their frontier.

A template is a switch in a family, d racks to a leaf domain, the ports, bundles and shapes of every tier above, and the
stripes of the order of racks. What it costs is `bill` of its design; the tables add up the same switches and links for
all of them at once.

The frontier has the fabrics of which none is better in every axis, for traffic at its worst placement: every send
leaves, and as many groups as can cross. The tables are undominated in price, power and the slowdown of sends. Leaf
sizes and unavoidable splits follow from the racks of a leaf domain, so there is a table for each kind of leaf domains
that are equal in the axes asked for, the best kind first: the templates of kinds at least as good are rivals, which a
template must beat.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from operator import ge
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.network import FabricFamily, Network, Switch
from planner.models import Options
from planner.models.fabric import dragonfly_templates, site_traffic, tree_templates
from planner.models.fabric import template_table as tables
from planner.models.fabric.site_mode import LinkPrices, Mode, Pins, SiteMode, Trees, switch_modes
from planner.models.fabric.site_traffic import LeafLoads, Loads, SiteTraffic, WorstTraffic
from planner.models.fabric.template_table import (
    AT,
    NO_OPTIONS,
    TOLERANCE,
    DesignTable,
    Limits,
    pareto_front,
    undominated,
)
from planner.physics import Floats, Ints
from planner.physics.network import uplink_slowdowns
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cost import bill, switch_usd
from planner.physics.network.fabric_designs import RackPorts, design_for, same_ports
from planner.physics.site import wan
from planner.simulation.simulated_slowdown import transport_slowdown_of
from planner.solvers.search_deadline import Deadline, OutOfTimeError
from planner.units import counted

# Of the templates of one kind of fabric (trees, dragonflies, four tiers) with leaf domains of some sizes.
Builder = Callable[[SiteMode, Ints, LeafLoads], Iterator[list[DesignTable]]]
Lengths = dict[int, dict[str, dict[int, tuple[float, float]]]]  # prices by racks, kind of link and sizes that it joins
FrontierRow = dict[str, Any]  # figures and choices of a design of the frontier, as `planner fabric pareto` prints them
PRICE_STEP = 50e6  # dollars to which a limit on prices is rounded up, so that a table serves several shapes
WIDER = 1.6  # times a limit on prices, where a table for the same blocks was built before
MOST_LOADS = 40  # orders of racks whose counts are kept
SWITCH_PINS = ("switch", "family", "ports_per_switch", "planes", "spine_switch", "core_switch")
SEND_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over the transport's: the ladder of slowdowns
DIGITS = 11  # significant ones in which figures are compared
DESIGN_CHOICES = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "core_boxes",
)  # fmt: skip
ZONE_CHOICES = ("rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "super_spine_boxes")

# Axes in which fabrics are compared, all minimized, and the figure of merit of each.
FABRIC_AXES = {
    "cost": "cost_usd",
    "time": "pipeline_send_slowdown",
    "power": "power_mw",
    "leaf": "racks_outside_leaf",
    "splits": "unavoidable_splits",
}


@dataclass(frozen=True, slots=True)
class Template:
    """A fabric template: a site's design with an order of racks, its price, power, and slowdowns by uplinks."""

    models: tuple[Switch, ...]  # from the leaf up
    family: FabricFamily
    design: Design
    stripes: int
    usd: float
    mw: float
    send: float
    allreduce: float


@dataclass(kw_only=True)
class Templates:
    """The fabric templates of an instance, built once for each column's traffic, number of blocks, and site's pins."""

    instance: Instance
    transport_slowdown: float
    power_counts: bool
    max_mw: float = math.inf  # that the fabric of a site may draw; below infinity only where power counts
    without_stripes: int | None = None  # a number of stripes that no plan may have
    leaf_sizes: frozenset[int] | None = None  # racks that a leaf domain may have; None: any
    rivals: DesignTable = NO_OPTIONS  # templates that others must beat in something
    min_local_share: float = 0.0  # of the all-reduce groups under one leaf; above 0 only trees of up to three tiers
    whole: bool = False  # all undominated templates: also between the cheapest and the most frugal, and of four tiers
    options_of: dict[Any, list[tuple[Limits, DesignTable]]] = field(default_factory=dict)  # by limits that none covers
    tops: dict[Any, tuple[Trees, Floats]] = field(default_factory=dict)  # of pods with all leaf domains
    loads_of: dict[Any, Loads] = field(default_factory=dict)
    lengths: Lengths = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; a table cut short by it is not kept
    latest: DesignTable = NO_OPTIONS  # of the table that is being built, or was last

    @cached_property
    def network(self) -> Network:
        """Return the network whose switches the fabric templates take. InputError: the instance has none."""
        network = self.instance.network
        if network is None:
            raise InputError("network: is missing; a fabric cannot be chosen without it")
        return network

    def pins(self, site: str | None) -> Pins:
        """Return the pins of the fabric templates of a site: its own over those of all sites."""
        every = {path.removeprefix("fabric."): own for path, own in self.instance.pins.items() if path[:7] == "fabric."}
        found = {name: value for name, value in every.items() if "." not in name}
        if site is not None:
            found |= {name.removeprefix(f"{site}."): own for name, own in every.items() if name.startswith(f"{site}.")}
        names = [x.name for x in self.network.switches]
        for pin in ("switch", "spine_switch", "core_switch"):
            if found.get(pin, names[0]) not in names:
                raise InputError(f"pins: {pin} {found[pin]!r} is none of network.switches ({', '.join(names)})")
        if "placement.stripes" in self.instance.pins:
            found["stripes"] = self.instance.pins["placement.stripes"]
        if self.without_stripes is not None:
            found["not_stripes"] = self.without_stripes
        if self.leaf_sizes is not None:
            found["leaf_sizes"] = self.leaf_sizes
        return found

    def refuse_switches(self, gpus: int, site: str | None) -> None:
        """Refuse a network that no fabric template can use: no switch carries a GPU's NIC, or the pins leave none."""
        nic = self.instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9
        n, modes = self.network, self.modes(gpus)
        if not modes:
            ports = ", ".join(f"{x.name}: {x.port_gbps:g} Gbps" for x in n.switches)
            raise InputError(
                f"network.switches: no ports carry a NIC of {nic:g} Gbps within network.max_lanes = {n.max_lanes} "
                f"({ports}); give a switch with faster ports, or raise network.max_lanes"
            )
        pins = self.pins(site)
        if not any(_allowed(mode, pins) and self._pairs(mode, pins) for mode in modes):
            named = ", ".join(f"{name} = {pins[name]!r}" for name in SWITCH_PINS if name in pins)
            known = "; ".join(
                f"{x.switch.name} with {x.switch.ports} ports in {counted(x.planes, 'plane')} as {x.family}"
                for x in modes
            )
            raise InputError(f"pins.fabric: {named} leaves none of network.switches; they are {known}")

    def modes(self, rails: int) -> list[Mode]:
        """List the modes of fabric templates, switches in their families, for racks of `rails` GPUs at work."""
        return list(switch_modes(self.network, rails, self.instance.hardware.gpu_nic_bytes_per_second))

    def _pairs(self, mode: Mode, pins: Pins) -> tuple[tuple[int, int], ...]:
        """Return the models that a template's spines and cores may be of, by place from 1; 0: the leaf's model."""
        # They have its ports and the pins allow them; models with no more ports for no less money and power are left
        # out.
        every = enumerate(self.network.switches, 1)
        alike = {0: mode.switch} | {i: x for i, x in every if x != mode.switch and same_ports(x, mode.switch)}

        def cost(x: Switch) -> tuple[float, float]:
            return switch_usd(self.network, x), x.power_watts * self.power_counts

        def models(pin: str) -> list[int]:
            kept: dict[int, tuple[float, float]] = {}
            for i, x in sorted(alike.items(), key=lambda item: (-item[1].ports, *cost(item[1]), item[0])):
                usd, watts = cost(x)
                if pins.get(pin, x.name) == x.name and not any(a <= usd and b <= watts for a, b in kept.values()):
                    kept[i] = usd, watts
            return sorted(kept)

        return tuple(product(models("spine_switch"), models("core_switch")))

    def options(
        self,
        traffic: SiteTraffic,
        blocks: int,
        max_usd: float = math.inf,
        site: str | None = None,
        *,
        max_slowdowns: tuple[float, float] = (math.inf, math.inf),
        shallow: bool = False,
    ) -> DesignTable:
        """Return the fabric templates of a site that holds `blocks` blocks of a column, as a table of templates.

        Left out are those dearer than `max_usd`, rounded up, those that slow sends or allreduces by more than
        `max_slowdowns`, those that draw more than the power limit, and with `shallow`, where fewer tiers suffice, those
        of four. A table within some limits serves all limits that are no wider.
        """
        max_usd = math.ceil(max_usd / PRICE_STEP) * PRICE_STEP if math.isfinite(max_usd) else math.inf
        pins, traffic, limits = self.pins(site), self._asked(traffic), (max_usd, max_slowdowns)
        key = traffic, blocks, tuple(sorted(pins.items()))
        known = (*self.options_of.get((*key, shallow), ()), *self.options_of.get((*key, False), ()))
        found = next((x for own, x in known if own[0] >= limits[0] and all(map(ge, own[1], limits[1]))), None)
        if found is None:
            # A table that is built again is mostly asked for dearer fabrics next.
            wide = max_usd * (WIDER if any(len(x) for _, x in known) else 1), max_slowdowns
            listed = [x.within(wide) for _, x in known]  # within other limits, which rule out most of the others
            found = self._built(traffic, blocks, wide, pins, listed, shallow=shallow)
            self.options_of.setdefault((*key, shallow), []).append((wide, found))
        return found.within(limits, self.max_mw)

    def _asked(self, traffic: SiteTraffic) -> SiteTraffic:
        return traffic if self.network.wan_gateway else replace(traffic, wan_gbps=0.0, exchange_gbps=0.0)

    def _built(
        self, traffic: SiteTraffic, blocks: int, limits: Limits, pins: Pins, listed: list[DesignTable], *, shallow: bool
    ) -> DesignTable:
        """Build a site's templates: trees with all domains in a pod first, then others; `listed`: known ones."""
        racks, sites, alone = traffic.racks(blocks), list[SiteMode](), list[DesignTable]()
        known, order = self.lengths.setdefault(racks, {}), (traffic.order, blocks)
        if order not in self.loads_of:
            if len(self.loads_of) >= MOST_LOADS:
                self.loads_of.pop(next(iter(self.loads_of)))
            self.loads_of[order] = Loads(traffic, blocks)
        for i, mode in enumerate(self.modes(traffic.rails)):
            # A leaf that holds an all-reduce group whole holds a unit of each block.
            largest = mode.switch.ports * mode.split // mode.rail_gpus
            barred = self.min_local_share > 0 and (mode.grouped or largest < traffic.unit_racks * blocks)
            if barred or not _allowed(mode, pins) or traffic.lanes not in (0, mode.lanes):
                continue
            one = SiteMode(
                index=i, pins=pins, traffic=traffic, blocks=blocks,
                loads=self.loads_of[order], transport_slowdown=self.transport_slowdown,
                power_counts=self.power_counts, whole=self.whole, max_usd=limits[0], max_slowdowns=limits[1],
                prices=LinkPrices(network=self.network, mode=mode, racks=racks, known=known),
                tick=self.deadline.check, tops=self.tops,
            )  # fmt: skip
            pairs = self._pairs(mode, pins)
            if mode.grouped:  # groups have no cores, and of routers all are leaves
                pairs = tuple(dict.fromkeys((spine * mode.has_spines, 0) for spine, _ in pairs))
            else:
                alone += tree_templates.single(one)
            for k, (spine, core) in enumerate(pairs):
                first = spine not in (other for other, _ in pairs[:k])
                sites.append(replace(one, spine=spine, core=core, first_core=first))
        sites = [s for s in sites if len(s.stripes)]
        self._meet([self.rivals, *alone, *listed], sites)
        self._add(tree_templates.with_all_domains, 2, sites, every=16)
        self._add(tree_templates.with_some_domains, 3, sites)
        if not self.min_local_share:
            self._add(dragonfly_templates.with_groups, 1, sites)
            if not (shallow and len(self.latest)):
                self._add(tree_templates.with_zones, 4, sites)
        return self.latest

    def _add(self, build: Builder, tiers: int, sites: list[SiteMode], *, every: int = 1) -> None:
        """Add the fabric templates of one kind, of `tiers` tiers or more, where they beat those found so far."""
        # Where nothing slows traffic the cheapest rules the others out: then the mode of the cheapest comes first. One
        # of `every` sizes of leaf domains is built first: these rule out most of the others.
        sizes_of = [(s, s.sizes(tiers)) for s in sites]
        begun = slice(every // 2, None, every)
        for first in (True, False):
            groups = list[tuple[float, SiteMode, Ints, Floats]]()
            for s, own in sizes_of:
                sizes = own[begun] if first else np.delete(own, begun)
                if not len(sizes):
                    continue
                prices = s.least_prices(sizes, s.leaf_share(sizes), tiers)
                order = np.argsort(prices[0], kind="stable")
                order = order[s.worthwhile(1.0, 1.0, *prices)[order]]
                if len(order):
                    groups.append((prices[0, order[0]], s, sizes[order], prices[:, order]))
            if not groups:
                continue
            one = groups[0][1]  # of the same traffic and pins as all
            sizes = np.unique(np.concatenate([group[2] for group in groups]))
            leaves = one.loads.leaves(sizes, one.stripes, self.min_local_share, self.deadline.check)
            for _, s, domains, prices in sorted(groups, key=lambda x: x[0]) if one.traffic.nothing else groups:
                left = domains[s.worthwhile(1.0, 1.0, *prices)]
                for more in build(s, left, leaves) if len(left) else ():
                    self.deadline.check()
                    if any(len(x) for x in more):
                        self._meet([self.latest, *more], sites)

    def _meet(self, parts: list[DesignTable], sites: list[SiteMode]) -> None:
        """Join tables of fabric templates, and make the result the front that templates built later must beat."""
        self.latest = undominated(parts, power_counts=self.power_counts)
        front = tables.DominanceTest(self.latest, power_counts=self.power_counts)
        for s in sites:
            s.front = front

    def template(self, traffic: SiteTraffic, blocks: int, x: DesignTable, i: int) -> Template:
        """Return row `i` of a table as a full fabric template: price and power by the bill, slowdowns as checked."""
        k = {name: int(x.key[i, at]) for name, at in AT.items()}
        m, n = self.modes(traffic.rails)[k["mode"]], self.network
        # The model of each tier above the leaves; super-spines are of the cores' model.
        places, every = [k["spine_model"], k["core_model"]], n.switches
        places.append(k["core_model"] if k["core_up"] else 0)
        models = m.switch, *(every[place - 1] if place else m.switch for place in places)
        single = not (k["leaf_up"] or m.grouped)  # one switch of each network takes the GPUs of all rails
        own: dict[str, Any] = {name: k[name] for name in tables.COUNTS} | {"lanes": m.lanes, "split": m.split}
        own["leaf_down"] = k["domain"] * m.rail_gpus * (m.rails if single else 1)
        own["wan_ports"] = wan.wan_ports(self._asked(traffic).wan_gbps, m.networks, m.switch.port_gbps)
        rack, nic = RackPorts(m.rails, m.rail_gpus, m.apart), self.instance.hardware.gpu_nic_bytes_per_second
        design = design_for(m.family, n, models, traffic.racks(blocks), rack, nic, **own)
        found = bill(n, m.switch, design, models[1:])
        # The loads counted on the order of racks, out of a leaf, a pod and a zone.
        domains = 1, design.domains_per_pod, design.domains_per_zone
        sizes = [design.domain_racks * count or design.racks for count in domains]
        flows, groups, shares, _ = Loads(traffic, blocks).at(k["stripes"], np.array(sizes)).T.tolist()
        free = uplink_slowdowns.free_uplinks(design, self._asked(traffic).exchange_gbps, *shares)
        leaving = [count / size for count, size in zip(flows, sizes, strict=True)]
        loads = uplink_slowdowns.uplink_loads(design, leaving, [*map(int, groups)], free)
        send, allreduce = uplink_slowdowns.slowdowns(self.transport_slowdown, loads)
        return Template(models, m.family, design, k["stripes"], found.usd, found.mw, send, allreduce)


def _allowed(mode: Mode, pins: Pins) -> bool:
    own = {"planes": mode.planes, "ports_per_switch": mode.switch.ports, "switch": mode.switch.name}
    own |= {"family": mode.family}
    grouped = mode.grouped or "group_links" not in pins
    return grouped and all(pins.get(name, value) == value for name, value in own.items())


def alternatives(
    instance: Instance,
    request: site_traffic.FabricRequest,
    options: Options,
    *,
    site: str | None = None,
    axes: Iterable[str] = ("cost", "time", "splits"),
    every: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[FrontierRow]:
    """Return the frontier of fabric templates for a request, cheapest first: none beaten in all axes (and cost).

    `every`: at every slowdown that a design has, and not only the best below each of `SEND_CAPS`. Where the time ends,
    those not reached are missing, which is reported.
    """
    network = instance.network
    if network is None:
        raise ValueError("a fabric needs a network")
    asked = {"cost", *axes}
    counted = [axis for axis in FABRIC_AXES if axis in asked]
    pins = {path: value for path, value in instance.pins.items() if path.startswith("fabric.")}  # no order of racks
    t = Templates(
        instance=instance.replaced(pins=pins),
        transport_slowdown=transport_slowdown_of(network),
        power_counts="power" in counted,
        whole=True,
        deadline=Deadline(options.time_limit),
    )
    traffic, max_send = site_traffic.worst_traffic(network, request, instance.hardware.rack.gpus)
    limits = max_send, t.transport_slowdown * traffic.max_allreduce
    # Sizes of leaf domains by kind: racks outside and unavoidable splits, as far as these are axes.
    largest = max((m.switch.ports * m.split // m.rail_gpus for m in t.modes(traffic.rails)), default=0)
    kinds, found, ended = dict[tuple[int, int], list[int]](), dict[tuple[int, int], DesignTable](), ""
    for size in sorted({*range(1, largest + 1), request.racks}):
        outside = max(0, request.racks - size) if "leaf" in counted else 0
        kinds.setdefault(
            (outside, site_traffic.unavoidable_splits(request, size) if "splits" in counted else 0), []
        ).append(size)
    try:
        for kind, sizes in sorted(kinds.items()):
            better = [x for k, x in found.items() if all(a <= b for a, b in zip(k, kind, strict=True))]
            rivals = undominated(better, power_counts=t.power_counts)
            of_kind = replace(t, leaf_sizes=frozenset(sizes), rivals=rivals, options_of={})
            x = of_kind.options(traffic, request.racks, site=site, max_slowdowns=limits)
            found[kind] = x.part(np.isin(x.key[:, AT["domain"]], sizes))
    except OutOfTimeError:
        ended = "time ended at {} proven designs; the frontier may have more"
    x = DesignTable.joined([NO_OPTIONS, *found.values()])
    designs = [_row(traffic, t.template(traffic, request.racks, x, i), counted) for i in range(len(x))]
    designs = [designs[i] for i in pareto_front(_figures(designs, counted)).tolist()]
    if not every and "time" in counted:
        designs = _ladder(designs, counted, t.transport_slowdown)
    if ended:
        report(ended.format(len(designs)))
    return designs


def _figures(designs: Sequence[FrontierRow], axes: Sequence[str]) -> Floats:
    """Return a frontier's figures, rounded: prices that differ by the order in which they were summed are equal."""
    figures = [[float(f"{x[FABRIC_AXES[a]]:.{DIGITS}g}") for a in axes] for x in designs]
    return np.array(figures).reshape(len(designs), len(axes))


def _ladder(designs: list[FrontierRow], axes: Sequence[str], transport_slowdown: float) -> list[FrontierRow]:
    """Return the designs of a frontier that are the best below some step of the ladder of send slowdowns."""
    # No other design below that step costs or draws less without being worse in leaf size or splits. At equal prices
    # all trade-offs are kept.
    scarce = _figures(designs, [a for a in axes if a in ("cost", "power")])
    others = _figures(designs, [a for a in axes if a in ("leaf", "splits")])
    send, kept = _figures(designs, ["time"])[:, 0], set[int]()
    for cap in (*SEND_CAPS, np.inf):
        within = np.flatnonzero(send <= transport_slowdown * cap * (1 + TOLERANCE))
        for i in within.tolist():
            as_good = within[(others[within] <= others[i]).all(axis=1) & (scarce[within] <= scarce[i]).all(axis=1)]
            if (scarce[as_good] == scarce[i]).all():
                kept.add(i)
    return [designs[i] for i in sorted(kept)]


def _row(traffic: WorstTraffic, x: Template, axes: Sequence[str]) -> FrontierRow:
    d, (leaf, *above) = x.design, x.models
    figures = {
        "cost_usd": x.usd,
        "pipeline_send_slowdown": x.send,
        "power_mw": x.mw,
        "racks_outside_leaf": max(0, d.racks - d.domain_racks),
        "unavoidable_splits": site_traffic.unavoidable_splits(traffic.request, d.domain_racks),
    }
    row: FrontierRow = {FABRIC_AXES[a]: float(figures.pop(FABRIC_AXES[a])) for a in axes}
    row |= figures | {"switches": d.switches, "switch": leaf.name, "planes": leaf.planes * d.lanes}
    others = zip(("spine_switch", "core_switch"), above[: d.tiers - 1], strict=False)
    row |= {pin: box.name for pin, box in others if box.name != leaf.name}
    row |= {"rails_per_leaf": d.rail_gpus} if x.family == "rail" else {}
    row |= {"family": x.family, "tiers": d.tiers, "leaf_domain_racks": d.domain_racks}
    return row | {name: getattr(d, name) for name in (*DESIGN_CHOICES, *(ZONE_CHOICES if d.zones else ()))}
