"""What a Slurm controller chooses on the same free nodes: for one job with ranks in node order, for a job per group."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from planner.cluster.hostlists import expand, fold_names
from planner.cluster.job import Job
from planner.formats.topologies import write_conf
from planner.scheduling.warm_cluster import Cluster

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from slurm_controller import Controller, controller, why_not

Choice = tuple[list[str], float]
MAX_SECONDS = 180.0


def choices(cluster: Cluster, job: Job) -> dict[str, Choice]:
    """Return nodes in the job's rank order, and seconds, for each way to ask a controller of one's own.

    The seconds of the one job are those of `sbatch --test-only`; those of a job for each group last from the first
    submission to the last allocation.

    Raises
    ------
    SystemExit
        If there can be no controller here.
    """
    if reason := why_not():
        raise SystemExit(f"--controller: {reason}")
    names = [n for leaf in cluster.leaves for n in leaf.nodes]
    with (
        tempfile.TemporaryDirectory() as folder,
        controller(Path(folder) / "run", fold_names(names), write_conf(cluster.topology)) as slurm,
    ):
        if busy := fold_names(sorted(cluster.busy)):
            slurm.run("scontrol", "update", f"nodename={busy}", "state=drain", "reason=busy")
        return {"controller, node order": _one_job(slurm, job), "controller, job per group": _job_per_group(slurm, job)}


def _one_job(slurm: Controller, job: Job) -> Choice:
    """Submit one job; its ranks follow the names of its nodes, as Slurm numbers them."""
    asked = ("-N", str(job.nodes), "--exclusive")
    started = time.perf_counter()
    slurm.submit("--test-only", *asked)
    seconds = time.perf_counter() - started
    number = slurm.submit(*asked)
    nodes = sorted(expand(slurm.allocated(number, MAX_SECONDS)))
    slurm.run("scancel", number)
    _wait_until_idle(slurm)
    return nodes, seconds


def _wait_until_idle(slurm: Controller) -> None:
    """Wait until no node is allocated or completing any more."""
    end = time.monotonic() + MAX_SECONDS
    while slurm.run("squeue", "-h").strip() or slurm.run("sinfo", "-h", "-N", "-t", "alloc,comp", "-o", "%N").strip():
        if time.monotonic() > end:
            raise SystemExit("--controller: the nodes of a cancelled job do not come back")
        time.sleep(0.2)


def _job_per_group(slurm: Controller, job: Job) -> Choice:
    """Submit the groups of each kind as an array of jobs, the largest kind first, and wait until all hold nodes."""
    started = time.perf_counter()
    numbers = dict[int, str]()
    for k in sorted(range(len(job.kinds)), key=lambda k: -job.kinds[k].size):
        kind = job.kinds[k]
        numbers[k] = slurm.submit(f"--array=0-{kind.count - 1}", "-N", str(kind.size), "--exclusive")
    end = time.monotonic() + MAX_SECONDS
    while len(rows := _running(slurm)) < sum(k.count for k in job.kinds):
        if time.monotonic() > end:
            groups = sum(k.count for k in job.kinds)
            raise SystemExit(f"--controller: {len(rows):,} of {groups:,} groups have nodes after {MAX_SECONDS:g} s")
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    nodes = [""] * job.nodes
    taken = dict.fromkeys(numbers, 0)
    for slot in job.slots():
        own = expand(rows[f"{numbers[slot.kind]}_{taken[slot.kind]}"])
        taken[slot.kind] += 1
        for rank, node in zip(slot.ranks, own, strict=True):
            nodes[rank] = node
    return nodes, seconds


def _running(slurm: Controller) -> dict[str, str]:
    """Return the hostlist of each task of an array that holds nodes."""
    lines = slurm.run("squeue", "-h", "-r", "-o", "%F_%K %N").splitlines()
    rows: Sequence[list[str]] = [line.split() for line in lines]
    return {row[0]: row[1] for row in rows if len(row) == 2}
