"""Rules of certificates: each is about the plan's own decision, with its bound on the right side of the objective."""

import math
import re
from collections.abc import Iterator

from planner.checks import cost, sites
from planner.checks.cost import recomputed
from planner.checks.layout import days as days_of_pools
from planner.checks.model_choice import stated_loss
from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, same, show
from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import instance_sha256
from planner.physics.plan_physics import PlanPhysics
from planner.plan import certificate
from planner.plan.plan_sections import LEAST_CAPITAL

DECISIONS = ("sites", "wan", "layout", "pools", "fabric", "placement")


def instance_hash(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan states the hash of the instance inside it."""
    yield from must_be("instance_hash", "instance_sha256", c.plan.instance_sha256, instance_sha256(c.instance))


def reason(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a plan without decisions says why, and that no other does."""
    p = c.plan
    if p.status == "infeasible" and p.conflict is None:
        yield broken("reason", "infeasible with 0 conflicts, 1 expected")
    if p.status in ("infeasible", "unknown"):
        present = [s for s in (*DECISIONS, "cost", "run") if getattr(p, s) is not None]
        if present or p.objective.value is not None:
            sections = f"{len(present)} sections ({', '.join(present)})"
            yield broken("reason", f"{p.status}, yet {sections} and objective {show(p.objective.value)} are there")
    elif p.conflict is not None:
        yield broken("reason", f"{p.status}, yet there is 1 conflict: {p.conflict.reason}")


def certificates(c: PlanPhysics) -> dict[str, certificate.Certificate]:
    """Return the certificates by decision."""
    decisions = {name: getattr(c.plan, name) for name in DECISIONS}
    return {name: x.certificate for name, x in decisions.items() if x is not None}


def _distance(value: float, bound: float) -> float:
    return abs(value - bound) / max(abs(value), 1e-12)


def _gap(rule: str, value: float | None, bound: float | None, stated: float | None) -> Iterator[certificate.Violation]:
    """Check that a stated gap is that of value and bound; gaps below the tolerance are rounding."""
    found = None if value is None or bound is None else _distance(value, bound)
    if (found is None) != (stated is None) or (
        found is not None and stated is not None and abs(found - stated) > TOLERANCE * max(found, 1e-3)
    ):
        yield broken(rule, f"gap {show(stated)} stated, {show(found)} between {show(value)} and bound {show(bound)}")


def gap(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each gap is that of objective and bound."""
    for name, x in certificates(c).items():
        yield from _gap(f"gap[{name}]", x.objective, x.bound, x.gap)


def bound_side(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each bound is below its objective, as every decision minimizes."""
    for name, x in certificates(c).items():
        if x.objective is not None and x.bound is not None:
            yield from at_most(
                f"bound_side[{name}]", float(x.bound), float(x.objective), "bound from below", "objective"
            )


def optimal(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that only a decision at its bound is called optimal."""
    allowed = max(TOLERANCE, c.instance.objective.days_given_up)
    for name, x in certificates(c).items():
        if x.status == "optimal" and (
            x.objective is None or x.bound is None or _distance(x.objective, x.bound) > allowed
        ):
            sides = f"objective {show(x.objective)} and bound {show(x.bound)}"
            yield broken(f"optimal[{name}]", f"{sides} are more than {allowed:g} apart")
        if x.status not in ("optimal", "feasible"):
            yield broken(f"optimal[{name}]", f"there is a decision, its certificate says {x.status}")


def certified(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each certificate is about its decision: its objective is the figure that it names, recomputed.

    What is decided jointly is proven jointly: layout, fabric and placement state the value of the whole plan.
    """
    days = c.metrics.days_to_train if c.metrics else None
    joint = days if c.instance.objective.minimize == "loss" else _value(c)
    figures = {"sites": _capital_usd(c), "layout": joint, "fabric": joint, "placement": joint}
    figures |= {"wan": sites.objective(c), "pools": days_of_pools(c)}
    for name, x in certificates(c).items():
        if figures[name] is not None:
            yield from must_equal(f"certified[{name}]", f"objective ({x.minimizes})", x.objective, figures[name])


def _capital_usd(c: PlanPhysics) -> float | None:
    """Recompute the objective of the sites in USD: the bill, or the cost of the whole run, and soft-rule penalties."""
    price = recomputed(c.plan, c)
    if price is None:
        return None
    in_all = cost.total_usd(c) if c.instance.objective.minimize == "total_cost_of_ownership_usd" else price.total_usd
    return (
        None if in_all is None else in_all + (sum(x.usd_per_year for x in c.plan.sites.excess) if c.plan.sites else 0.0)
    )


def _value(c: PlanPhysics) -> float | None:
    price, days = recomputed(c.plan, c), c.metrics.days_to_train if c.metrics else days_of_pools(c)
    figures = {"days_to_train": days, "cost_usd": price.total_usd if price else None, "loss": stated_loss(c)}
    figures["frontier"] = days
    figures["finish_date"] = None if days is None else days + _waiting_days(c)
    whole = "total_cost_of_ownership_usd"
    return cost.total_usd(c) if c.instance.objective.minimize == whole else figures[c.instance.objective.minimize]


def _waiting_days(c: PlanPhysics) -> float:
    """Recompute the days from the decision to the first of training: the latest of all that the plan puts to use."""
    waits = [c.instance.hardware.ready_months]
    if c.instance.grid is not None:
        waits += [place.node.ready_months for place in c.standing]
        waits += [line.lead_months for line in c.grid.new_lines if line.id in c.built]
        waits += [node.upgrade.lead_months for node in c.grid.nodes if node.upgrade and node.id in c.steps]
    return DAYS_A_MONTH * max(waits)


def objective(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the objective is the one asked for, as recomputed, with no bound above it."""
    o, name, value = c.plan.objective, c.instance.objective.minimize, _value(c)
    yield from must_be("objective", "name", o.name, name)
    if value is not None:
        yield from must_equal("objective", name, o.value, value)
    yield from _gap("objective", o.value, o.bound, o.gap)
    yield from _gap("objective[joint]", o.value, o.joint_bound, o.joint_gap)
    for which in ("bound", "joint_bound", "fabric_free_bound"):
        bound = getattr(o, which)
        if bound is not None and o.value is not None:
            yield from at_most("objective", bound, o.value, which, name)
    yield from _cheaper(c)
    yield from _simplest(c)
    yield from _freed(c)
    yield from _ends(c)
    decision = c.plan.layout or c.plan.pools
    proven = decision.certificate.bound if decision and name != "loss" else None
    if proven is not None and o.bound is not None:
        yield from at_most("objective", o.bound, proven, "bound", "proven by the certificate")


def _cheaper(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan named as cheaper is cheaper, almost as fast, and no faster than is possible."""
    o, price = c.plan.objective, recomputed(c.plan, c)
    x, rule = o.cheaper, "objective[cheaper]"
    if x is None:
        return
    if o.name != "days_to_train" or o.value is None or price is None:
        yield broken(rule, f"a cheaper plan where {o.name} is {show(o.value)}, fewest days expected")
        return
    share = f"days, {1 + certificate.ALMOST_AS_FAST:g} times the plan's"
    yield from at_most(
        rule, x.days_to_train, o.value * (1 + certificate.ALMOST_AS_FAST), "days of the cheaper plan", share
    )
    if o.bound is not None:
        yield from at_most(rule, o.bound, x.days_to_train, "days, the bound", "days of the cheaper plan")
    if x.capital_usd >= price.total_usd:
        yield broken(rule, f"{show(x.capital_usd)} USD of the cheaper plan >= {show(price.total_usd)} USD of the plan")


def _simplest(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan named as simpler is within 2 % of the fewest days, no dearer, and has all layers."""
    x, rule = c.plan.objective.simplest, "objective[simplest]"
    if x is None:
        return
    fewest_days = c.plan.objective.ends[0].value if c.plan.objective.ends else c.plan.objective.value
    if c.instance.objective.minimize != "days_to_train" or not fewest_days:
        yield broken(rule, f"a simpler plan where the goal is {c.plan.objective.name}, fewest days expected")
        return
    yield from must_equal(rule, "loss", x.loss, x.days_to_train / fewest_days - 1)
    most = fewest_days * (1 + certificate.SIMPLER_WITHIN)
    yield from at_most(
        rule, x.days_to_train, most, "days", f"days, {1 + certificate.SIMPLER_WITHIN:g} times the fewest"
    )
    deadline = c.instance.limits.deadline_days
    if deadline is not None:
        yield from at_most(rule, x.days_to_train, deadline, "days", "days, the deadline")
    usd = _capital_usd(c)
    if usd is not None:
        yield from at_most(rule, x.capital_usd, usd, "USD", "USD of the plan")
    model = c.instance.workload.model
    if not isinstance(model, str):
        yield from must_equal(rule, "layers of all stages", sum(x.layers_per_stage), model.layers)
        yield from at_most(rule, x.recomputed_layers, model.layers, "recomputed layers", "layers")


def _freed(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a framework binds the layers of stages, and that without it they fit and are faster as is said."""
    x, rule, layout = c.plan.objective.freed, "objective[freed]", c.plan.layout
    if x is None:
        return
    yield from must_be(rule, "framework", x.framework, c.instance.workload.rules.framework or "none")
    if layout is None or c.metrics is None:
        yield broken(rule, "a layout without rules where the plan has no layout")
        return
    own = {key: getattr(x, key) for key in ("layers_per_stage", "recompute", "recomputed_layers_per_stage")}
    of = PlanPhysics(plan=c.plan.model_copy(update={"layout": layout.model_copy(update=own)}))
    if of.metrics is None:
        yield broken(rule, f"{len(x.layers_per_stage)} stages that no step can be timed of")
        return
    yield from must_equal(rule, "faster", x.faster, c.metrics.step_seconds / of.metrics.step_seconds - 1)
    used, limit = of.metrics.memory_bytes_per_gpu, of.metrics.memory_limit_bytes
    yield from at_most(rule, used, limit, "bytes on the worst GPU", "bytes that may be filled")
    model = c.instance.workload.model
    if not isinstance(model, str):
        yield from must_equal(rule, "layers of all stages", sum(x.layers_per_stage), model.layers)


def _ends(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the ends keep within the tolerance of the ones before, and that the last one left the plan."""
    o, rule, share = c.plan.objective, "objective[ends]", c.instance.objective.tolerance
    if not o.ends or o.value is None:
        return
    names = [x.name for x in o.ends]
    if names != [n for n in ("goal", "capital", "leaf_local", "simplest") if n in names] or names[0] != "goal":
        yield broken(rule, f"{', '.join(names)} in an order of its own")
        return
    goal, last = o.ends[0], o.ends[-1]
    yield from must_equal(rule, "days of the last end", last.days_to_train, o.value)
    yield from must_equal(rule, "capital of the last end", last.capital_usd, _capital_usd(c))
    yield from must_equal(rule, "the goal", goal.value, goal.days_to_train)
    for x in o.ends:
        if x.name == "capital":
            yield from must_equal(rule, "the capital", x.value, x.capital_usd)
            yield from at_most(rule, x.capital_usd, goal.capital_usd, "USD of the cheapest", "USD of the fastest plan")
        if x.name == "simplest" and c.plan.layout is not None:
            y = c.plan.layout
            degrees = (y.tensor_parallel, y.context_parallel, y.expert_parallel, y.pipeline_parallel, y.data_parallel)
            yield from must_equal(rule, "kinds of parallelism", x.value, sum(n > 1 for n in degrees))
    budget = c.instance.limits.budget_usd
    if budget is not None:
        yield from at_most(rule, goal.capital_usd, budget, "USD of the fastest plan", "USD of the budget")
    if o.bound is not None:
        yield from at_most(rule, o.bound, goal.value, "days, the bound", "days of the fastest plan")
    for x in o.ends:
        own = max(share, c.instance.objective.indifference) if x.name == "simplest" else share
        most = f"days, {1 + own:g} times the fewest"
        yield from at_most(rule, x.days_to_train, goal.value * (1 + own), f"days of {x.name}", most)
        if x.name in ("leaf_local", "simplest"):
            usd = next(y.capital_usd for y in o.ends if y.name == "capital")
            yield from at_most(
                rule, x.capital_usd, usd * (1 + share), f"USD of {x.name}", f"{1 + share:g} of least USD"
            )
    local = next((x for x in o.ends if x.name == "leaf_local"), None)
    if local is not None and c.instance.objective.indifference <= share and c.plan.placement is not None:
        placement = c.plan.placement
        shares = []
        for site in placement.sites.values() if placement else ():
            leaves: dict[int, set[int]] = {}
            for piece in site.assignment:
                leaves.setdefault(piece.stage, set()).add(piece.leaf_domain)
            shares.append(sum(len(x) == 1 for x in leaves.values()) / len(leaves) if leaves else 1.0)
        yield from must_equal(rule, "share of groups under one leaf", local.value, min(shares, default=1.0))


def status(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan is called optimal only at its bound, with every certificate, and by proof."""
    o, asked, choose = c.plan.objective, c.instance.objective, c.instance.workload.choose
    # A loss is proven within the bracket of its compute, by less than which it falls.
    bracket = choose.tolerance if choose is not None and asked.minimize == "loss" else 0.0
    allowed = max(TOLERANCE, asked.days_given_up, bracket)
    apart = o.value is None or o.bound is None or _distance(o.value, o.bound) > allowed
    if c.plan.status == "optimal" and apart:
        sides = f"value {show(o.value)} and bound {show(o.bound)}"
        yield broken("status", f"optimal, yet {sides} are more than {allowed:g} apart")
    weaker = [name for name, x in certificates(c).items() if x.status != "optimal"]
    if c.plan.status == "optimal" and (weaker or c.plan.stopped != "proved"):
        others = f"{len(weaker)} certificates are not ({', '.join(weaker)})"
        yield broken("status", f"optimal, yet {others}; the search ended by {c.plan.stopped}")


WITHOUT_PLAN: tuple[Rule, ...] = (instance_hash, reason)
RULES: tuple[Rule, ...] = (instance_hash, reason, gap, bound_side, optimal, certified, objective, status)


SHARED = ("status", "bound", "gap", "objective", "formulation", "minimizes", "given", "seed")  # alike in `JOINT`
AGREED = (certificate.CONFIRMED, certificate.BOUNDED, certificate.ON_TRUST)
JOINT = ("layout", "fabric", "placement")
HOW = {
    "sites": (certificate.SITES_FORMULATION, (certificate.SITES_MINIMIZES, certificate.SITES_RUN_MINIMIZES)),
    "wan": (certificate.WAN_FORMULATION, (LEAST_CAPITAL, certificate.LEAST_YEARLY, certificate.UNPRICED)),
}


def _certificates(c: PlanPhysics) -> dict[str, certificate.Certificate]:
    sections = ("sites", "wan", "layout", "pools", "fabric", "placement")
    found = {name: x.certificate for name in sections if (x := getattr(c.plan, name)) is not None}
    layouts = c.plan.pools.layouts if c.plan.pools is not None else {}
    return found | {f"pools.layouts.{name}": x.certificate for name, x in layouts.items()}


def one_run(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that certificates have the plan's seed, sizes and seconds that a run may have, and gaps of their own."""
    for name, x in _certificates(c).items():
        yield from must_equal(f"one_run[{name}]", "seed against the plan's", x.seed, c.plan.seed)
        if not (math.isfinite(x.seconds) and x.seconds >= 0 and x.variables >= 0 and x.constraints >= 0):
            sizes = f"{show(x.seconds)} s, {show(x.variables)} variables and {show(x.constraints)} constraints"
            yield broken(f"one_run[{name}]", f"{sizes} are below 0")


def joint_claims(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that layout, fabric and placement, which are proven together, claim the same, and how."""
    plan, name = c.plan, c.instance.objective.minimize
    layout = plan.layout
    if layout is None:
        return
    first, counts = layout.certificate, plan.proof.counts if plan.proof is not None else None
    for section in JOINT[1:]:
        x = getattr(plan, section)
        for key in SHARED if x is not None else ():
            stated, wanted = getattr(x.certificate, key), getattr(first, key)
            if not (same(stated, wanted) if isinstance(wanted, float) else stated == wanted):
                yield broken(f"joint_claims[{section}]", f"{key} {show(stated)}, {show(wanted)} in the layout's")
        if x is not None:
            yield from must_equal(f"joint_claims[{section}]", "seconds", x.certificate.seconds, first.seconds)
            yield from _sizes(c, section, x.certificate)
        if x is not None and x.certificate.bound is not None:
            yield from must_be(
                f"joint_claims[{section}]", "space of a section other than the layout", x.certificate.space, {}
            )
    if first.bound is None:
        return
    # Where the loss is to be least, the layout is the fastest of its model.
    unit = certificate.UNITS.get(name, certificate.UNITS["days_to_train"])
    yield from must_be("joint_claims[layout]", "formulation", first.formulation, certificate.FORMULATION)
    yield from must_be("joint_claims[layout]", "minimizes", first.minimizes, unit)
    yield from must_be("joint_claims[layout]", "given", first.given, "")
    if counts is not None:
        yield from must_be("joint_claims[layout]", "counts of the search against the proof's", first.space, counts)


def _sizes(c: PlanPhysics, section: str, x: certificate.Certificate) -> Iterator[certificate.Violation]:
    """Check that variables and constraints are those of the MILP over sites, none of a cluster without sites."""
    sites = c.plan.sites.certificate if c.plan.sites is not None else None
    for key in ("variables", "constraints"):
        wanted = getattr(sites, key) if sites is not None else 0
        yield from must_equal(f"joint_claims[{section}]", f"{key} of the MILP over sites", getattr(x, key), wanted)


def solvers_named(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a bound names who found it."""
    plan, grid = c.plan, c.instance.grid is not None
    branching = certificate.GRID_BRANCHING if grid else certificate.BRANCHING
    for name in JOINT:
        section = getattr(plan, name)
        x = section.certificate if section is not None else None
        if x is None or x.bound is None:
            continue
        parts = x.solver.split("; ")
        if name == "layout" and len(parts) == branching.count("; ") + 1:
            yield from _sizes(c, name, x)
        head = "; ".join(parts[: branching.count("; ") + 1])
        rest = parts[branching.count("; ") + 1 :]
        if head != branching or (rest and not (name == "layout" and rest == [certificate.LISTED])):
            yield broken(f"solvers_named[{name}]", f"{x.solver!r} stated, {branching!r} expected")
    if plan.sites is not None and plan.sites.certificate.bound is not None:
        yield from _by_highs("sites", plan.sites.certificate)
    if plan.wan is not None and plan.wan.certificate.bound is not None:
        yield from _by_highs("wan", plan.wan.certificate)


def _by_highs(name: str, x: certificate.Certificate) -> Iterator[certificate.Violation]:
    """Check that a bound is by HiGHS through Pyomo, each with its version."""
    if not re.fullmatch(r"HiGHS [\d.]+ through Pyomo [\d.]+", x.solver):
        yield broken(f"solvers_named[{name}]", f"{x.solver!r} stated, HiGHS expected")


def marks(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a certificate states how its bound is confirmed: by this check, by another solver, or on trust."""
    columns = len(c.plan.proof.columns) if c.plan.proof is not None else 0
    joint = certificate.joint_mark(c.instance.objective.minimize, grid=c.instance.grid is not None, columns=columns)
    for name, x in _certificates(c).items():
        expected = (joint,) if name in JOINT else AGREED if name in HOW else (certificate.ON_TRUST,)
        if name.startswith("pools.layouts.") or x.bound is None:
            expected = ("",)
        if x.checked not in ("", *expected):
            wanted = " or ".join(repr(mark) for mark in expected)
            yield broken(f"marks[{name}]", f"the bound is stated to be {x.checked!r}, {wanted} expected")


def formulations(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a bound on sites or fibre names its objective, its formulation and the choices that it is given."""
    for name, (formulation, minimizes) in HOW.items():
        section = getattr(c.plan, name)
        if section is None or section.certificate.bound is None:
            continue
        rule = f"formulations[{name}]"
        yield from must_be(rule, "formulation", section.certificate.formulation, formulation)
        if section.certificate.minimizes not in minimizes:
            yield broken(rule, f"minimizes {section.certificate.minimizes!r}, one of {', '.join(minimizes)} expected")
    layout, sites = c.plan.layout, c.plan.sites
    if layout is None or sites is None or sites.certificate.bound is None:
        return
    gbps = layout.assumptions.wan_gbps
    waves = 0 if gbps is None else round(gbps * c.wan.headroom_factor / c.wan.wavelength_gbps)
    degrees = (layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.data_parallel)
    yield from must_be(
        "formulations[sites]", "given", sites.certificate.given, certificate.given_to_sites(*degrees, waves)
    )


def declared_space(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a joint bound is of the declared space, which is the one that the columns are enumerated in."""
    o = c.plan.objective
    joint = c.plan.layout is not None and o.name in certificate.UNITS
    if joint and o.bound is not None:
        yield from must_be("declared_space", "space", o.space, certificate.declared_space(c.instance.workload.rules))
        yield from must_be("declared_space", "outside", o.outside, certificate.OUTSIDE)
    if not joint:
        yield from must_be("declared_space", "space of what is not decided jointly", o.space, "")
        yield from must_be("declared_space", "outside of what is not decided jointly", o.outside, "")
    if not joint or o.name != "days_to_train":
        yield from must_be("declared_space", "fabric_free_bound without a proof", o.fabric_free_bound, None)


def stopped(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a run ended by proof where the plan is proven, and only there."""
    p = c.plan
    if p.stopped == "proved" and p.status not in ("optimal", "infeasible"):
        yield broken("stopped", f"the search ended by proof, yet the plan is {p.status}")
    if p.stopped == "gap" and p.objective.gap is None:
        yield broken("stopped", "the search ended by a gap, and none is stated")
    if p.stopped == "limit" and p.time_limit_seconds is not None and p.time_limit_seconds <= 0:
        yield broken("stopped", f"a limit of {show(p.time_limit_seconds)} s")
    if p.threads < 1:
        yield broken("stopped", f"{p.threads} threads < 1")


def pools_claims(c: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the layout of a pool claims no bound, as the shares' certificate does, and has its own days."""
    owned = {p.name: p.racks for p in c.instance.hardware.pools}
    for name, layout in c.plan.pools.layouts.items() if c.plan.pools is not None else ():
        x, rule = layout.certificate, f"pools_claims[{name}]"
        yield from must_be(rule, "status", x.status, "feasible")
        yield from must_be(rule, "bound", x.bound, None)
        yield from must_be(rule, "gap", x.gap, None)
        yield from must_be(rule, "space", x.space, {})
        yield from must_equal(rule, "objective, days by this pool", x.objective, layout.metrics.days_to_train)
        given = certificate.given_to_pool(owned.get(name), c.transport_slowdown)
        for key, text in (
            ("formulation", certificate.POOL_FORMULATION),
            ("minimizes", certificate.POOL_MINIMIZES),
            ("given", given),
        ):
            yield from must_be(rule, key, getattr(x, key), text)
        yield from must_be(rule, "solver", x.solver, certificate.POOLS_BRANCHING)
    yield from _shares_claims(c, owned)


def _shares_claims(c: PlanPhysics, owned: dict[str, int]) -> Iterator[certificate.Violation]:
    """Check the fields of the certificate of the shares: counts by the pools, formulation, objective and solver."""
    if c.plan.pools is None:
        return
    x, rule = c.plan.pools.certificate, "pools_claims"
    yield from must_be(rule, "pools searched", x.space.get("pools"), len(owned))
    yield from must_equal(rule, "variables, a share for each pool", x.variables, len(owned))
    yield from must_equal(rule, "constraints", x.constraints, len(owned) + 1)
    boxes, searches = x.space.get("boxes"), x.space.get("searches")
    yield from must_be(rule, "keys of the space", sorted(x.space), ["boxes", "ended", "pools", "searches"])
    if isinstance(boxes, int) and isinstance(searches, int):
        words = certificate.POOLS_FORMULATION.format(small=certificate.SMALL_BATCH, searches=searches, boxes=boxes)
        yield from must_be(rule, "formulation", x.formulation, words)
    yield from must_be(rule, "minimizes", x.minimizes, certificate.POOLS_MINIMIZES)
    yield from must_be(rule, "solver", x.solver, certificate.POOLS_BRANCHING)
    given = "; ".join(
        f"{name}: {certificate.given_to_pool(racks, c.transport_slowdown)}" for name, racks in owned.items()
    )
    yield from must_be(rule, "given", x.given, given)
    ended = x.space.get("ended")
    if ended not in ("proved", "limit", "interrupted") or (ended == "proved") != (c.plan.stopped in ("proved", "gap")):
        yield broken(rule, f"the shares ended by {ended}, the search by {c.plan.stopped}")


CLAIM_RULES: tuple[Rule, ...] = (
    one_run,
    joint_claims,
    solvers_named,
    marks,
    formulations,
    declared_space,
    stopped,
    pools_claims,
)
