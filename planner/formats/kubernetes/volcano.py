"""A placement for Volcano: the cluster as HyperNodes, and a job of one task a group, bound to the group's nodes."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.kubernetes.kueue import IMAGE
from planner.formats.kubernetes.manifest import HOSTNAME, documents, node_name, object_name, pod
from planner.formats.placement import Placed, PlacedGroup
from planner.formats.tiers import chains, children_of, heights, leaf_of

TOPOLOGY_API, JOB_API = "topology.volcano.sh/v1alpha1", "batch.volcano.sh/v1alpha1"


def volcano_hypernodes(topology: Topology) -> str:
    """Return a HyperNode a switch: leaves at tier 1, each switch above its highest child.

    Raises
    ------
    InputError
        If the cluster has blocks alone, or two switches have one name in small letters.
    """
    return documents("Apply with kubectl apply -f.", list(_hypernodes(topology)))


def volcano_job(placed: Placed, topology: Topology, *, queue: str = "default", image: str = IMAGE) -> str:
    """Return the job: gang-scheduled, within the lowest switch that holds all its nodes.

    Volcano numbers the pods of a task as it likes among its nodes: groups are kept, the order inside a ring is not.
    """
    name, per_node = object_name(placed.job, "job"), placed.gpus_per_node
    groups = placed.groups or (PlacedGroup(name="ranks", nodes=placed.nodes),)
    spec = {
        "schedulerName": "volcano",
        "queue": queue,
        "minAvailable": len(placed.nodes),
        "networkTopology": {"mode": "hard", "highestTierAllowed": lowest_common_tier(placed, topology)},
        "tasks": [
            {
                "name": f"group-{i}",
                "replicas": len(g.nodes),
                "template": {"spec": {**pod(per_node, image), "affinity": _on(g)}},
            }
            for i, g in enumerate(groups)
        ],
    }
    comment = (
        f"Job {placed.job}: one task a group, one pod a node, {per_node} GPUs each; "
        "apply the HyperNodes first, put the training image in."
    )
    return documents(comment, [{"apiVersion": JOB_API, "kind": "Job", "metadata": {"name": name}, "spec": spec}])


def lowest_common_tier(placed: Placed, topology: Topology) -> int:
    """Return the tier of the lowest switch above all nodes of the job, leaves being 1."""
    _require_tree(topology)
    leaf, above, tiers = leaf_of(topology), chains(topology), heights(topology)
    used = {leaf[n] for n in placed.nodes}
    shared = Counter(s for name in used for s in above[name])
    return 1 + min(tiers[s] for s, times in shared.items() if times == len(used))


def _hypernodes(topology: Topology) -> Iterator[dict[str, Any]]:
    _require_tree(topology)
    names = {s.name: object_name(s.name, "switch") for s in topology.switches}
    twice = [name for name, times in Counter(names.values()).items() if times > 1]
    if twice:
        raise InputError(f"volcano: two switches are called {twice[0]!r} in small letters; rename one")
    children, tiers = children_of(topology), heights(topology)
    for s in topology.switches:
        members = [("Node", node_name(n)) for n in s.nodes] or [("HyperNode", names[c]) for c in children[s.name]]
        yield {
            "apiVersion": TOPOLOGY_API,
            "kind": "HyperNode",
            "metadata": {"name": names[s.name]},
            "spec": {
                "tier": tiers[s.name] + 1,
                "members": [{"type": kind, "selector": {"exactMatch": {"name": n}}} for kind, n in members],
            },
        }


def _require_tree(topology: Topology) -> None:
    if topology.kind != "tree":
        raise InputError("volcano: HyperNodes are switches, and the cluster has blocks alone; give its tree")


def _on(group: PlacedGroup) -> dict[str, Any]:
    """Return the affinity that binds a group's pods to its nodes, and keeps two off one node by their GPUs alone."""
    expression = {"key": HOSTNAME, "operator": "In", "values": [node_name(n) for n in group.nodes]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
