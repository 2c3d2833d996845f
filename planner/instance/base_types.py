"""Base types of data, the ranges of their numbers, validation that names each fault by its path, and readers' notes."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import islice
from operator import getitem
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError, ValidationError

from planner.errors import InputError, hint, shown
from planner.instance.catalogue_entries import LIKE, UNKNOWN_NAME, catalogue

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dtype = Literal["fp4", "fp8", "bf16", "fp16", "fp32"]
# Of instances and plans. Version 2 has other names for some keys, which their types read too.
SchemaVersion = Annotated[Literal[3], BeforeValidator(lambda version: 3 if version == 2 else version)]
M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
# Keys at which a fault is one of the whole part, from which all else that is wrong with it follows.
CAUSES: dict[int | str, str] = {"kind": "literal_error", LIKE: "extra_forbidden"}
SINGLE_DUE = ("string_type", "float_type", "int_type", "literal_error")
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
NO_EFFECT = ""  # the effect of an item that changes neither time nor memory nor money
NEARLY = 0.8  # of difflib's ratio: an item is nearly another's name
NOT_MODELLED = "not modelled: "  # begins what a note says of items that may change the answer


class Frozen(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Base type of immutable data that refuses unknown keys and non-finite numbers."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where frozen data have a number: pydantic takes them for 1 and 0."""
        if isinstance(value, bool):
            kinds = set(re.findall(r"\w+", str(cls.model_fields[info.field_name or ""].annotation)))
            if kinds & {"int", "float"} and not kinds & {"bool", "Any"}:
                raise PydanticCustomError("number_type", "Input should be a valid number")
        return value

    def replaced(self, **values: Any) -> Self:
        """Return frozen data with other values, validated as in a file but for parts that were before.

        `limits__budget_usd` names one of a part. ValidationError: a value is wrong.
        """
        inner: dict[str, dict[str, Any]] = {}
        for path in [path for path in values if "__" in path]:
            part, _, name = path.partition("__")
            inner.setdefault(part, {})[name] = values.pop(path)
        values |= {part: getattr(self, part).replaced(**own) for part, own in inner.items()}
        if unknown := values.keys() - type(self).model_fields.keys():
            raise AttributeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name, value in values.items():
            if not all(isinstance(part, BaseModel) for part in (value if isinstance(value, tuple) else (value,))):
                values[name] = getattr(_alone(type(self), name)(**{name: value}), name)
        return self.model_copy(update=values)


