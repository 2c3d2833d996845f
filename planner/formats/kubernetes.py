"""Kubernetes: nodes read by topograph's graph, labels and states; placements written for Kueue and Volcano."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.errors import InputError, shown
from planner.formats.topologies import TopologyRow, children_of, from_layers, gpus_of_node, heights, leaf_of, tree
from planner.formats.yaml_text import dump, read_yaml_data
from planner.instance.catalogue_entries import catalogue

# Labels of nodes: of the scale-up domain, and families that name the switches above; that with most keys is taken.
DOMAIN_LABELS: tuple[str, ...] = tuple(catalogue("node_labels")["domains"]["keys"])
FAMILIES: list[list[str]] = [keys for keys in catalogue("node_labels")["switches"].values() if isinstance(keys, list)]
TIER = "fabric.topograph.run/tier-{}"
_TIER = re.compile(re.escape(TIER.format("")) + r"(\d{1,2})", re.ASCII)
QUEUE, IMAGE = "default", "example.invalid/training:1"  # for the user to put in
HOSTNAME = "kubernetes.io/hostname"
JOB, GROUP, RANK = "planner/job", "planner/group", "planner/rank"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_PART}(\.{_PART})*", re.ASCII)  # a subdomain of RFC 1123
_NAME_RULE = "small letters, digits, - and . alone"
API = "kueue.x-k8s.io/v1beta2"
MEMBERS = "Node", "HyperNode"  # what a HyperNode may hold


def read_topograph(data: Mapping[str, Any], source: str) -> Topology:
    """Read topograph's nodes: {"instances": [{"id", "network_layers": ["leaf", "spine"], "labels": {}}]}."""
    instances = data["instances"]
    if not isinstance(instances, list) or not instances:
        raise InputError(f"{source}: instances: must be a list with at least one instance (is {shown(instances)})")
    rows = []
    for i, item in enumerate(instances):
        where = f"instances[{i}]"
        if not isinstance(item, dict):
            raise InputError(f"{source}: {where}: must be an object with id and network_layers (is {shown(item)})")
        name, layers = item.get("id"), item.get("network_layers")
        if not isinstance(name, str) or not name:
            raise InputError(f"{source}: {where}.id: must be a node's name (is {shown(name)})")
        if not isinstance(layers, list) or not layers or not all(isinstance(layer, str) and layer for layer in layers):
            rule = f"must name the switches above {name!r}, leaf first (is {shown(layers)})"
            raise InputError(f"{source}: {where}.network_layers: {rule}")
        labels, attributes = item.get("labels"), item.get("attributes")
        domains = [labels.get(key) for key in DOMAIN_LABELS] if isinstance(labels, dict) else []
        domains += [attributes.get("nvlink")] if isinstance(attributes, dict) else []
        rows.append((where, name, layers, next((text for text in domains if isinstance(text, str) and text), None)))
    return from_layers(source, rows)


def manifests(text: str, source: str) -> dict[str, Any]:
    """Return the objects of Kubernetes' YAML, of one document or several, as `kubectl get -o json` lists them."""
    items, lines = list[Any](), 0  # before a document, so that its faults are told with the line of the file
    for part in re.split(r"^---[^\n]*$", text, flags=re.MULTILINE):
        data = read_yaml_data("\n" * lines + part, source)
        listed = data.get("items") if isinstance(data, dict) else None
        items += listed if isinstance(listed, list) else [data] if data else []
        lines += part.count("\n")
    return {"items": items}


def _hypernode_tree(items: Iterable[dict[str, Any]], source: str) -> Topology:
    rows = []
    for item in items:
        try:
            name, members = item["metadata"]["name"], item["spec"]["members"]
            named = [(member["type"], member["selector"]["exactMatch"]["name"]) for member in members]
            if not all(isinstance(x, str) for x in (name, *chain(*named))) or {x for x, _ in named} - {*MEMBERS}:
                raise TypeError("no name, or no kind of member")
        except (KeyError, TypeError):
            rule = "must have a name that is a text, and members by exactMatch, of type Node or HyperNode"
            raise InputError(f"{source}: HyperNode {shown(item.get('metadata'))}: {rule}; complete it") from None
        below = (tuple(own for kind, own in named if kind == wanted) for wanted in MEMBERS)
        rows.append(TopologyRow(f"HyperNode {name}", name, *below))
    return tree(source, rows)


