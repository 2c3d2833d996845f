"""Validation of JSON data as their types, which names every fault by its path."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import islice
from operator import getitem
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import ValidationError

from planner.errors import InputError, hint, shown
from planner.instance.catalogue_entries import LIKE, UNKNOWN_NAME, catalogue

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
# Keys at which a fault is one of the whole part, from which all else that is wrong with it follows.
CAUSES: dict[int | str, str] = {"kind": "literal_error", LIKE: "extra_forbidden"}
SINGLE_DUE = ("string_type", "float_type", "int_type", "literal_error")
LIST_DUE = ("tuple_type", "list_type")
OBJECT_DUE = re.compile(r"input should be (a valid dictionary or (an )?(instance|object).*|an object)$")
UNNAMED = (  # places of wrong values to which others refer, and complaints that are then due to them
    (re.compile(r"^(grid|wan|hardware)($|\..*(\.id|\.name|\])$)"), re.compile("does not exist|no such decision")),
    (re.compile(r"^hardware($|\..*(accelerator(\.like)?|\])$)"), re.compile(" has no (fp|bf)")),
    (re.compile(r"^objective(\.minimize)?$"), re.compile("^chooses a model where")),
)
MOST_LINES = 100  # of a message
ROUNDS = 8  # in which the checks of a file whose faults hide others are done again
KEY_CUTOFF = 0.5  # of difflib's ratio: keys are longer than ids, so a chance likeness is nearer
Schema = dict[str, Any]
ADDED_KEYS = ("like", "$schema")  # of a JSON Schema, that its type has no field for
PLAINEST = {"string": "?", "boolean": False, "object": {}, "null": None}  # in place of wrong values


@dataclass
class Faults:
    """The faults of data under validation: complaints, and replaced or copied places, whose own faults are dropped."""

    lines: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)  # from places at which their faults are named

    def add(self, path: str, complaint: str) -> None:
        """Add a validation complaint about a place of an instance, unless its value is a placeholder or a copy."""
        places = (*self.replaced, *self.copied)
        pairs = ((outer, inner) for place in places for outer, inner in ((path, place), (place, path)))
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
    """Return JSON data validated as an instance's or another type; `where` names them in errors.

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
        for path, _, complaint in wrong:
            faults.add(dotted(path), complaint)
        data = json.loads(json.dumps(data, default=lambda x: x.model_dump() if isinstance(x, BaseModel) else str(x)))
        places = {part: dotted(part) for _, part, _ in wrong}
        if not all(put_stand_in(model, data, path, drop=name in faults.replaced) for path, name in places.items()):
            break  # too much is wrong to go on
        faults.replaced += places.values()
    due = [complaints for places, complaints in UNNAMED if any(map(places.search, faults.replaced))]
    for problem in () if result is None else islice(problems(result), MOST_LINES):
        place, _, complaint = problem.partition(": ")
        if not any(complaints.search(complaint) for complaints in due):
            faults.add(place, complaint)
    if faults.lines or result is None:
        left = len(faults.lines) - MOST_LINES
        more = [f"and {left:,} more faults; mend these first"] if left > 0 else []
        raise InputError("\n".join([*(f"{where}: {line}" for line in faults.lines[:MOST_LINES]), *more]))
    return result


