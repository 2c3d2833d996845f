"""Read drafts of a grid from plant lists (EIA-860) and ReEDS' zones; drafts, CSV tables and plants of all formats."""

import difflib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.files import csv_rows, read_text
from planner.imports.command_options import GridOptions
from planner.instance.base_types import TrackedItems
from planner.instance.grid import PowerNode
from planner.physics.site.wan import EARTH_RADIUS_KM

Vectors = NDArray[np.float64]
CORRECT_OR_REMOVE = "correct it, or remove the row"
# Names of a column: short ones, and those of EIA-860's "Plant" and "Generator" sheets.
ID = ("eia_plant_id", "plant_id", "Plant Code")
NAME = ("name", "plant_name", "Plant Name")
STATE = ("state", "State")
LATITUDE = ("lat", "latitude", "Latitude")
LONGITUDE = ("lon", "lng", "longitude", "Longitude")
CAPACITY = ("capacity_mw", "nameplate_mw", "Nameplate Capacity (MW)")
AUTHORITY = ("ba", "balancing_authority", "Balancing Authority Code")
REGION = ("nerc", "nerc_region", "NERC Region")
# NERC regions of the other synchronous areas; the rest of the contiguous states and provinces is eastern.
AREAS = {"WECC": "western", "TRE": "ercot", "ASCC": "alaska", "HICC": "hawaii"}
AC = "AC"
SHARED_PEAKS = "the peak demand of a balancing authority is shared among zones as the capacity of its plants is"


class DraftBranch(NamedTuple):
    """One circuit between two nodes in the draft of a grid; a rating of None is no limit."""

    a: str
    b: str
    rating_mw: float | None
    reactance_pu: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A grid as far as its file states it; `notes` name parts that were left out or read in a special way.

    The nodes have all that is installed as their generation, unrounded; 0 where the file says nothing of plants.
    Balancing authorities come with their interconnection, None where it is not known, and some with their peak demand.
    """

    source: str
    nodes: tuple[PowerNode, ...]
    plants_known: bool = True
    branches: tuple[DraftBranch, ...] = ()
    interconnections: dict[str, str | None]
    peaks_mw: dict[str, float]
    notes: tuple[str, ...] = ()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def counted(*figures: tuple[int, str]) -> tuple[str, ...]:
    """Return notes on how many rows of a grid's tables were left out or changed, for the counts above zero."""
    return tuple(f"{what}: {count:,}" for count, what in figures if count)


def unit_vectors(latitude: Sequence[float], longitude: Sequence[float]) -> Vectors:
    """Return places on the globe as unit vectors, one a row; latitude and longitude in degrees."""
    lat, lon = np.radians(latitude), np.radians(longitude)
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _chord2(points: Vectors, centre: Vectors) -> NDArray[np.float64]:
    """Return squared straight distances to a place in earth radii, in the order of great circles, without arcsines."""
    squared: NDArray[np.float64] = ((points - centre) ** 2).sum(axis=1)
    return squared


def nearest(points: Vectors, centre: Vectors) -> int:
    """Return the index of the place nearest to `centre`; the first of equals."""
    return int(_chord2(points, centre).argmin())


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a grid's table, with its last line; `matrix` names a table of a MATPOWER case, which has no header."""

    file: str
    line: int
    cells: Mapping[str, str]
    matrix: str = ""

    def text(self, column: str) -> str:
        """Return a cell of a grid's table that must not be empty."""
        if not self.cells[column]:
            raise self.wrong(column, "must not be empty", "fill it in, or remove the row")
        return self.cells[column]

    def number(
        self, column: str, *, low: float = -math.inf, high: float = math.inf, remedy: str = CORRECT_OR_REMOVE
    ) -> float:
        """Return a cell of a grid's table that must be a finite number within bounds."""
        bounds = f" of at least {low:g}" if math.isfinite(low) else ""
        if math.isfinite(high):
            bounds = f" from {low:g} to {high:g}"
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(column, f"must be a finite number{bounds}", remedy)
        return value

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a cell of a grid's table, its file and line."""
        where, is_ = f"column {column!r}", repr(self.cells[column])
        if self.matrix:
            where, is_ = f"{self.matrix} column {[*self.cells].index(column) + 1} ({column})", self.cells[column]
        return InputError(f"{self.file}: line {self.line}, {where}: {problem} (is {is_}); {remedy}")


