"""Write a fabric as a graph and as Slurm's topology, and compute the effect of the failure of each of its switches."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.checks.fabric_traffic import free_by_exchange
from planner.cluster.hostlists import fold, fold_names, width
from planner.exports.fabric_parts import BuiltFabric, up_to_cm
from planner.files import csv_text
from planner.formats import topologies
from planner.formats.topologies import site_rows, tree
from planner.physics.network.clos_fabric import Design, Ints
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.fabric_cables import WAN_GATEWAY, switch_counts
from planner.physics.network.uplink_slowdowns import FreeUplinks, slowdowns, uplink_loads
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.units import counted, ratio

TOPS = ("core", "super-spine", WAN_GATEWAY)  # tiers of which no switch is in a pod
MAX_EDGES = 50_000  # of a graph that viewers still open; larger ones are drawn by pod
MAX_ROWS = 200  # of a tier; more are merged where they are alike


def edges(built: BuiltFabric) -> int:
    """Count the edges of a fabric's graph: bundles of cables that join two switches, and one from leaf to racks."""
    return built.design.leaves + built.design.wan_gateway_links + built.design.switch_pairs


def graph(built: BuiltFabric, *, by_pod: bool) -> Any:
    """Return a fabric as a networkx graph: an edge has its number of cables and the longest one's length in metres."""
    import networkx as nx

    detail = "pod" if by_pod else "switch"
    wiring = nx.Graph(site=built.site, switch=built.fabric.switch, planes=built.fabric.planes, detail=detail)
    for tier, count in switch_counts(built.design).items():
        every = _node(built, tier, np.arange(count, dtype=np.int64), by_pod=by_pod)
        nodes, counts = np.unique(every, return_counts=True)
        for node, switches in zip(nodes.tolist(), counts.tolist(), strict=True):
            name, model = _label(built, tier, node, by_pod=by_pod), built.models[tier].name
            wiring.add_node(name, tier=tier, switches=switches, model=model)
    for block, metres in built.measured():
        low = _node(built, block.low_tier, block.low, by_pod=by_pod)
        high = _node(built, block.high_tier, block.high, by_pod=by_pod)
        pairs, which, cables = np.unique(np.stack([low, high]), axis=1, return_inverse=True, return_counts=True)
        longest = np.zeros(len(cables))
        np.maximum.at(longest, which.ravel(), metres)
        for one, other, count, length in zip(*pairs.tolist(), cables.tolist(), longest.tolist(), strict=True):
            below = _label(built, block.low_tier, one, by_pod=by_pod)
            above = _label(built, block.high_tier, other, by_pod=by_pod)
            if below != above:
                # Cables of one edge may come in several blocks.
                before = wiring.get_edge_data(below, above, {"cables": 0, "longest_m": 0.0})
                far = max(before["longest_m"], up_to_cm(length))
                wiring.add_edge(below, above, cables=before["cables"] + count, longest_m=far)
            if block.low_tier == "gpu":
                wiring.nodes[below].update(tier="racks", gpus=wiring.nodes[below].get("gpus", 0) + count)
    return wiring


def graphml(graph: Any) -> Iterator[str]:
    """Write the graph of a fabric as GraphML."""
    import networkx as nx

    return (f"{line}\n" for line in nx.generate_graphml(graph))


def dot(graph: Any) -> Iterator[str]:
    """Write the graph of a fabric for Graphviz: tiers in rows, racks lowest, lines wider the more cables they carry."""
    yield f"graph {json.dumps(graph.graph['site'])} {{\n  rankdir=BT; ranksep=2; node [shape=box];\n"
    for tier in dict.fromkeys(own for _, own in graph.nodes(data="tier")):
        named = " ".join(f"{json.dumps(name)};" for name, own in graph.nodes(data="tier") if own == tier)
        yield f"  {{ rank=same; {named} }}\n"
    for node, own in graph.nodes(data=True):
        holds = f"{own['gpus']:,} GPUs" if "gpus" in own else f"x {own['switches']:,}" if own["switches"] > 1 else ""
        if holds:
            label = json.dumps(f"{node}\n{holds}")
            yield f"  {json.dumps(node)} [label={label}];\n"
    upward = ("racks", "leaf", "spine", *TOPS).index
    for one, other, own in graph.edges(data=True):
        low, high = sorted((one, other), key=lambda name: upward(graph.nodes[name]["tier"]))
        width = 1 + math.log2(own["cables"]) / 2
        yield f'  {json.dumps(low)} -- {json.dumps(high)} [label="{own["cables"]}", penwidth={width:.2f}];\n'
    yield "}\n"


def _node(built: BuiltFabric, tier: str, index: Ints, *, by_pod: bool) -> Ints:
    """Return the number, within its tier, of the fabric graph's node that contains each switch or GPU."""
    design = built.design
    if by_pod and tier == "core":
        return index // design.zone_cores if design.zones else np.zeros_like(index)
    if tier == "gpu" and not by_pod:
        return np.zeros_like(index) if design.single else index // design.gpus_per_rack // design.domain_racks
    return built.pod_of(tier, index) if by_pod else index


def _label(built: BuiltFabric, tier: str, node: int, *, by_pod: bool) -> str:
    if tier == "gpu":
        return "racks" if by_pod else f"racks-{node}"
    if by_pod:
        if tier == "core" and built.design.zones:
            return f"core-zone-{node}"
        return tier if tier in TOPS else f"{tier}-pod-{node}"
    return built.names[tier][node]


