"""Read a grid from files of MATPOWER, RTS-GMLC, EIA-860 (plant lists) or ReEDS (zones)."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InputError
from planner.files import read_text
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import CsvRow, CsvTable, Draft, DraftBranch, Imported, assemble, by_name, read_table
from planner.instance.catalogue_entries import catalogue
from planner.instance.grid import PowerNode
from planner.physics.site.grid import BASE_MVA
from planner.physics.site.wan import EARTH_RADIUS_KM, Place, great_circle_km
from planner.units import few

# Names of the column of a capacity: short ones, and that of EIA-860's "Generator" sheet.
CAPACITY = ("capacity_mw", "nameplate_mw", "Nameplate Capacity (MW)")
# NERC regions of the other synchronous areas; the rest of the contiguous states and provinces is eastern.
AREAS = {"WECC": "western", "TRE": "ercot", "ASCC": "alaska", "HICC": "hawaii"}
_TABLES = catalogue("grid_tables")
# The columns that a table is recognised by, each by any of its names, by the table's role.
ROLES: dict[str, list[list[str]]] = {role: own for role, own in _TABLES["roles"].items() if role != "note"}
ID, LATITUDE = ROLES["plants"]
COLUMNS: dict[str, list[str]] = {name: _TABLES["matpower"][name] for name in ("bus", "gen", "branch")}
_OPENS = re.compile(r"^\s*(?:\w+\.)?(bus|gen|branch|dcline)\s*=\s*\[")
_BASE = re.compile(r"^\s*(?:\w+\.)?baseMVA\s*=\s*([^;]*)")
_TABLE = r"(?:\w+\.)?(?:bus|gen|branch)\s*"
_CHANGES = re.compile(rf"^\s*(?:{_TABLE}\([^=]*\)\s*=(?!=)|{_TABLE}=|mpc\s*=(?!\s*struct\b))")
_UNCOMMENTED = re.compile(r"(?:'[^']*(?:'|$)|[^%#'])*")  # of a line; a % or # between quotes is text
NO_REACTANCE = "branches of no reactance written without reactance_pu"


def counted(*figures: tuple[int, str]) -> tuple[str, ...]:
    """Return notes on how many rows of a grid's tables were left out or changed, for the counts above zero."""
    return tuple(f"{what}: {count:,}" for count, what in figures if count)


def _file_names(tables: dict[str, CsvTable]) -> str:
    return ", ".join(sorted(Path(table.file).name for table in tables.values()))


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
            for column in ("BUS_I", "GEN_BUS", "F_BUS", "T_BUS"):
                if column in cells and (row.number(column) % 1 or row.number(column) < 1):
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
    buses = by_name(tables["bus"], "BUS_I", "bus", "renumber one")
    if not buses:
        raise InputError(f"{path}: mpc.bus has no rows; give a case with buses")
    live = {number: row for number, row in buses.items() if row.number("BUS_TYPE") != 4}  # 4: isolated
    units: dict[str, list[float]] = {number: [] for number in buses}  # the MW of those in service
    for row in tables["gen"]:
        bus, mw = _known(row, "GEN_BUS", buses), row.number("PMAX")
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
            branches.append(DraftBranch(f"bus-{start}", f"bus-{end}", rating or None, x_pu, note))
            shifted += shift != 0
    places: dict[str, Place] = {}
    if options.positions is not None:  # rows of other buses are of no use here, and do no harm
        table = read_table(options.positions)
        bus, lat = table.need("bus", "BUS_I", "Bus ID"), table.need("lat", "latitude")
        lon = table.need("lon", "lng", "longitude")
        for row in table.rows:
            number = f"{int(row.number(bus, low=1))}"
            if number in places:
                raise row.wrong(bus, "is given twice", "keep one row")
            places[number] = row.place(lat, lon)
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
    nodes = []
    for number, row in live.items():
        area, voltage = f"area-{row.number('BUS_AREA'):g}", f"{row.number('BASE_KV'):g} kV"
        own = units[number]
        nodes.append(_node(f"bus-{number}", area, places[number], sum(own), own, voltage, row.number("PD")))
    notes = counted(
        (len(buses) - len(live), "isolated buses left out"),
        (idle, "generators out of service, or dispatchable loads, left out"),
        (len(tables["branch"]) - len(branches), "branches out of service left out"),
        (sum(branch.reactance_pu is None for branch in branches), NO_REACTANCE),
        (shifted, "phase shifters written without their shift"),
        (sum(node.load_mw < 0 for node in nodes), "buses of negative demand feed in whatever is planned"),
        (dc_lines, "rows of mpc.dcline left out"),
    )
    return _case_draft(nodes, branches, source=f"MATPOWER case {path.name}", notes=notes)


