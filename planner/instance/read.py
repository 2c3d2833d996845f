"""Check JSON data against their types, and report what is wrong with them: file, path, value, remedy."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from planner.errors import InputError, hint
from planner.instance.renamed_keys import renamed, renames_in

M = TypeVar("M", bound=BaseModel)
MAX_COUNT = 10**9  # of whatever is counted; the largest figure of this kind is a vocabulary of 256,000
KEY_CUTOFF = 0.5  # of difflib's ratio: keys are longer than ids, so a chance likeness is nearer


def validated(model: type[M], data: Any, where: str) -> M:
    """Return data as their type; `where` names them in errors.

    Raises
    ------
    InputError
        Names each JSON path, the value and what was expected; of a file of schema version 1, the keys to rename.
    """
    if isinstance(data, Mapping) and data.get("schema_version") == 1 and "schema_version" in model.model_fields:
        raise InputError(_version_complaint(data, where))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, where, model))) from None


def complaints(error: ValidationError, where: str, model: type[BaseModel]) -> Iterator[str]:
    """Return each validation error as `file: path: what (is value); remedy`."""
    for e in error.errors(include_url=False):
        path = dotted(e["loc"])
        if e["type"] == "extra_forbidden":
            yield f"{where}: {path}: unknown key; {_key_hint(e['loc'], model)}"
        elif e["type"] == "missing":
            yield f"{where}: {path}: is missing; add it"
        else:
            message = e["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            shown = json.dumps(e["input"], default=str)
            value = "" if isinstance(e["input"], (dict, list)) else f" (is {shown[:80]})"
            yield f"{where}: {path or 'the whole'}: {message}{value}; fix it there"


def _version_complaint(data: Mapping[str, Any], where: str) -> str:
    """Return the line that data of schema version 1 get: their keys to rename, each with its first path."""
    paths: dict[tuple[int | str, str], list[str]] = {}
    for location, new in renames_in((), data):
        paths.setdefault((location[-1], new), []).append(dotted(location))
    more = {key: f" (and {len(at) - 1} more)" if len(at) > 1 else "" for key, at in paths.items()}
    renames = [f"{at[0]} to {key[1]}{more[key]}" for key, at in paths.items()]
    remedy = f"rename {', '.join(renames)}, and write 2" if renames else "none of its keys has a new name, so write 2"
    return f"{where}: schema_version: must be 2 (is 1); {remedy}"


def _key_hint(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return what to do about an unknown key: its new name, the nearest known key, or all of them."""
    new = renamed(location)
    if new is not None:
        return f"it is called {new!r} since schema version 2; rename it"
    known = _keys_at(model, location[:-1])
    return hint(str(location[-1]), known, KEY_CUTOFF) if known else "remove it"


def dotted(location: tuple[int | str, ...]) -> str:
    """Write a JSON location as `grid.nodes[3].latitude`, without the arms of unions."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part[:1].isupper() and part not in {"str", "bool", "function-after", "none"}:
            text += f".{part}" if text else part
    return text


def too_large(instance: BaseModel) -> Iterator[str]:
    """Name counts of an instance that no datacenter has: their products would leave the range of solvers and floats."""
    left: list[tuple[tuple[int | str, ...], Any]] = [((), instance.model_dump())]
    while left:
        at, value = left.pop()
        if isinstance(value, dict):
            left += [((*at, k), v) for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            left += [((*at, i), v) for i, v in enumerate(value)]
        elif isinstance(value, int) and abs(value) > MAX_COUNT:
            yield f"{dotted(at)}: must be at most {MAX_COUNT:,} (is {value}); correct it"


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
        model = _model_in(inner)
        if model is not None:
            return model
    return None
