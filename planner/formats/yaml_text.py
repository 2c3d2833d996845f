"""JSON or YAML read with its lines, plain YAML written; values of YAML, JSON or TOML changed, all else kept."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
_TABLE = re.compile(r"[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#[^\n]*?)?\r?$", re.MULTILINE)
_KEY = re.compile(r"[ \t]*([\w.\"'-]+(?:[ \t]*\.[ \t]*[\w\"'-]+)*)[ \t]*=[ \t]*")
_QUOTES = re.compile(r"[\s\"']")
MOST_REPORTED = 160  # characters of the description of a change
WRITE_IT = "write the figure there yourself"


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
    """Read the data of a file: YAML where its name ends in .yaml or .yml, else JSON."""
    text = read_text(path, "give a JSON or YAML file")
    if path.suffix.lower() in YAML:
        return read_yaml_data(text, str(path))
    try:
        return parse_json(text, str(path))
    except InputError as error:
        if re.search(r"^\s*(#|//)", text, re.MULTILINE):
            raise InputError(f"{error}; JSON has no comments: name the file .yaml, which has") from None
        raise


class ValuePlace(NamedTuple):
    """Offsets of a key and of its value in a YAML, JSON or TOML text, and whether they are within braces."""

    key: int
    start: int
    end: int
    flow: bool = False


def _nodes(node: yaml.Node | None, path: str) -> Iterator[tuple[str, ValuePlace]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        own = f"{path}.{key.value}" if path else str(key.value)
        flow = bool(node and node.flow_style)
        yield own, ValuePlace(key.start_mark.index, value.start_mark.index, value.end_mark.index, flow)
        yield from _nodes(value, own)


@dataclass(slots=True)
class RecipeText:
    """The text of a recipe file with edits, and a line for the user on each; `dashes` begin a key of flags."""

    text: str
    where: str
    dashes: str = ""
    edits: dict[tuple[int, int], str] = field(default_factory=dict)
    reported: list[tuple[int, str]] = field(default_factory=list)  # by offset; those without a place come last

    @property
    def newline(self) -> str:
        """Line ending of a recipe file."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def line_start(self, offset: int) -> int:
        """Return the offset at which the line of an offset in a recipe file begins."""
        return self.text.rfind("\n", 0, offset) + 1

    def edit(self, start: int, end: int, new: str, what: str) -> None:
        """Replace a part of a recipe's text. InputError: two keys that share the place need different texts."""
        old = self.edits.get((start, end))
        if start < end and old not in (None, new):
            problem = f"shares its place with a key that becomes {old!r}, not {new!r}"
            raise self.refused(start, what.partition(":")[0], problem)
        if old is None or start == end:
            self.tell(what[:MOST_REPORTED] + "..." * (len(what) > MOST_REPORTED), start)
        self.edits[start, end] = new if start < end else (old or "") + new

    def _at(self, offset: int | None, what: str) -> str:
        line = "" if offset is None else f"line {self.text.count(chr(10), 0, offset) + 1}: "
        return f"{self.where}: {line}{what}"

    def tell(self, what: str, offset: int | None = None) -> None:
        """Note a line for the user about a place in the recipe file or about the whole."""
        self.reported.append((len(self.text) + 1 if offset is None else offset, self._at(offset, what)))

    def refused(self, offset: int | None, key: str, problem: str, remedy: str = WRITE_IT) -> InputError:
        """Return the error of a place in a recipe file that cannot be changed; None: of a key that the file has not."""
        return InputError(self._at(offset, f"{key}: {problem}; {remedy}"))

    def result(self) -> str:
        """Return the text of the recipe file with all edits."""
        text, before = self.text, len(self.text)
        for (start, end), new in sorted(self.edits.items(), reverse=True):
            if end > before:
                raise self.refused(start, self.text[start:end].strip(), "two changes meet in it")
            text, before = text[:start] + new + text[end:], start
        return text


