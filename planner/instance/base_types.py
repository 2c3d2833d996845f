"""Base types of the data of instances and plans: frozen, sourced, and numbers with their ranges."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dtype = Literal["fp4", "fp8", "bf16", "fp16", "fp32"]
# Of instances and plans. Version 2 has other names for some keys, which their types read too.
SchemaVersion = Annotated[Literal[3], BeforeValidator(lambda version: 3 if version == 2 else version)]


class Frozen(BaseModel):
    """Base type of immutable data that refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
        """Return frozen data with other values, which are not validated; `limits__budget_usd` names one of a part."""
        inner: dict[str, dict[str, Any]] = {}
        for path in [path for path in values if "__" in path]:
            part, _, name = path.partition("__")
            inner.setdefault(part, {})[name] = values.pop(path)
        values |= {part: getattr(self, part).replaced(**own) for part, own in inner.items()}
        if unknown := values.keys() - type(self).model_fields.keys():
            raise AttributeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        return self.model_copy(update=values)


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
    schema["properties"]["like"] = {
        "type": "string",
        "title": "Like",
        "description": "An entry of the catalogue whose figures stand for all that is left out but `name`.",
    }
    schema |= {"if": {"not": {"required": ["like"]}}, "then": {"required": schema["required"]}, "required": ["name"]}


def with_schema_key(schema: dict[str, Any]) -> None:
    """Let a root of the JSON Schema name itself by `$schema`, which editors read and readers leave out."""
    schema["properties"]["$schema"] = {
        "type": "string",
        "title": "$Schema",
        "description": "Names the JSON Schema for editors; no part of the data.",
    }


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
    for part in (schema, *schema.get("$defs", {}).values()):
        for key, value in part.get("properties", {}).items():
            for form in _numbers(value):
                low, high = range_of(key, whole=form["type"] == "integer")
                if form.get("exclusiveMinimum") == 0:
                    del form["exclusiveMinimum"]
                    form["minimum"] = low
                if "exclusiveMaximum" not in form:
                    form.setdefault("maximum", high)


def _numbers(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if schema.get("type") in ("number", "integer") and "enum" not in schema:
        yield schema
    for inner in (*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _numbers(inner)


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


def out_of_range(instance: BaseModel) -> Iterator[str]:
    """Name the numbers of an instance that are out of the range of their key."""
    for path, key, value in figures(instance):
        last = key.replace(".*", "").rpartition(".")[2]  # what a mapping holds by name has the unit of the whole
        low, high = range_of(last, whole=isinstance(value, int))
        if value and not low <= abs(value) <= high:
            shown = f"{value:g}" if isinstance(value, float) else f"{value:,}"
            yield f"{path}: must be from {low:,g} to {high:,g} (is {shown[:40]}); correct it"
