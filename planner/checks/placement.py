"""Rules of a placement: a plan's stages on racks and leaf domains, and a job on the nodes of a cluster."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import count as numbers_from_0
from itertools import islice, pairwise, product

from planner.checks.certificates import distance
from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, needs, once
from planner.cluster.job import Job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.instance.pins import BLOCKS_AT, pinned_blocks
from planner.physics.network.locality import domain_racks, lower_bound_split
from planner.physics.plan_physics import PlanPhysics, racks_of
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutPlan, PlacementPlan

STOPPED = ("proved", "limit", "interrupted", "failed")
SLACK = 1e-9  # of a ratio: rounding
Pods = frozenset[tuple[str, ...]]


@needs("placement")
def every_site(physics: PlanPhysics, placement: PlacementPlan) -> Violations:
    """Check that a placement has the replicas of every site and no other, as its stripes and blocks have them."""
    placed, planned = placement.sites.keys(), physics.racks_by_site.keys()
    yield from once("every_site", "placements", placed, planned & (physics.replicas.keys() | placed))
    for name, entries in (("stripes", placement.stripes), ("blocks_by_site", placement.blocks_by_site)):
        yield from once("known_sites", f"entries of {name}", entries, placed if entries else ())


@needs("placement")
def racks(physics: PlanPhysics, placement: PlacementPlan) -> Violations:
    """Check that a placement's racks and stages exist in leaf domains, none twice, each stage on its group's racks."""
    layout = physics.plan.layout
    stages = layout.rack_stages if layout else 0
    for site, placed in sorted(placement.sites.items()):
        total, design = physics.cabled_racks(site), physics.wired.get(site) if site in physics.stages else None
        for fragment in placed.assignment if site in physics.racks_by_site else ():
            racks, stage, domain = racks_of(fragment.racks, total), fragment.stage, fragment.leaf_domain
            if not 0 <= stage < stages:
                yield broken(f"known_racks[{site}]", f"stage {stage:,} is not from 0 to {stages - 1:,}")
            if isinstance(racks, str):
                yield broken(f"known_racks[{site}]", f"stage {stage}: {racks}")
                continue
            size = design.domain_racks if design is not None else 0
            first, last = domain * size, min((domain + 1) * size, total) - 1
            outside = next((rack for rack in racks if not first <= rack <= last), None)
            if design is not None and outside is not None:
                what = f"rack {outside} is not from {first} to {last}, leaf domain {domain}"
                yield broken(f"leaf_domain[{site}]", f"stage {stage}: {what}")
    for site, ranks in sorted(physics.stages.items()):
        times = Counter(rack for stage in ranks for rack in stage)
        twice = sorted(rack for rack, count in times.items() if count > 1)
        if twice:
            who = [i for i, stage in enumerate(ranks) if twice[0] in stage]
            what = f"rack {twice[0]} is assigned {times[twice[0]]} times > 1 (stages {who})"
            yield broken(f"one_stage_per_rack[{site}]", f"{what}; {len(twice):,} racks are")
        wanted = layout.racks_per_stage_by_site.get(site, 0) if layout else 0
        wrong = [(i, len(stage)) for i, stage in enumerate(ranks) if len(stage) != wanted]
        for i, count in wrong[:3]:
            more = f"; {len(wrong)} stages differ" if len(wrong) > 1 else ""
            yield broken(f"group_size[{site}]", f"stage {i} has {count:,} racks, {wanted:,} expected{more}")


@needs("placement", "layout")
def placed_groups(physics: PlanPhysics, placement: PlacementPlan, layout: LayoutPlan) -> Violations:
    """Check a placement's groups, split, in pieces and across pods, and the closed-form bound on those split."""
    crossings, sites = physics.crossings, physics.replicas
    if crossings.keys() == placement.sites.keys():
        names = ("groups_split", "extra_pieces", "groups_cross_pod")
        found = {name: sum(getattr(own, name) for own in crossings.values()) for name in names}
        found["groups"] = layout.rack_stages * len(sites)
        found["groups_leaf_local"] = found["groups"] - found["groups_split"]
        yield from figures("figures", placement, found)
    sizes = {site: layout.racks_per_stage_by_site.get(site, 0) for site in sites if site in physics.wired}
    if len(sizes) == len(sites) and min(sizes.values(), default=0) >= 1:
        bound = 0
        for site, size in sizes.items():
            domains = domain_racks(physics.wired[site].racks, physics.wired[site].domain_racks)
            bound += lower_bound_split(domains, layout.rack_stages, size)
        yield from figures("lower_bound", placement, {"lower_bound_split": bound})
        split = placement.groups_split
        yield from at_most("lower_bound", bound, split, "groups split by any placement", "groups split")


