"""Read an instance: JSON, catalogue names, references and pins; every complaint names path, value and remedy."""

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from planner.choice import Choose, Family
from planner.errors import InputError
from planner.instance import SOFT_UNITS, Accelerator, Grid, Instance, Wan, Workload
from planner.physics.grid import power_flow_gaps
from planner.pins import check_pins
from planner.pool_references import pool_problems
from planner.wan_references import wan_problems

# Where an instance may hold a catalogue name in the place of an object, and the catalogue that has it.
NAMED = {
    ("workload", "model"): "models",
    ("hardware", "accelerator"): "accelerators",
    ("hardware", "rack"): "racks",
    ("workload", "software"): "software",
}
# The same inside workload.choose.
NAMED_LAWS = {"law": "scaling_laws", "loss": "scaling_laws", "critical_batch": "batch_laws"}


@cache
def catalogue(kind: str) -> dict[str, Any]:
    """Return a catalogue by kind: accelerators, racks, switches, models or scaling_laws."""
    text = resources.files("planner").joinpath("catalogue", f"{kind}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def load_instance(given: Instance | Mapping[str, Any] | str | Path, *, pins: Mapping[str, Any] | None = None, searched: bool = True) -> Instance:
    """Return a checked instance with its catalogue names resolved; `given` is a path, a dict or an Instance.

    What only a search needs (the critical batch, the racks at hand) may be missing where nothing is searched.

    Raises
    ------
    InputError
        Names the file, the JSON path, the value, what was expected and the nearest valid key.
    """
    where = str(given) if isinstance(given, (str, Path)) else "instance"
    if isinstance(given, Instance):
        data: Any = given.model_dump(mode="json", exclude_none=True)
    elif isinstance(given, Mapping):
        data = json.loads(json.dumps(given))
    else:
        data = read_json(Path(given))
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a JSON object (is {type(data).__name__}); see `planner schema instance`")
    if pins:
        data["pins"] = {**(data.get("pins") or {}), **pins}
    data = _with_names_resolved(data, where)
    try:
        instance = Instance.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, where, Instance))) from None
    problems = list(_reference_problems(instance, searched=searched))
    problems.extend(check_pins(instance))
    if problems:
        raise InputError("\n".join(f"{where}: {p}" for p in problems))
    return instance


def read_json(path: Path) -> Any:
    """Read a JSON file, or say what is wrong with it and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.json")] if path.parent.is_dir() else [], 1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else "; check the path"
        raise InputError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error}); give a JSON file") from None
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}; fix the JSON there") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [k for k, n in Counter(k for k, _ in pairs).items() if n > 1]
    if twice:
        raise ValueError(f"key {twice[0]!r} stands twice in one object; keep one")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number; give a finite figure")


def _with_names_resolved(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Put catalogue entries in the place of their names."""
    data = json.loads(json.dumps(data))
    if isinstance(data.get("workload"), dict):
        data["workload"].setdefault("software", Workload.model_fields["software"].default)
        if isinstance(data["workload"].get("choose"), dict):
            _resolve_choice(data["workload"], where)
    for (part, key), kind in NAMED.items():
        holder = data.get(part)
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            holder[key] = _entry(kind, holder[key], f"{where}: {part}.{key}")
    if isinstance(data.get("hardware"), dict):
        _resolve_pools(data["hardware"], where)
    network = data.get("network")
    for kind in ("switches", "media"):
        if isinstance(network, dict) and isinstance(network.get(kind), list):
            network[kind] = [_entry(kind, x, f"{where}: network.{kind}[{i}]") if isinstance(x, str) else x for i, x in enumerate(network[kind])]
    return data


def _resolve_pools(hardware: dict[str, Any], where: str) -> None:
    """Put catalogue entries in the place of the pools' names; the first pool's stand for the hardware's own where these are absent."""
    pools = hardware.get("pools")
    for i, pool in enumerate(pools if isinstance(pools, list) else ()):
        for key in ("accelerator", "rack"):
            if isinstance(pool, dict) and isinstance(pool.get(key), str):
                pool[key] = _entry(NAMED["hardware", key], pool[key], f"{where}: hardware.pools[{i}].{key}")
            if isinstance(pool, dict) and i == 0 and key in pool:
                hardware.setdefault(key, pool[key])