def _known(row: CsvRow, column: str, places: Mapping[str, CsvRow], what: str = "bus") -> str:
    if row.text(column) not in places:
        raise row.wrong(column, f"is no {what} of the {what} table", f"correct it, or add the {what}")
    return row.text(column)


def _ends(row: CsvRow, start: str, end: str, places: Mapping[str, CsvRow], what: str = "bus") -> tuple[str, str]:
    ends = _known(row, start, places, what), _known(row, end, places, what)
    if ends[0] == ends[1]:
        raise row.wrong(end, f"is the {what} that its row comes from", "correct it, or remove the row")
    return ends


def _node(
    name: str, area: str, place: Place, mw: float, units: list[float], note: str | None, load_mw: float = 0.0
) -> PowerNode:
    """Return a grid's node that can feed `mw` from units, of which the largest may not be known."""
    at: dict[str, Any] = {"latitude": place[0], "longitude": place[1], "generation_mw": mw, "load_mw": load_mw}
    return PowerNode(id=name, balancing_authority=area, largest_unit_mw=max(units, default=None), note=note, **at)


def _case_draft(nodes: list[PowerNode], branches: list[DraftBranch], **stated: Any) -> Draft:
    demand: defaultdict[str, float] = defaultdict(float)
    for node in nodes:
        demand[node.balancing_authority] += node.load_mw
    stated |= {"interconnections": dict.fromkeys(demand), "peaks_mw": {key: max(0.0, mw) for key, mw in demand.items()}}
    return Draft(nodes=tuple(nodes), branches=tuple(branches), **stated)


def reactance(x_pu: float, ratio: float, base_mva: float) -> float | None:
    """Return a branch's reactance on 100 MVA, x·tap (MATPOWER User's Manual, eq. 3.21); None where it is zero."""
    x = x_pu * (ratio or 1.0) * BASE_MVA / base_mva
    return float(f"{x:.10g}") if x else None


def read_rts_gmlc(tables: dict[str, CsvTable], _: GridOptions) -> Draft:
    """Read RTS-GMLC's three tables as a draft: a node for each bus, an authority for each area; 100 MVA is assumed."""
    tables["bus"].need_all("Bus ID", "MW Load", "Area", "lat", "lng")
    buses = by_name(tables["bus"].rows, "Bus ID", "bus", "renumber one")
    units: dict[str, list[float]] = {number: [] for number in buses}
    if "gen" in tables:
        tables["gen"].need_all("Bus ID", "PMax MW")
        for row in tables["gen"].rows:
            units[_known(row, "Bus ID", buses)].append(row.number("PMax MW", low=0))
    nodes, branches = list[PowerNode](), list[DraftBranch]()
    for number, row in buses.items():
        area, load_mw = f"area-{row.text('Area')}", row.number("MW Load", low=0)
        voltage = f"{row.cells['BaseKV']} kV" if row.cells.get("BaseKV") else None
        note = ", ".join(part for part in (row.cells.get("Bus Name"), voltage) if part) or None
        own, place = units[number], row.place("lat", "lng")
        nodes.append(_node(f"bus-{number}", area, place, sum(own), own, note, load_mw))
    if "branch" in tables:
        tables["branch"].need_all("From Bus", "To Bus", "X", "Cont Rating", "Tr Ratio")
        for row in tables["branch"].rows:
            start, end = _ends(row, "From Bus", "To Bus", buses)
            ratio, rating = row.number("Tr Ratio", low=0), row.number("Cont Rating", low=0)
            x_pu, note = reactance(row.number("X"), ratio, BASE_MVA), f"transformer, ratio {ratio:g}" if ratio else None
            branches.append(DraftBranch(f"bus-{start}", f"bus-{end}", rating or None, x_pu, note))
    source = f"RTS-GMLC tables {_file_names(tables)}; their notice must go with every copy"
    unknown = counted((sum(branch.reactance_pu is None for branch in branches), NO_REACTANCE))
    notes = ("reactances taken as on 100 MVA", *unknown)
    return _case_draft(nodes, branches, source=source, notes=notes, plants_known="gen" in tables)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


