"""What every grid format shares: the draft it is read into, CSV tables with their lines, plants, the sphere."""

import csv
import difflib
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.files import read_text
from planner.instance.read_items import TrackedItems
from planner.physics.site.wan import EARTH_RADIUS_KM


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNode:
    """A place of the grid with the plants that stand there."""

    id: str
    authority: str
    latitude: float
    longitude: float
    installed_mw: float | None
    load_mw: float = 0.0
    largest_unit_mw: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBranch:
    """One circuit between two nodes; a rating of None is no limit."""

    a: str
    b: str
    rating_mw: float | None
    reactance_pu: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftAuthority:
    """A balancing authority as far as the file knows it."""

    id: str
    interconnection: str | None = None
    peak_mw: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A grid as far as its file knows it; `notes` say what was left out or read in a special way."""

    source: str
    nodes: tuple[DraftNode, ...]
    branches: tuple[DraftBranch, ...] = ()
    authorities: tuple[DraftAuthority, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOptions:
    """What the user says beside the files."""

    radius_km: float = 25.0
    positions: Path | None = None
    at: tuple[float, float] | None = None
    authorities: Path | None = None
    headroom_share: float | None = None
    energy_usd_per_mwh: float | None = None
    interconnection: str | None = None
    spare_share: float = 1.0
    sites: int | None = None
    only: tuple[str, ...] = ()
    source: str | None = None


def slug(text: str) -> str:
    """Return a name as an id: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def counted(*figures: tuple[int, str]) -> tuple[str, ...]:
    """Return notes of how many rows were left out or changed, for the counts above zero."""
    return tuple(f"{what}: {n:,}" for n, what in figures if n)


Vectors = NDArray[np.float64]
Indices = NDArray[np.intp]


def unit_vectors(latitude: Sequence[float], longitude: Sequence[float]) -> Vectors:
    """Return points as unit vectors, one a row; angles in degrees."""
    lat, lon = np.radians(latitude), np.radians(longitude)
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _chord2(points: Vectors, centre: Vectors) -> NDArray[np.float64]:
    """Return squared straight distances to one point, in earth radii.

    They order points as the great circle does, and cost no arcsine.
    """
    squared: NDArray[np.float64] = ((points - centre) ** 2).sum(axis=1)
    return squared


def nearest(points: Vectors, centre: Vectors) -> int:
    """Return the index of the point nearest to `centre`; the first of equals."""
    return int(_chord2(points, centre).argmin())


def groups(points: Vectors, size: Sequence[float], radius_km: float) -> Iterator[Indices]:
    """Group points greedily: the largest that remains absorbs all that remain within the radius, and so on.

    Not connected components, which chain a dense region into one group. The first index of each group is its centre;
    points of equal size keep their order.
    """
    # The squared chord that spans a great circle of d: (2·sin(d/2r))².
    limit = (2 * np.sin(min(radius_km / (2 * EARTH_RADIUS_KM), np.pi / 2))) ** 2
    left: Indices = np.argsort(-np.asarray(size, dtype=float), kind="stable")
    while left.size:
        within = _chord2(points[left], points[left[0]]) <= limit
        within[0] = True
        yield left[within]
        left = left[~within]


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a table, with the line on which it ends."""

    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return a cell that must not be empty."""
        if not self.cells[column]:
            raise self.wrong(column, "must not be empty", "fill it in, or remove the row")
        return self.cells[column]

    def number(self, column: str, *, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a cell that must be a finite number within bounds."""
        bounds = f" of at least {low:g}" if math.isfinite(low) else ""
        if math.isfinite(high):
            bounds = f" from {low:g} to {high:g}"
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(column, f"must be a number{bounds}", "correct it, or remove the row")
        return value

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a cell."""
        where = f"{self.file}: line {self.line}, column {column!r}"
        return InputError(f"{where}: {problem} (is {self.cells[column]!r}); {remedy}")


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV file: its columns by name, and its rows."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    looked_up: set[str] = field(default_factory=set, compare=False)  # columns whose cells were read

    def find(self, *names: str) -> str | None:
        """Return the first of several names that a column has."""
        return next((n for n in names if n in self.columns), None)

    def need(self, *names: str) -> str:
        """Return the first of several names that a column has, or refuse the table."""
        column = self.find(*names)
        if column is None:
            near = difflib.get_close_matches(names[0], self.columns, 1, 0.6)
            hint = f"is it {near[0]!r}? rename it" if near else f"add it (has {', '.join(self.columns[:12])})"
            raise InputError(f"{self.file}: column {' or '.join(map(repr, names))} is missing; {hint}")
        return column


def names(tables: Mapping[str, CsvTable]) -> str:
    """List the files of some tables, without their folders."""
    return ", ".join(sorted(Path(t.file).name for t in tables.values()))


def read_table(path: Path) -> CsvTable:
    """Read a CSV file; its header is the first row with two filled cells, so that a title above it does no harm."""
    file, reader = str(path), csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] = []
    rows: list[CsvRow] = []
    looked_up = set[str]()
    try:
        for cells in reader:
            stripped = [c.strip() for c in cells]
            if not header:
                header = stripped if sum(map(bool, stripped)) >= 2 else []
                if twice := sorted({c for c in header if c and header.count(c) > 1}):
                    problem = f"column {twice[0]!r} stands twice in the header"
                    raise InputError(f"{file}: line {reader.line_num}: {problem}; rename or remove one")
            elif any(stripped):
                if len(stripped) != len(header):
                    problem = f"has {len(stripped)} cells where the header has {len(header)}"
                    raise InputError(f"{file}: line {reader.line_num}: {problem}; add or remove commas")
                given = {h: c for h, c in zip(header, stripped, strict=True) if h}
                rows.append(CsvRow(file, reader.line_num, TrackedItems(given, looked_up)))
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num}: {error}; correct the quotes there") from None
    if not header:
        raise InputError(f"{file}: has no header of two columns or more; give a CSV file with a comma between columns")
    return CsvTable(file, tuple(c for c in header if c), tuple(rows), looked_up)


