"""Axes of a sweep: dotted paths into an instance, checked and changed, and ranges, lists and pairs of values."""

import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from planner.errors import InputError, hint, shown
from planner.files import csv_rows, json_lines, json_or_text, leaves, read_text
from planner.instance.base_types import may_be_none
from planner.instance.instance import Instance
from planner.instance.pins import PINS, RACKS_AT, long_name
from planner.instance.software import REPLACED, Software
from planner.instance.validation import dotted
from planner.planning.load import data_of, load_instance

STEP = re.compile(r"\.?([^.\[\]]++)|\[([^\]]++)\]")
PIN = "pins."
CALLED_ON = re.compile(r"^(grid\.rules\.(?:interconnect|fault_split|share_balance))\.on$")  # in schema version 2
FORMS = "PATH=VALUE, PATH=x1.2, PATH=+100, PATH=-100, PATH=+20% or PATH=-20%"
RELATIVE = re.compile(r"(?P<sign>[x+-])(?P<number>[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<percent>%?)")
MAX_VALUES = 1_000_000  # of one axis; more is a typing mistake, and would fill memory before the first solve
RANGE_FORMS = "START:STOP:STEP, START:STOP:xFACTOR, log:START:STOP:COUNT, lin:START:STOP:COUNT or A,B,C"
Point = dict[str, Any]  # value by canonical path


def canonical(path: str) -> str:
    """Write a sweep axis's path in full, `pins.layout.zero_stage` for `layout.zero_stage`, by a key's newest name."""
    path = CALLED_ON.sub(r"\1.enabled", long_name(path))
    first = path.partition(".")[0]
    own = first in {path.partition(".")[0] for path in PINS} and first not in Instance.model_fields
    return PIN + path if own or path in PINS else path


def check_path(instance: Instance, path: str, *, whole: bool = False) -> Any:
    """Return the value at a sweep axis's path, None if unset; `whole`: a list or object too. InputError: none such."""
    path = canonical(path)
    if path.startswith(PIN):
        pin, nodes = path.removeprefix(PIN), instance.grid.nodes if instance.grid else ()
        known = [*PINS, *(RACKS_AT + node.id for node in nodes if node.site)]
        if pin not in known:
            raise InputError(f"{path}: no such decision; {hint(pin, known)}")
        return instance.pins.get(pin)
    _, value = _walked(instance, path)[-1]
    if isinstance(value, (tuple, dict)) and not whole:
        kind = "list" if isinstance(value, tuple) else "object"
        raise InputError(f"{path}: is a whole {kind}; name one value inside it")
    return value


def _walked(instance: Instance, path: str) -> list[tuple[str | int, Any]]:
    """Return each key or position along an axis path into an instance, a named entry's position, with its value."""
    if not re.fullmatch(f"(?:{STEP.pattern})+", path):
        raise InputError(f"{path!r}: must be a dotted path such as limits.budget_usd or network.switches[0].price_usd")
    parts = [key or (int(place) if place.isdecimal() else place) for key, place in STEP.findall(path)]
    value: Any = instance
    steps = list[tuple[str | int, Any]]()
    for depth, part in enumerate(parts):
        where, step = dotted(parts[:depth]), part
        if value is None:
            raise InputError(f"{path}: {where} is not in the instance; add it there first")
        if isinstance(value, tuple):
            names = [str(getattr(entry, "id", None) or getattr(entry, "name", None) or "") for entry in value]
            if isinstance(part, int) and part >= len(value):
                raise InputError(f"{path}: {where} has {len(value)} entries; use 0 to {len(value) - 1}")
            if isinstance(part, str) and part not in names:
                remedy = hint(part, [name for name in names if name]) if any(names) else "known: positions only"
                raise InputError(f"{path}: {where} has no {part!r}; {remedy}")
            step = part if isinstance(part, int) else names.index(part)
            value = value[step]
        elif isinstance(value, (BaseModel, dict)):
            keys = value if isinstance(value, dict) else type(value).model_fields
            if part not in keys and isinstance(value, Software) and part in REPLACED:
                raise InputError(f"{path}: is no key any more; in {where} give {REPLACED[str(part)]}")
            if part not in keys:
                raise InputError(f"{path}: no such key; {_nearest(instance, path, str(part), sorted(keys))}")
            value = value[part] if isinstance(value, dict) else getattr(value, str(part))
        else:
            raise InputError(f"{path}: {where} is a single value; end the path there")
        steps.append((step, value))
    return steps