def read_kubernetes(data: Mapping[str, Any], source: str, keys: Sequence[str] = ()) -> Topology:
    """Read the topology of Kubernetes nodes by label `keys`, Kueue's levels or a known family, or of HyperNodes.

    A node has all the labels, one of the control plane none.
    """
    objects = [item for item in data["items"] if isinstance(item, dict)] if isinstance(data["items"], list) else []
    by_kind = {kind: [item for item in objects if item.get("kind") == kind] for kind in ("HyperNode", "Topology")}
    if by_kind["HyperNode"]:
        return _hypernode_tree(by_kind["HyperNode"], source)
    if by_kind["Topology"]:
        levels = _object(by_kind["Topology"][0], "spec", f"{source}: Topology").get("levels") or []
        named = [level.get("nodeLabel") for level in levels if isinstance(level, dict)]
        if RANK in named:
            remedy = "give that of the cluster, as `planner topology --format kueue` writes it"
            raise InputError(f"{source}: is the placement of one job; {remedy}")
        keys = keys or [key for key in reversed(named) if isinstance(key, str) and key != HOSTNAME]
        data = {"items": [item for item in objects if item.get("kind") == "Node"]}
    nodes = []
    for where, name, item in _items(data, source):
        labels = _object(item["metadata"], "labels", f"{source}: {where}.metadata")
        nodes.append((where, name, {key: value for key, value in labels.items() if isinstance(value, str) and value}))
    carried = {key for _, _, labels in nodes for key in labels}
    if not keys:  # topograph's tiers of any depth, else the family of which most keys are carried
        tiers = sorted(int(found[1]) for key in carried if (found := _TIER.fullmatch(key)))
        most_carried = max(FAMILIES, key=lambda family: len(carried.intersection(family)))
        keys = [TIER.format(number) for number in tiers] or most_carried
    keys = [key for key in keys if key in carried]
    if not keys:
        known = ", ".join(family[0] for family in FAMILIES)
        raise InputError(f"{source}: items: no node has a topology label; name the keys, leaf first (known: {known})")
    rows = []
    for where, name, labels in nodes:
        own = tuple(labels[key] for key in keys if key in labels)
        missing = [key for key in keys if key not in labels]
        if own and missing:
            problem = f"node {name!r} has no label {missing[0]}, though others have"
            raise InputError(f"{source}: {where}: {problem}; label it")
        domain = next((labels[key] for key in DOMAIN_LABELS if key in labels), None)
        if own:
            rows.append((f"{where} ({name})", name, own, domain))
    return from_layers(source, rows)


