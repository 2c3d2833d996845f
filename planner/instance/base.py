"""Base types of all data: frozen, sourced, and numbers with their ranges."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dtype = Literal["fp4", "fp8", "bf16", "fp16", "fp32"]
# Of instances and plans. Version 2 has other names for some keys, which their types read too.
SchemaVersion = Annotated[Literal[3], BeforeValidator(lambda version: 3 if version == 2 else version)]


class Frozen(BaseModel):
    """Immutable data that refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sourced(Frozen):
    """Data of the world, with the source of its figures."""

    source: str | dict[str, str] | None = Field(None, description="Where figures come from: one text, or one by key.")
    note: str | None = Field(None, description="What a reader must know beside the figures.")


def with_like(schema: dict[str, Any]) -> None:
    """Let the JSON Schema of a type name an entry of the catalogue that has what it leaves out, all but the name."""
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
