"""Plant lists with EIA-860 columns, and ReEDS' zones and interfaces, as a draft of a grid."""

from collections import defaultdict
from collections.abc import Iterator

from planner.errors import InputError
from planner.imports.grid_tables import (
    CsvRow,
    CsvTable,
    Draft,
    DraftAuthority,
    DraftBranch,
    DraftNode,
    GridOptions,
    Plant,
    counted,
    groups,
    names,
    nearest,
    read_peaks,
    read_plants,
    slug,
    unit_vectors,
)

# NERC regions of the other synchronous areas; the rest of the contiguous states and provinces is eastern.
AREAS = {"WECC": "western", "TRE": "ercot", "ASCC": "alaska", "HICC": "hawaii"}


def read_eia_860(tables: dict[str, CsvTable], options: GridOptions) -> Draft:
    """Read the plants, and the peak demand of their authorities where a table of it stands beside them."""
    listed = read_plants(tables["plants"], tables.get("generators"))
    plants = [p for p in listed if p.authority]
    if not plants:
        raise InputError(f"{tables['plants'].file}: no plant names its balancing authority; fill the column in")
    lost = [p.mw for p in listed if not p.authority]
    peaks = read_peaks(tables["peaks"]) if "peaks" in tables else {}
    areas = interconnections(plants)
    place = f"nodes of {options.radius_km:g} km around the largest plant of each, whose place the node has"
    return Draft(
        source=f"Plant list with EIA-860 columns {names(tables)}",
        nodes=tuple(_named(group_plants(plants, options.radius_km))),
        authorities=tuple(DraftAuthority(id=a, interconnection=x, peak_mw=peaks.get(a)) for a, x in areas.items()),
        notes=(
            f"{len(plants):,} plants in {place}",
            *counted((len(lost), f"plants without a balancing authority, {sum(lost):,.0f} MW, left out")),
        ),
    )


def group_plants(plants: list[Plant], radius_km: float) -> Iterator[list[Plant]]:
    """Yield the plants of each node, its largest first, by authority; the order of the list does not matter."""
    by_authority: defaultdict[str, list[Plant]] = defaultdict(list)
    for p in sorted(plants, key=lambda p: p.id):
        by_authority[p.authority].append(p)
    for _, own in sorted(by_authority.items()):
        points = unit_vectors([p.latitude for p in own], [p.longitude for p in own])
        for indices in groups(points, [p.mw for p in own], radius_km):
            yield [own[i] for i in indices]


def interconnections(plants: list[Plant]) -> dict[str, str | None]:
    """Return the synchronous area of each authority: that of the NERC region with most of its capacity."""
    mw: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for p in plants:
        mw[p.authority][p.region] += p.mw
    areas: dict[str, str | None] = {}
    for authority, regions in sorted(mw.items()):
        known = sorted((-x, region) for region, x in regions.items() if region)
        areas[authority] = AREAS.get(known[0][1], "eastern") if known else None
    return areas


def _named(groups_of_plants: Iterator[list[Plant]]) -> Iterator[DraftNode]:
    """Yield a node for each group, named after its largest plant; of equal names later ones carry the plant's id."""
    used: set[str] = set()
    for plants in groups_of_plants:
        first = plants[0]
        name = slug(first.name)
        while name in used:
            name += f"-{slug(first.id)}"
        used.add(name)
        units = [p.largest_unit_mw for p in plants if p.largest_unit_mw is not None]
        rest = f" and {len(plants) - 3:,} more" if len(plants) > 3 else ""
        yield DraftNode(
            id=name,
            authority=first.authority,
            latitude=first.latitude,
            longitude=first.longitude,
            installed_mw=sum(p.mw for p in plants),
            largest_unit_mw=max(units, default=None),
            note=", ".join(f"{p.name} {p.mw:,.0f} MW" for p in plants[:3]) + rest,
        )


AC = "AC"
SHARED_PEAKS = "the peak demand of a balancing authority is shared among zones as the capacity of its plants is"