def _errors(error: ValidationError, model: type[BaseModel], data: Any) -> Iterator[tuple[Location, Location, str]]:
    """Yield the place of each fault, that of the value to replace, and the complaint."""
    faults = error.errors(include_url=False)
    causes = [x["loc"] for x in faults if x["loc"] and x["type"] == CAUSES.get(x["loc"][-1])]
    faults = [x for x in faults if x["loc"] in causes or not any(x["loc"][: len(y) - 1] == y[:-1] for y in causes)]
    errors = list[tuple[Location, Any, bool]]()
    for fault in faults:
        # Of a key with several forms the value is meant as the one that it has: an object, a list, or a number or name.
        # So a fault of another form counts where there is none of that.
        other = fault["type"] in (SINGLE_DUE if isinstance(fault["input"], (dict, list, tuple)) else LIST_DUE)
        errors.append((located(fault["loc"], data, missing=fault["type"] == "missing"), fault, other))
    for path, fault, other in errors:
        if other and any(own[: len(path)] == path for own, _, also in errors if not also):
            continue
        part = path[:-1] if fault["loc"] in causes and path[-1:] == fault["loc"][-1:] else path
        if fault["type"] == "extra_forbidden":
            forms = [form.get("properties", {}) for form in _forms_at(model, path[:-1])]
            of_kind = [own for own in forms if own.get("kind", {}).get("const") in fault["loc"]]  # that the value has
            known = sorted({key for own in of_kind or forms for key in own}.difference(ADDED_KEYS))
            yield path, part, f"unknown key; {hint(str(path[-1]), known, KEY_CUTOFF) if known else 'remove it'}"
        elif fault["type"] == "missing":
            yield path, part, "is missing; add it"
        elif fault["type"] == UNKNOWN_NAME:
            yield path, part, fault["msg"]
        elif fault["type"] == "union_tag_invalid":
            due, kind = fault["ctx"]["expected_tags"].replace(", ", " or "), shown(fault["input"]["kind"])
            yield (*path, "kind"), part, f"input should be {due} (is {kind}); fix it there"
        else:
            message = fault["msg"].removeprefix("Value error, ")
            message = OBJECT_DUE.sub("must be an object", message[0].lower() + message[1:])
            message = message.replace("tuple", "list").replace(" after validation", "")
            whole = isinstance(fault["input"], (dict, list)) and not fault["type"].endswith(("_type", "literal_error"))
            value = "" if whole else f" (is {shown(fault['input'])})"
            text = isinstance(fault["input"], str) and fault["type"] in LIST_DUE
            yield path, part, f"{message}{value}; {'write it in square brackets' if text else 'fix it there'}"


def located(location: Location, data: Any, *, missing: bool) -> Location:
    """Return the JSON location of a validation error, without validation's own steps; a `missing` key stays last."""
    found: list[int | str] = []
    for i, part in enumerate(location):
        listed = isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data)
        if listed or (isinstance(data, Mapping) and part in data):
            data = data[part]
        elif not (missing and i == len(location) - 1):
            continue
        found.append(part)
    return tuple(found)


def dotted(location: Iterable[int | str]) -> str:
    """Write the JSON location of a validation fault as `grid.nodes[3].latitude`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a type, by which validation knows the keys and forms of its data."""
    return model.model_json_schema()


def put_stand_in(model: type[BaseModel], data: Any, location: Location, *, drop: bool) -> bool:
    """Put a placeholder for a wrong value, so that validation goes on, or remove it (object to `drop`); say whether."""
    if not location:
        return False
    *parents, last = location
    try:
        holder = reduce(getitem, parents, data)
    except (KeyError, IndexError, TypeError):
        return False
    if last == LIKE and isinstance(holder, dict) and not drop:
        holder[LIKE] = next(iter(catalogue("accelerators")))
        return True
    forms = _forms_at(model, location)
    above = _forms_at(model, parents)
    needed = any(last in form.get("then", form).get("required", ()) for form in above)
    named = not any(last in form.get("properties", ()) for form in above)  # by the user, of which one may be due
    made = not drop and (named or any("properties" in form for form in forms))
    if isinstance(holder, dict) and not (forms and (needed or made)):
        return holder.pop(str(last), holder) is not holder
    listed = isinstance(holder, list) and isinstance(last, int) and last < len(holder)
    if forms and (listed or isinstance(holder, dict)):
        holder[str(last) if isinstance(holder, dict) else last] = _plainest({"anyOf": forms}, schema_of(model))
        return True
    return False


def _forms_at(model: type[BaseModel], location: Iterable[int | str]) -> list[Schema]:
    root = schema_of(model)
    forms = list(_forms(root, root))
    for part in location:
        inside = list[Any]()
        for form in forms:
            if isinstance(part, int):
                inside += form.get("prefixItems", [])[part : part + 1] or [form.get("items")]
            else:
                named = [form.get("additionalProperties"), *form.get("patternProperties", {}).values()]
                inside += [form["properties"][part]] if part in form.get("properties", {}) else named
        forms = [form for schema in inside if isinstance(schema, dict) for form in _forms(schema, root)]
    return forms


def _forms(schema: Schema, root: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _forms(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    elif "anyOf" in schema:
        for form in schema["anyOf"]:
            yield from _forms(form, root)
    else:
        yield schema


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
        required = form.get("then", form).get("required", ())  # an accelerator like no other has more
        return {key: _plainest(form["properties"][key], root) for key in required}
    return PLAINEST.get(str(kind))
