"""Read an instance, or a fabric question; each error names path, value and remedy; warn of implausible figures.

Plausible ranges are those of catalogue/plausible_ranges.json: by the ends of keys' paths, `*` for a name that the user
gives, the lowest and the highest value and the reason. Where a key may be 0, 0 means none and is plausible; shares have
their range in their types.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.calibration.constants import Given, put_constants, read_constants
from planner.errors import InputError, hint
from planner.imports.command_options import FabricWish
from planner.imports.instance_file import FABRIC_PARTS, FabricParts, instance_data, read_instance_file
from planner.instance.base_types import Faults, figures, out_of_range, validated
from planner.instance.catalogue_entries import catalogue, racks_with
from planner.instance.instance import (
    ANY_ACCELERATOR,
    FabricInstance,
    Instance,
    check_pins,
    hardware_kind,
    long_names,
    network_problems,
    reference_problems,
)
from planner.instance.network import MAX_TIERS, Switch
from planner.instance.workload import Choose
from planner.physics.network.fabric_designs import FAMILIES, lanes_of
from planner.plan.plan import Plan
from planner.plan.plan_files import kind_of
from planner.units import counted

# How the options state a fabric.
NUMBER = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
DIGITS = {"ports": r"\d{1,6}", "rate": f"{NUMBER}G?", "dollars": NUMBER, "watts": NUMBER}
FORM = "PORTSxGBPS:DOLLARS:WATTS, such as 64x400:36000:1000"
FLOOR = re.compile(rf"(?P<pitch>{NUMBER})x(?P<row>{NUMBER})(?:x(?P<hosts>[1-9]\d{{0,3}}))?")
LOSSES = "one_spine", "one_leaf_uplink"  # the first unless another is asked for: no cluster hangs on one switch
# Sources: rows of planner/catalogue and instances/, which name theirs, and a factor of ten or more beyond on either
# side; published models, campuses and power systems; where neither exists, the judgement of this project.
USUAL = {key: dict(usual) for keys, usual in catalogue("plausible_ranges").items() for key in keys.split()}


def load_instance(
    given: Instance | Plan | Mapping[str, Any] | str | Path,
    *,
    pins: Mapping[str, Any] | None = None,
    searched: bool = True,
    where: str | None = None,
    constants: Given | None = None,
) -> Instance:
    """Load and check an instance, its catalogue names resolved; `given` is a path, a dict, an Instance or a Plan.

    What only a search needs (the critical batch, the racks at hand) may be missing where nothing is searched. `where`
    is the name in errors of an instance that is no path. `constants` of the user's own cluster replace the catalogue's.
    An InputError names the file, the JSON path, the value, what was expected and the nearest valid key.
    """
    where = where or (str(given) if isinstance(given, (str, Path)) else "instance")
    data = _data_of(given.instance if isinstance(given, Plan) else given, where)
    hardware = data.get("hardware")
    if isinstance(hardware, Mapping) and hardware.get("accelerator") == ANY_ACCELERATOR:
        remedy = "give the model to train, or ask for the fabric with `planner fabric design`"
        raise InputError(f"{where}: is a question about a fabric alone, with no workload; {remedy}")
    faults = Faults()
    if isinstance(data.get("pins") or {}, dict):  # pins of another type are refused below
        data["pins"] = {**long_names(data.get("pins") or {}, where), **long_names(pins or {}, where)}
    if kind_of(data) == "question":
        faults.add("workload", f"is missing; add it, or ask `planner fabric design {where}` for its fabric alone")
        faults.replaced.append("workload")
    data = _with_left_out(data, where, faults)
    if constants is not None:
        measured = read_constants(constants)
        data = validated(Instance, data, where, faults=faults).model_dump(mode="json")
        if not put_constants(data, measured):
            names = f"{measured.accelerator!r} and {measured.software!r}"
            raise InputError(f"{where}: constants of {names} are of no use: it has neither; leave out --constants")

    def problems(instance: Instance) -> Iterator[str]:
        sizes = list(out_of_range(instance))
        named = {problem.partition(": ")[0] for problem in sizes}
        relations = chain(reference_problems(instance, searched=searched), check_pins(instance))
        yield from chain(sizes, (problem for problem in relations if problem.partition(": ")[0] not in named))

    return validated(Instance, data, where, problems=problems, faults=faults)


def _data_of(given: Instance | Mapping[str, Any] | str | Path, where: str) -> dict[str, Any]:
    """Return an instance's data as JSON would hold them, figures of numpy as plain numbers."""

    def plain(value: Any) -> Any:
        if not hasattr(value, "tolist"):
            raise InputError(f"{where}: holds {value!r:.40}, a {type(value).__name__}; give what JSON can hold")
        return value.tolist()

    if isinstance(given, Instance):
        return given.model_dump(mode="json")
    if not isinstance(given, Mapping):
        return read_instance_file(Path(given))
    return instance_data(json.loads(json.dumps(given, default=plain)), where, Path())


