"""Plausible ranges of an instance's figures: a warning for each outside its range, and for each that nothing reads.

The ranges are those of catalogue/plausible_ranges.json: by the ends of keys' paths, `*` for a name that the user gives,
the lowest and the highest value and the reason. Where a key may be 0, 0 means none and is plausible; shares have their
range in their types.
"""

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

from planner.instance.base_types import figures
from planner.instance.catalogue_entries import catalogue, racks_with
from planner.instance.instance import Instance, hardware_kind

# Sources: rows of planner/catalogue and instances/, which name theirs, and a factor of ten or more beyond on either
# side; published models, campuses and power systems; where neither exists, the judgement of this project.
USUAL = {key: dict(usual) for keys, usual in catalogue("plausible_ranges").items() for key in keys.split()}


def implausible(instance: Instance) -> Iterator[str]:
    """Yield a warning for each implausible or unread key of an instance, and for racks and recipes of other GPUs."""
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
    """Log each warning about an instance's implausible figures once."""
    for line in dict.fromkeys(line for instance in instances for line in implausible(instance)):
        logging.getLogger("planner").warning("implausible: %s", line)


@cache
def usual_range(key: str) -> dict[str, Any] | None:
    """Return low, high and reason of the plausible range of a key, by the longest end of its path that has one."""
    parts = key.split(".")
    return next((USUAL[end] for i in range(len(parts)) if (end := ".".join(parts[i:])) in USUAL), None)
