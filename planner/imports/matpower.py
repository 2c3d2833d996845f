"""MATPOWER case files and RTS-GMLC tables: buses, generators and branches as a draft of a grid."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.files import read_text
from planner.imports.grid_tables import (
    CsvRow,
    CsvTable,
    Draft,
    DraftAuthority,
    DraftBranch,
    DraftNode,
    GridOptions,
    counted,
    names,
    read_table,
)

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


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One row of a table."""

    file: str
    table: str
    line: int
    values: tuple[float, ...]

    def get(self, column: str) -> float:
        """Return a value by the column's name; it must be finite."""
        value = self.values[COLUMNS[self.table].index(column)]
        if not math.isfinite(value):
            raise self.wrong(column, "must be finite", "correct it")
        return value

    def number(self, column: str) -> int:
        """Return a value that must be a positive whole number, such as a bus."""
        value = self.get(column)
        if value != int(value) or value < 1:
            raise self.wrong(column, "must be a positive whole number", "correct it")
        return int(value)

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a value."""
        number = COLUMNS[self.table].index(column)
        where = f"{self.file}: line {self.line}, {self.table} column {number + 1} ({column})"
        return InputError(f"{where}: {problem} (is {self.values[number]:g}); {remedy}")


@dataclass(frozen=True, slots=True)
class Case:
    """The parts of a MATPOWER case that are read."""

    file: str
    base_mva: float
    tables: dict[str, tuple[MatrixRow, ...]]
    dc_lines: int


def read_case(path: Path) -> Case:
    """Read the tables of a case file."""
    file = str(path)
    base: float | None = None
    tables: dict[str, list[tuple[int, list[str]]]] = {}
    lines = list(_code(file, read_text(path)))
    i = 0
    while i < len(lines):
        number, text = lines[i]
        opened, based = _OPENS.match(text), _BASE.match(text)
        if opened:
            if opened[1] in tables:
                raise InputError(f"{file}: line {number}: table {opened[1]!r} is written twice; keep one")
            tables[opened[1]], i = _matrix_body(file, lines, i, opened.end(), opened[1])
        elif based:
            base = _matrix_value(file, number, "baseMVA", based[1].strip())
        elif _CHANGES.match(text):
            raise InputError(
                f"{file}: line {number}: {text.strip()!r} changes the case by a computation, which is not run here; "
                "save the case with MATPOWER's savecase and import that file"
            )
        i += 1
    for name in COLUMNS:
        if name not in tables:
            raise InputError(f"{file}: has no table mpc.{name}; give a MATPOWER case file with bus, gen and branch")
    if base is None or not 0 < base < math.inf:
        problem = "is missing" if base is None else f"must be greater than 0 (is {base:g})"
        raise InputError(f"{file}: baseMVA {problem}; write mpc.baseMVA = 100; or its value")
    rows = {name: tuple(_matrix_rows(file, name, tables[name])) for name in COLUMNS}
    return Case(file, base, rows, len(tables.get("dcline", ())))


def _code(file: str, text: str) -> Iterator[tuple[int, str]]:
    depth, continued, start = 0, "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        stripped = raw.strip()
        if stripped in ("%{", "#{"):
            depth += 1
        elif stripped in ("%}", "#}") and depth:
            depth -= 1
        elif not depth:
            line = _uncommented(raw)
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


def _uncommented(line: str) -> str:
    """Return a line without its comment; a % or # between quotes is text."""
    quoted = False
    for i, letter in enumerate(line):
        if letter == "'":
            quoted = not quoted
        elif letter in "%#" and not quoted:
            return line[:i]
    return line