# Names of a column: short ones, and those of EIA-860's "Plant" and "Generator" sheets.
ID = ("eia_plant_id", "plant_id", "Plant Code")
NAME = ("name", "plant_name", "Plant Name")
STATE = ("state", "State")
LATITUDE = ("lat", "latitude", "Latitude")
LONGITUDE = ("lon", "lng", "longitude", "Longitude")
CAPACITY = ("capacity_mw", "nameplate_mw", "Nameplate Capacity (MW)")
AUTHORITY = ("ba", "balancing_authority", "Balancing Authority Code")
REGION = ("nerc", "nerc_region", "NERC Region")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A power plant; an authority of "" is one that the list does not name."""

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
    """Return the plants by id; their capacity is the list's own, or the sum of their generators in another table."""
    required = {"id": ID, "name": NAME, "lat": LATITUDE, "lon": LONGITUDE, "ba": AUTHORITY}
    columns = {k: table.need(*names) for k, names in required.items()}
    units = None if generators is None else _units(generators)
    capacity = table.need(*CAPACITY) if units is None else None
    state, region = table.find(*STATE), table.find(*REGION)
    plants: dict[str, Plant] = {}
    lines: dict[str, int] = {}
    for row in table.rows:
        name = row.text(columns["id"])
        if name in plants:
            raise row.wrong(columns["id"], f"is already the plant of line {lines[name]}", "keep one row")
        mine = [] if units is None else units.get(name, [])
        lines[name] = row.line
        plants[name] = Plant(
            id=name,
            name=row.text(columns["name"]),
            state=row.cells[state] if state else "",
            latitude=row.number(columns["lat"], low=-90, high=90),
            longitude=row.number(columns["lon"], low=-180, high=180),
            mw=row.number(capacity, low=0) if capacity else sum(mine),
            largest_unit_mw=max(mine, default=None),
            authority=row.cells[columns["ba"]],
            region=row.cells[region] if region else "",
        )
    if not plants:
        raise InputError(f"{table.file}: has no plants below its header; add rows")
    return [plants[k] for k in sorted(plants)]


def _units(table: CsvTable) -> dict[str, list[float]]:
    plant, capacity = table.need(*ID), table.need(*CAPACITY)
    units: defaultdict[str, list[float]] = defaultdict(list)
    for row in table.rows:
        units[row.text(plant)].append(row.number(capacity, low=0))
    return units


def read_peaks(table: CsvTable) -> dict[str, float]:
    """Return the peak demand of each balancing authority, in MW; one without demand of its own has none."""
    key, peak = table.need("ba", "authority"), table.need("peak_mw", "peak_mw_clean_2023_24")
    rows: dict[str, CsvRow] = {}
    for row in table.rows:
        if rows.setdefault(row.text(key), row) is not row:
            raise row.wrong(key, f"is already the authority of line {rows[row.cells[key]].line}", "keep one row")
    return {name: mw for name, row in rows.items() if (mw := row.number(peak, low=0)) > 0}
