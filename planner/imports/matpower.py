"""MATPOWER case files and RTS-GMLC tables: buses, generators and branches as a draft of a grid."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from planner.errors import InputError
from planner.files import read_text
from planner.imports import grid_tables
from planner.imports.command_options import GridOptions
from planner.imports.grid_tables import CsvRow, CsvTable, Draft, DraftBranch
from planner.instance.grid import PowerNode

# MATPOWER User's Manual, appendix B: names of the columns, as far as this reader goes.
COLUMNS = {
    "bus": ("BUS_I", "BUS_TYPE", "PD", "QD", "GS", "BS", "BUS_AREA", "VM", "VA", "BASE_KV"),
    "gen": ("GEN_BUS", "PG", "QG", "QMAX", "QMIN", "VG", "MBASE", "GEN_STATUS", "PMAX"),
    "branch": ("F_BUS", "T_BUS", "BR_R", "BR_X", "BR_B", "RATE_A", "RATE_B", "RATE_C", "TAP", "SHIFT", "BR_STATUS"),
}
_OPENS = re.compile(r"^\s*(?:\w+\.)?(bus|gen|branch|dcline)\s*=\s*\[")
_BASE = re.compile(r"^\s*(?:\w+\.)?baseMVA\s*=\s*([^;]*)")
_TABLE = r"(?:\w+\.)?(?:bus|gen|branch)\s*"
_CHANGES = re.compile(rf"^\s*(?:{_TABLE}\([^=]*\)\s*=(?!=)|{_TABLE}=|mpc\s*=(?!\s*struct\b))")
BUSES = ("BUS_I", "GEN_BUS", "F_BUS", "T_BUS")  # columns of numbers of buses
_UNCOMMENTED = re.compile(r"(?:'[^']*(?:'|$)|[^%#'])*")  # of a line; a % or # between quotes is text
ISOLATED = 4  # BUS_TYPE of a bus out of service
BASE_MVA = 100.0  # base of reactances in an instance
NO_REACTANCE = "branches of no reactance written without reactance_pu"
Place = tuple[float, float]


def _read_case(path: Path) -> tuple[float, dict[str, list[CsvRow]], int]:
    """Return a MATPOWER case's base in MVA, rows of buses, generators, branches, and its number of mpc.dcline rows."""
    file = str(path)
    base: float | None = None
    tables: dict[str, list[tuple[int, list[str]]]] = {}
    lines = iter(list(_code(file, read_text(path))))  # a comment that is not closed is told first
    for number, text in lines:
        opened, based = _OPENS.match(text), _BASE.match(text)
        if opened:
            if opened[1] in tables:
                raise InputError(f"{file}: line {number}: table {opened[1]!r} is written twice; keep one")
            tables[opened[1]] = _matrix_body(file, opened[1], chain([(number, text[opened.end() :])], lines))
        elif based:
            base = _matrix_value(file, number, "baseMVA", based[1].strip())
        elif _CHANGES.match(text):
            problem = f"{text.strip()!r} changes the case by a computation, which is not run here"
            remedy = "save the case with MATPOWER's savecase and import that file"
            raise InputError(f"{file}: line {number}: {problem}; {remedy}")
    for name in COLUMNS:
        if name not in tables:
            raise InputError(f"{file}: has no table mpc.{name}; give a MATPOWER case file with bus, gen and branch")
    if base is None or not 0 < base < math.inf:
        problem = "is missing" if base is None else f"must be greater than 0 (is {base:g})"
        raise InputError(f"{file}: baseMVA {problem}; write mpc.baseMVA = 100; or its value")
    rows: dict[str, list[CsvRow]] = {name: [] for name in COLUMNS}
    for name, columns in COLUMNS.items():
        for line, words in tables[name]:
            if len(words) < len(columns):
                needed = f"{len(columns)} are needed ({', '.join(columns)})"
                problem = f"a row of {name!r} has {len(words)} values where {needed}"
                raise InputError(f"{file}: line {line}: {problem}; complete it")
            cells = {}
            for i, (column, word) in enumerate(zip(columns, words, strict=False), 1):
                value = _matrix_value(file, line, f"{name} column {i} ({column})", word)
                cells[column] = repr(value).removesuffix(".0")
            row = CsvRow(file, line, cells, name)
            for column in filter(cells.__contains__, BUSES):
                if row.number(column) % 1 or row.number(column) < 1:
                    raise row.wrong(column, "must be a positive whole number", "correct it")
            rows[name].append(row)
    return base, rows, len(tables.get("dcline", ()))


