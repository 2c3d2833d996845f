"""Balancing authorities: headroom, price and interconnection from the user's table, the options or the files."""

import difflib
from collections import defaultdict
from pathlib import Path

from planner.errors import InputError
from planner.imports.draft import Draft, DraftAuthority, Options
from planner.imports.readers.tables import Row, read_table
from planner.instance.grid import BalancingAuthority

COLUMNS = ("interconnection", "headroom_mw", "energy_usd_per_mwh", "source")


def fill(draft: Draft, options: Options) -> tuple[tuple[BalancingAuthority, ...], tuple[str, ...]]:
    """Return the authorities, and what is missing of them, which is written as 0.

    The user's table comes before the options, and these before the files.
    """
    given = {} if options.authorities is None else _given(options.authorities, [a.id for a in draft.authorities])
    installed: defaultdict[str, float] = defaultdict(float)
    for n in draft.nodes:
        installed[n.authority] += n.installed_mw or 0.0
    authorities, without = [], defaultdict(list)
    for a in sorted(draft.authorities, key=lambda a: a.id):
        row = given.get(a.id, {})
        headroom, reading = _headroom(a, installed[a.id], options)
        if "headroom_mw" in row:
            headroom, reading = float(row["headroom_mw"]), "given"
        price = float(row["energy_usd_per_mwh"]) if "energy_usd_per_mwh" in row else options.energy_usd_per_mwh
        area = row.get("interconnection") or a.interconnection or options.interconnection
        for key, value in (("headroom_mw", headroom), ("energy_usd_per_mwh", price), ("interconnection", area)):
            if value is None:
                without[key].append(a.id)
        authorities.append(
            BalancingAuthority(
                id=a.id,
                interconnection=area or "unnamed",
                headroom_mw=round(headroom or 0.0, 3),
                energy_usd_per_mwh=price or 0.0,
                source=row.get("source"),
                note=f"headroom_mw: {reading}",
            )
        )
    return tuple(authorities), tuple(_missing(key, ids) for key, ids in without.items())


def _missing(key: str, ids: list[str]) -> str:
    named = ", ".join(ids[:6]) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
    written, option = {
        "headroom_mw": ("0", "--headroom-share"),
        "energy_usd_per_mwh": ("0", "--energy-usd-per-mwh"),
        "interconnection": ("'unnamed'", "--interconnection"),
    }[key]
    return f"{key} of {named}: written as {written}; give {option} or --authorities"


def _headroom(a: DraftAuthority, installed_mw: float, options: Options) -> tuple[float | None, str]:
    """Return the headroom by options and files, and how it was computed."""
    share = options.headroom_share
    if share is not None and a.peak_mw is not None:
        return share * a.peak_mw, f"{share:.3g} of a peak demand of {a.peak_mw:,.0f} MW"
    if share is not None and installed_mw > 0:
        return share * installed_mw, f"{share:.3g} of {installed_mw:,.0f} MW installed"
    if a.peak_mw is not None:
        reading = f"{installed_mw:,.0f} MW installed less a demand of {a.peak_mw:,.0f} MW"
        return max(0.0, installed_mw - a.peak_mw), reading
    return None, "missing"


def _given(path: Path, known: list[str]) -> dict[str, dict[str, str]]:
    """Read the user's table: a row for an authority, an empty cell for what it leaves to options and files."""
    table = read_table(path)
    key = table.need("authority", "id")
    if table.find(*COLUMNS[:3]) is None:
        raise InputError(f"{path}: gives none of {', '.join(COLUMNS[:3])}; add one of these columns")
    given: dict[str, dict[str, str]] = {}
    for row in table.rows:
        name = row.text(key)
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise row.wrong(key, "is no authority of this grid", hint)
        if name in given:
            raise row.wrong(key, "stands twice", "keep one row")
        given[name] = _figures(row)
    return given


def _figures(row: Row) -> dict[str, str]:
    figures = {c: row.cells[c] for c in COLUMNS if row.cells.get(c)}
    for c in ("headroom_mw", "energy_usd_per_mwh"):
        if c in figures:
            row.number(c, low=0)
    return figures