class Plant(NamedTuple):
    """A power plant of a grid as it is imported; an authority of "" is one that its list does not name."""

    id: str
    name: str
    state: str
    place: Place
    mw: float
    largest_unit_mw: float | None
    authority: str
    region: str


def read_plants(table: CsvTable, generators: CsvTable | None) -> list[Plant]:
    """Return a grid's plants by id; their capacity is the list's, or the sum of their generators in another table."""
    key, called, latitude = table.need(*ID), table.need("name", "plant_name", "Plant Name"), table.need(*LATITUDE)
    longitude = table.need("lon", "lng", "longitude", "Longitude")
    authority = table.need("ba", "balancing_authority", "Balancing Authority Code")
    units, capacity = defaultdict[str, list[float]](list), None if generators else table.need(*CAPACITY)
    if generators is not None:
        plant_of, rating = generators.need(*ID), generators.need(*CAPACITY)
        for row in generators.rows:
            units[row.text(plant_of)].append(row.number(rating, low=0))
    state, region = table.find("state", "State"), table.find("nerc", "nerc_region", "NERC Region")
    plants = [
        Plant(
            id=name,
            name=row.text(called),
            state=row.cells[state] if state else "",
            place=row.place(latitude, longitude),
            mw=row.number(capacity, low=0) if capacity else sum(units[name]),
            largest_unit_mw=max(units[name], default=None),
            authority=row.cells[authority],
            region=row.cells[region] if region else "",
        )
        for name, row in sorted(by_name(table.rows, key, "plant").items())
    ]
    if not plants:
        raise InputError(f"{table.file}: has no plants below its header; add rows")
    return plants


def read_peaks(table: CsvTable) -> dict[str, float]:
    """Return the peak demand of each balancing authority of a table, in MW; one without own demand has none."""
    key, peak = table.need("ba", "authority"), table.need("peak_mw", "peak_mw_clean_2023_24")
    rows = by_name(table.rows, key, "authority")
    return {name: mw for name, row in rows.items() if (mw := row.number(peak, low=0)) > 0}


def read_eia_860(tables: dict[str, CsvTable], options: GridOptions) -> Draft:
    """Read EIA-860 plants, and authorities' peaks where given, as a draft. InputError: no plant names its authority."""
    listed = read_plants(tables["plants"], tables.get("generators"))
    plants = [plant for plant in listed if plant.authority]
    if not plants:
        raise InputError(f"{tables['plants'].file}: no plant names its balancing authority; fill the column in")
    lost = [plant.mw for plant in listed if not plant.authority]
    # The synchronous area of an authority is that of the NERC region with most of its capacity.
    mw: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for plant in plants:
        mw[plant.authority][plant.region] += plant.mw
    interconnections = dict[str, str | None]()
    for authority, regions in mw.items():
        known = sorted((-own_mw, region) for region, own_mw in regions.items() if region)
        interconnections[authority] = AREAS.get(known[0][1], "eastern") if known else None
    used, nodes = set[str](), list[PowerNode]()
    for own in group_plants(plants, options.radius_km):
        first = own[0]
        name = _slug(first.name)
        while name in used:
            name += f"-{_slug(first.id)}"
        used.add(name)
        units = [plant.largest_unit_mw for plant in own if plant.largest_unit_mw is not None]
        note = few([f"{plant.name} {plant.mw:,.0f} MW" for plant in own], 3)
        nodes.append(_node(name, first.authority, first.place, sum(plant.mw for plant in own), units, note))
    place = f"nodes of {options.radius_km:g} km around the largest plant of each, whose place the node has"
    return Draft(
        source=f"Plant list with EIA-860 columns {_file_names(tables)}",
        nodes=tuple(nodes),
        interconnections=interconnections,
        peaks_mw=read_peaks(tables["peaks"]) if "peaks" in tables else {},
        notes=(
            f"{len(plants):,} plants in {place}",
            *counted((len(lost), f"plants without a balancing authority, {sum(lost):,.0f} MW, left out")),
        ),
    )


