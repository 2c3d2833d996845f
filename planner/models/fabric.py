"""Choose the fabric of one site: planes, tiers, ports and bundles that can be wired, at least cost, by CP-SAT.

A fabric is leaves, then equal groups of spines and cores: position i of every pod's spines and the cores above them form
group i, and there are s = leaf_up / leaf_bundle of them. So the cost is leaves + s·(one group), and two tables carry the
choice: a row per way to wire leaves to the spines of a pod, and a row per spine group; rules of the model join them.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from planner.handoff import Alternative, FabricRequest, Options
from planner.instance import Instance, Switch
from planner.models.fabric_model import break_ties, formulate, read
from planner.models.fabric_question import TOLERANCE, Ints, Mode, Problem, leaf_domain_racks, network_of, problem_of
from planner.models.fabric_table import COL, COLUMNS, SHAPE, completed, expand, largest_divisor, shape_table
from planner.physics.fabric_bill import bill
from planner.physics.transport import allreduce_slowdown, hop_slowdown, slowdown
from planner.physics.wiring import Design
from planner.plan import Certificate, SiteFabric, Status, Tier
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.outcome import Outcome, Stop, relative_gap

FIRST_SHAPES = 64  # pod shapes of least bound that are looked at first
FIRST_ROWS = 256  # wirings of least bound that the first model holds
HOP_CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)  # over phi: caps at which alternatives are sought
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

    mode: Mode
    design: Design
    cost_usd: float
    power_mw: float
    unavoidable_splits: int
    binding: tuple[str, ...] = ()
    space: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def switch(self) -> Switch:
        """The box that it is built of."""
        return self.mode.switch


def solve(instance: Instance, request: FabricRequest, options: Options, *, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest fabric that hides the layout's traffic, among equals the one that splits fewest groups."""
    return _search(problem_of(instance, request), options, site)


