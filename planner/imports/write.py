"""An imported grid as JSON: the part of an instance, or an instance with the grid in it."""

import json
from pathlib import Path
from typing import Any

from planner.imports.instance_file import read_instance_file
from planner.instance.grid import Grid


def part(grid: Grid) -> dict[str, Any]:
    """Return a grid as JSON data, without figures at their defaults."""
    data: dict[str, Any] = grid.model_dump(mode="json", exclude_defaults=True)
    for family in ("balancing_authorities", "nodes", "lines"):
        data[family] = [{k: x[k] for k in sorted(x, key=("source", "note").__contains__)} for x in data.get(family, [])]
    return data


def instance_with(path: Path, grid: Grid, name: str | None) -> dict[str, Any]:
    """Return the instance of a file with this grid instead of its own; rules, site prices and all else are kept.

    An explicit interconnect rule falls back to the lines' capacity with the largest out where the nodes have no figure.
    """
    data = read_instance_file(path)
    old: dict[str, Any] = data["grid"] if isinstance(data.get("grid"), dict) else {}
    new = part(grid) | {k: old[k] for k in ("rules", "prices") if k in old}
    rules = new.get("rules")
    rule = rules.get("interconnect") if isinstance(rules, dict) else None
    if isinstance(rule, dict) and rule.get("enabled", rule.get("on")) and rule.get("reading", "explicit") == "explicit":
        rule["reading"] = "capacity_n1"
        new["note"] += "; the interconnect rule reads lines (capacity_n1), as the nodes have no explicit figure"
    data |= {"name": name or f"{data.get('name', path.stem)} on an imported grid", "grid": new}
    return data


def text(data: Any, depth: int = 0) -> str:
    """Write JSON with a line for each item of a list and each small object, so that a grid can be read and compared."""
    line = json.dumps(data, ensure_ascii=False)
    inner, outer = " " * (depth + 1) * 2, " " * depth * 2
    nested = isinstance(data, dict) and (depth < 2 or len(line) > 140)
    if nested:
        body = ",\n".join(f"{inner}{json.dumps(k)}: {text(v, depth + 1)}" for k, v in data.items())
        written = f"{{\n{body}\n{outer}}}" if data else "{}"
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        written = "[\n" + ",\n".join(f"{inner}{json.dumps(x, ensure_ascii=False)}" for x in data) + f"\n{outer}]"
    else:
        written = line
    return written if depth else written + "\n"
