"""A placement for PyTorch's torchrun: a script that each node runs, and that gives it its place in the rank order.

The place is looked up by the node's name, so whatever order a launcher starts the nodes in, ranks are the placement's:
srun on topology/block, which takes no hostfile, pdsh or a batch system of one's own will do.
"""

import re
import shlex

from planner.errors import InputError
from planner.formats.placement import Placed

PORT = 29_500  # torchrun's own, unless MASTER_PORT is set
_NODE = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def torchrun(placed: Placed) -> str:
    """Return the script: SLURMD_NODENAME or the host's short name is the node's; the training script follows it.

    Raises
    ------
    InputError
        If a node's name is none that a shell takes as it stands.
    """
    for node in placed.nodes:
        if not _NODE.fullmatch(node):
            raise InputError(f"the torchrun format: node {node!r} is no host's name; take the format json")
    table = "".join(f"{node} {rank}\n" for rank, node in enumerate(placed.nodes))
    name = re.sub(r"[^ -~]", "?", placed.job)
    return (
        "#!/bin/sh\n"
        f"# Job {name}: start it once on each of its {len(placed.nodes)} nodes, with the training script and its "
        "arguments:\n"
        f"#   srun -N{len(placed.nodes)} --ntasks-per-node=1 sh THIS_FILE train.py ...\n"
        'node="${SLURMD_NODENAME:-$(hostname -s)}"\n'
        "rank=$(awk -v node=\"$node\" '$1 == node { print $2 }' <<'END'\n"
        f"{table}END\n"
        ")\n"
        '[ -n "$rank" ] || { echo "$node is no node of this job" >&2; exit 1; }\n'
        f"exec torchrun --nnodes={len(placed.nodes)} --nproc-per-node={placed.gpus_per_node} "
        f'--node-rank="$rank" --master-addr={shlex.quote(placed.nodes[0])} '
        f'--master-port="${{MASTER_PORT:-{PORT}}}" "$@"\n'
    )


def torchrun_line(placed: Placed, file: str) -> str:
    """Return the line that starts the script on every node of an allocation."""
    return f"srun -N{len(placed.nodes)} --ntasks-per-node=1 sh {shlex.quote(file)} train.py"