def alternatives(instance: Instance, request: FabricRequest, options: Options) -> list[Alternative]:
    """Return designs of which none is better in cost, hop slowdown and unavoidable split groups at once.

    Each is the cheapest within a cap on the hop's slowdown (`HOP_CAPS` below the request's own) and a cap on split groups,
    and proven so; where the time ends, those not reached are missing.
    """
    problem = problem_of(instance, request)
    deadline = None if options.time_limit is None else time.perf_counter() + options.time_limit
    found: list[Alternative] = []
    for ratio in sorted({problem.ratios.hop, *(c * (1 + TOLERANCE) for c in HOP_CAPS if c < problem.ratios.hop)}):
        capped = replace(problem, ratios=replace(problem.ratios, hop=ratio), most_splits=None)
        while capped.most_splits is None or capped.most_splits >= 0:
            left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
            out = _search(capped, replace(options, time_limit=left), "alternatives")
            held = out.solution
            if held is None or out.stop is not Stop.PROVED:
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
    network, d = network_of(instance), found.design
    hop = hop_slowdown(network, d, share_leaving_leaf, share_leaving_pod)
    return SiteFabric(
        switch=found.switch.name,
        family=found.mode.family,
        lanes=d.lanes,
        leaf_spare_ports=d.leaf_spare,
        planes=found.mode.planes,
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
    shapes, space = (np.empty((0, len(SHAPE)), dtype=np.int64), {}) if reason else shape_table(p)
    found = _cheapest(p, shapes, options, started)
    if found.outcome.infeasible:
        why = reason or f"no mode, leaf domain and pod shape has the ports for {p.request.racks} racks under the time rules and pins"
        found.outcome = replace(found.outcome, detail=f"{site}: {why}")
    elif found.chosen is not None and found.bound == found.cost:
        _prefer(p, found, options, started)
    space |= {"pod_shapes_excluded_by_bound": len(shapes) - found.shapes, "wirings_in_model": len(found.rows)}
    return _told(p, found, space, time.perf_counter() - started)


def _hopeless(p: Problem) -> str:
    """Say what rules out every fabric before any is looked at; empty where nothing does."""
    phi = slowdown(p.network)
    if not p.modes:
        return "no switch mode carries a NIC over the lanes allowed and meets the pins on planes and ports"
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
        rows = expand(p, shapes[:taken], math.inf if found.cost is None else found.cost)
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
    f = formulate(p, rows)
    if found.cost is not None:
        f.model.add(f.at["cost"] <= found.cost)
    f.model.minimize(f.at["cost"])
    o = run(f.model, time_limit=_left(options, started), gap=options.gap, seed=options.seed, threads=options.threads)
    found.outcome, found.rows = o, rows
    if o.solution is not None and o.bound is not None:
        found.chosen, found.cost = read(f, o.solution), o.solution.of(f.at["cost"])
        found.bound = max(found.bound, min(math.ceil(o.bound - 1e-6), beyond))
    elif o.stop is Stop.LIMIT and found.chosen is None:
        found.chosen, found.cost = _least_completion(p, rows)


def _least_completion(p: Problem, rows: Ints) -> tuple[dict[str, int], int]:
    """Return the cheapest row with its fewest spine uplinks, and its cost: what is held when no time is left to search."""
    cost = completed(p, rows)
    row = dict(zip(COLUMNS, rows[int(cost.argmin())].tolist(), strict=True))
    return row | {"spine_up": row["least_spine_up"]}, int(cost.min())


def _prefer(p: Problem, found: Search, options: Options, started: float) -> None:
    """Among designs of the cost proven least take the one with fewest unavoidable splits, then boxes, then racks a leaf, if time is left."""
    assert found.cost is not None
    f = formulate(p, found.rows[found.rows[:, COL["bound"]] <= found.cost])
    f.model.add(f.at["cost"] == found.cost)
    break_ties(f)
    o = run(f.model, time_limit=_left(options, started), seed=options.seed, threads=options.threads)
    if o.solution is not None:
        found.chosen = read(f, o.solution)


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


def _fabric_design(p: Problem, v: dict[str, int], space: Mapping[str, int]) -> FabricDesign:
    """Return the design that a solution stands for, with the largest spine bundle that its core allows."""
    mode, three = p.modes[v["mode"]], v["tiers"] == 3
    switch = mode.switch
    d = Design(
        ports=switch.ports,
        rails=mode.rails,
        racks=p.request.racks,
        leaf_down=v["down_ports"],
        leaf_up=v["leaf_up"],
        leaf_bundle=v["leaf_bundle"],
        rails_per_pod=v["rails"],
        domains_per_pod=v["domains_per_pod"],
        spine_up=v["spine_up"],
        spine_bundle=int(largest_divisor(switch.ports, switch.ports // v["pods"])[v["spine_up"]]) if three else 0,
        rail_gpus=mode.rail_gpus,
        apart=mode.apart,
        lanes=mode.lanes,
        leaf_spare=mode.spare(p.network, v["down_ports"]),
    )
    price = bill(p.network, switch, d)
    return FabricDesign(
        mode=mode,
        design=d,
        cost_usd=price.usd,
        power_mw=price.mw,
        unavoidable_splits=v["splits"],
        binding=tuple(_binding(d, v)),
        space=space,
        declared=_declared(p),
    )


def _declared(p: Problem) -> dict[str, str]:
    """Say over which values the decisions range; pins narrow them."""
    ports = max(m.switch.ports for m in p.modes)
    return {
        "modes": ", ".join(f"{m.switch.name} ({m.switch.ports} ports, {m.planes} planes, {m.family})" for m in p.modes),
        "tiers": f"1..{p.network.max_tiers}",
        "ports_of_each_kind": f"1..{ports - 1}, every bundle that divides them, unused ports allowed",
        "rails_per_pod": f"1..{max(m.rails for m in p.modes)}",
        "leaf_domains_per_pod": "1..all",
        "pins": ", ".join(f"{name}={value}" for name, value in sorted(p.pins.items())) or "none",
    }


def _binding(d: Design, v: dict[str, int]) -> Iterator[str]:
    """Name the rules that one port fewer would break, or that leave no port over."""
    if d.tiers == 1:
        return
    if d.leaf_up == v["least_up"]:
        yield "hide_leaf_crossing"
    if d.leaf_down + d.leaf_up + d.leaf_spare == d.ports:
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
    choices: dict[str, object] = {
        "power_mw": found.power_mw,
        "switches": d.switches,
        "switch": found.switch.name,
        "planes": found.mode.planes,
        "family": found.mode.family,
        "tiers": d.tiers,
    }
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
