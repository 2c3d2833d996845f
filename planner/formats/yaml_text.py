"""Read data that users and schedulers write, JSON or YAML with its lines, and write plain YAML."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InputError
from planner.files import json_or_text, parse_json, read_text

_SAFE = re.compile(
    r"(?!(?i:true|false|yes|no|on|off|y|n|null)$)[A-Za-z_/][A-Za-z0-9_./-]*(\[[0-9,-]+\][A-Za-z0-9_.-]*)*"
)
_DEEPEST = 50
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml where it was built: ten times as fast


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line it begins at: a text (`plain` where it is not quoted), a list, or a dict of nodes by key."""

    line: int
    value: "str | list[Node] | dict[str, Node]"
    plain: bool = True


@dataclass(slots=True)
class _Open:
    """A list or mapping that is not closed yet, and the key that waits for its value."""

    node: Node
    key: str | None = None


def parse(text: str, source: str) -> Node:
    """Read one document; scalars stay text, and an empty one is null."""
    try:
        return _built(yaml.parse(text, Loader=_LOADER), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = "; ".join(part for part in (error.context, error.problem) if part)
        line = 1 if mark is None else mark.line + 1
        raise InputError(f"{source}: line {line}: is no YAML: {what}; correct it") from None
    except (yaml.YAMLError, UnicodeError) as error:
        what = str(error).splitlines()[0]
        raise InputError(f"{source}: line 1: is no YAML: {what}; write it as plain text") from None


def _built(events: Iterator[yaml.Event], source: str) -> Node:
    """Build the values of a document from its events, without recursion."""
    root: Node | None = None
    open_nodes: list[_Open] = []
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            open_nodes.pop()
        if not isinstance(event, (yaml.NodeEvent, yaml.DocumentStartEvent)):
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            if root is not None:
                raise InputError(f"{source}: line {line}: a second document begins; keep one a file")
            continue
        node = _node(event, source, line)
        if not open_nodes:
            root = node
        else:
            _add(open_nodes[-1], node, source)
        if not isinstance(event, yaml.ScalarEvent):
            open_nodes.append(_Open(node))
            if len(open_nodes) > _DEEPEST:
                raise InputError(f"{source}: line {line}: is nested deeper than {_DEEPEST}; flatten it")
    return Node(1, "") if root is None else root


def _node(event: yaml.NodeEvent, source: str, line: int) -> Node:
    tag = getattr(event, "tag", None)
    if isinstance(event, yaml.AliasEvent) or event.anchor or tag:
        what = f"tag {tag}" if tag else f"anchor {event.anchor}"
        raise InputError(f"{source}: line {line}: {what} is YAML that is not read here; write the value itself")
    if isinstance(event, yaml.ScalarEvent):
        return Node(line, event.value, plain=not event.style)
    return Node(line, [] if isinstance(event, yaml.SequenceStartEvent) else {})


def _add(parent: _Open, node: Node, source: str) -> None:
    """Add a value to the open node: as an item of a list, as a key of a mapping, or as the value of its last key."""
    if isinstance(parent.node.value, list):
        parent.node.value.append(node)
        return
    if not isinstance(parent.node.value, dict):
        raise TypeError(type(parent.node.value))
    if parent.key is not None:
        parent.node.value[parent.key] = node
        parent.key = None
        return
    if not isinstance(node.value, str):
        raise InputError(f"{source}: line {node.line}: a key must be a text; write such as topology: fabric")
    if node.value in parent.node.value:
        first = parent.node.value[node.value].line
        problem = f"{node.value!r} is given twice in one mapping (first at line {first})"
        raise InputError(f"{source}: line {node.line}: {problem}; keep one")
    parent.key = node.value


def dump(value: Any) -> str:
    """Write dicts, lists and scalars as YAML; texts that could be read otherwise are quoted."""
    return "".join(f"{line}\n" for line in _dumped(value))


def _dumped(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, (Mapping, list, tuple)) and inner:
                yield f"{_scalar(key)}:"
                yield from (f"  {line}" for line in _dumped(inner))
            else:
                yield f"{_scalar(key)}: {_scalar(inner)}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            first, *rest = _dumped(inner) if isinstance(inner, (Mapping, list, tuple)) and inner else (_scalar(inner),)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) and _SAFE.fullmatch(value) else json.dumps(value, ensure_ascii=False)


YAML = (".yaml", ".yml")
# Plain scalars that are no text: those of JSON, and the writings of them that people use (YAML 1.2, core schema).
_WORDS = {"": None, "~": None, **dict.fromkeys(("null", "Null", "NULL"), None)} | {
    word: value for value, words in ((True, "true True TRUE"), (False, "false False FALSE")) for word in words.split()
}
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


def read_yaml_data(text: str, where: str) -> Any:
    """Return the data of a YAML document: plain scalars are read as in JSON, quoted ones are texts.

    Numbers may be grouped by underscores and written as 3e9; dates and yes and no are texts.
    """
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
    # As JSON has numbers: no sign +, no underscores, no leading zeros, digits around the point.
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    mantissa, mark, exponent = digits.replace("_", "").replace("E", "e").partition("e")
    whole, point, rest = mantissa.partition(".")
    fraction = f".{rest or '0'}" if point else ""
    return json_or_text(f"{sign}{whole.lstrip('0') or '0'}{fraction}{mark}{exponent}", f"{where}: line {node.line}")


def read_data(path: Path) -> Any:
    """Read a file: YAML where its name ends in .yaml or .yml, else JSON."""
    text = read_text(path, "give a JSON or YAML file")
    if path.suffix.lower() in YAML:
        return read_yaml_data(text, str(path))
    try:
        return parse_json(text, str(path))
    except InputError as error:
        if re.search(r"^\s*(#|//)", text, re.MULTILINE):
            raise InputError(f"{error}; JSON has no comments: name the file .yaml, which has") from None
        raise
