"""Rules of links that pipeline sends and rings share: by the schedule at once, or each alone.

Counted here a second time: sends from the order of passes, links from the cables, flows from the racks placed.
"""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from planner.checks.network.wan_gateway import free_by_exchange
from planner.checks.rule import Rule, broken, must_equal
from planner.physics.network.cabling import WAN_GATEWAY
from planner.physics.network.cabling import stages as cable_stages
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step
from planner.plan.certificate import Violation
from planner.plan.layout import LayoutPlan

FIGURES = ("pipeline_send_slowdown", "allreduce_slowdown", "together_slowdown")


def sends_that_meet(c: PlanPhysics, layout: LayoutPlan) -> float:
    """Count the sends that leave a stage while its own rings run: of racks apart, several of them to a stage.

    With gradients reduced once a step, the rings of a chunk begin within its last backward pass, and the chunk sends
    once more behind it, if any stage comes before. With gradients or weights sharded (ZeRO-2 and 3) rings run in every
    pass, and each send that no pass hides meets them.
    """
    software, v, places = step.machine_of(c.instance).software, layout.virtual_stages, layout.pipeline_parallel
    apart = layout.stages_per_rack < places and max(layout.racks_per_stage_by_site.values(), default=0) > 1
    if places < 2 or not apart:
        return 0.0
    sends_back = sum(1 for chunk in range(v) for stage in range(places) if (chunk, stage) != (0, 0))
    if layout.zero_stage < 2:
        begins_early = layout.schedule == "1f1b" and software.data_exposed < 1
        return float(sends_back if begins_early else 0)
    shown = v if v == 1 else v * (1 - software.pipeline_overlap)
    return 2 * sends_back + 2 * layout.microbatches_per_step * shown


def _links_out(d: Design) -> dict[str, tuple[int, float]]:
    """Count the racks of a leaf domain, pod and zone, and the links that leave each for one GPU of each rack in it.

    A tree's are its cables over the blocks that they leave; a dragonfly's are those that flows are assured of.
    """
    cables = {stage.low: stage.count for stage in cable_stages(d) if stage.low != WAN_GATEWAY}
    leaf, pod = d.domain_racks, d.domain_racks * d.domains_per_pod
    if isinstance(d, Dragonfly):
        found = {"leaf": (leaf, d.leaf_exit / d.rail_gpus)}
        if d.pods > 1:
            found["pod"] = pod, d.pod_exit / (d.rails_per_pod * d.rail_gpus)
    else:
        found = {}
        if d.tiers > 1:
            found["leaf"] = leaf, cables["leaf"] / d.leaves / d.rail_gpus
        if d.tiers > 2:
            found["pod"] = pod, cables["spine"] / (d.networks * d.pods) / (d.rails_per_pod * d.rail_gpus)
        if d.tiers > 3:
            zone = leaf * d.domains_per_zone
            found["zone"] = zone, cables["core"] / (d.networks * d.zones) / (d.rails_per_zone * d.rail_gpus)
    return {level: (racks, links * d.split) for level, (racks, links) in found.items()}


def _most_flows(stages: list[list[int]], block: int, *, wrap: bool) -> tuple[int, int]:
    """Count the sends that leave or enter, and the rings that cross the edge of, the block of racks with the most."""
    pairs = [*pairwise(stages), *([(stages[-1], stages[0])] if wrap and len(stages) > 1 else [])]
    hops = [(a // block, b // block) for one, other in pairs for a, b in zip(one, other, strict=False)]
    out, into = (Counter(hop[end] for hop in hops if hop[0] != hop[1]) for end in (0, 1))
    blocks = [{rack // block for rack in stage} for stage in stages]
    rings = Counter(k for own in blocks if len(own) > 1 for k in own)
    return max([*out.values(), *into.values(), 0]), max(rings.values(), default=0)


def _over(flows: int, links: float) -> float:
    return 0.0 if not flows else flows / links if links else math.inf


def shared_links(c: PlanPhysics) -> Iterator[Violation]:
    """Check the slowdowns of the links that sends and rings cross at once: alone, and with the flows of both added."""
    layout = c.plan.layout
    if layout is None or c.faults:
        return
    met, phi = sends_that_meet(c, layout), c.transport_slowdown
    yield from must_equal("sends_beside_rings", "sends_beside_rings", layout.metrics.sends_beside_rings, met)
    for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ():
        if s not in c.wired or s not in c.stages:
            continue
        rule, d, expected = f"shared_links[{s}]", c.wired[s], {}
        if met and max(map(len, c.stages[s]), default=0) > 1:
            free, expected["nic"] = free_by_exchange(c, s, d), (1.0, 1.0)
            for level, (racks, links) in _links_out(d).items():
                flows = _most_flows(c.stages[s], racks, wrap=layout.virtual_stages > 1)
                left = links * max(0.0, getattr(free, level))
                if any(flows):
                    expected[level] = _over(flows[0], left), _over(flows[1], left)
        stated = {x.link: x for x in f.shared_links}
        for level in sorted(set(stated) ^ set(expected)):
            yield broken(rule, f"{level}: {int(level in stated)} stated, {int(level in expected)} expected")
        for level in sorted(set(stated) & set(expected)):
            loads = (*expected[level], sum(expected[level]))
            for name, load in zip(FIGURES, loads, strict=True):
                figure = phi * max(1.0, load)
                yield from must_equal(rule, f"{name} on the {level}", getattr(stated[level], name), figure)


RULES: tuple[Rule, ...] = (shared_links,)
