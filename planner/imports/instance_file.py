"""Find and read the file of an instance, or write a first one: short, commented YAML that solves as it is."""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from planner.errors import InputError, hint
from planner.files import exists
from planner.formats.yaml_text import YAML, read_data, scalar
from planner.imports.command_options import Wish
from planner.imports.huggingface import read_model
from planner.instance.catalogue_entries import catalogue, racks_with
from planner.instance.workload import Model
from planner.physics.training.transformer import active_parameters
from planner.plan.plan_files import kind_of, of_kind

TOKENS_PER_WEIGHT = 20  # compute-optimal (Hoffmann et al. 2022, arXiv 2203.15556, table 3)
RACKS, OF_ONE = 64, "  # of the one cluster; a `grid` in their place lets power decide"  # an example


def shipped_folder() -> Path:
    """Return the folder of the instance files that ship with planner, in the package or the checkout that runs."""
    package = Path(str(resources.files("planner")))
    inside = package / "shipped"  # where the wheel has instances/
    return inside if inside.is_dir() else package.parent / "instances"


def instance_path(given: Path) -> Path:
    """Return the path of an instance file, or of the one that ships under that name. InputError: there is neither."""
    if exists(given) or len(given.parts) != 1 or given.suffix in YAML:
        return given
    shipped = shipped_folder() / f"{given.stem if given.suffix == '.json' else given.name}.json"
    if exists(shipped):
        return shipped
    if given.suffix:
        return given  # the complaint about a missing file names the nearest one
    names = sorted(path.stem for path in shipped_folder().glob("*.json"))
    raise InputError(f"{given}: no such file, and no instance that ships; {hint(str(given), names)}")


def read_instance_file(given: Path) -> dict[str, Any]:
    """Read an instance file, or a plan file's instance, with any `config.json` imported. InputError: it is neither."""
    path = instance_path(given)
    return instance_data(read_data(path), str(given), path.parent)


def holds_plan(given: Path) -> bool:
    """Return whether an instance's file, which is no pipe, is a plan's."""
    path = instance_path(given)
    return path.is_file() and kind_of(read_data(path)) == "plan"


def instance_data(data: Any, where: str, folder: Path) -> dict[str, Any]:
    """Return the data of an instance file or of a plan's, with the model of a `config.json` in a folder imported.

    Data of another kind, no object, or a configuration that is not readable: InputError.
    """
    if not isinstance(data, dict):
        is_ = "empty" if data is None else type(data).__name__
        raise InputError(f"{where}: must be a JSON object or a YAML mapping (is {is_}); see `planner schema instance`")
    if kind_of(data) == "plan":
        return instance_data(data["instance"], f"{where}: instance", folder)
    instance = of_kind(data, where, "instance")
    workload = instance.get("workload")
    name = workload.get("model") if isinstance(workload, dict) else None
    if isinstance(workload, dict) and isinstance(name, str) and Path(name).suffix == ".json":
        try:
            workload["model"] = read_model(folder / name).model_dump(mode="json", exclude_none=True)
        except InputError as error:
            raise InputError(f"{where}: workload.model: {error}") from None
    return instance


class FabricParts(NamedTuple):
    """Usual fabric parts of a first instance file: switches with ports of a NIC's rate, larger ones, a transceiver."""

    switches: Sequence[str]
    optics: str
    usd: float
    watts: float
    source: str
    larger: Sequence[str] = ()


# By the NIC's Gb/s; a first instance has the switches without the larger ones.
FABRIC_PARTS = {float(rate): FabricParts(**parts) for rate, parts in catalogue("fabric_parts").items()}


def first_instance(wish: Wish, output: Path | None = None) -> str:
    """Write a first instance as YAML for the file `output`. InputError: unknown names, or figures out of range."""
    places = catalogue("first_places")
    if not 0 <= wish.sites <= len(places):
        raise InputError(f"--sites: must be from 0 (one cluster) to {len(places)} (is {wish.sites}); add more by hand")
    if wish.sites and wish.racks is not None:
        raise InputError(f"--racks {wish.racks}: power and budget decide the racks of sites; leave out one of the two")
    nic_gbps = _named("accelerators", wish.accelerator, "--accelerator")["nic_bytes_per_second"] * 8 / 1e9
    usual = 3e9 if wish.sites else None  # without a limit, all power there is would be bought
    budget = usual if wish.budget is None else wish.budget
    money = f"\n  budget_usd: {budget:.12g}  # all that is bought: racks, sites, fabric, fibre" if budget else ""
    name = shown = wish.model or ("llama3-405b" if wish.sites else "llama3-70b")
    if name.endswith(".json"):
        model, shown = read_model(Path(name)), os.path.relpath(name, output.parent if output else Path())
    else:
        model = Model.model_validate(_named("models", name, "--model"))
    tokens, why = wish.tokens, "as asked for"
    if tokens is None:
        tokens = float(f"{TOKENS_PER_WEIGHT * active_parameters(model):.2g}")
        why = f"{TOKENS_PER_WEIGHT} for each weight that a token meets (Hoffmann et al. 2022)"
    racks = racks_with(wish.accelerator)
    if not racks:
        problem = f"no rack of the catalogue has {wish.accelerator!r}"
        raise InputError(f"--accelerator: {problem}; choose another, and write the rack")
    count, price = 1 if wish.sites else wish.racks or RACKS, catalogue("racks")[racks[0]]["price_usd"]
    if budget is not None and count * price > budget:
        fewer = "" if wish.sites or budget < 2 * price else f", or give --racks below {budget // price:.0f}"
        least = f"at least {count * price:,.0f}, the price of {count} {racks[0]} without a fabric"
        raise InputError(f"--budget: must be {least} (is {budget:,.0f}); raise it{fewer}")
    grid = network = ""
    if wish.sites:
        own = [*places.values()][: wish.sites]
        areas, nodes = ("".join(f"    - {{{place[key]}}}\n" for place in own) for key in ("authority", "node"))
        grid = _template("grid", areas=areas, nodes=nodes, sites=wish.sites)
    if (parts := FABRIC_PARTS.get(nic_gbps)) is not None:  # else tori and the like: no fabric of switches
        optics = f"name: {parts.optics}, gbps: {nic_gbps:g}, price_usd: {parts.usd:g}, power_watts: {parts.watts:g}"
        network = _template("network", switches=", ".join(parts.switches), optics=optics)
    last = "facility_overhead_factor: 1.3  # facility over IT power (PUE)" if wish.sites else f"racks: {count}{OF_ONE}"
    values = {"name": scalar(wish.name or (output.stem if output else "first")), "accelerator": wish.accelerator}
    values |= {"model": scalar(shown), "tokens": f"{tokens:.12g}", "why": why, "rack": racks[0], "last": last}
    return _template("instance", money=money, grid=grid, network=network, **values)


def _template(part: str, **values: Any) -> str:
    text = resources.files("planner").joinpath("imports", "first_instance", f"{part}.yaml").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _named(kind: str, name: str, option: str) -> dict[str, Any]:
    known = catalogue(kind)
    if name not in known:
        raise InputError(f"{option}: {name!r} is not in the catalogue; {hint(name, sorted(known))}")
    entry: dict[str, Any] = known[name]
    return entry
