"""The fabric as files for NetBox's bulk import: device types, racks, devices, interfaces and cables.

Columns are those of NetBox's import forms (dcim/forms/bulk_import.py), device types those of its device-type library
(schema/devicetype.json). A plan knows neither manufacturers nor rack units: those here are NetBox's own defaults, to be
corrected there. The GPUs of a rack are one device of no height. Devices bear the name of their site, as sites number
their switches alike.
"""

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.cluster.hostlist import width
from planner.exports.fabric_parts import BuiltFabric, labelled
from planner.files import escaped, unwritable, write_streamed
from planner.formats.yaml_text import dump
from planner.physics.network.cabling import switch_counts

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
    """Return what writes each file, by its name and in the order in which they are imported."""
    d, gbps = x.design, x.switch.port_gbps
    rack = f"GPU rack of {d.gpus_per_rack}"
    boxes = {b.name: {f"port{p}": gbps for p in range(b.ports)} for b in x.models.values()}
    roles = [*switch_counts(d), GPU_RACK]
    racks = [(x.site, name, STATUS, RACK_WIDTH, RACK_UNITS) for name in x.names["rack"]]

    def table(columns: str, rows: Callable[[], Iterable[Row]]) -> Callable[[], Iterator[str]]:
        return lambda: _lines(columns, rows())

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


def _lines(columns: str, rows: Iterable[Row]) -> Iterator[str]:
    """Write a table as CSV, a block of rows at a time; its texts are no formulas."""
    yield f"{columns}\n"
    rest = iter(rows)
    while block := list(islice(rest, BLOCK)):
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerows([escaped(v) if isinstance(v, str) else v for v in row] for row in block)
        yield text.getvalue()


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
    """Yield what no device type has: a rack's NICs as they are cabled, and the parts of split ports of leaves."""
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
    """Return a ZIP of files, the same for the same content."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pieces in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                for piece in pieces():
                    file.write(piece.encode())
    return content.getvalue()
