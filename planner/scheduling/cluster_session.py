"""A cluster kept warm between calls: its topology, node states and jobs; jobs placed on it, also by step time."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from threading import RLock
from typing import Any

from planner.checks.placement import check_placement
from planner.cluster import Job, Placement, Running, Slot, Topology, job_of_plan, read_hosts, slots
from planner.errors import InputError, InternalError, hint
from planner.files import parse_json, read_json, read_text
from planner.formats.slurm import REMEDY, jobs_in, read_running
from planner.instance.instance import Instance
from planner.instance.validate import validated
from planner.models import Options
from planner.models.placement.place_job import solve_in_one_tree
from planner.models.placement.placement_problem import PlacementProblem
from planner.physics.network import transport
from planner.physics.network.clos_fabric import Design
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy, strategy_of
from planner.physics.training.step_prediction import Conditions
from planner.plan.plan import Plan
from planner.plan.plan_files import kind_of, plan_of
from planner.scheduling import placing
from planner.simulation.flow_times import transport_slowdown_of
from planner.solvers.outcome import Outcome, Stop, relative_gap
from planner.solvers.registry import SOLVERS, linear_runner
from planner.solvers.signals import uninterrupted
from planner.units import bounded

DEFAULT_SECONDS = 10.0
ORDERS = ("any", "name")


def options_of(time_limit: float | None, seed: int = 0, threads: int | None = None) -> Options:
    """Return how hard to search for a placement, with the limit of a call on a cluster unless given."""
    return Options(time_limit=DEFAULT_SECONDS if time_limit is None else time_limit, seed=seed, threads=threads)


class Cluster(placing.LeafMap):
    """A cluster's topology with the nodes that are busy or broken; every method may be called from several threads."""

    def __init__(self, topology: Topology, *, busy: Iterable[str] = ()) -> None:
        super().__init__(topology)
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
            If the order is unknown, or ranks by name are not to be had (`planner.scheduling.placing`).
        InternalError
            If a placement breaks a rule of the checker, which replays it from the topology.
        """
        options = options_of(time_limit, seed, threads)
        taken = self.taken(busy, free)
        if order not in ORDERS:
            raise InputError(f"order: must be {' or '.join(ORDERS)} (is {order!r})")
        if order == "name":
            placed = placing.place_by_name(self, job, taken, options)
        else:
            # Of a mesh its level to place, in the trees where most levels are whole.
            counted = placing.in_units(job, self.leaves, taken)
            trees = [{i for i, leaf in enumerate(self.leaves) if leaf.tree == tree} for tree in range(self.trees)]
            parts = [placing.only(counted.q, tree) for tree in trees] if self.trees > 1 else [counted.q]
            fits = [tree for tree, part in enumerate(parts) if part.need <= part.free]
            if job.mesh is not None and fits:
                level = {tree: placing.level_to_place(job, [leaf.free for leaf in parts[tree].leaves]) for tree in fits}
                fits = [tree for tree in fits if level[tree] == max(level.values())]
                counted = placing.in_units(job, self.leaves, taken, level[fits[0]])
                parts = [placing.only(counted.q, tree) for tree in trees] if self.trees > 1 else [counted.q]
            parts = [parts[tree] for tree in fits] or [max(parts, key=lambda part: part.free)]
            best, outcome = solve_in_one_tree(parts, options, fragmentation=fragmentation)
            counted = replace(counted, q=parts[best])
            left = [sum(node not in taken for node in leaf.nodes) for leaf in self.leaves]
            placed = placing.placement(self, job, counted, outcome, seed, left)
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
    ) -> tuple[PlacementProblem, list[list[placing.Unit]]]:
        """Return a job's placement problem on the cluster in units of segments, and each leaf's free units."""
        counted = placing.in_units(job, self.leaves, self.taken(busy, free))
        return counted.q, counted.units


def opened(
    topology: Cluster | Topology | str | Path,
    busy: Iterable[str] | str,
    state: str | Path | None,
    only: Iterable[str] | str | None = None,
) -> tuple[Cluster, list[str]]:
    """Return a cluster, and nodes to leave out too: `busy`, those taken by the `state` file, all but `only`."""
    from planner.formats.topology_files import read_topology

    if isinstance(topology, (str, Path)):
        topology = read_topology(Path(topology))
    cluster = topology if isinstance(topology, Cluster) else Cluster(topology)
    taken = read_hosts(busy, "busy") if isinstance(busy, str) else list(busy)
    if state is not None:
        from planner.formats.slurm import read_states, states_on

        taken.extend(sorted(states_on(cluster.topology, read_states(state), str(state)).taken))
    if only is not None:
        own = set(cluster.known(read_hosts(only, "only") if isinstance(only, str) else only))
        taken.extend(node for node in cluster.leaf_of if node not in own)
    return cluster, taken


def running_jobs(cluster: Cluster, files: Sequence[Path]) -> list[Running]:
    """Return running jobs from Slurm's lists or placements. InputError: no such file or node, or a node of two jobs."""
    running = list[Running]()
    for file in files:
        text = read_text(file, REMEDY)
        data = parse_json(text, str(file)) if text.lstrip()[:1] in "{[" else None
        if isinstance(data, dict) and kind_of(data) == "placement":
            known = {key: value for key, value in data.items() if key in Placement.model_fields}
            running.append(Running(placement=validated(Placement, known, str(file))))
        elif data is not None and jobs_in(data) is None:
            needs = f"{REMEDY}, or a placement of `planner place --format json`"
            raise InputError(f"{file}: holds no running jobs; {needs}")
        else:
            for job in read_running(file):
                running.append(Running(placement=own_placement(cluster, job.name, job.nodes), priority=job.priority))
    owner: dict[str, str] = {}
    for placed in (run.placement for run in running):
        for node in cluster.known(placed.nodes):
            other = owner.setdefault(node, placed.job)
            if other != placed.job:
                raise InputError(f"node {node!r}: jobs {other!r} and {placed.job!r} both have it; correct one file")
    return running


