"""Read a topology in whichever format it has; write a topology or a placement in that of a scheduler."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.cluster import MAX_NAMES, PREFIX, Placement, Topology, fold_names, width
from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.formats import kubernetes, placed_job, slurm
from planner.formats.topology_rows import TopologyRow, tree
from planner.instance.validate import ReadItems
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.plan.plan_sections import SiteFabric

WAN = "wan"


def plan_topology(plan: Plan, source: str) -> Topology:
    """Return the topology of a plan's fabric, racks as its placement names them. InputError: no fabric or no racks."""
    if plan.fabric is None or not plan.fabric.sites:
        raise InputError(f"{source}: fabric: the plan has none; solve an instance with a network")
    racks = dict.fromkeys(plan.fabric.sites, plan.instance.hardware.racks or 0)
    if plan.sites:
        racks = {site.id: site.racks for site in plan.sites.sites}
    if sum(racks.values()) > MAX_NAMES:
        problem = f"{sum(racks.values()):,} racks, more than {MAX_NAMES:,}"
        raise InputError(f"{source}: sites: {problem}; run `planner check` on the plan")
    several = len(plan.fabric.sites) > 1
    rows: list[TopologyRow] = []
    for site, fabric in sorted(plan.fabric.sites.items()):
        if racks.get(site, 0) < 1 or fabric.leaf_domain_racks < 1:
            where = f"{source}: fabric.sites.{site}"
            raise InputError(f"{where}: no racks, or a leaf domain of none; run `planner check` on the plan")
        rows += site_rows(site, fabric, racks[site], site, f"{site}-" if several else "")
    if several:
        rows.append(TopologyRow("fabric.sites", WAN, children=tuple(sorted(plan.fabric.sites))))
    return tree(source, rows)


def site_rows(site: str, fabric: SiteFabric, racks: int, root: str, prefix: str = "") -> Iterator[TopologyRow]:
    """Yield the switches of a plan's site up to its root: racks as placed, by leaf domain, the last part-full."""
    where, digits = f"fabric.sites.{site}", width(racks)
    size, per_pod = fabric.leaf_domain_racks, fabric.leaf_domains_per_pod
    leaves = []
    for i, first in enumerate(range(0, racks, size)):
        leaves.append(f"{prefix}leaf{i}")
        numbers = range(first, min(first + size, racks))
        yield TopologyRow(where, leaves[-1], tuple(f"{prefix}{PREFIX}{number:0{digits}d}" for number in numbers))
    below, domains_below = tuple(leaves), 1
    for word, domains in (("pod", per_pod), ("zone", fabric.leaf_domains_per_zone)):
        each = max(1, domains // domains_below)
        blocks = [below[i : i + each] for i in range(0, len(below), each)]
        if domains and len(blocks) > 1:
            for i, block in enumerate(blocks):
                yield TopologyRow(where, f"{prefix}{word}{i}", children=block)
            below = tuple(f"{prefix}{word}{i}" for i in range(len(blocks)))
            domains_below = domains
    yield TopologyRow(where, root, children=below)


def read_topology(path: str | Path, *, keys: Sequence[str] = (), name: str | None = None) -> Topology:
    """Return a cluster's topology from a file, by Kubernetes' `keys`, leaf first, or the `name` in a topology.yaml."""
    path = Path(path)
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        lines = (line.strip() for line in text.split("\n"))
        first = next((line for line in lines if line and not line.startswith("#")), "")
        if path.suffix in {".yaml", ".yml"} or first.startswith(("%YAML", "---", "- ", "-\t", "[")):
            return slurm.read_yaml(text, str(path), name)
        return slurm.read_conf(text, str(path))
    data, source = parse_json(text, str(path)), str(path)
    if "instances" in data:
        return kubernetes.read_topograph(data, source)
    if "items" in data:
        return kubernetes.read_kubernetes(data, source, keys)
    if "planner_version" in data:
        return plan_topology(plan_of(data, source), source)
    stated = f"is no topology known here (its keys are {', '.join(list(data)[:8]) or 'none'})"
    formats = "topology.conf, topology.yaml, topograph's graph, Kubernetes' nodes, or a plan"
    raise InputError(f"{source}: {stated}; give {formats}")


def topology_items(path: str | Path) -> ReadItems:
    """Return the use made of a topology file's items; different switch speeds and other labels affect no placement."""
    text = read_text(Path(path))
    speeds = {found[1] for found in re.finditer(r"LinkSpeed=\"?([^\s\"]+)", text, re.IGNORECASE)}
    if text.lstrip().startswith("{"):
        return ReadItems(taken=("names, labels of switches and domains",), ignored=("other keys and labels",))
    reported = (f"LinkSpeed (is {', '.join(sorted(speeds))})",) if len(speeds) > 1 else ()
    ignored = ("LinkSpeed",) * (len(speeds) == 1)
    return ReadItems(taken=("names, nodes, switches, blocks",), ignored=ignored, not_modelled=reported)


def as_document(placed: Placement, topology: Topology) -> dict[str, Any]:
    """Return a placement as a scheduler's script needs it, with lines to submit and start; then figures and proof."""
    own, ranks = placed.model_dump(mode="json"), len(placed.nodes) * placed_job.gpus_of_node(placed)
    hostfile, rankfile = (shlex.quote(f"{placed.job}.{kind}") for kind in ("hostfile", "rankfile"))
    return {
        **{key: own[key] for key in ("job", "nodes", "groups", "gpus_per_node", "certificate")},
        "hostlist": fold_names(placed.nodes),
        "sbatch": placed_job.sbatch_line(placed, topology),
        "srun": placed_job.srun_line(placed, topology),
        "mpirun": {  # hosts are no slots by seq alone (since 5.0); before 5.0 a rankfile was given by --rankfile
            "hostfile": f"mpirun -np {ranks} --hostfile {hostfile} --map-by seq",
            "rankfile": f"mpirun -np {ranks} --map-by rankfile:file={rankfile}",
        },
        "torchrun": placed_job.torchrun_line(placed, f"{placed.job}.torchrun"),
        "hints": placed_job.hints(placed, topology),
    } | own


# By format. InputError: the scheduler refuses the placement, or the topology cannot be held.
WRITERS: Mapping[str, Callable[[Placement, Topology], str]] = {
    "hostlist": lambda placed, _: fold_names(placed.nodes) + "\n",
    "sbatch": lambda placed, topology: placed_job.sbatch_line(placed, topology) + "\n",
    "hostfile": placed_job.hostfile,
    "mpi-hostfile": lambda placed, _: placed_job.hostfile(placed),
    "rankfile": lambda placed, _: placed_job.rankfile(placed),
    "torchrun": lambda placed, _: placed_job.torchrun(placed),
    "json": lambda placed, topology: json.dumps(as_document(placed, topology), indent=1) + "\n",
    "kueue": lambda placed, _: kubernetes.kueue_job(placed),
    "volcano": kubernetes.volcano_job,
}
TOPOLOGY_WRITERS: Mapping[str, Callable[[Topology], str]] = {
    "conf": slurm.write_conf,
    "yaml": slurm.write_yaml,
    "kueue": kubernetes.kueue_topology,
    "volcano": kubernetes.volcano_hypernodes,
}
