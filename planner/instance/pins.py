"""Check pins, the decisions fixed by hand: the paths that can be pinned, and their values."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from planner.errors import InputError, hint
from planner.instance.instance import Instance
from planner.instance.network import FabricFamily

Check = Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _from_zero(value: Any) -> bool:
    return (value == 0 and not isinstance(value, bool)) or _whole(value)


def _list_of(entry: Check) -> Check:
    return lambda value: isinstance(value, list) and bool(value) and all(map(entry, value))


WHOLE: tuple[Check, str] = (_whole, "a whole number from 1")
NAME: tuple[Check, str] = (lambda value: isinstance(value, str) and bool(value), "the name of a switch")
FROM_ZERO: tuple[Check, str] = (_from_zero, "a whole number from 0")

PINS: dict[str, tuple[Check, str]] = {
    "sites.racks": WHOLE,
    "sites.max_sites": WHOLE,
    "layout.tensor_parallel": WHOLE,
    "layout.tensor_parallel_inner": WHOLE,
    "layout.context_parallel": WHOLE,
    "layout.expert_parallel": WHOLE,
    "layout.pipeline_parallel": WHOLE,
    "layout.data_parallel": WHOLE,
    "layout.data_parallel_by_site": (
        lambda value: (
            isinstance(value, dict) and all(isinstance(count, int) and count >= 0 for count in value.values())
        ),
        "an object of site id and whole number",
    ),
    "layout.virtual_stages": WHOLE,
    "layout.microbatch_sequences": WHOLE,
    "layout.microbatches_per_step": WHOLE,
    "layout.replicas_per_rack": WHOLE,
    "layout.stages_per_rack": WHOLE,
    "layout.schedule": (lambda value: value in ("1f1b", "zb-h1"), "1f1b or zb-h1"),
    "layout.recompute": (lambda value: value in ("none", "selective", "full"), "none, selective or full"),
    "layout.sequence_parallel": (lambda value: isinstance(value, bool), "true or false"),
    "layout.zero_stage": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3,
        "0, 1, 2 or 3",
    ),
    "layout.layers_per_stage": (_list_of(_whole), "a list of whole numbers from 1, one a stage"),
    "layout.recomputed_layers_per_stage": (_list_of(_from_zero), "a list of whole numbers from 0, one a stage"),
    **dict.fromkeys(("fabric.switch", "fabric.spine_switch", "fabric.core_switch"), NAME),
    "fabric.planes": WHOLE,
    "fabric.ports_per_switch": WHOLE,
    "fabric.tiers": WHOLE,
    "fabric.leaf_domain_racks": WHOLE,
    "fabric.leaf_down_ports": WHOLE,
    "fabric.leaf_up_ports": WHOLE,
    "fabric.spine_down_ports": WHOLE,
    "fabric.spine_up_ports": WHOLE,
    "fabric.core_down_ports": WHOLE,
    "fabric.core_up_ports": WHOLE,
    "placement.stripes": WHOLE,
    "wan.wavelengths": FROM_ZERO,
}
RACKS_AT = "sites.racks."
BLOCKS_AT = "placement.blocks."
FABRIC = "fabric."
ONE_SITE = "cluster"  # the site of an instance without a grid
# Of the fabric of one site, `fabric.SITE.KEY`: all that can be pinned for every site, and these.
SITE_FABRIC: dict[str, tuple[Check, str]] = {
    **{path.removeprefix(FABRIC): how for path, how in PINS.items() if path.startswith(FABRIC)},
    **dict.fromkeys(("leaf_bundle", "spine_bundle", "rails_per_pod", "leaf_domains_per_pod"), WHOLE),
    "family": (lambda value: value in get_args(FabricFamily), f"one of {', '.join(get_args(FabricFamily))}"),
}


# Short names of the trade; they are read with and without `layout.` before them.
ALIASES = {
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "vpp": "virtual_stages",
    "mbs": "microbatch_sequences",
}


def long_name(path: str) -> str:
    """Return the path of a decision in place of tp, pp, dp, ep, cp, vpp or mbs, with or without `layout.` before it."""
    short = path.removeprefix("layout.")
    return f"layout.{ALIASES[short]}" if short in ALIASES else path


def long_names(pins: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return pins with the long names of decisions in place of tp, pp, dp, ep, cp, vpp and mbs.

    Raises
    ------
    InputError
        A decision is pinned under both of its names, with two values.
    """
    result: dict[str, Any] = {}
    for path, value in pins.items():
        long = long_name(str(path))
        if result.get(long, value) != value:
            raise InputError(f"{where}: pins.{path}: {long} is pinned twice ({result[long]!r} and {value!r}); keep one")
        result[long] = value
    return result


def check_pins(instance: Instance) -> Iterator[str]:
    """Return every pin whose path is unknown or whose value is of the wrong kind."""
    nodes = {node.id for node in instance.grid.nodes if node.site} if instance.grid else set()
    sites = nodes or {ONE_SITE}
    by_site = {RACKS_AT + name for name in nodes} | {BLOCKS_AT + site for site in sites}
    for path, value in instance.pins.items():
        kind = FROM_ZERO if path in by_site else PINS.get(path) or _site_fabric(path, sites)
        part = None  # of the instance, without which there is nothing to decide
        if path.startswith(("sites.", "wan.")):
            part = "grid"
        elif path == "placement.stripes" or path.startswith(FABRIC):
            part = "network"
        if kind is None:
            known = [*PINS, *sorted(by_site)]
            if path.startswith(FABRIC):
                known += [f"{FABRIC}{site}.{name}" for site in sorted(sites) for name in SITE_FABRIC]
            yield f"pins.{path}: no such decision; {hint(path, known)}"
        elif not kind[0](value):
            yield f"pins.{path}: must be {kind[1]} (is {value!r}); fix the pin"
        elif part is not None and getattr(instance, part) is None:
            yield f"pins.{path}: decides nothing, as the instance has no {part}; give {part}, or remove the pin"


def _site_fabric(path: str, sites: set[str]) -> tuple[Check, str] | None:
    """Return the check of a pin at a path of one site's fabric, with its words; None where there is no such path."""
    site, _, name = path.removeprefix(FABRIC).rpartition(".")
    return SITE_FABRIC.get(name) if path.startswith(FABRIC) and site in sites else None


def pinned_blocks(instance: Instance) -> dict[str, int]:
    """Return the pinned numbers of blocks by site."""
    own = {path: count for path, count in sorted(instance.pins.items()) if path.startswith(BLOCKS_AT)}
    return {path.removeprefix(BLOCKS_AT): count for path, count in own.items()}
