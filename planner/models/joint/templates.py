"""Fabric templates of one site.

Trees whose leaf domains share a pod, what they cost and draw, and how they slow a column's traffic. A template is a
switch, d racks to a leaf domain, u uplinks of a leaf in bundles of b, pods of x rails, and the stripes of the order
of racks. What it costs is `price.bill` of its design; the tables here add up the same switches and links for all of
them at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models.fabric.data import PINS, Mode, _modes
from planner.models.joint import stripes
from planner.models.joint.template_tables import Options, priced_within, undominated, undominated_pairs
from planner.physics.network.price import Bill, bill, by_reach, endpoint_factor, flat_usd, switch_usd
from planner.physics.network.topology import Design
from planner.physics.network.transport import allreduce_slowdown, pipeline_send_slowdown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
PRICE_STEP = 50e6  # dollars to which a limit on prices is rounded up, so that a table serves several shapes
SKIPPED = ("dragonfly", "dragonfly+")  # families without a template yet: outside of the declared space


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What templates must know of a column.

    Rack stages, racks of a unit, whether the last stage sends to the first, and rails.
    """

    stages: int
    unit_racks: int
    wrap: bool
    rails: int

    def racks(self, blocks: int) -> int:
        """Racks of so many blocks."""
        return self.stages * self.unit_racks * blocks


@dataclass(frozen=True, slots=True)
class Template:
    """One fabric of a site with the order of its racks, what it costs and draws.

    And its slowdowns of sends and allreduces.
    """

    switch: str
    family: str
    design: Design
    stripes: int
    usd: float
    mw: float
    send: float
    allreduce: float


