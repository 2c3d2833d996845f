"""The catalogue's entries by kind and name, and the mark of an instance's parts that a file may give by such a name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from planner.errors import hint, shown

LIKE = "like"  # the key by which an entry names another, and of its sources the one that says why
IN_FULL = "in full"  # the context of validation of a plan's instance, which has every part as an object
UNKNOWN_NAME = "unknown_name"  # the type of a validation error


@cache
def catalogue(kind: str) -> dict[str, Any]:
    """Return the entries of a catalogue by kind: accelerators, racks, switches, models or scaling_laws."""
    text = resources.files("planner").joinpath("catalogue", f"{kind}.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)
    return {name: completed(entry, entries) if isinstance(entry, dict) else entry for name, entry in entries.items()}


def racks_with(accelerator: str) -> list[str]:
    """Return the racks and nodes of the catalogue that are built for an accelerator."""
    return [rack for rack, entry in catalogue("rack_accelerators").items() if accelerator in entry["accelerators"]]


def completed(entry: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a catalogue's entry in full: one `like` another has its figures, but for the name, the note and its own.

    A part with a source of its own is completed key by key; every other value, peaks by type too, is replaced whole.
    """
    if LIKE not in entry:
        return dict(entry)
    source = entry.get("source")
    reasons = dict(source) if isinstance(source, Mapping) else {}
    taken = ", ".join([f"taken over from {entry[LIKE]}", *([reasons.pop(LIKE)] if LIKE in reasons else [])])
    full: dict[str, Any] = {}
    for key, value in known[entry[LIKE]].items():
        own = entry.get(key, {})
        if isinstance(value, dict) and "source" in value and isinstance(own, Mapping):
            full[key] = {**value, "source": taken, **own}
        elif key not in ("name", "note", "source"):
            full[key] = entry.get(key, value)
            reasons.setdefault(key, taken)
    rest = {key: value for key, value in entry.items() if key != LIKE and key not in full}
    return {**rest, **full, "source": source if isinstance(source, str) else reasons}


@dataclass(frozen=True)
class Named:
    """Marks the type of an instance's part that may be given by the name of a catalogue's entry, taken in its place.

    An accelerator may also be `like` an entry. The name `other` is no entry's, and stays.
    """

    kind: str
    other: str | None = None

    def entry(self, given: Any, info: ValidationInfo) -> Any:
        """Return the entry of a part given by its name, a part completed by the entry that it is like, or any other."""
        is_like = self.kind == "accelerators" and isinstance(given, Mapping) and LIKE in given
        name, known, in_full = given[LIKE] if is_like else given, catalogue(self.kind), info.context == IN_FULL
        is_object = isinstance(given, (Mapping, BaseModel))
        if (is_object and (in_full or not is_like)) or (name is not None and name == self.other):
            return given
        if in_full or not isinstance(name, str) or name not in known:
            due = "an object, as a plan has every part in full" if in_full else "an object or a name of the catalogue"
            problem = f"must be {'a name of the catalogue' if is_like else due} (is {shown(name)}); fix it there"
            if isinstance(name, str) and not in_full:
                problem = f"{name!r} is not in the catalogue; {hint(name, sorted(known))}"
            error = PydanticCustomError(UNKNOWN_NAME, "{problem}", {"problem": problem})
            location = (LIKE,) if is_like else ()
            raise ValidationError.from_exception_data(
                str(name), [InitErrorDetails(type=error, loc=location, input=name)]
            )
        return completed(given, known) if is_like else known[name]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema by which pydantic takes the entry of a name before it validates an instance's part."""
        return core_schema.with_info_before_validator_function(self.entry, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of an instance's part with the string that names it."""
        inline = handler(schema)
        return {"anyOf": [*(inline.get("anyOf") or inline.get("oneOf") or [inline]), {"type": "string"}]}


def by_default(kind: str, name: str, description: str) -> Any:
    """Return the field of an instance's part that is a catalogue's entry where it is left out."""
    return Field(
        default_factory=lambda: catalogue(kind)[name],
        validate_default=True,
        description=description,
        json_schema_extra={"default": name},
    )
