"""Check JSON data against their types, and report what is wrong with them: file, path, value, remedy."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from planner.errors import InputError, hint
from planner.instance.renamed_keys import Location, renamed, renames_in

M = TypeVar("M", bound=BaseModel)
MAX_COUNT = 10**9  # of whatever is counted; the largest figure of this kind is a vocabulary of 256,000
OBJECT_DUE = re.compile(r"input should be (a valid dictionary or (an )?(instance|object).*|an object)$")
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
        raise InputError("\n".join(complaints(error, where, model, data))) from None


def complaints(error: ValidationError, where: str, model: type[BaseModel], data: Any) -> Iterator[str]:
    """Return each validation error of data as `file: path: what (is value); remedy`."""
    errors = error.errors(include_url=False)
    # An object where a name would do too is meant as the object.
    meant = [e for e in errors if e["type"] != "string_type" or not isinstance(e["input"], (dict, list))]
    for e in meant or errors:
        path = dotted(located(e["loc"], data, missing=e["type"] == "missing"))
        if e["type"] == "extra_forbidden":
            yield f"{where}: {path}: unknown key; {_key_hint(e['loc'], model)}"
        elif e["type"] == "missing":
            yield f"{where}: {path}: is missing; add it"
        else:
            message = e["msg"].removeprefix("Value error, ")
            message = OBJECT_DUE.sub("must be an object", message[0].lower() + message[1:])
            shown = json.dumps(e["input"], default=str)
            value = "" if isinstance(e["input"], (dict, list)) else f" (is {shown[:80]})"
            yield f"{where}: {path or 'the whole'}: {message}{value}; fix it there"


def located(location: Location, data: Any, *, missing: bool) -> Location:
    """Return where in the data an error is: its location without the names that the validation has for its own steps.

    The last part of what is `missing` is no key of the data and stays.
    """
    found: list[int | str] = []
    for i, part in enumerate(location):
        if isinstance(data, Mapping) and part in data:
            data = data[str(part)]
        elif isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not (missing and i == len(location) - 1):
            continue
        found.append(part)
    return tuple(found)


def _version_complaint(data: Mapping[str, Any], where: str) -> str:
    """Return the line that data of schema version 1 get: their keys to rename, each with its first path."""
    paths: dict[tuple[int | str, str], list[str]] = {}
    for location, new in renames_in((), data):
        paths.setdefault((location[-1], new), []).append(dotted(location))
    more = {key: f" (and {len(at) - 1} more)" if len(at) > 1 else "" for key, at in paths.items()}
    renames = [f"{at[0]} to {key[1]}{more[key]}" for key, at in paths.items()]
    remedy = f"rename {', '.join(renames)}, and write 3" if renames else "none of its keys has a new name, so write 3"
    return f"{where}: schema_version: must be 3 (is 1); {remedy}"


def _key_hint(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return what to do about an unknown key: its new name, the nearest known key, or all of them."""
    new = renamed(location)
    if new is not None:
        return f"it is called {new!r} since schema version 2; rename it"
    known = _keys_at(model, location[:-1])
    return hint(str(location[-1]), known, KEY_CUTOFF) if known else "remove it"


def dotted(location: Location) -> str:
    """Write a JSON location as `grid.nodes[3].latitude`."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
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
