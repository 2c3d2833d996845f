"""Base types of frozen data: units of their numbers, sources, parts changed by name, and marks of their JSON Schema."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from planner.errors import InputError, hint, shown
from planner.instance.validation import validated


def _no_flag(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "Input should be a valid number")
    return value


Positive = Annotated[float, Field(gt=0), BeforeValidator(_no_flag)]
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_no_flag)]
Fraction = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_flag)]
Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(_no_flag)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_no_flag)]
Dtype = Literal["fp4", "fp8", "bf16", "fp16", "fp32"]
# Of instances and plans. Version 2 has other names for some keys, which their types read too.
SchemaVersion = Annotated[Literal[3], BeforeValidator(lambda version: 3 if version == 2 else version)]
NOT_MODELLED = "not modelled: "  # begins what a note says of items that may change the answer


class Frozen(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Base type of the frozen data of instances and plans, which refuses unknown keys and non-finite numbers."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where frozen data have a number: pydantic takes them for 1 and 0."""
        if isinstance(value, bool):
            kinds = set(re.findall(r"\w+", str(cls.model_fields[info.field_name or ""].annotation)))
            return _no_flag(value) if kinds & {"int", "float"} and not kinds & {"bool", "Any"} else value
        return value

    def replaced(self, **values: Any) -> Self:
        """Return frozen data with other values, validated as in a file but for parts that were before.

        `limits__budget_usd` names one of a part; None takes a value away. InputError: a value is wrong or has no place.
        """
        kind, where, inner = type(self), f"{type(self).__name__}: ", dict[str, dict[str, Any]]()
        for path in [path for path in values if "__" in path]:
            part, _, name = path.partition("__")
            inner.setdefault(part, {})[name] = values.pop(path)
        for name in [name for name in (*values, *inner) if name not in kind.model_fields]:
            raise InputError(f"{where}{name}: unknown key; {hint(name, kind.model_fields)}")
        for part, own in inner.items():
            if not isinstance(holder := getattr(self, part), Frozen):
                raise InputError(f"{where}{part}.{next(iter(own))}: {part} is {shown(holder)}; give it whole")
            try:
                values[part] = holder.replaced(**own)
            except InputError as error:
                raise InputError(re.sub(r"(?m)^\w+: ", f"{where}{part}.", str(error))) from None
        for name, value in values.items():
            if not all(isinstance(part, BaseModel) for part in (value if isinstance(value, tuple) else (value,))):
                given = {} if value is None and not may_be_none(self, name) else {name: value}
                values[name] = getattr(validated(_alone(kind, name), given, kind.__name__), name)
        return self.model_copy(update=values)


@cache
def _alone(kind: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the type of frozen data with one field alone, by which a value of it is validated without the others."""
    own: Any = {name: (kind.model_fields[name].annotation, kind.model_fields[name])}
    return create_model(kind.__name__, __base__=Frozen, **own)


def may_be_none(part: object, name: str) -> bool:
    """Return whether None is a value at a key of frozen data; where it is not, it takes the value away."""
    field = type(part).model_fields.get(name) if isinstance(part, BaseModel) else None
    return field is not None and (field.annotation is Any or type(None) in get_args(field.annotation))


class Sourced(Frozen):
    """Base type of the data that a user gives in an instance, with the source of the figures and a note."""

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
    """Add `like` to the JSON Schema of a base type: an entry of the catalogue that supplies missing keys but `name`."""
    text = "An entry of the catalogue whose figures stand for all that is left out but `name`."
    schema["properties"]["like"] = {"type": "string", "title": "Like", "description": text}
    schema |= {"if": {"not": {"required": ["like"]}}, "then": {"required": schema["required"]}, "required": ["name"]}


def with_schema(schema: dict[str, Any]) -> None:
    """Add `$schema` to the JSON Schema of a base type, by which a file names its schema for editors."""
    text = "Names the JSON Schema for editors; no part of the data."
    schema["properties"]["$schema"] = {"type": "string", "title": "$Schema", "description": text}


MAX_COUNT = 10**9  # of whatever is counted and has no range of its own
