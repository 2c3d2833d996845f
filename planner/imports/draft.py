"""What every format is read into: nodes, branches and authorities, None where the file has no figure."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNode:
    """A place of the grid with the plants that stand there."""

    id: str
    authority: str
    latitude: float
    longitude: float
    installed_mw: float | None
    load_mw: float = 0.0
    largest_unit_mw: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBranch:
    """One circuit between two nodes; a rating of None is no limit."""

    a: str
    b: str
    rating_mw: float | None
    reactance_pu: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftAuthority:
    """A balancing authority as far as the file knows it."""

    id: str
    interconnection: str | None = None
    peak_mw: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A grid as far as its file knows it; `notes` say what was left out or read in a special way."""

    source: str
    nodes: tuple[DraftNode, ...]
    branches: tuple[DraftBranch, ...] = ()
    authorities: tuple[DraftAuthority, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user says beside the files."""

    radius_km: float = 25.0
    positions: Path | None = None
    at: tuple[float, float] | None = None
    authorities: Path | None = None
    headroom_share: float | None = None
    energy_usd_per_mwh: float | None = None
    interconnection: str | None = None
    spare_share: float = 1.0
    sites: int | None = None
    only: tuple[str, ...] = ()
    source: str | None = None


def slug(text: str) -> str:
    """Return a name as an id: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def counted(*figures: tuple[int, str]) -> tuple[str, ...]:
    """Return notes of how many rows were left out or changed, for the counts above zero."""
    return tuple(f"{what}: {n:,}" for n, what in figures if n)
