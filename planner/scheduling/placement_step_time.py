"""The predicted step time of a placement on a cluster, and the placement of a plan's job by it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from planner.cluster.job import AnyJob, Job, job_of_plan
from planner.cluster.placement import Placement
from planner.errors import InputError
from planner.files import read_json
from planner.instance.instance import Instance
from planner.physics.network import uplink_slowdowns
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import Locality, locality, min_crossings
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy, strategy_of
from planner.physics.training.step_prediction import Conditions
from planner.plan.plan import Plan
from planner.plan.plan_files import kind_of, plan_of
from planner.scheduling.warm_cluster import Cluster, counted_on, splits_on
from planner.simulation.simulated_slowdown import transport_slowdown_of
from planner.solvers.outcome import relative_gap

STEP_MINIMIZES = "predicted seconds of a step; the bound is that of the fewest crossings of leaves and pods"
STEP_FORMULATION = (
    "The better of two placements proven by counts: rings kept within leaves, or pipelines kept within leaves."
)


@dataclass(frozen=True, slots=True)
class Clock:
    """The step time of placements on a cluster: a plan's layout on its fabric, by the nodes of each stage's racks."""

    instance: Instance
    strategy: ParallelStrategy
    transport_slowdown: float
    design: Design
    places: Mapping[str, int]  # of a node: its rack in the fabric
    wrap: bool  # whether the last stage sends to the first

    def seconds(self, job: Job, nodes: tuple[str, ...]) -> float:
        """Return a placement's step time in seconds, by what its ranks send across leaf domains, pods and zones."""
        stages = [[self.places[nodes[rank]] for rank in slot.ranks] for slot in job.slots()]
        return self.at(*self.factors(locality(stages, self.design.block_racks, wrap=self.wrap)))

    def factors(self, locality: Locality) -> tuple[float, float]:
        """Return the factors by which a placement slows the pipeline exchange and the rings in its step time."""
        phi = self.transport_slowdown
        loads = uplink_slowdowns.uplink_loads(self.design, locality.share_leaving, locality.allreduces_leaving)
        send, allreduce = uplink_slowdowns.slowdowns(phi, loads)
        return send / phi, allreduce / phi

    def at(self, send: float, allreduce: float) -> float:
        """Return a placement's step time in seconds with pipeline exchange and rings slowed by these factors."""
        phi = self.transport_slowdown
        slow = Conditions(pipeline_send_slowdown=phi * send, allreduce_slowdown=phi * allreduce, transport_slowdown=phi)
        return step_prediction.metrics(self.instance, slow, self.strategy).step_seconds

    def min_seconds(self, cluster: Cluster, job: Job, first: Placement, busy: Collection[str]) -> float:
        """Bound the step time in seconds of any placement by what must leave the fullest leaf and the fullest pod."""
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
    """Return the step time of placements, nodes as racks of a one-site plan's fabric. InputError: no such shape."""
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


def place_by_time(cluster: Cluster, given: AnyJob, *, busy: Iterable[str] = (), **options: Any) -> Placement:
    """Place a plan's job so that its predicted step is shortest, of two placements that each are proven by counts.

    Rings kept within leaves send the pipeline exchange up; pipelines kept within leaves send the rings up. Which is
    slower depends on the fabric's oversubscription and on what the layout hides. The bound is the step of the minimum
    that the job must send out of the freest leaf and pod by its shape (`planner.physics.network.uplink_slowdowns`).
    """
    where, data = ("job", given) if not isinstance(given, (str, Path)) else (str(given), read_json(Path(given)))
    if not isinstance(data, Plan) and kind_of(data) != "plan":
        needs = "a plan, which has a layout and a fabric"
        raise InputError(f"{where}: --objective step-time needs {needs}; give one, or take locality")
    plan = data if isinstance(data, Plan) else plan_of(data, where)
    return fastest(cluster, clock_of(cluster, plan, where), job_of_plan(plan, where), busy=list(busy), **options)


def fastest(cluster: Cluster, clock: Clock, job: Job, *, busy: list[str], **options: Any) -> Placement:
    """Return the placement with the shorter step time of the two on a cluster, with the bound."""
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
        timed.append((clock.seconds(job, nodes), first.replaced(nodes=nodes, **counts, figures=figures)))
    seconds, best = min(timed, key=lambda pair: pair[0])
    status, gap = "optimal" if seconds <= bound else "feasible", relative_gap(seconds, bound)
    certificate = best.certificate.replaced(
        status=status, objective=seconds, bound=bound, gap=gap, formulation=STEP_FORMULATION, minimizes=STEP_MINIMIZES
    )
    return best.replaced(step_seconds=seconds, step_seconds_bound=bound, certificate=certificate)
