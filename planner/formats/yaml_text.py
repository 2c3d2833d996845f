"""YAML read with its lines, or as data as JSON is, and plain YAML written."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from planner.errors import InputError
from planner.files import json_number, parse_json, read_text

_SAFE = re.compile(
    r"(?!(?i:true|false|yes|no|on|off|y|n|null)$)[A-Za-z_/][A-Za-z0-9_./-]*(\[[0-9,-]+\][A-Za-z0-9_.-]*)*"
)
_DEEPEST = 50
YAML = (".yaml", ".yml")
# Plain scalars that are no text: those of JSON, and the writings of them that people use (YAML 1.2, core schema).
_WORDS = {"": None, "~": None, **dict.fromkeys(("null", "Null", "NULL"), None)} | {
    word: value for value, words in ((True, "true True TRUE"), (False, "false False FALSE")) for word in words.split()
}
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)


class Node(NamedTuple):
    """A YAML value and the line it begins at: a text (`plain` if not quoted), a list, or a dict of nodes by key."""

    line: int
    value: "str | list[Node] | dict[str, Node]"
    plain: bool = True


def parse(text: str, source: str) -> Node:
    """Read one YAML document; scalars stay text, and an empty one is null."""
    try:
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml where it was built: ten times as fast
        return _built(yaml.parse(text, Loader=loader), source)
    except yaml.MarkedYAMLError as error:
        line, begun = (1 if mark is None else mark.line + 1 for mark in (error.problem_mark, error.context_mark))
        context = f"{error.context} from line {begun}" if error.context and begun < line else error.context
        what = "; ".join(part for part in (context, error.problem) if part)
        raise InputError(f"{source}: line {line}: is no YAML: {what}; correct it") from None
    except (yaml.YAMLError, UnicodeError) as error:
        what = str(error).splitlines()[0]
        raise InputError(f"{source}: line 1: is no YAML: {what}; write it as plain text") from None


def _built(events: Iterator[yaml.Event], source: str) -> Node:
    """Build the values of a YAML document from its events, without recursion."""
    root: list[Node] = []
    open_nodes: list[tuple[list[Node] | dict[str, Node], list[str]]] = [(root, [])]  # with a key that waits for a value
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            open_nodes.pop()
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise InputError(f"{source}: line {line}: a second document begins; keep one a file")
        if not isinstance(event, yaml.NodeEvent):
            continue
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent) or event.anchor or tag:
            what = f"tag {tag}" if tag else f"anchor {event.anchor}"
            raise InputError(f"{source}: line {line}: {what} is YAML that is not read here; write the value itself")
        node = Node(line, {} if isinstance(event, yaml.MappingStartEvent) else [])
        if isinstance(event, yaml.ScalarEvent):
            node = Node(line, event.value, plain=not event.style)
        parent, waiting = open_nodes[-1]
        if isinstance(parent, list):
            parent.append(node)
        elif waiting:
            parent[waiting.pop()] = node
        elif not isinstance(node.value, str):
            raise InputError(f"{source}: line {line}: a key must be a text; write such as topology: fabric")
        elif node.value in parent:
            problem = f"{node.value!r} is given twice in one mapping (first at line {parent[node.value].line})"
            raise InputError(f"{source}: line {line}: {problem}; keep one")
        else:
            waiting.append(node.value)
        if not isinstance(node.value, str):
            open_nodes.append((node.value, []))
            if len(open_nodes) > _DEEPEST + 1:
                raise InputError(f"{source}: line {line}: is nested deeper than {_DEEPEST}; flatten it")
    return root[0] if root else Node(1, "")


def dump(value: Mapping[str, Any] | Sequence[Any], indent: str = "") -> str:
    """Write dicts, lists and scalars in them as YAML; texts that could be read otherwise are quoted."""
    lines = ""
    for item in value:
        inner = value[item] if isinstance(value, Mapping) else item
        nested = dump(inner, f"{indent}  ") if isinstance(inner, (Mapping, list, tuple)) and inner else ""
        if isinstance(value, Mapping):
            lines += f"{indent}{scalar(item)}:" + (f"\n{nested}" if nested else f" {scalar(inner)}\n")
        else:  # the first line of a nested value follows the dash
            lines += f"{indent}- " + (nested[len(indent) + 2 :] if nested else f"{scalar(inner)}\n")
    return lines


def scalar(value: Any) -> str:
    """Write a YAML scalar on one line, a text in quotes where any reader might take it for something else."""
    return value if isinstance(value, str) and _SAFE.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def read_yaml_data(text: str, where: str) -> Any:
    """Return the data of a YAML document, scalars as in JSON or quoted texts; 1_000 and 3e9 are numbers, yes a text."""
    return _data(parse(text, where), where)


def _data(node: Node, where: str) -> Any:
    if isinstance(node.value, dict):
        return {key: _data(inner, where) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [_data(inner, where) for inner in node.value]
    text = node.value
    if not node.plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    try:
        return json_number(text.replace("_", "").removeprefix("+"))
    except ValueError as error:
        raise InputError(f"{where}: line {node.line}: {error}") from None


def read_data(path: Path) -> Any:
    """Read the data of a YAML or JSON file: YAML where its name ends in .yaml or .yml."""
    text = read_text(path, "give a JSON or YAML file")
    if path.suffix.lower() in YAML:
        return read_yaml_data(text, str(path))
    try:
        return parse_json(text, str(path))
    except InputError as error:
        if re.search(r"^\s*(#|//)", text, re.MULTILINE):
            raise InputError(f"{error}; JSON has no comments: name the file .yaml, which has") from None
        raise