def _resolve_choice(workload: dict[str, Any], where: str) -> None:
    """Put laws in the place of their names, and a model to start from where none is given."""
    choose = workload["choose"]
    for key, kind in NAMED_LAWS.items():
        given = choose.setdefault(key, Choose.model_fields[key].default)
        if isinstance(given, str):
            choose[key] = _entry(kind, given, f"{where}: workload.choose.{key}")
    family = choose.setdefault("family", {})
    if isinstance(family, dict):
        depth = family.setdefault("depth", Family.model_fields["depth"].default)
        if isinstance(depth, str):
            family["depth"] = _entry("depth_laws", depth, f"{where}: workload.choose.family.depth")
    if "model" not in workload or "tokens" not in workload:
        try:
            asked = Choose.model_validate(choose)
        except ValidationError:
            return  # the whole instance is refused with the same complaint, under its own path
        from planner.models.model_choice import any_model

        start = any_model(asked)
        workload.setdefault("model", start.model.model_dump(mode="json", exclude_none=True))
        workload.setdefault("tokens", start.tokens)


def _entry(kind: str, name: str, path: str) -> Any:
    known = catalogue(kind)
    if name in known:
        return known[name]
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), list(folded), 1, 0.4)
    hint = f"did you mean {folded[near[0]]!r}? " if near else ""
    raise InputError(f"{path}: {name!r} is not in the catalogue; {hint}known: {', '.join(sorted(known))}")


