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


def instance_hash(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan states the hash of the instance inside it."""
    yield from must_be(
        "instance_hash", "instance_sha256", physics.plan.instance_sha256, instance_sha256(physics.instance)
    )


def reason(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a plan without decisions says why, and that no other does."""
    plan = physics.plan
    if plan.status == "infeasible" and plan.conflict is None:
        yield broken("reason", "infeasible with 0 conflicts, 1 expected")
    if plan.status in ("infeasible", "unknown"):
        present = [section for section in (*DECISIONS, "cost", "run") if getattr(plan, section) is not None]
        if present or plan.objective.value is not None:
            sections = f"{len(present)} sections ({', '.join(present)})"
            yield broken(
                "reason", f"{plan.status}, yet {sections} and objective {show(plan.objective.value)} are there"
            )
    elif plan.conflict is not None:
        yield broken("reason", f"{plan.status}, yet there is 1 conflict: {plan.conflict.reason}")


def certificates(physics: PlanPhysics) -> dict[str, certificate.Certificate]:
    """Return the certificates by decision."""
    decisions = {name: getattr(physics.plan, name) for name in DECISIONS}
    return {name: decision.certificate for name, decision in decisions.items() if decision is not None}


def _distance(value: float, bound: float) -> float:
    return abs(value - bound) / max(abs(value), 1e-12)


def _gap(rule: str, value: float | None, bound: float | None, stated: float | None) -> Iterator[certificate.Violation]:
    """Check that a stated gap is that of value and bound; gaps below the tolerance are rounding."""
    found = None if value is None or bound is None else _distance(value, bound)
    if (found is None) != (stated is None) or (
        found is not None and stated is not None and abs(found - stated) > TOLERANCE * max(found, 1e-3)
    ):
        yield broken(rule, f"gap {show(stated)} stated, {show(found)} between {show(value)} and bound {show(bound)}")


def gap(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each gap is that of objective and bound."""
    for name, claim in certificates(physics).items():
        yield from _gap(f"gap[{name}]", claim.objective, claim.bound, claim.gap)


def bound_side(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each bound is below its objective, as every decision minimizes."""
    for name, claim in certificates(physics).items():
        if claim.objective is not None and claim.bound is not None:
            yield from at_most(
                f"bound_side[{name}]", float(claim.bound), float(claim.objective), "bound from below", "objective"
            )


def optimal(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that only a decision at its bound is called optimal."""
    allowed = max(TOLERANCE, physics.instance.objective.days_given_up)
    for name, claim in certificates(physics).items():
        if claim.status == "optimal" and (
            claim.objective is None or claim.bound is None or _distance(claim.objective, claim.bound) > allowed
        ):
            sides = f"objective {show(claim.objective)} and bound {show(claim.bound)}"
            yield broken(f"optimal[{name}]", f"{sides} are more than {allowed:g} apart")
        if claim.status not in ("optimal", "feasible"):
            yield broken(f"optimal[{name}]", f"there is a decision, its certificate says {claim.status}")


def certified(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that each certificate is about its decision: its objective is the figure that it names, recomputed.

    What is decided jointly is proven jointly: layout, fabric and placement state the value of the whole plan.
    """
    days = physics.metrics.days_to_train if physics.metrics else None
    joint = days if physics.instance.objective.minimize == "loss" else _value(physics)
    figures = {"sites": _capital_usd(physics), "layout": joint, "fabric": joint, "placement": joint}
    figures |= {"wan": sites.objective(physics), "pools": days_of_pools(physics)}
    for name, claim in certificates(physics).items():
        if figures[name] is not None:
            yield from must_equal(
                f"certified[{name}]", f"objective ({claim.minimizes})", claim.objective, figures[name]
            )


def _capital_usd(physics: PlanPhysics) -> float | None:
    """Recompute the objective of the sites in USD: the bill, or the cost of the whole run, and soft-rule penalties."""
    price = recomputed(physics.plan, physics)
    if price is None:
        return None
    in_all = (
        cost.total_usd(physics)
        if physics.instance.objective.minimize == "total_cost_of_ownership_usd"
        else price.total_usd
    )
    return (
        None
        if in_all is None
        else in_all + (sum(excess.usd_per_year for excess in physics.plan.sites.excess) if physics.plan.sites else 0.0)
    )


def _value(physics: PlanPhysics) -> float | None:
    price, days = (
        recomputed(physics.plan, physics),
        physics.metrics.days_to_train if physics.metrics else days_of_pools(physics),
    )
    figures = {"days_to_train": days, "cost_usd": price.total_usd if price else None, "loss": stated_loss(physics)}
    figures["frontier"] = figures["finish_date"] = days
    if days is not None:  # from the decision to the first of training: the latest of all that the plan puts to use
        waits = [physics.instance.hardware.ready_months]
        if physics.instance.grid is not None:
            grid = physics.grid
            waits += [place.node.ready_months for place in physics.standing]
            waits += [line.lead_months for line in grid.new_lines if line.id in physics.built]
            waits += [node.upgrade.lead_months for node in grid.nodes if node.upgrade and node.id in physics.steps]
        figures["finish_date"] = days + DAYS_A_MONTH * max(waits)
    whole = "total_cost_of_ownership_usd"
    return (
        cost.total_usd(physics)
        if physics.instance.objective.minimize == whole
        else figures[physics.instance.objective.minimize]
    )


def objective(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the objective is the one asked for, as recomputed, with no bound above it."""
    result, name, value = physics.plan.objective, physics.instance.objective.minimize, _value(physics)
    yield from must_be("objective", "name", result.name, name)
    if value is not None:
        yield from must_equal("objective", name, result.value, value)
    yield from _gap("objective", result.value, result.bound, result.gap)
    yield from _gap("objective[joint]", result.value, result.joint_bound, result.joint_gap)
    for which in ("bound", "joint_bound", "fabric_free_bound"):
        bound = getattr(result, which)
        if bound is not None and result.value is not None:
            yield from at_most("objective", bound, result.value, which, name)
    yield from _cheaper(physics)
    yield from _simplest(physics)
    yield from _freed(physics)
    yield from _ends(physics)
    decision = physics.plan.layout or physics.plan.pools
    proven = decision.certificate.bound if decision and name != "loss" else None
    if proven is not None and result.bound is not None:
        yield from at_most("objective", result.bound, proven, "bound", "proven by the certificate")


def _cheaper(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan named as cheaper is cheaper, almost as fast, and no faster than is possible."""
    objective, price = physics.plan.objective, recomputed(physics.plan, physics)
    cheaper, rule = objective.cheaper, "objective[cheaper]"
    if cheaper is None:
        return
    if objective.name != "days_to_train" or objective.value is None or price is None:
        yield broken(rule, f"a cheaper plan where {objective.name} is {show(objective.value)}, fewest days expected")
        return
    share = f"days, {1 + certificate.ALMOST_AS_FAST:g} times the plan's"
    yield from at_most(
        rule,
        cheaper.days_to_train,
        objective.value * (1 + certificate.ALMOST_AS_FAST),
        "days of the cheaper plan",
        share,
    )
    if objective.bound is not None:
        yield from at_most(rule, objective.bound, cheaper.days_to_train, "days, the bound", "days of the cheaper plan")
    if cheaper.capital_usd >= price.total_usd:
        yield broken(
            rule, f"{show(cheaper.capital_usd)} USD of the cheaper plan >= {show(price.total_usd)} USD of the plan"
        )


def _simplest(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan named as simpler is within 2 % of the fewest days, no dearer, and has all layers."""
    simplest, rule = physics.plan.objective.simplest, "objective[simplest]"
    if simplest is None:
        return
    fewest_days = physics.plan.objective.ends[0].value if physics.plan.objective.ends else physics.plan.objective.value
    if physics.instance.objective.minimize != "days_to_train" or not fewest_days:
        yield broken(rule, f"a simpler plan where the goal is {physics.plan.objective.name}, fewest days expected")
        return
    yield from must_equal(rule, "loss", simplest.loss, simplest.days_to_train / fewest_days - 1)
    most = fewest_days * (1 + certificate.SIMPLER_WITHIN)
    yield from at_most(
        rule, simplest.days_to_train, most, "days", f"days, {1 + certificate.SIMPLER_WITHIN:g} times the fewest"
    )
    deadline = physics.instance.limits.deadline_days
    if deadline is not None:
        yield from at_most(rule, simplest.days_to_train, deadline, "days", "days, the deadline")
    usd = _capital_usd(physics)
    if usd is not None:
        yield from at_most(rule, simplest.capital_usd, usd, "USD", "USD of the plan")
    model = physics.instance.workload.model
    if not isinstance(model, str):
        yield from must_equal(rule, "layers of all stages", sum(simplest.layers_per_stage), model.layers)
        yield from at_most(rule, simplest.recomputed_layers, model.layers, "recomputed layers", "layers")


def _freed(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a framework binds the layers of stages, and that without it they fit and are faster as is said."""
    freed, rule, layout = physics.plan.objective.freed, "objective[freed]", physics.plan.layout
    if freed is None:
        return
    yield from must_be(rule, "framework", freed.framework, physics.instance.workload.rules.framework or "none")
    if layout is None or physics.metrics is None:
        yield broken(rule, "a layout without rules where the plan has no layout")
        return
    own = {key: getattr(freed, key) for key in ("layers_per_stage", "recompute", "recomputed_layers_per_stage")}
    of = PlanPhysics(plan=physics.plan.model_copy(update={"layout": layout.model_copy(update=own)}))
    if of.metrics is None:
        yield broken(rule, f"{len(freed.layers_per_stage)} stages that no step can be timed of")
        return
    yield from must_equal(rule, "faster", freed.faster, physics.metrics.step_seconds / of.metrics.step_seconds - 1)
    used, limit = of.metrics.memory_bytes_per_gpu, of.metrics.memory_limit_bytes
    yield from at_most(rule, used, limit, "bytes on the worst GPU", "bytes that may be filled")
    model = physics.instance.workload.model
    if not isinstance(model, str):
        yield from must_equal(rule, "layers of all stages", sum(freed.layers_per_stage), model.layers)


def _ends(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the ends keep within the tolerance of the ones before, and that the last one left the plan."""
    objective, rule, share = physics.plan.objective, "objective[ends]", physics.instance.objective.tolerance
    if not objective.ends or objective.value is None:
        return
    names = [end.name for end in objective.ends]
    if names != [name for name in ("goal", "capital", "leaf_local", "simplest") if name in names] or names[0] != "goal":
        yield broken(rule, f"{', '.join(names)} in an order of its own")
        return
    goal, last = objective.ends[0], objective.ends[-1]
    yield from must_equal(rule, "days of the last end", last.days_to_train, objective.value)
    yield from must_equal(rule, "capital of the last end", last.capital_usd, _capital_usd(physics))
    yield from must_equal(rule, "the goal", goal.value, goal.days_to_train)
    for end in objective.ends:
        if end.name == "capital":
            yield from must_equal(rule, "the capital", end.value, end.capital_usd)
            yield from at_most(
                rule, end.capital_usd, goal.capital_usd, "USD of the cheapest", "USD of the fastest plan"
            )
        if end.name == "simplest" and physics.plan.layout is not None:
            layout = physics.plan.layout
            degrees = (*layout.degrees, layout.pipeline_parallel, layout.data_parallel)
            yield from must_equal(rule, "kinds of parallelism", end.value, sum(degree > 1 for degree in degrees))
    budget = physics.instance.limits.budget_usd
    if budget is not None:
        yield from at_most(rule, goal.capital_usd, budget, "USD of the fastest plan", "USD of the budget")
    if objective.bound is not None:
        yield from at_most(rule, objective.bound, goal.value, "days, the bound", "days of the fastest plan")
    for end in objective.ends:
        own = max(share, physics.instance.objective.indifference) if end.name == "simplest" else share
        most = f"days, {1 + own:g} times the fewest"
        yield from at_most(rule, end.days_to_train, goal.value * (1 + own), f"days of {end.name}", most)
        if end.name in ("leaf_local", "simplest"):
            usd = next(end.capital_usd for end in objective.ends if end.name == "capital")
            yield from at_most(
                rule, end.capital_usd, usd * (1 + share), f"USD of {end.name}", f"{1 + share:g} of least USD"
            )
    local = next((end for end in objective.ends if end.name == "leaf_local"), None)
    if local is not None and physics.instance.objective.indifference <= share and physics.plan.placement is not None:
        placement = physics.plan.placement
        shares = []
        for site in placement.sites.values() if placement else ():
            leaves: dict[int, set[int]] = {}
            for piece in site.assignment:
                leaves.setdefault(piece.stage, set()).add(piece.leaf_domain)
            shares.append(sum(len(leaf) == 1 for leaf in leaves.values()) / len(leaves) if leaves else 1.0)
        yield from must_equal(rule, "share of groups under one leaf", local.value, min(shares, default=1.0))


def status(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the plan is called optimal only at its bound, with every certificate, and by proof."""
    objective, asked, choose = physics.plan.objective, physics.instance.objective, physics.instance.workload.choose
    # A loss is proven within the bracket of its compute, by less than which it falls.
    bracket = choose.tolerance if choose is not None and asked.minimize == "loss" else 0.0
    allowed = max(TOLERANCE, asked.days_given_up, bracket)
    apart = objective.value is None or objective.bound is None or _distance(objective.value, objective.bound) > allowed
    if physics.plan.status == "optimal" and apart:
        sides = f"value {show(objective.value)} and bound {show(objective.bound)}"
        yield broken("status", f"optimal, yet {sides} are more than {allowed:g} apart")
    weaker = [name for name, certificate in certificates(physics).items() if certificate.status != "optimal"]
    if physics.plan.status == "optimal" and (weaker or physics.plan.stopped != "proved"):
        others = f"{len(weaker)} certificates are not ({', '.join(weaker)})"
        yield broken("status", f"optimal, yet {others}; the search ended by {physics.plan.stopped}")


WITHOUT_PLAN: tuple[Rule, ...] = (instance_hash, reason)
RULES: tuple[Rule, ...] = (instance_hash, reason, gap, bound_side, optimal, certified, objective, status)


SHARED = ("status", "bound", "gap", "objective", "formulation", "minimizes", "given", "seed")  # alike in `JOINT`
AGREED = (certificate.CONFIRMED, certificate.BOUNDED, certificate.ON_TRUST)
JOINT = ("layout", "fabric", "placement")
HOW = {
    "sites": (certificate.SITES_FORMULATION, (certificate.SITES_MINIMIZES, certificate.SITES_RUN_MINIMIZES)),
    "wan": (certificate.WAN_FORMULATION, (LEAST_CAPITAL, certificate.LEAST_YEARLY, certificate.UNPRICED)),
}


def _certificates(physics: PlanPhysics) -> dict[str, certificate.Certificate]:
    sections = ("sites", "wan", "layout", "pools", "fabric", "placement")
    found = {name: decision.certificate for name in sections if (decision := getattr(physics.plan, name)) is not None}
    layouts = physics.plan.pools.layouts if physics.plan.pools is not None else {}
    return found | {f"pools.layouts.{name}": layout.certificate for name, layout in layouts.items()}


def one_run(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that certificates have the plan's seed, sizes and seconds that a run may have, and gaps of their own."""
    for name, claim in _certificates(physics).items():
        yield from must_equal(f"one_run[{name}]", "seed against the plan's", claim.seed, physics.plan.seed)
        if not (
            math.isfinite(claim.seconds) and claim.seconds >= 0 and claim.variables >= 0 and claim.constraints >= 0
        ):
            sizes = (
                f"{show(claim.seconds)} s, {show(claim.variables)} variables and {show(claim.constraints)} constraints"
            )
            yield broken(f"one_run[{name}]", f"{sizes} are below 0")


def joint_claims(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that layout, fabric and placement, which are proven together, claim the same, and how."""
    plan, name = physics.plan, physics.instance.objective.minimize
    layout = plan.layout
    if layout is None:
        return
    first, counts = layout.certificate, plan.proof.counts if plan.proof is not None else None
    for section in JOINT[1:]:
        decision = getattr(plan, section)
        for key in SHARED if decision is not None else ():
            stated, wanted = getattr(decision.certificate, key), getattr(first, key)
            if not (same(stated, wanted) if isinstance(wanted, float) else stated == wanted):
                yield broken(f"joint_claims[{section}]", f"{key} {show(stated)}, {show(wanted)} in the layout's")
        if decision is not None:
            yield from must_equal(f"joint_claims[{section}]", "seconds", decision.certificate.seconds, first.seconds)
            yield from _sizes(physics, section, decision.certificate)
        if decision is not None and decision.certificate.bound is not None:
            yield from must_be(
                f"joint_claims[{section}]", "space of a section other than the layout", decision.certificate.space, {}
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


def _sizes(physics: PlanPhysics, section: str, claim: certificate.Certificate) -> Iterator[certificate.Violation]:
    """Check that variables and constraints are those of the MILP over sites, none of a cluster without sites."""
    sites = physics.plan.sites.certificate if physics.plan.sites is not None else None
    for key in ("variables", "constraints"):
        wanted = getattr(sites, key) if sites is not None else 0
        yield from must_equal(f"joint_claims[{section}]", f"{key} of the MILP over sites", getattr(claim, key), wanted)


def solvers_named(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a bound names who found it."""
    plan, grid = physics.plan, physics.instance.grid is not None
    branching = certificate.GRID_BRANCHING if grid else certificate.BRANCHING
    for name in JOINT:
        section = getattr(plan, name)
        claim = section.certificate if section is not None else None
        if claim is None or claim.bound is None:
            continue
        parts = claim.solver.split("; ")
        if name == "layout" and len(parts) == branching.count("; ") + 1:
            yield from _sizes(physics, name, claim)
        head = "; ".join(parts[: branching.count("; ") + 1])
        rest = parts[branching.count("; ") + 1 :]
        if head != branching or (rest and not (name == "layout" and rest == [certificate.LISTED])):
            yield broken(f"solvers_named[{name}]", f"{claim.solver!r} stated, {branching!r} expected")
    if plan.sites is not None and plan.sites.certificate.bound is not None:
        yield from _by_highs("sites", plan.sites.certificate)
    if plan.wan is not None and plan.wan.certificate.bound is not None:
        yield from _by_highs("wan", plan.wan.certificate)


def _by_highs(name: str, claim: certificate.Certificate) -> Iterator[certificate.Violation]:
    """Check that a bound is by HiGHS through Pyomo, each with its version."""
    if not re.fullmatch(r"HiGHS [\d.]+ through Pyomo [\d.]+", claim.solver):
        yield broken(f"solvers_named[{name}]", f"{claim.solver!r} stated, HiGHS expected")


def marks(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a certificate states how its bound is confirmed: by this check, by another solver, or on trust."""
    columns = len(physics.plan.proof.columns) if physics.plan.proof is not None else 0
    joint = certificate.joint_mark(
        physics.instance.objective.minimize, grid=physics.instance.grid is not None, columns=columns
    )
    for name, claim in _certificates(physics).items():
        expected = (joint,) if name in JOINT else AGREED if name in HOW else (certificate.ON_TRUST,)
        if name.startswith("pools.layouts.") or claim.bound is None:
            expected = ("",)
        if claim.checked not in ("", *expected):
            wanted = " or ".join(repr(mark) for mark in expected)
            yield broken(f"marks[{name}]", f"the bound is stated to be {claim.checked!r}, {wanted} expected")


def formulations(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a bound on sites or fibre names its objective, its formulation and the choices that it is given."""
    for name, (formulation, minimizes) in HOW.items():
        section = getattr(physics.plan, name)
        if section is None or section.certificate.bound is None:
            continue
        rule = f"formulations[{name}]"
        yield from must_be(rule, "formulation", section.certificate.formulation, formulation)
        if section.certificate.minimizes not in minimizes:
            yield broken(rule, f"minimizes {section.certificate.minimizes!r}, one of {', '.join(minimizes)} expected")
    layout, sites = physics.plan.layout, physics.plan.sites
    if layout is None or sites is None or sites.certificate.bound is None:
        return
    gbps = layout.assumptions.wan_gbps
    waves = 0 if gbps is None else round(gbps * physics.wan.headroom_factor / physics.wan.wavelength_gbps)
    degrees = (*layout.degrees[:2], layout.pipeline_parallel, layout.data_parallel)
    yield from must_be(
        "formulations[sites]", "given", sites.certificate.given, certificate.given_to_sites(*degrees, waves)
    )


def declared_space(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a joint bound is of the declared space, which is the one that the columns are enumerated in."""
    objective = physics.plan.objective
    joint = physics.plan.layout is not None and objective.name in certificate.UNITS
    if joint and objective.bound is not None:
        yield from must_be(
            "declared_space", "space", objective.space, certificate.declared_space(physics.instance.workload.rules)
        )
        yield from must_be("declared_space", "outside", objective.outside, certificate.OUTSIDE)
    if not joint:
        yield from must_be("declared_space", "space of what is not decided jointly", objective.space, "")
        yield from must_be("declared_space", "outside of what is not decided jointly", objective.outside, "")
    if not joint or objective.name != "days_to_train":
        yield from must_be("declared_space", "fabric_free_bound without a proof", objective.fabric_free_bound, None)


def stopped(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that a run ended by proof where the plan is proven, and only there."""
    plan = physics.plan
    if plan.stopped == "proved" and plan.status not in ("optimal", "infeasible"):
        yield broken("stopped", f"the search ended by proof, yet the plan is {plan.status}")
    if plan.stopped == "gap" and plan.objective.gap is None:
        yield broken("stopped", "the search ended by a gap, and none is stated")
    if plan.stopped == "limit" and plan.time_limit_seconds is not None and plan.time_limit_seconds <= 0:
        yield broken("stopped", f"a limit of {show(plan.time_limit_seconds)} s")
    if plan.threads < 1:
        yield broken("stopped", f"{plan.threads} threads < 1")


def pools_claims(physics: PlanPhysics) -> Iterator[certificate.Violation]:
    """Check that the layout of a pool claims no bound, as the shares' certificate does, and has its own days."""
    owned = {pool.name: pool.racks for pool in physics.instance.hardware.pools}
    for name, layout in physics.plan.pools.layouts.items() if physics.plan.pools is not None else ():
        claim, rule = layout.certificate, f"pools_claims[{name}]"
        yield from must_be(rule, "status", claim.status, "feasible")
        yield from must_be(rule, "bound", claim.bound, None)
        yield from must_be(rule, "gap", claim.gap, None)
        yield from must_be(rule, "space", claim.space, {})
        yield from must_equal(rule, "objective, days by this pool", claim.objective, layout.metrics.days_to_train)
        given = certificate.given_to_pool(owned.get(name), physics.transport_slowdown)
        for key, text in (
            ("formulation", certificate.POOL_FORMULATION),
            ("minimizes", certificate.POOL_MINIMIZES),
            ("given", given),
        ):
            yield from must_be(rule, key, getattr(claim, key), text)
        yield from must_be(rule, "solver", claim.solver, certificate.POOLS_BRANCHING)
    yield from _shares_claims(physics, owned)


def _shares_claims(physics: PlanPhysics, owned: dict[str, int]) -> Iterator[certificate.Violation]:
    """Check the fields of the certificate of the shares: counts by the pools, formulation, objective and solver."""
    if physics.plan.pools is None:
        return
    claim, rule = physics.plan.pools.certificate, "pools_claims"
    yield from must_be(rule, "pools searched", claim.space.get("pools"), len(owned))
    yield from must_equal(rule, "variables, a share for each pool", claim.variables, len(owned))
    yield from must_equal(rule, "constraints", claim.constraints, len(owned) + 1)
    boxes, searches = claim.space.get("boxes"), claim.space.get("searches")
    yield from must_be(rule, "keys of the space", sorted(claim.space), ["boxes", "ended", "pools", "searches"])
    if isinstance(boxes, int) and isinstance(searches, int):
        words = certificate.POOLS_FORMULATION.format(small=certificate.SMALL_BATCH, searches=searches, boxes=boxes)
        yield from must_be(rule, "formulation", claim.formulation, words)
    yield from must_be(rule, "minimizes", claim.minimizes, certificate.POOLS_MINIMIZES)
    yield from must_be(rule, "solver", claim.solver, certificate.POOLS_BRANCHING)
    given = "; ".join(
        f"{name}: {certificate.given_to_pool(racks, physics.transport_slowdown)}" for name, racks in owned.items()
    )
    yield from must_be(rule, "given", claim.given, given)
    ended = claim.space.get("ended")
    if ended not in ("proved", "limit", "interrupted") or (ended == "proved") != (
        physics.plan.stopped in ("proved", "gap")
    ):
        yield broken(rule, f"the shares ended by {ended}, the search by {physics.plan.stopped}")


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