def by_name(rows: Iterable[CsvRow], column: str, what: str, remedy: str = "keep one row") -> dict[str, CsvRow]:
    """Return a table's rows by their cell in a column, the name of a plant, bus or the like; refuse repeated names."""
    named: dict[str, CsvRow] = {}
    for row in rows:
        if (first := named.setdefault(row.text(column), row)) is not row:
            raise row.wrong(column, f"is already the {what} of line {first.line}", remedy)
    return named


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV table of a grid: its columns by name, and its rows."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    looked_up: set[str] = field(default_factory=set, compare=False)  # columns whose cells were read

    def find(self, *names: str) -> str | None:
        """Return the first of several names that a column of a grid's table has."""
        return next((name for name in names if name in self.columns), None)

    def need(self, *names: str) -> str:
        """Return the first of several names that a column of a grid's table has, or refuse the table."""
        column = self.find(*names)
        if column is None:
            near = difflib.get_close_matches(names[0], self.columns, 1, 0.6)
            hint = f"is it {near[0]!r}? rename it" if near else f"add it (has {', '.join(self.columns[:12])})"
            raise InputError(f"{self.file}: column {' or '.join(map(repr, names))} is missing; {hint}")
        return column

    def need_all(self, *names: str) -> None:
        """Refuse a grid's table where one of its columns is missing."""
        for name in names:
            self.need(name)


def names(tables: Mapping[str, CsvTable]) -> str:
    """List the files of a grid's tables, without their folders."""
    return ", ".join(sorted(Path(table.file).name for table in tables.values()))


def read_table(path: Path) -> CsvTable:
    """Read a grid's CSV table; its header is the first row with two filled cells, after any title."""
    rows, looked_up = csv_rows(path, read_text(path), titled=True), set[str]()
    line, first = next(rows, (1, []))
    header = [cell.strip() for cell in first]
    if not header:
        raise InputError(f"{path}: has no header of two columns or more; give a CSV file with a comma between columns")
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise InputError(f"{path}: line {line}: column {twice[0]!r} is given twice in the header; rename or remove one")
    named = ((line, {key: cell.strip() for key, cell in zip(header, row, strict=True) if key}) for line, row in rows)
    made = tuple(CsvRow(str(path), line, TrackedItems(cells, looked_up)) for line, cells in named)
    return CsvTable(str(path), tuple(filter(None, header)), made, looked_up)


class Plant(NamedTuple):
    """A power plant of a grid's list; an authority of "" is one that the list does not name."""

    id: str
    name: str
    state: str
    latitude: float
    longitude: float
    mw: float
    largest_unit_mw: float | None
    authority: str
    region: str


def read_plants(table: CsvTable, generators: CsvTable | None) -> list[Plant]:
    """Return a grid's plants by id; their capacity is the list's, or the sum of their generators in another table."""
    required = {"id": ID, "name": NAME, "lat": LATITUDE, "lon": LONGITUDE, "ba": AUTHORITY}
    columns = {key: table.need(*names) for key, names in required.items()}
    units, capacity = defaultdict[str, list[float]](list), None if generators else table.need(*CAPACITY)
    if generators is not None:
        plant_of, rating = generators.need(*ID), generators.need(*CAPACITY)
        for row in generators.rows:
            units[row.text(plant_of)].append(row.number(rating, low=0))
    state, region = table.find(*STATE), table.find(*REGION)
    plants = []
    for name, row in sorted(by_name(table.rows, columns["id"], "plant").items()):
        plant = Plant(
            id=name,
            name=row.text(columns["name"]),
            state=row.cells[state] if state else "",
            latitude=row.number(columns["lat"], low=-90, high=90),
            longitude=row.number(columns["lon"], low=-180, high=180),
            mw=row.number(capacity, low=0) if capacity else sum(units[name]),
            largest_unit_mw=max(units[name], default=None),
            authority=row.cells[columns["ba"]],
            region=row.cells[region] if region else "",
        )
        plants.append(plant)
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
        rest = f" and {len(own) - 3:,} more" if len(own) > 3 else ""
        node = PowerNode(
            id=name,
            balancing_authority=first.authority,
            latitude=first.latitude,
            longitude=first.longitude,
            generation_mw=sum(plant.mw for plant in own),
            largest_unit_mw=max(units, default=None),
            note=", ".join(f"{plant.name} {plant.mw:,.0f} MW" for plant in own[:3]) + rest,
        )
        nodes.append(node)
    place = f"nodes of {options.radius_km:g} km around the largest plant of each, whose place the node has"
    return Draft(
        source=f"Plant list with EIA-860 columns {names(tables)}",
        nodes=tuple(nodes),
        interconnections=interconnections,
        peaks_mw=read_peaks(tables["peaks"]) if "peaks" in tables else {},
        notes=(
            f"{len(plants):,} plants in {place}",
            *counted((len(lost), f"plants without a balancing authority, {sum(lost):,.0f} MW, left out")),
        ),
    )


