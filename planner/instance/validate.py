"""Check JSON data against their types: report every fault by its path, and a reader's notes on a file by item."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from planner.errors import InputError, hint, shown
from planner.instance.base_types import Frozen
from planner.instance.instance import Instance

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
OBJECT_DUE = re.compile(r"input should be (a valid dictionary or (an )?(instance|object).*|an object)$")
NAMING = re.compile(r"^(grid|wan|hardware)($|\..*(\.id|\.name|\.accelerator|\])$)")  # what others refer to
NO_SUCH_NAME = re.compile("does not exist|no such decision| has no (fp|bf)")
MOST_LINES = 100  # of a message
ROUNDS = 8  # in which the checks of a file whose faults hide others are done again
KEY_CUTOFF = 0.5  # of difflib's ratio: keys are longer than ids, so a chance likeness is nearer
Schema = dict[str, Any]
ADDED_KEYS = ("like", "$schema")  # of a JSON Schema, that its type has no field for
PLAINEST = {"string": "?", "boolean": False, "object": {}, "null": None}  # in place of wrong values
NO_EFFECT = ""  # the effect of an item that changes neither time nor memory nor money
NEARLY = 0.8  # of difflib's ratio: an item is nearly another's name
NOT_MODELLED = "not modelled: "  # begins what a note says of items that may change the answer


@dataclass
class Faults:
    """Faults of JSON data: complaints, and replaced places, near which further complaints are dropped."""

    lines: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def add(self, path: str, complaint: str) -> None:
        """Add a complaint about a place of JSON data, unless its value is replaced by a placeholder."""
        pairs = ((outer, inner) for place in self.replaced for outer, inner in ((path, place), (place, path)))
        if not any(inner == outer or inner.startswith((f"{outer}.", f"{outer}[")) for outer, inner in pairs):
            self.lines.append(f"{path}: {complaint}" if path else complaint)


def validated(
    model: type[M],
    data: Any,
    where: str,
    *,
    problems: Callable[[M], Iterable[str]] = lambda _: (),
    faults: Faults | None = None,
) -> M:
    """Return JSON data validated as their type; `where` names them in errors.

    All faults are reported at once: a wrong value is replaced by a placeholder, so that the rest can be checked.
    `problems` yields the faults of data whose types are right; `faults` are those found before, with their placeholders
    in the data. InputError names each path, value and what was expected; of version 1, where to find the keys.
    """
    if isinstance(data, Mapping) and data.get("schema_version") == 1 and "schema_version" in model.model_fields:
        kind = "plan" if "instance" in model.model_fields else "instance"
        remedy = f"write 3, and the keys that are then refused as `planner schema {kind}` names them"
        raise InputError(f"{where}: schema_version: must be 3 (is 1); {remedy}")
    faults, result = faults or Faults(), None
    for _ in range(ROUNDS):
        try:
            result = model.model_validate(data)
            break
        except ValidationError as error:
            found = list(_errors(error, model, data))
        # A list is too short where its items are wrong.
        wrong = [error for error in found if not any(one[0][: len(error[0])] == error[0] != one[0] for one in found)]
        for path, complaint in wrong:
            faults.add(dotted(path), complaint)
        data = json.loads(json.dumps(data, default=str))
        places = {path: dotted(path) for path, _ in wrong}
        if not all(put_stand_in(model, data, path, drop=name in faults.replaced) for path, name in places.items()):
            break  # too much is wrong to go on
        faults.replaced += places.values()
    unnamed = any(NAMING.search(place) for place in faults.replaced)
    for problem in () if result is None else islice(problems(result), MOST_LINES):
        place, _, complaint = problem.partition(": ")
        if not (unnamed and NO_SUCH_NAME.search(complaint)):
            faults.add(place, complaint)
    if faults.lines or result is None:
        left = len(faults.lines) - MOST_LINES
        more = [f"and {left:,} more faults; mend these first"] if left > 0 else []
        raise InputError("\n".join([*(f"{where}: {line}" for line in faults.lines[:MOST_LINES]), *more]))
    return result


def _errors(error: ValidationError, model: type[BaseModel], data: Any) -> Iterator[tuple[Location, str]]:
    errors = []
    for fault in error.errors(include_url=False):
        # Of a key with several forms the value is meant as the one that it has: an object, a list, or a number or name.
        nested = isinstance(fault["input"], (dict, list, tuple))
        other = fault["type"] in (("string_type", "float_type", "int_type") if nested else ("tuple_type", "list_type"))
        errors.append((located(fault["loc"], data, missing=fault["type"] == "missing"), fault, other))
    meant = [path for path, _, other in errors if not other]
    for path, fault, other in errors:
        if other and any(own[: len(path)] == path for own in meant):
            continue
        if fault["type"] == "extra_forbidden":
            *parents, key = fault["loc"]
            root = schema_of(model)
            forms = list(_forms(root, root))
            for part in parents:
                forms = _forms_inside(forms, part, root) or forms  # a step of validation's own leads nowhere
            keys: Schema = next((form["properties"] for form in forms if "properties" in form), {})
            known = sorted(own for own in keys if own not in ADDED_KEYS)
            yield path, f"unknown key; {hint(str(key), known, KEY_CUTOFF) if known else 'remove it'}"
        elif fault["type"] == "missing":
            yield path, "is missing; add it"
        else:
            message = fault["msg"].removeprefix("Value error, ")
            message = OBJECT_DUE.sub("must be an object", message[0].lower() + message[1:])
            message = message.replace("tuple", "list").replace(" after validation", "")
            whole = isinstance(fault["input"], (dict, list)) and not fault["type"].endswith(("_type", "literal_error"))
            value = "" if whole else f" (is {shown(fault['input'])})"
            yield path, f"{message}{value}; fix it there"


def located(location: Location, data: Any, *, missing: bool) -> Location:
    """Return the JSON location of a validation error, without validation's own steps; a `missing` key stays last."""
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


