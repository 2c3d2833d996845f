"""The fabric of one site: names, cable list and bill of materials as planned, also for NetBox, and cables as built."""

import io
import math
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from planner.cluster.hostlists import PREFIX, width
from planner.errors import InputError, InternalError
from planner.files import csv_text, unwritable, write_atomically, write_streamed
from planner.formats.yaml_text import dump
from planner.instance.catalogue_entries import catalogue
from planner.instance.network import Floor, Medium, Network, Switch
from planner.physics.network import fabric_cables, fabric_cost
from planner.physics.network.cable_lengths import Metres
from planner.physics.network.clos_fabric import Design, Ints
from planner.physics.network.fabric_cables import NO_MEDIUM, WAN_GATEWAY, StageCables, switch_counts
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.plan.plan_sections import SiteFabric

NONE_REACHES = "none reaches"
BILL_HEADER = ("part", "where", "count", "metres", "usd")
ROUNDING = 1e-9  # relative: of sums in another order


@dataclass(frozen=True)
class BuiltFabric:
    """A site's fabric to export: its design and switch, the network that prices it, the floor for cable lengths.

    `above` are the models of the tiers above the leaves. `media` are those of the instance where it gives a floor too;
    else every link is the instance's one of its kind.
    """

    site: str
    fabric: SiteFabric
    design: Design
    network: Network
    switch: Switch
    floor: Floor
    above: tuple[Switch, ...] = ()

    @property
    def models(self) -> dict[str, Switch]:
        """The switch model of each tier of the exported fabric, and of the WAN gateway."""
        return fabric_cost.models_of(self.switch, self.above) | {WAN_GATEWAY: self.switch}

    @property
    def media(self) -> tuple[Medium, ...]:
        """Media of the exported fabric's cables, chosen by length; none where links have one price of their kind."""
        return self.network.media if fabric_cost.by_reach(self.network) else ()

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Names of all switches of the exported fabric by tier, in their order, and of all racks."""
        design = self.design
        spines = max(1, design.spines_per_pod)
        second = {"leaf": 1 if design.single else design.rails, "spine": spines, "core": design.cores // spines}
        second |= {"core": design.zone_cores} if design.core_boxes or design.zones else {}
        second[WAN_GATEWAY] = design.wan_gateways // design.networks
        if design.zones:
            second |= {"super-spine": design.super_spine_boxes or design.core_up // design.core_bundle}
        names = {"rack": [f"{PREFIX}{i:0{width(design.racks)}d}" for i in range(design.racks)]}
        for tier, size in switch_counts(design).items():
            rows, columns = range(size // second[tier]), range(second[tier])
            a, b = width(len(rows)), width(len(columns))
            names[tier] = [f"{tier}-{i:0{a}d}-{j:0{b}d}" for i in rows for j in columns]
        return names

    def gpu_name(self, gpu: int) -> str:
        """Return the name of a GPU in the exported fabric: its rack's and its index there."""
        each = self.design.gpus_per_rack
        return f"{self.names['rack'][gpu // each]}-gpu{gpu % each:0{width(each)}d}"

    def measured(self) -> Iterator[tuple[StageCables, Metres]]:
        """Yield every cable of the exported fabric with its length in metres."""
        measure = fabric_cables.lengths(self.design, self.floor)
        for cables in fabric_cables.lay(self.design):
            yield cables, measure(cables)

    def pod_of(self, tier: str, switch: Ints) -> Ints:
        """Return the pod of the exported fabric's leaves or spines, over all networks; 0 for switches outside pods."""
        design = self.design
        if design.single or tier not in ("leaf", "spine"):
            return np.zeros_like(switch)
        if tier == "spine":
            return switch // design.spines_per_pod
        network, own = switch // (design.domains * design.rails), switch % (design.domains * design.rails)
        row, column = own // design.rails // design.domains_per_pod, own % design.rails // design.rails_per_pod
        return network * design.pods + row * design.pods_across + column


def built_fabric(plan: Plan, site: str | None, where: str = "plan") -> BuiltFabric:
    """Return the fabric of a plan's site to export, of the only one unless named. InputError: none can be wired."""
    fabrics = plan.fabric.sites if plan.fabric else {}
    known = ", ".join(sorted(fabrics))
    if not fabrics:
        raise InputError(f"{where}: fabric: the plan has none; plan an instance with a network")
    if site is None and len(fabrics) > 1:
        raise InputError(f"--site: must be one of {known}; the plan has {len(fabrics)} sites, export them one by one")
    name = site or next(iter(fabrics))
    if name not in fabrics:
        raise InputError(f"--site: must be one of {known} (is {name!r})")
    physics = PlanPhysics(plan=plan)
    network = plan.instance.network
    if name not in physics.wired or network is None:
        raise InputError(f"{where}: fabric.sites.{name}: cannot be wired as it is; see what `planner check` says")
    built = fabrics[name]
    leaf, *above = (physics.switches[model] for model in (built.switch, *built.models[1:]))
    return BuiltFabric(name, built, physics.wired[name], network, leaf, network.floor or Floor(), tuple(above))


