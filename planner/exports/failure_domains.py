"""What each switch of a fabric takes with it when it fails: racks, ranks, and how much slower the rest becomes.

A failed switch is one box with all its planes. What is left of a leaf's, a pod's or a zone's uplinks is shared as all
of them were, so slowdowns are those of the plan's own formulas with fewer uplinks. A leaf cuts off its GPUs; where NICs
are split over lanes, they keep the other lanes.
"""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace

from planner.checks.network.wan_gateway import free_by_exchange
from planner.cluster.hostlist import fold, fold_names, width
from planner.exports.from_plan import BuiltFabric
from planner.physics.network.cabling import WAN_GATEWAY, switch_counts
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.topology import Design
from planner.physics.network.transport import allreduce_slowdown, pipeline_send_slowdown
from planner.physics.network.wan_gateway import FreeUplinks
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.units import counted

MAX_ROWS = 200  # of a tier; more are merged where they are alike


@dataclass(frozen=True, slots=True)
class FailureDomain:
    """The switches of a tier that serve the same racks, any one of which may fail.

    `alike`: such sets of racks that this row stands for, of which `switch`, `racks` and `ranks` are the first. Ranks
    are stage-place: the place of a rack in the rank order of its stage. Slowdowns are over line rate, with one switch
    down; None where nothing gets through or nothing is placed.
    """

    tier: str
    switch: str
    switches: int
    alike: int
    racks: str
    ranks: str
    gpus_cut_off: int
    uplinks_lost: float
    pipeline_send_slowdown: float | None
    allreduce_slowdown: float | None
    effect: str


def failure_domains(plan: Plan, x: BuiltFabric) -> list[FailureDomain]:
    """Return what fails with one switch of each tier, from the leaves up, a row for each set of racks below it."""
    rows: list[FailureDomain] = []
    physics = PlanPhysics(plan=plan)
    ranks = {r: (s, q) for s, own in enumerate(physics.stages.get(x.site, [])) for q, r in enumerate(own)}
    for tier, count in switch_counts(x.design).items():
        span = min(x.design.racks, x.design.domain_racks if tier == "leaf" else x.design.racks_around(tier))
        firsts = range(0, x.design.racks, span)
        each = _of_a_switch(physics, x, tier)
        own = []
        for n, first in enumerate(firsts):
            racks = range(first, min(first + span, x.design.racks))
            placed = sorted(ranks[r] for r in racks if r in ranks)
            name = x.names[tier][n * (count // x.design.networks // len(firsts))]
            cut = len(racks) * each.gpus_cut_off
            row = replace(
                each,
                switch=name,
                switches=count // len(firsts),
                racks=fold(racks, width(x.design.racks)),
                ranks=fold_names(f"stage{s}-{q}" for s, q in placed),
                gpus_cut_off=cut,
            )
            own.append(replace(row, effect=_effect(x, row, len(racks), len(placed))))
        rows += own if len(own) <= MAX_ROWS else _merged(own)
    return rows


def _merged(rows: list[FailureDomain]) -> Iterator[FailureDomain]:
    """Merge rows of a tier that have the same effect."""
    alike = Counter(row.effect for row in rows)
    for row in {row.effect: row for row in reversed(rows)}.values():
        yield replace(row, alike=alike[row.effect], switches=row.switches * alike[row.effect])


def _of_a_switch(physics: PlanPhysics, x: BuiltFabric, tier: str) -> FailureDomain:
    """Return what any one switch of a tier takes with it; of a leaf, GPUs of each rack."""
    d, lost = x.design, _lost(x.design, tier)
    cut = 0 if tier != "leaf" or d.lanes > 1 else d.rail_gpus * (d.rails if d.single else 1)
    of_nic = d.lanes / (d.lanes - 1) if tier == "leaf" and d.lanes > 1 else 1.0
    send = allreduce = None
    if x.site in physics.crossings:
        where, free = physics.crossings[x.site], free_by_exchange(physics, x.site, d)
        left = FreeUplinks(free.leaf - lost.leaf, free.pod - lost.pod, free.zone - lost.zone)
        shares = where.share_leaving_leaf, where.share_leaving_pod, where.share_leaving_zone
        groups = where.allreduces_leaving_leaf, where.allreduces_leaving_pod, where.allreduces_leaving_zone
        send = _finite(of_nic * pipeline_send_slowdown(physics.transport_slowdown, d, *shares, free=left))
        allreduce = _finite(of_nic * allreduce_slowdown(physics.transport_slowdown, d, *groups, free=left))
    most = max(lost.leaf, lost.pod, lost.zone)
    if tier == WAN_GATEWAY:
        most = d.networks / d.wan_gateways
    return FailureDomain(tier, "", 0, 1, "", "", cut, most, send, allreduce, "")


def _lost(d: Design, tier: str) -> FreeUplinks:
    """Return the share of a leaf's, a pod's and a zone's uplinks that go with one switch of a tier."""
    if isinstance(d, Dragonfly):
        switches, links = d.spines_per_pod or min(d.group_sizes), d.pod_uplinks if d.valiant else d.group_links
        if (tier == "spine") != (d.spines > 0):
            return FreeUplinks(0.0, 0.0, 0.0)
        inside = 1 / switches if d.spines or d.valiant else 0.0
        return FreeUplinks(inside, math.ceil(links / switches) / links if links else 0.0, 0.0)
    lost = {
        "spine": (1 / max(1, d.spines_per_pod), 1 / max(1, d.spines_per_pod), 0.0),
        "core": (
            0.0,
            d.positions_per_core * d.spine_bundle / max(1, d.pod_uplinks),
            1 / d.zone_cores if d.tiers > 3 else 0.0,
        ),
        "super-spine": (0.0, 0.0, d.positions_per_super_spine * d.core_bundle / max(1, d.zone_uplinks)),
    }
    return FreeUplinks(*lost.get(tier, (0.0, 0.0, 0.0)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _effect(x: BuiltFabric, row: FailureDomain, racks: int, placed: int) -> str:
    """Say what one switch of a row takes with it."""
    if row.tier == WAN_GATEWAY:
        return f"{100 * row.uplinks_lost:.3g} % of the ports to the wide area are lost"
    under = f"{counted(racks, 'rack')} ({placed:,} with ranks)"
    if row.gpus_cut_off:
        return f"{counted(row.gpus_cut_off, 'GPU')} of {under} are cut off"
    lost = f"one of {x.design.lanes} lanes" if row.tier == "leaf" else f"{100 * row.uplinks_lost:.3g} % of uplinks"
    speeds = {"pipeline sends": row.pipeline_send_slowdown, "all-reduces": row.allreduce_slowdown}
    slower = [f"{k} {'stop' if v is None else f'take {v:.3g} times'}" for k, v in speeds.items() if placed]
    return "; ".join([f"{under} lose {lost}", *slower])


def failure_domains_csv(plan: Plan, x: BuiltFabric) -> Iterator[str]:
    """Write the failure domains as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(f.name for f in fields(FailureDomain))
    for row in failure_domains(plan, x):
        table.writerow(f"{v:.6g}" if isinstance(v, float) else "" if v is None else v for v in asdict(row).values())
    yield text.getvalue()


def failure_domains_json(plan: Plan, x: BuiltFabric) -> Iterator[str]:
    """Write the failure domains as a list in JSON."""
    yield json.dumps([asdict(row) for row in failure_domains(plan, x)], indent=1) + "\n"