def _matrix_body(
    file: str, lines: list[tuple[int, str]], first: int, column: int, name: str
) -> tuple[list[tuple[int, list[str]]], int]:
    """Return a table's rows as words with line numbers, and the index of the line that closes it."""
    rows: list[tuple[int, list[str]]] = []
    for i in range(first, len(lines)):
        number, text = lines[i]
        text = text[column:] if i == first else text
        inside, closed, after = text.partition("]")
        if "=" in inside or "[" in inside:
            break
        rows += [(number, words) for piece in inside.split(";") if (words := piece.replace(",", " ").split())]
        if closed:
            if after.strip(" \t;,"):
                problem = f"{after.strip()!r} after the table {name!r} is not understood"
                raise InputError(f"{file}: line {number}: {problem}; end the table with ];")
            return rows, i
    raise InputError(f"{file}: line {lines[first][0]}: table {name!r} is never closed; add ]; after its last row")


def _matrix_rows(file: str, name: str, rows: list[tuple[int, list[str]]]) -> Iterator[MatrixRow]:
    columns = COLUMNS[name]
    for line, words in rows:
        if len(words) < len(columns):
            needed = f"{len(columns)} are needed ({', '.join(columns)})"
            problem = f"a row of {name!r} has {len(words)} values where {needed}"
            raise InputError(f"{file}: line {line}: {problem}; complete it")
        values = (
            _matrix_value(file, line, f"{name} column {i + 1} ({column})", word)
            for i, (column, word) in enumerate(zip(columns, words, strict=False))
        )
        yield MatrixRow(file, name, line, tuple(values))


