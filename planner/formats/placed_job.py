"""A placed job written as schedulers and launchers start it: hostfile, rankfile, lines of sbatch and srun, torchrun."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from planner.cluster.hostlists import fold_names, natural
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats import kubernetes
from planner.formats.topologies import gpus_of_node, leaf_of

MAX_ARGUMENT_BYTES = 131_071  # Linux takes no longer argument (MAX_ARG_STRLEN is 32 pages of 4 KiB, its end included).
PORT = 29_500  # torchrun's own, unless MASTER_PORT is set


def hostfile(placed: Placement, topology: Topology | None = None) -> str:
    """Return a placed job's hostfile, a line a rank in rank order. InputError: topology/block, if given, refuses it."""
    if topology is not None and topology.kind == "block":
        remedy = "take the format hostlist to submit, and json or rankfile to give each node its rank"
        raise InputError(f"the hostfile format: topology/block refuses SLURM_HOSTFILE; {remedy}")
    return "".join(f"{node}\n" * gpus_of_node(placed) for node in placed.nodes)


def sbatch_line(placed: Placement, topology: Topology | None = None) -> str:
    """Return the sbatch line that submits a placed job, script left out: all nodes, and -N as many (else filled up).

    Where topology/block takes the nodes in segments, the list is given by excluding all other nodes of the cluster
    (-x): Slurm 24.11 refuses --segment with -w, 26.05 takes either. InputError: the list is too long for one argument.
    """
    nodes, segment = set(placed.nodes), None
    if topology is not None and topology.kind == "block":
        # On 24.11 and 26.05 a list must lie in as few aggregated blocks as its length allows, of the smallest size that
        # fits it; divided into segments, each must lie in one block, wherever these are. The greatest common divisor of
        # the nodes by base block is always such a segment, and never larger than a base block, the largest of 24.11.
        home = {node: i for i, block in enumerate(topology.blocks) for node in block.nodes}
        counts, sizes = Counter(home[node] for node in placed.nodes), _block_sizes(topology)
        level = next((size for size in sizes if size >= len(nodes)), sizes[-1])
        if len({block // (level // sizes[0]) for block in counts}) > -(-len(nodes) // level):
            segment, nodes = math.gcd(*counts.values()), home.keys() - nodes
    # -w sorts the nodes anyway, and in the order of their names they take the fewest bytes.
    listed = fold_names(sorted(nodes, key=natural))
    if len(listed.encode()) > MAX_ARGUMENT_BYTES:
        problem = f"takes {len(listed.encode()):,} bytes, more than the {MAX_ARGUMENT_BYTES:,} of one argument"
        remedy = "split the job, or number nodes so that they fold"
        raise InputError(f"the node list of {placed.job!r} {problem}; {remedy}")
    count, per_node = f"-N{len(placed.nodes)}", f"--ntasks-per-node={gpus_of_node(placed)}"
    named = [f"--segment={segment}", *(["-x", listed] if listed else [])] if segment else ["-w", listed]
    return shlex.join(["sbatch", f"--job-name={placed.job}", count, per_node, "--exclusive", *named])


def srun_line(placed: Placement, topology: Topology | None = None) -> str:
    """Return the srun line that starts a placed job's ranks in their order; by node name on topology/block."""
    ranks = len(placed.nodes) * gpus_of_node(placed)
    # The arbitrary distribution follows SLURM_HOSTFILE, and takes no -N with it (refused since 26.05); blocks take no
    # hostfile.
    if topology is not None and topology.kind == "block":
        return f"srun -N{len(placed.nodes)} -n{ranks}"
    return f"SLURM_HOSTFILE={shlex.quote(f'{placed.job}.hostfile')} srun -n{ranks} -m arbitrary"


def _block_sizes(topology: Topology) -> tuple[int, ...]:
    """Return the sizes of the aggregated blocks of Slurm's topology/block; without any, that of the smallest block."""
    return topology.block_sizes or (min(len(block.nodes) for block in topology.blocks),)


def rankfile(placed: Placement) -> str:
    """Return Open MPI's rankfile of a placed job: each rank's node, and its slot on it."""
    slots = ((node, slot) for node in placed.nodes for slot in range(gpus_of_node(placed)))
    return "".join(f"rank {rank}={node} slot={slot}\n" for rank, (node, slot) in enumerate(slots))


def torchrun(placed: Placement) -> str:
    """Return a placed job's torchrun script for one node (SLURMD_NODENAME or host), by rank. InputError: odd names."""
    for node in placed.nodes:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", node, re.ASCII):
            raise InputError(f"the torchrun format: node {node!r} is no host's name; take the format json")
    table = "".join(f"{node} {rank}\n" for rank, node in enumerate(placed.nodes))
    name, nodes = re.sub(r"[^ -~]", "?", placed.job), len(placed.nodes)
    start = f"exec torchrun --nnodes={nodes} --nproc-per-node={gpus_of_node(placed)}"
    master = f'--master-addr={shlex.quote(placed.nodes[0])} --master-port="${{MASTER_PORT:-{PORT}}}"'
    return f"""\
#!/bin/sh
# Job {name}: start it once on each of its {nodes} nodes, with the training script and its arguments:
#   srun -N{nodes} --ntasks-per-node=1 sh THIS_FILE train.py ...
node="${{SLURMD_NODENAME:-$(hostname -s)}}"
rank=$(awk -v node="$node" '$1 == node {{ print $2 }}' <<'END'
{table}END
)
[ -n "$rank" ] || {{ echo "$node is no node of this job" >&2; exit 1; }}
{start} --node-rank="$rank" {master} "$@"
"""


def torchrun_line(placed: Placement, file: str) -> str:
    """Return the srun line that starts the torchrun script on every node of a placed job."""
    return f"srun -N{len(placed.nodes)} --ntasks-per-node=1 sh {shlex.quote(file)} train.py"


def as_document(placed: Placement, topology: Topology) -> dict[str, Any]:
    """Return a placed job as JSON for a scheduler's script: lines to submit and start it; then figures and proof."""
    own, ranks = placed.model_dump(mode="json"), len(placed.nodes) * gpus_of_node(placed)
    hostfile, rankfile = (shlex.quote(f"{placed.job}.{kind}") for kind in ("hostfile", "rankfile"))
    # sbatch's options without the node list; --segment is left out where a group is larger than the base block (refused
    # by 24.11) or the groups differ in size.
    hints, leaf, sizes = dict[str, str](), leaf_of(topology), {len(group.nodes) for group in placed.groups}
    if topology.kind == "tree":
        hints["switches"] = f"--switches={len({leaf[node] for node in placed.nodes})}"
    elif len(sizes) == 1 and (size := sizes.pop()) <= _block_sizes(topology)[0] and len(placed.nodes) % size == 0:
        hints["segment"] = f"--segment={size}"
    return {
        **{key: own[key] for key in ("job", "nodes", "groups", "gpus_per_node", "certificate")},
        "hostlist": fold_names(placed.nodes),
        "sbatch": sbatch_line(placed, topology),
        "srun": srun_line(placed, topology),
        "mpirun": {  # hosts are no slots by seq alone (since 5.0); before 5.0 a rankfile was given by --rankfile
            "hostfile": f"mpirun -np {ranks} --hostfile {hostfile} --map-by seq",
            "rankfile": f"mpirun -np {ranks} --map-by rankfile:file={rankfile}",
        },
        "torchrun": torchrun_line(placed, f"{placed.job}.torchrun"),
        "hints": hints,
    } | own


# By format. InputError: the scheduler refuses the placement, or the topology cannot be held.
WRITERS: Mapping[str, Callable[[Placement, Topology], str]] = {
    "hostlist": lambda placed, _: fold_names(placed.nodes) + "\n",
    "sbatch": lambda placed, topology: sbatch_line(placed, topology) + "\n",
    "hostfile": hostfile,
    "mpi-hostfile": lambda placed, _: hostfile(placed),
    "rankfile": lambda placed, _: rankfile(placed),
    "torchrun": lambda placed, _: torchrun(placed),
    "json": lambda placed, topology: json.dumps(as_document(placed, topology), indent=1) + "\n",
    "kueue": lambda placed, _: kubernetes.kueue_job(placed),
    "volcano": kubernetes.volcano_job,
}
