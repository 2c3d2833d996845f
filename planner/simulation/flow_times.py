"""When flows end under each transport: what plans assume of a transport and what `planner simulate` says, by one model.

ECMP gives a flow one path by a hash. Spraying sends a share of a flow over every path; the fullest of many equal cables
is behind their mean, since packets are dealt out by lot (`lot_seconds`). Adaptive routing gives each eighth of a flow a
path when it starts, by the bytes that wait then (`planner.simulation.adaptive`). On those paths queues and pauses are
those of `planner.simulation.switch_queues`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from planner.simulation.adaptive import LocalView
from planner.simulation.live_cables import Alive, Flows
from planner.simulation.rng import Floats
from planner.simulation.routing import Routes, ecmp, spray
from planner.simulation.switch_queues import Pauses, spread
from planner.simulation.traffic import failed_cables
from planner.simulation.tree import Tree

TransportName = Literal["ecmp", "spray", "adaptive"]
STEP_BYTES = 50e3  # that a host sends in a step: half a microsecond at 800 Gbps, of a cable and of a switch
# Longest flows that are followed step by step. By packets (128 hosts, 1:1 to 4:1), flows of 300 MB have the tails of
# 24 MB, times 12.5, within 1 % under ECMP and spraying and 7 % under adaptive routing; hashed flows of 8 MB within 2 %.
FLOW_BYTES, COARSE_FLOW_BYTES = 24e6, 8e6
FINE_PARTS = 2048  # more parts of flows than these are followed as flows of 8 MB
MOST_STEPS, LEAST_STEPS = 10_000, 120  # of the ideal time, and of what the busiest host sends
PACKET_BYTES = 4096.0  # the largest MTU of RoCE (InfiniBand Architecture Specification, volume 1)


def ideal_seconds(tree: Tree, flows: Flows) -> float:
    """Return the time that no transport beats: nothing failed, parallel links and planes loaded evenly."""
    return spray(replace(tree, planes=(sum(tree.planes),)), flows).fullest_seconds()


def flow_seconds(
    tree: Tree,
    flows: Flows,
    transport: TransportName,
    seed: int,
    failed: int | Sequence[int] = 0,
    *,
    packet_bytes: float = PACKET_BYTES,
) -> Floats:
    """Return when each flow ends, with queues and pauses, around the failed cables.

    Flows that send more than `FLOW_BYTES` a host are followed as shorter ones with thresholds in proportion.
    """
    out = failed_cables(tree, failed, seed)
    alive = Alive(tree, out) if len(out) else None
    lanes = len(tree.planes) * len(flows)
    sent = float(np.bincount(flows.source, flows.size).max())
    longest = FLOW_BYTES if lanes <= FINE_PARTS else COARSE_FLOW_BYTES
    ideal_bytes = ideal_seconds(tree, flows) * tree.host_rate
    scale = max(1.0, sent / longest, ideal_bytes / (STEP_BYTES * MOST_STEPS))
    usual, step = Pauses(), min(STEP_BYTES * scale, sent / LEAST_STEPS) / tree.host_rate
    pauses = replace(usual, xoff_bytes=usual.xoff_bytes * scale, xon_bytes=usual.xon_bytes * scale, step_seconds=step)
    view, late = None, 0.0
    if transport == "adaptive":
        view = LocalView(tree, flows, alive or Alive(tree, out), seed, packet_bytes * scale)
        routes = view.routes
    elif transport == "ecmp":
        routes = ecmp(tree, flows, seed, alive)
    else:
        routes, late = spray(tree, flows, alive), lot_seconds(tree, flows, packet_bytes)
    rate, parts = tree.rates[0] * max(tree.planes), np.arange(routes.parts)
    ends = spread(routes, rate, parts, pauses, view.start_parts if view else None).end
    end = np.zeros(len(flows))
    np.maximum.at(end, routes.flow, ends)
    return end + late * np.sqrt(end / max(float(end.max()), 1e-300))  # deviations of a sum grow as its root


def lot_seconds(tree: Tree, flows: Flows, packet_bytes: float) -> float:
    """Return by how much the fullest cable is behind the mean of its equals when packets are sprayed by lot.

    Balls into bins: of M packets that any of n cables may take, one cable gets a binomial number of mean N = M/n and
    variance N (1 - 1/n); the most of C such cables is sqrt(2 ln C) deviations above the mean (Raab and Steger 1998,
    "Balls into bins", theorem 1, for N well above ln C). A packet more is a packet's time at the rate of the cable, and
    the longest flow is one packet at least.
    """
    planes, whole = len(tree.planes), replace(tree, planes=(sum(tree.planes),))
    routes: Routes = spray(whole, flows)
    load, late, packet_bytes = routes.load(routes.size), 0.0, min(packet_bytes, float(flows.size.max()))
    tiers = whole.condensed().tier_of(np.arange(len(load)))
    for t in range(tree.tiers):
        equal, used = tree.widths[t + 1] * tree.bundle[t] * planes, load[(tiers == t) & (load > 0)]
        if equal > 1 and len(used):
            mean = used.max() / equal / packet_bytes
            behind = np.sqrt(2 * np.log(len(used) * equal) * mean * (1 - 1 / equal))
            late = max(late, float(behind) * packet_bytes * planes / (tree.rates[t] * sum(tree.planes)))
    return late
