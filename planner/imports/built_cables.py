"""Cables as they were built, from a cable list or from NetBox, against those of a design."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from planner.errors import InputError
from planner.exports.fabric_parts import BuiltFabric, end_of, labelled
from planner.files import read_text, unescaped
from planner.units import counted

# Columns of both ends in the order device, port: of our list, of NetBox's import and of its export.
OWN = ("from", "from_port", "to", "to_port")
NETBOX = (
    ("side_a_device", "side_a_name", "side_b_device", "side_b_name"),
    ("device a", "termination a", "device b", "termination b"),
)
PORT = re.compile(r"\d+(/\d+)?", re.ASCII)

Ends = dict[str, str]  # device:port at the one end of a cable to that at the other, both ways round


@dataclass(frozen=True, slots=True)
class CableDifferences:
    """The differences between built and planned cables: a verdict in one sentence, and a line for each difference."""

    verdict: str
    lines: list[str]


def differences(path: Path, fabric: BuiltFabric) -> CableDifferences:
    """Compare the cables of a file with a design: missing, extra, and two swapped, each at the port of the other.

    The file is a cable list of `planner fabric export`, or cables as NetBox imports or exports them. Cables without an
    end at a port of the fabric are of other equipment.

    InputError names the file, and the line: no such table, a row of another length, a port with two cables, or no cable
    of this fabric.
    """
    planned: Ends = {}
    for cable in chain.from_iterable(block for _, block in labelled(fabric)):
        low, high = f"{cable.low}:{cable.low_port}", f"{cable.high}:{cable.high_port}"
        planned[low], planned[high] = high, low
    built, lines = _read(path, fabric)
    missing = {one: other for one, other in _once(planned) if built.get(one) != other}
    extra = {one: other for one, other in _once(built) if planned.get(one) != other}
    # Of cables a - b and c - d that are planned, built are a - d and c - b.
    swapped = {
        one: other
        for one, other in missing.items()
        if one in built and other in built and planned.get(built[one]) == built[other]
    }
    at_swap = {*swapped, *swapped.values()}
    gone = [f"missing  {one} -- {other}" for one, other in missing.items() if one not in swapped]
    more = [
        f"extra    {one} -- {other} (line {lines.get(one) or lines[other]})"
        for one, other in extra.items()
        if not {one, other} <= at_swap
    ]
    reported: set[str] = set()
    pairs = []
    for one, other in swapped.items():
        if one not in reported:
            reported |= {built[one], built[other]}
            at = f"lines {lines[one]} and {lines[other]}"
            pairs.append(
                f"swapped  {one} -- {built[one]} and {built[other]} -- {other} ({at}); planned {one} -- {other}"
            )
    if not missing and not extra:
        return CableDifferences(f"{fabric.site}: all {len(planned) // 2:,} cables are as designed", [])
    kinds = f"{len(gone):,} missing, {len(more):,} extra, {len(swapped):,} swapped"
    count = len(gone) + len(more) + len(swapped)
    return CableDifferences(
        f"{fabric.site}: {counted(count, 'cable')} differ{'s' * (count == 1)}: {kinds}", [*gone, *more, *pairs]
    )


def _once(ends: Ends) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for one, other in ends.items():
        if one not in seen:
            seen.add(other)
            yield one, other


def _read(path: Path, fabric: BuiltFabric) -> tuple[Ends, dict[str, int]]:
    boxes = {fabric.gpu_name(i) for i in range(fabric.design.racks * fabric.design.gpus_per_rack)}.union(
        *fabric.names.values()
    )
    text = read_text(path, "give a cable list in CSV")
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;|\t", key=head.count), strict=True)
    built, lines, rows = dict[str, str](), dict[str, int](), 0
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        columns, netbox = _columns(path, header)
        for row in filter(any, reader):
            rows += 1
            where = f"{path}: line {reader.line_num}"
            if len(row) != len(header):
                problem = f"has {len(row)} cells where the header has {len(header)}"
                raise InputError(f"{where}: {problem}; add or remove commas")
            cells = [unescaped(row[column].strip()) for column in columns]
            if netbox:  # a port's label is in brackets behind its name
                low, high = (
                    end_of(cells[i].removeprefix(f"{fabric.site}-"), cells[i + 1].partition(" (")[0]) for i in (0, 2)
                )
            else:
                low, high = (cells[0], cells[1]), (cells[2], cells[3])
            one, other = ":".join(low), ":".join(high)
            own = [end for end, (box, port) in ((one, low), (other, high)) if box in boxes and PORT.fullmatch(port)]
            for end in own:
                if lines.setdefault(end, reader.line_num) != reader.line_num or one == other:
                    problem = f"port {end} has a cable already, of line {lines[end]}"
                    raise InputError(f"{where}: {problem}; correct one of the two")
            if own:
                built[one], built[other] = other, one
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}; correct the quotes there") from None
    if not built:
        problem = f"none of its {counted(rows, 'cable')} is at a port of the fabric of {fabric.site}"
        remedy = "give cables of this site, or another --site"
        raise InputError(f"{path}: {problem}, such as {fabric.gpu_name(0)}:0; {remedy}")
    return built, lines


def _columns(path: Path, header: list[str]) -> tuple[list[int], bool]:
    for names in (OWN, *NETBOX):
        if set(names) <= set(header):
            return [header.index(name) for name in names], names is not OWN
    wanted = f"{', '.join(OWN)} of a cable list, or NetBox's {', '.join(NETBOX[0])} or {', '.join(NETBOX[1])}"
    raise InputError(f"{path}: line 1: has no columns {wanted} (has {', '.join(header[:12])}); add them")
