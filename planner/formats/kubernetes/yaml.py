"""Read and write the part of YAML that schedulers' files use: mappings, sequences, scalars, lists in brackets.

Anchors, tags, folded text and mappings in braces are refused with their line, so nothing is read as what it is not.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from planner.errors import InputError

_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s"'#\[\]{}&*!|>%@`,?-][^#:]*?)\s*:(?:\s+|$)""")
_COMMENT = re.compile(r"""((?:[^\s"'#]|\s(?!\s*#)|(?<=\S)#|"[^"]*"|'[^']*')*)(?:\s*#.*)?""")
_SAFE = re.compile(
    r"(?!(?i:true|false|yes|no|on|off|y|n|null)$)[A-Za-z_/][A-Za-z0-9_./-]*(\[[0-9,-]+\][A-Za-z0-9_.-]*)*"
)
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line it begins at: a text, a list of nodes, or a dict of nodes by key."""

    line: int
    value: "str | list[Node] | dict[str, Node]"


def parse(text: str, source: str) -> Node:
    """Read one document; scalars stay text.

    Raises
    ------
    InputError
        Names file and line.
    """
    reader = _Reader(text, source)
    if not reader.lines:
        raise InputError(f"{source}: line 1: the file says nothing; write such as - topology: fabric")
    node = reader.block(reader.lines[0][1], 0)
    if reader.at < len(reader.lines):
        reader.fail("is indented unlike what stands above it; align it")
    return node


class _Reader:
    """A cursor over the lines that say something, each (number, indent, text)."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.at = 0
        self.lines: list[tuple[int, int, str]] = []
        for number, raw in enumerate(text.split("\n"), 1):
            match = _COMMENT.fullmatch(raw.rstrip())
            bare = (raw if match is None else match[1]).rstrip()
            body = bare.lstrip(" ")
            if not body or (body == "---" and not self.lines):
                continue
            self.lines.append((number, len(bare) - len(body), body))
            if body.startswith("\t") or body in {"---", "..."} or match is None:
                self.at = len(self.lines) - 1
                self.fail("has a tab, a second document or a quote left open; keep to spaces and one document")

    def fail(self, what: str) -> NoReturn:
        number, _, text = self.lines[self.at]
        raise InputError(f"{self.source}: line {number}: {text[:60]!r} {what}")

    def here(self, indent: int) -> str | None:
        """Return the text of the current line where it is indented so."""
        return self.lines[self.at][2] if self.at < len(self.lines) and self.lines[self.at][1] == indent else None

    def block(self, indent: int, depth: int) -> Node:
        """Read what begins on the current line."""
        if depth > _DEEPEST:
            self.fail(f"is nested deeper than {_DEEPEST}; flatten it")
        text = self.lines[self.at][2]
        if _is_item(text):
            return self.sequence(indent, depth)
        if _KEY.match(text):
            return self.mapping(indent, depth)
        node = self.scalar(text)
        self.at += 1
        return node

    def sequence(self, indent: int, depth: int) -> Node:
        """Read the items that begin with a dash."""
        first, items = self.lines[self.at][0], list[Node]()
        while (text := self.here(indent)) is not None and _is_item(text):
            number, rest = self.lines[self.at][0], text[1:].lstrip()
            if rest:
                inner = indent + len(text) - len(rest)
                self.lines[self.at] = number, inner, rest
                items.append(self.block(inner, depth + 1))
            else:
                self.at += 1
                items.append(self.nested(number, indent + 1, depth))
        return Node(first, items)

    def mapping(self, indent: int, depth: int) -> Node:
        """Read the pairs of one indent."""
        first, pairs = self.lines[self.at][0], dict[str, Node]()
        while (text := self.here(indent)) is not None and (match := _KEY.match(text)):
            number, key, rest = self.lines[self.at][0], match[1].strip("\"'"), text[match.end() :]
            if key in pairs:
                self.fail(f"stands twice in one mapping (first at line {pairs[key].line}); keep one")
            if rest:
                pairs[key] = self.scalar(rest)
                self.at += 1
            else:
                self.at += 1
                after = self.here(indent)
                pairs[key] = self.nested(number, indent if after is not None and _is_item(after) else indent + 1, depth)
        return Node(first, pairs)

    def nested(self, number: int, min_indent: int, depth: int) -> Node:
        """Read what stands below a dash or a key; nothing is an empty text."""
        if self.at < len(self.lines) and self.lines[self.at][1] >= min_indent:
            return self.block(self.lines[self.at][1], depth + 1)
        return Node(number, "")

    def scalar(self, text: str) -> Node:
        """Read a text, quoted or plain, or a list of them in brackets."""
        number = self.lines[self.at][0]
        if text.startswith("["):
            if not re.fullmatch(r"\[[^\[\]{}]*\]", text):
                self.fail("must be a list such as [4, 8] on one line; quote a hostlist that begins with a bracket")
            parts = text[1:-1].split(",") if text[1:-1].strip() else []
            return Node(number, [self.scalar(part.strip()) for part in parts])
        if text[:1] in {'"', "'"}:
            if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
                self.fail("is quoted in a way that is not read here; write plain text between two quotes")
            return Node(number, text[1:-1])
        if text[:1] in set("{}]&*!|>%@`,?:") or ": " in text:
            self.fail("is YAML that is not read here; write plain keys, values and lists")
        return Node(number, text)


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def dump(value: Any, indent: int = 0) -> str:
    """Write dicts, lists and scalars as YAML; texts that could be read otherwise are quoted."""
    return "".join(f"{' ' * indent}{line}\n" for line in _dumped(value))


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