def complaints(error: ValidationError, where: str, model: type[BaseModel]) -> Iterator[str]:
    """Say each validation error as `file: path: what (is value); remedy`."""
    for e in error.errors(include_url=False):
        path = dotted(e["loc"])
        if e["type"] == "extra_forbidden":
            known = _keys_at(model, e["loc"][:-1])
            near = difflib.get_close_matches(str(e["loc"][-1]), known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}" if known else "remove it"
            yield f"{where}: {path}: unknown key; {hint}"
        elif e["type"] == "missing":
            yield f"{where}: {path}: is missing; add it"
        else:
            message = e["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            shown = json.dumps(e["input"], default=str)
            held = "" if isinstance(e["input"], (dict, list)) else f" (is {shown[:80]})"
            yield f"{where}: {path or 'the whole'}: {message}{held}; fix it there"


def dotted(location: tuple[int | str, ...]) -> str:
    """Write a JSON location as `grid.nodes[3].latitude`; the arms of a union are left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part[:1].isupper() and part not in {"str", "bool", "function-after", "none"}:
            text += f".{part}" if text else part
    return text


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """List the keys that are valid at a location, by walking the types."""
    current: Any = model
    for part in location:
        fields = getattr(current, "model_fields", None)
        if fields is None or part not in fields:
            continue
        current = _model_in(fields[part].annotation) or current
    return sorted(getattr(current, "model_fields", {}))


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_in(inner)
        if found is not None:
            return found
    return None


def _reference_problems(instance: Instance, *, searched: bool) -> Iterator[str]:
    """Name every reference that leads nowhere and every id that stands twice."""
    compute, gpu = instance.workload.precision.compute, instance.hardware.accelerator
    if isinstance(gpu, Accelerator) and compute not in gpu.peak_flop_per_second:
        has = ", ".join(sorted(gpu.peak_flop_per_second))
        yield f"workload.precision.compute: {gpu.name} has no {compute} (has {has}); choose one of these or add its peak"
    yield from pool_problems(instance)
    law = instance.workload.choose.critical_batch if instance.workload.choose else None
    if instance.limits.max_batch_tokens is None and searched and law is None:
        yield "limits.max_batch_tokens: is missing; give the critical batch in tokens (published laws span 1e7 to 1e9)"
    elif instance.limits.max_batch_tokens is not None and instance.limits.max_batch_tokens < instance.workload.sequence_length:
        yield (
            f"limits.max_batch_tokens: must be at least one sequence of {instance.workload.sequence_length} tokens "
            f"(is {instance.limits.max_batch_tokens:g}); raise it or shorten workload.sequence_length"
        )
    if instance.network is not None and instance.network.media and instance.network.floor is None:
        yield "network.floor: is missing; media are priced by length, which needs the floor; give {} for the usual one"
    if instance.grid is not None:
        if instance.hardware.racks is not None:
            yield f"hardware.racks: the grid decides how many racks there are (is {instance.hardware.racks}); remove it, or pin sites.racks"
        yield from _grid_problems(instance.grid)
        yield from wan_problems(instance.grid, instance.wan or Wan())
    elif instance.network is not None and instance.hardware.racks is None:
        yield "hardware.racks: is missing; without a grid the one cluster needs its number of racks"
    if instance.objective.minimize == "loss":
        if instance.workload.choose is None:
            yield "workload.choose: is missing; say by which law and of which family the model is chosen"
        if instance.limits.deadline_days is None:
            yield "limits.deadline_days: is missing; the best model without a deadline has no end; give one"
    if instance.objective.minimize == "cost_usd" and instance.limits.deadline_days is None:
        yield "limits.deadline_days: is missing; the cheapest plan that may take for ever is no plan; give a deadline"


def _grid_problems(grid: Grid) -> Iterator[str]:
    families = (
        [(f"grid.balancing_authorities[{i}]", b.id) for i, b in enumerate(grid.balancing_authorities)],
        [(f"grid.nodes[{i}]", n.id) for i, n in enumerate(grid.nodes)],
        [(f"grid.lines[{i}]", c.id) for i, c in enumerate(grid.lines)] + [(f"grid.new_lines[{i}]", c.id) for i, c in enumerate(grid.new_lines)],
    )
    for family in families:
        first: dict[str, str] = {}
        for path, name in family:
            if first.setdefault(name, path) != path:
                yield f"{path}.id: {name!r} is already the id of {first[name]}; rename one"
    authorities = sorted({b.id for b in grid.balancing_authorities})
    nodes = sorted({n.id for n in grid.nodes})
    for i, n in enumerate(grid.nodes):
        if n.balancing_authority not in authorities:
            yield f"grid.nodes[{i}].balancing_authority: {_unknown(n.balancing_authority, authorities)}"
    corridors = [(f"grid.lines[{i}]", c.a, c.b) for i, c in enumerate(grid.lines)]
    corridors += [(f"grid.new_lines[{i}]", c.a, c.b) for i, c in enumerate(grid.new_lines)]
    yield from _scenario_problems(grid, authorities, nodes)
    for name in sorted(set(grid.rules.soft) - set(SOFT_UNITS)):
        yield f"grid.rules.soft.{name}: no rule of that name can be soft; known: {', '.join(SOFT_UNITS)}"
    if "rating" in grid.rules.soft and grid.rules.grid_model == "dc":
        yield 'grid.rules.soft.rating: needs the grid model "transport" (is "dc"); remove it'
    for path, a, b in corridors:
        for end, node in (("a", a), ("b", b)):
            if node not in nodes:
                yield f"{path}.{end}: {_unknown(node, nodes)}"
        if a == b:
            yield f"{path}: both ends are {a!r}; a line joins two nodes"
    yield from power_flow_gaps(grid)


def _scenario_problems(grid: Grid, authorities: list[str], nodes: list[str]) -> Iterator[str]:
    total = sum(s.weight for s in grid.scenarios)
    if total > 1 + 1e-9:
        yield f"grid.scenarios: weights must sum to at most 1 (are {total:g}); lower them"
    names = Counter(s.name for s in grid.scenarios)
    for i, s in enumerate(grid.scenarios):
        if not s.name:
            yield f"grid.scenarios[{i}].name: is empty; rows and reports tell a scenario by its name, so give one"
        elif names[s.name] > 1:
            yield f"grid.scenarios[{i}].name: {s.name!r} stands {names[s.name]} times; rename one"
        for key, known in (("headroom_mw", authorities), ("energy_usd_per_mwh", authorities), ("generation_mw", nodes)):
            for name in sorted(set(getattr(s, key)) - set(known)):
                yield f"grid.scenarios[{i}].{key}: {_unknown(name, known)}"


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.4)
    return f"{name!r} does not exist; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}")