def group_plants(plants: list[Plant], radius_km: float) -> Iterator[list[Plant]]:
    """Yield each grid node's plants by authority: the largest left, of equals the first id, and all in its radius."""
    # The squared chord that spans a great circle of d: (2·sin(d/2r))².
    limit = (2 * np.sin(min(radius_km / (2 * EARTH_RADIUS_KM), np.pi / 2))) ** 2
    by_authority: defaultdict[str, list[Plant]] = defaultdict(list)
    for plant in sorted(plants, key=lambda plant: plant.id):
        by_authority[plant.authority].append(plant)
    for _, own in sorted(by_authority.items()):
        points = unit_vectors([plant.latitude for plant in own], [plant.longitude for plant in own])
        left = np.argsort([-plant.mw for plant in own], kind="stable")
        while left.size:
            within = _chord2(points[left], points[left[0]]) <= limit
            within[0] = True
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
        points = dict[str, Vectors]()
        for state, names_there in by_state.items():
            lat, lon = ([zones[zone].number(key) for zone in names_there] for key in ("lat", "lon"))
            points[state] = unit_vectors(lat, lon)
        by_zone: dict[str, list[Plant]] = {zone: [] for zone in zones}
        for plant in (plant for plant in plants if plant.state in by_state):
            at = nearest(points[plant.state], unit_vectors([plant.latitude], [plant.longitude]))
            by_zone[by_state[plant.state][at]].append(plant)
        installed = {zone: sum(plant.mw for plant in by_zone[zone]) for zone in zones}
        notes.append("each plant counts in the nearest zone of its state")
        notes += counted((len(plants) - sum(map(len, by_zone.values())), "plants in states without a zone left out"))
        if "peaks" in tables:
            # An authority's peak is shared among planning groups as the capacity of its plants is.
            mw = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))
            for zone, own in by_zone.items():
                for plant in own:
                    mw[plant.authority][zones[zone].text("planning_group")] += plant.mw
            for owner, peak_mw in sorted(read_peaks(tables["peaks"]).items()):
                total = sum(mw[owner].values())
                for group, part in mw[owner].items():
                    peaks[group] = peaks.get(group, 0.0) + (peak_mw * part / total if total else 0.0)
            notes.append(SHARED_PEAKS)
    elif "peaks" in tables:
        problem = "peaks of balancing authorities reach zones by way of their plants"
        raise InputError(f"{tables['peaks'].file}: {problem}; give a plant list too")
    return Draft(
        source=f"Zones and interfaces {names(tables)}",
        nodes=tuple(
            PowerNode(
                id=row.text("zone"),
                balancing_authority=row.text("planning_group"),
                latitude=row.number("lat", low=-90, high=90),
                longitude=row.number("lon", low=-180, high=180),
                generation_mw=installed.get(zone, 0.0),
                note=f"zone in {row.text('state')}",
            )
            for zone, row in zones.items()
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
        for end in ("from", "to"):
            if row.text(end) not in zones:
                raise row.wrong(end, "is no zone of the zone table", "correct it, or add the zone")
        if row.text("from") == row.text("to"):
            raise row.wrong("to", "is the zone that the corridor comes from", "correct it, or remove the row")
        rating = min(row.number("mw_forward", low=0), row.number("mw_reverse", low=0))
        tie = row.cells[kind] if kind and row.cells[kind] != AC else ""
        note = f"{tie} tie, controllable" if tie else None
        if rating:
            yield DraftBranch(a=row.cells["from"], b=row.cells["to"], rating_mw=rating, note=note)
