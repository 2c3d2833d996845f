"""Names of the formats that `planner.formats.write` writes, apart from it so that a command's help loads no writer."""

PLACEMENT_FORMATS = (
    "hostlist",
    "sbatch",
    "hostfile",
    "mpi-hostfile",
    "rankfile",
    "torchrun",
    "json",
    "kueue",
    "volcano",
)
TOPOLOGY_FORMATS = ("conf", "yaml", "kueue", "volcano")