def node_states(data: Mapping[str, Any], source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the Kubernetes nodes that take pods, and those that take none: cordoned, or not Ready."""
    names, down = set(), set()
    for where, name, item in _items(data, source):
        names.add(name)
        cordoned = _object(item, "spec", f"{source}: {where}").get("unschedulable") is True
        conditions = _object(item, "status", f"{source}: {where}").get("conditions") or []
        if not isinstance(conditions, list):
            problem = f"must be a list (is {shown(conditions)})"
            raise InputError(f"{source}: {where}.status.conditions: {problem}; correct it")
        ready = [one.get("status") for one in conditions if isinstance(one, dict) and one.get("type") == "Ready"]
        if cordoned or (ready and ready[0] != "True"):
            down.add(name)
    return frozenset(names - down), frozenset(down)


def _items(data: Mapping[str, Any], source: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    items = data.get("items")
    if not isinstance(items, list) or not items:
        remedy = "give what `kubectl get nodes -o json` prints"
        raise InputError(f"{source}: items: must be a list of nodes (is {shown(items)}); {remedy}")
    for i, item in enumerate(items):
        if not isinstance(item, dict) or item.get("kind", "Node") != "Node":
            raise InputError(f"{source}: items[{i}]: must be a Node (is {shown(item)})")
        metadata = item.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise InputError(f"{source}: items[{i}].metadata.name: must be a node's name (is {shown(name)})")
        yield f"items[{i}]", name, item


def _object(holder: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = holder.get(key)
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{where}.{key}: must be an object (is {shown(value)}); correct it")
    return value or {}


def _documents(comment: str, objects: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"# {line}\n" for line in comment.splitlines()) + "---\n".join(dump(item) for item in objects)


def _manifest(api: str, kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Any:
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata} | ({"spec": spec} if spec else {})


def _label(value: str, what: str) -> str:
    if not _LABEL.fullmatch(value):
        rule = "63 letters, digits, - _ . at most, a letter or digit at both ends"
        raise InputError(f"{what}: {value!r} cannot be a label's value ({rule}); rename it")
    return value


def _object_name(value: str, what: str) -> str:
    name = value.lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        raise InputError(f"{what}: {value!r} cannot be an object's name ({_NAME_RULE}); rename it")
    return name


def _node_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        remedy = "give the names they have there, or take hostlist"
        raise InputError(f"node {value!r} cannot be a Kubernetes node ({_NAME_RULE}); {remedy}")
    return value


def pod(gpus: int) -> dict[str, Any]:
    """Return the Kubernetes pod that carries one node's ranks; the image and its command are the user's."""
    limits = {"nvidia.com/gpu": gpus}
    container = {"name": "ranks", "image": IMAGE, "resources": {"requests": limits, "limits": limits}}
    return {"restartPolicy": "Never", "containers": [container]}


def kueue_job(placed: Placement) -> str:
    """Return a placement for Kueue: node labels, a Topology of groups and ranks, its ResourceFlavor, and the job."""
    name, job_label, per_node = _object_name(placed.job, "job"), _label(placed.job, "job"), gpus_of_node(placed)
    rank = {node: i for i, node in enumerate(placed.nodes)}
    groups = sorted(placed.groups, key=lambda own: min((rank[x] for x in own.nodes if x in rank), default=len(rank)))
    place = {node: i for i, group in enumerate(groups) for node in group.nodes}
    # Each group in one domain where all are as large and, one after another, the rank order; else pods on any node.
    in_order = [node for group in groups for node in group.nodes] == list(placed.nodes)
    sizes = {len(group.nodes) for group in groups}
    annotations = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    if in_order and len(sizes) == 1:
        slices = {"required-topology": GROUP, "size": str(sizes.pop())}
        annotations = {f"kueue.x-k8s.io/podset-slice-{key}": value for key, value in slices.items()}
    # Numbers are padded, for they are sorted as text.
    width_group, width_rank = len(str(max(len(groups) - 1, 0))), len(str(len(rank) - 1))
    labelled = []
    for i, node in enumerate(placed.nodes):
        ranks = {GROUP: f"{place.get(node, 0):0{width_group}d}", RANK: f"{i:0{width_rank}d}"}
        labelled.append(_manifest("v1", "Node", _node_name(node), {}, {JOB: job_label} | ranks))
    levels = [{"nodeLabel": key} for key in ([GROUP, RANK] if in_order else [RANK])]
    flavor = {"nodeLabels": {JOB: job_label}, "topologyName": f"{name}-ranks"}
    count, template = len(placed.nodes), {"metadata": {"annotations": annotations}, "spec": pod(per_node)}
    of_job = {"suspend": True, "completionMode": "Indexed", "completions": count, "parallelism": count}
    objects = [
        *labelled,
        _manifest(API, "Topology", f"{name}-ranks", {"levels": levels}),
        _manifest(API, "ResourceFlavor", f"{name}-nodes", flavor),
        _manifest("batch/v1", "Job", name, of_job | {"template": template}, {"kueue.x-k8s.io/queue-name": QUEUE}),
    ]
    ranks_of_pod = f"pod i carries ranks {per_node}i to {per_node}i+{per_node - 1}"
    comment = f"""\
Job {placed.job}: one pod a node, {per_node} GPUs each; {ranks_of_pod}.
Apply with kubectl apply --server-side -f; put the training image in, and the flavor into a ClusterQueue."""
    return _documents(comment, objects)


def kueue_topology(topology: Topology) -> str:
    """Write a cluster's Topology for Kueue by tiers, highest first, or blocks. InputError: leaves differ in depth."""
    domain = DOMAIN_LABELS[0]
    blocks = {node: {domain: _label(block.name, "block")} for block in topology.blocks for node in block.nodes}
    levels, labels = [domain], blocks
    if topology.kind != "block":
        above = topology.chains()
        depths = {len(chain) for chain in above.values()}
        if len(depths) != 1:
            raise InputError("kueue: leaves stand at different depths below the root; give each as many switches above")
        levels = [TIER.format(tier) for tier in reversed(range(depths.pop()))]
        labels = {}
        for leaf in (switch for switch in topology.switches if switch.nodes):
            tiers = {TIER.format(i): _label(switch, "switch") for i, switch in enumerate(above[leaf.name])}
            labels |= {node: tiers | blocks.get(node, {}) for node in leaf.nodes}
    fabric = _manifest(API, "Topology", "fabric", {"levels": [{"nodeLabel": key} for key in [*levels, HOSTNAME]]})
    labelled = (_manifest("v1", "Node", _node_name(node), {}, own) for node, own in labels.items())
    return _documents("Apply with kubectl apply --server-side -f.", [fabric, *labelled])


def volcano_hypernodes(topology: Topology) -> str:
    """Return a Volcano HyperNode a switch, leaves at tier 1. InputError: no switches, or names that differ in case."""
    _require_tree(topology)
    names = {switch.name: _object_name(switch.name, "switch") for switch in topology.switches}
    if twice := [name for name, times in Counter(names.values()).items() if times > 1]:
        raise InputError(f"volcano: two switches are called {twice[0]!r} in small letters; rename one")
    children, tiers, objects = children_of(topology), heights(topology), []
    for switch in topology.switches:
        below = [("Node", _node_name(node)) for node in switch.nodes]
        below = below or [("HyperNode", names[child]) for child in children[switch.name]]
        members = [{"type": kind, "selector": {"exactMatch": {"name": name}}} for kind, name in below]
        own = {"tier": tiers[switch.name] + 1, "members": members}
        objects.append(_manifest("topology.volcano.sh/v1alpha1", "HyperNode", names[switch.name], own))
    return _documents("Apply with kubectl apply -f.", objects)


def volcano_job(placed: Placement, topology: Topology) -> str:
    """Return a Volcano job, gang-scheduled below the lowest switch for all; groups hold, order in a ring does not."""
    name, per_node = _object_name(placed.job, "job"), gpus_of_node(placed)
    # The lowest switch above all nodes of the job; leaves are of tier 1.
    _require_tree(topology)
    leaf, above, tiers = leaf_of(topology), topology.chains(), heights(topology)
    used = {leaf[node] for node in placed.nodes}
    shared = Counter(switch for name in used for switch in above[name])
    lowest = 1 + min(tiers[switch] for switch, times in shared.items() if times == len(used))
    tasks = []
    for i, nodes in enumerate([group.nodes for group in placed.groups] or [placed.nodes]):
        # The affinity binds a group's pods to its nodes; that no two share a node follows from their GPUs alone.
        expression = {"key": HOSTNAME, "operator": "In", "values": [_node_name(node) for node in nodes]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        template = {"spec": {**pod(per_node), "affinity": affinity}}
        tasks.append({"name": f"group-{i}", "replicas": len(nodes), "template": template})
    spec = {
        "schedulerName": "volcano",
        "queue": QUEUE,
        "minAvailable": len(placed.nodes),
        "networkTopology": {"mode": "hard", "highestTierAllowed": lowest},
        "tasks": tasks,
    }
    made = f"Job {placed.job}: one task a group, one pod a node, {per_node} GPUs each"
    comment = f"{made}; apply the HyperNodes first, put the training image in."
    return _documents(comment, [_manifest("batch.volcano.sh/v1alpha1", "Job", name, spec)])


def _require_tree(topology: Topology) -> None:
    if topology.kind != "tree":
        raise InputError("volcano: HyperNodes are switches, and the cluster has blocks alone; give its tree")