@dataclass(slots=True)
class TableText(RecipeText):
    """A YAML, JSON or TOML file with the places of its values."""

    kind: str = "yaml"
    places: dict[str, ValuePlace] = field(default_factory=dict)
    added: dict[str, dict[str, Any]] = field(default_factory=dict)  # tables that are not there

    def __post_init__(self) -> None:
        # By dotted path, in YAML and JSON including those of mappings.
        if self.kind != "toml":
            try:
                self.places = dict(_nodes(yaml.compose(self.text.replace("\t", " "), Loader=yaml.BaseLoader), ""))
            except yaml.YAMLError:  # JSON that is no YAML
                problem = "has a key and its colon in two lines, which is not changed; write them in one"
                raise InputError(f"{self.where}: {problem}") from None
            return
        # In TOML without inline tables and arrays of tables; a table's header line has the path with a dot behind it.
        text, table, i = self.text, "", 0
        while i < len(text):
            opened, named = _TABLE.match(text, i), _KEY.match(text, i)
            if opened:
                table = f"{_QUOTES.sub('', opened[1])}."
                self.places[table] = ValuePlace(i, i, i + len(opened[0].rstrip()))
            elif named:
                start = end = named.end()
                closing = {"[": r"\]", "{": r"\}", '"': '"', "'": "'"}.get(text[start : start + 1], r"[^\s#]+")
                for match in re.compile(closing).finditer(text, start + (closing in "\"'")):
                    with suppress(tomllib.TOMLDecodeError):  # a value ends where its text first parses
                        tomllib.loads(f"x = {text[start : match.end()]}")
                        end = match.end()
                        break
                self.places[table + _QUOTES.sub("", named[1])] = ValuePlace(named.start(1), start, end)
                i = end
            elif text[i:].lstrip(" \t").startswith("[["):
                table = "\0"  # no path has it
            i = text.find("\n", i) + 1 or len(text)

    def change(self, key: str, value: Any, likes: tuple[str, ...]) -> None:
        """Set a YAML, JSON or TOML key; add it to its table at the first of `likes`; remove it (YAML: null) if None."""
        place = self.places.get(key)
        if place is not None and value is None and self.kind == "toml":
            end = self.text.find("\n", place.end) + 1 or len(self.text)
            self.edit(self.line_start(place.key), end, "", f"{key}: taken out")
        elif place is not None:
            old = self.text[place.start : place.end]
            new = self._written(value, old)
            between = "" if old or self.text[place.start - 1].isspace() else " "
            if new != old:
                self.edit(place.start, place.end, between + new, f"{key}: {old or 'nothing'} becomes {new}")
        if place is not None or value is None:
            return
        table, _, name = key.rpartition(".")
        own = [key for key in self.places if key.rpartition(".")[0] == table]
        like = next((key for key in likes if key in own), next(iter(own), None))
        equals = " = " if self.kind == "toml" else ": "
        if like is None:
            self.added.setdefault(table, {})[name] = value
            self.tell(f"{key}: added as {self._written(value)}")
            return
        place = self.places[like]
        start = self.line_start(place.key)
        indent = self.text[start : place.key]
        own_line = not indent.strip()
        dotted = self.text[place.key : place.start].partition("=")[0].rpartition(".")[0]
        name = f"{dotted}.{name}" if dotted and self.kind == "toml" else name
        new = f"{json.dumps(name) if self.kind == 'json' else name}{equals}{self._written(value)}"
        what = f"{key}: added beside {like} as {new}"
        if like.endswith("."):
            self.edit(place.end, place.end, f"{self.newline}{new}", what)
        else:
            new += "" if not place.flow else "," if own_line else ", "
            at = start if own_line else place.key
            self.edit(at, at, f"{indent}{new}{self.newline}" if own_line else new, what)

    def place(self, key: str) -> int | None:
        """Return the offset of a key in a YAML, JSON or TOML file, or of the table that holds it."""
        while key and key not in self.places:
            key = key.rpartition(".")[0]
        return self.places[key].key if key else None

    def _written(self, value: Any, old: str = "") -> str:
        if isinstance(value, str) and old.startswith("'"):
            return f"'{value}'"
        plain = self.kind == "yaml" and not old.startswith('"') and re.fullmatch(r"[A-Za-z_][\w.-]*", str(value))
        return str(value) if plain and isinstance(value, str) else json.dumps(value)

    def result(self) -> str:
        """Return the file's text with all edits, and tables that it lacked: at its end, in JSON at its beginning."""
        first = next(iter(self.places.values())).key if self.kind == "json" else 0
        for table, values in self.added.items() if first else ():
            before = self.edits.get((first, first), "")
            self.edits[first, first] = f"{json.dumps(table)}: {json.dumps(values)}, {before}"
        text = RecipeText.result(self)
        for table, values in () if first else self.added.items():
            head, row = (f"[{table}]", "{} = {}") if self.kind == "toml" else (f"{table}:", "  {}: {}")
            lines = ["", head, *(row.format(name, self._written(value)) for name, value in values.items())]
            text += ("" if text.endswith("\n") else self.newline) + "".join(line + self.newline for line in lines)
        return text
