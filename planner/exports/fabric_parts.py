"""The fabric of one site as built: its names, cable list and bill of materials, and the same for NetBox."""

import csv
import io
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from planner.cluster.hostlist import PREFIX, width
from planner.errors import InputError, InternalError
from planner.files import escaped, unwritable, write_streamed
from planner.formats.yaml_text import dump
from planner.instance.network import Floor, Medium, Network, Switch
from planner.physics.network import price
from planner.physics.network.links import NO_MEDIUM, Ints, MediaTable, Metres, media_of
from planner.physics.network.price import WAN_GATEWAY, StageCables, by_reach, lay, lengths, models_of, switch_counts
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.plan.plan_sections import SiteFabric


@dataclass(frozen=True)
class BuiltFabric:
    """One site's fabric, its design and switch, the network that prices it, and the floor that gives cables a length.

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
        """The model of each tier, and of the WAN gateway."""
        return models_of(self.switch, self.above) | {WAN_GATEWAY: self.switch}

    @property
    def media(self) -> tuple[Medium, ...]:
        """Media that cables are chosen from by their length; none where links have one price of their kind."""
        return media_of(self.network) if by_reach(self.network) else ()

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Names of all switches by tier, in their order, and of all racks."""
        d = self.design
        spines = max(1, d.spines_per_pod)
        second = {"leaf": 1 if d.single else d.rails, "spine": spines, "core": d.cores // spines}
        second |= {"core": d.zone_cores} if d.core_boxes or d.zones else {}
        second[WAN_GATEWAY] = d.wan_gateways // d.networks
        if d.zones:
            second |= {"super-spine": d.super_spine_boxes or d.core_up // d.core_bundle}
        names = {tier: _pairs(tier, n // second[tier], second[tier]) for tier, n in switch_counts(d).items()}
        return names | {"rack": [f"{PREFIX}{i:0{width(d.racks)}d}" for i in range(d.racks)]}

    def gpu_name(self, gpu: int) -> str:
        """Return the name of a GPU: its rack's and its index there."""
        d = self.design
        return f"{self.names['rack'][gpu // d.gpus_per_rack]}-gpu{gpu % d.gpus_per_rack:0{width(d.gpus_per_rack)}d}"

    def measured(self) -> Iterator[tuple[StageCables, Metres]]:
        """Yield every cable with its length."""
        measure = lengths(self.design, self.floor)
        for c in lay(self.design):
            yield c, measure(c)

    def domain_of(self, tier: str, index: Ints) -> Ints:
        """Return the leaf domain of GPUs and leaves."""
        d = self.design
        if d.single:
            return np.zeros_like(index)
        if tier == "gpu":
            return index // d.gpus_per_rack // d.domain_racks
        return index % (d.domains * d.rails) // d.rails

    def pod_of(self, tier: str, switch: Ints) -> Ints:
        """Return the pod number of leaves or spines, counted over all networks; 0 for switches outside pods."""
        d = self.design
        if d.single or tier not in ("leaf", "spine"):
            return np.zeros_like(switch)
        if tier == "spine":
            return switch // d.spines_per_pod
        network, own = switch // (d.domains * d.rails), switch % (d.domains * d.rails)
        row, column = own // d.rails // d.domains_per_pod, own % d.rails // d.rails_per_pod
        return network * d.pods + row * d.pods_across + column

    def zone_of(self, core: Ints) -> Ints:
        """Return the zone of cores, counted over all networks; 0 where there are none."""
        return core // self.design.zone_cores if self.design.zones else np.zeros_like(core)


def _pairs(word: str, first: int, second: int) -> list[str]:
    a, b = width(first), width(second)
    return [f"{word}-{i:0{a}d}-{j:0{b}d}" for i in range(first) for j in range(second)]


def built_fabric(plan: Plan, site: str | None) -> BuiltFabric:
    """Return the fabric of a site of a plan, of the only one where none is named.

    Raise InputError if the plan has no such fabric, or one that cannot be wired.
    """
    fabrics = plan.fabric.sites if plan.fabric else {}
    known = ", ".join(sorted(fabrics))
    if not fabrics:
        raise InputError("fabric: the plan has none; plan an instance with a network")
    if site is None and len(fabrics) > 1:
        raise InputError(f"--site: must be one of {known}; the plan has {len(fabrics)} sites, export them one by one")
    name = site or next(iter(fabrics))
    if name not in fabrics:
        raise InputError(f"--site: must be one of {known} (is {name!r})")
    c = PlanPhysics(plan=plan)
    network = plan.instance.network
    if name not in c.wired or network is None:
        remedy = "see what `planner check` says of the plan"
        raise InputError(f"fabric.sites.{name}: cannot be wired as it is; {remedy}")
    built = fabrics[name]
    leaf, above, floor = c.switches[built.switch], c.above(built), network.floor or Floor()
    return BuiltFabric(name, built, c.wired[name], network, leaf, floor, above)


NONE_REACHES = "none reaches"
CABLE_HEADER = "from,from_port,to,to_port,length_m,medium,lane,label\n"


@dataclass(frozen=True, slots=True)
class LabelledCable:
    """A cable by name: both ends with their ports, its length and medium, the lane of the NICs that it serves."""

    low: str
    low_port: str
    high: str
    high_port: str
    metres: float
    medium: str
    lane: int

    @property
    def label(self) -> str:
        """Label printed at either end of the cable."""
        return f"{self.low}:{self.low_port}--{self.high}:{self.high_port}"


def cable_list(x: BuiltFabric) -> Iterator[str]:
    """Write the list as CSV, a block of cables at a time, with the parts that the fabric is priced with."""
    yield CABLE_HEADER
    names = *(m.name for m in x.media), NONE_REACHES, x.network.optics.name
    cells = {name: _row([name]).rstrip("\n") for name in names}
    for _, block in labelled(x):
        yield "".join(
            f"{c.low},{c.low_port},{c.high},{c.high_port},{c.metres:.1f},{cells[c.medium]},{c.lane},{c.label}\n"
            for c in block
        )


def labelled(x: BuiltFabric) -> Iterator[tuple[str, Iterator[LabelledCable]]]:
    """Yield every cable by name, block by block, with the tier that the block goes up from.

    Without a floor and media in the instance a medium is the transceiver of its links, and lengths are those of a floor
    of the usual pitches: no price rests on them.
    """
    table = MediaTable.of(x.media, x.network.power_usd_per_watt)
    media = [*(m.name for m in x.media), NONE_REACHES if x.media else x.network.optics.name]
    counts = switch_counts(x.design)
    for c, metres in x.measured():
        chosen = table.choose(metres)
        network = c.high // (counts[c.high_tier] // x.design.networks)
        by_name = [media[i] for i in np.where(chosen == NO_MEDIUM, len(x.media), chosen)]
        yield c.low_tier, _named(x, c, metres, by_name, (network % x.design.lanes).tolist())


def _named(
    x: BuiltFabric, c: StageCables, metres: Metres, media: list[str], lanes: list[int]
) -> Iterator[LabelledCable]:
    """Name a block of cables; where a leaf's port is split, a GPU's end is named port/part."""
    low = c.low.tolist()
    low_names = map(x.gpu_name, low) if c.low_tier == "gpu" else (x.names[c.low_tier][i] for i in low)
    high_names = x.names[c.high_tier]
    split = x.design.split if c.low_tier == "gpu" else 1
    high_port = [str(p) if split == 1 else f"{p // split}/{p % split}" for p in c.high_port.tolist()]
    ends = zip(low_names, c.low_port.tolist(), c.high.tolist(), high_port, metres.tolist(), media, lanes, strict=True)
    for name, port, high, at, length, medium, lane in ends:
        yield LabelledCable(name, str(port), high_names[high], at, length, medium, lane)


BILL_HEADER = ("part", "where", "count", "metres", "usd")
CENT = 0.01
ROUNDING = 1e-9  # relative: of sums in another order


@dataclass(frozen=True, slots=True)
class BillLine:
    """Some pieces of one part, with the metres of cables that are priced by their length."""

    part: str
    where: str
    count: int | None
    usd: float
    metres: float | None = None


def bill_of_materials(x: BuiltFabric) -> Iterator[str]:
    """Write the bill as CSV; amounts are rounded so that they sum to the rounded total.

    Raise InternalError if the lines do not sum to the price of the fabric.
    """
    lines = [line for line in _lines(x) if line.count != 0]
    total, stated = sum(line.usd for line in lines), x.fabric.cost_usd
    if abs(total - stated) > max(CENT / 2, ROUNDING * stated):
        raise InternalError(f"bill of {x.site}: lines of {total:,.2f} USD, the fabric costs {stated:,.2f} USD")
    yield _row(BILL_HEADER)
    before, cents = 0.0, 0
    for line in lines:
        before += line.usd
        upto = round(before * 100)
        metres = "" if line.metres is None else f"{line.metres:.1f}"
        yield _row((line.part, line.where, "" if line.count is None else line.count, metres, _usd(upto - cents)))
        cents = upto
    yield _row(("total", x.site, "", "", _usd(cents)))


def _lines(x: BuiltFabric) -> Iterator[BillLine]:
    n, d, switch, boxes = x.network, x.design, x.switch, Counter[str]()
    usd = {s.name: s.price_usd for s in x.models.values()}
    for tier, count in d.tier_switches.items():
        boxes[x.models[tier].name] += count
    yield from (BillLine(name, "fabric", count, count * usd[name]) for name, count in boxes.items())
    yield BillLine(switch.name, "WAN gateway", d.wan_gateways, d.wan_gateways * switch.price_usd)
    yield from _by_length(x) if price.by_reach(n) else _by_kind(x)
    if n.power_usd_per_watt:
        power = x.fabric.power_mw * 1e6 * n.power_usd_per_watt
        yield BillLine("power over the years", f"{x.fabric.power_mw:.6g} MW", None, power)


def _by_kind(x: BuiltFabric) -> Iterator[BillLine]:
    n, d, c = x.network, x.design, x.network.cables
    up = d.switch_links + (d.wan_gateway_links if d.wan_ports else 0)
    ends = price.endpoint_factor(x.switch, d.split)
    for where, links, factor, cable_usd, modules in (
        ("gpu to leaf", d.endpoint_links, ends, c.endpoint_usd, c.endpoint_transceivers),
        ("switch to switch", up, x.switch.link_factor, c.switch_usd, c.switch_transceivers),
    ):
        yield BillLine(n.optics.name, where, links * modules, factor * links * modules * n.optics.price_usd)
        yield BillLine("cable", where, links, factor * links * cable_usd)


def _by_length(x: BuiltFabric) -> Iterator[BillLine]:
    """Sum cables by medium and tiers, each cable as long as the floor makes it."""
    table, counts = price.media_table(x.network), Counter[tuple[int, str]]()
    metres, usd = defaultdict[tuple[int, str], float](float), defaultdict[tuple[int, str], float](float)
    for c, length in x.measured():
        where, chosen = f"{c.low_tier} to {c.high_tier}", table.choose(length)
        factor = price.endpoint_factor(x.switch, x.design.split) if c.low_tier == "gpu" else x.switch.link_factor
        each, _ = table.usd_watts(length)
        for medium in np.unique(chosen).tolist():
            of = chosen == medium
            counts[medium, where] += int(of.sum())
            metres[medium, where] += float(length[of].sum())
            usd[medium, where] += factor * float(each[of].sum())
    for key, count in sorted(counts.items(), key=lambda item: (item[0][1], item[0][0])):
        yield BillLine(x.media[key[0]].name, key[1], count, usd[key], metres[key])


def _row(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([escaped(v) if isinstance(v, str) else v for v in values])
    return text.getvalue()


def _usd(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


MANUFACTURER = "Generic"  # as the device-type library calls boxes of no maker
GPU_RACK = "gpu-rack"  # the role of a rack's GPUs
GREY, STATUS, INTERFACE = "9e9e9e", "planned", "dcim.interface"
RACK_WIDTH, RACK_UNITS = 19, 42
BLOCK = 1 << 12  # rows written at a time
# Colours, of NetBox's palette, of a tier and of the cables that go up from it.
COLOURS = {
    "gpu": "2196f3", "leaf": "4caf50", "spine": "ff9800", "core": "9c27b0", "super-spine": "795548",
    "wan-gateway": "f44336",
}  # fmt: skip
CAGES = {
    25: "25gbase-x-sfp28", 50: "50gbase-x-sfp56", 100: "100gbase-x-qsfp28", 200: "200gbase-x-qsfp56",
    400: "400gbase-x-osfp", 800: "800gbase-x-osfp", 1600: "1.6tbase-x-osfp1600",
}  # fmt: skip
# What NetBox calls a medium, by the first pattern in its name.
CABLE_TYPES = {
    r"dac|copper": "dac-passive", r"aec|acc": "dac-active", r"aoc": "aoc", r"[sv]r\d": "mmf", r"[dflz]r\d": "smf",
}  # fmt: skip

Row = tuple[str | int | float, ...]
Files = dict[str, Callable[[], Iterator[str]]]


def netbox_files(x: BuiltFabric) -> Files:
    """Return the writer of each file by file name, in the order in which NetBox must import them."""
    d, gbps = x.design, x.switch.port_gbps
    rack = f"GPU rack of {d.gpus_per_rack}"
    boxes = {b.name: {f"port{p}": gbps for p in range(b.ports)} for b in x.models.values()}
    roles = [*switch_counts(d), GPU_RACK]
    racks = [(x.site, name, STATUS, RACK_WIDTH, RACK_UNITS) for name in x.names["rack"]]

    def table(columns: str, rows: Callable[[], Iterable[Row]]) -> Callable[[], Iterator[str]]:
        def lines() -> Iterator[str]:
            yield f"{columns}\n"
            rest = iter(rows())
            while block := list(islice(rest, BLOCK)):
                text = io.StringIO()
                cells = ([escaped(v) if isinstance(v, str) else v for v in row] for row in block)
                csv.writer(text, lineterminator="\n").writerows(cells)
                yield text.getvalue()

        return lines

    return {
        "manufacturers.csv": table("name,slug", lambda: [(MANUFACTURER, _slug(MANUFACTURER))]),
        **{f"device-types/{_slug(name)}.yaml": partial(_device_type, name, 1, ports) for name, ports in boxes.items()},
        f"device-types/{_slug(rack)}.yaml": lambda: _device_type(rack, 0, {}),
        "device-roles.csv": table("name,slug,color", lambda: [(r, r, COLOURS.get(r, GREY)) for r in roles]),
        "sites.csv": table("name,slug,status", lambda: [(x.site, _slug(x.site), STATUS)]),
        "racks.csv": table("site,name,status,width,u_height", lambda: racks),
        "devices.csv": table(
            "name,role,manufacturer,device_type,site,location,rack,position,face,status", lambda: _devices(x, rack)
        ),
        "interfaces.csv": table("device,name,type,enabled", lambda: _interfaces(x)),
        "cables.csv": table(
            "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,"
            "type,status,label,color,length,length_unit",
            lambda: _cables(x),
        ),
    }


def interface_of(name: str, port: str) -> tuple[str, str]:
    """Return the device and the interface of a cable's end: rack and GPU/lane of a NIC, or switch and port."""
    rack, is_gpu, gpu = name.partition("-gpu")
    return (rack, f"gpu{gpu}/{port}") if is_gpu else (name, f"port{port}")


def end_of(device: str, interface: str) -> tuple[str, str]:
    """Return the end of a cable at an interface: the inverse of `interface_of`; others keep their names."""
    if interface.startswith("gpu"):
        gpu, _, lane = interface.partition("/")
        return f"{device}-{gpu}", lane or "0"
    return device, interface.removeprefix("port")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "x"


def _device_type(model: str, units: int, ports: dict[str, float]) -> Iterator[str]:
    named = {"manufacturer": MANUFACTURER, "model": model, "slug": f"{_slug(MANUFACTURER)}-{_slug(model)}"}
    interfaces = [{"name": p, "type": _cage(gbps)} for p, gbps in ports.items()]
    size = {"u_height": units, "is_full_depth": True}
    yield "---\n" + dump(named | size | ({"interfaces": interfaces} if interfaces else {}))


def _cage(gbps: float) -> str:
    return CAGES.get(round(gbps), "other")


def _devices(x: BuiltFabric, rack_type: str) -> Iterator[Row]:
    """Yield the racks' GPUs, each in its rack, and the switches, whose racks the plan leaves open."""
    for name in x.names["rack"]:
        yield f"{x.site}-{name}", GPU_RACK, MANUFACTURER, rack_type, x.site, "", name, "", "", STATUS
    for tier in switch_counts(x.design):
        for name in x.names[tier]:
            yield f"{x.site}-{name}", tier, MANUFACTURER, x.models[tier].name, x.site, "", "", "", "", STATUS


def _interfaces(x: BuiltFabric) -> Iterator[Row]:
    """Yield the interfaces of no device type: a rack's NICs as they are cabled, and parts of leaves' split ports."""
    d = x.design
    cage = _cage(x.switch.port_gbps / d.split)
    for rack in x.names["rack"]:
        for gpu in range(d.gpus_per_rack):
            for lane in range(d.lanes):
                device, name = interface_of(f"{rack}-gpu{gpu:0{width(d.gpus_per_rack)}d}", str(lane))
                yield f"{x.site}-{device}", name, cage, "true"
    for leaf in x.names["leaf"] if d.split > 1 else ():
        for part in range(d.leaf_down_used * d.split):
            yield f"{x.site}-{leaf}", f"port{part // d.split}/{part % d.split}", cage, "true"


def _cables(x: BuiltFabric) -> Iterator[Row]:
    for tier, block in labelled(x):
        for c in block:
            (a, port_a), (b, port_b) = interface_of(c.low, c.low_port), interface_of(c.high, c.high_port)
            sides = f"{x.site}-{a}", INTERFACE, port_a, f"{x.site}-{b}", INTERFACE, port_b
            yield *sides, _cable_type(c.medium), STATUS, c.label, COLOURS[tier], round(c.metres, 2), "m"


@cache
def _cable_type(medium: str) -> str:
    return next((kind for pattern, kind in CABLE_TYPES.items() if re.search(pattern, medium.lower())), "")


def write_netbox(output: Path, x: BuiltFabric) -> None:
    """Write the files into a folder, which is made where there is none, or into a ZIP file: all of them or none.

    Raise InputError where the folder or file cannot be written.
    """
    files = netbox_files(x)
    if output.suffix == ".zip":
        write_streamed(output, lambda: [_zipped(files)])
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


def _zipped(files: Files) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pieces in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                for piece in pieces():
                    file.write(piece.encode())
    return content.getvalue()