def dotted(location: Iterable[int | str]) -> str:
    """Write a JSON location as `grid.nodes[3].latitude`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a type, by which data are validated."""
    return model.model_json_schema()


def put_stand_in(model: type[BaseModel], data: Any, location: Location, *, drop: bool) -> bool:
    """Put the plainest value of its type at a location of JSON data, or remove it (object to `drop`); say whether."""
    if not location:
        return False
    *parents, last = location
    root = schema_of(model)
    holder, schemas = data, list(_forms(root, root))
    for part in parents:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return False
        schemas = _forms_inside(schemas, part, root)
    inner = [found for schema in schemas for found in _inside(schema, last)]
    needed = any(last in schema.get("required", ()) for schema in schemas)
    made = not drop and any("properties" in form for schema in inner for form in _forms(schema, root))
    if isinstance(holder, dict) and not (inner and (needed or made)):
        return holder.pop(str(last), holder) is not holder
    listed = isinstance(holder, list) and isinstance(last, int) and last < len(holder)
    if inner and (listed or isinstance(holder, dict)):
        holder[str(last) if isinstance(holder, dict) else last] = _plainest(inner[0], root)
        return True
    return False


def _forms(schema: Schema, root: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _forms(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    elif "anyOf" in schema:
        for form in schema["anyOf"]:
            yield from _forms(form, root)
    else:
        yield schema


def _forms_inside(schemas: list[Schema], part: int | str, root: Schema) -> list[Schema]:
    return [form for schema in schemas for inner in _inside(schema, part) for form in _forms(inner, root)]


def _inside(schema: Schema, part: int | str) -> list[Schema]:
    if isinstance(part, int):
        fixed = schema.get("prefixItems", [])[part : part + 1]
        return fixed or ([schema["items"]] if isinstance(schema.get("items"), dict) else [])
    found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return [found] if isinstance(found, dict) else []


def _plainest(schema: Schema, root: Schema) -> Any:
    forms = sorted(_forms(schema, root), key=lambda form: form.get("type") != "object")
    form, kind = forms[0], forms[0].get("type")
    if "const" in form or "enum" in form:
        return form.get("const", form.get("enum", [None])[0])
    if kind in ("number", "integer"):
        return form["exclusiveMinimum"] + 1 if "exclusiveMinimum" in form else form.get("minimum", 0)
    if kind == "array":
        fixed, more = form.get("prefixItems", []), form.get("items")
        items = [*fixed, *([more] * form.get("minItems", 0) if isinstance(more, dict) else [])]
        return [_plainest(item, root) for item in items]
    if "properties" in form:
        return {key: _plainest(form["properties"][key], root) for key in form.get("required", ())}
    return PLAINEST.get(str(kind))


class ReadItems(Frozen):
    """Items of an imported file by their names there, each in one of five groups by the use that was made of it."""

    taken: tuple[str, ...] = Field((), description="The answer follows their values.")
    defaulted: tuple[str, ...] = Field((), description="Left out by the file, with the value taken for them.")
    ignored: tuple[str, ...] = Field((), description="They change neither time nor memory nor money.")
    not_modelled: tuple[str, ...] = Field((), description="They may change the answer, which does not follow them.")
    unknown: tuple[str, ...] = Field((), description="Of no name that the reader knows, with one nearly alike.")

    def note(self) -> str | None:
        """Return a sentence on a file's items that are not modelled or unknown; None where none matters."""
        unknown = (name.partition(": ") for name in self.unknown)
        names = [*self.not_modelled, *(f"{name} (unknown{sign}{meant})" for name, sign, meant in unknown)]
        return f"{NOT_MODELLED}{', '.join(names)}" if names else None


class TrackedItems(Mapping[str, Any]):
    """Items of an imported file by name, which record the ones looked up, and the defaults taken for missing ones."""

    def __init__(self, items: Mapping[str, Any], looked_up: set[str] | None = None) -> None:
        self._items, self.defaults = items, dict[str, Any]()
        self.looked_up: set[str] = set() if looked_up is None else looked_up  # rows of a table share it

    def __getitem__(self, name: str) -> Any:
        self.looked_up.add(name)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an item of an imported file, or the default that is taken for it."""
        if self._items.get(name) is None and default is not None:
            self.defaults[name] = default
        return super().get(name, default)

    def read(self, effect_of: Callable[[str, Any], str | None], show: str = "{}") -> ReadItems:
        """Group a file's items by use; `effect_of` an item never looked up: `NO_EFFECT`, words, or None (unknown).

        An unknown one comes with the name that was looked up in vain and that it is nearly.
        """
        left = {name: effect_of(name, self._items[name]) for name in self._items if name not in self.looked_up}
        vain = self.looked_up - set(self._items)
        meant = {name: difflib.get_close_matches(name, vain, 1, NEARLY) for name in left if left[name] is None}
        return ReadItems(
            taken=tuple(show.format(name) for name in self._items if name in self.looked_up),
            defaulted=tuple(f"{show.format(name)} {value}" for name, value in self.defaults.items()),
            ignored=tuple(show.format(name) for name, effect in left.items() if effect == NO_EFFECT),
            not_modelled=tuple(
                f"{show.format(name)} ({why})".removesuffix(" (-)") for name, why in left.items() if why
            ),
            unknown=tuple(
                show.format(name) + "".join(f": did you mean {show.format(other)}?" for other in near)
                for name, near in meant.items()
            ),
        )


def not_modelled_notes(instance: Instance) -> Iterator[str]:
    """Yield the sentences in an instance's notes on items that are not modelled, with the part that has the note."""
    work = getattr(instance, "workload", None)
    parts = {"workload": work, "grid": getattr(instance, "grid", None)}
    parts |= {name: getattr(work, name, None) for name in ("model", "software")}
    for name, part in parts.items():
        for sentence in (getattr(part, "note", None) or "").split("; "):
            if NOT_MODELLED in sentence:
                yield sentence if name == "workload" else f"{name}: {sentence}"
