"""Rules of the placement: every stage on racks of its own, each fragment in its leaf domain, and their figures."""

from collections import Counter
from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_equal
from planner.instance.pins import BLOCKS_AT, pinned_blocks
from planner.physics.network import locality
from planner.physics.plan_physics import PlanPhysics, racks_of
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.certificate import Violation


def every_site(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the replicas of every site are placed, and of no other."""
    placed = set(c.plan.placement.sites) if c.plan.placement else set()
    wanted = {s for s in c.racks_by_site if s in c.replicas}
    for s in sorted((placed - set(c.racks_by_site)) | (wanted - placed)) if c.plan.placement else ():
        yield broken(f"every_site[{s}]", f"{int(s in placed)} placements, {int(s in wanted)} expected")


def known_sites(c: PlanPhysics) -> Iterator[Violation]:
    """Check that stripes and blocks, where they are stated, are those of the sites that are placed."""
    placed = c.plan.placement
    if placed is None:
        return
    for name in ("stripes", "blocks_by_site"):
        stated = getattr(placed, name)
        for s in sorted(set(stated) ^ set(placed.sites)) if stated else ():
            yield broken(f"known_sites[{s}]", f"stands in only 1 of {name} and the {len(placed.sites)} sites placed")


def known_racks(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the racks and stages named exist."""
    stages = c.plan.layout.rack_stages if c.plan.layout else 0
    for s, placed in sorted(c.plan.placement.sites.items()) if c.plan.placement else ():
        for a in placed.assignment if s in c.racks_by_site else ():
            racks = racks_of(a.racks, c.cabled_racks(s))
            if isinstance(racks, str):
                yield broken(f"known_racks[{s}]", f"stage {a.stage}: {racks}")
            if not 0 <= a.stage < stages:
                yield broken(f"known_racks[{s}]", f"stage {a.stage:,} is not from 0 to {stages - 1:,}")


def one_stage_per_rack(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no rack carries two fragments."""
    for s, stages in sorted(c.stages.items()):
        times = Counter(rack for ranks in stages for rack in ranks)
        twice = sorted(rack for rack, n in times.items() if n > 1)
        if twice:
            first = twice[0]
            who = sorted({i for i, ranks in enumerate(stages) if first in ranks})
            yield broken(
                f"one_stage_per_rack[{s}]",
                f"rack {first} is assigned {times[first]} times > 1 (stages {who}); {len(twice):,} racks are",
            )


def leaf_domain(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every fragment is within the leaf domain it names."""
    for s, placed in sorted(c.plan.placement.sites.items()) if c.plan.placement else ():
        if s not in c.wired or s not in c.stages:
            continue
        size, total = c.wired[s].domain_racks, c.cabled_racks(s)
        for a in placed.assignment:
            first, last = a.leaf_domain * size, min((a.leaf_domain + 1) * size, total) - 1
            racks = racks_of(a.racks, total)
            outside = [r for r in racks if not first <= r <= last] if not isinstance(racks, str) else []
            if outside:
                yield broken(
                    f"leaf_domain[{s}]",
                    f"stage {a.stage}: rack {outside[0]} is not from {first} to {last}, leaf domain {a.leaf_domain}",
                )


def group_size(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every stage has the racks of its replica group at every site with replicas."""
    for s, stages in sorted(c.stages.items()):
        wanted = c.plan.layout.racks_per_stage_by_site.get(s, 0) if c.plan.layout else 0
        wrong = [(i, len(ranks)) for i, ranks in enumerate(stages) if len(ranks) != wanted]
        for i, n in wrong[:3]:
            more = f"; {len(wrong)} stages differ" if len(wrong) > 1 else ""
            yield broken(f"group_size[{s}]", f"stage {i} has {n:,} racks, {wanted:,} expected{more}")


def figures(c: PlanPhysics) -> Iterator[Violation]:
    """Check that groups, split groups, fragments and groups across pods are counted as the assignment makes them."""
    p, y = c.plan.placement, c.plan.layout
    if p is None or y is None or set(c.crossings) != set(p.sites):
        return
    groups, split = y.rack_stages * len(c.replicas), sum(x.groups_split for x in c.crossings.values())
    figures_of_assignment = {
        "groups": groups,
        "groups_leaf_local": groups - split,
        "groups_split": split,
        "extra_pieces": sum(x.extra_pieces for x in c.crossings.values()),
        "groups_cross_pod": sum(x.groups_cross_pod for x in c.crossings.values()),
    }
    for name, value in figures_of_assignment.items():
        yield from must_equal("figures", name, getattr(p, name), value)


def lower_bound(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the closed form's bound on split groups is stated; no placement is below it."""
    p = c.plan.placement
    bound = min_split(c)
    if p is not None and bound is not None:
        yield from must_equal("lower_bound", "lower_bound_split", p.lower_bound_split, bound)
        yield from at_most("lower_bound", bound, p.groups_split, "groups split in any placement", "groups split")


def min_split(c: PlanPhysics) -> int | None:
    """Recompute the split groups that no placement avoids, over all sites; None where a site has no leaf domains."""
    y = c.plan.layout
    if y is None or not set(c.replicas) <= set(c.wired):
        return None
    sizes = {s: y.racks_per_stage_by_site.get(s, 0) for s in c.replicas}
    if min(sizes.values(), default=0) < 1:
        return None
    domains = {s: locality.domain_racks(c.wired[s].racks, c.wired[s].domain_racks) for s in sizes}
    return sum(locality.lower_bound_split(domains[s], y.rack_stages, g) for s, g in sizes.items())


def blocks(c: PlanPhysics) -> Iterator[Violation]:
    """Check that blocks hold whole replicas, and that racks stand in the order that the stripes say."""
    p, y = c.plan.placement, c.plan.layout
    if p is None or y is None or c.faults:
        return
    if not p.stripes:
        yield from must_equal("blocks", "block_racks of racks in no order of stripes", p.block_racks, 0)
        return
    unit = strategy_of(y).unit_racks(c.gpus_per_rack)
    yield from must_equal("blocks", "block_racks", p.block_racks, y.rack_stages * unit)
    for s, racks in sorted(y.racks_per_stage_by_site.items()):
        number, stripes = racks // unit, p.stripes.get(s, 0)
        yield from must_equal(f"blocks[{s}]", "blocks_by_site", p.blocks_by_site.get(s), number)
        if not 1 <= stripes <= y.rack_stages:
            yield broken(f"blocks[{s}]", f"{stripes} stripes, from 1 to {y.rack_stages} expected")
        elif s in c.stages and c.stages[s] != striped(y.rack_stages, number, stripes, unit):
            yield broken(f"blocks[{s}]", f"racks do not stand in the order of {stripes} stripes of {number} blocks")


def striped(stages: int, blocks: int, stripes: int, unit: int) -> list[list[int]]:
    """List the racks of each rack stage: stripe by stripe, in it block by block, in that stage by stage.

    The first `stages` mod `stripes` stripes have a stage more than the others; a stage of a block has `unit` racks.
    """
    order: list[list[int]] = []
    for k in range(stripes):
        first, size = len(order), stages // stripes + (k < stages % stripes)
        places = [[first * blocks + b * size + i for b in range(blocks)] for i in range(size)]
        order += [[place * unit + rack for place in row for rack in range(unit)] for row in places]
    return order


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Check that stripes and blocks are as pinned."""
    p, wanted = c.plan.placement, c.instance.pins.get("placement.stripes")
    if p is None:
        return
    for s, stripes in sorted(p.stripes.items()):
        if wanted is not None:
            yield from must_equal("pins[placement.stripes]", f"stripes at {s} against the pin", stripes, wanted)
    for s, number in pinned_blocks(c.instance).items():
        what = "blocks against the pin"
        yield from must_equal(f"pins[{BLOCKS_AT}{s}]", what, p.blocks_by_site.get(s, 0), number)


RULES: tuple[Rule, ...] = (
    every_site,
    known_sites,
    known_racks, one_stage_per_rack, leaf_domain, group_size, figures, lower_bound, blocks, pins,
)  # fmt: skip
