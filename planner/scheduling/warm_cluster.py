"""A cluster kept warm between calls: its topology and busy nodes, and jobs placed on it in any order or by name."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import RLock
from typing import Any

from planner.argument_ranges import bounded
from planner.checks.placement import check_placement
from planner.cluster.hostlists import natural, read_hosts
from planner.cluster.job import MEMBER, AnyJob, Job, read_job
from planner.cluster.placement import Figure, PlacedGroup, Placement
from planner.cluster.topology import Topology
from planner.errors import InputError, InternalError, hint
from planner.formats.cluster_files import read_states, read_topology
from planner.instance.validation import validated
from planner.models import Options
from planner.models.placement import placement_problem as problems
from planner.models.placement.place_job import FORMULATION, Order, fewest_cuts, rank, solve_in_one_tree
from planner.models.placement.placement_problem import (
    Counted,
    Kind,
    LeafNodes,
    Packing,
    PlacementProblem,
    Solution,
    Unit,
    in_units,
    only,
)
from planner.physics.network.locality import lower_bound_split
from planner.plan.certificate import Certificate
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.registry import SOLVERS, linear_runner
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import uninterrupted
from planner.units import few

DEFAULT_SECONDS = 10.0
ORDERS = ("any", "name")
Placed = Solution[Packing]
Rows = Iterable[tuple[str, int, int, int]]  # of levels: name, value, bound, analytic bound
SOLVER = "dynamic programming over leaves in the order of names"
BY_NAME_FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node as state."
)
BY_NAME = "ranks in the order of node names"
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"


def options_of(time_limit: float | None, seed: int = 0, threads: int | None = None) -> Options:
    """Return how hard to search for a placement on a warm cluster, with its usual time limit unless given."""
    return Options(time_limit=DEFAULT_SECONDS if time_limit is None else time_limit, seed=seed, threads=threads)


class Cluster:
    """A warm cluster: its topology and the nodes that are busy or broken; several threads may call every method."""

    @bounded
    def __init__(self, topology: Topology | Mapping[str, Any] | str | Path, *, busy: Iterable[str] | str = ()) -> None:
        if isinstance(topology, Mapping):
            topology = validated(Topology, topology, "topology")
        self.topology = topology if isinstance(topology, Topology) else read_topology(topology)
        self.leaves: tuple[LeafNodes, ...] = tuple(problems.leaves_of(self.topology))
        self.leaf_of = {node: i for i, leaf in enumerate(self.leaves) for node in leaf.nodes}
        self.trees = len({leaf.tree for leaf in self.leaves})
        self._busy: set[str] = set()
        self._lock = RLock()
        self.set_busy(busy)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the cluster to another process as topology and busy nodes; the lock stays here."""
        return partial(Cluster, busy=tuple(sorted(self.busy))), (self.topology,)

    @staticmethod
    def warm_up() -> None:
        """Load the solvers of placements now, so that a later call on the cluster with little time may use them."""
        with uninterrupted():
            import planner.models.placement.placement_levels  # noqa: F401
        for name in SOLVERS:
            linear_runner(usual=name)

    @property
    def busy(self) -> frozenset[str]:
        """Nodes of the warm cluster that are not free."""
        with self._lock:
            return frozenset(self._busy)

    def set_busy(self, nodes: Iterable[str] | str) -> None:
        """Take nodes out of the warm cluster's free ones; those that are busy already stay so."""
        wanted = self.known(nodes)
        with self._lock:
            self._busy.update(wanted)

    def set_free(self, nodes: Iterable[str] | str) -> None:
        """Give nodes back to the warm cluster; those that are free already stay so."""
        wanted = self.known(nodes)
        with self._lock:
            self._busy.difference_update(wanted)

    def known(self, nodes: Iterable[str] | str) -> list[str]:
        """Return nodes of the warm cluster; InputError names the first that its topology does not have."""
        wanted = read_hosts(nodes, "nodes")
        for node in wanted:
            if node not in self.leaf_of:
                raise InputError(f"node {node!r} is not in the topology; {hint(node, self.leaf_of, 0.6, 1)}")
        return wanted

    @bounded
    def place(
        self,
        job: AnyJob,
        *,
        busy: Iterable[str] | str = (),
        free: Iterable[str] | str = (),
        time_limit: float | None = None,
        seed: int = 0,
        threads: int | None = None,
        fragmentation: bool = False,
        order: str = "any",
    ) -> Placement:
        """Place one job on the free nodes of the warm cluster.

        Parameters
        ----------
        job
            Its groups; as in `planner.place`.
        busy
            Nodes, by name or in a hostlist, to leave out of this call in addition to those that are busy already.
        free
            Nodes to count as free in this call whatever they are, `busy` before them.
        time_limit
            Seconds for the proofs, 10 unless given; a placement comes back in any case, with what is proven of it.
            A solver that is not loaded yet (`warm_up`) is not loaded for less than 2 seconds.
        seed, threads
            Of the solver, where one is needed.
        fragmentation
            Search the last level of the objective too, the leaves left part-free (and the pods that groups without a
            pipeline spread over); otherwise best fit decides it.
        order
            "name" where the launcher numbers ranks by node name: then nodes are chosen for that order.

        Raises
        ------
        InputError
            If the order is unknown, or ranks by name are not to be had (`place_by_name`).
        InternalError
            If a placement breaks a rule of the checker, which replays it from the topology.
        """
        options, job = options_of(time_limit, seed, threads), read_job(job)
        taken = self.taken(busy, free)
        if order not in ORDERS:
            raise InputError(f"order: must be {' or '.join(ORDERS)} (is {order!r})")
        if order == "name":
            placed = place_by_name(self, job, taken, options)
        else:
            # Of a mesh its level to place, in the trees where most levels are whole.
            counted = in_units(job, self.leaves, taken)
            parts = [only(self.leaves, counted.q, {tree}) for tree in range(self.trees)]
            fits = [tree for tree, part in enumerate(parts) if part.need <= part.free]
            if job.mesh is not None and fits:
                # The first level whose blocks do not all fit on leaves by their free segments, or the last. Where all
                # blocks of a level fit, so do those inside them: the levels before are whole without a choice.
                level, levels = dict[int, int](), job.levels
                for tree in fits:
                    free_of = [leaf.free for leaf in parts[tree].leaves]
                    fit = [sum(count // (own.size // job.segment_nodes) for count in free_of) for own in levels]
                    level[tree] = next((i for i, own in enumerate(levels) if fit[i] < own.count), len(levels) - 1)
                fits = [tree for tree in fits if level[tree] == max(level.values())]
                counted = in_units(job, self.leaves, taken, level[fits[0]])
                parts = [only(self.leaves, counted.q, {tree}) for tree in range(self.trees)]
            parts = [parts[tree] for tree in fits] or [max(parts, key=lambda part: part.free)]
            best, solution = solve_in_one_tree(parts, options, fragmentation=fragmentation)
            counted = replace(counted, q=parts[best])
            left = [sum(node not in taken for node in leaf.nodes) for leaf in self.leaves]
            placed = placement(self, job, counted, solution, seed, left)
        # The checker shares no code with the formulation, and is as quick: 2 ms for 900 nodes, 40 ms for 15,000.
        broken = check_placement(self.topology, job, placed, busy=taken)
        if broken:
            raise InternalError(f"the placement of job {job.name!r} breaks {broken[0].rule}: {broken[0].message}")
        return placed

    def taken(self, busy: Iterable[str] | str = (), free: Iterable[str] | str = ()) -> set[str]:
        """Return the warm cluster's nodes that a call may not use: busy ones that are not `free`, and `busy`."""
        with self._lock:
            return self._busy.difference(self.known(free)).union(self.known(busy))

    @bounded
    def problem(
        self, job: AnyJob, busy: Iterable[str] | str = (), *, free: Iterable[str] | str = ()
    ) -> "tuple[PlacementProblem, list[list[Unit]]]":
        """Return a job's placement problem on the warm cluster in units of segments, and each leaf's free units."""
        counted = in_units(read_job(job), self.leaves, self.taken(busy, free))
        return counted.q, counted.units


def placement(
    cluster: Cluster, job: Job, counted: Counted, solution: Placed | None, seed: int, free: Sequence[int] = ()
) -> Placement:
    """Return a job's placement as solved on a warm cluster by node names, figures and proof; `free`: nodes by leaf."""
    problem, level = counted.q, counted.level
    if solution is None:
        return does_not_fit(cluster, job, problem, seed)

    def block_numbers(leaf: int) -> list[int]:
        number = {node: i for i, block in enumerate(cluster.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in counted.units[leaf]]

    single = cluster.topology.blocks and len(next((unit for units in counted.units for unit in units), ())) == 1
    nodes = rank(problem, solution.packing, job.slots(level), counted.units, block_numbers if single else None)
    what, axes = ("groups", ()) if level is None else (job.levels[level].what, job.numbering(level))
    along = f"along the {axes[-1]}" + " axis" * (axes[-1] != "pipeline") if axes else "in the best order"
    rows = zip(problems.names(problem, what, along), solution.values, solution.bounds, solution.analytic, strict=True)
    figures = figures_of(cluster, job, level, rows, 2 + problem.tiers, nodes, free)
    # Given whole blocks, or weighted, the first level bounds no count of data groups; then the closed form does.
    own = {kind.weight for kind in problem.kinds} == {1} and [level.axis for level in job.levels] in ([], ["data"])
    data = job.kinds[0]
    closed = lower_bound_split(free, data.count, data.size) if free and level is not None else solution.min_split
    chosen, outcome = figures[: (level or 0) + solution.searched], solution.outcome()
    return placed_on(
        cluster,
        job,
        nodes,
        lower_bound_split=solution.bounds[0] if own else closed,
        figures=tuple(figures),
        stopped=outcome.stop.value,
        certificate=certificate_of(chosen, outcome, seed),
    )


def figures_of(
    cluster: Cluster, job: Job, at: int | None, rows: Rows, groups: int, nodes: Sequence[str], free: Sequence[int]
) -> list[Figure]:
    """Return figures of a placement on a warm cluster: names, values and two bounds; levels inside `at` are whole.

    The first `groups` rows count blocks of the level placed, which hold some groups each. The levels above it are
    counted, each with its closed-form bound by the nodes that are `free` by leaf.
    """
    found, none = job.levels, {"value": 0, "bound": 0, "analytic_bound": 0}
    figures = [Figure(name=f"split {inner.what}", **none) for inner in found[: at or 0]]
    for i, (name, *proven) in enumerate(rows):
        each = found[at].groups if at is not None and i < groups else 1
        value, bound, analytic = (count * each for count in proven)
        figures.append(Figure(name=name, value=value, bound=bound, analytic_bound=analytic))
    for level in found[at + 1 :] if nodes and at is not None else ():
        own = [ranks for _, ranks in job.lines(level.axis)]
        value = splits_on(cluster, own, nodes)[0]
        bound = lower_bound_split(free, len(own), len(own[0]))
        figures.append(Figure(name=f"split {level.what}", value=value, bound=bound, analytic_bound=bound))
    return figures


def splits_on(cluster: Cluster, groups: Iterable[Iterable[int]], nodes: Sequence[str]) -> tuple[int, ...]:
    """Count groups of ranks that a warm cluster's leaves split, their extra pieces, and those across each tier."""
    on = [{cluster.leaf_of[nodes[rank]] for rank in ranks} for ranks in groups]
    return problems.count_splits(on, [leaf.path for leaf in cluster.leaves])


def certificate_of(
    figures: Sequence[Figure],
    outcome: Outcome[Any],
    seed: int,
    formulation: str = FORMULATION,
    goals: str = "{}",
    given: str = "",
) -> Certificate:
    """Certify a placement on a warm cluster by its first searched figure not at its bound, or the first of all."""
    stated = next((figure for figure in figures if figure.value != figure.bound), figures[0])
    if outcome.solution is not None:
        outcome = replace(outcome, objective=float(stated.value), bound=float(stated.bound))
    minimizes = goals.format(", then ".join(figure.name for figure in figures))
    minimizes += f"; objective and bound are those of {stated.name!r}"
    return outcome.certificate(formulation=formulation, minimizes=minimizes, seed=seed, given=given)


def counted_on(cluster: Cluster, job: Job, nodes: Sequence[str]) -> dict[str, Any]:
    """Return fields of a placement on a warm cluster: its groups' nodes in rank order, and how leaves split them."""
    placed, groups = [], list(job.slots()) if nodes else []
    for group in groups:
        own = tuple(nodes[rank] for rank in group.ranks)
        leaves = tuple(cluster.leaves[i].name for i in dict.fromkeys(cluster.leaf_of[node] for node in own))
        placed.append(PlacedGroup(name=group.name, nodes=own, leaves=leaves))
    split, extra, across, *_ = (*splits_on(cluster, (group.ranks for group in groups), nodes), 0)
    return {"groups": tuple(placed), "groups_split": split, "extra_pieces": extra, "groups_cross_pod": across}


def placed_on(cluster: Cluster, job: Job, nodes: tuple[str, ...], **own: Any) -> Placement:
    """Return a job's placement on a warm cluster, or one without nodes, with how leaves split its groups."""
    asked = {"gpus_per_node": job.gpus_per_node, "segment_nodes": job.segment_nodes}
    return Placement(job=job.name, nodes=nodes, **asked, **counted_on(cluster, job, nodes), **own)


def does_not_fit(cluster: Cluster, job: Job, problem: PlacementProblem, seed: int) -> Placement:
    """Return a placement without nodes, and why the job does not fit in the freest tree of the warm cluster."""
    size, trees = job.segment_nodes, cluster.trees
    room = max(only(cluster.leaves, problem, {tree}).free for tree in range(trees))
    where = "" if trees == 1 else f" in the freest of {trees:,} trees"
    what = "nodes" if size == 1 else f"nodes in whole segments of {size}"
    proof: Outcome[None] = Outcome(stop=Stop.PROVED, infeasible=True)
    reason = f"job {job.name!r} needs {problem.need * size:,} {what} > {room * size:,} free{where}"
    certificate = proof.certificate(
        formulation="Counts of free nodes.", minimizes="split groups", seed=seed, given=rules_of(job, trees)
    )
    return placed_on(cluster, job, (), lower_bound_split=0, figures=(), reason=reason, certificate=certificate)


def rules_of(job: Job, trees: int = 1) -> str:
    """Name the rules by which a warm cluster places a job on its free nodes, for the certificate."""
    rules = ["nodes are taken whole, and busy ones stay busy"]
    if trees > 1:
        rules.append("a job stays in one tree")
    if job.segment_nodes > 1:
        rules.append(f"each {job.segment_nodes:,} consecutive nodes stay in one block of a leaf")
    return "; ".join(rules)


def place_by_name(cluster: Cluster, job: Job, taken: set[str], options: Options) -> Placement:
    """Place a job on a warm cluster, ranks by node name: fewest split members, then groups, then fewest pieces.

    InputError: ranks of a group do not follow each other, or leaves are mixed by name, so that no order is worth it.
    """
    # Sizes of groups and members, whose ranks must follow each other.
    if job.segment_nodes > 1:
        raise InputError(f"job {job.name!r}: segment_nodes and the order of names do not go together; {REMEDY}")
    order = Order(groups=tuple(kind.size for kind in job.groups for _ in range(kind.count)))
    if job.mesh is not None:
        axes, last = [level.axis for level in job.levels if level.axis != MEMBER], len(job.levels) - 1
        if len(axes) > 1:
            raise InputError(f"job {job.name!r}: {' and '.join(axes)} exchange, by name one axis can; {REMEDY}")
        ranks = sorted(slot.ranks for slot in job.slots(last))
        if [rank for own in ranks for rank in own] != list(range(job.nodes)):
            raise InputError(f"job {job.name!r}: ranks along {axes[0]} do not follow each other; {REMEDY}")
        order = Order(groups=(job.levels[last].size,) * job.levels[last].count, member=job.nodes_per_member)
    deadline, seed = Deadline(options.time_limit), options.seed
    runs: dict[int, list[str]] = {}  # of each leaf its free nodes by name
    by_name = sorted((node for leaf in cluster.leaves for node in leaf.nodes if node not in taken), key=natural)
    for i, run in groupby(by_name, key=cluster.leaf_of.__getitem__):
        nodes = list(run)
        if i in runs:
            between = f"other leaves' nodes stand between its own by name, such as before {nodes[0]!r}"
            raise InputError(f"leaf {cluster.leaves[i].name!r}: {between}; {REMEDY}")
        runs[i] = nodes
    trees = ([len(own) * (cluster.leaves[i].tree == tree) for i, own in runs.items()] for tree in range(cluster.trees))
    chosen = [found for free in trees if (found := fewest_cuts(free, order, deadline)) is not None]
    if not chosen:
        return does_not_fit(cluster, job, in_units(job, cluster.leaves, taken).q, seed)
    proved, best = all(choice.proved for choice in chosen), min(chosen, key=lambda choice: choice.values)
    placed = tuple(node for own, count in zip(runs.values(), best.taken, strict=True) for node in own[:count])
    left, parts = [len(own) for own in runs.values()], job.levels[-1].what if job.levels else "groups"
    # Members of several nodes first; where nothing is proven, the closed forms bound what is cut.
    least = {"split members": lower_bound_split(left, job.nodes // order.member, order.member)}
    kinds = [Kind(size, count) for size, count in Counter(order.groups).items()]
    least[f"split {parts}"] = problems.min_split_weight(left, kinds)
    members, *cut = best.values
    _, _, *across = splits_on(cluster, (slot.ranks for slot in job.slots()), placed)
    names, figures = problems.group_levels(parts, len(across)), list[Figure]()
    rows = [*zip(names, cut, strict=False)]
    if job.mesh is not None and job.nodes_per_member > 1 and parts != "members":
        rows.insert(0, ("split members", members))
    for name, value in rows:
        lower = min(value, least.get(name, 0))
        figures.append(Figure(name=name, value=value, bound=value if proved else lower, analytic_bound=lower))
    crossing = zip(names[2:], across, strict=True) if parts == "groups" else ()
    above = (Figure(name=name, value=value, bound=0, analytic_bound=0) for name, value in crossing)
    one = job.kinds[0]  # of a mesh the data groups alone
    stop = Stop.PROVED if all(figure.value == figure.bound for figure in figures) else Stop.LIMIT
    outcome = Outcome(stop=stop, solution=best, solver=SOLVER, seconds=deadline.elapsed)
    return placed_on(
        cluster,
        job,
        placed,
        order="name",
        stopped=stop.value,
        lower_bound_split=least["split groups"] if parts == "groups" else lower_bound_split(left, one.count, one.size),
        figures=(*figures, *above),
        certificate=certificate_of(figures, outcome, seed, BY_NAME_FORMULATION, "{}, with " + BY_NAME, BY_NAME),
    )


def opened(
    topology: Cluster | Topology | Mapping[str, Any] | str | Path,
    busy: Iterable[str] | str,
    state: str | Path | None,
    only: Iterable[str] | str | None = None,
) -> tuple[Cluster, list[str], str | None]:
    """Open a warm cluster; nodes to leave out: `busy`, those taken by the `state` file, all but `only`; its note."""
    cluster = topology if isinstance(topology, Cluster) else Cluster(topology)
    taken, note = read_hosts(busy, "busy"), None
    if state is not None:
        states, known = read_states(state), cluster.leaf_of.keys()
        if strange := sorted((states.free | states.busy | states.down) - known):
            are = "is no node" if len(strange) == 1 else "are no nodes"
            listed = few([repr(node) for node in strange])
            raise InputError(f"{state}: {listed} {are} of the topology; {hint(strange[0], sorted(known), most=5)}")
        taken.extend(sorted(known - states.free))  # those not listed are down
        note = states.note
    if only is not None:
        own = set(cluster.known(read_hosts(only, "only")))
        taken.extend(node for node in cluster.leaf_of if node not in own)
    return cluster, taken, note
