"""The question of a fabric alone, as data, from the options of `planner fabric design`; each is checked and named."""

import re
from collections.abc import Iterable
from typing import Any

from planner.errors import InputError, hint
from planner.imports.command_options import FabricWish
from planner.imports.instance_file import FABRIC_PARTS, FabricParts
from planner.instance.catalogue_entries import catalogue
from planner.instance.instance import ANY_ACCELERATOR
from planner.instance.network import MAX_TIERS, Switch
from planner.physics.network.fabric_designs import FAMILIES, lanes_of
from planner.units import counted

NUMBER = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
DIGITS = {"ports": r"\d{1,6}", "rate": f"{NUMBER}G?", "dollars": NUMBER, "watts": NUMBER}
FORM = "PORTSxGBPS:DOLLARS:WATTS, such as 64x400:36000:1000"
FLOOR = re.compile(rf"(?P<pitch>{NUMBER})x(?P<row>{NUMBER})(?:x(?P<hosts>[1-9]\d{{0,3}}))?")
LOSSES = "one_spine", "one_leaf_uplink"  # the first unless another is asked for: no cluster hangs on one switch


def fabric_data(wish: FabricWish) -> dict[str, Any]:
    """Return the data of the fabric question that options ask. InputError: it names the option, value and remedy."""
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
    return {
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
