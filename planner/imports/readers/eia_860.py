"""A plant list with EIA-860 columns, grouped into power nodes around the largest plants of each authority."""

from collections import defaultdict
from collections.abc import Iterator

from planner.errors import InputError
from planner.imports.draft import Draft, DraftAuthority, DraftNode, Options, counted, slug
from planner.imports.geometry import groups, unit_vectors
from planner.imports.readers.plants import Plant, read_peaks, read_plants
from planner.imports.readers.tables import Table, names

# NERC regions of the other synchronous areas; the rest of the contiguous states and provinces is eastern.
AREAS = {"WECC": "western", "TRE": "ercot", "ASCC": "alaska", "HICC": "hawaii"}


def read(tables: dict[str, Table], options: Options) -> Draft:
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
