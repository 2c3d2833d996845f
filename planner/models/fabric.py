"""Choose the fabric of one site: planes, tiers, ports and bundles that can be wired, at least cost, by CP-SAT.

A fabric is leaves, then equal groups of spines and cores: position i of every pod's spines and the cores above them form
group i, and there are s = leaf_up / leaf_bundle of them. So the cost is leaves + s·(one group), and two tables carry the
choice: a row per way to wire leaves to the spines of a pod, and a row per spine group; rules of the model join them.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from planner.handoff import Alternative, FabricRequest, Options, resolved_switches
from planner.instance import Instance, Network, Rack, Switch
from planner.physics.cost import endpoint_link_usd, fabric_mw, fabric_usd, switch_link_usd
from planner.physics.transport import allreduce_slowdown, hop_slowdown
from planner.physics.wiring import Design
from planner.plan import Certificate, SiteFabric, Status, Tier
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.outcome import Outcome, Stop, relative_gap

Ints = npt.NDArray[np.int64]

TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2
FIRST_SHAPES = 64  # pod shapes of least bound that are looked at first
FIRST_ROWS = 256  # wirings of least bound that the first model holds
CHUNK = 256  # pod shapes expanded at a time
HOP_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over phi: caps at which alternatives are sought
PINS = ("planes", "ports_per_switch", "tiers", "leaf_domain_racks", "leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports")
FORMULATION = (
    "CP-SAT over switch mode, tiers, leaf down ports (the leaf domain), leaf up ports and bundle, rails and domains per pod, spine up ports "
    "and bundle; least cost (prices to the cent), then fewest unavoidable split groups, fewest boxes, smallest leaf domain. One table has a "
    "row per leaf domain, pod shape, leaf uplinks and bundle, one a row per spine group (P spines, their uplinks, their cores). Left out "
    "because no better: leaf domains larger than the site, pods that take more rails or domains than their count needs (fewer give the same "
    "boxes and cables with fewer ports and less traffic; kept where spine_down_ports is pinned), a spine bundle below the largest that divides "
    "the uplinks and fits the core (it needs more cores), and rows whose ports alone cost more than the design held. The time rules take the "
    "worst placement; slowdowns are compared within 1e-9."
)


@dataclass(frozen=True, slots=True)
class FabricDesign:
    """The fabric chosen for a site, and how much of the space each argument excluded."""

    switch: Switch
    design: Design
    cost_usd: float
    power_mw: float
    unavoidable_splits: int
    binding: tuple[str, ...] = ()
    space: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ratios:
    """What the traffic allows: largest max(1, …) of the hop and of the all-reduce over the transport's own slowdown, tolerance included."""

    hop: float
    allreduce: float


@dataclass(frozen=True, slots=True)
class Problem:
    """The site's question in integers."""

    network: Network
    request: FabricRequest
    rails: int
    switches: tuple[Switch, ...]
    pins: Mapping[str, int]
    ratios: Ratios
    unit_cents: int
    most_splits: int | None = None

    def switch_cost(self, mode: int) -> int:
        """Price of a box, in units."""
        return cents(self.switches[mode].price_usd) // self.unit_cents

    @property
    def link_cost(self) -> int:
        """Price of a link between switches, in units."""
        return cents(switch_link_usd(self.network)) // self.unit_cents

    @property
    def endpoint_usd(self) -> float:
        """Price of all links to endpoints, the same in every design."""
        return self.request.racks * self.rails * endpoint_link_usd(self.network)

    def usd(self, units: float) -> float:
        """Return a cost of the model in dollars, endpoint links included."""
        return units * self.unit_cents / 100 + self.endpoint_usd


# Columns of the table of leaf domains and pod shapes, and those that its expansion by leaf uplinks adds.
SHAPE = (
    "mode", "tiers", "pods", "ports", "domain", "down_ports", "domains", "leaves", "leaf_cost", "splits",
    "rails", "domains_per_pod", "leaves_per_pod", "least_up", "most_up", "need_up", "bound",
)  # fmt: skip
COLUMNS = (*SHAPE, "leaf_up", "leaf_bundle", "groups", "spine_down", "least_spine_up", "most_spine_up")
COL = {name: i for i, name in enumerate(COLUMNS)}
KEY = [COL["mode"], COL["tiers"], COL["pods"]]  # what fixes the rows of a spine group