def _code(file: str, text: str) -> Iterator[tuple[int, str]]:
    depth, continued, start = 0, "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        stripped = raw.strip()
        if stripped in ("%{", "#{"):
            depth += 1
        elif stripped in ("%}", "#}") and depth:
            depth -= 1
        elif not depth:
            line = _UNCOMMENTED.match(raw)[0]  # type: ignore[index]  # which matches any text
            start = start if continued else number
            if "..." in line and "'" not in line:
                continued += line.split("...")[0] + " "
                continue
            yield start, continued + line
            continued = ""
    if depth:
        raise InputError(f"{file}: a block comment %{{ is never closed; add %}} on a line of its own")
    if continued:
        yield start, continued


def _matrix_body(file: str, name: str, lines: Iterator[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """Return the rows of a MATPOWER case's table as words with line numbers, from its opening to its closing line."""
    rows, first = list[tuple[int, list[str]]](), 0
    for number, line in lines:
        first = first or number
        inside, closed, after = line.partition("]")
        if "=" in inside or "[" in inside:
            break
        rows += [(number, words) for piece in inside.split(";") if (words := piece.replace(",", " ").split())]
        if closed:
            if after.strip(" \t;,"):
                problem = f"{after.strip()!r} after the table {name!r} is not understood"
                raise InputError(f"{file}: line {number}: {problem}; end the table with ];")
            return rows
    raise InputError(f"{file}: line {first}: table {name!r} is never closed; add ]; after its last row")


def _matrix_value(file: str, line: int, what: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        problem = f"must be a number (is {word!r})"
        raise InputError(f"{file}: line {line}, {what}: {problem}; write the value itself, not an expression") from None


def read_matpower(path: Path, options: GridOptions) -> Draft:
    """Read a MATPOWER case as a draft: a node for each bus in service, an authority for each area."""
    base_mva, tables, dc_lines = _read_case(path)
    buses = grid_tables.by_name(tables["bus"], "BUS_I", "bus", "renumber one")
    if not buses:
        raise InputError(f"{path}: mpc.bus has no rows; give a case with buses")
    live = {number: row for number, row in buses.items() if row.number("BUS_TYPE") != ISOLATED}
    units: dict[str, list[float]] = {number: [] for number in buses}  # the MW of those in service
    for row in tables["gen"]:
        bus, mw = _known_bus(row, "GEN_BUS", buses), row.number("PMAX")
        if row.number("GEN_STATUS") > 0 and mw >= 0:
            units[bus].append(mw)
    idle = len(tables["gen"]) - sum(map(len, units.values()))
    branches, shifted = list[DraftBranch](), 0
    for row in tables["branch"]:
        start, end = _ends(row, "F_BUS", "T_BUS", buses)
        rating = row.number("RATE_A", low=0, remedy="correct it, or write 0 for no limit")
        if row.number("BR_STATUS") > 0 and start in live and end in live:
            tap, shift, note = row.number("TAP"), row.number("SHIFT"), None
            if tap or live[start].number("BASE_KV") != live[end].number("BASE_KV"):
                note = f"transformer, ratio {tap:g}" if tap else "transformer"
            x_pu = reactance(row.number("BR_X"), tap, base_mva)
            a, b = f"bus-{start}", f"bus-{end}"
            branches.append(DraftBranch(a=a, b=b, rating_mw=rating or None, reactance_pu=x_pu, note=note))
            shifted += shift != 0
    places: dict[str, Place] = {}
    if options.positions is not None:  # rows of other buses are of no use here, and do no harm
        table = grid_tables.read_table(options.positions)
        bus, lat = table.need("bus", "BUS_I", "Bus ID"), table.need("lat", "latitude")
        lon = table.need("lon", "lng", "longitude")
        for row in table.rows:
            number = f"{int(row.number(bus, low=1))}"
            if number in places:
                raise row.wrong(bus, "is given twice", "keep one row")
            places[number] = (row.number(lat, low=-90, high=90), row.number(lon, low=-180, high=180))
    without = [number for number in live if number not in places]
    if without and options.place is not None:
        places |= dict.fromkeys(without, options.place)
    elif without and options.positions is not None:
        named = ", ".join(without[:6]) + (" …" if len(without) > 6 else "")
        problem = f"no position for {len(without):,} buses of {path} ({named})"
        raise InputError(f"{options.positions}: {problem}; add them, or give --at LAT,LON for the rest")
    elif without:
        columns = f"with columns bus, lat, lon and a row for each of its {len(live):,} buses"
        remedy = f"give --positions CSV {columns}, or --at LAT,LON to have all stand in one place"
        raise InputError(f"{path}: a MATPOWER case has no positions; {remedy} (then no distance counts)")
    demand: defaultdict[str, float] = defaultdict(float)
    nodes = []
    for number, row in live.items():
        area, load_mw = f"area-{row.number('BUS_AREA'):g}", row.number("PD")
        demand[area] += load_mw
        nodes.append(_node(number, area, places[number], units[number], load_mw, f"{row.number('BASE_KV'):g} kV"))
    return Draft(
        source=f"MATPOWER case {path.name}",
        nodes=tuple(nodes),
        branches=tuple(branches),
        interconnections=dict.fromkeys(demand),
        peaks_mw={area: max(0.0, mw) for area, mw in demand.items()},
        notes=grid_tables.counted(
            (len(buses) - len(live), "isolated buses left out"),
            (idle, "generators out of service, or dispatchable loads, left out"),
            (len(tables["branch"]) - len(branches), "branches out of service left out"),
            (sum(branch.reactance_pu is None for branch in branches), NO_REACTANCE),
            (shifted, "phase shifters written without their shift"),
            (sum(node.load_mw < 0 for node in nodes), "buses of negative demand feed in whatever is planned"),
            (dc_lines, "rows of mpc.dcline left out"),
        ),
    )


def _known_bus(row: CsvRow, column: str, buses: dict[str, CsvRow]) -> str:
    if row.text(column) not in buses:
        raise row.wrong(column, "is no bus of the table of buses", "correct it, or add the bus")
    return row.text(column)


def _ends(row: CsvRow, start: str, end: str, buses: dict[str, CsvRow]) -> tuple[str, str]:
    ends = _known_bus(row, start, buses), _known_bus(row, end, buses)
    if ends[0] == ends[1]:
        raise row.wrong(end, "is the bus that the branch comes from", "correct it, or remove the branch")
    return ends


def _node(number: str, area: str, place: Place, units: list[float], load_mw: float, note: str | None) -> PowerNode:
    return PowerNode(
        id=f"bus-{number}",
        balancing_authority=area,
        latitude=place[0],
        longitude=place[1],
        generation_mw=sum(units),
        load_mw=load_mw,
        largest_unit_mw=max(units, default=None),
        note=note,
    )


def reactance(x_pu: float, ratio: float, base_mva: float) -> float | None:
    """Return a branch's reactance on 100 MVA, x·tap (MATPOWER User's Manual, eq. 3.21); None where it is zero."""
    x = x_pu * (ratio or 1.0) * BASE_MVA / base_mva
    return float(f"{x:.10g}") if x else None


def read_rts_gmlc(tables: dict[str, CsvTable], _: GridOptions) -> Draft:
    """Read RTS-GMLC's three tables as a draft: a node for each bus, an authority for each area; 100 MVA is assumed."""
    tables["bus"].need_all("Bus ID", "MW Load", "Area", "lat", "lng")
    buses = grid_tables.by_name(tables["bus"].rows, "Bus ID", "bus", "renumber one")
    units: dict[str, list[float]] = {number: [] for number in buses}
    if "gen" in tables:
        tables["gen"].need_all("Bus ID", "PMax MW")
        for row in tables["gen"].rows:
            units[_known_bus(row, "Bus ID", buses)].append(row.number("PMax MW", low=0))
    demand: defaultdict[str, float] = defaultdict(float)
    nodes = []
    for number, row in buses.items():
        area, load_mw = f"area-{row.text('Area')}", row.number("MW Load", low=0)
        demand[area] += load_mw
        voltage = f"{row.cells['BaseKV']} kV" if row.cells.get("BaseKV") else None
        note = ", ".join(part for part in (row.cells.get("Bus Name"), voltage) if part) or None
        place = row.number("lat", low=-90, high=90), row.number("lng", low=-180, high=180)
        nodes.append(_node(number, area, place, units[number], load_mw, note))
    branches = []
    if "branch" in tables:
        tables["branch"].need_all("From Bus", "To Bus", "X", "Cont Rating", "Tr Ratio")
        for row in tables["branch"].rows:
            start, end = _ends(row, "From Bus", "To Bus", buses)
            ratio, rating = row.number("Tr Ratio", low=0), row.number("Cont Rating", low=0) or None
            x_pu, note = reactance(row.number("X"), ratio, BASE_MVA), f"transformer, ratio {ratio:g}" if ratio else None
            a, b = f"bus-{start}", f"bus-{end}"
            branches.append(DraftBranch(a=a, b=b, rating_mw=rating, reactance_pu=x_pu, note=note))
    return Draft(
        source=f"RTS-GMLC tables {grid_tables.names(tables)}; their notice must go with every copy",
        nodes=tuple(nodes),
        plants_known="gen" in tables,
        branches=tuple(branches),
        interconnections=dict.fromkeys(demand),
        peaks_mw=demand,
        notes=(
            "reactances taken as on 100 MVA",
            *grid_tables.counted((sum(branch.reactance_pu is None for branch in branches), NO_REACTANCE)),
        ),
    )
