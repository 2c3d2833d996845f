"""A draft made into a grid: parallel circuits merged, what is missing filled from options or named, candidates chosen."""

import difflib
from collections import Counter
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.imports.authorities import fill
from planner.imports.draft import Draft, DraftNode, Options
from planner.instance.grid import Grid, Line, PowerNode


@dataclass(frozen=True, slots=True)
class Imported:
    """A grid, and what its files did not say."""

    grid: Grid
    missing: tuple[str, ...]


def assemble(draft: Draft, options: Options) -> Imported:
    """Make the grid; nothing that the files do not say is filled without a word in its note."""
    whole_mw = sum(n.installed_mw or 0.0 for n in draft.nodes)
    draft = _only(draft, options.only)
    nodes = _nodes(draft.nodes, options)
    lines = _lines(draft, whole_mw)
    authorities, missing = fill(draft, options)
    unknown = sum(n.installed_mw is None for n in draft.nodes)
    if unknown:
        missing += (f"generation_mw of {unknown:,} nodes: written as 0; give a plant list beside the files",)
    if not lines:
        missing += ("lines: none; under the transport model each site is fed by its own node alone",)
    notes = (*draft.notes, *_readings(draft, options, whole_mw), *(f"MISSING {m}" for m in missing))
    grid = Grid(
        source=options.source or draft.source,
        note="; ".join(notes),
        balancing_authorities=authorities,
        nodes=nodes,
        lines=lines,
    )
    return Imported(grid, missing)


def _only(draft: Draft, wanted: tuple[str, ...]) -> Draft:
    """Keep the authorities asked for, with the nodes and branches inside them."""
    if not wanted:
        return draft
    known = sorted(a.id for a in draft.authorities)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            raise InputError(
                f"--only {name}: no such balancing authority; {f'did you mean {near[0]}? ' if near else ''}known: {', '.join(known)}"
            )
    nodes = tuple(n for n in draft.nodes if n.authority in wanted)
    held = {n.id for n in nodes}
    return replace(
        draft,
        nodes=nodes,
        branches=tuple(b for b in draft.branches if b.a in held and b.b in held),
        authorities=tuple(a for a in draft.authorities if a.id in wanted),
        notes=(*draft.notes, f"of all authorities only {', '.join(sorted(wanted))}"),
    )


def _nodes(drafts: tuple[DraftNode, ...], options: Options) -> tuple[PowerNode, ...]:
    """Write the nodes; where candidates are limited, those with most generation hold sites."""
    ranked = sorted(drafts, key=lambda n: (-(n.installed_mw or 0.0), n.id))
    candidates = {n.id for n in ranked[: options.sites]}
    return tuple(
        PowerNode(
            id=n.id,
            balancing_authority=n.authority,
            latitude=n.latitude,
            longitude=n.longitude,
            generation_mw=round((n.installed_mw or 0.0) * options.spare_share, 3),
            largest_unit_mw=n.largest_unit_mw,
            site=n.id in candidates,
            note=n.note,
        )
        for n in drafts
    )


def _lines(draft: Draft, unlimited_mw: float) -> tuple[Line, ...]:
    """Merge parallel branches that are equal into the circuits of one line; keep those that differ apart.

    No flow exceeds all generation there is, so that stands for a branch without a limit.
    """
    if unlimited_mw <= 0 and any(b.rating_mw is None for b in draft.branches):
        raise InputError(
            f"{draft.source}: branches without a rating, and no generation that would bound their flow; give them ratings"
        )
    count: Counter[tuple[str, str, float, float | None, str | None]] = Counter()
    first: dict[tuple[str, str, float, float | None, str | None], tuple[str, str]] = {}
    for b in draft.branches:
        note = "; ".join(x for x in (b.note, None if b.rating_mw is not None else "no limit in the file") if x) or None
        key = (min(b.a, b.b), max(b.a, b.b), unlimited_mw if b.rating_mw is None else b.rating_mw, b.reactance_pu, note)
        first.setdefault(key, (b.a, b.b))
        count[key] += 1
    used: Counter[tuple[str, str]] = Counter()
    found = []
    for key, (start, end) in first.items():
        used[key[:2]] += 1
        name = f"{start}--{end}" if used[key[:2]] == 1 else f"{start}--{end}#{used[key[:2]]}"
        rating, reactance, note = key[2:]
        found.append(
            Line(
                id=name,
                a=start,
                b=end,
                circuits=count[key],
                rating_mw=round(rating, 3),
                reactance_pu=reactance,
                note=note,
            )
        )
    return tuple(found)


def _readings(draft: Draft, options: Options, whole_mw: float) -> tuple[str, ...]:
    """Say what the figures stand for."""
    found = [
        f"generation_mw is {options.spare_share:.0%} of the installed capacity"
        if options.spare_share < 1
        else "generation_mw is installed capacity"
    ]
    if draft.branches:
        found.append("rating_mw is the whole of each circuit, today's flows not taken off")
    unlimited = sum(b.rating_mw is None for b in draft.branches)
    if unlimited:
        found.append(
            f"branches without a limit in the file, written with {whole_mw:,.0f} MW, all generation there is: {unlimited:,}"
        )
    if options.sites is not None and options.sites < len(draft.nodes):
        found.append(f"sites may stand on the {options.sites:,} nodes with most generation")
    return tuple(found)
