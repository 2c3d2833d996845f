"""Turn a draft into a grid: merge parallel circuits, fill or name what is missing, choose candidates."""

import difflib
from collections import Counter
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.imports.authorities import fill
from planner.imports.draft import Draft, DraftNode, Options
from planner.instance.grid import Grid, Line, PowerNode
from planner.instance.read_items import NOT_MODELLED, ReadItems


@dataclass(frozen=True, slots=True)
class Imported:
    """A grid, what is missing in its files, and what became of what is in them."""

    grid: Grid
    missing: tuple[str, ...]
    items: ReadItems


def assemble(draft: Draft, options: Options, items: ReadItems | None = None) -> Imported:
    """Return the grid of a draft; its note names everything that is filled and not in the files."""
    installed_mw = sum((n.installed_mw or 0.0) + max(0.0, -n.load_mw) for n in draft.nodes)
    draft = _only(draft, options.only)
    nodes = _nodes(draft.nodes, options)
    lines = _lines(draft, installed_mw)
    authorities, missing = fill(draft, options)
    unknown = sum(n.installed_mw is None for n in draft.nodes)
    if unknown:
        missing += (f"generation_mw of {unknown:,} nodes: written as 0; give a plant list beside the files",)
    if not lines:
        missing += ("lines: none; under the transport model each site is fed by its own node alone",)
    left_out = tuple(n for n in draft.notes if "left out" in n or "without" in n)
    kept = (f"{NOT_MODELLED}{n}" if n in left_out else n for n in draft.notes)
    notes = (*kept, *_readings(draft, options, installed_mw), *(f"MISSING {m}" for m in missing))
    grid = Grid(
        source=options.source or draft.source,
        note="; ".join(notes),
        balancing_authorities=authorities,
        nodes=nodes,
        lines=lines,
    )
    read = (items or ReadItems()).model_copy(update={"defaulted": missing, "not_modelled": left_out})
    return Imported(grid, missing, read)


def _only(draft: Draft, wanted: tuple[str, ...]) -> Draft:
    """Keep the authorities asked for, with the nodes and branches inside them."""
    if not wanted:
        return draft
    known = sorted(a.id for a in draft.authorities)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"--only {name}: no such balancing authority; {hint}known: {', '.join(known)}")
    nodes = tuple(n for n in draft.nodes if n.authority in wanted)
    kept = {n.id for n in nodes}
    return replace(
        draft,
        nodes=nodes,
        branches=tuple(b for b in draft.branches if b.a in kept and b.b in kept),
        authorities=tuple(a for a in draft.authorities if a.id in wanted),
        notes=(*draft.notes, f"of all authorities only {', '.join(sorted(wanted))}"),
    )


def _nodes(drafts: tuple[DraftNode, ...], options: Options) -> tuple[PowerNode, ...]:
    """Return the nodes; where candidates are limited, sites may stand on those with most generation."""
    ranked = sorted(drafts, key=lambda n: (-(n.installed_mw or 0.0), n.id))
    candidates = {n.id for n in ranked[: options.sites]}
    return tuple(
        PowerNode(
            id=n.id,
            balancing_authority=n.authority,
            latitude=n.latitude,
            longitude=n.longitude,
            generation_mw=round((n.installed_mw or 0.0) * options.spare_share, 3),
            load_mw=round(n.load_mw, 3) if options.spare_share == 1 else 0.0,
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
        problem = "branches without a rating, and no generation that would bound their flow"
        raise InputError(f"{draft.source}: {problem}; give them ratings")
    circuits: Counter[tuple[str, str, float, float | None, str | None]] = Counter()
    ends: dict[tuple[str, str, float, float | None, str | None], tuple[str, str]] = {}
    for b in draft.branches:
        unlimited = "no limit in the file" if b.rating_mw is None else None
        note = "; ".join(x for x in (b.note, unlimited) if x) or None
        key = (min(b.a, b.b), max(b.a, b.b), unlimited_mw if b.rating_mw is None else b.rating_mw, b.reactance_pu, note)
        ends.setdefault(key, (b.a, b.b))
        circuits[key] += 1
    used: Counter[tuple[str, str]] = Counter()
    lines = []
    for key, (start, end) in ends.items():
        used[key[:2]] += 1
        name = f"{start}--{end}" if used[key[:2]] == 1 else f"{start}--{end}#{used[key[:2]]}"
        rating = round(key[2], 3) or key[2]  # a kilowatt and less stays as it is
        line = Line(id=name, a=start, b=end, circuits=circuits[key], rating_mw=rating, reactance_pu=key[3], note=key[4])
        lines.append(line)
    return tuple(lines)


def _readings(draft: Draft, options: Options, installed_mw: float) -> tuple[str, ...]:
    """Return what the figures stand for."""
    capacity = "installed capacity"
    if options.spare_share < 1:
        capacity = f"{options.spare_share:.0%} of the installed capacity"
    readings = [f"generation_mw is {capacity}"]
    if draft.branches:
        readings.append("rating_mw is the whole of each circuit")
    load_mw = sum(n.load_mw for n in draft.nodes)
    if load_mw and options.spare_share == 1:
        readings.append(f"flows count the load in the file, {load_mw:,.0f} MW")
    elif draft.branches:
        left = f": {load_mw:,.0f} MW is left out, since plants spare what it does not take" if load_mw else ""
        readings.append(f"flows are of the sites alone, no other load is counted{left}")
    unlimited = sum(b.rating_mw is None for b in draft.branches)
    if unlimited:
        written = f"written with {installed_mw:,.0f} MW, all generation there is"
        readings.append(f"branches without a limit in the file, {written}: {unlimited:,}")
    if options.sites is not None and options.sites < len(draft.nodes):
        readings.append(f"sites may stand on the {options.sites:,} nodes with most generation")
    return tuple(readings)
