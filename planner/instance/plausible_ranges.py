"""Allowed and plausible ranges of an instance's figures: an error outside the one, a warning outside the other.

The plausible ones are those of catalogue/plausible_ranges.json: by the ends of keys' paths, `*` for a name that the
user gives, the lowest and the highest value and the reason. Where a key may be 0, 0 means none and is plausible; shares
have their range in their types.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from planner.instance.base_types import MAX_COUNT
from planner.instance.catalogue_entries import catalogue, racks_with
from planner.instance.hardware import hardware_kind
from planner.instance.instance import Instance

# Sources: rows of planner/catalogue and instances/, which name theirs, and a factor of ten or more beyond on either
# side; published models, campuses and power systems; where neither exists, the judgement of this project.
USUAL = {key: dict(usual) for keys, usual in catalogue("plausible_ranges").items() for key in keys.split()}


def implausible(instance: Instance) -> Iterator[str]:
    """Yield a warning for each figure of an instance outside its plausible range, or unread, or of another GPU."""
    yield from implausible_figures(instance)
    hardware, work, gpu = instance.hardware, instance.workload, instance.hardware.accelerator
    kinds: list[tuple[str, Any]] = [("hardware", hardware)]
    for name in ("alternatives", "pools"):
        kinds += [(f"hardware.{name}[{i}]", own) for i, own in enumerate(getattr(hardware, name))]
    for path, own in kinds:  # accelerators of the catalogue in racks of it that are built for others
        chip, rack = hardware_kind(own)
        built_for = catalogue("rack_accelerators").get(rack, {}).get("accelerators", [chip])
        if chip in catalogue("accelerators") and chip not in built_for:
            right = " or ".join(racks_with(chip)) or "one of your own with its gpus, it_kw and price_usd"
            yield (
                f"{path}.rack is {rack}, a rack of {' or '.join(built_for)}, and {path}.accelerator is {chip}: "
                f"price and power are those of {rack}; set {path}.rack to {right}"
            )
    # The stack scales FP8 by blocks of 32, as only GPUs do that have FP4 too, from Blackwell (SM100) on: Transformer
    # Engine, docs/features/low_precision_training/mxfp8.
    recipe = "workload.software.fp8_recipe"
    by_blocks = work.precision.compute == "fp8" and work.software.fp8_recipe == "mxfp8"
    if by_blocks and "fp4" not in gpu.peak_flop_per_second:
        yield f"{recipe} is mxfp8, which {gpu.name} does not run: set {recipe} to per_tensor, blockwise or delayed"
    # Limits and parts that do not bind, as what makes them bind is missing.
    grid = instance.grid
    if grid is None:
        if instance.wan is not None:
            yield "wan is not read: it joins the sites of a grid, and there is none"
        return
    nodes = [(f"grid.nodes[{index}].", node) for index, node in enumerate(grid.nodes) if node.site]
    for key, binds, remedy in (
        ("area_m2", hardware.cooling_kw_per_m2 is not None, "give hardware.cooling_kw_per_m2"),
        ("interconnect_mw", grid.rules.interconnect.enabled, "set grid.rules.interconnect.enabled"),
    ):
        given = [path for path, node in nodes if getattr(node, key) is not None]
        if given and not binds:
            more = f" (and {len(given) - 1} more)" if len(given) > 1 else ""
            yield f"{given[0]}{key}{more} limits no site: {remedy}"
    if grid.scenarios and grid.rules.scenarios == "off":
        yield "grid.scenarios are not read: set grid.rules.scenarios to robust or expected"
    if grid.rules.scenarios != "off" and not grid.scenarios:
        yield f"grid.rules.scenarios is {grid.rules.scenarios} without grid.scenarios, which would list the years"


def implausible_figures(instance: Instance) -> Iterator[str]:
    """Yield a warning for each key of an instance outside its plausible range: the first figure, and how many."""
    outside: dict[str, list[tuple[str, str]]] = {}
    for path, key, value in figures(instance):
        usual = usual_range(key)
        if usual is not None and value and not usual["low"] <= value <= usual["high"]:
            expected = f"from {usual['low']:g} to {usual['high']:g}: {usual['reason']}"
            outside.setdefault(key, []).append((f"{path} is {value:.6g}", expected))
    for (first, expected), *others in outside.values():
        more = f" (and {len(others)} more)" if others else ""
        yield f"{first}{more}, not {expected}"


def warn(*instances: Instance) -> None:
    """Log each warning about a figure of an instance outside its plausible range once."""
    for line in dict.fromkeys(line for instance in instances for line in implausible(instance)):
        logging.getLogger("planner").warning("implausible: %s", line)


@cache
def usual_range(key: str) -> dict[str, Any] | None:
    """Return low, high and reason of the plausible range of a key, by the longest end of its path that has one."""
    parts = key.split(".")
    return next((USUAL[end] for i in range(len(parts)) if (end := ".".join(parts[i:])) in USUAL), None)


SMALLEST, LARGEST = 1e-15, 1e24  # of a figure whose unit has no range of its own; 0 is allowed wherever its type does
# The first pattern that a whole key matches gives its range. Products of figures within them stay far within a float.
RANGES: dict[str, tuple[float, float]] = {key: (low, high) for key, (low, high) in catalogue("allowed_ranges").items()}


@cache
def range_of(key: str, *, whole: bool) -> tuple[float, float]:
    """Return the allowed range of the number at a key of an instance, where it is not 0: least and largest size."""
    usual = (1, MAX_COUNT) if whole else (SMALLEST, LARGEST)
    return next((RANGES[pattern] for pattern in RANGES if re.fullmatch(pattern, key)), usual)


def put_ranges(schema: dict[str, Any]) -> None:
    """Put the allowed ranges of numbers into the JSON Schema of an instance, where its types give none."""
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
    """Yield an instance's figures for their ranges: path, key without positions and with * for names, and value."""
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
    """Name the figures of an instance that are out of the allowed range of their key."""
    for path, key, value in figures(instance):
        last = key.replace(".*", "").rpartition(".")[2]  # what a mapping holds by name has the unit of the whole
        low, high = range_of(last, whole=isinstance(value, int))
        if value and not low <= abs(value) <= high:
            shown = f"{value:g}" if isinstance(value, float) else f"{value:,}"
            yield f"{path}: must be from {low:,g} to {high:,g} (is {shown[:40]}); correct it"
