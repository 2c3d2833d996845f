"""What Kubernetes' objects share: names, labels, and several of them in one file."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from planner.errors import InputError
from planner.formats.kubernetes.yaml import dump

HOSTNAME = "kubernetes.io/hostname"
JOB, GROUP, RANK = "planner/job", "planner/group", "planner/rank"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_PART}(\.{_PART})*", re.ASCII)  # a subdomain of RFC 1123
_NAME_RULE = "small letters, digits, - and . alone"


def documents(comment: str, objects: Iterable[Mapping[str, Any]]) -> str:
    """Write objects one after another, as kubectl apply -f takes them."""
    return "".join(f"# {line}\n" for line in comment.splitlines()) + "---\n".join(dump(o) for o in objects)


def label(value: str, what: str) -> str:
    """Return a label's value, or refuse what Kubernetes does not take."""
    if not _LABEL.fullmatch(value):
        rule = "63 letters, digits, - _ . at most, a letter or digit at both ends"
        raise InputError(f"{what}: {value!r} cannot be a label's value ({rule}); rename it")
    return value


def object_name(value: str, what: str) -> str:
    """Return an object's name in small letters, or refuse what Kubernetes does not take."""
    name = value.lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        raise InputError(f"{what}: {value!r} cannot be an object's name ({_NAME_RULE}); rename it")
    return name


def node_name(value: str) -> str:
    """Return a node's name as it stands, or refuse what no Kubernetes node is called."""
    if not _NAME.fullmatch(value):
        remedy = "give the names they have there, or take hostlist"
        raise InputError(f"node {value!r} cannot be a Kubernetes node ({_NAME_RULE}); {remedy}")
    return value


def pod(gpus: int, image: str) -> dict[str, Any]:
    """Return the pod that carries one node's ranks; the image and its command are the user's."""
    limits = {"nvidia.com/gpu": gpus}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "ranks", "image": image, "resources": {"requests": limits, "limits": limits}}],
    }
