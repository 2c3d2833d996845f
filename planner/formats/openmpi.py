"""A placement for Open MPI: a rankfile, and the lines to start by it or by the hostfile."""

import shlex

from planner.formats.placement import Placed


def rankfile(placed: Placed) -> str:
    """Return a rankfile: each rank's node, and its slot on it."""
    per_node = placed.gpus_per_node
    return "".join(
        f"rank {i * per_node + slot}={node} slot={slot}\n"
        for i, node in enumerate(placed.nodes)
        for slot in range(per_node)
    )


def rankfile_line(placed: Placed, file: str) -> str:
    """Return the line that starts the ranks by the rankfile (--map-by rankfile:file= since 5.0, --rankfile before)."""
    return f"mpirun -np {placed.ranks} --map-by rankfile:file={shlex.quote(file)}"


def hostfile_line(placed: Placed, file: str) -> str:
    """Return the line that starts the ranks in the hostfile's order.

    Open MPI follows it by the sequential mapper alone (--map-by seq since 5.0, --mca rmaps seq before); any other
    mapper takes the lines as slots and orders nodes itself.
    """
    return f"mpirun -np {placed.ranks} --hostfile {shlex.quote(file)} --map-by seq"
