"""A placement for Kueue's topology-aware scheduling: Topology, node labels, and a job whose podset asks for them.

Kueue gives a podset's pods, by their index, to the values of the topology's levels in their order as text. Groups of
consecutive ranks stand in a level above the ranks, numbered by their first; where ranks of groups alternate, a level
above would put one group's pods before the next one's, so the ranks stand alone. Padded to one width, the order is then
the placement's. Where Kueue itself places jobs, levels of the fabric are enough.
"""

from collections.abc import Iterator
from typing import Any

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.kubernetes.manifest import (
    GROUP,
    HOSTNAME,
    JOB,
    RANK,
    documents,
    label,
    node_name,
    object_name,
    pod,
)
from planner.formats.kubernetes.nodes import TIER
from planner.formats.placement import Placed, PlacedGroup
from planner.formats.tiers import chains, leaves
from planner.formats.topograph import DOMAIN_LABELS

API = "kueue.x-k8s.io/v1beta1"
IMAGE = "example.invalid/training:1"


def kueue_job(placed: Placed, *, queue: str = "default", image: str = IMAGE) -> str:
    """Return the node labels, a Topology of groups and ranks, its ResourceFlavor, and the job."""
    name, per_node = object_name(placed.job, "job"), placed.gpus_per_node
    flavor = {"nodeLabels": {JOB: label(placed.job, "job")}, "topologyName": f"{name}-ranks"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "completions": len(placed.nodes),
            "parallelism": len(placed.nodes),
            "template": {"metadata": {"annotations": annotations(placed)}, "spec": pod(per_node, image)},
        },
    }
    comment = (
        f"Job {placed.job}: one pod a node, {per_node} GPUs each; "
        f"pod i carries ranks {per_node}i to {per_node}i+{per_node - 1}.\n"
        "Apply with kubectl apply --server-side -f; put the training image in, and the flavor into a ClusterQueue."
    )
    return documents(
        comment,
        [
            *_rank_labels(placed),
            _topology(f"{name}-ranks", [GROUP, RANK] if consecutive(placed) else [RANK]),
            {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": f"{name}-nodes"}, "spec": flavor},
            job,
        ],
    )


def annotations(placed: Placed) -> dict[str, str]:
    """Return the podset's: each group in one domain where all are as large and in order, else pods on any node."""
    sizes = {len(g.nodes) for g in placed.groups}
    if len(sizes) == 1 and consecutive(placed):
        return {
            "kueue.x-k8s.io/podset-slice-required-topology": GROUP,
            "kueue.x-k8s.io/podset-slice-size": str(sizes.pop()),
        }
    return {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def consecutive(placed: Placed) -> bool:
    """Return whether the groups, one after another by their first ranks, are the rank order."""
    return [n for g in _by_first_rank(placed) for n in g.nodes] == list(placed.nodes)


def _by_first_rank(placed: Placed) -> list[PlacedGroup]:
    """Return the groups in the order of their first ranks."""
    rank = {n: i for i, n in enumerate(placed.nodes)}
    return sorted(placed.groups, key=lambda g: min((rank[n] for n in g.nodes if n in rank), default=len(rank)))


def kueue_topology(topology: Topology, name: str = "fabric") -> str:
    """Write the cluster's Topology by fabric tiers, highest first, or by blocks, and labels as topograph does.

    Raises
    ------
    InputError
        If leaves stand at different depths: Kueue wants every level on every node.
    """
    if topology.kind == "block":
        named = (_node(n, {DOMAIN_LABELS[0]: label(b.name, "block")}) for b in topology.blocks for n in b.nodes)
        return documents(
            "Apply with kubectl apply --server-side -f.", [_topology(name, [DOMAIN_LABELS[0], HOSTNAME]), *named]
        )
    above = chains(topology)
    depths = {len(c) for c in above.values()}
    if len(depths) != 1:
        raise InputError("kueue: leaves stand at different depths below the root; give each as many switches above")
    levels = [TIER.format(n) for n in reversed(range(depths.pop()))]
    domain = {n: b.name for b in topology.blocks for n in b.nodes}
    nodes = (
        {
            **{TIER.format(i): label(s, "switch") for i, s in enumerate(above[leaf.name])},
            **({DOMAIN_LABELS[0]: label(domain[n], "block")} if n in domain else {}),
        }
        for leaf in leaves(topology)
        for n in leaf.nodes
    )
    names = [n for leaf in leaves(topology) for n in leaf.nodes]
    labelled = (_node(n, labels) for n, labels in zip(names, nodes, strict=True))
    return documents("Apply with kubectl apply --server-side -f.", [_topology(name, [*levels, HOSTNAME]), *labelled])


def _rank_labels(placed: Placed) -> Iterator[dict[str, Any]]:
    """Label each node with its job, group and place in the rank order; padded, for they are sorted as text."""
    group = {n: i for i, g in enumerate(_by_first_rank(placed)) for n in g.nodes}
    width_group, width_rank = len(str(max(len(placed.groups) - 1, 0))), len(str(len(placed.nodes) - 1))
    for i, node in enumerate(placed.nodes):
        yield _node(
            node,
            {
                JOB: label(placed.job, "job"),
                GROUP: f"{group.get(node, 0):0{width_group}d}",
                RANK: f"{i:0{width_rank}d}",
            },
        )


def _node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(name), "labels": labels}}


def _topology(name: str, levels: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": key} for key in levels]},
    }
