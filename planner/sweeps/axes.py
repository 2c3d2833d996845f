"""The axes of a sweep: ranges, lists and pairs, and the grid of points that they span."""

import csv
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import json_or_text, parse_json, read_text
from planner.sweeps.instance_paths import canonical

MAX_VALUES = 1_000_000  # of one axis; more is a typing mistake, and would fill memory before the first solve
FORMS = "START:STOP:STEP, START:STOP:xFACTOR, log:START:STOP:COUNT, lin:START:STOP:COUNT or A,B,C"
Point = dict[str, Any]  # value by canonical path
Axis = list[Point]  # points of one path, or of several paths taken together


def read_vary(given: Sequence[str]) -> dict[str, str]:
    """Read PATH=VALUES options of the command line."""
    specs: dict[str, str] = {}
    for text in given:
        path, equals, spec = text.partition("=")
        if not equals or not path or not spec:
            example = f"such as limits.budget_usd=20e9:200e9:10e9 ({FORMS})"
            raise InputError(f"--vary {text!r}: must be PATH=VALUES, {example}")
        if path in specs:
            raise InputError(f"--vary {path}: is given twice; join its values in one list")
        specs[path] = spec
    return specs


def axis_of(path: str, values: str | Sequence[Any]) -> Axis:
    """Return the points of one axis from a text of the forms above, or from the values themselves."""
    parsed = parse_values(path, values) if isinstance(values, str) else list(values)
    if not parsed:
        raise InputError(f"{path}: has no values; give at least one")
    return [{canonical(path): v} for v in parsed]


def parse_values(path: str, spec: str) -> list[Any]:
    """Read the values of one axis: a range, or a list of JSON values and plain words.

    START:STOP:STEP is even and has STOP in it where a step meets it; START:STOP:xFACTOR multiplies; log: and lin:
    divide the range into COUNT values, both ends included.
    """
    where = f"{path}={spec}"
    parts = spec.split(":")
    if parts[0] in ("log", "lin"):
        if len(parts) != 4:
            raise InputError(f"{where}: must be {parts[0]}:START:STOP:COUNT")
        return _counted(where, parts[0], *(_number(where, p) for p in parts[1:]))
    if len(parts) == 3 and _is_number(parts[0]):
        start, stop = _number(where, parts[0]), _number(where, parts[1])
        if parts[2].startswith("x"):
            return _geometric(where, start, stop, _number(where, parts[2][1:]))
        return _even(where, start, stop, _number(where, parts[2]))
    if len(parts) == 2 and all(_is_number(p) for p in parts):
        raise InputError(f"{where}: has no step; write it as one of {FORMS}")
    values = json_or_text(f"[{spec}]", path)
    return values if isinstance(values, list) else [json_or_text(x.strip(), path) for x in spec.split(",") if x.strip()]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(where: str, text: str) -> int | float:
    if not _is_number(text):
        raise InputError(f"{where}: {text!r} is not a finite number; write the range as one of {FORMS}")
    value = json_or_text(text, where)
    return value if isinstance(value, (int, float)) else float(text)


def _rounded(x: float) -> float:
    return float(f"{x:.12g}")


def _even(where: str, start: int | float, stop: int | float, step: int | float) -> list[Any]:
    if step == 0 or (stop - start) * step < 0:
        problem = f"a step of {step:g} never leads from {start:g} to {stop:g}"
        raise InputError(f"{where}: {problem}; change its sign or the ends")
    count = math.floor((stop - start) / step * (1 + 1e-9) + 1e-9) + 1
    _limited(where, count)
    exact = isinstance(start, int) and isinstance(step, int)
    return [start + k * step if exact else _rounded(start + k * step) for k in range(count)]


def _geometric(where: str, start: int | float, stop: int | float, factor: int | float) -> list[Any]:
    if start <= 0 or stop <= 0 or factor <= 0 or factor == 1 or (stop - start) * (factor - 1) < 0:
        problem = f"a factor of {factor:g} never leads from {start:g} to {stop:g}"
        raise InputError(f"{where}: {problem}; ends and factor must be above 0")
    count = math.floor(math.log(stop / start) / math.log(factor) + 1e-9) + 1
    _limited(where, count)
    exact = isinstance(start, int) and isinstance(factor, int)
    return [start * factor**k if exact else _rounded(start * factor**k) for k in range(count)]


