"""Jobs that run on a cluster, on placements of the planner or of anyone: each as the planner's own type."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from planner.cluster.job import Job, slots
from planner.cluster.placement import PlacedGroup, Placement
from planner.cluster.results import Running
from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.formats.slurm.running import REMEDY, jobs_in, read_running
from planner.instance.read import complaints
from planner.plan.certificate import Certificate
from planner.plan.kinds import kind_of
from planner.scheduling.session import Cluster


def running_jobs(cluster: Cluster, files: Sequence[Path]) -> list[Running]:
    """Return the running jobs of files: what Slurm prints of them, or placements of `planner place --format json`.

    Raises
    ------
    InputError
        A file cannot be read, a node is not in the topology, or two jobs have one node.
    """
    running = [job for file in files for job in _of_file(cluster, file)]
    owner: dict[str, str] = {}
    for job in running:
        for node in cluster.known(job.placement.nodes):
            other = owner.setdefault(node, job.placement.job)
            if other != job.placement.job:
                raise InputError(
                    f"node {node!r}: jobs {other!r} and {job.placement.job!r} both have it; correct one file"
                )
    return running


def _of_file(cluster: Cluster, file: Path) -> list[Running]:
    """Return the jobs of one file."""
    text = read_text(file, REMEDY)
    data = parse_json(text, str(file)) if text.lstrip()[:1] in "{[" else None
    if isinstance(data, dict) and kind_of(data) == "placement":
        known = {k: v for k, v in data.items() if k in Placement.model_fields}
        try:
            return [Running(placement=Placement.model_validate(known))]
        except ValidationError as error:
            raise InputError("\n".join(complaints(error, str(file), Placement, known))) from None
    if data is not None and jobs_in(data) is None:
        raise InputError(f"{file}: holds no running jobs; {REMEDY}, or a placement of `planner place --format json`")
    jobs = read_running(file)
    return [Running(placement=own_placement(cluster, j.name, j.nodes), priority=j.priority) for j in jobs]


def own_placement(cluster: Cluster, name: str, nodes: Sequence[str], job: Job | None = None) -> Placement:
    """Return a placement that the planner did not make: its nodes in rank order, as one group or by the job's mesh.

    Nothing is claimed of it: its figures are counted as it stands, and its certificate has no bound.
    """
    order = cluster.known(nodes)
    ranked = [(s.name, s.ranks) for s in slots(job)] if job is not None else [("data", tuple(range(len(order))))]
    groups = []
    for label, ranks in ranked:
        own = [order[r] for r in ranks]
        leaves = dict.fromkeys(cluster.leaves[cluster.leaf_of[n]].name for n in own)
        groups.append(PlacedGroup(name=label, nodes=tuple(own), leaves=tuple(leaves)))
    split = sum(len(g.leaves) > 1 for g in groups)
    return Placement(
        job=name,
        nodes=tuple(order),
        order="any",
        groups=tuple(groups),
        groups_split=split,
        lower_bound_split=0,
        extra_pieces=sum(len(g.leaves) - 1 for g in groups),
        groups_cross_pod=0,
        figures=(),
        stopped="limit",
        reason="",
        certificate=Certificate(
            status="feasible",
            objective=float(split),
            bound=None,
            gap=None,
            solver="none",
            formulation="a placement as it runs, not searched",
            variables=0,
            constraints=0,
            seconds=0.0,
            seed=0,
            minimizes="split groups",
        ),
    )
