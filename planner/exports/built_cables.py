"""The cables of a fabric as built, from a file: how they differ from those of the fabric's design."""

import re
from pathlib import Path
from typing import NamedTuple

from planner.errors import InputError
from planner.exports.fabric_parts import BuiltFabric, end_of, labelled
from planner.files import csv_rows, read_text, unescaped
from planner.units import counted

# Columns of both ends in the order device, port: of our list, of NetBox's import and of its export.
OWN = ("from", "from_port", "to", "to_port")
NETBOX = (
    ("side_a_device", "side_a_name", "side_b_device", "side_b_name"),
    ("device a", "termination a", "device b", "termination b"),
)
PORT = re.compile(r"\d+(/\d+)?", re.ASCII)
Ends = dict[str, str]  # device:port at the one end of a cable to that at the other, both ways round


class BuiltCable(NamedTuple):
    """A cable as built, a line of a file, and which of its ends are ports of the planned fabric."""

    one: str
    other: str
    line: int
    own: tuple[str, ...]

    def far(self, end: str) -> str:
        """Return the other end of a cable as built, of the two that its file's line names."""
        return self.other if end == self.one else self.one

    @property
    def text(self) -> str:
        """The ends of a cable as built and its line in the file, in words."""
        return f"{self.one} -- {self.other} (line {self.line})"


def differences(path: Path, fabric: BuiltFabric) -> tuple[str, list[str]]:
    """Compare a file of cables as built with a fabric's design; return a verdict, and a line for each difference.

    A cable is missing, extra, moved to another port of the same device, doubled (its port has another cable), or one of
    two that are swapped, each at the port of the other. The file is a cable list of `planner fabric export`, or cables
    as NetBox imports or exports them; those without an end at a port of the fabric are of other equipment. InputError
    names file and line: no such table, a row of another length, or no cable of this fabric.
    """
    cables = [(f"{x.low}:{x.low_port}", f"{x.high}:{x.high_port}") for _, block in labelled(fabric) for x in block]
    planned: Ends = dict(cables) | {high: low for low, high in cables}
    # One cable a port is kept, the planned one or else the first; of the others each is doubled at a port.
    at, doubled = dict[str, BuiltCable](), list[tuple[BuiltCable, str, int]]()
    for cable in sorted(_read(path, fabric), key=lambda cable: planned.get(cable.one) != cable.other):
        taken = cable.one if cable.one == cable.other else next((end for end in cable.own if end in at), None)
        if taken is None:
            at |= dict.fromkeys(cable.own, cable)
        else:
            doubled.append((cable, taken, at.get(taken, cable).line))
    missing = {one: other for one, other in cables if one not in at or at[one].far(one) != other}
    # Of cables a - b and c - d that are planned, built are a - d and c - b.
    used = {one: other for one, other in missing.items() if one in at and other in at}
    swapped = {one: other for one, other in used.items() if planned.get(at[one].far(one)) == at[other].far(other)}
    listed = {at[one] for one in swapped} | {at[other] for other in swapped.values()}
    gone = {one: other for one, other in missing.items() if one not in swapped}
    moved, twice = [], []
    for one, other in list(gone.items()):
        free = (end for end in (one, other) if end in at and at[end] not in listed)
        if (end := next((end for end in free if _same_device(at[end], end, planned)), None)) is not None:
            listed.add(at[end])
            moved.append(f"moved    {at[end].text}; planned {one} -- {gone.pop(one)}")
    for cable, port, line in doubled:
        text = f"doubled  {cable.text}: port {port} has a cable already, of line {line}"
        for end in cable.own:
            one = end if end in gone else planned.get(end, "")
            if one in gone and _same_device(cable, end, planned):
                text += f"; planned {one} -- {gone.pop(one)}"
        twice.append(text)
    reported: set[str] = set()
    pairs = []
    for one, other in swapped.items():
        if one not in reported:
            reported |= {at[one].far(one), at[other].far(other)}
            is_ = f"{one} -- {at[one].far(one)} and {at[other].far(other)} -- {other}"
            where = f"lines {at[one].line} and {at[other].line}"
            pairs.append(f"swapped  {is_} ({where}); planned {one} -- {other}")
    kept = dict.fromkeys(at.values())
    more = [f"extra    {x.text}" for x in kept if x not in listed and planned.get(x.one) != x.other]
    lost = [f"missing  {one} -- {other}" for one, other in gone.items()]
    counts = {"missing": lost, "extra": more, "moved": moved, "doubled": twice, "swapped": swapped}
    count = sum(map(len, counts.values()))
    if not count:
        return f"{fabric.site}: all {len(cables):,} cables are as designed", []
    kinds = ", ".join(f"{len(of):,} {kind}" for kind, of in counts.items() if of)
    verdict = f"{fabric.site}: {counted(count, 'cable')} differ{'s' * (count == 1)}: {kinds}"
    return verdict, [*lost, *more, *moved, *twice, *pairs]


def _same_device(cable: BuiltCable, end: str, planned: Ends) -> bool:
    return end in planned and cable.far(end).rpartition(":")[0] == planned[end].rpartition(":")[0]


def _read(path: Path, fabric: BuiltFabric) -> list[BuiltCable]:
    gpus = range(fabric.design.racks * fabric.design.gpus_per_rack)
    boxes = {fabric.gpu_name(i) for i in gpus}.union(*fabric.names.values())
    text = read_text(path, "give a cable list in CSV")
    table = csv_rows(path, text, delimiter=max(",;|\t", key=text.partition("\n")[0].count))
    header = [cell.strip().lower() for cell in next(table, (1, []))[1]]
    names = next((names for names in (OWN, *NETBOX) if set(names) <= set(header)), None)
    if names is None:
        wanted = f"{', '.join(OWN)} of a cable list, or NetBox's {', '.join(NETBOX[0])} or {', '.join(NETBOX[1])}"
        raise InputError(f"{path}: line 1: has no columns {wanted} (has {', '.join(header[:12])}); add them")
    columns = [header.index(name) for name in names]
    built, rows = list[BuiltCable](), 0
    for rows, (line, row) in enumerate(table, 1):  # noqa: B007
        cells = [unescaped(row[column].strip()) for column in columns]
        if names is not OWN:  # a port's label is in brackets behind its name
            at_site = f"{fabric.site}-"
            low, high = (end_of(cells[i].removeprefix(at_site), cells[i + 1].partition(" (")[0]) for i in (0, 2))
        else:
            low, high = (cells[0], cells[1]), (cells[2], cells[3])
        if ends := tuple(":".join(end) for end in (low, high) if end[0] in boxes and PORT.fullmatch(end[1])):
            built.append(BuiltCable(":".join(low), ":".join(high), line, ends))
    if not built:
        problem = f"none of its {counted(rows, 'cable')} is at a port of the fabric of {fabric.site}"
        remedy = "give cables of this site, or another --site"
        raise InputError(f"{path}: {problem}, such as {fabric.gpu_name(0)}:0; {remedy}")
    return built