@dataclass(kw_only=True)
class Templates:
    """The templates of an instance, worked out once for each column's traffic and number of blocks."""

    instance: Instance
    transport_slowdown: float
    power_counts: bool
    options_of: dict[tuple[Traffic, int, float], Options] = field(default_factory=dict)
    tops: dict[tuple[int, int, int], "Tops"] = field(default_factory=dict)

    @cached_property
    def network(self) -> Network:
        """What fabrics may be built from."""
        network = self.instance.network
        if network is None:
            raise InputError("network: is missing; a fabric cannot be chosen without it")
        if by_reach(network) or network.wan_gateway:
            raise InputError("network: media by length and wan_gateways have no template of the joint optimum yet")
        return network

    @cached_property
    def pins(self) -> dict[str, int]:
        """Pinned choices of the fabric."""
        return {
            name: int(self.instance.pins[f"fabric.{name}"]) for name in PINS if f"fabric.{name}" in self.instance.pins
        }

    def modes(self, rails: int) -> list[Mode]:
        """List the switches in their families for racks of so many GPUs at work."""
        gpu = self.instance.hardware.accelerator
        if not isinstance(gpu, Accelerator):
            raise TypeError("hardware.accelerator is a name; load the instance through planner.load")
        return [m for m in _modes(self.network, rails, self.pins, gpu.nic_bytes_per_second) if m.family not in SKIPPED]

    def options(self, traffic: Traffic, blocks: int, max_usd: float = math.inf) -> Options:
        """Return the templates of a site with so many blocks of a column.

        Those above the price, rounded up, are left out.
        """
        max_usd = math.ceil(max_usd / PRICE_STEP) * PRICE_STEP if math.isfinite(max_usd) else math.inf
        key = traffic, blocks, max_usd
        if key not in self.options_of:
            parts = [
                x
                for i, mode in enumerate(self.modes(traffic.rails))
                for x in self._of_mode(i, mode, traffic, blocks, max_usd)
            ]
            self.options_of[key] = undominated(
                [priced_within(x, max_usd) for x in parts], power_counts=self.power_counts
            )
        return self.options_of[key]

    def _of_mode(self, index: int, mode: Mode, traffic: Traffic, blocks: int, max_usd: float) -> Iterator[Options]:
        """Yield the templates of a switch in a family: a single switch, and trees with leaf domains of every size."""
        racks = traffic.racks(blocks)
        single = self._single(mode, racks)
        if single is not None:
            one = np.ones(1)
            yield self._table(index, one, one, single.usd * one, single.mw * one, np.array([[racks, 0, 0, 0, 1]]))
        domains = [d for d in self._domains(mode, traffic, racks) if self._least_usd(mode, racks, d) <= max_usd]
        if not domains or self.network.max_tiers < 2 or self.pins.get("tiers", 2) == 1:
            return
        counted = self._counted(traffic, blocks, tuple(d // traffic.unit_racks for d in domains))
        for d, crossing in zip(domains, counted, strict=True):
            yield from self._of_domain(index, mode, racks, d, crossing)

    def _least_usd(self, mode: Mode, racks: int, domain: int) -> float:
        """Bound the price of trees with leaf domains of so many racks.

        Links of GPUs, and leaves with one uplink each.
        """
        gpu_usd, link_usd = flat_usd(self.network, mode.switch, mode.split)
        ends = racks * mode.rails * mode.rail_gpus * mode.apart * mode.lanes
        return ends * gpu_usd + mode.networks * -(-racks // domain) * mode.rails * (
            switch_usd(self.network, mode.switch) + link_usd
        )

    def _single(self, mode: Mode, racks: int) -> Bill | None:
        design = self.design(mode, racks, (racks, 0, 0, 0))
        shut = self.pins.get("tiers", 1) != 1 or self.pins.get("leaf_domain_racks", racks) != racks
        if (
            shut
            or self.pins.get("leaf_up_ports", 0)
            or design.faults()
            or {"spine_down_ports", "core_down_ports"} & set(self.pins)
        ):
            return None
        return bill(self.network, mode.switch, design)

    def _domains(self, mode: Mode, traffic: Traffic, racks: int) -> list[int]:
        """List the sizes of leaf domains.

        Whole units, no more than the site has unless a pin says so, and a port left for an uplink.
        """
        most = mode.switch.ports * mode.split // mode.rail_gpus
        sizes = range(traffic.unit_racks, min(most, racks) + 1, traffic.unit_racks)
        wanted = self.pins.get("leaf_domain_racks")
        if "leaf_down_ports" in self.pins:
            down = self.pins["leaf_down_ports"] // mode.rail_gpus
            wanted = down if self.pins["leaf_down_ports"] % mode.rail_gpus == 0 and wanted in (None, down) else 0
        if wanted is not None:
            sizes = range(wanted, wanted + 1) if wanted > 0 and wanted % traffic.unit_racks == 0 else range(0)
        return [d for d in sizes if self._uplinks(mode, d) > 0]

    def _uplinks(self, mode: Mode, domain: int) -> int:
        """Most uplinks of a leaf that serves so many racks."""
        down = domain * mode.rail_gpus
        return (mode.switch.ports * mode.split - down - mode.spare(self.network, down)) // mode.split

    def _counted(self, traffic: Traffic, blocks: int, domains: tuple[int, ...]) -> list[list[tuple[int, int, int]]]:
        """Count for each domain, in units, the flows and allreduces that leave it under each number of stripes.

        Those not beaten in both.
        """
        found: list[list[tuple[int, int, int]]] = [[] for _ in domains]
        wanted = self.instance.pins.get("placement.stripes")
        for n in range(1, traffic.stages + 1):
            if wanted not in (None, n):
                continue
            flows, allreduces = stripes.crossings(traffic.stages, blocks, n, domains, wrap=traffic.wrap)
            for pairs, flow, allreduce in zip(found, flows.tolist(), allreduces.tolist(), strict=True):
                pairs.append((flow * traffic.unit_racks, allreduce, n))
        return [undominated_pairs(pairs) for pairs in found]

    def _of_domain(
        self, index: int, mode: Mode, racks: int, domain: int, crossing: list[tuple[int, int, int]]
    ) -> Iterator[Options]:
        """Yield the templates of a leaf domain.

        Every number of uplinks, at the cheapest and at the most frugal spines and cores.
        """
        n = -(-racks // domain)
        top = self._tops(mode, domain, n)
        if top is None or not crossing:
            return
        up, leaves = top.up, mode.networks * n * mode.rails
        gpu_usd, link_usd = flat_usd(self.network, mode.switch, mode.split)
        ends = racks * mode.rails * mode.rail_gpus * mode.apart * mode.lanes
        usd = ends * gpu_usd + leaves * (switch_usd(self.network, mode.switch) + up * link_usd) + top.usd
        mw = ends * self._end_mw(mode) + leaves * (mode.switch.power_watts / 1e6 + up * self._link_mw(mode)) + top.mw
        for flow, allreduce, n_stripes in crossing:
            share = mode.rail_gpus / (up * mode.split)
            send, allreduces = np.maximum(1.0, flow * share), np.maximum(1.0, allreduce * share)
            key = np.stack([np.full(len(up), domain), up, top.bundle, top.rails, np.full(len(up), n_stripes)], axis=1)
            yield self._table(index, send, allreduces, usd, mw, key)

    def _table(self, index: int, send: Floats, allreduce: Floats, usd: Floats, mw: Floats, key: Ints) -> Options:
        phi = self.transport_slowdown
        return Options(
            phi * send, phi * allreduce, usd, mw, np.concatenate([np.full((len(key), 1), index), key], axis=1)
        )

    def _end_mw(self, mode: Mode) -> float:
        n = self.network
        return n.cables.endpoint_transceivers * n.optics.power_watts * endpoint_factor(mode.switch, mode.split) / 1e6

    def _link_mw(self, mode: Mode) -> float:
        n = self.network
        return n.cables.switch_transceivers * n.optics.power_watts * mode.switch.link_factor / 1e6

    def _tops(self, mode: Mode, domain: int, n: int) -> "Tops | None":
        """Return spines and cores over so many leaf domains, for every number of uplinks."""
        most = self._uplinks(mode, domain)
        key = (
            id(mode.switch),
            hash((mode.family, mode.rails, mode.lanes, mode.split, domain if self.network.min_core_share else 0)),
            n,
        )
        if key not in self.tops:
            self.tops[key] = _tops_over(self, mode, domain, n)
        top = self.tops[key]
        kept = (top.up <= most) & (top.up == self.pins.get("leaf_up_ports", top.up))
        return top.part(kept) if kept.any() else None

    def design(self, mode: Mode, racks: int, key: tuple[int, int, int, int]) -> Design:
        """Return the design of a template: leaf domain, uplinks, bundle and rails of a pod.

        No uplinks: a single switch.
        """
        domain, up, bundle, rails = key
        own: dict[str, Any] = {
            "ports": mode.switch.ports,
            "rails": mode.rails,
            "racks": racks,
            "rail_gpus": mode.rail_gpus,
            "apart": mode.apart,
        }
        own |= {"lanes": mode.lanes, "split": mode.split, "leaf_down": domain * mode.rail_gpus}
        own["leaf_spare"] = mode.spare(self.network, domain * mode.rail_gpus)
        if up == 0:
            return Design(**own)
        n = -(-racks // domain)
        own |= {"leaf_up": up, "leaf_bundle": bundle, "rails_per_pod": rails, "domains_per_pod": n}
        if rails < mode.rails:
            spine_up, spine_bundle = _core_links(
                self.network, mode, domain * mode.rail_gpus * rails * n, up // bundle, -(-mode.rails // rails)
            )
            own |= {"spine_up": spine_up, "spine_bundle": spine_bundle}
        return Design(**own)

    def template(self, traffic: Traffic, blocks: int, x: Options, i: int) -> Template:
        """Return one of the options in full, its price and power by the bill.

        Its slowdowns by the functions of the checker.
        """
        index, domain, up, bundle, rails, n = (int(k) for k in x.key[i])
        mode, racks = self.modes(traffic.rails)[index], traffic.racks(blocks)
        design = self.design(mode, racks, (domain, up, bundle, rails))
        found = bill(self.network, mode.switch, design)
        send, allreduce = self._slowdowns(traffic, blocks, n, design)
        return Template(mode.switch.name, mode.family, design, n, found.usd, found.mw, send, allreduce)

    def _slowdowns(self, traffic: Traffic, blocks: int, n: int, d: Design) -> tuple[float, float]:
        unit, phi = traffic.unit_racks, self.transport_slowdown
        if d.single:
            return phi, phi
        flows, allreduces = stripes.crossings(traffic.stages, blocks, n, (d.domain_racks // unit,), wrap=traffic.wrap)
        share = int(flows[0]) * unit / d.domain_racks
        return pipeline_send_slowdown(phi, d, share, 0.0), allreduce_slowdown(phi, d, int(allreduces[0]), 0)


@dataclass(frozen=True, slots=True)
class Tops:
    """Spines and cores over leaf domains by the uplinks of a leaf: bundle, rails of a pod, price and power.

    One entry each.
    """

    up: Ints
    bundle: Ints
    rails: Ints
    usd: Floats
    mw: Floats

    def part(self, which: Any) -> "Tops":
        """Return some of the entries."""
        return Tops(self.up[which], self.bundle[which], self.rails[which], self.usd[which], self.mw[which])


def _core_links(network: Network, mode: Mode, ends: Any, spines: Any, pods: Any) -> tuple[Any, Any]:
    """Return the uplinks of a spine and their bundle.

    The fewest that let the least share leave a full pod, on as few cores as ports allow.
    """
    up = np.maximum(1, np.ceil(network.min_core_share * ends / (spines * mode.split) - 1e-9)).astype(np.int64)
    room = mode.switch.ports // np.maximum(pods, 1)
    bundle = np.array(
        [max((b for b in range(1, int(u) + 1) if u % b == 0 and b <= r), default=0) for u, r in np.broadcast(up, room)]
    )
    return (int(up), int(bundle[0])) if np.ndim(up) == 0 else (up, bundle.reshape(up.shape))


def _bundles(ports: int) -> tuple[Ints, Ints]:
    """List every number of uplinks with each of its divisors."""
    pairs = [(u, b) for b in range(1, ports) for u in range(b, ports, b)]
    table = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _tops_over(t: Templates, mode: Mode, domain: int, n: int) -> Tops:
    """Return for every number of uplinks the cheapest spines and cores over n leaf domains that share a pod.

    And the most frugal ones.
    """
    network, ports = t.network, mode.switch.ports
    up, bundle = _bundles(ports)
    parts = []
    if mode.rails > 0:
        wide = bundle * mode.rails * n <= ports
        parts.append(
            (
                up[wide],
                bundle[wide],
                np.full(int(wide.sum()), mode.rails),
                np.zeros(int(wide.sum())),
                np.zeros(int(wide.sum())),
            )
        )
    if network.max_tiers >= 3 and mode.rails > 1:
        for rails in range(1, mode.rails):
            pods = -(-mode.rails // rails)
            if rails > 1 and -(-mode.rails // (rails - 1)) == pods:
                continue  # fewer rails make as many pods, and leave more ports
            fits = bundle * rails * n < ports
            u, b = up[fits], bundle[fits]
            if len(u) and pods <= ports:
                spine_up, spine_bundle = _core_links(
                    network, mode, domain * mode.rail_gpus * rails * n, u // b, np.full(len(u), pods)
                )
                good = (spine_bundle > 0) & (b * rails * n + spine_up <= ports)
                cores = u // b * (spine_up // np.maximum(spine_bundle, 1))
                parts.append(
                    (u[good], b[good], np.full(int(good.sum()), rails), cores[good], (u // b * spine_up)[good])
                )
    return _cheapest_tops(t, mode, parts)


def _cheapest_tops(t: Templates, mode: Mode, parts: list[Any]) -> Tops:
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Tops(none, none, none, np.empty(0), np.empty(0))
    up, bundle, rails, cores, pod_links = (np.concatenate(c) for c in zip(*parts, strict=True))
    pods = -(-mode.rails // np.maximum(rails, 1))
    switches, links = mode.networks * (pods * (up // np.maximum(bundle, 1)) + cores), mode.networks * pods * pod_links
    _, link_usd = flat_usd(t.network, mode.switch, mode.split)
    usd = switches * switch_usd(t.network, mode.switch) + links * link_usd
    mw = switches * mode.switch.power_watts / 1e6 + links * t._link_mw(mode)
    tiers, spine_down = t.pins.get("tiers"), t.pins.get("spine_down_ports")
    kept = np.ones(len(up), dtype=bool) if tiers is None else (np.where(rails < mode.rails, 3, 2) == tiers)
    if spine_down is not None or {"spine_up_ports", "core_down_ports", "core_up_ports"} & set(t.pins):
        raise InputError("pins: ports of spines and cores are no choices of the joint optimum yet; remove the pin")
    order = np.lexsort((mw, usd, up))
    order = order[kept[order]]
    first = np.concatenate(
        [_firsts(up, order), _firsts(up, np.lexsort((usd, mw, up))[kept[np.lexsort((usd, mw, up))]])]
    )
    first = np.unique(first)
    return Tops(up[first], bundle[first], rails[first], usd[first], mw[first])


def _firsts(up: Ints, order: Ints) -> Ints:
    """Return the first entry of each number of uplinks in an order that is sorted by them."""
    if not len(order):
        return order
    values = up[order]
    return np.asarray(order[np.append(True, values[1:] != values[:-1])])