def own_placement(cluster: Cluster, name: str, nodes: Sequence[str], job: Job | None = None) -> Placement:
    """Return a placement that the planner did not make: its nodes in rank order, as one group or by the job's mesh."""
    # Nothing is claimed of it: split groups and extra pieces are those of its nodes, and no bound is certified.
    order = tuple(cluster.known(nodes))
    groups = [Slot(0, "data", tuple(range(len(order))))] if job is None else list(slots(job))
    counts = placing.counted_on(cluster, groups, order)
    as_it_runs = Outcome(stop=Stop.LIMIT, solution=order, objective=float(counts["groups_split"]), solver="none")
    what = {"formulation": "a placement as it runs, not searched", "minimizes": "split groups", "seed": 0}
    own = {"lower_bound_split": 0, "figures": (), "stopped": "limit", "certificate": as_it_runs.certificate(**what)}
    return Placement(job=name, nodes=order, **counts, **own)


STEP_MINIMIZES = "predicted seconds of a step; the bound is that of the fewest crossings of leaves and pods"
FORMULATION = (
    "The better of two placements proven by counts: rings kept within leaves, or pipelines kept within leaves."
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

    def crossings(self, job: Job, nodes: tuple[str, ...]) -> transport.Locality:
        """Count what a placement's rank order sends across leaf domains, pods and zones."""
        stages = [[self.places[nodes[rank]] for rank in slot.ranks] for slot in slots(job)]
        return transport.locality(stages, self.design.block_racks, wrap=self.wrap)

    def seconds(self, locality: transport.Locality | None) -> float:
        """Return a placement's step in seconds; with None, as if nothing left a leaf: the transport's slowdown only."""
        return self.at(*((1.0, 1.0) if locality is None else self.factors(locality)))

    def factors(self, locality: transport.Locality) -> tuple[float, float]:
        """Return how much slower than the transport alone a placement makes the pipeline exchange and the rings."""
        phi = self.transport_slowdown
        send = transport.pipeline_send_slowdown(phi, self.design, *locality.share_leaving)
        allreduce = transport.allreduce_slowdown(phi, self.design, *locality.allreduces_leaving)
        return send / phi, allreduce / phi

    def at(self, send: float, allreduce: float) -> float:
        """Return the step in seconds with pipeline exchange and rings these factors slower than the transport alone."""
        phi = self.transport_slowdown
        slow = {"pipeline_send_slowdown": phi * send, "allreduce_slowdown": phi * allreduce}
        conditions = Conditions(**slow, transport_slowdown=phi)
        return step_prediction.metrics(self.instance, conditions, self.strategy).step_seconds

    def min_seconds(self, cluster: Cluster, job: Job, first: Placement, busy: Collection[str]) -> float:
        """Bound the step in seconds of every placement: what must leave the fullest leaf and the fullest pod."""
        if not job.mesh or set(job.mesh) != {"pipeline", "data"}:
            return self.seconds(None)
        leaves, pods = Counter[int](), Counter[int]()  # free nodes
        for i, leaf in enumerate(cluster.leaves):
            leaves[i] = len(set(leaf.nodes).difference(busy))
            pods[leaf.path[0] if leaf.path else 0] += leaves[i]
        across = any(figure.bound > 0 for figure in first.figures if figure.name == "groups across pods")
        design, options = self.design, []
        for free, split in ((leaves, first.lower_bound_split > 0), (pods, across)):
            rooms = {"max_free": max(free.values()), "blocks": len(+free)}
            each = job.mesh["pipeline"], job.mesh["data"]
            options.append(transport.min_crossings(*each, **rooms, wrap=self.wrap, split=split))
        of_leaf, of_pod = design.domain_racks, design.domain_racks * (design.domains_per_pod or design.domains)
        factors = set[tuple[float, float]]()
        for (flows, rings), (more, wide) in product(*options):
            shares = flows / of_leaf, more / of_pod, 0.0
            factors.add(self.factors(transport.Locality(share_leaving=shares, allreduces_leaving=(rings, wide, 0))))
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
    cluster: Cluster, given: Plan | str | Path | None, *, busy: Iterable[str] = (), **options: Any
) -> Placement:
    """Place a plan's job so that its predicted step is shortest, of two placements that each are proven by counts.

    Rings kept within leaves send the pipeline exchange up; pipelines kept within leaves send the rings up. Which is
    slower depends on the fabric's oversubscription and on what the layout hides. The bound is the step of the minimum
    that the job must send out of the freest leaf and pod by its shape (`planner.physics.network.transport`).
    """
    where = str(given) if isinstance(given, (str, Path)) else "job"
    data = given if given is None or isinstance(given, Plan) else read_json(Path(given))
    if not (isinstance(data, Plan) or (isinstance(data, dict) and "planner_version" in data)):
        needs = "a plan, which has a layout and a fabric"
        raise InputError(f"{where}: --objective step-time needs {needs}; give one, or take locality")
    plan = data if isinstance(data, Plan) else plan_of(data, where)
    return fastest(cluster, clock_of(cluster, plan, where), job_of_plan(plan, where), busy=list(busy), **options)


