"""What a real Slurm controller chooses on the same free nodes: one job whose ranks are in node order, and one job for each group."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from planner.cluster.hostlist import expand, fold_names
from planner.cluster.job import Job, slots
from planner.formats.slurm.topology_conf import write_conf
from planner.scheduling.session import Cluster

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from slurm_controller import Controller, controller, why_not

Choice = tuple[list[str], float]
MAX_SECONDS = 180.0


def choices(cluster: Cluster, job: Job) -> dict[str, Choice]:
    """Return nodes in the job's rank order, and seconds, for each way to ask a controller of one's own; raise where there can be none.

    The seconds of the one job are those of `sbatch --test-only`; those of a job for each group last from the first submission to the
    last allocation.
    """
    if reason := why_not():
        raise SystemExit(f"--controller: {reason}")
    names = [n for leaf in cluster.leaves for n in leaf.nodes]
    with (
        tempfile.TemporaryDirectory() as folder,
        controller(Path(folder) / "run", fold_names(names), write_conf(cluster.topology)) as held,
    ):
        if cluster.busy:
            held.run("scontrol", "update", f"nodename={fold_names(sorted(cluster.busy))}", "state=drain", "reason=busy")
        return {"controller, node order": _one_job(held, job), "controller, job per group": _job_per_group(held, job)}


def _one_job(held: Controller, job: Job) -> Choice:
    """Submit one job; its ranks follow the names of its nodes, as Slurm numbers them."""
    asked = ("-N", str(job.nodes), "--exclusive")
    started = time.perf_counter()
    held.submit("--test-only", *asked)
    seconds = time.perf_counter() - started
    number = held.submit(*asked)
    nodes = sorted(expand(held.allocated(number, MAX_SECONDS)))
    held.run("scancel", number)
    _wait_until_idle(held)
    return nodes, seconds


def _wait_until_idle(held: Controller) -> None:
    """Wait until no node is allocated or completing any more."""
    end = time.monotonic() + MAX_SECONDS
    while held.run("squeue", "-h").strip() or held.run("sinfo", "-h", "-N", "-t", "alloc,comp", "-o", "%N").strip():
        if time.monotonic() > end:
            raise SystemExit("--controller: the nodes of a cancelled job do not come back")
        time.sleep(0.2)


def _job_per_group(held: Controller, job: Job) -> Choice:
    """Submit the groups of each kind as an array of jobs, the largest kind first, and wait until all hold nodes."""
    started = time.perf_counter()
    numbers = dict[int, str]()
    for k in sorted(range(len(job.kinds)), key=lambda k: -job.kinds[k].size):
        kind = job.kinds[k]
        numbers[k] = held.submit(f"--array=0-{kind.count - 1}", "-N", str(kind.size), "--exclusive")
    end = time.monotonic() + MAX_SECONDS
    while len(rows := _running(held)) < sum(k.count for k in job.kinds):
        if time.monotonic() > end:
            raise SystemExit(
                f"--controller: {len(rows):,} of {sum(k.count for k in job.kinds):,} groups hold nodes after {MAX_SECONDS:g} s"
            )
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    nodes = [""] * job.nodes
    taken = dict.fromkeys(numbers, 0)
    for slot in slots(job):
        own = expand(rows[f"{numbers[slot.kind]}_{taken[slot.kind]}"])
        taken[slot.kind] += 1
        for rank, node in zip(slot.ranks, own, strict=True):
            nodes[rank] = node
    return nodes, seconds


def _running(held: Controller) -> dict[str, str]:
    """Return the hostlist of each task of an array that holds nodes."""
    rows: Sequence[list[str]] = [line.split() for line in held.run("squeue", "-h", "-r", "-o", "%F_%K %N").splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}
