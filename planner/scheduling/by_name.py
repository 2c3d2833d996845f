"""Placement of a job whose ranks follow the order of node names, as a launcher numbers them that takes no other."""

from collections.abc import Sequence

from planner.cluster.hostlist import natural
from planner.cluster.job import Job, slots
from planner.cluster.nesting import MEMBER, Level, blocks, levels
from planner.cluster.placement import Figure, Placement
from planner.errors import InputError
from planner.models.placement.name_order import Chosen, Order, fewest_cuts
from planner.models.placement.ranks import Ranked
from planner.physics.network.locality import lower_bound_split
from planner.scheduling.counting import in_segments
from planner.scheduling.placing import across_pods, does_not_fit, placed_groups
from planner.scheduling.session import Cluster
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop

SOLVER = "dynamic programming over leaves in the order of names"
FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node and what is cut of the group under way as state."
)
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"


def place_by_name(cluster: Cluster, job: Job, taken: set[str], seed: int) -> Placement:
    """Choose the nodes whose order by name splits the fewest members, then groups, then makes the fewest pieces.

    Raises
    ------
    InputError
        If ranks of a group do not follow each other, or leaves are mixed by name: no order by name is worth a choice.
    """
    order, deadline = _order_of(job), Deadline(None)
    runs = _runs(cluster, taken)
    chosen: dict[int, Chosen] = {}
    for tree in range(cluster.trees):
        own = [len(left) if cluster.leaves[i].tree == tree else 0 for i, left in runs]
        found = fewest_cuts(own, order)
        if found is not None:
            chosen[tree] = found
    if not chosen:
        free = [0] * cluster.trees
        for i, left in runs:
            free[cluster.leaves[i].tree] += len(left)
        q = in_segments(job, cluster.leaves, taken).q
        return does_not_fit(job, q, seed, cluster.trees, max(free))
    best = min(chosen.values(), key=lambda c: c.values)
    nodes = tuple(n for (_, own), t in zip(runs, best.taken, strict=True) for n in own[:t])
    return _stated(cluster, job, nodes, best, [len(own) for _, own in runs], deadline, seed)


def _order_of(job: Job) -> Order:
    """Return the job's groups in rank order; refuse what has no groups that follow each other."""
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


def _runs(cluster: Cluster, taken: set[str]) -> list[tuple[int, list[str]]]:
    """Return the leaves in the order of names, each with its free nodes."""
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
    cluster: Cluster,
    job: Job,
    nodes: tuple[str, ...],
    chosen: Chosen,
    free: Sequence[int],
    deadline: Deadline,
    seed: int,
) -> Placement:
    """State the groups and figures of the chosen nodes: what is searched is proven, pods are counted."""
    own = []
    for slot in slots(job):
        on = tuple(nodes[r] for r in slot.ranks)
        own.append(Ranked(slot.name, on, tuple(dict.fromkeys(cluster.leaf_of[n] for n in on)), slot.ranks))
    groups = placed_groups(cluster, own)
    figures = _figures(job, chosen)
    tiers = len(cluster.leaves[0].path)
    crossing = [across_pods(cluster, groups, t) for t in range(tiers)]
    what = _searched(job).what
    if what == "groups":
        names = ["groups across pods", *(f"groups across switches of tier {t + 2}" for t in range(1, tiers))]
        counted = [Figure(name=n, value=v, bound=0, analytic_bound=0) for n, v in zip(names, crossing, strict=False)]
    else:
        counted = []
    goals = ", then ".join(f.name for f in figures)
    outcome: Outcome[Chosen] = Outcome(
        stop=Stop.PROVED,
        solution=chosen,
        objective=float(figures[0].value),
        bound=float(figures[0].value),
        solver=SOLVER,
        seconds=deadline.elapsed,
    )
    count, size = sum(k.count for k in job.kinds), max(k.size for k in job.kinds)
    closed = lower_bound_split(free, count, size) if len(job.kinds) == 1 else 0
    return Placement(
        job=job.name,
        nodes=nodes,
        groups=groups,
        order="name",
        groups_split=sum(len(g.leaves) > 1 for g in groups),
        lower_bound_split=closed,
        extra_pieces=sum(len(g.leaves) - 1 for g in groups),
        groups_cross_pod=crossing[0] if crossing else 0,
        figures=(*figures, *counted),
        gpus_per_node=job.gpus_per_node,
        certificate=outcome.certificate(
            formulation=FORMULATION,
            minimizes=f"{goals}, with ranks in the order of node names; objective and bound are those of "
            f"{figures[0].name!r}",
            seed=seed,
            given="ranks follow the order of node names",
        ),
    )


def _searched(job: Job) -> Level:
    """Return what the groups of the rank order are."""
    found = levels(job)
    return found[-1] if found else Level("data", 1, 1, 1)


def _figures(job: Job, chosen: Chosen) -> list[Figure]:
    """State what the choice cuts: with members of several nodes these first, which alone may be all there is."""
    members, split, extra = chosen.values
    what = _searched(job).what
    beside = "" if what == "groups" else f" of {what}"
    rows = [(f"split {what}", split), (f"extra pieces{beside}", extra)]
    if job.mesh is not None and job.nodes_per_member > 1 and what != "members":
        rows.insert(0, ("split members", members))
    return [Figure(name=n, value=v, bound=v, analytic_bound=0) for n, v in rows]