@cache
def _alone(kind: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the type of frozen data with one field alone, by which a value of it is validated without the others."""
    own: Any = {name: (kind.model_fields[name].rebuild_annotation(), ...)}
    return create_model(kind.__name__, __base__=Frozen, **own)


class Sourced(Frozen):
    """Base type of an instance's data, with the source of its figures."""

    source: str | dict[str, str] | None = Field(None, description="Where figures come from: one text, or one by key.")
    note: str | None = Field(None, description="What a reader must know in addition to the figures.")

    def _faults(self) -> Iterable[str]:
        """Yield what does not go together in the figures of one part of an instance, each with its remedy."""
        return ()

    @model_validator(mode="after")
    def _without_fault(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self


def with_like(schema: dict[str, Any]) -> None:
    """Add `like` to the JSON Schema of a type: an entry of the catalogue that supplies missing keys but `name`."""
    text = "An entry of the catalogue whose figures stand for all that is left out but `name`."
    schema["properties"]["like"] = {"type": "string", "title": "Like", "description": text}
    schema |= {"if": {"not": {"required": ["like"]}}, "then": {"required": schema["required"]}, "required": ["name"]}


def with_schema(schema: dict[str, Any]) -> None:
    """Let a root of the JSON Schema name itself by `$schema`, which editors read and readers leave out."""
    text = "Names the JSON Schema for editors; no part of the data."
    schema["properties"]["$schema"] = {"type": "string", "title": "$Schema", "description": text}


MAX_COUNT = 10**9  # of whatever is counted and has no range of its own
SMALLEST, LARGEST = 1e-15, 1e24  # of a figure whose unit has no range of its own; 0 is allowed wherever its type does
# The first pattern that a whole key matches gives its range. Products of figures within them stay far within a float.
RANGES: tuple[tuple[str, float, float], ...] = (
    (r"racks", 1, 1_000_000),
    (r"ports", 1, 4_096),
    (r"gpus|(window_|dense_)?layers|layers_multiple_of", 1, 10_000),
    (r"(kv_)?heads|experts|count|heads_multiple_of|planes", 1, 65_536),
    (r"hidden|(shared_)?ffn|head_.*|q_rank|kv_rank", 1, 1_000_000),
    (r"max_fibre_pairs|max_wavelengths_per_pair|(max_)?circuits|max_steps|routes", 1, 1_000),
    (r"measured_gpus", 1, 1e9),
    (r"(max_batch_)?tokens", 1, 1e20),
    (r"parameters|flop", 1, 1e40),
    (r"coefficient", 1e-40, 1e40),
    (r".*_flop_per_second|.*_bytes_per_second.*", 1, 1e24),
    (r".*usd.*", 1e-9, 1e15),
    (r".*_seconds.*|.*_ms|rtt_ms.*|deadline_days", 1e-15, 1e9),
    (r".*_hours.*", 1e-6, 1e15),
    (r".*_years|.*_months", 1e-3, 1e4),
    (r".*_mw|max_excess|it_kw|.*watts|.*_per_m2", 1e-6, 1e9),
    (r".*gbps|.*_km|.*_m|bytes|.*_bytes", 1e-6, 1e18),
    (r".*_factor|slowdown|.*oversubscription|max_ratio|.*_traffic|.*aspect|ffn_ratio|round_trips", 1e-6, 1e6),
    (r"alpha|beta|slope|scale_exponent|discount_rate|.*_share_per_year|reactance_pu", 1e-6, 1e3),
    (r"exponent|intercept", 1e-12, 1e3),
)


@cache
def range_of(key: str, *, whole: bool) -> tuple[float, float]:
    """Return the least and the largest size that the number at a key of an instance may have, where it is not 0."""
    usual = (1, MAX_COUNT) if whole else (SMALLEST, LARGEST)
    return next(((low, high) for pattern, low, high in RANGES if re.fullmatch(pattern, key)), usual)


def put_ranges(schema: dict[str, Any]) -> None:
    """Put the ranges of numbers into a JSON Schema of an instance, where its types give none."""
    parts = (schema, *schema.get("$defs", {}).values())
    left = [(key, form) for part in parts for key, form in part.get("properties", {}).items()]
    while left:
        key, form = left.pop()
        inner = (*form.get("anyOf", ()), form.get("items"), form.get("additionalProperties"))
        left += [(key, other) for other in inner if isinstance(other, dict)]
        if form.get("type") in ("number", "integer") and "enum" not in form:
            low, high = range_of(key, whole=form["type"] == "integer")
            if form.get("exclusiveMinimum") == 0:
                del form["exclusiveMinimum"]
                form["minimum"] = low
            if "exclusiveMaximum" not in form:
                form.setdefault("maximum", high)


def figures(value: object, path: str = "", key: str = "") -> Iterator[tuple[str, str, float]]:
    """Yield the numbers of an instance: the path of each, its key without positions and with * for names, its value."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            at = (f"{path}.{name}", f"{key}.{name}") if path else (name, name)
            yield from figures(getattr(value, name), *at)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from figures(inner, f"{path}.{name}", f"{key}.*")
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from figures(inner, f"{path}[{i}]", key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, key, value


def leaves(value: Any, where: str = "", entry: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested JSON objects by dotted path; those of lists too where `entry` is given.

    `entry` writes the place of an item in a list: {} its id or name, or else its index, which {1} is in any case.
    """
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, f"{where}.{key}" if where else str(key), entry)
    elif isinstance(value, list) and entry is not None:
        for index, child in enumerate(value):
            name = child.get("id") or child.get("name") if isinstance(child, dict) else None
            yield from leaves(child, where + entry.format(name or index, index), entry)
    elif where:
        yield where, value


def out_of_range(instance: BaseModel) -> Iterator[str]:
    """Name the numbers of an instance that are out of the range of their key."""
    for path, key, value in figures(instance):
        last = key.replace(".*", "").rpartition(".")[2]  # what a mapping holds by name has the unit of the whole
        low, high = range_of(last, whole=isinstance(value, int))
        if value and not low <= abs(value) <= high:
            shown = f"{value:g}" if isinstance(value, float) else f"{value:,}"
            yield f"{path}: must be from {low:,g} to {high:,g} (is {shown[:40]}); correct it"


@dataclass
class Faults:
    """Faults of JSON data: complaints, and replaced or copied places, near which further complaints are dropped."""

    lines: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)  # from places at which their faults are named

    def add(self, path: str, complaint: str) -> None:
        """Add a complaint about a place of JSON data, unless its value is a placeholder or a copy."""
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
        for path, _, complaint in wrong:
            faults.add(dotted(path), complaint)
        data = json.loads(json.dumps(data, default=str))
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
        nested = isinstance(fault["input"], (dict, list, tuple))
        other = fault["type"] in (SINGLE_DUE if nested else ("tuple_type", "list_type"))
        errors.append((located(fault["loc"], data, missing=fault["type"] == "missing"), fault, other))
    for path, fault, other in errors:
        if other and any(own[: len(path)] == path for own, _, also in errors if not also):
            continue
        part = path[:-1] if fault["loc"] in causes and path[-1:] == fault["loc"][-1:] else path
        if fault["type"] == "extra_forbidden":
            forms = [form.get("properties", {}) for form in _forms_at(model, path[:-1])]
            of_kind = [own for own in forms if own.get("kind", {}).get("const") in fault["loc"]]  # that the value has
            keys = {key for own in of_kind or forms for key in own}
            known = sorted(keys.difference(ADDED_KEYS))
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
            yield path, part, f"{message}{value}; fix it there"


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
    """Write a JSON location as `grid.nodes[3].latitude`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a type, by which data are validated."""
    return model.model_json_schema()


