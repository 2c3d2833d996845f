"""Placement of a job whose ranks follow the order of node names, as a launcher numbers them that takes no other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.cluster.hostlist import natural
from planner.cluster.job import MEMBER, Job, MeshLevel, blocks, levels
from planner.cluster.placement import Figure, Placement
from planner.errors import InputError
from planner.models.placement.name_order import Chosen, Order, fewest_cuts
from planner.models.requests import Options
from planner.physics.network.locality import lower_bound_split
from planner.scheduling.placing import (
    LeafMap,
    across_pods,
    does_not_fit,
    groups_in_ranks,
    in_segments,
    placed_groups,
    split_at_least,
)
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop

SOLVER = "dynamic programming over leaves in the order of names"
FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node and what is cut of the group under way as state."
)
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"


def place_by_name(cluster: LeafMap, job: Job, taken: set[str], options: Options) -> Placement:
    """Choose the nodes whose order by name splits the fewest members, then groups, then makes the fewest pieces.

    InputError if ranks of a group do not follow each other, or leaves are mixed by name: no order by name is worth a
    choice.
    """
    order, deadline, seed = _order_of(job), Deadline(options.time_limit), options.seed
    runs = _runs(cluster, taken)
    chosen: dict[int, Chosen] = {}
    for tree in range(cluster.trees):
        own = [len(left) if cluster.leaves[i].tree == tree else 0 for i, left in runs]
        found = fewest_cuts(own, order, deadline)
        if found is not None:
            chosen[tree] = found
    if not chosen:
        free = [0] * cluster.trees
        for i, left in runs:
            free[cluster.leaves[i].tree] += len(left)
        q = in_segments(job, cluster.leaves, taken).q
        return does_not_fit(job, q, seed, cluster.trees, max(free))
    best = min(chosen.values(), key=lambda c: c.values)
    proved = all(c.proved for c in chosen.values())
    nodes = tuple(n for (_, own), t in zip(runs, best.taken, strict=True) for n in own[:t])
    return _stated(cluster, job, nodes, replace(best, proved=proved), [len(own) for _, own in runs], deadline, seed)


def _order_of(job: Job) -> Order:
    if job.segment_nodes > 1:
        raise InputError(f"job {job.name!r}: segment_nodes and the order of names do not go together; {REMEDY}")
    if job.mesh is None:
        return Order(groups=tuple(k.size for k in job.groups for _ in range(k.count)))
    found = levels(job)
    axes = [x.axis for x in found if x.axis != MEMBER]
    if len(axes) > 1:
        raise InputError(f"job {job.name!r}: {' and '.join(axes)} exchange, by name one axis can; {REMEDY}")
    last = len(found) - 1
    ranks = sorted(slot.ranks for slot in blocks(job, last))
    if [r for own in ranks for r in own] != list(range(job.nodes)):
        raise InputError(f"job {job.name!r}: ranks along {axes[0]} do not follow each other; {REMEDY}")
    return Order(groups=(found[last].size,) * found[last].count, member=job.nodes_per_member)


def _runs(cluster: LeafMap, taken: set[str]) -> list[tuple[int, list[str]]]:
    runs: list[tuple[int, list[str]]] = []
    free = (n for leaf in cluster.leaves for n in leaf.nodes if n not in taken)
    for node in sorted(free, key=natural):
        i = cluster.leaf_of[node]
        if not runs or runs[-1][0] != i:
            runs.append((i, []))
        runs[-1][1].append(node)
    seen: set[int] = set()
    for i, nodes in runs:
        if i in seen:
            raise InputError(
                f"leaf {cluster.leaves[i].name!r}: other leaves' nodes stand between its own by name, such as before "
                f"{nodes[0]!r}; {REMEDY}"
            )
        seen.add(i)
    return runs


def _stated(
    cluster: LeafMap,
    job: Job,
    nodes: tuple[str, ...],
    chosen: Chosen,
    free: Sequence[int],
    deadline: Deadline,
    seed: int,
) -> Placement:
    groups = placed_groups(cluster, groups_in_ranks(cluster, job, nodes))
    order = _order_of(job)
    sizes = set(order.groups)
    least = {"split members": lower_bound_split(free, job.nodes // order.member, order.member)}
    least[f"split {_searched(job).what}"] = lower_bound_split(free, len(order.groups), min(sizes)) * (len(sizes) == 1)
    figures = _figures(job, chosen, least)
    tiers = len(cluster.leaves[0].path)
    crossing = [across_pods(cluster, groups, t) for t in range(tiers)]
    what = _searched(job).what
    names = ["groups across pods", *(f"groups across switches of tier {t + 2}" for t in range(1, tiers))]
    counted = [Figure(name=n, value=v, bound=0, analytic_bound=0) for n, v in zip(names, crossing, strict=False)]
    goals = ", then ".join(f.name for f in figures)
    stated = next((f for f in figures if f.value != f.bound), figures[0])
    outcome: Outcome[Chosen] = Outcome(
        stop=Stop.PROVED if all(f.value == f.bound for f in figures) else Stop.LIMIT,
        solution=chosen,
        objective=float(stated.value),
        bound=float(stated.bound),
        solver=SOLVER,
        seconds=deadline.elapsed,
    )
    return Placement(
        job=job.name,
        nodes=nodes,
        groups=groups,
        order="name",
        stopped=outcome.stop.value,
        groups_split=sum(len(g.leaves) > 1 for g in groups),
        lower_bound_split=least.get("split groups", 0) if _searched(job).axis == "data" else split_at_least(job, free),
        extra_pieces=sum(len(g.leaves) - 1 for g in groups),
        groups_cross_pod=crossing[0] if crossing else 0,
        figures=(*figures, *(counted if what == "groups" else ())),
        gpus_per_node=job.gpus_per_node,
        certificate=outcome.certificate(
            formulation=FORMULATION,
            minimizes=f"{goals}, with ranks in the order of node names; objective and bound are those of "
            f"{stated.name!r}",
            seed=seed,
            given="ranks follow the order of node names",
        ),
    )


def _searched(job: Job) -> MeshLevel:
    found = levels(job)
    return found[-1] if found else MeshLevel("data", 1, 1, 1)


def _figures(job: Job, chosen: Chosen, least: Mapping[str, int]) -> list[Figure]:
    """State what the choice cuts: members of several nodes first; without a proof the closed forms bound them."""
    members, split, extra = chosen.values
    what = _searched(job).what
    beside = "" if what == "groups" else f" of {what}"
    rows = [(f"split {what}", split), (f"extra pieces{beside}", extra)]
    if job.mesh is not None and job.nodes_per_member > 1 and what != "members":
        rows.insert(0, ("split members", members))
    bounds = [v if chosen.proved else min(v, least.get(n, 0)) for n, v in rows]
    return [
        Figure(name=n, value=v, bound=b, analytic_bound=min(b, least.get(n, 0)))
        for (n, v), b in zip(rows, bounds, strict=True)
    ]
