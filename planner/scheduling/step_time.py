"""Placement of a plan's job by the step time that the plan's own fabric predicts for it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.checks.placement import expected_groups
from planner.cluster.job import Figure, Job, PlacedGroup, Placement, job_of_plan
from planner.errors import InputError
from planner.files import read_json
from planner.instance.network import Network
from planner.physics.network import transport
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step import Conditions
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.scheduling.session import Cluster
from planner.simulation.flow_times import transport_slowdown_of
from planner.solvers.outcome import relative_gap

FORMULATION = (
    "The better of two placements proven by counts: rings kept within leaves, or pipelines kept within leaves."
)


@dataclass(frozen=True, slots=True)
class Clock:
    """The step time of a plan on its fabric, given which nodes carry the racks of each stage."""

    plan: Plan
    design: Design
    places: Mapping[str, int]
    wrap: bool

    def crossings(self, job: Job, nodes: tuple[str, ...]) -> transport.Locality:
        """Count what a rank order sends across leaf domains, pods and zones."""
        stages = [[self.places[nodes[rank]] for rank in ranks] for ranks in expected_groups(job).values()]
        design = self.design
        blocks = {"leaf_domain_racks": design.domain_racks, "domains_per_pod": design.domains_per_pod or 1}
        return transport.locality(stages, **blocks, domains_per_zone=design.domains_per_zone, wrap=self.wrap)

    def seconds(self, locality: transport.Locality | None) -> float:
        """Return the seconds of the step; with None, as if nothing left a leaf: the transport's own slowdown alone."""
        return self.at(*((1.0, 1.0) if locality is None else self.factors(locality)))

    def factors(self, locality: transport.Locality) -> tuple[float, float]:
        """Return how much slower than the transport alone the pipeline exchange and the rings are."""
        network = self.network
        send = transport.pipeline_send_slowdown(transport_slowdown_of(network), self.design, *locality.share_leaving)
        allreduce = transport.allreduce_slowdown(
            transport_slowdown_of(network), self.design, *locality.allreduces_leaving
        )
        return send / transport_slowdown_of(network), allreduce / transport_slowdown_of(network)

    def at(self, send: float, allreduce: float) -> float:
        """Return the seconds of the step, exchange and rings slower than the transport alone by these factors."""
        layout, transport_slowdown = self.plan.layout, transport_slowdown_of(self.network)
        if layout is None:
            raise InputError("step-time: the plan has no layout; solve an instance with one")
        metrics = step_prediction.metrics(
            self.plan.instance,
            Conditions(
                pipeline_send_slowdown=transport_slowdown * send,
                allreduce_slowdown=transport_slowdown * allreduce,
                transport_slowdown=transport_slowdown,
            ),
            strategy_of(layout),
        )
        return float(metrics["step_seconds"])  # type: ignore[arg-type]

    @property
    def network(self) -> Network:
        """The network of the plan's instance."""
        if self.plan.instance.network is None:
            raise InputError("step-time: the plan has no network; solve an instance with one")
        return self.plan.instance.network

    def min_seconds(self, cluster: Cluster, job: Job, first: Placement, busy: Collection[str]) -> float:
        """Bound the step of every placement: what must leave the fullest leaf, and the fullest pod, by shape alone."""
        if not job.mesh or set(job.mesh) != {"pipeline", "data"}:
            return self.seconds(None)
        free: dict[tuple[str, int], int] = {}
        for i, leaf in enumerate(cluster.leaves):
            free["leaf", i] = len(set(leaf.nodes).difference(busy))
            pod = ("pod", leaf.path[0] if leaf.path else 0)
            free[pod] = free.get(pod, 0) + free["leaf", i]
        design, factors = self.design, set[tuple[float, float]]()
        known = {figure.name: figure.bound > 0 for figure in first.figures}
        sizes = {"leaf": design.domain_racks, "pod": design.domain_racks * (design.domains_per_pod or design.domains)}
        options = {}
        for level, split in (("leaf", first.lower_bound_split > 0), ("pod", known.get("groups across pods", False))):
            rooms = [count for (at, _), count in free.items() if at == level and count]
            stages, replicas, free_of = job.mesh["pipeline"], job.mesh["data"], max(rooms)
            options[level] = transport.min_crossings(
                stages, replicas, max_free=free_of, blocks=len(rooms), wrap=self.wrap, split=split
            )
        for flows, rings in options["leaf"]:
            for more, wide in options["pod"]:
                shares = flows / sizes["leaf"], more / sizes["pod"], 0.0
                factors.add(self.factors(transport.Locality(share_leaving=shares, allreduces_leaving=(rings, wide, 0))))
        return min(self.at(send, allreduce) for send, allreduce in _undominated(factors))