def read_reeds(tables: dict[str, CsvTable], _: GridOptions) -> Draft:
    """Read zones and interfaces; authorities are the planning groups."""
    zones = _zones(tables["zones"])
    branches, shut = _interfaces(tables["interfaces"], zones) if "interfaces" in tables else ((), 0)
    notes = ["rating_mw of a corridor is the lesser of its two directions"] if branches else []
    notes += counted((shut, "corridors without capacity in one direction left out"))
    dc = sum(b.note is not None for b in branches)
    notes += counted((dc, "controllable ties (B2B, LCC), as their notes say"))
    installed: dict[str, float] | None = None
    peaks: dict[str, float] = {}
    if "plants" in tables:
        by_zone, far = _plants(read_plants(tables["plants"], tables.get("generators")), zones)
        installed = {z: sum(p.mw for p in by_zone[z]) for z in zones}
        notes.append("each plant counts in the nearest zone of its state")
        notes += counted((far, "plants in states without a zone left out"))
        if "peaks" in tables:
            peaks = _peaks(read_peaks(tables["peaks"]), by_zone, zones)
            notes.append(SHARED_PEAKS)
    elif "peaks" in tables:
        problem = "peaks of balancing authorities reach zones by way of their plants"
        raise InputError(f"{tables['peaks'].file}: {problem}; give a plant list too")
    areas = {authority(row): row.text("interconnect") for row in zones.values()}
    return Draft(
        source=f"Zones and interfaces {names(tables)}",
        nodes=tuple(
            DraftNode(
                id=row.text("zone"),
                authority=authority(row),
                latitude=row.number("lat", low=-90, high=90),
                longitude=row.number("lon", low=-180, high=180),
                installed_mw=None if installed is None else installed[z],
                note=f"zone in {row.text('state')}",
            )
            for z, row in zones.items()
        ),
        branches=branches,
        authorities=tuple(
            DraftAuthority(id=a, interconnection=area, peak_mw=peaks.get(a)) for a, area in sorted(areas.items())
        ),
        notes=tuple(notes),
    )


def authority(row: CsvRow) -> str:
    """Return the planning group of a zone, which stands for its balancing authority."""
    return row.text("planning_group")


def _zones(table: CsvTable) -> dict[str, CsvRow]:
    for column in ("zone", "lat", "lon", "state", "interconnect", "planning_group"):
        table.need(column)
    zones: dict[str, CsvRow] = {}
    area: dict[str, CsvRow] = {}
    for row in table.rows:
        if zones.setdefault(row.text("zone"), row) is not row:
            raise row.wrong("zone", f"is already the zone of line {zones[row.cells['zone']].line}", "rename one")
        first = area.setdefault(authority(row), row)
        if row.text("interconnect") != first.text("interconnect"):
            problem = f"is another than line {first.line} has for the same planning group"
            raise row.wrong("interconnect", problem, "split the group in two")
    if not zones:
        raise InputError(f"{table.file}: has no zones below its header; add rows")
    return zones


def _interfaces(table: CsvTable, zones: dict[str, CsvRow]) -> tuple[tuple[DraftBranch, ...], int]:
    """Return the corridors that carry something both ways, and how many do not."""
    for column in ("from", "to", "mw_forward", "mw_reverse"):
        table.need(column)
    kind = table.find("type")
    corridors = []
    shut = 0
    for row in table.rows:
        for end in ("from", "to"):
            if row.text(end) not in zones:
                raise row.wrong(end, "is no zone of the zone table", "correct it, or add the zone")
        if row.text("from") == row.text("to"):
            raise row.wrong("to", "is the zone that the corridor comes from", "correct it, or remove the row")
        rating = min(row.number("mw_forward", low=0), row.number("mw_reverse", low=0))
        if not rating:
            shut += 1
            continue
        tie = row.cells[kind] if kind and row.cells[kind] != AC else ""
        note = f"{tie} tie, controllable" if tie else None
        corridors.append(DraftBranch(a=row.cells["from"], b=row.cells["to"], rating_mw=rating, note=note))
    return tuple(corridors), shut


def _plants(plants: list[Plant], zones: dict[str, CsvRow]) -> tuple[dict[str, list[Plant]], int]:
    """Return the plants of each zone, and how many stand in a state that has none."""
    by_state: defaultdict[str, list[str]] = defaultdict(list)
    for z, row in zones.items():
        by_state[row.text("state")].append(z)
    points = {
        state: unit_vectors([zones[z].number("lat") for z in own], [zones[z].number("lon") for z in own])
        for state, own in by_state.items()
    }
    by_zone: dict[str, list[Plant]] = {z: [] for z in zones}
    far = 0
    for p in plants:
        if p.state in by_state:
            at = nearest(points[p.state], unit_vectors([p.latitude], [p.longitude]))
            by_zone[by_state[p.state][at]].append(p)
        else:
            far += 1
    return by_zone, far


def _peaks(peaks: dict[str, float], by_zone: dict[str, list[Plant]], zones: dict[str, CsvRow]) -> dict[str, float]:
    """Share each authority's peak among planning groups as its plants' capacity is."""
    mw: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for z, plants in by_zone.items():
        for p in plants:
            mw[p.authority][authority(zones[z])] += p.mw
    shares: defaultdict[str, float] = defaultdict(float)
    for a, by_group in sorted(mw.items()):
        total = sum(by_group.values())
        for group, part in by_group.items():
            shares[group] += peaks.get(a, 0.0) * part / total if total else 0.0
    return {g: x for g, x in shares.items() if x > 0}