class LabelledCable(NamedTuple):
    """A cable of a fabric by name: both ends with ports, its length and medium, and the NICs' lane that it serves."""

    low: str
    low_port: str
    high: str
    high_port: str
    metres: float
    medium: str
    lane: int

    @property
    def label(self) -> str:
        """The label printed at either end of a cable of the fabric."""
        return f"{self.low}:{self.low_port}--{self.high}:{self.high_port}"


def cable_list(built: BuiltFabric) -> Iterator[str]:
    """Write a fabric's cable list as CSV, a block of cables at a time, with the parts that price the fabric."""
    yield "from,from_port,to,to_port,length_m,medium,lane,label\n"
    names = *(medium.name for medium in built.media), NONE_REACHES, built.network.optics.name
    cells = {name: csv_text([[name]]).rstrip("\n") for name in names}
    for _, block in labelled(built):
        yield "".join(
            f"{cable.low},{cable.low_port},{cable.high},{cable.high_port},{up_to_cm(cable.metres):.2f},{cells[cable.medium]},{cable.lane},{cable.label}\n"
            for cable in block
        )


def labelled(built: BuiltFabric) -> Iterator[tuple[str, Iterator[LabelledCable]]]:
    """Yield every cable of a fabric by name, block by block, with the tier that the block goes up from.

    Without floor and media in the instance a medium is its links' transceiver, lengths are of usual pitches, unpriced.
    """
    table = fabric_cables.MediaTable.of(built.media, built.network.power_usd_per_watt)
    media = [*(medium.name for medium in built.media), NONE_REACHES if built.media else built.network.optics.name]
    counts = switch_counts(built.design)
    for cables, metres in built.measured():
        chosen, is_gpu = table.choose(metres), cables.low_tier == "gpu"
        by_name = [media[i] for i in np.where(chosen == NO_MEDIUM, len(built.media), chosen)]
        lanes = ((cables.high // (counts[cables.high_tier] // built.design.networks)) % built.design.lanes).tolist()
        low = [built.gpu_name(i) if is_gpu else built.names[cables.low_tier][i] for i in cables.low.tolist()]
        high = [built.names[cables.high_tier][i] for i in cables.high.tolist()]
        # Where a leaf's port is split, a GPU's end is named port/part.
        split, ports = built.design.split if is_gpu else 1, cables.high_port.tolist()
        high_ports = [str(port) if split == 1 else f"{port // split}/{port % split}" for port in ports]
        low_ports = map(str, cables.low_port.tolist())
        yield cables.low_tier, map(LabelledCable, low, low_ports, high, high_ports, metres.tolist(), by_name, lanes)


def bill_of_materials(built: BuiltFabric) -> Iterator[str]:
    """Write a fabric's bill of materials as CSV, rounded so that it sums to its price. InternalError: it does not."""
    lines = list(_lines(built))
    total, stated = sum(usd for *_, usd in lines), built.fabric.cost_usd
    if abs(total - stated) > max(0.005, ROUNDING * stated):  # half a cent
        raise InternalError(f"bill of {built.site}: lines of {total:,.2f} USD, the fabric costs {stated:,.2f} USD")
    rows, before, cents = list[Row](), 0.0, 0
    for part, where, count, metres, usd in lines:
        before += usd
        upto = round(before * 100)
        if count != 0:
            rows.append((part, where, count, metres, f"{(upto - cents) / 100:.2f}"))
        cents = upto
    yield csv_text([BILL_HEADER, *rows, ("total", built.site, "", "", f"{cents / 100:.2f}")])


def _lines(built: BuiltFabric) -> Iterator[tuple[str, str, int | str, str, float]]:
    """Yield a fabric's rows of BILL_HEADER, dollars unrounded; "" for no count, and metres if no length has a price."""
    network, design, switch, boxes = built.network, built.design, built.switch, Counter[str]()
    usd = {model.name: model.price_usd for model in built.models.values()}
    for tier, count in design.tier_switches.items():
        boxes[built.models[tier].name] += count
    yield from ((name, "fabric", count, "", count * usd[name]) for name, count in boxes.items())
    yield switch.name, "WAN gateway", design.wan_gateways, "", design.wan_gateways * switch.price_usd
    ends = fabric_cost.endpoint_factor(switch, design.split)
    if fabric_cost.by_reach(network):
        table = fabric_cables.MediaTable.of(network.media, network.power_usd_per_watt)
        sums = defaultdict[tuple[str, int], Metres](lambda: np.zeros(3))  # cables, metres and dollars
        for block, length in built.measured():
            chosen, (each_usd, _) = table.choose(length), table.usd_watts(length)
            factor = ends if block.low_tier == "gpu" else switch.link_factor
            for medium in np.unique(chosen).tolist():
                of, key = chosen == medium, (f"{block.low_tier} to {block.high_tier}", medium)
                sums[key] += of.sum(), length[of].sum(), factor * each_usd[of].sum()
        for (where, medium), (count, metres, dollars) in sorted(sums.items(), key=lambda item: item[0]):
            yield built.media[medium].name, where, int(count), f"{metres:.1f}", float(dollars)
    else:
        up = design.switch_links + (design.wan_gateway_links if design.wan_ports else 0)
        cables, optics = network.cables, network.optics
        for where, links, factor, cable_usd, modules in (
            ("gpu to leaf", design.endpoint_links, ends, cables.endpoint_usd, cables.endpoint_transceivers),
            ("switch to switch", up, switch.link_factor, cables.switch_usd, cables.switch_transceivers),
        ):
            yield optics.name, where, links * modules, "", factor * links * modules * optics.price_usd
            yield "cable", where, links, "", factor * links * cable_usd
    if network.power_usd_per_watt:
        power = built.fabric.power_mw * 1e6 * network.power_usd_per_watt
        yield "power over the years", f"{built.fabric.power_mw:.6g} MW", "", "", power


MANUFACTURER = "Generic"  # as the device-type library calls boxes of no maker
STATUS, INTERFACE = "planned", "dcim.interface"
DEVICE_COLUMNS = "name,role,manufacturer,device_type,site,location,rack,position,face,status"
CABLE_COLUMNS = "".join(f"side_{side}_{part}," for side in "ab" for part in ("device", "type", "name"))
CABLE_COLUMNS += "type,status,label,color,length,length_unit"
# A tier's colour and that of the cables that go up from it, cages by Gb/s, and types of cables by patterns of media.
COLOURS, CABLE_TYPES = (catalogue("netbox")["netbox"][name] for name in ("colours", "cable_types"))
CAGES = {int(gbps): cage for gbps, cage in catalogue("netbox")["netbox"]["cages"].items()}

Row = tuple[str | int | float, ...]


def netbox_files(built: BuiltFabric) -> dict[str, Callable[[], Iterator[str]]]:
    """Return the writer of each of a fabric's NetBox files by name, in the order in which NetBox must import them."""
    design, gbps = built.design, built.switch.port_gbps
    each, hosts = built.floor.hosts_per_rack, built.names["rack"]
    role, word = ("gpu-rack", "GPU rack") if each == 1 else ("gpu-host", "GPU host")  # a host shares its rack
    rack = f"{word} of {design.gpus_per_rack}"
    boxes = {model.name: {f"port{port}": gbps for port in range(model.ports)} for model in built.models.values()}
    roles = [*switch_counts(design), role]
    colours = [(own, own, COLOURS.get(own, "9e9e9e")) for own in roles]  # grey
    count = -(-len(hosts) // each)
    standing = hosts if each == 1 else [f"rack{i:0{width(count)}d}" for i in range(count)]
    racks = [(built.site, name, STATUS, 19, 42) for name in standing]  # inches wide, units high
    placed = [(name, role, rack, standing[i // each]) for i, name in enumerate(hosts)]
    placed += [(name, tier, built.models[tier].name, "") for tier in roles[:-1] for name in built.names[tier]]
    site, end = built.site, ("", "", STATUS)  # no position in a rack and no face
    devices = [(f"{site}-{x}", own, MANUFACTURER, kind, site, "", at, *end) for x, own, kind, at in placed]
    return {
        "manufacturers.csv": partial(_table, "name,slug", lambda: [(MANUFACTURER, _slug(MANUFACTURER))]),
        **{f"device-types/{_slug(name)}.yaml": partial(_device_type, name, 1, ports) for name, ports in boxes.items()},
        f"device-types/{_slug(rack)}.yaml": lambda: _device_type(rack, 0, {}),
        "device-roles.csv": partial(_table, "name,slug,color", lambda: colours),
        "sites.csv": partial(_table, "name,slug,status", lambda: [(built.site, _slug(built.site), STATUS)]),
        "racks.csv": partial(_table, "site,name,status,width,u_height", lambda: racks),
        "devices.csv": partial(_table, DEVICE_COLUMNS, lambda: devices),
        "interfaces.csv": partial(_table, "device,name,type,enabled", lambda: _interfaces(built)),
        "cables.csv": partial(_table, CABLE_COLUMNS, lambda: _cables(built)),
    }


def _table(columns: str, rows: Callable[[], Iterable[Row]]) -> Iterator[str]:
    yield f"{columns}\n"
    rest = iter(rows())
    while block := list(islice(rest, 1 << 12)):  # rows written at a time
        yield csv_text(block)


def interface_of(name: str, port: str) -> tuple[str, str]:
    """Return the NetBox device and interface of a cable's end: rack and GPU/lane of a NIC, or switch and port."""
    rack, is_gpu, gpu = name.partition("-gpu")
    return (rack, f"gpu{gpu}/{port}") if is_gpu else (name, f"port{port}")


def end_of(device: str, interface: str) -> tuple[str, str]:
    """Return the end of a cable at a NetBox interface: the inverse of `interface_of`; others keep their names."""
    if interface.startswith("gpu"):
        gpu, _, lane = interface.partition("/")
        return f"{device}-{gpu}", lane or "0"
    return device, interface.removeprefix("port")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "x"


def _device_type(model: str, units: int, ports: dict[str, float]) -> Iterator[str]:
    named = {"manufacturer": MANUFACTURER, "model": model, "slug": f"{_slug(MANUFACTURER)}-{_slug(model)}"}
    interfaces = [{"name": port, "type": CAGES.get(round(gbps), "other")} for port, gbps in ports.items()]
    size = {"u_height": units, "is_full_depth": True}
    yield "---\n" + dump(named | size | ({"interfaces": interfaces} if interfaces else {}))


def _interfaces(built: BuiltFabric) -> Iterator[Row]:
    """Yield NetBox interfaces of no device type: a rack's NICs as they are cabled, and parts of leaves' split ports."""
    design = built.design
    rates = design.nic_gbps, built.switch.port_gbps / design.split
    nic, part_of_port = (CAGES.get(round(gbps), "other") for gbps in rates)
    for rack in built.names["rack"]:
        for gpu in range(design.gpus_per_rack):
            for lane in range(design.lanes):
                name = f"gpu{gpu:0{width(design.gpus_per_rack)}d}/{lane}"  # as `interface_of` has it
                yield f"{built.site}-{rack}", name, nic, "true"
    for leaf in built.names["leaf"] if design.split > 1 else ():
        for part in range(design.leaf_down_used * design.split):
            yield f"{built.site}-{leaf}", f"port{part // design.split}/{part % design.split}", part_of_port, "true"


def _cables(built: BuiltFabric) -> Iterator[Row]:
    for tier, block in labelled(built):
        for cable in block:
            one, port_a = interface_of(cable.low, cable.low_port)
            other, port_b = interface_of(cable.high, cable.high_port)
            sides = f"{built.site}-{one}", INTERFACE, port_a, f"{built.site}-{other}", INTERFACE, port_b
            yield *sides, _cable_type(cable.medium), STATUS, cable.label, COLOURS[tier], up_to_cm(cable.metres), "m"


def up_to_cm(metres: float) -> float:
    """Round an exported cable's length up to a centimetre, so that none is listed as within a reach that it exceeds."""
    return math.ceil(metres * 100 * (1 - ROUNDING)) / 100


@cache
def _cable_type(medium: str) -> str:
    return next((kind for pattern, kind in CABLE_TYPES.items() if re.search(pattern, medium.lower())), "")


def write_netbox(output: Path, built: BuiltFabric) -> None:
    """Write NetBox files into a folder, new if need be, or a ZIP: all or none. InputError: it cannot be written."""
    files = netbox_files(built)
    if output.suffix.lower() == ".zip":
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, pieces in files.items():
                entry = zipfile.ZipInfo(name)
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w", force_zip64=True) as file:
                    file.writelines(piece.encode() for piece in pieces())
        write_atomically(output, content.getvalue())
        return
    try:
        with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as made:
            for name, pieces in files.items():
                (Path(made) / name).parent.mkdir(exist_ok=True)
                write_streamed(Path(made) / name, pieces)
            for name in files:
                (output / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(made) / name).replace(output / name)
    except OSError as error:
        raise unwritable(output, error) from None