def _counted(where: str, kind: str, start: float, stop: float, count: float) -> list[Any]:
    if count != int(count) or count < 2:
        raise InputError(f"{where}: the count must be a whole number from 2 (is {count:g})")
    _limited(where, int(count))
    if kind == "log" and (start <= 0 or stop <= 0):
        raise InputError(f"{where}: the ends of a log range must be above 0")
    parts = [k / (int(count) - 1) for k in range(int(count))]
    if kind == "log":
        return [_rounded(start * (stop / start) ** t) for t in parts]
    return [_rounded(start + (stop - start) * t) for t in parts]


def _limited(where: str, count: int) -> None:
    if count > MAX_VALUES:
        raise InputError(f"{where}: spans {count:,} values; at most {MAX_VALUES:,} make sense, take a larger step")


def read_pairs(path: Path) -> Axis:
    """Read points taken together: a CSV with a column a path, or JSON lines with an object a point."""
    text = read_text(path, "give a CSV or a JSONL file")
    read = _pairs_from_lines if path.suffix in (".jsonl", ".ndjson") else _pairs_from_csv
    points = list(read(path, text))
    if not points:
        raise InputError(f"{path}: has no points; give a row a point, below a header of paths")
    return points


def _pairs_from_lines(path: Path, text: str) -> Iterator[Point]:
    # Not splitlines: JSON text may hold U+0085, U+2028 and U+2029 as they are.
    for n, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        point = parse_json(line, f"{path}: line {n}")
        if not isinstance(point, dict) or not point:
            raise InputError(f"{path}: line {n}: must be an object of path and value (is {line[:60]}); give one a line")
        yield {canonical(k): v for k, v in point.items()}


def _pairs_from_csv(path: Path, text: str) -> Iterator[Point]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from _points(path, rows)
    except csv.Error as error:
        raise InputError(f"{path}: line {rows.line_num}: {error}; correct the quotes there") from None


def _points(path: Path, rows: Any) -> Iterator[Point]:
    head = [canonical(h.strip()) for h in next(rows, [])]
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            problem = f"has {len(row)} cells under {len(head)} columns"
            raise InputError(f"{path}: line {rows.line_num}: {problem}; give one a column")
        where = f"{path}: line {rows.line_num}"
        yield {h: json_or_text(cell.strip(), where) for h, cell in zip(head, row, strict=True)}


def grid_of(axes: Sequence[Axis]) -> list[Point]:
    """Combine all axes; the last one varies fastest, so that neighbours in the list are neighbours on the grid."""
    paths = [p for axis in axes for p in sorted({p for point in axis for p in point})]
    twice = sorted({p for p in paths if paths.count(p) > 1})
    if twice:
        raise InputError(f"{twice[0]}: is varied by two axes; keep one")
    count = math.prod(len(a) for a in axes)
    if count > MAX_VALUES:
        raise InputError(f"the axes span {count:,} points; at most {MAX_VALUES:,} make sense, take fewer values")
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)]


def points_of(vary: Mapping[str, str | Sequence[Any]], pairs: Axis | None = None) -> list[Point]:
    """Return the points of a sweep: the grid of its axes, the pairs being one axis."""
    axes = [axis_of(path, values) for path, values in vary.items()]
    if pairs:
        axes.append(pairs)
    if not axes:
        raise InputError("sweep: nothing varies; give --vary PATH=VALUES or --pairs FILE")
    return grid_of(axes)


def shard_of(text: str) -> tuple[int, int]:
    """Read I/N: the I-th of N parts, counted from 1."""
    part, slash, parts = text.partition("/")
    if not slash or not part.isdigit() or not parts.isdigit() or not 1 <= int(part) <= int(parts):
        raise InputError(f"--shard {text!r}: must be I/N with I from 1 to N, such as 3/8")
    return int(part), int(parts)


def in_shard(count: int, shard: tuple[int, int]) -> range:
    """Return the positions of one part: contiguous, so that neighbours stay together, and as even as can be."""
    part, parts = shard
    return range(count * (part - 1) // parts, count * part // parts)
