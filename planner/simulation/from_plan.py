"""The network of a planned site, and what its placement makes the racks exchange."""

from dataclasses import dataclass

import numpy as np

from planner.cluster import hostlist
from planner.errors import InputError
from planner.instance.network import Switch
from planner.physics.network.families import TREE, wiring_of
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics, layout_faults
from planner.plan.plan import Plan
from planner.simulation.rng import Ints
from planner.simulation.tree import Tree

MAX_HOSTS = 65_536  # simulated where no number is given: seconds for a seed
MAX_PLANES = 64  # of a switch: links are held plane by plane, and no product has more than 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The part of a site that is simulated: the GPUs of some indices in the first racks.

    Attributes
    ----------
    slots
        Place in the tree of every rack (row) and index (column).
    """

    tree: Tree
    slots: Ints
    described: str


def tree_of_design(
    d: Design,
    *,
    cable_rate: float,
    host_rate: float,
    planes: int = 1,
    racks: int | None = None,
    rails: int | None = None,
) -> Part:
    """Return the wiring of a design as `topology` counts it; `racks` and `rails` keep the first of each.

    All switches stay. The tree's subtree of the second tier is a pod: x rails of y domains under s spines; of the
    third, a zone or the whole site.
    """
    racks, rails = min(racks or d.racks, d.racks), min(rails or d.rails, d.rails)
    rack, index = np.arange(racks)[:, None], np.arange(rails * d.rail_gpus)[None, :]
    rail, own = index // d.rail_gpus, index % d.rail_gpus
    rates, shares = (host_rate,) + (cable_rate,) * (d.tiers - 1), (1 / planes,) * planes
    if d.tiers == 1:
        slots = rack * d.rails * d.rail_gpus + index
        tree = Tree(down=(d.endpoint_links,), up=(1,), bundle=(1,), rates=rates, planes=shares, slots=slots.ravel())
        return Part(tree=tree, slots=slots, described=_described(d, racks, rails))
    domain, x, y = rack // d.domain_racks, d.rails_per_pod, d.domains_per_pod
    row, column, rows = domain // y, rail // x, -(-d.domains // y)
    pod = column * rows + row
    if d.zones:
        along, across = d.domains_per_zone // y, d.rails_per_zone // x
        zone = column // across * -(-d.domains // d.domains_per_zone) + row // along
        pod = (zone * across + column % across) * along + row % along
    leaf = (pod * x + rail % x) * y + domain % y
    slots = leaf * d.leaf_down + rack % d.domain_racks * d.rail_gpus + own
    above = [(up, bundle) for up, bundle in ((d.spine_up, d.spine_bundle), (d.core_up, d.core_bundle)) if up]
    if d.tiers > 3 and d.core_boxes:  # each position of a core has its part of the core's uplinks
        rates = (*rates[:-1], cable_rate * d.core_boxes / d.core_positions)
    tree = Tree(
        down=(d.leaf_down, x * y, d.core_pods, d.zones)[: d.tiers],
        up=(1, d.spines_per_pod, *(up // bundle for up, bundle in above)),
        bundle=(1, d.leaf_bundle, d.spine_bundle, d.core_bundle)[: d.tiers],
        rates=rates,
        planes=shares,
        slots=slots.ravel(),
    )
    return Part(tree=tree, slots=slots, described=_described(d, racks, rails))


def _described(d: Design, racks: int, rails: int) -> str:
    """Return which part of the design is simulated, in words."""
    every = "all" if racks == d.racks else "the first"
    gpus = f"GPU indices 0 to {rails * d.rail_gpus - 1} of {d.rails * d.rail_gpus}"
    what = f"{gpus} in {every} {racks:,} of {d.racks:,} racks"
    if racks == d.racks and rails < d.rails and d.tiers > 1:
        one_pod = d.domains_per_pod >= d.domains and rails == d.rails_per_pod
        pods = "whole zones" if d.zones else "one pod" if one_pod else "whole pods"
        what += f" ({pods}; traffic that keeps its index loads no link of the others)"
    elif racks < d.racks:
        what += ": a sample, on which what would go to the other racks is missing"
    return what


def part_of_plan(plan: Plan, site: str | None, hosts: int | None) -> tuple[str, Part]:
    """Return the site and the part of it to simulate: by default the pods, or zones, of the first GPU indices.

    All racks where they are few enough.

    Raises
    ------
    InputError
        The plan has no such site, or no fabric.
    """
    c = PlanPhysics(plan=plan)
    if not c.wired or plan.fabric is None:
        raise InputError("simulate: the plan has no fabric that can be wired; solve an instance with a `network` part")
    name = site or max(sorted(c.wired), key=lambda s: c.wired[s].racks)
    if name not in c.wired:
        raise InputError(f"--site {name!r}: is no site of the plan; choose one of {', '.join(sorted(c.wired))}")
    if isinstance(plan.instance.hardware.accelerator, str) and plan.instance.hardware.nic_bytes_per_second is None:
        raise InputError("simulate: the plan's accelerator is a bare name; solve the instance again")
    d, switch, hardware = c.wired[name], c.switches[plan.fabric.sites[name].switch], plan.instance.hardware
    if wiring_of(d) is not TREE:
        family = plan.fabric.sites[name].family
        raise InputError(f"simulate: {name} has a {family}; only trees are simulated, so plan with other families")
    if switch.planes > MAX_PLANES:
        raise InputError(f"simulate: {switch.name} has {switch.planes:,} planes; at most {MAX_PLANES:,} are simulated")
    return name, part_of_design(d, switch, hardware.gpu_nic_bytes_per_second, hosts)


def part_of_design(
    d: Design, switch: Switch, nic_bytes_per_second: float, hosts: int | None = None, *, most: int = MAX_HOSTS
) -> Part:
    """Return the part of a tree of about so many hosts: the pods, or zones, of the first GPU indices.

    All racks where they are few enough; where no number is given, one block of indices and at most `most` hosts.
    """
    block = d.rails_per_zone or d.rails_per_pod or d.rails
    wanted = hosts or min(block * d.rail_gpus * d.racks, most)
    rails = min(d.rails, -(-max(1, wanted // d.racks) // (block * d.rail_gpus)) * block)
    racks = min(d.racks, -(-wanted // (rails * d.rail_gpus)))
    rate = switch.port_gbps * 1e9 / 8
    rates = {"cable_rate": rate, "host_rate": min(rate, nic_bytes_per_second)}
    return tree_of_design(d, **rates, planes=switch.planes, racks=racks, rails=rails)


def stages(plan: Plan, site: str, part: Part) -> list[list[Ints]]:
    """Return the slots of every stage's racks in rank order, for each GPU index simulated, within the sample."""
    placed = plan.placement.sites.get(site) if plan.placement else None
    if placed is None or plan.layout is None:
        raise InputError(f"simulate: nothing is placed at {site!r}; choose another site or --pattern permutation")
    faults = list(layout_faults(plan.layout))
    if faults:
        raise InputError(f"layout: {faults[0]}; see what `planner check` says of the plan")
    if plan.layout.rack_stages > len(placed.assignment):
        have = f"{plan.layout.rack_stages:,} stages, {len(placed.assignment):,} pieces placed at {site}"
        raise InputError(f"placement: {have}; see what `planner check` says of the plan")
    ranks: list[list[int]] = [[] for _ in range(plan.layout.rack_stages)]
    for a in placed.assignment:
        if not 0 <= a.stage < len(ranks):
            remedy = "see what `planner check` says of the plan"
            raise InputError(f"placement: stage {a.stage} at {site}: the layout has {len(ranks)} stages; {remedy}")
        ranks[a.stage] += [r for r in _racks(a.racks) if r < len(part.slots)]
    return [[part.slots[np.asarray(r, np.int64), rail] for r in ranks] for rail in range(part.slots.shape[1])]


def overlap(plan: Plan, site: str) -> str:
    """Say from the schedule whether pipeline sends and all-reduce rings of a site use its links at the same time.

    A send that meets its own GPU's ring waits for it (`schedule.sends_beside_rings`), which the step counts.
    """
    layout, metrics = plan.layout, PlanPhysics(plan=plan).metrics
    if layout is None or metrics is None or layout.rack_stages < 2:
        return "no: there are no pipeline sends between racks"
    if layout.racks_per_stage_by_site.get(site, 0) < 2:
        return "no: there are no rings between racks"
    met, wait = metrics.sends_beside_rings, metrics.breakdown_seconds.get("ring_wait", 0.0)
    if not met:
        return "only between stages: a stage's rings follow its last send, while stages before it still send"
    when = "of the last micro-batch" if layout.zero_stage < 2 else "that no pass hides"
    return f"yes: {met:,.0f} sends of a step, those {when}, run beside rings and wait {wait * 1e3:.3g} ms for them"


def _racks(text: str) -> list[int]:
    """Read the racks of a piece."""
    try:
        return hostlist.parse(text)
    except ValueError as error:
        raise InputError(f"placement: {error}; see what `planner check` says of the plan") from None
