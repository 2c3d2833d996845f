"""Dotted paths into an instance, checked against its types, and an instance with values at some of them changed."""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from planner.errors import InputError
from planner.files import json_or_text
from planner.instance.instance import Instance
from planner.instance.pins import PINS, RACKS_AT, long_name
from planner.planning.load import NAMED, load_instance

STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
PIN = "pins."
CALLED_ON = re.compile(r"^(grid\.rules\.(?:interconnect|fault_split|share_balance))\.on$")  # in schema version 2


def canonical(path: str) -> str:
    """Write a pin in full, `pins.layout.zero_stage` for `layout.zero_stage`, and a key by its newest name."""
    path = CALLED_ON.sub(r"\1.enabled", long_name(path))
    first = path.partition(".")[0]
    own = first in {p.partition(".")[0] for p in PINS} and first not in Instance.model_fields
    return PIN + path if own or path in PINS else path


def parts_of(path: str) -> list[str | int]:
    """Split `network.switches[0].price_usd` into its keys and positions."""
    parts: list[str | int] = []
    end = 0
    for step in STEP.finditer(path):
        if step.start() != end:
            break
        key, place = step.groups()
        parts.append(key if key is not None else int(place) if place.isdigit() else place)
        end = step.end()
    if end != len(path) or not parts:
        raise InputError(f"{path!r}: must be a dotted path such as limits.budget_usd or network.switches[0].price_usd")
    return parts


def check_path(instance: Instance, path: str) -> None:
    """Refuse a path that leads nowhere in the instance."""
    path = canonical(path)
    if path.startswith(PIN):
        pin, nodes = path.removeprefix(PIN), instance.grid.nodes if instance.grid else ()
        known = [*PINS, *(RACKS_AT + n.id for n in nodes if n.site)]
        if pin not in known:
            near = difflib.get_close_matches(pin, known, 1, 0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PINS)}"
            raise InputError(f"{path}: no such decision; {hint}")
        return
    value: Any = instance
    parts = parts_of(path)
    for depth, part in enumerate(parts):
        where = _written(parts[:depth])
        if value is None:
            raise InputError(f"{path}: {where} is not in the instance; add it there first")
        if isinstance(value, tuple):
            value = value[_position(path, where, part, value)]
        elif isinstance(value, (BaseModel, dict)):
            keys = value if isinstance(value, dict) else type(value).model_fields
            if part not in keys:
                raise InputError(f"{path}: no such key; {_nearest(instance, path, str(part), sorted(keys))}")
            value = value[part] if isinstance(value, dict) else getattr(value, str(part))
        else:
            raise InputError(f"{path}: {where} is a single value; end the path there")
    if isinstance(value, (tuple, dict)):
        kind = "list" if isinstance(value, tuple) else "object"
        raise InputError(f"{path}: is a whole {kind}; name one value inside it")


def _position(path: str, where: str, part: str | int, entries: tuple[Any, ...]) -> int:
    if isinstance(part, int):
        if part >= len(entries):
            raise InputError(f"{path}: {where} has {len(entries)} entries; use 0 to {len(entries) - 1}")
        return part
    names = [str(getattr(x, "id", None) or getattr(x, "name", None) or "") for x in entries]
    if part not in names:
        near = difflib.get_close_matches(part, names, 1, 0.4)
        known = ", ".join(n for n in names if n) or "positions only"
        hint = f"did you mean {near[0]!r}?" if near else f"known: {known}"
        raise InputError(f"{path}: {where} has no {part!r}; {hint}")
    return names.index(part)


def _nearest(instance: Instance, path: str, part: str, here: list[str]) -> str:
    """Point to the nearest key: among those of the same object, else among all paths of the instance."""
    near = difflib.get_close_matches(part, here, 1, 0.6)
    if near:
        return f"did you mean {path[: path.rindex(part)]}{near[0]}?"
    paths = [*leaves(instance), *(PIN + p for p in PINS)]
    by_last: dict[str, str] = {}
    for p in paths:
        by_last.setdefault(p.rpartition(".")[2], p)
    last = path.rpartition(".")[2]
    if last in by_last:
        return f"did you mean {by_last[last]}?"
    near = difflib.get_close_matches(path, paths, 1, 0.5)
    near = near or [by_last[key] for key in difflib.get_close_matches(last, by_last, 1, 0.6)]
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(here)}"


def leaves(value: Any, where: str = "") -> Iterator[str]:
    """Yield every path of an instance that can hold a single value, those of parts that it does not have left out."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            child, path = getattr(value, name), f"{where}.{name}" if where else name
            if child is None and not _is_part(field.annotation) and name not in ("source", "note"):
                yield path
            elif name not in ("source", "note", "pins"):
                yield from leaves(child, path)
    elif isinstance(value, tuple):
        for i, x in enumerate(value):
            yield from leaves(x, f"{where}[{i}]")
    elif isinstance(value, dict):
        for k, x in value.items():
            yield from leaves(x, f"{where}.{k}")
    elif value is not None:
        yield where


def _is_part(annotation: Any) -> bool:
    """Return whether a type is an object, a list or a choice with one of them."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_is_part(a) for a in get_args(annotation))
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, (BaseModel, tuple, list, dict))


def _written(parts: list[str | int]) -> str:
    text = ""
    for p in parts:
        text += f"[{p}]" if isinstance(p, int) else f".{p}" if text else p
    return text


def put(data: dict[str, Any], instance: Instance, path: str, value: Any) -> None:
    """Set one value in an instance's JSON data; the path was checked."""
    path = canonical(path)
    if path.startswith(PIN):
        data.setdefault("pins", {})[path.removeprefix(PIN)] = value
        return
    *front, last = parts_of(path)
    holder: Any = data
    typed: Any = instance
    for depth, part in enumerate(front):
        if isinstance(typed, tuple):
            place = _position(path, _written(front[:depth]), part, typed)
            holder, typed = holder[place], typed[place]
        else:
            holder, typed = holder[part], typed[part] if isinstance(typed, dict) else getattr(typed, str(part))
    holder[_position(path, _written(front), last, typed) if isinstance(typed, tuple) else last] = value


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
        relative = RELATIVE.fullmatch(value) if isinstance(value, str) else None
        try:
            if not _is_name(path, value):
                check_path(base, path)
            put(data, base, path, value if relative is None else _moved(_now(data, path), relative, path))
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
    """Refuse a path that is both changed for every point of a sweep and varied."""
    varied = {path for point in points for path in point}
    for path in read_changes(changes):
        if canonical(path) in varied:
            raise InputError(f"{path}: is both set and varied; leave one out")


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