@needs("placement", "layout")
def blocks(physics: PlanPhysics, placement: PlacementPlan, layout: LayoutPlan) -> Violations:
    """Check that a placement's blocks hold whole replicas, and that the racks of each site follow its stripes."""
    stages, unit = layout.rack_stages, strategy_of(layout).unit_racks(physics.gpus_per_rack)
    # Racks in no order of stripes are in no blocks.
    yield from figures("blocks", placement, {"block_racks": stages * unit if placement.stripes else 0})
    for site, racks in sorted(layout.racks_per_stage_by_site.items()) if placement.stripes else ():
        number, stripes, rule = racks // unit, placement.stripes.get(site, 0), f"blocks[{site}]"
        yield from must_equal(rule, "blocks_by_site", placement.blocks_by_site.get(site), number)
        if not 1 <= stripes <= stages:
            yield broken(rule, f"{stripes} stripes, from 1 to {stages} expected")
            continue
        # The racks of each rack stage stand by stripe, in it block by block, `unit` racks a stage.
        order: list[list[int]] = []
        for stripe in range(stripes):
            first, size = len(order), stages // stripes + (stripe < stages % stripes)
            places = [[first * number + block * size + i for block in range(number)] for i in range(size)]
            order += [[place * unit + rack for place in row for rack in range(unit)] for row in places]
        if site in physics.stages and physics.stages[site] != order:
            yield broken(rule, f"racks do not stand in the order of {stripes} stripes of {number} blocks")


@needs("placement")
def pins(physics: PlanPhysics, placement: PlacementPlan) -> Violations:
    """Check that the stripes and blocks of a placement are as pinned."""
    wanted = physics.instance.pins.get("placement.stripes")
    for site, stripes in sorted(placement.stripes.items()) if wanted is not None else ():
        yield from must_equal("pins[placement.stripes]", f"stripes at {site} against the pin", stripes, wanted)
    for site, number in pinned_blocks(physics.instance).items():
        stated = placement.blocks_by_site.get(site, 0)
        yield from must_equal(f"pins[{BLOCKS_AT}{site}]", "blocks against the pin", stated, number)


def check_placement(topology: Topology, job: Job, placed: Placement, *, busy: Collection[str] = ()) -> list[Violation]:
    """Check the placement of a job on a cluster and return the rules that it breaks; nothing where it breaks none."""
    replay = Replay(topology, job, placed, busy)
    if not placed.nodes:
        return [*statements(replay), *refusal(replay)]
    found = list(known_free_nodes(replay)) or list(ranks_of_groups(replay))
    if found:  # the other rules read the places of ranks and groups
        return found
    rules = (statements, order_of_names, groups, neighbours, segments_and_trees, proofs)
    return [violation for rule in rules for violation in rule(replay)]


