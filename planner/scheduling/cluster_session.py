"""A cluster kept warm between calls: its topology and node states; jobs placed on it, also by name or step time."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from threading import RLock
from typing import Any

from planner.argument_ranges import bounded
from planner.checks.placement import check_placement
from planner.cluster import MEMBER, Figure, Job, PlacedGroup, Placement, Topology, job_of_plan, natural
from planner.errors import InputError, InternalError, hint
from planner.files import read_json
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.placement import placement_problem as problems
from planner.models.placement.place_job import FORMULATION, Order, fewest_cuts, rank, solve_in_one_tree
from planner.models.placement.placement_problem import Kind, Leaf, LeafNodes, Packing, PlacementProblem, Solution
from planner.physics.network import uplink_slowdowns
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import Locality, locality, lower_bound_split, min_crossings
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy, strategy_of
from planner.physics.training.step_prediction import Conditions
from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.simulation.simulated_slowdown import transport_slowdown_of
from planner.solvers.outcome import Outcome, Stop, relative_gap
from planner.solvers.registry import SOLVERS, linear_runner
from planner.solvers.signals import Deadline, uninterrupted

DEFAULT_SECONDS = 10.0
ORDERS = ("any", "name")
Unit = tuple[str, ...]
Placed = Solution[Packing]
Rows = Iterable[tuple[str, int, int, int]]  # of levels: name, value, bound, analytic bound
SOLVER = "dynamic programming over leaves in the order of names"
BY_NAME_FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node as state."
)
BY_NAME = "ranks in the order of node names"
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"
STEP_MINIMIZES = "predicted seconds of a step; the bound is that of the fewest crossings of leaves and pods"
STEP_FORMULATION = (
    "The better of two placements proven by counts: rings kept within leaves, or pipelines kept within leaves."
)


def options_of(time_limit: float | None, seed: int = 0, threads: int | None = None) -> Options:
    """Return how hard to search for a placement, with the limit of a call on a cluster unless given."""
    return Options(time_limit=DEFAULT_SECONDS if time_limit is None else time_limit, seed=seed, threads=threads)


class Cluster:
    """A cluster's topology with the nodes that are busy or broken; every method may be called from several threads."""

    def __init__(self, topology: Topology, *, busy: Iterable[str] = ()) -> None:
        self.topology = topology
        self.leaves: tuple[LeafNodes, ...] = tuple(problems.leaves_of(topology))
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
        """Load the solvers of placements now, so that a later call with little time may use them."""
        with uninterrupted():
            import planner.models.placement.placement_levels  # noqa: F401
        for name in SOLVERS:
            linear_runner(usual=name)

    @property
    def busy(self) -> frozenset[str]:
        """Nodes of the cluster that are not free."""
        with self._lock:
            return frozenset(self._busy)

    def set_busy(self, nodes: Iterable[str]) -> None:
        """Take nodes out of the cluster's free ones; those that are busy already stay so."""
        wanted = self.known(nodes)
        with self._lock:
            self._busy.update(wanted)

    def set_free(self, nodes: Iterable[str]) -> None:
        """Give nodes back to the cluster; those that are free already stay so."""
        wanted = self.known(nodes)
        with self._lock:
            self._busy.difference_update(wanted)

    def known(self, nodes: Iterable[str]) -> list[str]:
        """Return nodes of the cluster; InputError names the first that the topology does not have."""
        wanted = [nodes] if isinstance(nodes, str) else list(nodes)
        for node in wanted:
            if node not in self.leaf_of:
                raise InputError(f"node {node!r} is not in the topology; {hint(node, self.leaf_of, 0.6, 1)}")
        return wanted

    @bounded
    def place(
        self,
        job: Job,
        *,
        busy: Iterable[str] = (),
        free: Iterable[str] = (),
        time_limit: float | None = None,
        seed: int = 0,
        threads: int | None = None,
        fragmentation: bool = False,
        order: str = "any",
    ) -> Placement:
        """Place one job on the free nodes of the cluster.

        Parameters
        ----------
        job
            Its groups; see `planner.cluster`.
        busy
            Nodes to leave out of this call in addition to those that are busy already.
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
        options = options_of(time_limit, seed, threads)
        taken = self.taken(busy, free)
        if order not in ORDERS:
            raise InputError(f"order: must be {' or '.join(ORDERS)} (is {order!r})")
        if order == "name":
            placed = place_by_name(self, job, taken, options)
        else:
            # Of a mesh its level to place, in the trees where most levels are whole.
            counted = in_units(job, self.leaves, taken)
            parts = [only(self, counted.q, {tree}) for tree in range(self.trees)]
            fits = [tree for tree, part in enumerate(parts) if part.need <= part.free]
            if job.mesh is not None and fits:
                # The first level whose blocks do not all fit on leaves by their free segments, or the last. Where all
                # blocks of a level fit, so do those inside them: the levels before are whole without a choice.
                level, levels = dict[int, int](), job.levels
                for tree in fits:
                    free_of = [leaf.free for leaf in parts[tree].leaves]
                    fit = [sum(count // (own.size // job.segment_nodes) for count in free_of) for own in levels]
                    short = (i for i, own in enumerate(levels) if fit[i] < own.count)
                    level[tree] = next(short, len(levels) - 1)
                fits = [tree for tree in fits if level[tree] == max(level.values())]
                counted = in_units(job, self.leaves, taken, level[fits[0]])
                parts = [only(self, counted.q, {tree}) for tree in range(self.trees)]
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

    def taken(self, busy: Iterable[str] = (), free: Iterable[str] = ()) -> set[str]:
        """Return the cluster's nodes that a call may not use: those that are busy but not `free`, and `busy`."""
        with self._lock:
            return self._busy.difference(self.known(free)).union(self.known(busy))

    def problem(
        self, job: Job, busy: Iterable[str] = (), *, free: Iterable[str] = ()
    ) -> "tuple[PlacementProblem, list[list[Unit]]]":
        """Return a job's placement problem on the cluster in units of segments, and each leaf's free units."""
        counted = in_units(job, self.leaves, self.taken(busy, free))
        return counted.q, counted.units


