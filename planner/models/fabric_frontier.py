"""The fabrics of which none is better in cost, slowdown and split groups at once."""

import time
from dataclasses import replace

from planner.handoff import Alternative, FabricRequest, Options
from planner.instance import Instance
from planner.models.fabric_design import FabricDesign
from planner.models.fabric_question import TOLERANCE, Problem, leaf_domain_racks, problem_of
from planner.models.fabric_search import search
from planner.physics.transport import hop_slowdown
from planner.solvers.outcome import Stop

HOP_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over phi: caps at which alternatives are sought


def alternatives(instance: Instance, request: FabricRequest, options: Options) -> list[Alternative]:
    """Return designs of which none is better in cost, hop slowdown and unavoidable split groups at once.

    Each is the cheapest within a cap on the hop's slowdown (`HOP_CAPS` below the request's own) and a cap on split groups,
    and proven so; where the time ends, those not reached are missing.
    """
    problem = problem_of(instance, request)
    deadline = None if options.time_limit is None else time.perf_counter() + options.time_limit
    found: list[Alternative] = []
    for ratio in sorted({problem.ratios.hop, *(c * (1 + TOLERANCE) for c in HOP_CAPS if c < problem.ratios.hop)}):
        capped = replace(problem, ratios=replace(problem.ratios, hop=ratio), most_splits=None)
        while capped.most_splits is None or capped.most_splits >= 0:
            left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
            out = search(capped, replace(options, time_limit=left), "alternatives")
            held = out.solution
            if held is None or out.stop is not Stop.PROVED:
                break
            found.append(_alternative(problem, held))
            capped = replace(capped, most_splits=held.unavoidable_splits - 1)
    return _non_dominated(found)


def _alternative(p: Problem, found: FabricDesign) -> Alternative:
    """Weigh a design by its worst case: every flow leaves its leaf, and its pod where there are several side by side."""
    d = found.design
    zoned = float(d.tiers > 3 and d.domains_per_zone < d.domains)
    slow = hop_slowdown(p.network, d, float(d.domains > 1), float(d.tiers > 1 and d.domains_per_pod < d.domains), zoned)
    merits = {"cost_usd": found.cost_usd, "hop_slowdown": slow, "unavoidable_splits": float(found.unavoidable_splits)}
    choices: dict[str, object] = {
        "power_mw": found.power_mw,
        "switches": d.switches,
        "switch": found.switch.name,
        "planes": found.mode.planes,
        "family": found.mode.family,
        "tiers": d.tiers,
    }
    choices["leaf_domain_racks"] = leaf_domain_racks(d)
    choices |= {name: getattr(d, name) for name in ("leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "spine_up", "spine_bundle")}
    choices |= {name: getattr(d, name) for name in ("rails_per_zone", "domains_per_zone", "core_up", "core_bundle")} if d.zones else {}
    return Alternative(merits=merits, choices=choices)


def _non_dominated(found: list[Alternative]) -> list[Alternative]:
    """Keep, by cost, each alternative that no other matches or beats in every merit."""
    kept: list[Alternative] = []
    for a in sorted(found, key=lambda a: tuple(a.merits.values())):
        if not any(all(b.merits[m] <= a.merits[m] for m in a.merits) for b in kept):
            kept.append(a)
    return kept
