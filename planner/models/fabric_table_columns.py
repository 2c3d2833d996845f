"""The columns of the fabric's tables, and the sizes that parts of a whole can have."""

from functools import cache

import numpy as np

from planner.models.fabric_question import Ints, Problem

# Columns of the table of leaf domains and pod shapes, and those that its expansion by leaf uplinks adds.
SHAPE = (
    "mode", "tiers", "pods", "ports", "domain", "down_ports", "domains", "leaves", "leaf_cost", "splits",
    "rails", "domains_per_pod", "leaves_per_pod", "least_up", "most_up", "need_up", "up_cost", "core_cost", "bound",
    "grouped", "router_bundle", "group_links", "between_cost", "wan_ports",
)  # fmt: skip
COLUMNS = (*SHAPE, "leaf_up", "leaf_bundle", "groups", "spine_down", "least_spine_up", "most_spine_up", "border")
CHUNK = 256  # pod shapes expanded at a time
COL = {name: i for i, name in enumerate(COLUMNS)}
KEY = [COL["mode"], COL["tiers"], COL["pods"], COL["core_cost"], COL["border"]]  # what fixes the rows of a spine group


def pod_sizes(p: Problem, rails: int, domains: int, most_parts: int) -> tuple[Ints, Ints]:
    """Rails and domains per pod: for each count of pods the fewest of each; every divisor where the spine's down ports are pinned."""
    if "spine_down_ports" in p.pins:
        pin = p.pins["spine_down_ports"]
        divisors = np.array([v for v in range(1, max(pin, 0) + 1) if pin % v == 0], dtype=np.int64)
        return divisors[divisors <= rails], divisors[divisors <= domains]
    return fewest(rails, most_parts), fewest(domains, most_parts)


@cache
def fewest(items: int, most_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, most_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))