def _with_left_out(data: dict[str, Any], where: str, faults: Faults) -> dict[str, Any]:
    """Return an instance's data with a model to start a choice from, and with its first pool's parts as hardware's."""
    data = json.loads(json.dumps(data))
    workload, hardware = data.get("workload"), data.get("hardware")
    if isinstance(workload, dict) and workload.get("choose") is not None and not {"model", "tokens"} <= workload.keys():
        try:
            _put_start(workload, where)
        except ValidationError:  # the whole instance is refused with the same complaint, under its own path
            faults.replaced += ["workload.model", "workload.tokens"]
    pools = hardware.get("pools") if isinstance(hardware, dict) else None
    first = pools[0] if isinstance(pools, list) and pools and isinstance(pools[0], dict) else {}
    for key in ("accelerator", "rack"):
        if key in first and isinstance(hardware, dict) and key not in hardware:
            hardware[key] = first[key]
            faults.copied.append(f"hardware.{key}")
    return data


def _put_start(workload: dict[str, Any], where: str) -> None:
    """Put a model and tokens to start the choice of a workload's model from where they are not given."""
    from planner.models.model_choice import any_model

    try:
        start = any_model(Choose.model_validate(workload["choose"]))
    except OverflowError:  # beyond a float
        problem = "its figures are beyond what can be computed with"
        raise InputError(f"{where}: workload.choose: {problem}; give smaller ones") from None
    workload.setdefault("model", start.model.model_dump(mode="json", exclude_none=True))
    workload.setdefault("tokens", start.tokens)


def question_of_options(wish: FabricWish) -> FabricInstance:
    """Return the fabric question that command options ask; InputError names the option, value and remedy."""
    due = {"--hosts": wish.hosts, "--gpus-per-host": wish.gpus_per_host, "--nic-gbps": wish.nic_gbps}
    if missing := ", ".join(sorted(option for option, value in due.items() if value is None)):
        raise InputError(f"{missing}: missing; or give a file with `network` and `hardware`")
    nic_gbps, families = wish.nic_gbps or 0.0, wish.family or ()
    switches, optics = _parts(wish, nic_gbps)
    _require_planes(wish, nic_gbps, switches)
    unknown = [family for family in families if family not in FAMILIES]
    if unknown:
        several = "; repeat the option for several" * ("," in unknown[0])
        raise InputError(f"--family {unknown[0]!r}: must be one of {', '.join(FAMILIES)}{several}")
    if wish.survives not in (None, "none", *LOSSES):
        raise InputError(f"--survives {wish.survives!r}: must be {', '.join(LOSSES)} or none")
    grouped = [family for family in families if family.startswith("dragonfly")]
    if grouped and wish.survives != "none":
        raise InputError(f"--family {grouped[0]}: what a loss cuts of it is not counted; give --survives none")
    # Oversubscription: 4:1, or 1:2,7:1 by tier from the leaf up; none where `any`.
    text, ratios = wish.oversubscription, dict[str, Any]()
    if text == "any":
        ratios = {"max_oversubscription": None}
    elif text is not None:
        form = re.compile(r"(?P<down>\d+(?:\.\d+)?)(?::(?P<up>\d+(?:\.\d+)?))?")
        parts = [form.fullmatch(part.strip()) for part in text.split(",")]
        both = [(float(match["down"]), float(match["up"] or 1)) for match in parts if match is not None]
        if len(both) < len(parts) or min(map(min, both)) <= 0:
            raise InputError(f"--oversubscription {text!r}: must be DOWN:UP of rates above 0, such as 2:1, or `any`")
        if len(both) > 3:
            raise InputError(f"--oversubscription {text!r}: at most of leaf, spine and core; leave out the rest")
        values = [down / up for down, up in both]
        ratios = {"max_oversubscription": values[0] if len(values) == 1 else values}
    source = dict.fromkeys(("it_kw", "price_usd"), "not given; a fabric alone does not count it")
    data = {
        "name": "fabric",
        "hardware": {
            "accelerator": ANY_ACCELERATOR,
            "rack": {"name": "host", "gpus": wish.gpus_per_host, "it_kw": 1, "price_usd": 0, "source": source},
            "racks": wish.hosts,
            "nic_bytes_per_second": nic_gbps * 1e9 / 8,
        },
        "network": {
            "switches": switches,
            "optics": optics,
            "families": list(families) or ["rail"],
            "max_lanes": wish.max_lanes or 1,
            "max_rails_per_leaf": wish.rails_per_leaf,
            "max_tiers": wish.max_tiers or MAX_TIERS,
            **ratios,
            **_floor(wish, switches[0]["port_gbps"]),
            "survives": None if wish.survives == "none" else wish.survives or LOSSES[0],
        },
        "limits": {} if wish.budget is None else {"budget_usd": wish.budget},
        "pins": {} if wish.planes is None else {"fabric.planes": wish.planes},
    }
    return question_of(data, {})


