"""Small instances with one or two optional keys of the schema drawn from their declared ranges."""

import json
import math
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import joint_toys
from stored_plans import ROOT

from planner.instance.plausible_ranges import range_of

Path = tuple[str | int, ...]
Schema = dict[str, Any]
SKIPPED = {"source", "note", "pins", "name", "schema_version", "$schema"}
NAMES = {"a": "E1", "b": "W1", "id": "new", "balancing_authority": "E"}  # of what others refer to, or of a new part
BY_NAME = {"reliability": ["llama3-2024"], "precision": ["bf16", "fp8"], "software": ["megatron-core", "nemo"]}


@cache
def schema() -> Schema:
    return json.loads((ROOT / "instances" / "schema" / "instance.schema.json").read_text(encoding="utf-8"))


def forms(part: Schema) -> list[Schema]:
    """List what a part of the schema allows, null aside."""
    if "$ref" in part:
        return forms(schema()["$defs"][part["$ref"].rpartition("/")[2]])
    if "anyOf" in part:
        return [form for inner in part["anyOf"] for form in forms(inner)]
    return [] if part.get("type") == "null" else [part]


@cache
def optional_keys() -> tuple[tuple[Path, str], ...]:
    """List every key that may be left out, by its path; of lists the first item's, of mappings a new one's."""

    def under(part: Schema, at: Path) -> Iterator[Path]:
        for form in forms(part):
            for key, inner in form.get("properties", {}).items():
                if key in SKIPPED:
                    continue
                if key not in form.get("required", ()):
                    yield (*at, key)
                yield from under(inner, (*at, key))
            if isinstance(form.get("items"), dict):
                yield from under(form["items"], (*at, 0))
            if isinstance(form.get("additionalProperties"), dict) and "parts" in at:
                yield from under(form["additionalProperties"], (*at, "gpu"))

    return tuple(dict.fromkeys((path, ".".join(map(str, path))) for path in under(schema(), ())))


def part_at(path: Path) -> Schema:
    part = schema()
    for key in path:
        for form in forms(part):
            found = form.get("items") if isinstance(key, int) else form.get("properties", {}).get(key)
            found = found or form.get("additionalProperties")
            if isinstance(found, dict):
                part = found
                break
    return part


def number(form: Schema, key: str, now: Any, r: random.Random) -> float:
    """Draw a number: near the present one, anywhere in its range, or at an end of it."""
    whole = form["type"] == "integer"
    low = form.get("minimum", form.get("exclusiveMinimum", 0))
    high = form.get("maximum", form.get("exclusiveMaximum", 1))
    least = max(low, min(range_of(key, whole=whole)[0], high))  # 0 is allowed beside it where it is the minimum
    kind = r.random()
    if kind < 0.5:
        usual = form.get("default") or (3 if whole else min(high, 1.0))
        start = now if isinstance(now, (int, float)) and now else usual
        value = start * 10 ** r.uniform(-1, 1)
    elif kind < 0.8 and high > least > 0:
        value = math.exp(r.uniform(math.log(least), math.log(high)))
    else:
        value = r.choice([low, high, least])
    value = min(max(value, low if value <= 0 else least), high)
    if value == high and "exclusiveMaximum" in form:
        value = high * (1 - 1e-9)
    return round(value) if whole else value


def drawn(part: Schema, key: str, now: Any, r: random.Random, *, names: dict[str, str]) -> Any:
    if key in BY_NAME and r.random() < 0.5:
        return r.choice(BY_NAME[key])
    form = r.choice(forms(part))
    if "const" in form or "enum" in form:
        return r.choice(form.get("enum", [form.get("const")]))
    kind = form["type"]
    if kind in ("array", "object"):
        return (_list if kind == "array" else _object)(form, key, r, names)
    plain = {"boolean": r.random() < 0.5, "string": names.get(key, "new")}
    return plain[kind] if kind in plain else number({**form, "default": part.get("default")}, key, now, r)


def _list(form: Schema, key: str, r: random.Random, names: dict[str, str]) -> list[Any]:
    """Draw a short list without the same item twice."""
    count = r.randint(max(1, form.get("minItems", 0)), 2)
    items = [drawn(form["items"], key, None, r, names=names) for _ in range(count)]
    return [x for i, x in enumerate(items) if x not in items[:i]]


def _object(form: Schema, key: str, r: random.Random, names: dict[str, str]) -> dict[str, Any]:
    """Draw an object: what it must have, and some of what it may have; a mapping of one name."""
    inner = form.get("additionalProperties")
    if isinstance(inner, dict):
        name = {"peak_flop_per_second": "bf16", "max_share": "bf16", "parts": "gpu", "soft": "headroom"}.get(key, "E")
        return {name: drawn(inner, key, None, r, names=names)}
    known, needed = form.get("properties", {}), form.get("required", ())
    some = sorted(k for k in known if k in needed or (k not in SKIPPED and r.random() < 0.3))
    return {k: drawn(known[k], k, None, r, names=names) for k in some}


def put(data: dict[str, Any], path: Path, r: random.Random) -> None:
    """Draw a value for a path, with the parts above it where they are missing."""
    nodes = [n["id"] for n in (data.get("grid") or {}).get("nodes", [])]
    names = NAMES | ({"a": nodes[0], "b": nodes[-1]} if nodes else {})
    holder: Any = data
    for depth, key in enumerate(path[:-1], 1):
        there = key < len(holder) if isinstance(holder, list) else key in holder
        inside = holder[key] if there else None
        if not isinstance(inside, (dict, list)) or (not inside and isinstance(path[depth], int)):
            inside = drawn(part_at(path[:depth]), str(key), None, r, names=names)
            if not isinstance(inside, (dict, list)):
                return
            if isinstance(holder, list):
                holder[:] = [inside]
            else:
                holder[key] = inside
        holder = inside
    last = path[-1]
    now = holder.get(last) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder[last] = drawn(part_at(path), str(last), now, r, names=names)


def instance(seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return a small instance with one or two keys drawn, and their paths."""
    r, keys = random.Random(f"keys {seed}"), optional_keys()
    chosen = [keys[seed % len(keys)], *([r.choice(keys)] if seed >= len(keys) else [])]
    places = any(path[0] in ("grid", "wan") for path, _ in chosen)
    case = 5 * r.randrange(8) + r.choice([1, 2] if places else [0, 3, 4])  # of joint_toys, of the kinds with a grid
    base = joint_toys.case(case) if r.random() < 0.5 else joint_toys.toy(case, sites=2 if places else 0)
    data = base.model_dump(mode="json", exclude_none=True)
    for path, _ in chosen:
        put(data, path, r)
    return data, [name for _, name in chosen]
