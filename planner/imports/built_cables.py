"""Cables as they were built, from a cable list or from NetBox, against those of a design.

Every port of a fabric has a number, so a cable is a pair of numbers. An end that is no port of the fabric, of other
equipment or beyond a switch's ports, is numbered after them; a cable that has no end at the fabric is none of it.
"""

import csv
import io
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.exports.from_plan import BuiltFabric
from planner.exports.netbox import end_of
from planner.files import read_text, unescaped
from planner.physics.network.cabling import lay, switch_counts
from planner.physics.network.links import Ints

# Columns of both ends in the order device, port: of our list, of NetBox's import and of its export.
OWN = ("from", "from_port", "to", "to_port")
NETBOX = (
    ("side_a_device", "side_a_name", "side_b_device", "side_b_name"),
    ("device a", "termination a", "device b", "termination b"),
)
NO_CABLE = -1


class PortNumbers:
    """The ports of a fabric by number, and by the name of their device and their own: tier by tier, box by box.

    Of a leaf with split ports their parts come before whole ports.
    """

    def __init__(self, x: BuiltFabric) -> None:
        self.x, self.total, d = x, 0, x.design
        self.first, self.each = dict[str, int](), dict[str, int]()  # by tier: number of its first port, ports of a box
        self.boxes = dict[str, tuple[str, int]]()  # by name: tier, and number of the first port
        for tier, n in {"gpu": d.racks * d.gpus_per_rack, **switch_counts(d)}.items():
            ports = d.lanes if tier == "gpu" else d.ports + self._parts(tier)
            self.first[tier], self.each[tier] = self.total, ports
            names = map(x.gpu_name, range(n)) if tier == "gpu" else x.names[tier]
            self.boxes |= {name: (tier, self.total + i * ports) for i, name in enumerate(names)}
            self.total += n * ports

    def _parts(self, tier: str) -> int:
        d = self.x.design
        return d.ports * d.split if tier == "leaf" and d.split > 1 else 0

    def of(self, tier: str, box: Ints, port: Ints, *, part: bool) -> Ints:
        """Return the numbers of ports of a tier's boxes, of parts of ports where they are such."""
        return self.first[tier] + box * self.each[tier] + port + (0 if part else self._parts(tier))

    def named(self, name: str, port: str) -> int | None:
        """Return the number of a port by name, None where the fabric has none such."""
        if name not in self.boxes:
            return None
        tier, first = self.boxes[name]
        whole, is_part, part = port.partition("/")
        split = self.x.design.split
        if not (whole.isdecimal() and whole.isascii()) or (is_part and not (part.isdecimal() and part.isascii())):
            return None
        parts = self._parts(tier)
        at = int(whole) * split + int(part) if is_part else parts + int(whole)
        inside = (at < parts and int(part) < split) if is_part else at < self.each[tier]
        return first + at if inside else None

    def name(self, number: int) -> str:
        """Return the name of a port."""
        tiers = list(self.first)
        tier = tiers[bisect_right(list(self.first.values()), number) - 1]
        box, at = divmod(number - self.first[tier], self.each[tier])
        parts, split = self._parts(tier), self.x.design.split
        port = f"{at // split}/{at % split}" if at < parts else f"{at - parts}"
        return f"{self.x.gpu_name(box) if tier == 'gpu' else self.x.names[tier][box]}:{port}"


class BuiltCable(NamedTuple):
    """A cable of a file by the numbers of its ends, the lower first, and its line."""

    low: int
    high: int
    line: int


@dataclass(frozen=True, slots=True)
class BuiltCables:
    """The cables of a file that have an end at a fabric, and the names of ends beyond the fabric's own ports."""

    ports: PortNumbers
    cables: list[BuiltCable]
    others: list[str]

    def name(self, number: int) -> str:
        """Return the name of an end."""
        beyond = number - self.ports.total
        return self.others[beyond] if beyond >= 0 else self.ports.name(number)


