"""`planner catalogue`: what can be named in an instance."""

import json
from typing import Annotated

import typer

from planner.errors import InputError, hint


def catalogue(
    kind: Annotated[
        str | None, typer.Argument(help="models, accelerators, racks, switches, precisions, instances, ...; all kinds.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="One entry, printed whole (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON.")] = False,
) -> None:
    """List names that an instance may use, with their main figures; one entry whole with its sources."""
    from planner.report.catalogue import KINDS, catalogue_text, entries

    if kind is None and as_json:
        print(json.dumps({k: sorted(entries(k)) for k in KINDS}, indent=1))
    elif kind is not None and (name is not None or as_json):
        known = entries(kind)
        if name is not None and name not in known:
            raise InputError(f"catalogue {kind}: {name!r} is not in it; {hint(name, sorted(known))}")
        print(json.dumps(known if name is None else known[name], indent=1, ensure_ascii=False))
    else:
        print(catalogue_text(kind))
