"""Rows that may be exceeded: soft rules at a price, and any rule where an explanation asks what would do.

An excess has one variable for each row that a report names, in the unit of the rows (MW, 1000 m², sites, M$, modules).
"""

from collections.abc import Mapping
from typing import Any

import pyomo.environ as pyo

from planner.models.sites.data import Question

# What one unit of a row's excess is to the user, and the unit's name.
PER_UNIT: dict[str, tuple[float, str]] = {
    "headroom": (1.0, "MW"),
    "generation": (1.0, "MW"),
    "rating": (1.0, "MW"),
    "security": (1.0, "MW"),
    "interconnect": (1.0, "MW"),
    "facility_power": (1.0, "MW"),
    "area": (1e3, "m2"),
    "site_count": (1.0, "sites"),
    "budget": (1e6, "USD"),
    "fault_split": (1.0, "modules"),
    "min_site": (1.0, "modules"),
}
# Leading entries of a row's index that name it to the user; the rest only tell its parts apart.
_NAMED = {"generation": 1, "interconnect": 1, "rating": 1, "security": 2, "wan_capacity": 2, "fault_split": 1}


def label(family: str, index: Any) -> str:
    """Name a row as reports print it: `headroom[SRP]`, `rtt[a,b]`, `budget`."""
    if index is None:
        return family
    parts = index if isinstance(index, tuple) else (index,)
    return f"{family}[{','.join(str(p) for p in parts[: _NAMED.get(family)])}]"


def room(q: Question, family: str, rows: int = 1) -> float:
    """Return how much more than its limit a soft rule's rows may use together, in the rows' unit; 0 for a hard rule."""
    soft = q.grid.rules.soft.get(family)
    return 0.0 if soft is None else rows * soft.max_excess / PER_UNIT[family][0]


def loosen(block: Any, family: str, most: float) -> None:
    """Let the rows of a rule be exceeded, each by `most`; the excess is `block.<family>_excess`, by the row's name."""
    rows = block.component(family)
    if rows is None or not len(rows):
        return
    names = sorted({label(family, i) for i in rows})
    excess = pyo.Var(names, domain=pyo.NonNegativeReals, bounds=(0, most))
    block.add_component(f"{family}_excess", excess)
    for index, row in rows.items():
        _move(row, excess[label(family, index)])
    if family == "headroom":
        # The same limit stands once more in what an authority's plants may feed in.
        for index, row in (block.component("generation") or {}).items():
            if index[1] == "authority" and f"headroom[{index[0]}]" in excess and row.upper is not None:
                _move(row, excess[f"headroom[{index[0]}]"])


def _move(row: Any, by: Any) -> None:
    if row.upper is not None:
        row.set_value((None, row.body - by, row.upper))
    else:
        row.set_value((row.lower, row.body + by, None))


def soften(block: Any, q: Question) -> None:
    """Let the rows of the soft rules be exceeded."""
    for family in sorted(q.grid.rules.soft):
        loosen(block, family, room(q, family))


def penalty_musd(block: Any, q: Question) -> Any:
    """Price of the excess of soft rules for a year, in M$."""
    total: Any = 0.0
    for family, soft in sorted(q.grid.rules.soft.items()):
        excess = block.component(f"{family}_excess")
        if excess is not None:
            total += soft.usd_per_year * PER_UNIT[family][0] / 1e6 * sum(excess.values())
    return total


def exceeded(block: Any) -> dict[str, float]:
    """Read the excess of every row that has any, in the user's unit."""
    found: dict[str, float] = {}
    for family, (unit, _) in PER_UNIT.items():
        for name, var in (block.component(f"{family}_excess") or {}).items():
            if (var.value or 0.0) > 1e-6:
                found[name] = var.value * unit
    return dict(sorted(found.items()))


def family_of(name: str) -> str:
    """Return the rule that a row's name belongs to."""
    return name.partition("[")[0]


def priced_excess(q: Question, excess: Mapping[str, float]) -> float:
    """Price the excess of soft rules for a year, in USD; `excess` is in the user's units."""
    return sum(q.grid.rules.soft[family_of(name)].usd_per_year * x for name, x in excess.items())
