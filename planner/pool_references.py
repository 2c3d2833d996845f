"""What does not go with pools of different GPUs, and what they lack."""

from collections import Counter
from collections.abc import Iterator

from planner.errors import InputError
from planner.instance import Accelerator, Instance


def pool_problems(instance: Instance) -> Iterator[str]:
    """Name what of an instance with pools cannot be planned; nothing where there are none."""
    h = instance.hardware
    if not h.pools:
        if h.pool_link is not None:
            yield "hardware.pool_link: joins the pools, and hardware.pools holds none; give pools, or remove it"
        return
    if len(h.pools) < 2:
        yield "hardware.pools: must hold at least 2 pools (holds 1); give another, or write accelerator, rack and racks in the place of pools"
    yield from _each(instance)
    yield from _beside(instance)
    if instance.objective.minimize != "days_to_train":
        yield f'objective.minimize: pools of different GPUs are planned for "days_to_train" alone (is "{instance.objective.minimize}"); ask for that'
    for path in sorted(instance.pins):
        yield f"pins.{path}: each pool's layout is its own, and none can be fixed by hand (is {instance.pins[path]!r}); remove the pin"


def refuse_pools(instance: Instance) -> Instance:
    """Return an instance about whose one layout is asked; pools have one each.

    Raises
    ------
    InputError
        The instance has pools.
    """
    if instance.hardware.pools:
        raise InputError("hardware.pools: each pool has a layout of its own; ask about one, its accelerator, rack and racks in the place of pools")
    return instance


def _each(instance: Instance) -> Iterator[str]:
    """Name pools of one name, and GPUs that do not run the products' type."""
    names, compute = Counter(p.name for p in instance.hardware.pools), instance.workload.precision.compute
    for i, p in enumerate(instance.hardware.pools):
        if names[p.name] > 1:
            yield f"hardware.pools[{i}].name: {p.name!r} stands {names[p.name]} times; rename one"
        if isinstance(p.accelerator, Accelerator) and compute not in p.accelerator.peak_flop_per_second:
            has = ", ".join(sorted(p.accelerator.peak_flop_per_second))
            yield f"hardware.pools[{i}].accelerator: {p.accelerator.name} has no {compute}, workload.precision.compute (has {has}); choose another"


def _beside(instance: Instance) -> Iterator[str]:
    """Name what stands beside the pools and would be left out of account."""
    h = instance.hardware
    for part in ("grid", "wan", "network"):
        if getattr(instance, part) is not None:
            yield f"{part}: does not go with hardware.pools: the joint decision takes one type of GPU; remove {part}, or keep one of the pools"
    for key in ("accelerator", "rack"):
        if getattr(h, key) != getattr(h.pools[0], key):
            yield f"hardware.{key}: each pool has its own (is another than the first pool's); remove it"
    for key in ("racks", "nic_bytes_per_second", "cooling_kw_per_m2"):
        if getattr(h, key) is not None:
            yield f"hardware.{key}: does not go with hardware.pools (is {getattr(h, key):g}); remove it, or give it to a pool where a pool has it"
    if h.racks_per_module != 1:
        yield f"hardware.racks_per_module: does not go with hardware.pools (is {h.racks_per_module}); remove it"