def read_cables(path: Path, x: BuiltFabric) -> BuiltCables:
    """Read a cable list of `planner fabric export`, or cables as NetBox imports or exports them.

    Raises
    ------
    InputError
        Names the file, and the line: no such table, a row of another length, a port with two cables, or no cable of
        this fabric.
    """
    text = read_text(path, "give a cable list in CSV")
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;|\t", key=head.count), strict=True)
    ports, cables, rows = PortNumbers(x), list[BuiltCable](), 0
    others, lines = dict[tuple[str, str], int](), dict[int, int]()
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        columns = _columns(path, header)
        for row in reader:
            if not any(row):
                continue
            rows += 1
            if len(row) != len(header):
                problem = f"has {len(row)} cells where the header has {len(header)}"
                raise InputError(f"{path}: line {reader.line_num}: {problem}; add or remove commas")
            cells = [unescaped(row[i].strip()) for i in columns[0]]
            ends = [_end(x.site, *cells[i : i + 2], netbox=columns[1]) for i in (0, 2)]
            numbers = [ports.named(*end) for end in ends]
            if numbers == [None, None]:
                continue
            own = sorted(
                ports.total + others.setdefault(end, len(others)) if n is None else n
                for n, end in zip(numbers, ends, strict=True)
            )
            for number, end in zip(numbers, ends, strict=True):
                if number in lines:
                    where = f"{path}: line {reader.line_num}: port {':'.join(end)}"
                    raise InputError(f"{where} has a cable already, of line {lines[number]}; correct one of the two")
                if number is not None:
                    lines[number] = reader.line_num
            cables.append(BuiltCable(own[0], own[1], reader.line_num))
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}; correct the quotes there") from None
    if not cables:
        problem = f"none of its {rows:,} cables is at a port of the fabric of {x.site}"
        raise InputError(f"{path}: {problem}, such as {ports.name(0)}; give cables of this site, or another --site")
    return BuiltCables(ports, cables, [":".join(end) for end in others])


def _columns(path: Path, header: list[str]) -> tuple[list[int], bool]:
    """Return where the ends of a cable are in a row, and whether they are named as NetBox does."""
    for names in (OWN, *NETBOX):
        if set(names) <= set(header):
            return [header.index(n) for n in names], names is not OWN
    wanted = f"{', '.join(OWN)} of a cable list, or NetBox's {', '.join(NETBOX[0])} or {', '.join(NETBOX[1])}"
    raise InputError(f"{path}: line 1: has no columns {wanted} (has {', '.join(header[:12])}); add them")


def _end(site: str, device: str, port: str, *, netbox: bool) -> tuple[str, str]:
    """Return the device and port of an end as the design names them; NetBox writes a port's label in brackets."""
    return end_of(device.removeprefix(f"{site}-"), port.partition(" (")[0]) if netbox else (device, port)


@dataclass(frozen=True, slots=True)
class CableDifferences:
    """What differs, in one sentence, and a line for each difference."""

    verdict: str
    lines: list[str]


def differences(x: BuiltFabric, built: BuiltCables) -> CableDifferences:
    """Compare cables with a design: missing, extra, and two that are swapped, each at the port of the other."""
    ports = built.ports
    planned, made = (np.full(ports.total + len(built.others), NO_CABLE, dtype=np.int64) for _ in range(2))
    total = 0
    for c in lay(x.design):
        split = c.low_tier == "gpu" and x.design.split > 1
        low, high = (
            ports.of(c.low_tier, c.low, c.low_port, part=False),
            ports.of(c.high_tier, c.high, c.high_port, part=split),
        )
        planned[low], planned[high] = high, low
        total += len(low)
    pairs = np.array([c[:2] for c in built.cables], dtype=np.int64)
    made[pairs[:, 0]], made[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    ends = np.arange(len(planned))
    missing = ends[(planned > ends) & (made != planned)]
    # Of a cable a - b, built a - d and b - c, and c - d planned: the two are swapped.
    other = planned[made[missing]]
    both = (made[missing] >= 0) & (made[planned[missing]] >= 0) & (other >= 0)
    swapped = missing[both & (other == made[planned[missing]])]
    in_swap = np.zeros(len(planned), dtype=bool)
    in_swap[swapped], in_swap[planned[swapped]] = True, True
    gone = [int(a) for a in missing if not in_swap[a]]
    extra = [c for c in built.cables if planned[c.low] != c.high and not in_swap[c.low]]
    line_of = {end: c.line for c in built.cables if in_swap[c.low] for end in c[:2]}

    def cable(a: int, b: int) -> str:
        return f"{built.name(a)} -- {built.name(b)}"

    lines = [f"missing  {cable(a, int(planned[a]))}" for a in gone]
    lines += [f"extra    {cable(c.low, c.high)} (line {c.line})" for c in extra]
    for a in map(int, swapped):
        b, d = int(planned[a]), int(made[a])
        first, second = sorted((b, int(planned[d])))
        if a < min(int(planned[d]), d):
            at = f"lines {line_of[a]} and {line_of[b]}"
            lines.append(f"swapped  {cable(a, d)} and {cable(first, second)} ({at}); planned {cable(a, b)}")
    if not lines:
        return CableDifferences(f"{x.site}: all {total:,} cables are as designed", lines)
    n = len(gone) + len(extra) + len(swapped)
    kinds = f"{len(gone):,} missing, {len(extra):,} extra, {len(swapped):,} swapped"
    return CableDifferences(f"{x.site}: {n:,} cable{'s' * (n > 1)} differ{'s' * (n == 1)}: {kinds}", lines)
