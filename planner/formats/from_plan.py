"""Read a plan as a topology: racks as nodes under leaf domains, these under pods, zones of pods and sites."""

from collections.abc import Iterator

from planner.cluster.hostlist import MAX_NAMES, PREFIX, width
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.validate import SwitchRow, tree
from planner.plan.fabric import SiteFabric
from planner.plan.plan import Plan

WAN = "wan"


def plan_topology(plan: Plan, source: str) -> Topology:
    """Read the fabric of a plan's sites; racks are named as in its placement, after their site where there are several.

    Raises
    ------
    InputError
        If the plan has no fabric, or a fabric for a site whose racks it does not state.
    """
    if plan.fabric is None or not plan.fabric.sites:
        raise InputError(f"{source}: fabric: the plan has none; solve an instance with a network")
    racks = dict.fromkeys(plan.fabric.sites, plan.instance.hardware.racks or 0)
    if plan.sites:
        racks = {s.id: s.racks for s in plan.sites.sites}
    if sum(racks.values()) > MAX_NAMES:
        problem = f"{sum(racks.values()):,} racks, more than {MAX_NAMES:,}"
        raise InputError(f"{source}: sites: {problem}; run `planner check` on the plan")
    several = len(plan.fabric.sites) > 1
    rows: list[SwitchRow] = []
    for site, fabric in sorted(plan.fabric.sites.items()):
        if racks.get(site, 0) < 1 or fabric.leaf_domain_racks < 1 or fabric.leaf_domains_per_pod < 1:
            where = f"{source}: fabric.sites.{site}"
            raise InputError(f"{where}: no racks, or a leaf domain or pod of none; run `planner check` on the plan")
        rows += _site(site, fabric, racks[site], f"{site}-" if several else "")
    if several:
        rows.append(SwitchRow("fabric.sites", WAN, children=tuple(sorted(plan.fabric.sites))))
    return tree(source, rows)


def _site(site: str, fabric: SiteFabric, racks: int, prefix: str) -> Iterator[SwitchRow]:
    """Lay racks out as the placement does: leaf domain by leaf domain, the last one part-full."""
    where, digits = f"fabric.sites.{site}", width(racks)
    size, per_pod = fabric.leaf_domain_racks, fabric.leaf_domains_per_pod
    leaves = []
    for i, first in enumerate(range(0, racks, size)):
        leaves.append(f"{prefix}leaf{i}")
        numbers = range(first, min(first + size, racks))
        yield SwitchRow(where, leaves[-1], tuple(f"{prefix}{PREFIX}{n:0{digits}d}" for n in numbers))
    below, domains_below = tuple(leaves), 1
    for word, domains in (("pod", per_pod), ("zone", fabric.leaf_domains_per_zone)):
        each = max(1, domains // domains_below)
        blocks = [below[i : i + each] for i in range(0, len(below), each)]
        if domains and len(blocks) > 1:
            for i, block in enumerate(blocks):
                yield SwitchRow(where, f"{prefix}{word}{i}", children=block)
            below = tuple(f"{prefix}{word}{i}" for i in range(len(blocks)))
            domains_below = domains
    yield SwitchRow(where, site, children=below)