def group_plants(plants: list[Plant], radius_km: float) -> Iterator[list[Plant]]:
    """Yield the plants of each node of an imported grid, by authority: the largest left, with all in its radius."""
    # The squared chord that spans a great circle of d: (2·sin(d/2r))².
    limit = (2 * np.sin(min(radius_km / (2 * EARTH_RADIUS_KM), np.pi / 2))) ** 2
    by_authority: defaultdict[str, list[Plant]] = defaultdict(list)
    for plant in sorted(plants, key=lambda plant: plant.id):
        by_authority[plant.authority].append(plant)
    for _, own in sorted(by_authority.items()):
        lat, lon = np.radians([plant.place for plant in own]).T
        points = np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))
        left = np.argsort([-plant.mw for plant in own], kind="stable")
        while left.size:
            within = ((points[left] - points[left[0]]) ** 2).sum(axis=1) <= limit
            yield [own[index] for index in left[within]]
            left = left[~within]


def read_reeds(tables: dict[str, CsvTable], _: GridOptions) -> Draft:
    """Read the zones and interfaces of ReEDS as a draft; planning groups are taken as balancing authorities."""
    table = tables["zones"]
    table.need_all("zone", "lat", "lon", "state", "interconnect", "planning_group")
    zones, first_of = by_name(table.rows, "zone", "zone", "rename one"), dict[str, CsvRow]()
    for row in table.rows:
        first = first_of.setdefault(row.text("planning_group"), row)
        if row.text("interconnect") != first.text("interconnect"):
            problem = f"is another than line {first.line} has for the same planning group"
            raise row.wrong("interconnect", problem, "split the group in two")
    if not zones:
        raise InputError(f"{table.file}: has no zones below its header; add rows")
    places: dict[str, Place] = {zone: row.place("lat", "lon") for zone, row in zones.items()}
    corridors = tables.get("interfaces")
    branches = tuple(_branches(corridors, zones)) if corridors else ()
    shut = len(corridors.rows) - len(branches) if corridors else 0
    notes = ["rating_mw of a corridor is the lesser of its two directions"] if branches else []
    notes += counted((shut, "corridors without capacity in one direction left out"))
    dc = sum(branch.note is not None for branch in branches)
    notes += counted((dc, "controllable ties (B2B, LCC), as their notes say"))
    installed, peaks = dict[str, float](), dict[str, float]()
    if "plants" in tables:
        plants = read_plants(tables["plants"], tables.get("generators"))
        by_state = defaultdict[str, list[str]](list)
        for zone, row in zones.items():
            by_state[row.text("state")].append(zone)
        mw = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))  # by authority and planning group
        for plant in plants:
            if zones_there := by_state.get(plant.state):
                nearest = min(zones_there, key=lambda zone: great_circle_km(*plant.place, *places[zone]))
                installed[nearest] = installed.get(nearest, 0.0) + plant.mw
                mw[plant.authority][zones[nearest].text("planning_group")] += plant.mw
        notes.append("each plant counts in the nearest zone of its state")
        lost = sum(plant.state not in by_state for plant in plants)
        notes += counted((lost, "plants in states without a zone left out"))
        if "peaks" in tables:
            # An authority's peak is shared among planning groups as the capacity of its plants is.
            for owner, peak_mw in sorted(read_peaks(tables["peaks"]).items()):
                total = sum(mw[owner].values())
                for group, part in mw[owner].items():
                    peaks[group] = peaks.get(group, 0.0) + (peak_mw * part / total if total else 0.0)
            shared = "is shared among zones as the capacity of its plants is"
            notes.append(f"the peak demand of a balancing authority {shared}")
    elif "peaks" in tables:
        problem = "peaks of balancing authorities reach zones by way of their plants"
        raise InputError(f"{tables['peaks'].file}: {problem}; give a plant list too")
    return Draft(
        source=f"Zones and interfaces {_file_names(tables)}",
        nodes=tuple(
            _node(zone, row.text("planning_group"), at, installed.get(zone, 0.0), [], f"zone in {row.text('state')}")
            for (zone, row), at in zip(zones.items(), places.values(), strict=True)
        ),
        plants_known="plants" in tables,
        branches=branches,
        interconnections={row.text("planning_group"): row.text("interconnect") for row in zones.values()},
        peaks_mw={group: mw for group, mw in peaks.items() if mw},
        notes=tuple(notes),
    )