def question_of(given: FabricInstance | Mapping[str, Any] | str | Path, pins: Mapping[str, Any]) -> FabricInstance:
    """Return the question about a fabric alone, of a file, of its content as a dict, or of one already read.

    An InputError names file, JSON path, value and what was expected, also for keys that a fabric alone does not use.
    """
    where, faults = "fabric design" if isinstance(given, (FabricInstance, Mapping)) else str(given), Faults()
    if isinstance(given, FabricInstance) and not pins:
        return given
    data = _data_of(given, where)  # null is no limit where an absent key has its usual value
    ignored = [key for key in ("grid", "operation", "reliability", "wan", "workload") if data.get(key) is not None]
    if ignored:
        remedy = "`planner solve` decides over all; leave them out to design a fabric alone"
        raise InputError(f"{where}: has {', '.join(ignored)}, which a fabric alone does not count; {remedy}")
    network = data.get("network")
    if not network:
        raise InputError(f"{where}: network: missing; say what the fabric may be built from")
    if isinstance(network, Mapping):
        # The options' rules, 1:1, a loss to survive and rails that share leaves, where their keys are absent, not null.
        usual: dict[str, Any] = {"max_oversubscription": 1.0} if "min_core_share" not in network else {}
        if "dragonfly" not in str(network.get("families")):
            usual["survives"] = LOSSES[0]
        data["network"] = {**usual, "max_rails_per_leaf": None, **network}
    if isinstance(data.get("pins") or {}, dict):  # pins of another type are refused below
        data["pins"] = {**(data.get("pins") or {}), **pins}
    data = _with_left_out(data, where, faults)

    def problems(instance: FabricInstance) -> Iterator[str]:
        yield from out_of_range(instance)
        yield from network_problems(instance.network)
        yield from check_pins(instance)
        others = [path for path in instance.pins if not path.startswith("fabric.")]
        yield from (f"pins.{path}: decides nothing of a fabric alone; remove the pin" for path in others)

    question = validated(FabricInstance, data, where, problems=problems, faults=faults)
    if question.hardware.racks is None:
        raise InputError(f"{where}: hardware.racks: missing; say how many racks or hosts the fabric joins")
    return question