def _undominated(factors: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop pairs that another is no worse than in both: no slower exchange or all-reduce makes a step shorter."""
    kept: list[tuple[float, float]] = []
    for send, allreduce in sorted(factors):
        if not kept or allreduce < kept[-1][1]:
            kept.append((send, allreduce))
    return kept


def clock_of(cluster: Cluster, plan: Plan, where: str) -> Clock:
    """Read the fabric of a plan at one site, and give each node of the cluster the place of a rack in it.

    Raise InputError if the plan has no such fabric, or the cluster does not have its shape.
    """
    physics = PlanPhysics(plan=plan)
    if plan.layout is None or plan.instance.network is None or len(physics.wired) != 1:
        needs = f"a plan with a layout and the fabric of one site (has {len(physics.wired)})"
        raise InputError(f"{where}: --objective step-time needs {needs}; take locality")
    (design,) = physics.wired.values()
    size, per_pod = design.domain_racks, design.domains_per_pod or design.domains
    seen: dict[int, int] = {}
    first: dict[int, int] = {}
    places = {}
    for leaf in cluster.leaves:
        pod = first.setdefault(leaf.path[0] if leaf.path else 0, len(first))
        at = seen[pod] = seen.get(pod, -1) + 1
        if len(leaf.nodes) > size or (leaf.path and at >= per_pod):
            shape = f"leaf {leaf.name!r} has {len(leaf.nodes)} nodes, its pod {at + 1} leaves or more"
            raise InputError(
                f"{where}: {shape}; the plan's fabric has {size} racks a leaf domain and {per_pod} domains a pod; "
                "give the topology of the plan's fabric, or take --objective locality"
            )
        places.update({node: (pod * per_pod + at) * size + i for i, node in enumerate(leaf.nodes)})
    return Clock(plan, design, places, plan.layout.virtual_stages > 1)


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
    """Return the faster of the two placements, with the bound."""
    first = cluster.place(job, busy=busy, **options)
    if not first.nodes:
        return first
    bound = clock.min_seconds(cluster, job, first, cluster.taken(busy))
    timed = [(clock.seconds(clock.crossings(job, first.nodes)), first)]
    if job.mesh and timed[0][0] > bound and len(job.mesh) == 2:
        turned = _pipelines_whole(cluster, job, first, busy, options)
        timed.append((clock.seconds(clock.crossings(job, turned.nodes)), turned))
    seconds, best = min(timed, key=lambda pair: pair[0])
    gap = relative_gap(seconds, bound)
    certificate = best.certificate.model_copy(
        update={
            "status": "optimal" if seconds <= bound else "feasible",
            "objective": seconds,
            "bound": bound,
            "gap": gap,
            "formulation": FORMULATION,
            "minimizes": "predicted seconds of a step; the bound is that of the fewest crossings of leaves and pods",
        }
    )
    return best.model_copy(update={"step_seconds": seconds, "step_seconds_bound": bound, "certificate": certificate})


def _pipelines_whole(
    cluster: Cluster, job: Job, first: Placement, busy: list[str], options: Mapping[str, Any]
) -> Placement:
    """Place the job with its axes exchanged, so that pipelines are kept whole, and count its rings.

    Beside the first level nothing is proven of these, as they are not what was minimized.
    """
    stages, replicas = (job.mesh or {})["pipeline"], (job.mesh or {})["data"]
    turned = cluster.place(Job(name=job.name, mesh={"pipeline": replicas, "data": stages}), busy=busy, **options)
    nodes = tuple(turned.nodes[replica * stages + stage] for stage in range(stages) for replica in range(replicas))
    groups = []
    for name, ranks in expected_groups(job).items():
        on = tuple(nodes[rank] for rank in ranks)
        leaves = tuple(dict.fromkeys(cluster.leaves[cluster.leaf_of[node]].name for node in on))
        groups.append(PlacedGroup(name=name, nodes=on, leaves=leaves))
    leaf = {one.name: one for one in cluster.leaves}
    tiers = len(cluster.leaves[0].path)
    crossing = [
        sum(len({leaf[name].path[tier] for name in group.leaves}) > 1 for group in groups) for tier in range(tiers)
    ]
    values = [sum(len(group.leaves) > 1 for group in groups), sum(len(group.leaves) - 1 for group in groups), *crossing]
    bounds = [first.figures[0].bound, *[0] * (len(values) - 1)]
    figures = [
        Figure(name=figure.name, value=value, bound=bound, analytic_bound=min(bound, figure.analytic_bound))
        for figure, value, bound in zip(first.figures[: len(values)], values, bounds, strict=True)
    ]
    return first.model_copy(
        update={
            "nodes": nodes,
            "groups": tuple(groups),
            "groups_split": values[0],
            "extra_pieces": values[1],
            "groups_cross_pod": values[2] if tiers else 0,
            "figures": tuple(figures),
        }
    )
