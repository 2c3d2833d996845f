"""Values that stand in for wrong ones, so that the rest of a file can be judged in the same reading."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from planner.instance.renamed_keys import Location

Schema = dict[str, Any]
PLAINEST = {"string": "?", "boolean": False, "object": {}, "null": None}


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a type."""
    return model.model_json_schema()


def put_stand_in(model: type[BaseModel], data: Any, location: Location, *, again: bool) -> bool:
    """Put the plainest value of its type in place of the one at a location; return whether that was to be done.

    A key that may be left out is taken away, an object that may be only where it was put there before (`again`).
    """
    *parents, last = location
    root = schema_of(model)
    holder, schemas = data, list(_forms(root, root))
    for part in parents:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return False
        schemas = [form for s in schemas for inner in _inside(s, part) for form in _forms(inner, root)]
    inner = [x for s in schemas for x in _inside(s, last)]
    needed = any(last in s.get("required", ()) for s in schemas)
    made = not again and any("properties" in form for x in inner for form in _forms(x, root))
    if isinstance(holder, dict) and not (inner and (needed or made)):
        return holder.pop(str(last), holder) is not holder
    if not inner:
        return False
    if isinstance(holder, dict):
        holder[str(last)] = _plainest(inner[0], root)
    elif isinstance(holder, list) and isinstance(last, int) and last in range(len(holder)):
        holder[last] = _plainest(inner[0], root)
    else:
        return False
    return True


def _forms(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield what a schema allows, references and alternatives resolved."""
    if "$ref" in schema:
        yield from _forms(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    elif "anyOf" in schema:
        for form in schema["anyOf"]:
            yield from _forms(form, root)
    else:
        yield schema


def _inside(schema: Schema, part: int | str) -> list[Schema]:
    """Return the schema of a key or of an item, where there is one."""
    if isinstance(part, int):
        fixed = schema.get("prefixItems", [])[part : part + 1]
        return fixed or ([schema["items"]] if isinstance(schema.get("items"), dict) else [])
    found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return [found] if isinstance(found, dict) else []


def _plainest(schema: Schema, root: Schema) -> Any:
    """Return the plainest value of a schema: an object where it may be one, the least number that it allows."""
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