def _nearest(instance: Instance, path: str, part: str, here: list[str]) -> str:
    """Suggest the nearest key to a wrong axis path: in the same object, else among all paths of the instance."""
    near = difflib.get_close_matches(part, here, 1, 0.6)
    if near:
        return f"did you mean {path[: path.rindex(part)]}{near[0]}?"
    values = asked_values(instance.replaced(pins={}), entry="[{1}]")  # an id such as 7 would be read as a place
    paths = [*sorted(values, key=lambda path: values[path] is None), *(PIN + path for path in PINS)]
    by_last: dict[str, str] = {}
    for known in paths:
        by_last.setdefault(known.rpartition(".")[2], known)
    last = path.rpartition(".")[2]
    if last in by_last:
        return f"did you mean {by_last[last]}?"
    near = difflib.get_close_matches(path, paths, 1, 0.5)
    near = near or [by_last[key] for key in difflib.get_close_matches(last, by_last, 1, 0.6)]
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(here)}"


def asked_values(instance: Instance, entry: str = "[{}]") -> dict[str, Any]:
    """Return an instance's values by paths that a sweep's axis may vary, without sources; `entry` as of `leaves`."""
    paths = leaves(instance.model_dump(mode="json"), entry=entry)
    return {path: value for path, value in paths if not {"source", "note"} & set(path.split("."))}


def put(data: dict[str, Any], instance: Instance, path: str, value: Any) -> None:
    """Set the value at a sweep axis's path in an instance's JSON data, or take it away; the path was checked before."""
    path = canonical(path)
    if path.startswith(PIN):
        pins = {**data.get("pins", {}), path.removeprefix(PIN): value}
        data["pins"] = {name: pinned for name, pinned in pins.items() if pinned is not None}
        return
    *front, (last, _) = _walked(instance, path)
    holder: Any = data
    owner: Any = instance
    for step, owner in front:
        if isinstance(holder, dict):  # a list as it is by default may be left out, and a model that is open
            holder.setdefault(step, list(owner) if isinstance(owner, tuple) else {})
        holder = holder[step]
    if value is not None or not isinstance(holder, dict) or may_be_none(owner, str(last)):
        holder[last] = value
    else:
        holder.pop(last, None)


OPTION_FORMS = {
    "--set": f"one of {FORMS}, such as limits.budget_usd=x1.2",
    "--vary": f"PATH=VALUES, such as limits.budget_usd=20e9:200e9:10e9 ({RANGE_FORMS})",
    "--pin": "PATH=VALUE, such as layout.tensor_parallel=10",
}


def values_by_path(option: str, given: Sequence[str]) -> dict[str, str]:
    """Read PATH=VALUE of repeated options that name a sweep's axes, each path once. InputError: of another form."""
    values: dict[str, str] = {}
    for text in given:
        path, _, value = text.partition("=")
        if not path or not value:
            raise InputError(f"{option} {text!r}: must be {OPTION_FORMS[option]}")
        if path in values:
            remedy = "join its values in one list" if option == "--vary" else "leave one out"
            raise InputError(f"{option} {path}: is given twice; {remedy}")
        values[path] = value
    return values


def read_changes(given: Sequence[str]) -> dict[str, Any]:
    """Read PATH=VALUE changes at axis paths: JSON, text, or relative; PATH==-100 sets a negative value."""
    texts = values_by_path("--set", given)
    return {
        path: text if RELATIVE.fullmatch(text) else json_or_text(text.removeprefix("="), f"--set {path}")
        for path, text in texts.items()
    }


