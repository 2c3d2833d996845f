"""A cluster kept warm between calls: its topology read once, its node states followed, jobs placed and moved on it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

from planner.checks.cluster import check_placement
from planner.cluster.hostlist import read_hosts
from planner.cluster.job import Job
from planner.cluster.placement import Figure, PlacedGroup, Placement
from planner.cluster.topology import Topology
from planner.errors import InputError, InternalError
from planner.models.placement.data import Kind, Leaf, LeafNodes, Problem, leaves_of, names
from planner.models.placement.forest import solve_in_one_tree
from planner.models.placement.ranks import Ranked, in_rank_order, rank
from planner.models.placement.solve import FORMULATION, Solution, solve
from planner.models.requests import Options
from planner.plan.certificate import Certificate
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.registry import SOLVERS, linear_runner
from planner.solvers.signals import uninterrupted

DEFAULT_SECONDS = 10.0
MAX_SEED = 2**31 - 1  # CP-SAT takes no larger one.


def options_of(time_limit: float | None, seed: int = 0, threads: int | None = None) -> Options:
    """Return how hard to search, with the limit that a call has unless given.

    Raises
    ------
    InputError
        If a solver would refuse one of them.
    """
    limit = DEFAULT_SECONDS if time_limit is None else time_limit
    if not limit >= 0:
        raise InputError(f"time_limit: must be 0 or more seconds (is {limit:g})")
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"seed: must be from 0 to {MAX_SEED:,} (is {seed:,})")
    if threads is not None and not 1 <= threads <= 1_024:
        raise InputError(f"threads: must be from 1 to 1,024 (is {threads:,})")
    return Options(time_limit=limit, seed=seed, threads=threads)


class Cluster:
    """A topology with the nodes that are busy or broken; every method may be called from several threads."""

    def __init__(self, topology: Topology, *, busy: Iterable[str] = ()) -> None:
        self.topology = topology
        self.leaves: tuple[LeafNodes, ...] = tuple(leaves_of(topology))
        self.leaf_of = {node: i for i, leaf in enumerate(self.leaves) for node in leaf.nodes}
        self.trees = len({leaf.tree for leaf in self.leaves})
        self._busy: set[str] = set()
        self._free = [len(leaf.nodes) for leaf in self.leaves]
        self._lock = RLock()
        self.set_busy(busy)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as topology and busy nodes; the lock stays here."""
        return _arrived, (self.topology, tuple(sorted(self.busy)))

    @staticmethod
    def warm_up() -> None:
        """Load the solvers now, so that a later call with little time may use them."""
        with uninterrupted():
            import planner.models.placement.lexicographic  # noqa: F401
        for name in SOLVERS:
            linear_runner(usual=name)

    @property
    def busy(self) -> frozenset[str]:
        """Nodes that are not free."""
        with self._lock:
            return frozenset(self._busy)

    def set_busy(self, nodes: Iterable[str]) -> None:
        """Take nodes out of the free ones; those that are busy already stay so."""
        self._turn(nodes, busy=True)

    def set_free(self, nodes: Iterable[str]) -> None:
        """Give nodes back; those that are free already stay so."""
        self._turn(nodes, busy=False)

    def _turn(self, nodes: Iterable[str], *, busy: bool) -> None:
        """Follow a change of states, all of it or, where a node is unknown, none."""
        wanted = self.known(nodes)
        with self._lock:
            for node in wanted:
                if (node in self._busy) != busy:
                    (self._busy.add if busy else self._busy.discard)(node)
                    self._free[self.leaf_of[node]] += -1 if busy else 1

    def known(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes, or name the first that the topology does not have."""
        wanted = list(nodes)
        for node in wanted:
            if node not in self.leaf_of:
                import difflib

                near = difflib.get_close_matches(node, self.leaf_of, 1) if len(self.leaf_of) <= 5_000 else []
                hint = f"did you mean {near[0]!r}?" if near else f"its nodes are such as {next(iter(self.leaf_of))!r}"
                raise InputError(f"node {node!r} is not in the topology; {hint}")
        return wanted

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
    ) -> Placement:
        """Place one job on the free nodes.

        Parameters
        ----------
        job
            Its groups; see `planner.cluster.job`.
        busy
            Nodes to leave out of this call beside those that are busy already.
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

        Raises
        ------
        InternalError
            If a placement breaks a rule of the checker, which replays it from the topology.
        """
        options = options_of(time_limit, seed, threads)
        taken = self.taken(busy, free)
        q, units = self._counted(job, taken)
        if self.trees == 1:
            outcome = solve(q, options, fragmentation=fragmentation)
        else:
            trees = [only(q, {i for i, leaf in enumerate(self.leaves) if leaf.tree == t}) for t in range(self.trees)]
            best, outcome = solve_in_one_tree(trees, options, fragmentation=fragmentation)
            q = trees[best]
        placed = placement(self, job, q, outcome, units, seed)
        # The checker shares no code with the formulation, and is as quick: 2 ms for 900 nodes, 40 ms for 15,000.
        broken = check_placement(self.topology, job, placed, busy=taken)
        if broken:
            raise InternalError(f"the placement of job {job.name!r} breaks {broken[0].rule}: {broken[0].message}")
        return placed

    def blocks_of(self, units: Sequence[Sequence[tuple[str, ...]]], leaf: int) -> list[int]:
        """Return the number of the block of each free node of a leaf."""
        number = {node: b for b, block in enumerate(self.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in units[leaf]]

    def taken(self, busy: Iterable[str] = (), free: Iterable[str] = ()) -> set[str]:
        """Return the nodes that a call may not use: those that are busy but not `free`, and `busy`."""
        with self._lock:
            return self._busy.difference(self.known(free)).union(self.known(busy))

    def problem(
        self, job: Job, busy: Iterable[str] = (), *, free: Iterable[str] = ()
    ) -> tuple[Problem, list[list[tuple[str, ...]]]]:
        """Return the job's problem in units of its segments and each leaf's free units, with `busy` and `free`."""
        return self._counted(job, self.taken(busy, free))

    def _counted(self, job: Job, taken: set[str]) -> tuple[Problem, list[list[tuple[str, ...]]]]:
        """Cut what is left of each leaf into units, and count them."""
        size = job.segment_nodes
        units = [list(_segments(leaf, taken, size)) for leaf in self.leaves]
        leaves = tuple(
            Leaf(leaf.path, len(free), _whole(leaf, size)) for leaf, free in zip(self.leaves, units, strict=True)
        )
        kinds = tuple(Kind(k.size // size, k.count, w) for k, w in zip(job.kinds, job.weights, strict=True))
        return Problem(leaves=leaves, kinds=kinds, line=job.line, follows=bool(job.numbering)), units


def only(q: Problem, leaves: Collection[int]) -> Problem:
    """Return the problem on some of the leaves: the others have nothing free."""
    return Problem(
        leaves=tuple(leaf if i in leaves else Leaf(leaf.path, 0, leaf.size) for i, leaf in enumerate(q.leaves)),
        kinds=q.kinds,
        line=q.line,
        follows=q.follows,
    )


def _arrived(topology: Topology, busy: Sequence[str]) -> Cluster:
    """Build a cluster that came from another process."""
    return Cluster(topology, busy=busy)


def _segments(leaf: LeafNodes, taken: set[str], size: int) -> Iterable[tuple[str, ...]]:
    """Cut a leaf's free nodes into segments that stay within a block."""
    if size == 1:
        yield from ((node,) for node in leaf.nodes if node not in taken)
        return
    for block in leaf.blocks:
        free = [node for node in block if node not in taken]
        yield from (tuple(free[i : i + size]) for i in range(0, len(free) - size + 1, size))


def _whole(leaf: LeafNodes, size: int) -> int:
    """Return the units of a leaf when all its nodes are free."""
    return len(leaf.nodes) if size == 1 else sum(len(block) // size for block in leaf.blocks)


def placement(
    cluster: Cluster,
    job: Job,
    q: Problem,
    outcome: Outcome[Solution],
    units: Sequence[Sequence[tuple[str, ...]]],
    seed: int,
) -> Placement:
    """Name the nodes of an outcome and state what is proven of it."""
    solution = outcome.solution
    if solution is None:
        return does_not_fit(job, q, seed, cluster.trees)
    blocks = partial(cluster.blocks_of, units) if cluster.topology.blocks and job.segment_nodes == 1 else None
    groups = rank(q, solution.packing, job, units, blocks)
    levels = dict(zip(names(q), zip(solution.values, solution.bounds, solution.analytic, strict=True), strict=True))
    split = len(solution.packing.split)
    # Weighted, the first level is not a count of groups; then the closed form alone bounds that.
    bound = solution.bounds[0] if {k.weight for k in q.kinds} == {1} else solution.min_split
    return Placement(
        job=job.name,
        nodes=in_rank_order(groups, job.nodes),
        groups=placed_groups(cluster, groups),
        groups_split=split,
        lower_bound_split=bound,
        extra_pieces=solution.values[1],
        groups_cross_pod=solution.values[2] if q.tiers else 0,
        figures=tuple(Figure(name=n, value=v, bound=b, analytic_bound=a) for n, (v, b, a) in levels.items()),
        gpus_per_node=job.gpus_per_node,
        segment_nodes=job.segment_nodes,
        stopped=outcome.stop.value,
        certificate=_certificate(q, outcome, solution, seed),
    )


def placed_groups(cluster: Cluster, groups: Iterable[Ranked]) -> tuple[PlacedGroup, ...]:
    """Return groups with the names of the leaves that their nodes stand in."""
    leaves = cluster.leaves
    return tuple(
        PlacedGroup(name=g.name, nodes=g.nodes, leaves=tuple(leaves[i].name for i in g.leaves)) for g in groups
    )


def _certificate(q: Problem, outcome: Outcome[Solution], solution: Solution, seed: int) -> Certificate:
    """State the first level that is not at its bound, or the first where all are."""
    searched = list(zip(names(q), solution.values, solution.bounds, strict=True))[: solution.searched]
    name, value, bound = next((x for x in searched if x[1] != x[2]), searched[0])
    goals = ", then ".join(n for n, _, _ in searched)
    return replace(outcome, objective=float(value), bound=float(bound)).certificate(
        formulation=FORMULATION, minimizes=f"{goals}; objective and bound are those of {name!r}", seed=seed
    )


def does_not_fit(job: Job, q: Problem, seed: int, trees: int = 1) -> Placement:
    """Return no nodes and the reason in numbers; of several trees `q` is the freest."""
    size = job.segment_nodes
    where = "" if trees == 1 else f" in the freest of {trees:,} trees"
    what = "nodes" if size == 1 else f"nodes in whole segments of {size}"
    proof: Outcome[Solution] = Outcome(stop=Stop.PROVED, infeasible=True)
    return Placement(
        job=job.name,
        nodes=(),
        groups=(),
        groups_split=0,
        lower_bound_split=0,
        extra_pieces=0,
        groups_cross_pod=0,
        figures=(),
        gpus_per_node=job.gpus_per_node,
        segment_nodes=size,
        reason=f"job {job.name!r} needs {q.need * size:,} {what} > {q.free * size:,} free{where}",
        certificate=proof.certificate(formulation="Counts of free nodes.", minimizes="split groups", seed=seed),
    )


def opened(
    topology: Cluster | Topology | str | Path, busy: Iterable[str] | str, state: str | Path | None
) -> tuple[Cluster, list[str]]:
    """Return the cluster, and the nodes to leave out beside its own busy ones."""
    from planner.formats.read import read_topology

    if isinstance(topology, (str, Path)):
        topology = read_topology(Path(topology))
    cluster = topology if isinstance(topology, Cluster) else Cluster(topology)
    taken = read_hosts(busy, "busy") if isinstance(busy, str) else list(busy)
    if state is not None:
        from planner.formats.slurm.node_states import read_states, states_on

        taken.extend(sorted(states_on(cluster.topology, read_states(state), str(state)).taken))
    return cluster, taken
