"""MATPOWER case files: buses, generators and branches; positions come from another table, as the format has none."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from planner.errors import InputError
from planner.imports.draft import Draft, DraftAuthority, DraftBranch, DraftNode, Options, counted
from planner.imports.readers.matpower_text import Case, MatrixRow, read_case
from planner.imports.readers.tables import read_table

ISOLATED = 4  # BUS_TYPE of a bus out of service
BASE_MVA = 100.0  # base of reactances in an instance

NO_REACTANCE = "branches of no reactance written without reactance_pu"
Place = tuple[float, float]


def read(path: Path, options: Options) -> Draft:
    """Read a case: a node for each bus in service, an authority for each area."""
    case = read_case(path)
    buses = _buses(case)
    live = {n: row for n, row in buses.items() if row.get("BUS_TYPE") != ISOLATED}
    units, idle = _units(case, buses)
    branches = list(_branches(case, buses, live))
    places = _places(case, live, options)
    demand: defaultdict[str, float] = defaultdict(float)
    for row in live.values():
        demand[_area(row)] += row.get("PD")
    return Draft(
        source=f"MATPOWER case {path.name}",
        nodes=tuple(_node(n, row, units[n], *places[n]) for n, row in live.items()),
        branches=tuple(b for b, _ in branches),
        authorities=tuple(DraftAuthority(id=a, peak_mw=max(0.0, mw)) for a, mw in demand.items()),
        notes=counted(
            (len(buses) - len(live), "isolated buses left out"),
            (idle, "generators out of service, or dispatchable loads, left out"),
            (len(case.tables["branch"]) - len(branches), "branches out of service left out"),
            (sum(b.reactance_pu is None for b, _ in branches), NO_REACTANCE),
            (sum(shifted for _, shifted in branches), "phase shifters written without their shift"),
            (sum(row.get("PD") < 0 for row in live.values()), "buses of negative demand feed in whatever is planned"),
            (case.dc_lines, "rows of mpc.dcline left out"),
        ),
    )


def bus_id(number: int | str) -> str:
    """Return the id of a bus's node."""
    return f"bus-{number}"


def _area(row: MatrixRow) -> str:
    return f"area-{row.get('BUS_AREA'):g}"


def _buses(case: Case) -> dict[int, MatrixRow]:
    buses: dict[int, MatrixRow] = {}
    for row in case.tables["bus"]:
        first = buses.setdefault(row.number("BUS_I"), row)
        if first is not row:
            raise row.wrong("BUS_I", f"is already the bus of line {first.line}", "renumber one")
    if not buses:
        raise InputError(f"{case.file}: mpc.bus has no rows; give a case with buses")
    return buses


def _known(row: MatrixRow, column: str, buses: dict[int, MatrixRow]) -> int:
    number = row.number(column)
    if number not in buses:
        raise row.wrong(column, "is no bus of mpc.bus", "correct it, or add the bus")
    return number


def _units(case: Case, buses: dict[int, MatrixRow]) -> tuple[dict[int, list[float]], int]:
    """Return the capacity of each unit in service by bus, and how many rows are none."""
    units: dict[int, list[float]] = {n: [] for n in buses}
    idle = 0
    for row in case.tables["gen"]:
        bus, mw = _known(row, "GEN_BUS", buses), row.get("PMAX")
        if row.get("GEN_STATUS") > 0 and mw >= 0:
            units[bus].append(mw)
        else:
            idle += 1
    return units, idle


def _node(number: int, row: MatrixRow, units: list[float], latitude: float, longitude: float) -> DraftNode:
    return DraftNode(
        id=bus_id(number),
        authority=_area(row),
        latitude=latitude,
        longitude=longitude,
        installed_mw=sum(units),
        load_mw=row.get("PD"),
        largest_unit_mw=max(units, default=None),
        note=f"{row.get('BASE_KV'):g} kV",
    )


def _branches(
    case: Case, buses: dict[int, MatrixRow], live: dict[int, MatrixRow]
) -> Iterator[tuple[DraftBranch, bool]]:
    """Yield the branches in service, and whether each shifts the phase."""
    for row in case.tables["branch"]:
        a, b = _known(row, "F_BUS", buses), _known(row, "T_BUS", buses)
        if a == b:
            raise row.wrong("T_BUS", "is the bus that the branch comes from", "correct it, or remove the branch")
        rating = row.get("RATE_A")
        if rating < 0:
            raise row.wrong("RATE_A", "must be at least 0", "correct it, or write 0 for no limit")
        if row.get("BR_STATUS") > 0 and a in live and b in live:
            tap, shift = row.get("TAP"), row.get("SHIFT")
            note = None
            if tap or live[a].get("BASE_KV") != live[b].get("BASE_KV"):
                note = f"transformer, ratio {tap:g}" if tap else "transformer"
            x_pu = reactance(row.get("BR_X"), tap, case.base_mva)
            branch = DraftBranch(a=bus_id(a), b=bus_id(b), rating_mw=rating or None, reactance_pu=x_pu, note=note)
            yield branch, shift != 0


def reactance(x_pu: float, ratio: float, base_mva: float) -> float | None:
    """Return the reactance on 100 MVA as a dc power flow sees it: x·tap, base changed in proportion.

    MATPOWER User's Manual, eq. 3.21. None where it is zero, which no instance can have.
    """
    x = x_pu * (ratio or 1.0) * BASE_MVA / base_mva
    return float(f"{x:.10g}") if x else None


def _places(case: Case, live: dict[int, MatrixRow], options: Options) -> dict[int, Place]:
    """Return where each bus stands: by the positions table, else where all the others do."""
    places = {} if options.positions is None else _positions(options.positions, set(live))
    without = [n for n in live if n not in places]
    if not without:
        return places
    if options.at is not None:
        return {n: places.get(n, options.at) for n in live}
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
            raise row.wrong(bus, "stands twice", "keep one row")
        places[number] = (row.number(lat, low=-90, high=90), row.number(lon, low=-180, high=180))
    return {n: at for n, at in places.items() if n in buses}