def changed(
    given: Instance | Mapping[str, Any] | str | Path, changes: Mapping[str, Any], *, searched: bool = True
) -> Instance:
    """Return an instance changed at a sweep's axis paths, outright or relative. InputError: path, value, remedy."""
    where = str(given) if isinstance(given, (str, Path)) else "instance"
    texts = (f"{path}={value if isinstance(value, str) else shown(value)}" for path, value in changes.items())
    as_changed = f"{where} with {', '.join(texts)}" if changes else where
    try:
        base = load_instance(given, searched=searched and not changes)
    except InputError:
        data = data_of(given, where)
        for path, value in changes.items():  # they may give what the file leaves out, such as the tokens
            *front, last = canonical(path).split(".")
            holder: Any = data
            for key in front:
                holder = holder.get(key) if isinstance(holder, dict) else None
            if isinstance(holder, dict) and holder.get(last) is None and not RELATIVE.fullmatch(str(value)):
                holder[last] = value
        base = load_instance(data, searched=searched and not changes, where=as_changed)
    if not changes:
        return base
    twice = [name for name, count in Counter(canonical(path) for path in changes).items() if count > 1]
    if twice:
        raise InputError(f"{where}: {twice[0]}: is changed twice; leave one out")
    data = data_of(base, where)
    # A choice and what is given in its place are changed before a name is looked up, by changes in any order.
    first = ("workload.choose", "workload.tokens", "workload.model")
    for path, value in sorted(changes.items(), key=lambda one: first.index(one[0]) if one[0] in first else len(first)):
        relative = RELATIVE.fullmatch(value) if isinstance(value, str) else None
        try:
            now = check_path(base, path, whole=value is None or isinstance(value, (list, tuple, dict)))
            put(data, base, path, value if relative is None else _moved(now, relative, path))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if isinstance(value, str) and (isinstance(now, BaseModel) or path == "reliability"):  # an entry's name
            base = load_instance(data, searched=False, where=as_changed)
            data = data_of(base, where)
    return load_instance(data, searched=searched, where=as_changed)


def _moved(now: Any, change: re.Match[str], path: str) -> float:
    """Return an instance's number moved by a relative change; a whole number stays one where the change allows."""
    text, number = change[0], float(change["number"])
    if isinstance(now, bool) or not isinstance(now, (int, float)):
        what = "is not in the instance" if now is None else f"is {now!r}, not a number"
        value = f"={text}" if text.startswith("-") else "VALUE"
        raise InputError(f"{path}={text} is relative, and {path} {what}; give the value itself: {path}={value}")
    if change["sign"] == "x" and change["percent"]:
        raise InputError(f"{path}={text}: a factor has no percent sign; write x1.2 or +20%")
    sign = -1.0 if change["sign"] == "-" else 1.0
    moved = now * number if change["sign"] == "x" else now * (1 + sign * number / 100)
    if change["sign"] != "x" and not change["percent"]:
        moved = now + sign * number
    moved = float(f"{moved:.12g}")  # what sums and products of decimals leave behind
    return int(moved) if isinstance(now, int) and moved.is_integer() and math.isfinite(moved) else moved


class FilePoint(Point):
    """A point of a sweep from a file of pairs, with the places in it of its axes' paths and of its values."""

    def __init__(self, point: Point, at: str, paths_at: str) -> None:
        super().__init__(point)
        self.at, self.paths_at = at, paths_at


def parse_values(path: str, spec: str) -> list[Any]:
    """Read a sweep's axis: a list, START:STOP:STEP with STOP if met, START:STOP:xFACTOR, or log: or lin: with COUNT."""
    where, parts = f"{path}={spec}", spec.split(":")
    if parts[0] in ("log", "lin"):
        if len(parts) != 4:
            raise InputError(f"{where}: must be {parts[0]}:START:STOP:COUNT")
        start, stop, count = (_number(where, part) for part in parts[1:])
        if count != int(count) or count < 2:
            raise InputError(f"{where}: the count must be a whole number from 2 (is {count:g})")
        _limited(where, int(count))
        if parts[0] == "log" and (start <= 0 or stop <= 0):
            raise InputError(f"{where}: the ends of a log range must be above 0")
        spaced = np.geomspace if parts[0] == "log" else np.linspace
        return [float(f"{value:.12g}") for value in spaced(start, stop, int(count)).tolist()]
    if len(parts) == 3 and _is_number(parts[0]):
        grows = parts[2].startswith("x")
        start, stop, step = (_number(where, part) for part in (*parts[:2], parts[2].removeprefix("x")))
        if grows and min(start, stop, step) <= 0:
            least = f"one is {min(start, stop, step):g}"
            raise InputError(f"{where}: ends and factor must be above 0 ({least}); correct it")
        still, kind = (1, "factor") if grows else (0, "step")
        if step == still or (stop - start) * (step - still) < 0:
            turned = "take its inverse" if grows else "change its sign"
            remedy = f"give another {kind}" if step == still else f"{turned}, or swap the ends"
            raise InputError(f"{where}: a {kind} of {step:g} never leads from {start:g} to {stop:g}; {remedy}")
        steps = math.log(stop / start) / math.log(step) if grows else (stop - start) / step * (1 + 1e-9)
        count = math.floor(steps + 1e-9) + 1
        _limited(where, count)
        values = [start * step**k if grows else start + k * step for k in range(count)]
        # Values are rounded unless start and step are whole.
        return values if isinstance(start, int) and isinstance(step, int) else [float(f"{x:.12g}") for x in values]
    if len(parts) == 2 and all(_is_number(part) for part in parts):
        raise InputError(f"{where}: has no step; write it as one of {RANGE_FORMS}")
    listed = json_or_text(f"[{spec}]", path)
    if isinstance(listed, list):
        return listed
    return [json_or_text(word.strip(), path) for word in spec.split(",") if word.strip()]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(where: str, text: str) -> int | float:
    if not _is_number(text):
        raise InputError(f"{where}: {text!r} is not a finite number; write the range as one of {RANGE_FORMS}")
    value = json_or_text(text, where)
    return value if isinstance(value, (int, float)) else float(text)