def slurm_topology(built: BuiltFabric, *, as_yaml: bool) -> Iterator[str]:
    """Export the graph of a fabric as Slurm's topology.conf (plugin topology/tree) or a topology.yaml with one tree."""
    design = built.design
    rows = list(site_rows(built.site, built.fabric, design.racks, "super-spine" if design.zones else "core"))
    topology = tree(built.site, rows if design.domains > 1 else rows[:1])  # one leaf has no switch above it
    head = f"# {built.site}: {built.fabric.switches} switches of {built.fabric.boxes}; nodes are racks\n"
    yield topologies.write_yaml(topology) if as_yaml else head + topologies.write_conf(topology)


def failure_domains(plan: Plan, built: BuiltFabric) -> list[dict[str, Any]]:
    """List, for a file, what losing a switch of each tier of a fabric's graph does, leaves first: a row a set of racks.

    `switches` serve the same racks, any one of which may fail; `alike`: the sets of racks that a row describes, of
    which `switch`, `racks` and `ranks` are the first. Ranks are stage-place: the place of a rack in the rank order of
    its stage. Slowdowns are over line rate, with one switch down; None: nothing gets through, or nothing is placed.
    """
    rows: list[dict[str, Any]] = []
    physics, design = PlanPhysics(plan=plan), built.design
    stages = enumerate(physics.stages.get(built.site, []))
    ranks = {rack: (stage, rank) for stage, own in stages for rank, rack in enumerate(own)}
    for tier, count in switch_counts(design).items():
        lost, is_lane = _lost(design, tier), tier == "leaf" and design.lanes > 1
        cut = 0 if tier != "leaf" or is_lane else design.rail_gpus * (design.rails if design.single else 1)  # of a rack
        slow: list[float | None] = [None, None]
        if built.site in physics.crossings:
            where, free = physics.crossings[built.site], free_by_exchange(physics, built.site, design)
            left = FreeUplinks(free.leaf - lost.leaf, free.pod - lost.pod, free.zone - lost.zone)
            of_nic = design.lanes / (design.lanes - 1) if is_lane else 1.0
            loads = uplink_loads(design, where.share_leaving, where.allreduces_leaving, left)
            both = (of_nic * slowdown for slowdown in slowdowns(physics.transport_slowdown, loads))
            slow = [slowdown if math.isfinite(slowdown) else None for slowdown in both]
        most = design.networks / design.wan_gateways if tier == WAN_GATEWAY else max(lost.leaf, lost.pod, lost.zone)
        span = min(design.racks, design.domain_racks if tier == "leaf" else design.racks_around(tier))
        firsts = range(0, design.racks, span)
        own = list[dict[str, Any]]()
        for index, first in enumerate(firsts):
            racks = range(first, min(first + span, design.racks))
            placed = sorted(ranks[rack] for rack in racks if rack in ranks)
            under = counted(len(racks), "rack") + (f" ({len(placed):,} with ranks)" if ranks else "")
            if tier == WAN_GATEWAY:
                effects = [f"{100 * most:.3g} % of the ports to the wide area are lost"]
            elif cut:
                effects = [f"{counted(len(racks) * cut, 'GPU')} of {under} are cut off"]
            else:
                what = f"one of {design.lanes} lanes" if tier == "leaf" else f"{100 * most:.3g} % of uplinks"
                effects = [f"{under} lose {what}"]
                for name, slowdown in zip(("pipeline sends", "all-reduces"), slow, strict=True) if placed else ():
                    effects.append(f"{name} {'stop' if slowdown is None else f'take {ratio(slowdown, 3)} times'}")
            row = {
                "tier": tier,
                "switch": built.names[tier][index * (count // design.networks // len(firsts))],
                "switches": count // len(firsts),
                "alike": 1,
                "racks": fold(racks, width(design.racks)),
                "ranks": fold_names(f"stage{stage}-{rank}" for stage, rank in placed),
                "gpus_cut_off": len(racks) * cut,
                "uplinks_lost": most,
                "pipeline_send_slowdown": slow[0],
                "allreduce_slowdown": slow[1],
                "effect": "; ".join(effects + ["no rank is placed to be slowed"] * (plan.layout is None)),
            }
            own.append(row)
        if len(own) > MAX_ROWS:
            alike = Counter(row["effect"] for row in own)
            firsts_alike = {row["effect"]: row for row in reversed(own)}.items()
            own = [row | {"alike": alike[e], "switches": row["switches"] * alike[e]} for e, row in firsts_alike]
        rows += own
    return rows


def _lost(design: Design, tier: str) -> FreeUplinks:
    if isinstance(design, Dragonfly):
        switches = design.spines_per_pod or min(design.group_sizes)
        links = design.pod_uplinks if design.valiant else design.group_links
        if (tier == "spine") != (design.spines > 0):
            return FreeUplinks(0.0, 0.0, 0.0)
        inside = 1 / switches if design.spines or design.valiant else 0.0
        return FreeUplinks(inside, math.ceil(links / switches) / links if links else 0.0, 0.0)
    leaf = pod = zone = 0.0
    if tier == "spine":
        leaf = pod = 1 / max(1, design.spines_per_pod)
    elif tier == "core":
        pod = design.positions_per_core * design.spine_bundle / max(1, design.pod_uplinks)
        zone = 1 / design.zone_cores if design.tiers > 3 else 0.0
    elif tier == "super-spine":
        zone = design.positions_per_super_spine * design.core_bundle / max(1, design.zone_uplinks)
    return FreeUplinks(leaf, pod, zone)


def failure_domains_text(plan: Plan, built: BuiltFabric, *, as_json: bool) -> Iterator[str]:
    """Write for export the failure domains of a fabric as a list in JSON, or as CSV."""
    rows = failure_domains(plan, built)
    cells = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
    yield json.dumps(rows, indent=1) + "\n" if as_json else csv_text([rows[0], *cells])