def solve(instance: Instance, request: FabricRequest, options: Options, *, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest fabric that hides the layout's traffic, among equals the one that splits fewest groups."""
    return _search(_problem(instance, request), options, site)


def alternatives(instance: Instance, request: FabricRequest, options: Options) -> list[Alternative]:
    """Return designs of which none is better in cost, hop slowdown and unavoidable split groups at once.

    Each is the cheapest within a cap on the hop's slowdown (`HOP_CAPS` below the request's own) and a cap on split groups.
    """
    problem = _problem(instance, request)
    deadline = None if options.time_limit is None else time.perf_counter() + options.time_limit
    found: list[Alternative] = []
    for ratio in sorted({problem.ratios.hop, *(c * (1 + TOLERANCE) for c in HOP_CAPS if c < problem.ratios.hop)}):
        capped = replace(problem, ratios=replace(problem.ratios, hop=ratio), most_splits=None)
        while capped.most_splits is None or capped.most_splits >= 0:
            left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
            held = _search(capped, replace(options, time_limit=left), "alternatives").solution
            if held is None:
                break
            found.append(_alternative(problem, held))
            capped = replace(capped, most_splits=held.unavoidable_splits - 1)
    return _non_dominated(found)


def site_fabric(
    instance: Instance,
    request: FabricRequest,
    found: FabricDesign,
    *,
    share_leaving_leaf: float,
    share_leaving_pod: float,
    rings_leaving_leaf: int,
    rings_leaving_pod: int,
) -> SiteFabric:
    """Return the plan's section for a site, with the slowdowns that its placement causes."""
    network, d = _network(instance), found.design
    hop = hop_slowdown(network, d, share_leaving_leaf, share_leaving_pod)
    return SiteFabric(
        switch=found.switch.name,
        planes=found.switch.planes,
        ports_per_switch=found.switch.ports,
        tiers=tuple(_tiers(d)),
        switches=d.switches,
        chips=d.switches * found.switch.planes,
        switch_links=d.switch_links,
        endpoint_links=d.endpoint_links,
        cost_usd=found.cost_usd,
        power_mw=found.power_mw,
        leaf_domain_racks=leaf_domain_racks(d),
        leaf_domains=d.domains,
        rails_per_pod=d.rails_per_pod,
        leaf_domains_per_pod=d.domains_per_pod,
        pods=d.pods,
        share_leaving_leaf=share_leaving_leaf,
        share_leaving_pod=share_leaving_pod,
        p2p_seconds=request.hop_seconds * hop,
        hop_slowdown=hop,
        allreduce_slowdown=allreduce_slowdown(network, d, rings_leaving_leaf, rings_leaving_pod),
    )


def certificate(outcomes: dict[str, Outcome[FabricDesign]], seed: int) -> Certificate:
    """Return what is proven of all sites together: each is solved alone, so bounds and costs add up."""
    each = [outcomes[s] for s in sorted(outcomes)]
    held = [o.solution for o in each if o.solution is not None]
    costs = [o.objective for o in each if o.objective is not None]
    bounds = [o.bound for o in each if o.bound is not None]
    objective = math.fsum(costs) if len(costs) == len(each) else None
    bound = math.fsum(bounds) if len(bounds) == len(each) else None
    space: dict[str, int | float | str | list[int] | list[str]] = dict(held[0].declared) if held else {}
    for name in sorted({name for h in held for name in h.space}):
        space[name] = sum(h.space.get(name, 0) for h in held)
    return Certificate(
        status=_status(each),
        objective=objective,
        bound=bound,
        gap=relative_gap(objective, bound),
        solver=SOLVER,
        formulation=FORMULATION,
        variables=sum(o.variables for o in each),
        constraints=sum(o.constraints for o in each),
        seconds=math.fsum(o.seconds for o in each),
        seed=seed,
        minimizes="capital of the fabrics of all sites, in dollars",
        given="racks, replica groups and traffic of each site; every flow may leave its leaf and its pod",
        space=space,
        binding=tuple(sorted({f"{s}: {rule}" for s in outcomes if (h := outcomes[s].solution) for rule in h.binding})),
    )


def leaf_domain_racks(d: Design) -> int:
    """Racks whose GPUs of one index share a leaf."""
    return d.racks if d.tiers == 1 else d.leaf_down


def unavoidable_splits(request: FabricRequest, domain: int) -> int:
    """Count groups that no placement keeps in one leaf domain: those beyond what whole domains and the last one hold."""
    full, last = divmod(request.racks, domain)
    return max(0, request.groups - full * (domain // request.group_racks) - last // request.group_racks)


def largest_ratio(ideal_seconds: float, window_seconds: float, phi: float, limit: float | None) -> float:
    """Most that the network may add to phi: ideal·slowdown stays within the window, or within ideal·phi where that alone fills it."""
    allowed = max(window_seconds / ideal_seconds, phi) if ideal_seconds > 0 else math.inf
    return min(allowed, math.inf if limit is None else limit) / phi * (1 + TOLERANCE)


def rings(request: FabricRequest, racks: int) -> int:
    """Most groups that cross the edge of so many racks, whole groups laid out one after another: those within, and one more."""
    return 0 if request.group_racks == 1 else min(-(-racks // request.group_racks) + 1, request.groups)


def cents(usd: float) -> int:
    """Round to whole cents."""
    return round(usd * 100)


# --- the question in integers ---------------------------------------------------------------------------------------------


def _network(instance: Instance) -> Network:
    if instance.network is None:
        raise ValueError("network: missing; a fabric cannot be chosen without it")
    return instance.network


def _problem(instance: Instance, request: FabricRequest) -> Problem:
    network = _network(instance)
    rack, gpu = instance.hardware.rack, instance.hardware.accelerator
    if not isinstance(rack, Rack) or isinstance(gpu, str):
        raise TypeError("hardware: names are not resolved; load the instance through planner.load")
    pins = {name: int(instance.pins[f"fabric.{name}"]) for name in PINS if f"fabric.{name}" in instance.pins}
    phi = network.transport.slowdown
    hop = largest_ratio(request.hop_seconds, request.hop_window_seconds, phi, request.hop_limit)
    ring = largest_ratio(request.allreduce_seconds, request.allreduce_window_seconds, phi, request.allreduce_limit)
    switches = tuple(s for s in resolved_switches(network.switches) if _usable(s, pins, gpu.nic_bytes_per_second))
    unit = math.gcd(cents(switch_link_usd(network)), *(cents(s.price_usd) for s in switches))
    return Problem(network, request, rack.gpus, switches, pins, Ratios(hop, ring), max(unit, 1))


def _usable(switch: Switch, pins: Mapping[str, int], nic_bytes_per_second: float) -> bool:
    """Keep a mode that the pins allow and whose ports carry a NIC."""
    pinned = pins.get("planes", switch.planes) == switch.planes and pins.get("ports_per_switch", switch.ports) == switch.ports
    return pinned and switch.port_gbps * 1e9 * (1 + TOLERANCE) >= nic_bytes_per_second * 8


# --- the table of leaf domains and pod shapes -----------------------------------------------------------------------------


def _table(p: Problem) -> tuple[Ints, dict[str, int]]:
    """Return every row that ports and traffic allow, by increasing bound, and how many there were before."""
    space = {"switch_modes": len(p.switches), "leaf_domain_sizes": 0, "pod_shapes": 0}
    parts = [np.empty((0, len(SHAPE)), dtype=np.int64)]
    for mode in range(len(p.switches)):
        parts.append(_single_switch(p, mode))
        for domain in _domains(p, mode):
            rows = _pod_shapes(p, mode, domain)
            space["leaf_domain_sizes"] += 1
            space["pod_shapes"] += len(rows)
            parts.append(_promising(p, mode, rows))
    table = np.concatenate(parts)
    keep = table[:, COL["tiers"]] <= p.network.max_tiers
    for name, column in (("tiers", "tiers"), ("leaf_domain_racks", "domain"), ("leaf_down_ports", "down_ports")):
        if name in p.pins:
            keep &= table[:, COL[column]] == p.pins[name]
    if p.most_splits is not None:
        keep &= table[:, COL["splits"]] <= p.most_splits
    table = table[keep]
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["pod_shapes_within_ports"] = len(table)
    return table, space


def _domains(p: Problem, mode: int) -> list[int]:
    """Sizes of a leaf domain: no more racks than the site has, unless a pin says so."""
    most = p.switches[mode].ports - 1
    pinned = {p.pins[name] for name in ("leaf_domain_racks", "leaf_down_ports") if name in p.pins}
    sizes = pinned if pinned else range(1, min(most, p.request.racks) + 1)
    return [d for d in sorted(sizes) if 1 <= d <= most]


def _single_switch(p: Problem, mode: int) -> Ints:
    """One row where one switch holds every endpoint, none otherwise."""
    row = dict.fromkeys(SHAPE, 0)
    racks, ends, price = p.request.racks, p.request.racks * p.rails, p.switch_cost(mode)
    row |= {"mode": mode, "tiers": 1, "ports": p.switches[mode].ports, "domain": racks, "down_ports": ends, "domains": 1}
    row |= {"leaves": 1, "leaf_cost": price, "splits": unavoidable_splits(p.request, racks), "bound": price}
    rows = np.array([[row[c] for c in SHAPE]], dtype=np.int64)
    return rows[: int(ends <= p.switches[mode].ports)]


def _pod_shapes(p: Problem, mode: int, domain: int) -> Ints:
    """Rows of a domain size: two tiers, and three with every pod shape that spine and core ports can hold."""
    domains = -(-p.request.racks // domain)
    ports = p.switches[mode].ports
    by_rail, by_domain = _pod_sizes(p, domains, ports)
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    pods = -(-p.rails // rails) * -(-domains // width)
    three = (rails * width < ports) & (pods <= ports)
    rows = np.zeros((int(three.sum()) + 1, len(SHAPE)), dtype=np.int64)
    rows[0, [COL[c] for c in ("tiers", "pods", "rails", "domains_per_pod")]] = 2, 1, p.rails, domains
    rows[1:, COL["tiers"]] = 3
    for name, values in (("pods", pods), ("rails", rails), ("domains_per_pod", width)):
        rows[1:, COL[name]] = values[three]
    leaves = domains * p.rails
    same = {"mode": mode, "ports": ports, "domain": domain, "down_ports": domain, "domains": domains, "leaves": leaves}
    same |= {"leaf_cost": leaves * p.switch_cost(mode), "splits": unavoidable_splits(p.request, domain)}
    least, most = _least_leaf_up(p, domain, domains), ports - domain
    pin = p.pins.get("leaf_up_ports")
    same |= {"least_up": least if pin is None else max(least, pin), "most_up": most if pin is None else min(most, pin)}
    for name, value in same.items():
        rows[:, COL[name]] = value
    rows[:, COL["leaves_per_pod"]] = rows[:, COL["rails"]] * rows[:, COL["domains_per_pod"]]
    rows[:, COL["need_up"]] = _least_pod_up(p, rows)
    return rows


def _pod_sizes(p: Problem, domains: int, ports: int) -> tuple[Ints, Ints]:
    """Rails and domains per pod: for each count of pods the fewest of each; every divisor where the spine's down ports are pinned."""
    if "spine_down_ports" in p.pins:
        pin = p.pins["spine_down_ports"]
        divisors = np.array([v for v in range(1, max(pin, 0) + 1) if pin % v == 0], dtype=np.int64)
        return divisors[divisors <= p.rails], divisors[divisors <= domains]
    return _fewest(p.rails, ports), _fewest(domains, ports)


@cache
def _fewest(items: int, most_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, most_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))


def _least_leaf_up(p: Problem, domain: int, domains: int) -> int:
    """Hide what leaves a leaf: u1 >= D/ratio for the hop and rings/ratio for the all-reduce; one uplink where one domain holds all."""
    if domains == 1:
        return 1
    return max(1, math.ceil(domain / p.ratios.hop), math.ceil(rings(p.request, domain) / p.ratios.allreduce))


def _least_pod_up(p: Problem, rows: Ints) -> Ints:
    """Hide what leaves a pod: s·u2 >= D·x·y/ratio for the hop and rings·x/ratio for the all-reduce; 0 where a pod holds every domain."""
    domain, width, rails = (rows[:, COL[c]] for c in ("domain", "domains_per_pod", "rails"))
    hop = np.ceil(domain * rails * width / p.ratios.hop)
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    ring = np.ceil(shared * rails / p.ratios.allreduce)
    need: Ints = np.where(width < rows[:, COL["domains"]], np.maximum(hop, ring), 0.0).astype(np.int64)
    return need


def _promising(p: Problem, mode: int, rows: Ints) -> Ints:
    """Drop shapes whose ports do not suffice, and bound the others from below by ports alone."""
    ports, least, most, need, per_pod, pods = (rows[:, COL[c]] for c in ("ports", "least_up", "most_up", "need_up", "leaves_per_pod", "pods"))
    three = rows[:, COL["tiers"]] == 3
    spine_up = np.where(three, np.maximum(1, -(-need // np.maximum(most, 1))), 0)
    bundle = (ports - spine_up) // per_pod
    keep = (bundle >= 1) & (least <= most) & (need <= most * (ports - per_pod))
    groups = -(-least // np.maximum(bundle, 1))
    up = np.where(three, np.maximum(need, groups), 0)
    cores = np.where(three, np.maximum(groups, -(-up // (ports // np.maximum(pods, 1)))), 0)
    links = rows[:, COL["leaves"]] * least + pods * up
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + p.switch_cost(mode) * (pods * groups + cores) + p.link_cost * links
    return rows[keep]


def _expand(p: Problem, shapes: Ints, within: float) -> Ints:
    """Return each shape with each number of leaf uplinks and bundle that ports and pins allow, by increasing bound up to `within`."""
    parts = [np.empty((0, len(COLUMNS)), dtype=np.int64)]
    for i in range(0, len(shapes), CHUNK):
        rows = _wirings(p, shapes[i : i + CHUNK])
        parts.append(rows[rows[:, COL["bound"]] <= within])
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, COL["bound"]], kind="stable")]


def _wirings(p: Problem, shapes: Ints) -> Ints:
    """Return the rows of some shapes: s = u1/b1 groups, x·y·b1 spine ports down, and the range that is left for those up."""
    up, bundle = _bundles(int(shapes[:, COL["most_up"]].max()))
    ports, least, most, per_pod, tiers = (shapes[:, COL[c], None] for c in ("ports", "least_up", "most_up", "leaves_per_pod", "tiers"))
    at, pair = np.nonzero((up >= least) & (up <= most) & (per_pod * bundle + (tiers == 3) <= ports) & ((up > 0) == (tiers > 1)))
    rows = np.concatenate([shapes[at], np.zeros((len(at), len(COLUMNS) - len(SHAPE)), dtype=np.int64)], axis=1)
    down, groups = rows[:, COL["leaves_per_pod"]] * bundle[pair], up[pair] // np.maximum(bundle[pair], 1)
    three = rows[:, COL["tiers"]] == 3
    least_spine = np.where(three, np.maximum(1, -(-rows[:, COL["need_up"]] // np.maximum(groups, 1))), 0)
    most_spine = np.where(three, rows[:, COL["ports"]] - down, 0)
    keep = np.ones(len(rows), dtype=bool)
    if "leaf_up_ports" in p.pins:
        keep &= up[pair] == p.pins["leaf_up_ports"]
    if "spine_down_ports" in p.pins:
        keep &= down == p.pins["spine_down_ports"]
    if "spine_up_ports" in p.pins:
        least_spine, most_spine = np.maximum(least_spine, p.pins["spine_up_ports"]), np.minimum(most_spine, p.pins["spine_up_ports"])
    for name, column in zip(COLUMNS[len(SHAPE) :], (up[pair], bundle[pair], groups, down, least_spine, most_spine), strict=True):
        rows[:, COL[name]] = column
    rows = rows[keep & (least_spine <= most_spine)]
    rows[:, COL["bound"]] = _bound(p, rows)
    return rows


@cache
def _bundles(most: int) -> tuple[Ints, Ints]:
    """Return every number of uplinks up to `most` with every bundle that divides it; and none, for a single switch."""
    pairs = [(0, 0), *((up, bundle) for bundle in range(1, most + 1) for up in range(bundle, most + 1, bundle))]
    up, bundle = np.array(sorted(pairs), dtype=np.int64).T
    return up, bundle


def _bound(p: Problem, rows: Ints) -> Ints:
    """Bound the cost of a row from below: its leaves and their uplinks, and s groups with the fewest uplinks and the fullest cores."""
    price = np.array([p.switch_cost(m) for m in range(len(p.switches))], dtype=np.int64)[rows[:, COL["mode"]]]
    pods, up = rows[:, COL["pods"]], rows[:, COL["least_spine_up"]]
    cores = -(-up // np.maximum(rows[:, COL["ports"]] // np.maximum(pods, 1), 1))
    group = price * (pods + cores) + p.link_cost * pods * up
    total: Ints = _leaf_cost(p, rows) + rows[:, COL["groups"]] * group
    return total


def _completed(p: Problem, rows: Ints) -> Ints:
    """Cost of each row with the fewest spine uplinks: a design that can be built, so the cheapest is no cheaper than the least of these."""
    cost = _leaf_cost(p, rows)
    keys, key = np.unique(rows[:, KEY], axis=0, return_inverse=True)
    for i, (mode, _, pods) in enumerate(keys.tolist()):
        at = key.ravel() == i
        cost[at] += rows[at, COL["groups"]] * _group(p, mode, pods, rows[at, COL["least_spine_up"]])[0]
    return cost


def _group(p: Problem, mode: int, pods: int, up: Ints) -> tuple[Ints, Ints]:
    """Cost and boxes of one spine group: `pods` spines of `up` uplinks, in the largest bundles that divide them and fit the core."""
    ports = p.switches[mode].ports
    boxes: Ints = pods + up // _largest_divisor(ports, ports // max(pods, 1))[up]
    return p.switch_cost(mode) * boxes + p.link_cost * pods * up, boxes


def _leaf_cost(p: Problem, rows: Ints) -> Ints:
    """Price the leaves and their uplinks."""
    cost: Ints = rows[:, COL["leaf_cost"]] + p.link_cost * rows[:, COL["leaves"]] * rows[:, COL["leaf_up"]]
    return cost


# --- the model ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Formulation:
    """The CP-SAT model of some rows of the table, and its variables; lives inside this module only."""

    problem: Problem
    rows: Ints
    model: cp_model.CpModel
    at: dict[str, cp_model.IntVar]


def _formulate(p: Problem, rows: Ints) -> Formulation:
    """Choose a row and a spine group that fits it, at no more than the least completion costs."""
    most = int(_completed(p, rows).min())
    f = Formulation(p, rows, cp_model.CpModel(), {})
    keys, key = np.unique(rows[:, KEY], axis=0, return_inverse=True)
    key = key.ravel()
    taken = ("groups", "least_spine_up", "most_spine_up", "leaves", "splits", "domain")
    columns = [np.arange(len(rows)), key, _leaf_cost(p, rows), *(rows[:, COL[c]] for c in taken)]
    _choose(f, "wiring", ("row", "key", "leaf_cost", *taken), columns)
    groups = [_spine_groups(p, rows[key == i], i, most) for i in range(len(keys))]
    _choose(f, "spine_group", ("key", "spine_up", "group_cost", "group_boxes"), list(np.concatenate(groups).T))
    for rule in (fit_spine_ports, hide_pod_crossing, add_cost):
        rule(f)
    return f


def _choose(f: Formulation, table: str, names: tuple[str, ...], columns: list[Ints]) -> None:
    """Take one row of a table: its columns become variables."""
    for name, column in zip(names, columns, strict=True):
        if name not in f.at:
            f.at[name] = f.model.new_int_var_from_domain(cp_model.Domain.from_values(np.unique(column).tolist()), name)
    f.model.add_allowed_assignments([f.at[n] for n in names], np.stack(columns, axis=1).tolist()).with_name(table)


def _spine_groups(p: Problem, rows: Ints, key: int, most: int) -> Ints:
    """Ways to build one spine group under these rows, but for those that cost more than `most` with every row."""
    mode, _, pods = (int(v) for v in rows[0, KEY])
    up = np.arange(rows[:, COL["least_spine_up"]].min(), rows[:, COL["most_spine_up"]].max() + 1, dtype=np.int64)
    cost, boxes = _group(p, mode, pods, up)
    keep = _leaf_cost(p, rows).min() + rows[:, COL["groups"]].min() * cost <= most
    ways: Ints = np.stack([np.full_like(up, key), up, cost, boxes], axis=1)[keep]
    return ways


@cache
def _largest_divisor(upto: int, most: int) -> Ints:
    """Largest divisor, not above `most`, of every number up to `upto`."""
    best = np.ones(upto + 1, dtype=np.int64)
    for b in range(2, min(most, upto) + 1):
        best[b::b] = b
    return best


def fit_spine_ports(f: Formulation) -> None:
    """Give a spine no more uplinks than the bundles of a full pod's leaves leave free."""
    f.model.add(f.at["spine_up"] <= f.at["most_spine_up"]).with_name("spine_ports")


def hide_pod_crossing(f: Formulation) -> None:
    """Give a pod the uplinks that hide what leaves it, over its s spines."""
    f.model.add(f.at["spine_up"] >= f.at["least_spine_up"]).with_name("hide_pod_crossing")


def add_cost(f: Formulation) -> None:
    """Add up leaves, their uplinks and s spine groups."""
    most = int(_completed(f.problem, f.rows).min())
    f.at["spine_cost"] = f.model.new_int_var(0, most, "spine_cost")
    f.model.add_multiplication_equality(f.at["spine_cost"], [f.at["groups"], f.at["group_cost"]])
    f.at["cost"] = f.model.new_int_var(int(f.rows[:, COL["bound"]].min()), most, "cost")
    f.model.add(f.at["cost"] == f.at["leaf_cost"] + f.at["spine_cost"]).with_name("cost")


def _break_ties(f: Formulation) -> None:
    """Prefer fewest unavoidable splits, then fewest boxes, then the smallest leaf domain."""
    most = _largest(f, "groups") * _largest(f, "group_boxes")
    spines = f.model.new_int_var(0, most, "spine_boxes")
    f.model.add_multiplication_equality(spines, [f.at["groups"], f.at["group_boxes"]])
    split, box = (most + _largest(f, "leaves") + 1), _largest(f, "domain") + 1
    f.model.minimize(split * box * f.at["splits"] + box * (f.at["leaves"] + spines) + f.at["domain"])


def _largest(f: Formulation, name: str) -> int:
    """Return the largest value in a variable's domain."""
    return int(list(f.at[name].proto.domain)[-1])


# --- the search -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Search:
    """What is held and proven while rows enter the model; costs in the model's units."""

    bound: float
    cost: int | None = None
    chosen: dict[str, int] | None = None
    rows: Ints = field(default_factory=lambda: np.empty((0, len(COLUMNS)), dtype=np.int64))
    shapes: int = 0
    outcome: Outcome[Values] = field(default_factory=lambda: Outcome(stop=Stop.PROVED, infeasible=True, solver=SOLVER))


def _search(p: Problem, options: Options, site: str) -> Outcome[FabricDesign]:
    """Build the table, search it, and say what was found in dollars."""
    started = time.perf_counter()
    reason = _hopeless(p)
    shapes, space = (np.empty((0, len(SHAPE)), dtype=np.int64), {}) if reason else _table(p)
    found = _cheapest(p, shapes, options, started)
    if found.outcome.infeasible:
        why = reason or f"no mode, leaf domain and pod shape has the ports for {p.request.racks} racks of {p.rails} under the time rules and pins"
        found.outcome = replace(found.outcome, detail=f"{site}: {why}")
    elif found.chosen is not None and found.bound == found.cost:
        _prefer(p, found, options, started)
    space |= {"pod_shapes_excluded_by_bound": len(shapes) - found.shapes, "wirings_in_model": len(found.rows)}
    return _told(p, found, space, time.perf_counter() - started)


def _hopeless(p: Problem) -> str:
    """Say what rules out every fabric before any is looked at; empty where nothing does."""
    phi = p.network.transport.slowdown
    if not p.switches:
        return "no switch mode carries a NIC per port and meets the pins on planes and ports"
    if p.ratios.hop < 1:
        return f"the hop's slowdown must be at most {phi * p.ratios.hop:g}, the transport alone takes {phi:g}"
    if p.ratios.allreduce < 1:
        return f"the all-reduce's slowdown must be at most {phi * p.ratios.allreduce:g}, the transport alone takes {phi:g}"
    return ""


def _left(options: Options, started: float) -> float | None:
    """Seconds left of the time limit."""
    return None if options.time_limit is None else max(options.time_limit - (time.perf_counter() - started), 0.0)


def _cheapest(p: Problem, shapes: Ints, options: Options, started: float) -> Search:
    """Solve rows of least bound, then all whose bound is within the cost held; the rest cannot be better."""
    found = Search(bound=float(shapes[0, COL["bound"]]) if len(shapes) else 0.0)
    taken = min(FIRST_SHAPES, len(shapes))
    most = FIRST_ROWS
    while taken:
        rows = _expand(p, shapes[:taken], math.inf if found.cost is None else found.cost)
        beyond = float(shapes[taken, COL["bound"]]) if taken < len(shapes) else math.inf
        if len(rows):
            beyond = min(beyond, float(rows[most, COL["bound"]]) if most < len(rows) else math.inf)
            _improve(p, found, rows[:most], beyond, options, started)
            found.shapes = taken
            if found.outcome.stop is not Stop.PROVED or found.cost is None or beyond > found.cost:
                break
            most *= 8
        elif taken == len(shapes):
            break
        cost = math.inf if found.cost is None else found.cost
        taken = min(4 * taken, len(shapes)) if found.cost is None else int(np.searchsorted(shapes[:, COL["bound"]], cost, side="right"))
    return found


def _improve(p: Problem, found: Search, rows: Ints, beyond: float, options: Options, started: float) -> None:
    """Solve the model of some rows; no other row is below `beyond`."""
    f = _formulate(p, rows)
    if found.cost is not None:
        f.model.add(f.at["cost"] <= found.cost)
    f.model.minimize(f.at["cost"])
    o = run(f.model, time_limit=_left(options, started), gap=options.gap, seed=options.seed, threads=options.threads)
    found.outcome, found.rows = o, rows
    if o.solution is not None and o.bound is not None:
        found.chosen, found.cost = _read(f, o.solution), o.solution.of(f.at["cost"])
        found.bound = max(found.bound, min(math.ceil(o.bound - 1e-6), beyond))
    elif o.stop is Stop.LIMIT and found.chosen is None:
        found.chosen, found.cost = _least_completion(p, rows)


def _least_completion(p: Problem, rows: Ints) -> tuple[dict[str, int], int]:
    """Return the cheapest row with its fewest spine uplinks, and its cost: what is held when no time is left to search."""
    cost = _completed(p, rows)
    row = dict(zip(COLUMNS, rows[int(cost.argmin())].tolist(), strict=True))
    return row | {"spine_up": row["least_spine_up"]}, int(cost.min())


def _prefer(p: Problem, found: Search, options: Options, started: float) -> None:
    """Among designs of the cost proven least take the one with fewest unavoidable splits, then boxes, then racks a leaf, if time is left."""
    assert found.cost is not None
    f = _formulate(p, found.rows[found.rows[:, COL["bound"]] <= found.cost])
    f.model.add(f.at["cost"] == found.cost)
    _break_ties(f)
    o = run(f.model, time_limit=_left(options, started), seed=options.seed, threads=options.threads)
    if o.solution is not None:
        found.chosen = _read(f, o.solution)


def _read(f: Formulation, values: Values) -> dict[str, int]:
    """Return what a solution chose: the row of the table and the spine's uplinks."""
    row = f.rows[values.of(f.at["row"])]
    return {c: int(v) for c, v in zip(COLUMNS, row, strict=True)} | {"spine_up": values.of(f.at["spine_up"])}


def _told(p: Problem, found: Search, space: dict[str, int], seconds: float) -> Outcome[FabricDesign]:
    """Say in dollars what the search holds."""
    o = found.outcome
    solution = None if found.chosen is None else _fabric_design(p, found.chosen, space)
    proved = solution is not None and found.bound == found.cost
    return Outcome(
        stop=o.stop,
        solution=solution,
        objective=None if solution is None else solution.cost_usd,
        bound=None if o.infeasible else solution.cost_usd if solution is not None and proved else p.usd(found.bound),
        infeasible=o.infeasible,
        detail=o.detail,
        solver=SOLVER,
        variables=o.variables,
        constraints=o.constraints,
        seconds=seconds,
    )


# --- what was chosen ------------------------------------------------------------------------------------------------------


def _fabric_design(p: Problem, v: dict[str, int], space: Mapping[str, int]) -> FabricDesign:
    """Return the design that a solution stands for, with the largest spine bundle that its core allows."""
    switch, three = p.switches[v["mode"]], v["tiers"] == 3
    d = Design(
        ports=switch.ports,
        rails=p.rails,
        racks=p.request.racks,
        leaf_down=v["down_ports"],
        leaf_up=v["leaf_up"],
        leaf_bundle=v["leaf_bundle"],
        rails_per_pod=v["rails"],
        domains_per_pod=v["domains_per_pod"],
        spine_up=v["spine_up"],
        spine_bundle=int(_largest_divisor(switch.ports, switch.ports // v["pods"])[v["spine_up"]]) if three else 0,
    )
    counts = {"switches": d.switches, "switch_links": d.switch_links, "endpoint_links": d.endpoint_links}
    return FabricDesign(
        switch=switch,
        design=d,
        cost_usd=fabric_usd(p.network, switch, **counts),
        power_mw=fabric_mw(p.network, switch, **counts),
        unavoidable_splits=v["splits"],
        binding=tuple(_binding(d, v)),
        space=space,
        declared=_declared(p),
    )


def _declared(p: Problem) -> dict[str, str]:
    """Say over which values the decisions range; pins narrow them."""
    ports = max(s.ports for s in p.switches)
    return {
        "modes": ", ".join(f"{s.name} ({s.ports} ports, {s.planes} planes)" for s in p.switches),
        "tiers": f"1..{p.network.max_tiers}",
        "ports_of_each_kind": f"1..{ports - 1}, every bundle that divides them, unused ports allowed",
        "rails_per_pod": f"1..{p.rails}",
        "leaf_domains_per_pod": "1..all",
        "pins": ", ".join(f"{name}={value}" for name, value in sorted(p.pins.items())) or "none",
    }


def _binding(d: Design, v: dict[str, int]) -> Iterator[str]:
    """Name the rules that one port fewer would break, or that leave no port over."""
    if d.tiers == 1:
        return
    if d.leaf_up == v["least_up"]:
        yield "hide_leaf_crossing"
    if d.leaf_down + d.leaf_up == d.ports:
        yield "leaf_ports"
    if d.spine_down + d.spine_up == d.ports:
        yield "spine_ports"
    if d.tiers == 3 and d.spines_per_pod * (d.spine_up - 1) < v["need_up"]:
        yield "hide_pod_crossing"
    if d.tiers == 3 and d.pods * d.spine_bundle == d.ports:
        yield "core_ports"


def _tiers(d: Design) -> Iterator[Tier]:
    """Tiers from the leaf up; the bundle of a tier is that of its links upwards."""
    over = d.leaf_oversubscription
    yield Tier(name="leaf", switches=d.leaves, down_ports=d.leaf_down, up_ports=d.leaf_up, oversubscription=over, bundle=d.leaf_bundle)
    if d.tiers > 1:
        over = d.spine_oversubscription
        yield Tier(name="spine", switches=d.spines, down_ports=d.spine_down, up_ports=d.spine_up, oversubscription=over, bundle=d.spine_bundle)
    if d.tiers > 2:
        yield Tier(name="core", switches=d.cores, down_ports=d.pods * d.spine_bundle, up_ports=0, oversubscription=1.0, bundle=0)


def _status(outcomes: list[Outcome[FabricDesign]]) -> Status:
    if any(o.infeasible for o in outcomes):
        return "infeasible"
    if any(o.solution is None for o in outcomes):
        return "unknown"
    return "optimal" if all(o.objective == o.bound for o in outcomes) else "feasible"


def _alternative(p: Problem, found: FabricDesign) -> Alternative:
    """Weigh a design by its worst case: every flow leaves its leaf, and its pod where there are several side by side."""
    d = found.design
    slow = hop_slowdown(p.network, d, float(d.domains > 1), float(d.tiers > 1 and d.domains_per_pod < d.domains))
    merits = {"cost_usd": found.cost_usd, "hop_slowdown": slow, "unavoidable_splits": float(found.unavoidable_splits)}
    choices: dict[str, object] = {"switch": found.switch.name, "planes": found.switch.planes, "tiers": d.tiers}
    choices["leaf_domain_racks"] = leaf_domain_racks(d)
    choices |= {name: getattr(d, name) for name in ("leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "spine_up", "spine_bundle")}
    return Alternative(merits=merits, choices=choices)


def _non_dominated(found: list[Alternative]) -> list[Alternative]:
    """Keep, by cost, each alternative that no other matches or beats in every merit."""
    kept: list[Alternative] = []
    for a in sorted(found, key=lambda a: tuple(a.merits.values())):
        if not any(all(b.merits[m] <= a.merits[m] for m in a.merits) for b in kept):
            kept.append(a)
    return kept