def _branches(table: CsvTable, zones: dict[str, CsvRow]) -> Iterator[DraftBranch]:
    """Yield the corridors of a ReEDS grid that carry something both ways."""
    table.need_all("from", "to", "mw_forward", "mw_reverse")
    kind = table.find("type")
    for row in table.rows:
        start, end = _ends(row, "from", "to", zones, "zone")
        rating = min(row.number("mw_forward", low=0), row.number("mw_reverse", low=0))
        tie = row.cells[kind] if kind and row.cells[kind] != "AC" else ""
        note = f"{tie} tie, controllable" if tie else None
        if rating:
            yield DraftBranch(a=start, b=end, rating_mw=rating, note=note)


FORMATS = ("auto", "matpower", "rts-gmlc", "eia-860", "reeds")
# The reader of each format, the table that it must have, and the further ones that it can use.
READERS: dict[str, tuple[Callable[[dict[str, CsvTable], GridOptions], Draft], str, tuple[str, ...]]] = {
    "rts-gmlc": (read_rts_gmlc, "bus", ("branch", "gen")),
    "reeds": (read_reeds, "zones", ("interfaces", "plants", "generators", "peaks")),
    "eia-860": (read_eia_860, "plants", ("generators", "peaks")),
}


def import_grid(files: Sequence[Path], kind: str, options: GridOptions) -> Imported:
    """Read a grid from files of one format."""
    if kind not in FORMATS:
        raise InputError(f"--format {kind}: must be one of {', '.join(FORMATS)}")
    cases = [path for path in files if path.suffix == ".m" or kind == "matpower"]
    if cases and (len(files) > 1 or kind not in ("auto", "matpower")):
        more = [f"{path} is given too" for path in files if path is not cases[0]][:1]
        more += [] if kind in ("auto", "matpower") else [f"--format {kind} is of other files"]
        raise InputError(f"{cases[0]}: a MATPOWER case is imported alone ({' and '.join(more)}); give it by itself")
    if cases:
        return assemble(read_matpower(cases[0], options), options)
    tables: dict[str, CsvTable] = {}
    for path in files:
        table = read_table(path)
        role = next((role for role, columns in ROLES.items() if all(table.find(*names) for names in columns)), None)
        if role is None:
            problem = f"its columns are of no known format (has {', '.join(table.columns[:12])})"
            raise InputError(f"{table.file}: {problem}; see `planner grid import --help`")
        if role in tables:
            raise InputError(f"{path}: is a second table of {role}, after {tables[role].file}; give one")
        tables[role] = table
    if kind == "auto":
        kind = next((key for key, (_, required, _) in READERS.items() if required in tables), "")
    given = f"a table of {next(iter(tables))}"
    if not kind:
        raise InputError(f"{files[0]}: {given} alone makes no grid; give the table of bus, zones or plants with it")
    reader, required, optional = READERS[kind]
    if required not in tables:
        raise InputError(f"{files[0]}: --format {kind} needs a table of {required} (is {given}); give it")
    for role, table in tables.items():
        if role not in (required, *optional):
            raise InputError(f"{table.file}: is a table of {role}, which {kind} does not use; leave it out")
    draft = reader(tables, options)
    not_read = [(table.file, key) for table in tables.values() for key in table.columns if key not in table.looked_up]
    return assemble(draft, options, sorted(f"{Path(file).name}: {key}" for file, key in not_read))
