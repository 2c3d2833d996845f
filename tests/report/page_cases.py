"""What tests of the page share: figures looked up by path, and a plan that cannot be."""

import math
from typing import Any

from planner.plan import Plan
from tests.checks.worked_plan import edited, small


def at(plan: Any, path: str) -> Any:
    """Look a path up in a plan's JSON; [*] sums over entries."""
    head, star, tail = path.partition("[*].")
    held = plan
    for key in head.split("."):
        held = held[int(key)] if isinstance(held, list) else held[key]
    return sum(at(x, tail) for x in (held.values() if isinstance(held, dict) else held)) if star else held


def agrees(value: Any, plan: Any, path: str) -> bool:
    """Tell whether a value is the one at a path; sums may differ in the last digits."""
    held = at(plan, path)
    return math.isclose(value, held, rel_tol=1e-12) if "[*]" in path else type(value) is type(held) and value == held


def infeasible() -> Plan:
    """Return a plan that tells why there is none."""
    gone = dict.fromkeys(("sites", "layout", "fabric", "placement", "cost"))
    conflict = {"decision": "sites", "rules": ["demand", "headroom[EAST]"], "reason": "the grid is too small"}
    objective = {"name": "days_to_train", "value": None, "bound": None, "gap": None}
    return edited(small(), status="infeasible", conflict=conflict, objective=objective, **gone)
