"""A plant list with EIA-860 columns, read row by row; two formats use it."""

from collections import defaultdict
from dataclasses import dataclass

from planner.errors import InputError
from planner.imports.readers.tables import Row, Table

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


def read_plants(table: Table, generators: Table | None) -> list[Plant]:
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


def _units(table: Table) -> dict[str, list[float]]:
    plant, capacity = table.need(*ID), table.need(*CAPACITY)
    units: defaultdict[str, list[float]] = defaultdict(list)
    for row in table.rows:
        units[row.text(plant)].append(row.number(capacity, low=0))
    return units


def read_peaks(table: Table) -> dict[str, float]:
    """Return the peak demand of each balancing authority, in MW; one without demand of its own has none."""
    key, peak = table.need("ba", "authority"), table.need("peak_mw", "peak_mw_clean_2023_24")
    rows: dict[str, Row] = {}
    for row in table.rows:
        if rows.setdefault(row.text(key), row) is not row:
            raise row.wrong(key, f"is already the authority of line {rows[row.cells[key]].line}", "keep one row")
    return {name: mw for name, row in rows.items() if (mw := row.number(peak, low=0)) > 0}