def _limited(where: str, count: int) -> None:
    if count > MAX_VALUES:
        raise InputError(f"{where}: spans {count:,} values; at most {MAX_VALUES:,} make sense, take a larger step")


def read_pairs(path: Path) -> list[FilePoint]:
    """Read a sweep's points taken together: a CSV with a column a path, or JSON lines with an object a point."""
    text = read_text(path, "give a CSV or a JSONL file")
    points: list[FilePoint] = []
    if path.suffix in (".jsonl", ".ndjson"):
        for number, point in json_lines(path, text, "give path and value, one object a line"):
            where = f"{path}: line {number}"
            if not point:
                raise InputError(f"{where}: has no path; give path and value, one object a line")
            points.append(FilePoint({canonical(key): value for key, value in point.items()}, where, where))
    else:
        rows = csv_rows(path, text)
        top, cells = next(rows, (1, []))
        head = [canonical(cell.strip()) for cell in cells]
        for number, cells in rows:
            where = f"{path}: line {number}"
            values = [json_or_text(cell.strip(), where) for cell in cells]
            points.append(FilePoint(dict(zip(head, values, strict=True)), where, f"{path}: line {top}"))
    if not points:
        raise InputError(f"{path}: has no points; give a row a point, below a header of paths")
    return points


def points_of(vary: Mapping[str, str | Sequence[Any]], pairs: Sequence[Point] = ()) -> list[Point]:
    """Return the points of a sweep: all axes combined, each a text of the forms above or values; pairs are one axis.

    The last one varies fastest, so that neighbours in the list are neighbours on the grid.
    """
    axes: list[list[Point]] = []  # of one path, or of several paths taken together
    for path, values in vary.items():
        if not isinstance(values, Sequence):
            raise InputError(f'{path}: must be a list of values or a text such as "1:8:1" (is {values!r})')
        parsed = parse_values(path, values) if isinstance(values, str) else list(values)
        if not parsed:
            raise InputError(f"{path}: has no values; give at least one")
        axes.append([{canonical(path): value} for value in parsed])
    axes += [list(pairs)] if pairs else []
    if not axes:
        raise InputError("sweep: nothing varies; give --vary PATH=VALUES or --pairs FILE")
    paths = Counter(path for axis in axes for path in {path for point in axis for path in point})
    twice = sorted(path for path, count in paths.items() if count > 1)
    if twice:
        raise InputError(f"{twice[0]}: is varied by two axes; keep one")
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_VALUES:
        raise InputError(f"the axes span {count:,} points; at most {MAX_VALUES:,} make sense, take fewer values")
    return [{key: value for part in parts for key, value in part.items()} for parts in itertools.product(*axes)]


def shard_of(text: str) -> tuple[int, int]:
    """Read a sweep's shard I/N: the I-th of N parts, counted from 1."""
    part, slash, parts = text.partition("/")
    if not slash or not part.isdigit() or not parts.isdigit() or not 1 <= int(part) <= int(parts):
        raise InputError(f"shard {text!r}: must be I/N with I from 1 to N, such as 3/8")
    return int(part), int(parts)


def in_shard(count: int, shard: tuple[int, int]) -> range:
    """Return the indices of a sweep's points in one shard: contiguous, so that neighbours stay together, and even."""
    part, parts = shard
    return range(count * (part - 1) // parts, count * part // parts)