@dataclass(frozen=True, slots=True)
class Counted:
    """A job's placement problem in counts, the nodes of each leaf's free units, and of a mesh the level to place."""

    q: PlacementProblem
    units: list[list[Unit]]
    level: int | None


def in_units(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str], at: int | None = None) -> Counted:
    """Count a job to place on a cluster in segments: (data) groups, or at a level `at` its blocks in inner ones."""
    segment, found = job.segment_nodes, job.levels
    if at is None:
        unit, level = segment, None if job.mesh is None else len(found) - 1
        weighed = zip(job.kinds, job.weights, strict=True)
        kinds = tuple(Kind(kind.size // unit, kind.count, weight) for kind, weight in weighed)
    else:
        unit, level = found[at - 1].size if at else segment, at
        kinds = (Kind(found[at].size // unit, found[at].count),)
    counted, units = list[Leaf](), list[list[Unit]]()
    for leaf in leaves:
        whole = len(leaf.nodes) if segment == 1 else sum(len(block) // segment for block in leaf.blocks)
        # A segment is in one block, and so is a unit of several where it can be.
        cut, left = list[Unit](), list[str]()
        for block in leaf.blocks if unit > 1 else (leaf.nodes,):
            free = [node for node in block if node not in taken]
            within = len(free) // unit * unit
            cut += [tuple(free[i : i + unit]) for i in range(0, within, unit)]
            left += free[within : len(free) // segment * segment]
        units.append(cut + [tuple(left[i : i + unit]) for i in range(0, len(left) // unit * unit, unit)])
        counted.append(Leaf(leaf.path, len(units[-1]), whole // (unit // segment)))
    axes = () if level is None else job.numbering(level)
    line = (job.mesh or {})[axes[-1]] if axes else sum(kind.count for kind in kinds)
    return Counted(PlacementProblem(leaves=tuple(counted), kinds=kinds, line=line, follows=bool(axes)), units, level)


def only(cluster: Cluster, problem: PlacementProblem, trees: Collection[int]) -> PlacementProblem:
    """Return a cluster's placement problem on some of its trees: the leaves of the others have nothing free."""
    each = zip(cluster.leaves, problem.leaves, strict=True)
    kept = tuple(leaf if own.tree in trees else Leaf(leaf.path, 0, leaf.size) for own, leaf in each)
    return replace(problem, leaves=kept)


def placement(
    cluster: Cluster, job: Job, counted: Counted, solution: Placed | None, seed: int, free: Sequence[int] = ()
) -> Placement:
    """Return a solved job's placement on a cluster by node names, with its figures and proof; `free`: nodes by leaf."""
    problem, level = counted.q, counted.level
    if solution is None:
        return does_not_fit(cluster, job, problem, seed)

    def block_numbers(leaf: int) -> list[int]:
        number = {node: i for i, block in enumerate(cluster.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in counted.units[leaf]]

    single = cluster.topology.blocks and len(next((unit for units in counted.units for unit in units), ())) == 1
    order = job.slots(level)
    nodes = rank(problem, solution.packing, order, counted.units, block_numbers if single else None)
    what, axes = ("groups", ()) if level is None else (job.levels[level].what, job.numbering(level))
    along = f"along the {axes[-1]}" + " axis" * (axes[-1] != "pipeline") if axes else "in the best order"
    named = problems.names(problem, what, along)
    rows = zip(named, solution.values, solution.bounds, solution.analytic, strict=True)
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
    """Return the figures of a placement on a cluster by names, values and two bounds; the levels inside `at` are whole.

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
    """Count groups of ranks on several leaves of a cluster, their extra pieces, and those across each tier."""
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
    """Certify a placement on a cluster by the first searched figure that is not at its bound, or the first of all."""
    stated = next((figure for figure in figures if figure.value != figure.bound), figures[0])
    if outcome.solution is not None:
        outcome = replace(outcome, objective=float(stated.value), bound=float(stated.bound))
    minimizes = goals.format(", then ".join(figure.name for figure in figures))
    minimizes += f"; objective and bound are those of {stated.name!r}"
    return outcome.certificate(formulation=formulation, minimizes=minimizes, seed=seed, given=given)


def counted_on(cluster: Cluster, job: Job, nodes: Sequence[str]) -> dict[str, Any]:
    """Return a placement's groups of nodes in rank order, and how leaves split them, as fields of a placement."""
    placed, groups = [], list(job.slots()) if nodes else []
    for group in groups:
        own = tuple(nodes[rank] for rank in group.ranks)
        leaves = tuple(cluster.leaves[i].name for i in dict.fromkeys(cluster.leaf_of[node] for node in own))
        placed.append(PlacedGroup(name=group.name, nodes=own, leaves=leaves))
    split, extra, across, *_ = (*splits_on(cluster, (group.ranks for group in groups), nodes), 0)
    return {"groups": tuple(placed), "groups_split": split, "extra_pieces": extra, "groups_cross_pod": across}


def placed_on(cluster: Cluster, job: Job, nodes: tuple[str, ...], **own: Any) -> Placement:
    """Return a job's placement, or one without nodes, with how leaves split its groups."""
    asked = {"gpus_per_node": job.gpus_per_node, "segment_nodes": job.segment_nodes}
    return Placement(job=job.name, nodes=nodes, **asked, **counted_on(cluster, job, nodes), **own)


def does_not_fit(cluster: Cluster, job: Job, problem: PlacementProblem, seed: int) -> Placement:
    """Return a placement without nodes, and why the job does not fit in the freest of the cluster's trees."""
    size, trees = job.segment_nodes, cluster.trees
    room = max(only(cluster, problem, {tree}).free for tree in range(trees))
    where = "" if trees == 1 else f" in the freest of {trees:,} trees"
    what = "nodes" if size == 1 else f"nodes in whole segments of {size}"
    proof: Outcome[None] = Outcome(stop=Stop.PROVED, infeasible=True)
    reason = f"job {job.name!r} needs {problem.need * size:,} {what} > {room * size:,} free{where}"
    certificate = proof.certificate(
        formulation="Counts of free nodes.", minimizes="split groups", seed=seed, given=rules_of(job, trees)
    )
    return placed_on(cluster, job, (), lower_bound_split=0, figures=(), reason=reason, certificate=certificate)


def rules_of(job: Job, trees: int = 1) -> str:
    """Name the rules that any placement of a job on a cluster's free nodes is given."""
    rules = ["nodes are taken whole, and busy ones stay busy"]
    if trees > 1:
        rules.append("a job stays in one tree")
    if job.segment_nodes > 1:
        rules.append(f"each {job.segment_nodes:,} consecutive nodes stay in one block of a leaf")
    return "; ".join(rules)


def place_by_name(cluster: Cluster, job: Job, taken: set[str], options: Options) -> Placement:
    """Place a job by a cluster's node names: on nodes that split the fewest members, then groups, then into few pieces.

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


@dataclass(frozen=True, slots=True)
class Clock:
    """The step time of a plan's layout on its fabric, by the placement of each stage's racks on a cluster's nodes."""

    instance: Instance
    strategy: ParallelStrategy
    transport_slowdown: float
    design: Design
    places: Mapping[str, int]  # of a node: its rack in the fabric
    wrap: bool  # whether the last stage sends to the first

    def seconds(self, job: Job, nodes: tuple[str, ...]) -> float:
        """Return a placement's step in seconds, by what its rank order sends across leaf domains, pods and zones."""
        stages = [[self.places[nodes[rank]] for rank in slot.ranks] for slot in job.slots()]
        return self.at(*self.factors(locality(stages, self.design.block_racks, wrap=self.wrap)))

    def factors(self, locality: Locality) -> tuple[float, float]:
        """Return how much slower than the transport alone a placement makes the pipeline exchange and the rings."""
        phi = self.transport_slowdown
        loads = uplink_slowdowns.uplink_loads(self.design, locality.share_leaving, locality.allreduces_leaving)
        send, allreduce = uplink_slowdowns.slowdowns(phi, loads)
        return send / phi, allreduce / phi

    def at(self, send: float, allreduce: float) -> float:
        """Return the step in seconds with pipeline exchange and rings these factors slower than the transport alone."""
        phi = self.transport_slowdown
        slow = Conditions(pipeline_send_slowdown=phi * send, allreduce_slowdown=phi * allreduce, transport_slowdown=phi)
        return step_prediction.metrics(self.instance, slow, self.strategy).step_seconds

    def min_seconds(self, cluster: Cluster, job: Job, first: Placement, busy: Collection[str]) -> float:
        """Bound the step in seconds of every placement: what must leave the fullest leaf and the fullest pod."""
        if job.mesh is None:  # groups of several sites, as if nothing left a leaf
            return self.at(1.0, 1.0)
        leaves, pods = Counter[int](), Counter[int]()  # free nodes
        for i, leaf in enumerate(cluster.leaves):
            leaves[i] = len(set(leaf.nodes).difference(busy))
            pods[leaf.path[0] if leaf.path else 0] += leaves[i]
        across = any(figure.bound > 0 for figure in first.figures if figure.name == "groups across pods")
        design, options, each = self.design, [], (job.mesh["pipeline"], job.mesh["data"])
        for free, split in ((leaves, first.lower_bound_split > 0), (pods, across)):
            rooms = {"max_free": max(free.values()), "blocks": len(+free)}
            options.append(min_crossings(*each, **rooms, wrap=self.wrap, split=split))
        of_leaf, of_pod = design.domain_racks, design.domain_racks * (design.domains_per_pod or design.domains)
        factors = set[tuple[float, float]]()
        for (flows, rings), (more, wide) in product(*options):
            shares = flows / of_leaf, more / of_pod, 0.0
            factors.add(self.factors(Locality(share_leaving=shares, allreduces_leaving=(rings, wide, 0))))
        # No slower exchange or all-reduce makes a step shorter: a pair no better than another in both is dropped.
        kept: list[tuple[float, float]] = []
        for send, allreduce in sorted(factors):
            if not kept or allreduce < kept[-1][1]:
                kept.append((send, allreduce))
        return min(self.at(send, allreduce) for send, allreduce in kept)


def clock_of(cluster: Cluster, plan: Plan, where: str) -> Clock:
    """Give each node of a cluster the place of a rack in the fabric of a one-site plan. InputError: no such shape."""
    physics, network = PlanPhysics(plan=plan), plan.instance.network
    if plan.layout is None or network is None or len(physics.wired) != 1:
        needs = f"a plan with a layout and the fabric of one site (has {len(physics.wired)})"
        raise InputError(f"{where}: --objective step-time needs {needs}; take locality")
    (design,) = physics.wired.values()
    size, per_pod = design.domain_racks, design.domains_per_pod or design.domains
    seen, first, places = dict[int, int](), dict[int, int](), dict[str, int]()
    for leaf in cluster.leaves:
        pod = first.setdefault(leaf.path[0] if leaf.path else 0, len(first))
        at = seen[pod] = seen.get(pod, -1) + 1
        if len(leaf.nodes) > size or (leaf.path and at >= per_pod):
            shape = f"leaf {leaf.name!r} has {len(leaf.nodes)} nodes, its pod {at + 1} leaves or more"
            plans = f"the plan's fabric has {size} racks a leaf domain and {per_pod} domains a pod"
            remedy = "give the topology of the plan's fabric, or take --objective locality"
            raise InputError(f"{where}: {shape}; {plans}; {remedy}")
        places.update({node: (pod * per_pod + at) * size + i for i, node in enumerate(leaf.nodes)})
    strategy, slowdown = strategy_of(plan.layout), transport_slowdown_of(network)
    return Clock(plan.instance, strategy, slowdown, design, places, plan.layout.virtual_stages > 1)


def place_by_time(
    cluster: Cluster, given: Job | Plan | Mapping[str, Any] | str | Path, *, busy: Iterable[str] = (), **options: Any
) -> Placement:
    """Place a plan's job so that its predicted step is shortest, of two placements that each are proven by counts.

    Rings kept within leaves send the pipeline exchange up; pipelines kept within leaves send the rings up. Which is
    slower depends on the fabric's oversubscription and on what the layout hides. The bound is the step of the minimum
    that the job must send out of the freest leaf and pod by its shape (`planner.physics.network.uplink_slowdowns`).
    """
    where = str(given) if isinstance(given, (str, Path)) else "job"
    data = read_json(Path(given)) if isinstance(given, (str, Path)) else given
    if not (isinstance(data, Plan) or (isinstance(data, dict) and "planner_version" in data)):
        needs = "a plan, which has a layout and a fabric"
        raise InputError(f"{where}: --objective step-time needs {needs}; give one, or take locality")
    plan = data if isinstance(data, Plan) else plan_of(data, where)
    return fastest(cluster, clock_of(cluster, plan, where), job_of_plan(plan, where), busy=list(busy), **options)


def fastest(cluster: Cluster, clock: Clock, job: Job, *, busy: list[str], **options: Any) -> Placement:
    """Return the placement on a cluster with the shorter step of the two, with the bound."""
    first = cluster.place(job, busy=busy, **options)
    if not first.nodes:
        return first
    bound = clock.min_seconds(cluster, job, first, cluster.taken(busy))
    timed = [(clock.seconds(job, first.nodes), first)]
    if job.mesh and timed[0][0] > bound:
        # The job with its axes exchanged, so that pipelines are kept whole; its rings are counted.
        stages, replicas = job.mesh["pipeline"], job.mesh["data"]
        turned = cluster.place(Job(name=job.name, mesh={"pipeline": replicas, "data": stages}), busy=busy, **options)
        nodes = tuple(turned.nodes[replica * stages + stage] for stage in range(stages) for replica in range(replicas))
        counts = counted_on(cluster, job, nodes)
        values = splits_on(cluster, (slot.ranks for slot in job.slots()), nodes)
        # Beside the first level nothing is proven of these, as they are not what was minimized.
        rows = zip(first.figures, values, [first.figures[0].bound, *[0] * (len(values) - 1)], strict=False)
        figures = tuple(
            figure.replaced(value=value, bound=own, analytic_bound=min(own, figure.analytic_bound))
            for figure, value, own in rows
        )
        whole = first.replaced(nodes=nodes, **counts, figures=figures)
        timed.append((clock.seconds(job, nodes), whole))
    seconds, best = min(timed, key=lambda pair: pair[0])
    status, gap = "optimal" if seconds <= bound else "feasible", relative_gap(seconds, bound)
    certificate = best.certificate.replaced(
        status=status, objective=seconds, bound=bound, gap=gap, formulation=STEP_FORMULATION, minimizes=STEP_MINIMIZES
    )
    return best.replaced(step_seconds=seconds, step_seconds_bound=bound, certificate=certificate)
