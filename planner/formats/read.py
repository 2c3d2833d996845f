"""Read a topology in whichever format it stands, recognised by what the file says."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.instance.read_items import ReadItems

FORMATS = "topology.conf, topology.yaml, topograph's graph, Kubernetes' nodes, or a plan"


def read_topology(path: str | Path, *, keys: Sequence[str] = (), name: str | None = None) -> Topology:
    """Return the topology of a cluster.

    Parameters
    ----------
    keys
        Kubernetes' node labels that name the switches above a node, leaf first; known families by default.
    name
        Which topology of a topology.yaml; the cluster's default by default.

    Raises
    ------
    InputError
        Names file, line or JSON path, value and remedy.
    """
    path = Path(path)
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return _from_json(parse_json(text, str(path)), str(path), keys)
    if path.suffix in {".yaml", ".yml"} or _first(text).startswith(("%YAML", "---", "- ", "-\t", "[")):
        from planner.formats.slurm.topology_yaml import read_yaml

        return read_yaml(text, str(path), name)
    from planner.formats.slurm.topology_conf import read_conf

    return read_conf(text, str(path))


def topology_items(path: str | Path) -> ReadItems:
    """Return what of a topology's file no placement follows: speeds of switches that differ, labels of other use."""
    text = read_text(Path(path))
    speeds = {found[1] for found in re.finditer(r"LinkSpeed=\"?([^\s\"]+)", text, re.IGNORECASE)}
    if text.lstrip().startswith("{"):
        return ReadItems(taken=("names, labels of switches and domains",), ignored=("other keys and labels",))
    reported = (f"LinkSpeed (is {', '.join(sorted(speeds))})",) if len(speeds) > 1 else ()
    return ReadItems(
        taken=("names, nodes, switches, blocks",), ignored=("LinkSpeed",) * (len(speeds) == 1), not_modelled=reported
    )


def _from_json(data: Any, source: str, keys: Sequence[str]) -> Topology:
    if not isinstance(data, dict):
        raise InputError(f"{source}: must be a JSON object (is {type(data).__name__}); give {FORMATS}")
    if "instances" in data:
        from planner.formats.topograph import read_topograph

        return read_topograph(data, source)
    if "items" in data:
        from planner.formats.kubernetes.nodes import read_kubernetes

        return read_kubernetes(data, source, keys)
    if "planner_version" in data:
        from planner.formats.from_plan import plan_topology
        from planner.plan.files import plan_of

        return plan_topology(plan_of(data, source), source)
    raise InputError(
        f"{source}: is no topology known here (its keys are {', '.join(list(data)[:8]) or 'none'}); give {FORMATS}"
    )


def _first(text: str) -> str:
    """Return the first line that is neither blank nor a comment."""
    return next((line.strip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