def put_stand_in(model: type[BaseModel], data: Any, location: Location, *, drop: bool) -> bool:
    """Put the plainest value of its type at a location of JSON data, or remove it (object to `drop`); say whether."""
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
    needed = any(last in form.get("required", ()) for form in _forms_at(model, parents))
    made = not drop and any("properties" in form for form in forms)
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
                inside.append(form.get("properties", {}).get(part, form.get("additionalProperties")))
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


class UnmodelledItems(NamedTuple):
    """Items of an imported file that may change the answer, which does not follow them: known ones, and unknown."""

    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # with the name that is nearly theirs

    def note(self) -> str | None:
        """Return a sentence on a file's items that are not modelled or unknown; None where none matters."""
        unknown = (name.partition(": ") for name in self.unknown)
        names = [*self.known, *(f"{name} (unknown{sign}{meant})" for name, sign, meant in unknown)]
        return f"{NOT_MODELLED}{', '.join(names)}" if names else None


class TrackedItems(Mapping[str, Any]):
    """Items of an imported file by name, which record the ones looked up."""

    def __init__(self, items: Mapping[str, Any], looked_up: set[str] | None = None) -> None:
        self._items = items
        self.looked_up: set[str] = set() if looked_up is None else looked_up  # rows of a table share it

    def __getitem__(self, name: str) -> Any:
        self.looked_up.add(name)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def unmodelled(self, effect_of: Callable[[str, Any], str | None], show: str = "{}") -> UnmodelledItems:
        """Return a file's items never looked up, without those of `NO_EFFECT`; `effect_of`: words, None if unknown.

        An unknown one comes with the name that was looked up in vain and that it is nearly.
        """
        left = {name: effect_of(name, self._items[name]) for name in self._items if name not in self.looked_up}
        vain = self.looked_up - set(self._items)
        meant = {name: difflib.get_close_matches(name, vain, 1, NEARLY) for name in left if left[name] is None}
        return UnmodelledItems(
            tuple(f"{show.format(name)} ({why})".removesuffix(" (-)") for name, why in left.items() if why),
            tuple(
                show.format(name) + "".join(f": did you mean {show.format(other)}?" for other in near)
                for name, near in meant.items()
            ),
        )


def not_modelled_notes(instance: BaseModel) -> Iterator[str]:
    """Yield the sentences in an instance's notes on items that are not modelled, with the part that has the note."""
    work = getattr(instance, "workload", None)
    parts = {"workload": work, "grid": getattr(instance, "grid", None)}
    parts |= {name: getattr(work, name, None) for name in ("model", "software")}
    for name, part in parts.items():
        for sentence in (getattr(part, "note", None) or "").split("; "):
            if NOT_MODELLED in sentence:
                yield sentence if name == "workload" else f"{name}: {sentence}"