def fastest(cluster: Cluster, clock: Clock, job: Job, *, busy: list[str], **options: Any) -> Placement:
    """Return the placement with the shorter step of the two, with the bound."""
    first = cluster.place(job, busy=busy, **options)
    if not first.nodes:
        return first
    bound = clock.min_seconds(cluster, job, first, cluster.taken(busy))
    timed = [(clock.seconds(clock.crossings(job, first.nodes)), first)]
    if job.mesh and timed[0][0] > bound and len(job.mesh) == 2:
        # The job with its axes exchanged, so that pipelines are kept whole; its rings are counted.
        stages, replicas = job.mesh["pipeline"], job.mesh["data"]
        turned = cluster.place(Job(name=job.name, mesh={"pipeline": replicas, "data": stages}), busy=busy, **options)
        nodes = tuple(turned.nodes[replica * stages + stage] for stage in range(stages) for replica in range(replicas))
        groups = list(slots(job))
        counts = placing.counted_on(cluster, groups, nodes)
        values = placing.splits_on(cluster, (group.ranks for group in groups), nodes)
        # Beside the first level nothing is proven of these, as they are not what was minimized.
        rows = zip(first.figures, values, [first.figures[0].bound, *[0] * (len(values) - 1)], strict=False)
        figures = tuple(
            figure.replaced(value=value, bound=own, analytic_bound=min(own, figure.analytic_bound))
            for figure, value, own in rows
        )
        whole = first.replaced(nodes=nodes, **counts, figures=figures)
        timed.append((clock.seconds(clock.crossings(job, nodes)), whole))
    seconds, best = min(timed, key=lambda pair: pair[0])
    status, gap = "optimal" if seconds <= bound else "feasible", relative_gap(seconds, bound)
    certificate = best.certificate.replaced(
        status=status, objective=seconds, bound=bound, gap=gap, formulation=FORMULATION, minimizes=STEP_MINIMIZES
    )
    return best.replaced(step_seconds=seconds, step_seconds_bound=bound, certificate=certificate)
