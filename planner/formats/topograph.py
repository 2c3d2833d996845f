"""Topograph's graph of a cluster (JSON): instances with the network layers above them, leaf first."""

from collections.abc import Iterator, Mapping
from typing import Any

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.layers import Layered, from_layers
from planner.formats.source import shown

# Labels of the scale-up domain, the nearest to the hardware first; older graphs have it as attributes.nvlink.
DOMAIN_LABELS = ("accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique")


def read_topograph(data: Mapping[str, Any], source: str) -> Topology:
    """Read {"instances": [{"id", "network_layers": ["leaf", "spine"], "labels": {}}]}.

    Raises
    ------
    InputError
        Names file, JSON path, value and remedy.
    """
    instances = data["instances"]
    if not isinstance(instances, list) or not instances:
        raise InputError(f"{source}: instances: must be a list with at least one instance (is {shown(instances)})")
    return from_layers(source, _rows(instances, source))


def _rows(instances: list[Any], source: str) -> Iterator[Layered]:
    for i, item in enumerate(instances):
        where = f"instances[{i}]"
        if not isinstance(item, dict):
            raise InputError(f"{source}: {where}: must be an object with id and network_layers (is {shown(item)})")
        name, layers = item.get("id"), item.get("network_layers")
        if not isinstance(name, str) or not name:
            raise InputError(f"{source}: {where}.id: must be a node's name (is {shown(name)})")
        if not isinstance(layers, list) or not layers or not all(isinstance(s, str) and s for s in layers):
            rule = f"must name the switches above {name!r}, leaf first (is {shown(layers)})"
            raise InputError(f"{source}: {where}.network_layers: {rule}")
        yield Layered(where, name, tuple(layers), _domain(item))


def _domain(item: Mapping[str, Any]) -> str | None:
    labels, attributes = item.get("labels"), item.get("attributes")
    if isinstance(labels, dict):
        for key in DOMAIN_LABELS:
            if isinstance(labels.get(key), str) and labels[key]:
                return str(labels[key])
    nvlink = attributes.get("nvlink") if isinstance(attributes, dict) else None
    return nvlink if isinstance(nvlink, str) and nvlink else None
