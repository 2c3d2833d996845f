"""The decisions of a plan in short, from its figures by dotted name, and where two plans decide otherwise."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from planner.units import counted

Row = Mapping[str, Any]  # figures by dotted name, of `planner.plan.flatten.digest` or of a sweep
FABRIC, TIERS = "fabric.sites.", ".tiers."
ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")


def sites_of(row: Row) -> tuple[str, ...]:
    """Return the open sites of a row."""
    return tuple(sorted(name for name, racks in _named(row, "sites.sites.", ".racks") if racks))


def _named(row: Row, front: str, end: str) -> Iterator[tuple[str, Any]]:
    """Yield the names between the two parts of a path, and their values."""
    for path, value in row.items():
        if path.startswith(front) and path.endswith(end):
            yield path[len(front) : -len(end)], value


def _strategy(row: Row) -> str | None:
    kinds = [("TP", "tensor"), ("CP", "context"), ("EP", "expert"), ("PP", "pipeline")]
    degrees = [(mark, row.get(f"layout.{kind}_parallel")) for mark, kind in kinds]
    parts = [f"{mark} {n}" for mark, n in degrees if n is not None and (n != 1 or mark in ("TP", "PP"))]
    virtual = row.get("layout.virtual_stages")
    if parts and virtual not in (None, 1):
        parts.append(f"v{virtual}")
    return " ".join(parts) or None


def _memory(row: Row) -> str | None:
    choices = {"ZeRO-": row.get("layout.zero_stage"), "recompute ": row.get("layout.recompute")}
    return ", ".join(f"{name}{value}" for name, value in choices.items() if value is not None) or None


def _fabric(row: Row) -> str | None:
    """Return tiers and planes; of several sites each form once, the one with most tiers first."""
    planes = dict(_named(row, FABRIC, ".planes"))
    tiers: dict[str, set[str]] = {}
    for path in row:
        if path.startswith(FABRIC) and TIERS in path:
            site, _, rest = path.removeprefix(FABRIC).partition(TIERS)
            tiers.setdefault(site, set()).add(rest.partition(".")[0])
    forms = {(-len(tiers.get(s, ())), str(planes.get(s, ""))) for s in {*tiers, *planes}}
    texts = []
    for minus_tiers, count in sorted(forms):
        parts = [counted(-minus_tiers, "tier")] if minus_tiers else []
        parts += [f"{count} plane{'' if count == '1' else 's'}"] if count not in ("", "0") else []
        texts.append(", ".join(parts))
    return " / ".join(texts) or None


def _lines(row: Row) -> str | None:
    """Return the lines built, where the row has sites."""
    built = [f"{name} x{n}" for name, n in sorted(_named(row, "sites.new_lines.", ".circuits")) if n]
    return " + ".join(built) or ("none" if sites_of(row) else None)


def _model(row: Row) -> str | None:
    layers = row.get("model_choice.layers") or row.get("workload.model.layers")
    return None if layers is None else f"{layers} layers"


LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": lambda row: " + ".join(sites_of(row)) or None,
    "new lines": _lines,
    "model": _model,
    "layout": _strategy,
    "memory": _memory,
    "fabric": _fabric,
}


def changed_decisions(before: Row, after: Row) -> dict[str, str]:
    """Describe by lane what one plan decides otherwise than the one before it: `a third site opens: palo-verde`."""
    changed = {}
    for name, decision in LANES.items():
        old, new = decision(before), decision(after)
        if old is None or new is None or old == new:
            continue
        sites = name == "sites"
        changed[name] = _sites_change(sites_of(before), sites_of(after)) if sites else f"{name} {old} becomes {new}"
    return changed


def _sites_change(old: Sequence[str], new: Sequence[str]) -> str:
    opened, closed = [s for s in new if s not in old], [s for s in old if s not in new]
    if len(opened) == 1 and not closed:
        rank = ORDINALS[len(new) - 1] if len(new) <= len(ORDINALS) else f"one more (of {len(new)})"
        return f"{rank} site opens: {opened[0]}"
    parts = [(s, verb if len(s) > 1 else f"{verb}s") for s, verb in ((opened, "open"), (closed, "close")) if s]
    return " and ".join(f"{', '.join(s)} {verb}" for s, verb in parts)
