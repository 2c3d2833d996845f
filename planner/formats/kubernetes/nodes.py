"""Read Kubernetes' list of nodes (kubectl get nodes -o json): tree and scale-up domains by labels, and states."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.layers import Layered, from_layers
from planner.formats.source import shown
from planner.formats.topograph import DOMAIN_LABELS

TIER = "fabric.topograph.run/tier-{}"
# Labels that name the switches above a node, leaf first, by who writes them; that with most keys on nodes is taken.
# topograph 1.x and its older keys, GKE, EKS (layer 1 is the highest), OCI, and what every cloud writes.
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core"),
    (
        "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/datacenter",
    ),
    ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    tuple(f"topology.k8s.aws/network-node-layer-{n}" for n in (4, 3, 2, 1)),
    ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
)
_TIER = re.compile(re.escape(TIER.format("")) + r"(\d{1,2})", re.ASCII)

Labelled = tuple[str, str, dict[str, str]]


def read_kubernetes(data: Mapping[str, Any], source: str, keys: Sequence[str] = ()) -> Topology:
    """Read where nodes stand from their labels, by `keys` (leaf first) or else by a known family of keys.

    Nodes without any of the keys (a control plane) are left out; a node with some of them must have all of them.

    Raises
    ------
    InputError
        Names file, node, label and remedy.
    """
    nodes = list(_labelled(data, source))
    keys = tuple(keys) or _family(nodes)
    keys = tuple(k for k in keys if any(k in labels for _, _, labels in nodes))
    if not keys:
        known = ", ".join(f[0] for f in FAMILIES)
        raise InputError(f"{source}: items: no node has a topology label; name the keys, leaf first (known: {known})")
    return from_layers(source, _rows(nodes, source, keys))


def down_nodes(data: Mapping[str, Any], source: str) -> frozenset[str]:
    """Return the nodes that take no pods: cordoned, or not Ready."""
    down = set()
    for where, item in _items(data, source):
        spec = _object(item, "spec", f"{source}: {where}")
        conditions = _object(item, "status", f"{source}: {where}").get("conditions") or []
        if not isinstance(conditions, list):
            raise InputError(
                f"{source}: {where}.status.conditions: must be a list (is {shown(conditions)}); correct it"
            )
        conditions = [c for c in conditions if isinstance(c, dict)]
        ready = [c.get("status") for c in conditions if c.get("type") == "Ready"]
        if spec.get("unschedulable") is True or (ready and ready[0] != "True"):
            down.add(_name(item, source, where))
    return frozenset(down)


def node_names(data: Mapping[str, Any], source: str) -> list[str]:
    """Return the nodes of the list."""
    return [_name(item, source, where) for where, item in _items(data, source)]


def _items(data: Mapping[str, Any], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    items = data.get("items")
    if not isinstance(items, list) or not items:
        remedy = "give what `kubectl get nodes -o json` prints"
        raise InputError(f"{source}: items: must be a list of nodes (is {shown(items)}); {remedy}")
    for i, item in enumerate(items):
        if not isinstance(item, dict) or item.get("kind", "Node") != "Node":
            raise InputError(f"{source}: items[{i}]: must be a Node (is {shown(item)})")
        yield f"items[{i}]", item


def _name(item: Mapping[str, Any], source: str, where: str) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise InputError(f"{source}: {where}.metadata.name: must be a node's name (is {shown(name)})")
    return name


def _object(holder: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the object at a key, an empty one where there is none."""
    value = holder.get(key)
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{where}.{key}: must be an object (is {shown(value)}); correct it")
    return value or {}


def _labelled(data: Mapping[str, Any], source: str) -> Iterator[Labelled]:
    for where, item in _items(data, source):
        name = _name(item, source, where)
        labels = _object(item["metadata"], "labels", f"{source}: {where}.metadata")
        yield where, name, {k: v for k, v in labels.items() if isinstance(v, str) and v}


def _family(nodes: Sequence[Labelled]) -> tuple[str, ...]:
    """Return the keys to read by: topograph's tiers of any depth, else the family of which most keys are carried."""
    carried = {k for _, _, labels in nodes for k in labels}
    tiers = sorted(int(found[1]) for k in carried if (found := _TIER.fullmatch(k)))
    if tiers:
        return tuple(TIER.format(n) for n in tiers)
    return max(FAMILIES, key=lambda family: sum(k in carried for k in family))


def _rows(nodes: Sequence[Labelled], source: str, keys: Sequence[str]) -> Iterator[Layered]:
    for where, name, labels in nodes:
        if not any(k in labels for k in keys):
            continue
        missing = [k for k in keys if k not in labels]
        if missing:
            node = f"{source}: {where}: node {name!r}"
            raise InputError(f"{node} has no label {missing[0]}, though others have; label it")
        domain = next((labels[k] for k in DOMAIN_LABELS if k in labels), None)
        yield Layered(f"{where} ({name})", name, tuple(labels[k] for k in keys), domain)
