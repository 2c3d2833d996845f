"""What-if: an instance with some of its values changed, outright or against what they are."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import json_or_text
from planner.instance.instance import Instance
from planner.planning.load import NAMED, load_instance
from planner.sweeps.paths import canonical, check_path, parts_of, put

FORMS = "PATH=VALUE, PATH=x1.2, PATH=+100, PATH=-100, PATH=+20% or PATH=-20%"
RELATIVE = re.compile(r"(?P<sign>[x+-])(?P<number>[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<percent>%?)")
# Objects that a name of the catalogue may stand for, beside the entries of network.switches and network.media.
BY_NAME = {".".join(path) for path in NAMED} | {"reliability"}
LISTED_BY_NAME = re.compile(r"network\.(switches|media)\[[^\]]+\]")


def read_changes(given: Sequence[str]) -> dict[str, Any]:
    """Read PATH=VALUE options of the command line; a value is JSON, plain text, or relative.

    PATH==-100 sets a negative value.
    """
    changes: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or not path or not value:
            raise InputError(f"--set {text!r}: must be one of {FORMS}, such as limits.budget_usd=x1.2")
        if path in changes:
            raise InputError(f"--set {path}: is given twice; leave one out")
        relative = RELATIVE.fullmatch(value)
        changes[path] = value if relative else json_or_text(value.removeprefix("="), f"--set {path}")
    return changes


def changed(
    given: Instance | Mapping[str, Any] | str | Path, changes: Mapping[str, Any], *, searched: bool = True
) -> Instance:
    """Return an instance with some values changed.

    Parameters
    ----------
    given
        A path to a file, the name of an instance that ships, its content as a dict, or an Instance.
    changes
        Values by dotted path, as the axes of a sweep have them: `limits.budget_usd`, `grid.nodes[keystone].racks`, a
        pin. A text such as "x1.2", "+100", "-100" or "+20%" changes a number against what it is; a name of the
        catalogue stands for a model, an accelerator, a rack and the like, and changes behind it are of what it names;
        None takes a value away.
    searched
        Whether what only a search needs must be there.

    Raises
    ------
    InputError
        A path leads nowhere, a relative change has no number to start from, or the instance cannot be used so; the
        message names path, value and remedy.
    """
    base = load_instance(given, searched=searched and not changes)
    where = str(given) if isinstance(given, (str, Path)) else "instance"
    if not changes:
        return base
    twice = [p for p, n in Counter(canonical(path) for path in changes).items() if n > 1]
    if twice:
        raise InputError(f"{where}: {twice[0]}: is changed twice; leave one out")
    data = base.model_dump(mode="json", exclude_none=True)
    as_changed = f"{where} with {', '.join(f'{path}={value}' for path, value in changes.items())}"
    for path, value in changes.items():
        try:
            _change(data, base, path, value)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if _is_name(path, value):
            base = load_instance(data, searched=False, where=as_changed)
            data = base.model_dump(mode="json", exclude_none=True)
    return load_instance(data, searched=searched, where=as_changed)


def _is_name(path: str, value: Any) -> bool:
    """Return whether a value names an entry of the catalogue, which stands for a whole object."""
    return isinstance(value, str) and (path in BY_NAME or LISTED_BY_NAME.fullmatch(path) is not None)


def require_apart(changes: Sequence[str], points: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a path that is both changed for every point of a sweep and varied.

    Raises
    ------
    InputError
        Names the path.
    """
    varied = {path for point in points for path in point}
    for path in read_changes(changes):
        if canonical(path) in varied:
            raise InputError(f"{path}: is both set and varied; leave one out")


def _change(data: dict[str, Any], base: Instance, path: str, value: Any) -> None:
    """Set one value in an instance's data."""
    if not _is_name(path, value):
        check_path(base, path)
    relative = RELATIVE.fullmatch(value) if isinstance(value, str) else None
    put(data, base, path, value if relative is None else _moved(_now(data, path), relative, path))


def _moved(now: Any, change: re.Match[str], path: str) -> float:
    """Return a number moved by a relative change; a whole number stays one where the change leaves it whole."""
    text, number = change[0], float(change["number"])
    if isinstance(now, bool) or not isinstance(now, (int, float)):
        what = "is not in the instance" if now is None else f"is {now!r}, not a number"
        raise InputError(f"{path}={text}: {path} {what}; give the value itself")
    if change["sign"] == "x" and change["percent"]:
        raise InputError(f"{path}={text}: a factor has no percent sign; write x1.2 or +20%")
    sign = -1.0 if change["sign"] == "-" else 1.0
    moved = now * number if change["sign"] == "x" else now * (1 + sign * number / 100)
    if change["sign"] != "x" and not change["percent"]:
        moved = now + sign * number
    moved = float(f"{moved:.12g}")  # what sums and products of decimals leave behind
    return int(moved) if isinstance(now, int) and moved.is_integer() and math.isfinite(moved) else moved


def _now(data: Any, path: str) -> Any:
    """Return the value at a path of an instance's data; None where it has none. The path was checked."""
    path = canonical(path)
    if path.startswith("pins."):
        return data.get("pins", {}).get(path.removeprefix("pins."))
    found = data
    for part in parts_of(path):
        if isinstance(found, list):
            names = [x.get("id", x.get("name")) if isinstance(x, dict) else None for x in found]
            found = found[part if isinstance(part, int) else names.index(part)]
        else:
            found = found.get(part)
        if found is None:
            return None
    return found


__all__ = ["changed", "read_changes", "require_apart"]
