"""Pins of an instance: decisions fixed by hand, the values that each may have, and their short names."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from planner.errors import InputError, hint, shown
from planner.instance.instance import ONE_SITE, Instance
from planner.instance.network import FabricFamily

Check = Callable[[Any], bool]
WHOLE: tuple[Check, str] = (lambda value: type(value) is int and value >= 1, "a whole number from 1")  # a bool is none
NAME: tuple[Check, str] = (lambda value: isinstance(value, str) and bool(value), "the name of a switch")
FROM_ZERO: tuple[Check, str] = (lambda value: type(value) is int and value >= 0, "a whole number from 0")


def _list_of(entry: Check) -> Check:
    return lambda value: isinstance(value, list) and bool(value) and all(map(entry, value))


PINS: dict[str, tuple[Check, str]] = {
    **dict.fromkeys(("sites.racks", "sites.max_sites"), WHOLE),
    **dict.fromkeys(("layout.tensor_parallel", "layout.tensor_parallel_inner"), WHOLE),
    **dict.fromkeys((f"layout.{kind}_parallel" for kind in ("context", "expert", "pipeline", "data")), WHOLE),
    "layout.data_parallel_by_site": (
        lambda value: isinstance(value, dict) and all(isinstance(x, int) and x >= 0 for x in value.values()),
        "an object of site id and whole number",
    ),
    **dict.fromkeys(("layout.virtual_stages", "layout.microbatch_sequences", "layout.microbatches_per_step"), WHOLE),
    **dict.fromkeys(("layout.replicas_per_rack", "layout.stages_per_rack"), WHOLE),
    "layout.schedule": (lambda value: value in ("1f1b", "zb-h1"), "1f1b or zb-h1"),
    "layout.recompute": (lambda value: value in ("none", "selective", "full"), "none, selective or full"),
    "layout.sequence_parallel": (lambda value: isinstance(value, bool), "true or false"),
    "layout.zero_stage": (lambda value: type(value) is int and 0 <= value <= 3, "0, 1, 2 or 3"),
    "layout.layers_per_stage": (_list_of(WHOLE[0]), "a list of whole numbers from 1, one a stage, such as [8,7]"),
    "layout.recomputed_layers_per_stage": (
        _list_of(FROM_ZERO[0]),
        "a list of whole numbers from 0, one a stage, such as [2,0]",
    ),
    **dict.fromkeys(("fabric.switch", "fabric.spine_switch", "fabric.core_switch"), NAME),
    "fabric.family": (lambda value: value in get_args(FabricFamily), f"one of {', '.join(get_args(FabricFamily))}"),
    **dict.fromkeys(("fabric.planes", "fabric.ports_per_switch", "fabric.tiers", "fabric.leaf_domain_racks"), WHOLE),
    **dict.fromkeys((f"fabric.leaf_{name}" for name in ("down_ports", "up_ports", "bundle")), WHOLE),
    **dict.fromkeys((f"fabric.spine_{name}" for name in ("down_ports", "up_ports", "bundle")), WHOLE),
    **dict.fromkeys(("fabric.core_down_ports", "fabric.core_up_ports", "fabric.rails_per_pod"), WHOLE),
    **dict.fromkeys(("fabric.leaf_domains_per_pod", "fabric.group_links"), WHOLE),
    "placement.stripes": WHOLE,
    "wan.wavelengths": FROM_ZERO,
}
RACKS_AT = "sites.racks."
BLOCKS_AT = "placement.blocks."
FABRIC = "fabric."
ALIASES = {  # short names of the trade, read with and without `layout.` before them
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "vpp": "virtual_stages",
    "mbs": "microbatch_sequences",
}


def long_name(path: str) -> str:
    """Return the path of a pin in place of tp, pp, dp, ep, cp, vpp or mbs, with or without `layout.` before it."""
    short = path.removeprefix("layout.")
    return f"layout.{ALIASES[short]}" if short in ALIASES else path


def long_names(pins: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return pins by the long names of tp, pp, dp, ep, cp, vpp and mbs. InputError: one is pinned under both names."""
    result: dict[str, Any] = {}
    for path, value in pins.items():
        long = long_name(str(path))
        if result.get(long, value) != value:
            both = f"{shown(result[long])} and {shown(value)}"
            raise InputError(f"{where}: pins.{path}: {long} is pinned twice ({both}); keep one")
        result[long] = value
    return result


def check_pins(instance: Instance) -> Iterator[str]:
    """Yield a complaint about every pin of an instance whose path is unknown or whose value is of the wrong kind."""
    nodes = {node.id for node in instance.grid.nodes if node.site} if instance.grid else set()
    sites = nodes or {ONE_SITE}
    by_site = {RACKS_AT + name for name in nodes} | {BLOCKS_AT + site for site in sites}
    for path, value in instance.pins.items():
        site, _, name = path.removeprefix(FABRIC).rpartition(".")
        of_all = FABRIC + name if path.startswith(FABRIC) and site in sites else path  # pins it for all sites
        kind = FROM_ZERO if path in by_site else PINS.get(of_all)
        of_network = path == "placement.stripes" or path.startswith(FABRIC)
        # Of the instance, without which there is nothing to decide.
        part = "grid" if path.startswith(("sites.", "wan.")) else "network" if of_network else None
        if kind is None:
            known = by_site if path.startswith(RACKS_AT) else {*PINS, *by_site}
            yield f"pins.{path}: no such decision; {hint(path, sorted(known))}"
        elif not kind[0](value):
            yield f"pins.{path}: must be {kind[1]} (is {shown(value)}); fix the pin"
        elif part is not None and getattr(instance, part) is None:
            yield f"pins.{path}: decides nothing, as the instance has no {part}; give {part}, or remove the pin"
        elif of_all != path and instance.grid is not None:  # blocks may be at any of the sites
            yield f"pins.{path}: a grid chooses the sites, so a fabric is pinned for all; pin {of_all}"


def pinned_blocks(instance: Instance) -> dict[str, int]:
    """Return the numbers of rack blocks that an instance's pins fix, by site."""
    own = {path: count for path, count in sorted(instance.pins.items()) if path.startswith(BLOCKS_AT)}
    return {path.removeprefix(BLOCKS_AT): count for path, count in own.items()}