def _matrix_value(file: str, line: int, what: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        problem = f"must be a number (is {word!r})"
        raise InputError(f"{file}: line {line}, {what}: {problem}; write the value itself, not an expression") from None


ISOLATED = 4  # BUS_TYPE of a bus out of service
BASE_MVA = 100.0  # base of reactances in an instance

NO_REACTANCE = "branches of no reactance written without reactance_pu"
Place = tuple[float, float]


def read_matpower(path: Path, options: GridOptions) -> Draft:
    """Read a case: a node for each bus in service, an authority for each area."""
    case = read_case(path)
    buses: dict[int, MatrixRow] = {}
    for row in case.tables["bus"]:
        if (first := buses.setdefault(row.number("BUS_I"), row)) is not row:
            raise row.wrong("BUS_I", f"is already the bus of line {first.line}", "renumber one")
    if not buses:
        raise InputError(f"{case.file}: mpc.bus has no rows; give a case with buses")
    live = {number: row for number, row in buses.items() if row.get("BUS_TYPE") != ISOLATED}
    units: dict[int, list[float]] = {number: [] for number in buses}  # the MW of those in service
    idle = 0
    for row in case.tables["gen"]:
        bus, mw = _known_bus(row, "GEN_BUS", buses), row.get("PMAX")
        if row.get("GEN_STATUS") > 0 and mw >= 0:
            units[bus].append(mw)
        else:
            idle += 1
    branches = list(_case_branches(case, buses, live))
    places = _places(case, live, options)
    demand: defaultdict[str, float] = defaultdict(float)
    for row in live.values():
        demand[_matpower_area(row)] += row.get("PD")
    return Draft(
        source=f"MATPOWER case {path.name}",
        nodes=tuple(_bus_node(number, row, units[number], *places[number]) for number, row in live.items()),
        branches=tuple(branch for branch, _ in branches),
        authorities=tuple(DraftAuthority(id=area, peak_mw=max(0.0, mw)) for area, mw in demand.items()),
        notes=counted(
            (len(buses) - len(live), "isolated buses left out"),
            (idle, "generators out of service, or dispatchable loads, left out"),
            (len(case.tables["branch"]) - len(branches), "branches out of service left out"),
            (sum(branch.reactance_pu is None for branch, _ in branches), NO_REACTANCE),
            (sum(shifted for _, shifted in branches), "phase shifters written without their shift"),
            (sum(row.get("PD") < 0 for row in live.values()), "buses of negative demand feed in whatever is planned"),
            (case.dc_lines, "rows of mpc.dcline left out"),
        ),
    )


def bus_id(number: int | str) -> str:
    """Return the id of a bus's node."""
    return f"bus-{number}"


def _matpower_area(row: MatrixRow) -> str:
    return f"area-{row.get('BUS_AREA'):g}"


def _known_bus(row: MatrixRow, column: str, buses: dict[int, MatrixRow]) -> int:
    number = row.number(column)
    if number not in buses:
        raise row.wrong(column, "is no bus of mpc.bus", "correct it, or add the bus")
    return number


def _bus_node(number: int, row: MatrixRow, units: list[float], latitude: float, longitude: float) -> DraftNode:
    return DraftNode(
        id=bus_id(number),
        authority=_matpower_area(row),
        latitude=latitude,
        longitude=longitude,
        installed_mw=sum(units),
        load_mw=row.get("PD"),
        largest_unit_mw=max(units, default=None),
        note=f"{row.get('BASE_KV'):g} kV",
    )


def _case_branches(
    case: Case, buses: dict[int, MatrixRow], live: dict[int, MatrixRow]
) -> Iterator[tuple[DraftBranch, bool]]:
    """Yield the branches in service, and whether each shifts the phase."""
    for row in case.tables["branch"]:
        start, end = _known_bus(row, "F_BUS", buses), _known_bus(row, "T_BUS", buses)
        if start == end:
            raise row.wrong("T_BUS", "is the bus that the branch comes from", "correct it, or remove the branch")
        rating = row.get("RATE_A")
        if rating < 0:
            raise row.wrong("RATE_A", "must be at least 0", "correct it, or write 0 for no limit")
        if row.get("BR_STATUS") > 0 and start in live and end in live:
            tap, shift = row.get("TAP"), row.get("SHIFT")
            note = None
            if tap or live[start].get("BASE_KV") != live[end].get("BASE_KV"):
                note = f"transformer, ratio {tap:g}" if tap else "transformer"
            x_pu = reactance(row.get("BR_X"), tap, case.base_mva)
            branch = DraftBranch(a=bus_id(start), b=bus_id(end), rating_mw=rating or None, reactance_pu=x_pu, note=note)
            yield branch, shift != 0


def reactance(x_pu: float, ratio: float, base_mva: float) -> float | None:
    """Return the reactance on 100 MVA as a dc power flow sees it: x·tap, base changed in proportion.

    MATPOWER User's Manual, eq. 3.21. None where it is zero, which no instance can have.
    """
    x = x_pu * (ratio or 1.0) * BASE_MVA / base_mva
    return float(f"{x:.10g}") if x else None


def _places(case: Case, live: dict[int, MatrixRow], options: GridOptions) -> dict[int, Place]:
    """Return the place of each bus: from the table of positions, else the one place given for all others.

    Raise InputError where a bus has neither.
    """
    places = {} if options.positions is None else _positions(options.positions, set(live))
    without = [number for number in live if number not in places]
    if not without:
        return places
    if options.at is not None:
        return {number: places.get(number, options.at) for number in live}
    if options.positions is not None:
        named = ", ".join(map(str, without[:6])) + (" …" if len(without) > 6 else "")
        problem = f"no position for {len(without):,} buses of {case.file} ({named})"
        raise InputError(f"{options.positions}: {problem}; add them, or give --at LAT,LON for the rest")
    raise InputError(
        f"{case.file}: a MATPOWER case has no positions; give --positions CSV with columns bus, lat, lon "
        f"and a row for each of its {len(live):,} buses, or --at LAT,LON to have all stand in one place "
        "(then no distance counts)"
    )


def _positions(path: Path, buses: set[int]) -> dict[int, Place]:
    """Read the table of positions; rows of other buses are of no use here, and do no harm."""
    table = read_table(path)
    bus, lat = table.need("bus", "BUS_I", "Bus ID"), table.need("lat", "latitude")
    lon = table.need("lon", "lng", "longitude")
    places: dict[int, Place] = {}
    for row in table.rows:
        number = int(row.number(bus, low=1))
        if number in places:
            raise row.wrong(bus, "is given twice", "keep one row")
        places[number] = (row.number(lat, low=-90, high=90), row.number(lon, low=-180, high=180))
    return {number: at for number, at in places.items() if number in buses}


# The tables are on the base of the IEEE reliability test system, which their bus, branch and gen files do not state.
RTS_BASE_MVA = 100.0


def read_rts_gmlc(tables: dict[str, CsvTable], _: GridOptions) -> Draft:
    """Read the three tables: a node for each bus, an authority for each area."""
    bus = tables["bus"]
    for column in ("Bus ID", "MW Load", "Area", "lat", "lng"):
        bus.need(column)
    buses: dict[str, CsvRow] = {}
    demand: defaultdict[str, float] = defaultdict(float)
    for row in bus.rows:
        if buses.setdefault(row.text("Bus ID"), row) is not row:
            raise row.wrong("Bus ID", f"is already the bus of line {buses[row.cells['Bus ID']].line}", "renumber one")
        demand[_rts_area(row)] += row.number("MW Load", low=0)
    units: dict[str, list[float]] | None = None
    if "gen" in tables:
        tables["gen"].need("Bus ID")
        tables["gen"].need("PMax MW")
        units = {number: [] for number in buses}
        for row in tables["gen"].rows:
            units[_known_rts_bus(row, "Bus ID", buses)].append(row.number("PMax MW", low=0))
    branches = _rts_branches(tables["branch"], buses) if "branch" in tables else ()
    return Draft(
        source=f"RTS-GMLC tables {names(tables)}; their notice must go with every copy",
        nodes=tuple(_rts_node(number, row, None if units is None else units[number]) for number, row in buses.items()),
        branches=branches,
        authorities=tuple(DraftAuthority(id=area, peak_mw=mw) for area, mw in sorted(demand.items())),
        notes=(
            "reactances taken as on 100 MVA",
            *counted((sum(branch.reactance_pu is None for branch in branches), NO_REACTANCE)),
        ),
    )


def _rts_area(row: CsvRow) -> str:
    return f"area-{row.text('Area')}"


def _known_rts_bus(row: CsvRow, column: str, buses: dict[str, CsvRow]) -> str:
    if row.text(column) not in buses:
        raise row.wrong(column, "is no bus of the bus table", "correct it, or add the bus")
    return row.cells[column]


def _rts_node(number: str, row: CsvRow, units: list[float] | None) -> DraftNode:
    voltage = f"{row.cells['BaseKV']} kV" if row.cells.get("BaseKV") else None
    note = ", ".join(part for part in (row.cells.get("Bus Name"), voltage) if part)
    return DraftNode(
        id=bus_id(number),
        authority=_rts_area(row),
        latitude=row.number("lat", low=-90, high=90),
        longitude=row.number("lng", low=-180, high=180),
        installed_mw=None if units is None else sum(units),
        load_mw=row.number("MW Load", low=0) if row.cells.get("MW Load") else 0.0,
        largest_unit_mw=max(units, default=None) if units else None,
        note=note or None,
    )


def _rts_branches(table: CsvTable, buses: dict[str, CsvRow]) -> tuple[DraftBranch, ...]:
    for column in ("From Bus", "To Bus", "X", "Cont Rating", "Tr Ratio"):
        table.need(column)
    branches = []
    for row in table.rows:
        start, end = _known_rts_bus(row, "From Bus", buses), _known_rts_bus(row, "To Bus", buses)
        if start == end:
            raise row.wrong("To Bus", "is the bus that the branch comes from", "correct it, or remove the branch")
        ratio = row.number("Tr Ratio", low=0)
        rating, x_pu = row.number("Cont Rating", low=0) or None, reactance(row.number("X"), ratio, RTS_BASE_MVA)
        note = f"transformer, ratio {ratio:g}" if ratio else None
        branches.append(DraftBranch(a=bus_id(start), b=bus_id(end), rating_mw=rating, reactance_pu=x_pu, note=note))
    return tuple(branches)
