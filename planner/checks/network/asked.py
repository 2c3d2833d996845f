"""Rules that the instance asks of a fabric in the words of the trade: oversubscription, and losses that it survives."""

import math
from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.fabric import SiteFabric


def _fabrics(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design]]:
    """Yield the fabrics of the plan's sites that have counts."""
    for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric is not None else ():
        if s in c.wired:
            yield s, f, c.wired[s]


def oversubscription(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no more ports of GPUs share a link out of a full leaf, pod or zone than the instance allows.

    Of a list, that no more ports down of a leaf, and of a spine where there are several pods, share a port up.
    """
    network = c.instance.network
    if network is None or network.max_oversubscription is None:
        return
    most = math.inf if isinstance(network.max_oversubscription, tuple) else network.max_oversubscription
    for s, f, d in _fabrics(c):
        yield from tiers_over(f"oversubscription[{s}]", network.tier_ratios, d)
        for block, ends, links in _edges(f, d) if most < math.inf else ():
            if links:
                each, allowed = f"ports of GPUs to a link out of a {block}", "to one allowed"
                yield from at_most(f"oversubscription[{s}]", ends / links, most, each, allowed)
            else:
                yield broken(f"oversubscription[{s}]", f"{ends:,} ports of GPUs, and no link out of a {block}")


def tiers_over(rule: str, most: tuple[float, float], d: Design) -> Iterator[Violation]:
    """Check the ports down to a port up of a leaf, and of a spine where there are several pods."""
    down_up = (d.leaf_down, d.leaf_up * d.split, not d.single), (d.spine_down, d.spine_up, d.pods > 1)
    for tier, ratio, (down, up, several) in zip(("leaf", "spine"), most, down_up, strict=True):
        if several and ratio < math.inf:
            yield from at_most(rule, down / max(up, 1e-9), ratio, f"ports down to a port up of a {tier}", "allowed")


def _edges(f: SiteFabric, d: Design) -> Iterator[tuple[str, int, float]]:
    """Yield a full leaf, pod and zone beside which there are others: ports of GPUs, and links out in their worth."""
    if d.single:
        return
    yield "leaf", d.leaf_down, d.least_up_ports * f.split
    pod = d.leaf_down * f.rails_per_pod * f.leaf_domains_per_pod
    if f.pods > 1:
        yield "pod", pod, d.pod_uplinks * f.split
    if f.zones > 1:
        yield "zone", d.leaf_down * f.rails_per_zone * f.leaf_domains_per_zone, d.zone_uplinks * f.split


def survival(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the loss which the instance asks to survive cuts no two leaves of a network."""
    asked = c.instance.network.survives if c.instance.network is not None else None
    for s, f, d in _fabrics(c) if asked is not None else ():
        up, spines = cut_by(d)
        if f.family.startswith("dragonfly"):
            yield broken(f"survival[{s}]", f"{asked} is of trees, and the fabric is a {f.family}")
        elif up and asked is not None:
            yield from at_most(f"survival[{s}]", 2, up, "links of a leaf upwards needed", "there")
        if spines and asked == "one_spine":
            yield from at_most(f"survival[{s}]", 2, spines, "ways up from a leaf that share no switch needed", "there")


def cut_by(d: Design) -> tuple[int, int]:
    """Return the links of a leaf upwards and the ways up that share no switch; (0, 0) where nothing is above a leaf.

    A tree of equal bundles stays joined as long as each leaf reaches one spine: every spine position of a pod has
    cores of its own, and every core position super-spines, that join all pods and zones. A lost link cuts leaves where
    it is the only one of its leaf, and a lost switch where it is the only spine of its pod: of two positions the other
    remains. Of cores that positions share two must be there to join several pods, and of super-spines two to join
    several zones; every one of them joins all.
    """
    if d.single:
        return 0, 0
    shared = [boxes for boxes, several in ((d.core_boxes, d.pods), (d.super_spine_boxes, d.zones)) if several > 1]
    return d.leaf_up, min([d.leaf_up // d.leaf_bundle, *(boxes for boxes in shared if boxes)])


RULES: tuple[Rule, ...] = (oversubscription, survival)
