"""RTS-GMLC tables (bus.csv, branch.csv, gen.csv), by the names of their columns."""

from collections import defaultdict

from planner.imports.draft import Draft, DraftAuthority, DraftBranch, DraftNode, Options, counted
from planner.imports.readers.matpower import NO_REACTANCE, bus_id, reactance
from planner.imports.readers.tables import Row, Table, names

# The tables are on the base of the IEEE reliability test system, which their bus, branch and gen files do not state.
BASE_MVA = 100.0


def read(tables: dict[str, Table], _: Options) -> Draft:
    """Read the three tables: a node for each bus, an authority for each area."""
    bus = tables["bus"]
    for column in ("Bus ID", "MW Load", "Area", "lat", "lng"):
        bus.need(column)
    buses: dict[str, Row] = {}
    demand: defaultdict[str, float] = defaultdict(float)
    for row in bus.rows:
        if buses.setdefault(row.text("Bus ID"), row) is not row:
            raise row.wrong("Bus ID", f"is already the bus of line {buses[row.cells['Bus ID']].line}", "renumber one")
        demand[_area(row)] += row.number("MW Load", low=0)
    units = _units(tables["gen"], buses) if "gen" in tables else None
    branches = _branches(tables["branch"], buses) if "branch" in tables else ()
    return Draft(
        source=f"RTS-GMLC tables {names(tables)}; their notice must go with every copy",
        nodes=tuple(_node(number, row, None if units is None else units[number]) for number, row in buses.items()),
        branches=branches,
        authorities=tuple(DraftAuthority(id=a, peak_mw=mw) for a, mw in sorted(demand.items())),
        notes=(
            "reactances taken as on 100 MVA",
            *counted((sum(b.reactance_pu is None for b in branches), NO_REACTANCE)),
        ),
    )


def _area(row: Row) -> str:
    return f"area-{row.text('Area')}"


def _known(row: Row, column: str, buses: dict[str, Row]) -> str:
    if row.text(column) not in buses:
        raise row.wrong(column, "is no bus of the bus table", "correct it, or add the bus")
    return row.cells[column]


def _units(table: Table, buses: dict[str, Row]) -> dict[str, list[float]]:
    table.need("Bus ID")
    table.need("PMax MW")
    units: dict[str, list[float]] = {n: [] for n in buses}
    for row in table.rows:
        units[_known(row, "Bus ID", buses)].append(row.number("PMax MW", low=0))
    return units


def _node(number: str, row: Row, units: list[float] | None) -> DraftNode:
    voltage = f"{row.cells['BaseKV']} kV" if row.cells.get("BaseKV") else None
    note = ", ".join(x for x in (row.cells.get("Bus Name"), voltage) if x)
    return DraftNode(
        id=bus_id(number),
        authority=_area(row),
        latitude=row.number("lat", low=-90, high=90),
        longitude=row.number("lng", low=-180, high=180),
        installed_mw=None if units is None else sum(units),
        load_mw=row.number("MW Load", low=0) if row.cells.get("MW Load") else 0.0,
        largest_unit_mw=max(units, default=None) if units else None,
        note=note or None,
    )


def _branches(table: Table, buses: dict[str, Row]) -> tuple[DraftBranch, ...]:
    for column in ("From Bus", "To Bus", "X", "Cont Rating", "Tr Ratio"):
        table.need(column)
    branches = []
    for row in table.rows:
        a, b = _known(row, "From Bus", buses), _known(row, "To Bus", buses)
        if a == b:
            raise row.wrong("To Bus", "is the bus that the branch comes from", "correct it, or remove the branch")
        ratio = row.number("Tr Ratio", low=0)
        rating, x_pu = row.number("Cont Rating", low=0) or None, reactance(row.number("X"), ratio, BASE_MVA)
        note = f"transformer, ratio {ratio:g}" if ratio else None
        branches.append(DraftBranch(a=bus_id(a), b=bus_id(b), rating_mw=rating, reactance_pu=x_pu, note=note))
    return tuple(branches)
