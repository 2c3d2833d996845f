"""Read data that users write by hand: JSON, or YAML with comments, by the end of the file's name."""

import re
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import json_or_text, parse_json, read_text
from planner.formats.kubernetes.yaml import Node, parse

YAML = (".yaml", ".yml")
# Plain scalars that are no text: those of JSON, and the writings of them that people use (YAML 1.2, core schema).
_WORDS = {"": None, "~": None, **dict.fromkeys(("null", "Null", "NULL"), None)} | {
    word: value for value, words in ((True, "true True TRUE"), (False, "false False FALSE")) for word in words.split()
}
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


def read_yaml_data(text: str, where: str) -> Any:
    """Return the data of a YAML document: plain scalars are what they would be in JSON, quoted ones are texts.

    Numbers may be grouped by underscores and written as 3e9; dates and yes and no are texts.

    Raises
    ------
    InputError
        Names file and line.
    """
    return _data(parse(text, where), where)


def _data(node: Node, where: str) -> Any:
    """Return the data of a value; `parse` has limited its depth."""
    if isinstance(node.value, dict):
        return {key: _data(inner, where) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [_data(inner, where) for inner in node.value]
    text = node.value
    if not node.plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return json_or_text(_as_json(text), f"{where}: line {node.line}")
    return text


def _as_json(text: str) -> str:
    """Write a number of YAML as JSON has it: no sign +, no underscores, no leading zeros, digits around the point."""
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    mantissa, e, exponent = digits.replace("_", "").replace("E", "e").partition("e")
    whole, point, rest = mantissa.partition(".")
    fraction = f".{rest or '0'}" if point else ""
    return f"{sign}{whole.lstrip('0') or '0'}{fraction}{e}{exponent}"


def read_data(path: Path) -> Any:
    """Read a file: YAML where its name ends in .yaml or .yml, else JSON.

    Raises
    ------
    InputError
        Names the file, and the line (and in JSON the column) of what cannot be read.
    """
    text = read_text(path, "give a JSON or YAML file")
    if path.suffix.lower() in YAML:
        return read_yaml_data(text, str(path))
    try:
        return parse_json(text, str(path))
    except InputError as error:
        if re.search(r"^\s*(#|//)", text, re.MULTILINE):
            raise InputError(f"{error}; JSON has no comments: name the file .yaml, which has") from None
        raise
