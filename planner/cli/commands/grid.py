"""`planner grid`: grids from files of other tools."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from planner.errors import InputError
from planner.files import require_writable, write_atomically

if TYPE_CHECKING:
    from planner.imports.assemble import Imported
    from planner.instance.grid import Grid

app = typer.Typer(help="Read grids from other tools' files.", no_args_is_help=True)


@app.callback()
def _grid() -> None:
    """Read grids from other tools' files."""


@app.command("import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Files of one grid: a .m case, or CSV tables recognised by their columns.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the grid here (JSON); else it is printed.")
    ] = None,
    kind: Annotated[str, typer.Option("--format", help="auto, matpower, rts-gmlc, eia-860 or reeds.")] = "auto",
    into: Annotated[
        Path | None, typer.Option(help="Write this instance with the grid in it, its rules and site prices kept.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the instance that --into writes.")] = None,
    geojson: Annotated[Path | None, typer.Option(help="Write nodes and lines here as GeoJSON.")] = None,
    radius_km: Annotated[float, typer.Option(help="Plants this near a larger one join its node (plant lists).")] = 25.0,
    positions: Annotated[Path | None, typer.Option(help="Table bus, lat, lon for a MATPOWER case.")] = None,
    at: Annotated[str | None, typer.Option(help="LAT,LON of the buses that --positions does not name.")] = None,
    authorities: Annotated[
        Path | None,
        typer.Option(
            help="Table authority, headroom_mw, energy_usd_per_mwh, interconnection, source; cells may be empty."
        ),
    ] = None,
    headroom_share: Annotated[
        float | None,
        typer.Option(help="Headroom as a share of peak demand; of installed capacity where no file has demand."),
    ] = None,
    energy_usd_per_mwh: Annotated[float | None, typer.Option(help="Price where --authorities gives none.")] = None,
    interconnection: Annotated[
        str | None, typer.Option(help="Synchronous area where neither files nor --authorities name it.")
    ] = None,
    spare_share: Annotated[float, typer.Option(help="Share of installed capacity that can feed sites.")] = 1.0,
    sites: Annotated[int | None, typer.Option(help="Let sites stand only on the N nodes with most generation.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Keep this balancing authority alone; may be repeated.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where the files come from; written as the grid's source.")] = None,
) -> None:
    """Make the grid of an instance from files of MATPOWER, RTS-GMLC, EIA-860 or ReEDS; name what they leave open."""
    from planner.imports.draft import Options
    from planner.imports.geojson import geojson as as_geojson
    from planner.imports.read import import_grid
    from planner.imports.write import instance_with, part, text
    from planner.instance.grid import Grid

    place = _place(at)
    require_writable(output, geojson)
    if name is not None and into is None:
        raise InputError(f"--name {name}: names the instance that --into writes; give --into INSTANCE")
    options = Options(
        radius_km=radius_km,
        positions=positions,
        at=place,
        authorities=authorities,
        headroom_share=headroom_share,
        energy_usd_per_mwh=energy_usd_per_mwh,
        interconnection=interconnection,
        spare_share=spare_share,
        sites=sites,
        only=tuple(only or ()),
        source=source,
    )
    imported = import_grid(files, kind, options)
    grid = imported.grid
    data = {"grid": part(grid)} if into is None else _complete(instance_with(into, grid, name), into)
    if geojson is not None:
        write_atomically(geojson, json.dumps(as_geojson(grid), ensure_ascii=False) + "\n")
    if output is None:
        print(text(data), end="")
    else:
        write_atomically(output, text(data))
    _report(imported, Grid.model_validate(data["grid"]), sys.stderr if output is None else sys.stdout)


def _complete(instance: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return an instance with the imported grid in it, or say what of the rest does not go with that grid."""
    from planner.planning.load import load_instance

    try:
        load_instance(instance)
    except InputError as error:
        raise InputError(f"{path}: does not go with the imported grid: {error}") from None
    return instance


def _place(given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    latitude, _, longitude = given.partition(",")
    try:
        place = (float(latitude), float(longitude))
    except ValueError:
        place = (math.nan, math.nan)
    if not (-90 <= place[0] <= 90 and -180 <= place[1] <= 180):
        raise InputError(f"--at {given}: must be LAT,LON in degrees, such as 39.76,-76.27")
    return place


def _report(imported: "Imported", g: "Grid", stream: TextIO) -> None:
    """Print what was read and what the files leave open, and why no site can stand where the grid feeds not itself."""
    from planner.imports.own_dispatch import shortage

    spare, headroom = sum(n.generation_mw for n in g.nodes), sum(b.headroom_mw for b in g.balancing_authorities)
    lines = f"{len(g.lines):,} lines of {sum(x.circuits for x in g.lines):,} circuits"
    print(f"{len(g.balancing_authorities):,} authorities, {len(g.nodes):,} nodes, {lines};", file=stream)
    load = sum(n.load_mw for n in g.nodes)
    print(f"{spare:,.0f} MW of generation, {load:,.0f} MW of load, {headroom:,.0f} MW of headroom", file=stream)
    for m in imported.missing:
        print(f"missing: {m}", file=sys.stderr)
    for name in imported.items.not_modelled:
        print(f"not modelled: {name}", file=sys.stderr)
    if imported.items.ignored:
        print(f"not read: {', '.join(imported.items.ignored)}", file=sys.stderr)
    for why in shortage(g).sentences():
        print(f"no site can stand: the grid does not feed its own load; {why}", file=sys.stderr)
