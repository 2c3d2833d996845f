"""A recipe file's text to edit: values of YAML, JSON or TOML found and changed in place, all else kept."""

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from planner.errors import InputError

_TABLE = re.compile(r"[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#[^\n]*?)?\r?$", re.MULTILINE)
_KEY = re.compile(r"[ \t]*([\w.\"'-]+(?:[ \t]*\.[ \t]*[\w\"'-]+)*)[ \t]*=[ \t]*")
_QUOTES = re.compile(r"[\s\"']")
MOST_REPORTED = 160  # characters of the description of a change
WRITE_IT = "write the figure there yourself"


class ValuePlace(NamedTuple):
    """Offsets of a key and of its value in the text of a recipe, and whether they are within braces."""

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
    """The text of a recipe file to edit, with a line for the user on each edit; `dashes` begin a key of flags."""

    text: str
    where: str
    dashes: str = ""
    edits: dict[tuple[int, int], str] = field(default_factory=dict)
    reported: list[tuple[int, str]] = field(default_factory=list)  # by offset; those without a place come last

    @property
    def newline(self) -> str:
        """Line ending of the recipe's text."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def line_start(self, offset: int) -> int:
        """Return the offset in the recipe's text at which the line of an offset begins."""
        return self.text.rfind("\n", 0, offset) + 1

    def edit(self, start: int, end: int, new: str, what: str) -> None:
        """Edit a part of the recipe's text. InputError: two keys that share the place need different texts."""
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
        """Note a line for the user about a place in the recipe's text or about the whole."""
        self.reported.append((len(self.text) + 1 if offset is None else offset, self._at(offset, what)))

    def refused(self, offset: int | None, key: str, problem: str, remedy: str = WRITE_IT) -> InputError:
        """Return the error of a place in the recipe's text that no edit can change; None: of a missing key."""
        return InputError(self._at(offset, f"{key}: {problem}; {remedy}"))

    def result(self) -> str:
        """Return the recipe's text with all edits."""
        text, before = self.text, len(self.text)
        for (start, end), new in sorted(self.edits.items(), reverse=True):
            if end > before:
                raise self.refused(start, self.text[start:end].strip(), "two changes meet in it")
            text, before = text[:start] + new + text[end:], start
        return text


@dataclass(slots=True)
class TableText(RecipeText):
    """The text of a YAML, JSON or TOML recipe to edit, with the places of its values."""

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
        """Set a recipe's key; add it to its table at the first of `likes`; remove it (YAML: null) if None."""
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
        """Return the offset of a key in the text of a YAML, JSON or TOML recipe, or of the table that holds it."""
        while key and key not in self.places:
            key = key.rpartition(".")[0]
        return self.places[key].key if key else None

    def _written(self, value: Any, old: str = "") -> str:
        if isinstance(value, str) and old.startswith("'"):
            return f"'{value}'"
        plain = self.kind == "yaml" and not old.startswith('"') and re.fullmatch(r"[A-Za-z_][\w.-]*", str(value))
        return str(value) if plain and isinstance(value, str) else json.dumps(value)

    def result(self) -> str:
        """Return the recipe's text with all edits, and tables that it lacked: at its end, in JSON at its beginning."""
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
