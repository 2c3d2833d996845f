"""Write a placement, or a topology, in the format that a scheduler takes."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from planner.cluster.placement import Topology
from planner.errors import InputError
from planner.formats import kubernetes, placed_job, slurm_topology
from planner.formats.placed_job import PlacedJob
from planner.formats.topology_rows import near

Writer = Callable[[PlacedJob, Topology], str]


def as_document(placed: PlacedJob, topology: Topology) -> dict[str, Any]:
    """Return all that a scheduler's script needs: ranks, groups, certificate, and the lines to submit and start by."""
    hostfile = placed_job.HOSTFILE.format(job=placed.job)
    return {
        **placed.model_dump(mode="json"),
        "hostlist": placed_job.rank_hostlist(placed),
        "sbatch": placed_job.sbatch_line(placed, topology),
        "srun": placed_job.srun_line(placed, topology),
        "mpirun": {
            "hostfile": placed_job.hostfile_line(placed, hostfile),
            "rankfile": placed_job.rankfile_line(placed, f"{placed.job}.rankfile"),
        },
        "torchrun": placed_job.torchrun_line(placed, f"{placed.job}.torchrun"),
        "hints": placed_job.hints(placed, topology),
    }


WRITERS: Mapping[str, Writer] = {
    "hostlist": lambda placed, _: placed_job.rank_hostlist(placed) + "\n",
    "sbatch": lambda placed, topology: placed_job.sbatch_line(placed, topology) + "\n",
    "hostfile": placed_job.hostfile,
    "mpi-hostfile": lambda placed, _: placed.hostfile,
    "rankfile": lambda placed, _: placed_job.rankfile(placed),
    "torchrun": lambda placed, _: placed_job.torchrun(placed),
    "json": lambda placed, topology: json.dumps(as_document(placed, topology), indent=1) + "\n",
    "kueue": lambda placed, _: kubernetes.kueue_job(placed),
    "volcano": kubernetes.volcano_job,
}
TOPOLOGY_WRITERS: Mapping[str, Callable[[Topology], str]] = {
    "conf": slurm_topology.write_conf,
    "yaml": slurm_topology.write_yaml,
    "kueue": kubernetes.kueue_topology,
    "volcano": kubernetes.volcano_hypernodes,
}


def write_placed(placed: PlacedJob, topology: Topology, form: str) -> str:
    """Return a placement in one of WRITERS' formats.

    Raise InputError if there is no such format, or the scheduler would refuse what it asks.
    """
    if form not in WRITERS:
        raise InputError(f"--format {form!r}: unknown; {near(form, WRITERS)}")
    return WRITERS[form](placed, topology)


def write_topology(topology: Topology, form: str) -> str:
    """Return a topology in one of TOPOLOGY_WRITERS' formats.

    Raise InputError if there is no such format, or it cannot hold the topology.
    """
    if form not in TOPOLOGY_WRITERS:
        raise InputError(f"topology format {form!r}: unknown; {near(form, TOPOLOGY_WRITERS)}")
    return TOPOLOGY_WRITERS[form](topology)
