"""Rules of a placement: a plan's stages on racks and leaf domains, and a job on the nodes of a cluster."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from math import prod

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.cluster import Job, Placement, Topology
from planner.instance.references_and_pins import BLOCKS_AT, pinned_blocks
from planner.physics.network import transport
from planner.physics.plan_physics import PlanPhysics, racks_of
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.certificate import Violation


def every_site(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the replicas of every site are placed, and of no other."""
    placed = set(physics.plan.placement.sites) if physics.plan.placement else set()
    wanted = {site for site in physics.racks_by_site if site in physics.replicas}
    for site in sorted((placed - set(physics.racks_by_site)) | (wanted - placed)) if physics.plan.placement else ():
        yield broken(f"every_site[{site}]", f"{int(site in placed)} placements, {int(site in wanted)} expected")


def known_sites(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that stripes and blocks, where they are stated, are those of the sites that are placed."""
    placed = physics.plan.placement
    if placed is None:
        return
    for name in ("stripes", "blocks_by_site"):
        stated = getattr(placed, name)
        for site in sorted(set(stated) ^ set(placed.sites)) if stated else ():
            yield broken(f"known_sites[{site}]", f"is in only 1 of {name} and the {len(placed.sites)} sites placed")


def known_racks(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the racks and stages named exist."""
    stages = physics.plan.layout.rack_stages if physics.plan.layout else 0
    for site, placed in sorted(physics.plan.placement.sites.items()) if physics.plan.placement else ():
        for fragment in placed.assignment if site in physics.racks_by_site else ():
            racks = racks_of(fragment.racks, physics.cabled_racks(site))
            if isinstance(racks, str):
                yield broken(f"known_racks[{site}]", f"stage {fragment.stage}: {racks}")
            if not 0 <= fragment.stage < stages:
                yield broken(f"known_racks[{site}]", f"stage {fragment.stage:,} is not from 0 to {stages - 1:,}")


def one_stage_per_rack(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no rack carries two fragments."""
    for site, stages in sorted(physics.stages.items()):
        times = Counter(rack for ranks in stages for rack in ranks)
        twice = sorted(rack for rack, count in times.items() if count > 1)
        if twice:
            first = twice[0]
            who = sorted({i for i, ranks in enumerate(stages) if first in ranks})
            yield broken(
                f"one_stage_per_rack[{site}]",
                f"rack {first} is assigned {times[first]} times > 1 (stages {who}); {len(twice):,} racks are",
            )


def leaf_domain(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every fragment is within the leaf domain it names."""
    for site, placed in sorted(physics.plan.placement.sites.items()) if physics.plan.placement else ():
        if site not in physics.wired or site not in physics.stages:
            continue
        size, total = physics.wired[site].domain_racks, physics.cabled_racks(site)
        for fragment in placed.assignment:
            first, last = fragment.leaf_domain * size, min((fragment.leaf_domain + 1) * size, total) - 1
            racks = racks_of(fragment.racks, total)
            outside = [rack for rack in racks if not first <= rack <= last] if not isinstance(racks, str) else []
            if outside:
                what = f"rack {outside[0]} is not from {first} to {last}, leaf domain {fragment.leaf_domain}"
                yield broken(f"leaf_domain[{site}]", f"stage {fragment.stage}: {what}")


def group_size(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every stage has the racks of its replica group at every site with replicas."""
    for site, stages in sorted(physics.stages.items()):
        wanted = physics.plan.layout.racks_per_stage_by_site.get(site, 0) if physics.plan.layout else 0
        wrong = [(i, len(ranks)) for i, ranks in enumerate(stages) if len(ranks) != wanted]
        for i, count in wrong[:3]:
            more = f"; {len(wrong)} stages differ" if len(wrong) > 1 else ""
            yield broken(f"group_size[{site}]", f"stage {i} has {count:,} racks, {wanted:,} expected{more}")


def figures(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that groups, split groups, fragments and groups across pods are counted as the assignment makes them."""
    placement, layout = physics.plan.placement, physics.plan.layout
    if placement is None or layout is None or set(physics.crossings) != set(placement.sites):
        return
    groups, split = (
        layout.rack_stages * len(physics.replicas),
        sum(crossing.groups_split for crossing in physics.crossings.values()),
    )
    figures_of_assignment = {
        "groups": groups,
        "groups_leaf_local": groups - split,
        "groups_split": split,
        "extra_pieces": sum(crossing.extra_pieces for crossing in physics.crossings.values()),
        "groups_cross_pod": sum(crossing.groups_cross_pod for crossing in physics.crossings.values()),
    }
    for name, value in figures_of_assignment.items():
        yield from must_equal("figures", name, getattr(placement, name), value)


def lower_bound(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the closed form's bound on split groups is stated; no placement is below it."""
    placement = physics.plan.placement
    bound = min_split(physics)
    if placement is not None and bound is not None:
        yield from must_equal("lower_bound", "lower_bound_split", placement.lower_bound_split, bound)
        yield from at_most(
            "lower_bound", bound, placement.groups_split, "groups split in any placement", "groups split"
        )


def min_split(physics: PlanPhysics) -> int | None:
    """Recompute the split groups that no placement avoids, over all sites; None where a site has no leaf domains."""
    layout = physics.plan.layout
    if layout is None or not set(physics.replicas) <= set(physics.wired):
        return None
    sizes = {site: layout.racks_per_stage_by_site.get(site, 0) for site in physics.replicas}
    if min(sizes.values(), default=0) < 1:
        return None
    domains = {
        site: transport.domain_racks(physics.wired[site].racks, physics.wired[site].domain_racks) for site in sizes
    }
    return sum(transport.lower_bound_split(domains[site], layout.rack_stages, size) for site, size in sizes.items())


def blocks(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that blocks hold whole replicas, and that the racks of each site are in the order of its stripes."""
    placement, layout = physics.plan.placement, physics.plan.layout
    if placement is None or layout is None or physics.faults:
        return
    if not placement.stripes:
        yield from must_equal("blocks", "block_racks of racks in no order of stripes", placement.block_racks, 0)
        return
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    yield from must_equal("blocks", "block_racks", placement.block_racks, layout.rack_stages * unit)
    for site, racks in sorted(layout.racks_per_stage_by_site.items()):
        number, stripes = racks // unit, placement.stripes.get(site, 0)
        yield from must_equal(f"blocks[{site}]", "blocks_by_site", placement.blocks_by_site.get(site), number)
        if not 1 <= stripes <= layout.rack_stages:
            yield broken(f"blocks[{site}]", f"{stripes} stripes, from 1 to {layout.rack_stages} expected")
        elif site in physics.stages and physics.stages[site] != striped(layout.rack_stages, number, stripes, unit):
            yield broken(f"blocks[{site}]", f"racks do not stand in the order of {stripes} stripes of {number} blocks")


def striped(stages: int, blocks: int, stripes: int, unit: int) -> list[list[int]]:
    """List the racks of each rack stage: stripe by stripe, in it block by block, in that stage by stage.

    The first `stages` mod `stripes` stripes have a stage more than the others; a stage of a block has `unit` racks.
    """
    order: list[list[int]] = []
    for stripe in range(stripes):
        first, size = len(order), stages // stripes + (stripe < stages % stripes)
        places = [[first * blocks + block * size + i for block in range(blocks)] for i in range(size)]
        order += [[place * unit + rack for place in row for rack in range(unit)] for row in places]
    return order


def pins(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that stripes and blocks are as pinned."""
    placement, wanted = physics.plan.placement, physics.instance.pins.get("placement.stripes")
    if placement is None:
        return
    for site, stripes in sorted(placement.stripes.items()):
        if wanted is not None:
            yield from must_equal("pins[placement.stripes]", f"stripes at {site} against the pin", stripes, wanted)
    for site, number in pinned_blocks(physics.instance).items():
        what = "blocks against the pin"
        yield from must_equal(f"pins[{BLOCKS_AT}{site}]", what, placement.blocks_by_site.get(site, 0), number)


RULES: tuple[Rule, ...] = (
    every_site,
    known_sites,
    known_racks, one_stage_per_rack, leaf_domain, group_size, figures, lower_bound, blocks, pins,
)  # fmt: skip


Above = dict[str, tuple[str, ...]]
STOPPED = ("proved", "limit", "interrupted", "failed")
SLACK = 1e-9  # of a ratio: rounding


def check_placement(topology: Topology, job: Job, placed: Placement, *, busy: Collection[str] = ()) -> list[Violation]:
    """Return the rules that a placement breaks; nothing where it breaks none."""
    leaf, above = _leaves(topology)
    free = Counter(leaf[node] for node in leaf if node not in busy)
    stated = list(statements(job, placed))
    if not placed.nodes:
        return [*stated, *refusal(topology, job, leaf, set(busy)), *nothing_placed(placed)]
    found = [*known_free_nodes(placed, leaf, set(busy)), *must_equal("job_size", "nodes", len(placed.nodes), job.nodes)]
    found = found or list(ranks_of_groups(job, placed))  # the other rules read the places of ranks and groups
    if found:
        return found
    found += [
        *stated,
        *placement_figures(placed, leaf, above),
        *one_tree(topology, placed, leaf),
        *groups_of_axes(job, placed, leaf, above),
        *order_of_names(placed),
        *neighbours(job, placed, leaf, above),
        *segments(topology, job, placed, leaf),
    ]
    return [*found, *proofs(job, placed, free)]


def statements(job: Job, placed: Placement) -> Iterator[Violation]:
    """Check the fields that a placement repeats of its job, that each figure occurs once, and the certificate's gap."""
    certificate = placed.certificate
    for name in ("gpus_per_node", "segment_nodes"):
        yield from must_be("job", name, getattr(placed, name), getattr(job, name))
    yield from must_be("job", "job", placed.job, job.name)
    if placed.stopped not in STOPPED:
        yield broken("stopped", f"{placed.stopped!r} is none of {', '.join(STOPPED)}")
    for name, times in Counter(figure.name for figure in placed.figures).items():
        if times > 1 or not name.strip():
            yield broken("figures", f"{name!r} occurs {times} times, each is named once")
    if (placed.step_seconds is None) != (placed.step_seconds_bound is None):
        yield broken("step_seconds", f"{placed.step_seconds} s stated with a bound of {placed.step_seconds_bound} s")
    gap = None
    if certificate.objective is not None and certificate.bound is not None:
        gap = abs(certificate.objective - certificate.bound) / max(abs(certificate.objective), 1e-12)
    if (certificate.gap is None) != (gap is None) or (
        gap is not None and certificate.gap is not None and abs(certificate.gap - gap) > SLACK
    ):
        yield broken("certificate", f"gap {certificate.gap} stated, {gap} by bound and value")


def nothing_placed(placed: Placement) -> Iterator[Violation]:
    """Check that a job that is refused has the reason and no figures."""
    for name in ("groups_split", "lower_bound_split", "extra_pieces", "groups_cross_pod"):
        yield from must_be("refusal", f"{name} of no nodes", getattr(placed, name), 0)
    for name in ("objective", "bound"):
        yield from must_be("refusal", f"{name} of no nodes", getattr(placed.certificate, name), None)
    if not placed.reason.strip():
        yield broken("refusal", "0 words of a reason")


def known_free_nodes(placed: Placement, leaf: dict[str, str], busy: set[str]) -> Iterator[Violation]:
    """Check that every node exists, is free and is used once."""
    for node, count in Counter(placed.nodes).items():
        if node not in leaf:
            yield broken("known_nodes", f"node {node} is not in the topology")
        elif node in busy:
            yield broken("free_nodes", f"node {node} is busy")
        if count > 1:
            yield broken("one_rank_per_node", f"node {node} occurs {count} times > 1")


def ranks_of_groups(job: Job, placed: Placement) -> Iterator[Violation]:
    """Check that every group of the job has the nodes of its ranks."""
    wanted = expected_groups(job)
    yield from must_equal("job_size", "groups", len(placed.groups), len(wanted))
    placed_as = {group.name: group for group in placed.groups}
    for name, ranks in wanted.items():
        nodes = tuple(placed.nodes[rank] for rank in ranks)
        if name not in placed_as:
            yield broken("ranks_of_groups", f"group {name} is missing")
        elif placed_as[name].nodes != nodes:
            node_count = len(placed_as[name].nodes)
            yield broken(
                "ranks_of_groups", f"group {name} has {node_count} nodes, not the {len(nodes)} of its ranks in order"
            )


def expected_groups(job: Job) -> dict[str, list[int]]:
    """Return the ranks of each group by name: of a mesh those that differ in the data axis alone."""
    found: dict[str, list[int]] = {}
    if job.mesh is None:
        first = 0
        for kind in job.groups:
            for i in range(kind.count):
                found[f"{kind.name}[{i}]"] = list(range(first, first + kind.size))
                first += kind.size
        return found
    axes = list(job.mesh.items())
    for member in range(prod(job.mesh.values())):
        rest, at = member, {}
        for axis, size in reversed(axes):
            rest, at[axis] = divmod(rest, size)
        label = ",".join(f"{axis}={at[axis]}" for axis, _ in axes if axis != "data")
        ranks = range(member * job.nodes_per_member, (member + 1) * job.nodes_per_member)
        found.setdefault(f"data[{label}]" if label else "data", []).extend(ranks)
    return found


def placement_figures(placed: Placement, leaf: dict[str, str], above: Above) -> Iterator[Violation]:
    """Check that split groups, pieces and groups across switches of each tier are counted as the nodes make them."""
    on = [{leaf[node] for node in group.nodes} for group in placed.groups]
    for group, leaves in zip(placed.groups, on, strict=True):
        if set(group.leaves) != leaves or len(group.leaves) != len(leaves):
            stated, actual = ", ".join(group.leaves), ", ".join(sorted(leaves))
            yield broken("leaves_of_groups", f"group {group.name} states leaves {stated}, its nodes stand in {actual}")
    tiers = len(next(iter(above.values()), ()))
    crossing = [sum(len({above[name][tier] for name in leaves}) > 1 for leaves in on) for tier in range(tiers)]
    yield from must_equal("figures", "groups_split", placed.groups_split, sum(len(leaves) > 1 for leaves in on))
    yield from must_equal("figures", "extra_pieces", placed.extra_pieces, sum(len(leaves) - 1 for leaves in on))
    yield from must_equal("figures", "groups_cross_pod", placed.groups_cross_pod, crossing[0] if crossing else 0)
    for figure, count in zip(
        [figure for figure in placed.figures if figure.name.startswith("groups across")], crossing, strict=False
    ):
        yield from must_equal("figures", figure.name, figure.value, count)
    for figure in placed.figures:
        if figure.bound > figure.value or figure.analytic_bound > figure.bound:
            order = f"analytic bound {figure.analytic_bound}, bound {figure.bound}, value {figure.value}"
            yield broken("bounds", f"{figure.name}: {order} are not in this order")


def order_of_names(placed: Placement) -> Iterator[Violation]:
    """Check that ranks that follow the names do: numbers in them by their value, as Slurm sorts its nodes."""
    for before, after in pairwise(placed.nodes if placed.order == "name" else ()):
        first, second = (
            [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"(\d+)", name)]
            for name in (before, after)
        )
        if first > second:
            yield broken("order_of_names", f"node {after} follows {before}, though its name does not")
            return


def one_tree(topology: Topology, placed: Placement, leaf: dict[str, str]) -> Iterator[Violation]:
    """Check that all nodes are under one root, as no scheduler gives a job nodes that no network joins."""
    root = _roots(topology)
    roots = sorted({root[leaf[node]] for node in placed.nodes if leaf[node] in root})
    if len(roots) > 1:
        yield broken("one_tree", f"nodes stand in {len(roots)} trees > 1: under {', '.join(roots)}")


def _roots(topology: Topology) -> dict[str, str]:
    parent = {switch.name: switch.parent for switch in topology.switches}
    roots = {}
    for switch in topology.switches if topology.kind == "tree" else ():
        at = switch.name
        while (above := parent[at]) is not None:
            at = above
        roots[switch.name] = at
    return roots


def neighbours(job: Job, placed: Placement, leaf: dict[str, str], above: Above) -> Iterator[Violation]:
    """Check that the neighbours along lines that are not in one pod are counted; without lines, for any numbering."""
    stated = next((figure.value for figure in placed.figures if "boundaries" in figure.name), None)
    if stated is None:
        return
    if not job.mesh:
        pods = [frozenset(above[leaf[node]][:1] for node in group.nodes) for group in placed.groups]
        yield from must_equal("figures", "boundaries across pods", stated, _runs(pods) - 1)
        return
    order = exchanges(job)
    on = {axis: [{leaf[placed.nodes[rank]] for rank in ranks} for ranks in lines_of(job, axis)] for axis in order}
    at = next((i for i, axis in enumerate(order) if any(len(pods) > 1 for pods in on[axis])), len(order) - 1)
    rest = [axis for axis in job.mesh if axis not in order]
    rest.sort(key=lambda axis: (axis == "pipeline", -list(job.mesh or {}).index(axis)))
    outside = [*rest, *reversed(order[at + 1 :])]
    blocks: dict[tuple[int, ...], set[tuple[str, ...]]] = {}
    for place, ranks in _members(job):
        in_pods = {above[leaf[placed.nodes[rank]]][:1] for rank in ranks}
        blocks.setdefault(tuple(place[axis] for axis in outside), set()).update(in_pods)
    if not outside:
        found = _runs([frozenset(block) for block in blocks.values()]) - 1
    else:
        lines: dict[tuple[int, ...], list[set[tuple[str, ...]]]] = {}
        for key in sorted(blocks):
            lines.setdefault(key[:-1], []).append(blocks[key])
        found = sum(len(one | other) > 1 for line in lines.values() for one, other in pairwise(line))
    yield from must_equal("figures", "boundaries across pods", stated, found)


def _runs(pods: Sequence[frozenset[tuple[str, ...]]]) -> int:
    """Count the pods with groups of their own, and the groups across pods."""
    return len({pod for pod in pods if len(pod) == 1}) + sum(len(pod) > 1 for pod in pods)


def _members(job: Job) -> Iterator[tuple[dict[str, int], range]]:
    """Return the place of each member of a mesh along its axes, and its ranks."""
    axes, per_member = list((job.mesh or {}).items()), job.nodes_per_member
    for member in range(prod(size for _, size in axes)):
        rest, at = member, {}
        for axis, size in reversed(axes):
            rest, at[axis] = divmod(rest, size)
        yield at, range(member * per_member, (member + 1) * per_member)


def exchanges(job: Job) -> list[str]:
    """Return the groups that a mesh keeps together, in order: "" for a member's nodes, then the exchanging axes."""
    size = job.traffic_bytes_per_step
    axes = [axis for axis in ("tensor", "context", "expert", "data") if (job.mesh or {}).get(axis, 1) > 1]
    found = [""] * (job.nodes_per_member > 1) + sorted(axes, key=lambda axis: -size.get(axis, 0.0))
    return found or ["data"]


def lines_of(job: Job, axis: str) -> list[list[int]]:
    """Return the ranks of each group of an axis: members that differ in it alone; of "" the nodes of each member."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, ranks in _members(job):
        key = tuple(at.values()) if axis == "" else tuple(place for name, place in at.items() if name != axis)
        groups.setdefault(key, []).extend(ranks)
    return list(groups.values())


def groups_of_axes(job: Job, placed: Placement, leaf: dict[str, str], above: Above) -> Iterator[Violation]:
    """Check that the figures list the axes' groups in order, and count their splits and crossings on these nodes."""
    order = exchanges(job) if job.mesh else []
    stated = {figure.name: figure for figure in placed.figures}
    names = [_what(axis) for axis in order]
    listed = [figure.name for figure in placed.figures if figure.name in {f"split {what}" for what in names}]
    if listed != [f"split {what}" for what in names] and placed.figures:
        yield broken("groups_of_axes", f"figures count {', '.join(listed)}, not {', '.join(names)} in this order")
    tiers = len(next(iter(above.values()), ()))
    for axis, what in zip(order, names, strict=True):
        on = [{leaf[placed.nodes[rank]] for rank in ranks} for ranks in lines_of(job, axis)]
        crossing = [sum(len({above[name][tier] for name in leaves}) > 1 for leaves in on) for tier in range(tiers)]
        counts = {f"split {what}": sum(len(leaves) > 1 for leaves in on)}
        if axis != "data":
            counts[f"extra pieces of {what}"] = sum(len(leaves) - 1 for leaves in on)
            across = [
                f"{what} across pods",
                *(f"{what} across switches of tier {tier + 2}" for tier in range(1, tiers)),
            ]
            counts |= dict(zip(across, crossing, strict=False))
        for name, count in counts.items():
            if name in stated:
                yield from must_equal("figures", name, stated[name].value, count)


def _what(axis: str) -> str:
    """Name the groups of an axis as figures do."""
    return {"": "members", "data": "groups"}.get(axis, f"{axis} groups")


def segments(topology: Topology, job: Job, placed: Placement, leaf: dict[str, str]) -> Iterator[Violation]:
    """Check that each segment is within a block, or within a leaf where it has none."""
    size = job.segment_nodes
    block = {node: block.name for block in topology.blocks for node in block.nodes}
    for group in placed.groups if size > 1 else ():
        for i in range(0, len(group.nodes), size):
            where = {(leaf[node], block.get(node)) for node in group.nodes[i : i + size]}
            if len(where) > 1:
                nodes = f"nodes {i} to {i + size - 1} stand in {len(where)} blocks > 1"
                yield broken("segments", f"group {group.name}: {nodes}")


def proofs(job: Job, placed: Placement, free: Counter[str]) -> Iterator[Violation]:
    """Check that the lower bound is no weaker than the closed form, and that only levels at their bounds are proven."""
    if placed.lower_bound_split > placed.groups_split:
        sides = f"{placed.lower_bound_split} groups split in any placement > {placed.groups_split} groups split"
        yield broken("lower_bound", sides)
    sizes = sorted({kind.size for kind in job.kinds})
    counts = {size: sum(kind.count for kind in job.kinds if kind.size >= size) for size in sizes}
    closed = max(max(0, count - sum(nodes // size for nodes in free.values())) for size, count in counts.items())
    if job.segment_nodes == 1 and placed.lower_bound_split < closed:
        yield broken("lower_bound", f"{placed.lower_bound_split} stated < {closed} by the closed form")
    yield from closed_forms_of_axes(job, placed, free)
    levels = [figure for figure in placed.figures if figure.name in placed.certificate.minimizes]
    proven = all(level.value == level.bound for level in levels)
    if placed.step_seconds is not None and placed.step_seconds_bound is not None:
        proven = placed.step_seconds <= placed.step_seconds_bound
    if (placed.certificate.status == "optimal") != proven:
        unproven = sum(level.value != level.bound for level in levels)
        yield broken("certificate", f"status {placed.certificate.status} with {unproven} figures off their bounds")


def closed_forms_of_axes(job: Job, placed: Placement, free: Counter[str]) -> Iterator[Violation]:
    """Check that the bound of each axis is no weaker than the closed form of its groups by themselves."""
    bounds = {figure.name: figure.bound for figure in placed.figures}
    for axis in exchanges(job) if job.mesh and job.segment_nodes == 1 else []:
        groups, name = lines_of(job, axis), f"split {_what(axis)}"
        closed = max(0, len(groups) - sum(nodes // len(groups[0]) for nodes in free.values()))
        if name in bounds and bounds[name] < closed:
            yield broken("lower_bound", f"{name}: bound {bounds[name]} < {closed} by the closed form")


def refusal(topology: Topology, job: Job, leaf: dict[str, str], busy: set[str]) -> Iterator[Violation]:
    """Check that a refused job needs more nodes than are free in any one network, in whole segments."""
    size = job.segment_nodes
    block = {node: block.name for block in topology.blocks for node in block.nodes}
    free = Counter((leaf[node], block.get(node) if size > 1 else None) for node in leaf if node not in busy)
    rooms, root = Counter[str](), _roots(topology)
    for (name, _), count in free.items():
        rooms[root.get(name, "")] += count // size * size
    room = max(rooms.values(), default=0)
    if job.nodes <= room:
        yield broken("refusal", f"{job.nodes} nodes needed <= {room} free, and no placement is given")


def _leaves(topology: Topology) -> tuple[dict[str, str], Above]:
    """Return the leaf of each node, and the switches above each leaf without a root that all share."""
    if topology.kind == "block" or not topology.switches:
        base, *larger = topology.block_sizes or (0,)
        spans = [size // base for size in larger if size // base < len(topology.blocks)]
        above = {
            block.name: tuple(f"{tier}:{i // span}" for tier, span in enumerate(spans))
            for i, block in enumerate(topology.blocks)
        }
        return {node: block.name for block in topology.blocks for node in block.nodes}, above
    parent = {switch.name: switch.parent for switch in topology.switches}
    chains: dict[str, list[str]] = {}
    for switch in topology.switches:
        if switch.nodes:
            chain, at = [], switch.parent
            while at is not None:
                chain.append(at)
                at = parent[at]
            chains[switch.name] = chain
    if len({chain[-1] if chain else "" for chain in chains.values()}) == 1:
        chains = {name: chain[:-1] for name, chain in chains.items()}
    depth = max(map(len, chains.values()), default=0)
    named = {name: chain or [name] for name, chain in chains.items()}
    above = {name: tuple(chain + chain[-1:] * (depth - len(chain)))[:depth] for name, chain in named.items()}
    return {node: switch.name for switch in topology.switches for node in switch.nodes}, above