def _parts(wish: FabricWish, nic_gbps: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a fabric question's switches and transceiver of their ports: those given, or those of the NIC's rate."""
    if not wish.switch and nic_gbps not in FABRIC_PARTS:
        rated = ", ".join(f"{rate:g}" for rate in FABRIC_PARTS)
        raise InputError(f"--nic-gbps {nic_gbps:g}: no usual switches (for {rated} there are); give --switch")
    names = wish.switch or [*FABRIC_PARTS[nic_gbps].switches, *FABRIC_PARTS[nic_gbps].larger]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"--switch {repeated[0]!r}: given twice; give each switch once")
    # Each by its catalogue name, its links at the price of its rate, or from its figures.
    known, switches = catalogue("switches"), list[dict[str, Any]]()
    for text in names:
        if text in known:
            switches.append({**known[text], "link_factor": 1.0})
            continue
        if not re.match(r"\d+x\d", text):  # how ports and rate begin
            raise InputError(f"--switch {text!r}: no such switch; {hint(text, known).rstrip('?')}, or give {FORM}")
        size, *others = text.split(":")
        figures = [*size.split("x", 1), *others]
        given = dict(zip(DIGITS, figures, strict=False))
        no_numbers = [name for name, own in given.items() if not re.fullmatch(DIGITS[name], own)]
        wrong = [f"{name} must be a number from 0 (is {given[name]!r})" for name in no_numbers]
        missing = [name for name in ("dollars", "watts") if name not in given]
        wrong += [f"{' and '.join(missing)} missing"] if missing else []
        if wrong or len(figures) > len(DIGITS):
            raise InputError(f"--switch {text!r}: {'; '.join(wrong) or 'has too many parts'}; give {FORM}")
        ports, gbps = int(given["ports"]), float(given["rate"].removesuffix("G"))
        if not ports or not gbps:
            raise InputError(f"--switch {text!r}: ports and rate must be above 0; give {FORM}")
        price = {"price_usd": float(given["dollars"]), "power_watts": float(given["watts"])}
        own = {"name": f"{given['ports']}x{gbps:g}G", "ports": ports, "port_gbps": gbps, **price, "source": "given"}
        switches.append(Switch.model_validate(own).model_dump(mode="json", exclude_none=True))
    if len({switch["name"] for switch in switches}) < len(switches):
        raise InputError("--switch: two switches of the same ports and rate; name one, or give them in a file")
    usd, watts = wish.transceiver_usd, wish.transceiver_watts
    rates = sorted({float(switch["port_gbps"]) for switch in switches})
    usual = FABRIC_PARTS.get(rates[0]) if len(rates) == 1 else None
    if usual is None and (usd is None or watts is None):
        listed = ", ".join(f"{rate:g}" for rate in rates)
        problem = "have other transceivers" if len(rates) > 1 else "have no usual transceiver"
        remedy = "give --transceiver-usd and --transceiver-watts, or a file"
        raise InputError(f"--switch: ports of {listed} Gb/s {problem}; {remedy}")
    parts = usual or FabricParts((), f"{rates[0]:g}G", 0.0, 0.0, "given")
    source = parts.source if usd is None and watts is None else "given"
    paid = {"price_usd": parts.usd if usd is None else usd, "power_watts": parts.watts if watts is None else watts}
    rate = rates[0] if len(rates) == 1 else None
    return switches, {"name": parts.optics, "gbps": rate, **paid, "source": source}


def _require_planes(wish: FabricWish, nic_gbps: float, switches: list[dict[str, Any]]) -> None:
    """Require of a fabric question's switch, with the lanes allowed, the planes asked for."""
    if wish.planes is None:
        return

    def planes_of(boxes: Iterable[dict[str, Any]]) -> list[tuple[int, int, str]]:
        each = ((lanes_of(Switch.model_validate(box), nic_gbps * 1e9 / 8), box) for box in boxes)
        return [(lanes * box.get("planes", 1), lanes, box["name"]) for lanes, box in each]

    own = {planes for planes, lanes, _ in planes_of(switches) if lanes <= (wish.max_lanes or 1)}
    if not own or wish.planes in own:
        return
    known = planes_of(catalogue("switches").values())
    having = max(((lanes, name) for planes, lanes, name in known if planes == wish.planes), default=None)
    remedy = f"in a file: the catalogue has {', '.join(map(str, sorted({planes for planes, *_ in known})))}"
    if having is not None:
        remedy = f"such as --switch {having[1]}" + f" --max-lanes {having[0]}" * (having[0] > (wish.max_lanes or 1))
    have = ", ".join(map(str, sorted(own)))
    planes = f"{counted(wish.planes, 'plane')} for a NIC of {nic_gbps:g} Gb/s"
    raise InputError(f"--planes {wish.planes}: no switch has {planes} ({have} offered); give one that has, {remedy}")


def _floor(wish: FabricWish, gbps: float) -> dict[str, Any]:
    """Read a floor plan, PITCHxROW in metres and xHOSTS of a rack: cables then have a length and media that reach."""
    if wish.floor is None:
        return {}
    match, low, high = FLOOR.fullmatch(wish.floor), 0.1, 100.0  # metres between racks and rows
    if match is None:
        form = "PITCHxROW in metres, such as 0.6x2.4, or PITCHxROWxHOSTS with whole hosts of a rack, such as 0.6x2.4x4"
        raise InputError(f"--floor {wish.floor!r}: must be {form}")
    floor = {"rack_pitch_m": float(match["pitch"]), "row_pitch_m": float(match["row"])}
    if not all(low <= value <= high for value in floor.values()):
        raise InputError(f"--floor {wish.floor!r}: must be from {low:g} to {high:g} metres, such as 0.6x2.4")
    floor["hosts_per_rack"] = int(match["hosts"] or 1)
    given = [f"--transceiver-{part}" for part in ("usd", "watts") if getattr(wish, f"transceiver_{part}") is not None]
    if given:
        raise InputError(f"--floor, {given[0]}: with a floor media have price and power; give network.media in a file")
    known = catalogue("media").values()
    media = [dict(entry) for entry in known if entry["gbps"] == gbps]
    if not media:
        rates = ", ".join(dict.fromkeys(f"{entry['gbps']}G" for entry in known))
        remedy = "give network.media and network.floor in a file"
        raise InputError(f"--floor: no media of {gbps:g}G in the catalogue (of {rates} there are); {remedy}")
    return {"floor": floor, "media": media}


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