class Replay:
    """The checker's replay of a job's placement on a cluster: the leaf of each node and the switches above it."""

    def __init__(self, topology: Topology, job: Job, placed: Placement, busy: Collection[str]) -> None:
        self.topology, self.job, self.placed, self.busy = topology, job, placed, set(busy)
        self.by_blocks = topology.kind == "block" or not topology.switches  # which then are the leaves
        leaves = topology.blocks if self.by_blocks else topology.switches
        self.leaf = {node: leaf.name for leaf in leaves for node in leaf.nodes}
        self.block = {node: block.name for block in topology.blocks for node in block.nodes}
        self.free = Counter(leaf for node, leaf in self.leaf.items() if node not in self.busy)
        parent = {switch.name: switch.parent for switch in topology.switches}
        self.chains: dict[str, list[str]] = {}  # the switches above each switch, the root last
        for switch in topology.switches:
            self.chains[switch.name], at = [], switch.parent
            while at is not None:
                self.chains[switch.name].append(at)
                at = parent[at]

    @cached_property
    def above(self) -> dict[str, tuple[str, ...]]:
        """The switches above each leaf of the replayed cluster, equally many for all, without a shared root."""
        if self.by_blocks:
            base, *larger = self.topology.block_sizes or (0,)
            spans = [size // base for size in larger if size // base < len(self.topology.blocks)]
            names = [block.name for block in self.topology.blocks]
            return {name: tuple(f"{tier}:{i // of}" for tier, of in enumerate(spans)) for i, name in enumerate(names)}
        chains = {switch.name: self.chains[switch.name] for switch in self.topology.switches if switch.nodes}
        if len({chain[-1] if chain else "" for chain in chains.values()}) == 1:
            chains = {name: chain[:-1] for name, chain in chains.items()}
        depth = max(map(len, chains.values()), default=0)
        named = {name: chain or [name] for name, chain in chains.items()}
        return {name: tuple(chain + chain[-1:] * (depth - len(chain)))[:depth] for name, chain in named.items()}

    def root(self, leaf: str) -> str:
        """Return the root switch above a leaf of the replayed cluster; one for all that is no tree."""
        return (self.chains[leaf] or [leaf])[-1] if self.topology.kind == "tree" and leaf in self.chains else ""

    @cached_property
    def exchanges(self) -> dict[str, list[list[int]]]:
        """The checker's groups of a mesh's ranks kept together, in order: "" for members, then by exchanging axis."""
        mesh, size = self.job.mesh or {}, self.job.traffic_bytes_per_step
        axes = [axis for axis in ("tensor", "context", "expert", "data") if mesh.get(axis, 1) > 1]
        order = [""] * (self.job.nodes_per_member > 1) + sorted(axes, key=lambda axis: -size.get(axis, 0.0))
        return {axis: list(lines_of(self.job, axis).values()) for axis in order or ["data"]} if mesh else {}

    def leaves(self, groups: Iterable[Iterable[int]]) -> list[set[str]]:
        """Return the leaves that hold each of these groups of ranks in the checker's replay of a placement."""
        return [{self.leaf[self.placed.nodes[rank]] for rank in ranks} for ranks in groups]

    def pods(self, nodes: Iterable[str]) -> Pods:
        """Return the pods that hold these nodes in the checker's replay of a placement."""
        return frozenset(self.above[self.leaf[node]][:1] for node in nodes)

    def counts(self, on: list[set[str]], what: str) -> dict[str, int]:
        """Recount a placement's groups over several leaves, their extra pieces, and groups across each tier by name."""
        extra = "extra pieces" if what == "groups" else f"extra pieces of {what}"
        found = {f"split {what}": sum(len(leaves) > 1 for leaves in on), extra: sum(len(leaves) - 1 for leaves in on)}
        for tier in range(len(next(iter(self.above.values()), ()))):
            where = f"switches of tier {tier + 2}" if tier else "pods"
            found[f"{what} across {where}"] = sum(len({self.above[leaf][tier] for leaf in own}) > 1 for own in on)
        return found


def statements(replay: Replay) -> Violations:
    """Check the fields that a placement repeats of its job, that each figure occurs once, and the certificate's gap."""
    job, placed, claim = replay.job, replay.placed, replay.placed.certificate
    for name in ("gpus_per_node", "segment_nodes"):
        yield from must_be("job", name, getattr(placed, name), getattr(job, name))
    yield from must_be("job", "job", placed.job, job.name)
    if placed.stopped not in STOPPED:
        yield broken("stopped", f"{placed.stopped!r} is none of {', '.join(STOPPED)}")
    for name, times in Counter(figure.name for figure in placed.figures).items():
        if times > 1 or not name.strip():
            yield broken("figures", f"{name!r} occurs {times} times, each is named once")
    for figure in placed.figures:
        if not figure.analytic_bound <= figure.bound <= figure.value:
            order = f"analytic bound {figure.analytic_bound}, bound {figure.bound}, value {figure.value}"
            yield broken("bounds", f"{figure.name}: {order} are not in this order")
    if (placed.step_seconds is None) != (placed.step_seconds_bound is None):
        yield broken("step_seconds", f"{placed.step_seconds} s stated with a bound of {placed.step_seconds_bound} s")
    gap = distance(claim.objective, claim.bound)
    if (claim.gap is None) != (gap is None) or abs((claim.gap or 0.0) - (gap or 0.0)) > SLACK:
        yield broken("certificate", f"gap {claim.gap} stated, {gap} by bound and value")


def refusal(replay: Replay) -> Violations:
    """Check that a refused job has a reason, no figures, and more nodes than any one network has in whole segments."""
    job, placed = replay.job, replay.placed
    for name in ("groups_split", "lower_bound_split", "extra_pieces", "groups_cross_pod"):
        yield from must_be("refusal", f"{name} of no nodes", getattr(placed, name), 0)
    for name in ("objective", "bound"):
        yield from must_be("refusal", f"{name} of no nodes", getattr(placed.certificate, name), None)
    if not placed.reason.strip():
        yield broken("refusal", "0 words of a reason")
    size, nodes, rooms = job.segment_nodes, replay.leaf.keys() - replay.busy, Counter[str]()
    free = Counter((replay.leaf[node], replay.block.get(node) if size > 1 else None) for node in nodes)
    for (leaf, _), count in free.items():
        rooms[replay.root(leaf)] += count // size * size
    room = max(rooms.values(), default=0)
    if job.nodes <= room:
        yield broken("refusal", f"{job.nodes} nodes needed <= {room} free, and no placement is given")


def known_free_nodes(replay: Replay) -> Violations:
    """Check that a placement has a node for every rank, and that each exists, is free and is used once."""
    for node, count in Counter(replay.placed.nodes).items():
        if node not in replay.leaf:
            yield broken("known_nodes", f"node {node} is not in the topology")
        elif node in replay.busy:
            yield broken("free_nodes", f"node {node} is busy")
        if count > 1:
            yield broken("one_rank_per_node", f"node {node} occurs {count} times > 1")
    yield from must_equal("job_size", "nodes", len(replay.placed.nodes), replay.job.nodes)


def ranks_of_groups(replay: Replay) -> Violations:
    """Check that every group of a placed job has its ranks' nodes: of a mesh those that differ in the data axis."""
    job, placed, ranks_left = replay.job, replay.placed, numbers_from_0()
    sizes = {f"{kind.name}[{i}]": kind.size for kind in job.groups for i in range(kind.count)}
    wanted = {name: list(islice(ranks_left, size)) for name, size in sizes.items()}
    for key, ranks in lines_of(job, "data").items() if job.mesh is not None else ():
        wanted[f"data[{','.join(f'{axis}={at}' for axis, at in key)}]" if key else "data"] = ranks
    stated = {group.name: group.nodes for group in placed.groups}
    yield from must_equal("job_size", "groups", len(placed.groups), len(wanted))
    for name, ranks in wanted.items():
        if name not in stated:
            yield broken("ranks_of_groups", f"group {name} is missing")
        elif stated[name] != tuple(placed.nodes[rank] for rank in ranks):
            number = len(stated[name])
            yield broken("ranks_of_groups", f"group {name} has {number} nodes, not the {len(ranks)} of its ranks")


def lines_of(job: Job, axis: str) -> dict[tuple[tuple[str, int], ...], list[int]]:
    """Recompute a placed mesh's groups of ranks for the check: by place along axes but one; "": each member's nodes."""
    mesh, ranks, found = job.mesh or {}, numbers_from_0(), dict[tuple[tuple[str, int], ...], list[int]]()
    for at in product(*map(range, mesh.values())):
        along = tuple(place for place in zip(mesh, at, strict=True) if place[0] != axis)
        found.setdefault(along, []).extend(islice(ranks, job.nodes_per_member))
    return found


def _what(axis: str) -> str:
    return {"": "members", "data": "groups"}.get(axis, f"{axis} groups")


def groups(replay: Replay) -> Violations:
    """Check the leaves that a placement's groups name, the groups split and across switches, and the order of axes."""
    placed = replay.placed
    on = [{replay.leaf[node] for node in group.nodes} for group in placed.groups]
    for group, leaves in zip(placed.groups, on, strict=True):
        if sorted(group.leaves) != sorted(leaves):
            stated, actual = ", ".join(group.leaves), ", ".join(sorted(leaves))
            yield broken("leaves_of_groups", f"group {group.name} states leaves {stated}, its nodes stand in {actual}")
    found = replay.counts(on, "groups")
    names = {"groups_split": "split groups", "extra_pieces": "extra pieces", "groups_cross_pod": "groups across pods"}
    yield from figures("figures", placed, {name: found.get(words, 0) for name, words in names.items()})
    splits = [f"split {_what(axis)}" for axis in replay.exchanges]
    listed = [figure.name for figure in placed.figures if figure.name in splits]
    if listed != splits and placed.figures:
        yield broken("groups_of_axes", f"figures count {', '.join(listed)}, not {', '.join(splits)} in this order")
    for axis, lines in replay.exchanges.items():
        found |= replay.counts(replay.leaves(lines), _what(axis))
    if not replay.job.mesh:
        del found["split groups"]  # a kind's groups may weigh their bytes
    for figure in placed.figures:
        if figure.name in found:
            yield from must_equal("figures", figure.name, figure.value, found[figure.name])


def order_of_names(replay: Replay) -> Violations:
    """Check that a placement's ranks follow the node names where asked, numbers by value as Slurm sorts nodes."""
    for pair in pairwise(replay.placed.nodes if replay.placed.order == "name" else ()):
        words = [re.split(r"(\d+)", name) for name in pair]
        first, second = ([(int(word), "") if word.isdecimal() else (-1, word) for word in own] for own in words)
        if first > second:
            yield broken("order_of_names", f"node {pair[1]} follows {pair[0]}, though its name does not")
            return


def neighbours(replay: Replay) -> Violations:
    """Check a placement's count of neighbouring ranks in different pods; without lines, for any numbering."""
    job, nodes = replay.job, replay.placed.nodes
    stated = next((figure.value for figure in replay.placed.figures if "boundaries" in figure.name), None)
    if stated is None:
        return
    blocks, outside = defaultdict[tuple[int, ...], Pods](frozenset), list[str]()
    if job.mesh:
        order = list(replay.exchanges)
        split = (any(len(on) > 1 for on in replay.leaves(lines)) for lines in replay.exchanges.values())
        at = next((i for i, apart in enumerate(split) if apart), len(order) - 1)
        rest = [axis for axis in reversed(job.mesh) if axis not in order]
        outside = [*sorted(rest, key=lambda axis: axis == "pipeline"), *reversed(order[at + 1 :])]
        for place, ranks in lines_of(job, "").items():
            blocks[tuple(dict(place)[axis] for axis in outside)] |= replay.pods(nodes[rank] for rank in ranks)
    if outside:
        steps = (pair for pair in pairwise(sorted(blocks)) if pair[0][:-1] == pair[1][:-1])  # along one line
        found = sum(len(blocks[one] | blocks[other]) > 1 for one, other in steps)
    else:  # pods with groups of their own, and groups across pods, are runs of one line
        runs = list(blocks.values()) if job.mesh else [replay.pods(group.nodes) for group in replay.placed.groups]
        found = len({run for run in runs if len(run) == 1}) + sum(len(run) > 1 for run in runs) - 1
    yield from must_equal("figures", "boundaries across pods", stated, found)


def segments_and_trees(replay: Replay) -> Violations:
    """Check that each segment of a placed job is within one block or leaf, and all nodes under one root."""
    size, placed = replay.job.segment_nodes, replay.placed
    roots = sorted({replay.root(replay.leaf[node]) for node in placed.nodes})
    if len(roots) > 1:
        yield broken("one_tree", f"nodes stand in {len(roots)} trees > 1: under {', '.join(roots)}")
    for group in placed.groups if size > 1 else ():
        for i in range(0, len(group.nodes), size):
            where = {(replay.leaf[node], replay.block.get(node)) for node in group.nodes[i : i + size]}
            if len(where) > 1:
                nodes = f"nodes {i} to {i + size - 1} stand in {len(where)} blocks > 1"
                yield broken("segments", f"group {group.name}: {nodes}")


def proofs(replay: Replay) -> Violations:
    """Check a placement's bounds against closed forms (groups that whole leaves cannot hold split), and optimality."""
    job, placed = replay.job, replay.placed
    split, bound, kinds = placed.groups_split, placed.lower_bound_split, job.kinds
    yield from at_most("lower_bound", bound, split, "groups split in any placement", "groups split")
    counts = [("lower_bound_split", own.size, sum(one.count for one in kinds if one.size >= own.size)) for own in kinds]
    counts += [(f"split {_what(axis)}", len(lines[0]), len(lines)) for axis, lines in replay.exchanges.items()]
    bounds = {figure.name: figure.bound for figure in placed.figures} | {"lower_bound_split": bound}
    for name, size, count in counts if job.segment_nodes == 1 else ():
        closed = max(0, count - sum(nodes // size for nodes in replay.free.values()))
        stated = bounds.get(name, closed)
        if stated < closed:
            yield broken("lower_bound", f"{name}: bound {stated} < {closed} by the closed form")
    claim, seconds, least = placed.certificate, placed.step_seconds, placed.step_seconds_bound
    unproven = sum(figure.value != figure.bound for figure in placed.figures if figure.name in claim.minimizes)
    proven = not unproven if seconds is None or least is None else seconds <= least
    if (claim.status == "optimal") != proven:
        yield broken("certificate", f"status {claim.status} with {unproven} figures off their bounds")


RULES = (every_site, racks, placed_groups, blocks, pins)
