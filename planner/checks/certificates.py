"""Rules of certificates: each is about the plan's own decision, with its bound on the right side of the objective."""

import math
import re
from collections.abc import Iterator
from typing import Any

from planner.checks import cost_and_curve, sites
from planner.checks.layout import days as days_of_pools
from planner.checks.layout import stated_loss
from planner.checks.rule import TOLERANCE, Violations, at_most, broken, must_be, must_equal, needs, once, same, show
from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import instance_sha256
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.step_prediction import machine_of
from planner.plan import certificate
from planner.plan.certificate import Certificate, CheaperPlan, FreedLayout, SimplerPlan
from planner.plan.plan import Plan
from planner.plan.plan_sections import LEAST_CAPITAL, PoolsPlan

DECISIONS = ("sites", "wan", "layout", "pools", "fabric", "placement")
JOINT = ("layout", "fabric", "placement")
Claim = tuple[str, Certificate, dict[str, tuple[Any, ...]]]  # rule, certificate, and what its fields may say
ALIKE = ("status", "bound", "gap", "objective", "formulation", "minimizes", "given", "seed", "seconds")  # in `JOINT`
AGREED = (certificate.CONFIRMED, certificate.BOUNDED, certificate.ON_TRUST)
BY_MILP = {  # what each formulates, and what it may minimize
    "sites": (certificate.SITES_FORMULATION, (certificate.SITES_MINIMIZES, certificate.SITES_RUN_MINIMIZES)),
    "wan": (certificate.WAN_FORMULATION, (LEAST_CAPITAL, certificate.UNPRICED)),
}


def reason(physics: PlanPhysics) -> Violations:
    """Check that a plan without decisions gives its reason as a conflict, and that no other plan does."""
    plan = physics.plan
    if plan.status == "infeasible" and plan.conflict is None:
        yield broken("reason", "infeasible with 0 conflicts, 1 expected")
    if plan.status in ("infeasible", "unknown"):
        present = [section for section in (*DECISIONS, "cost", "run") if getattr(plan, section) is not None]
        if present or plan.objective.value is not None:
            there = f"{len(present)} sections ({', '.join(present)}) and objective {show(plan.objective.value)}"
            yield broken("reason", f"{plan.status}, yet {there} are there")
    elif plan.conflict is not None:
        yield broken("reason", f"{plan.status}, yet there is 1 conflict: {plan.conflict.reason}")


def certificates(plan: Plan) -> dict[str, Certificate]:
    """Return the certificates of a plan that are checked, by decision, those of the pools' layouts included."""
    decisions = {name: getattr(plan, name) for name in DECISIONS}
    if plan.pools is not None:
        decisions |= {f"pools.layouts.{name}": layout for name, layout in plan.pools.layouts.items()}
    return {name: decision.certificate for name, decision in decisions.items() if decision is not None}


def distance(value: float | None, bound: float | None) -> float | None:
    """Recompute the gap of a certificate: from value to bound, over the value; None without either."""
    return None if value is None or bound is None else abs(value - bound) / max(abs(value), 1e-12)


def _gap(rule: str, value: float | None, bound: float | None, stated: float | None) -> Violations:
    """Check that the gap a certificate states is that of its value and bound; gaps below the tolerance are rounding."""
    found = distance(value, bound)
    fine = found is stated if found is None or stated is None else abs(found - stated) <= TOLERANCE * max(found, 1e-3)
    if not fine:
        yield broken(rule, f"gap {show(stated)} stated, {show(found)} between {show(value)} and bound {show(bound)}")


def _apart(rule: str, value: float | None, bound: float | None, allowed: float, called: str) -> Violations:
    """Check that a certificate's value is as near to its bound as one that is called optimal has to be."""
    gap = distance(value, bound)
    if gap is None or gap > allowed:
        yield broken(rule, f"{called} {show(value)} and bound {show(bound)} are more than {allowed:g} apart")


def each_certificate(physics: PlanPhysics) -> Violations:
    """Check each certificate's gap, bound, status, seed and size, and that its objective is the one recomputed."""
    allowed = max(TOLERANCE, physics.instance.objective.days_given_up)
    days = physics.metrics.days_to_train if physics.metrics else None
    # What is decided jointly is proven jointly: layout, fabric and placement state the value of the whole plan.
    values = dict.fromkeys(JOINT, days if physics.instance.objective.minimize == "loss" else _value(physics))
    values |= {"sites": _capital_usd(physics), "wan": sites.objective(physics), "pools": days_of_pools(physics)}
    for name, claim in certificates(physics.plan).items():
        yield from _gap(f"gap[{name}]", claim.objective, claim.bound, claim.gap)
        yield from at_most(f"bound_side[{name}]", claim.bound, claim.objective, "bound from below", "objective")
        if claim.status == "optimal":
            yield from _apart(f"optimal[{name}]", claim.objective, claim.bound, allowed, "objective")
        elif claim.status != "feasible":
            yield broken(f"optimal[{name}]", f"there is a decision, its certificate says {claim.status}")
        if values.get(name) is not None:
            yield from must_equal(f"certified[{name}]", f"objective ({claim.minimizes})", claim.objective, values[name])
        yield from must_equal(f"one_run[{name}]", "seed against the plan's", claim.seed, physics.plan.seed)
        sizes = claim.seconds, claim.variables, claim.constraints
        if not (math.isfinite(claim.seconds) and min(sizes) >= 0):
            yield broken(f"one_run[{name}]", "{} s, {} variables and {} constraints are below 0".format(*sizes))


def _capital_usd(physics: PlanPhysics) -> float | None:
    """Recompute the objective of the sites' certificate in USD: bill or cost of the run, and soft-rule penalties."""
    price, split = cost_and_curve.recomputed(physics), physics.plan.sites
    if price is None:
        return None
    by_run = physics.instance.objective.minimize == cost_and_curve.TCO
    in_all = getattr(cost_and_curve.run_of(physics), cost_and_curve.TCO, None) if by_run else price.total_usd
    return None if in_all is None else in_all + (split.excess_usd if split else 0.0)


def _value(physics: PlanPhysics) -> float | None:
    goal = physics.instance.objective.minimize
    if goal in (cost_and_curve.TCO, "cost_usd"):
        return _capital_usd(physics)
    if goal == "loss":
        return stated_loss(physics)
    days = physics.metrics.days_to_train if physics.metrics else days_of_pools(physics)
    if goal == "finish_date" and days is not None:
        # From the decision to the first of training: the latest of all that the plan puts to use.
        months = [months for _, __, months in sites.waits(physics)]
        days += DAYS_A_MONTH * max([physics.instance.hardware.ready_months, *months])
    return days


def objective(physics: PlanPhysics) -> Violations:
    """Check that the plan's objective is the one asked for, as recomputed, with no bound above it."""
    result, name, value = physics.plan.objective, physics.instance.objective.minimize, _value(physics)
    decision = physics.plan.layout or physics.plan.pools
    yield from must_be("objective", "name", result.name, name)
    if value is not None:
        yield from must_equal("objective", name, result.value, value)
    yield from _gap("objective", result.value, result.bound, result.gap)
    yield from _gap("objective[joint]", result.value, result.joint_bound, result.joint_gap)
    for which in ("bound", "joint_bound", "fabric_free_bound"):
        yield from at_most("objective", getattr(result, which), result.value, which, name)
    if decision and name != "loss":
        yield from at_most("objective", result.bound, decision.certificate.bound, "bound", "proven by the certificate")


@needs("cheaper")
def cheaper(physics: PlanPhysics, cheaper: CheaperPlan) -> Violations:
    """Check that the cheaper plan that the objective names costs less, is almost as fast, and breaks no bound."""
    result, usd, rule = physics.plan.objective, _capital_usd(physics), "objective[cheaper]"
    if result.name != "days_to_train" or result.value is None or usd is None:
        yield broken(rule, f"a cheaper plan where {result.name} is {show(result.value)}, fewest days expected")
        return
    days, share, own = cheaper.days_to_train, 1 + certificate.ALMOST_AS_FAST, "days of the cheaper plan"
    yield from at_most(rule, days, result.value * share, own, f"days, {share:g} times the plan's")
    yield from at_most(rule, result.bound, days, "days, the bound", own)
    if cheaper.capital_usd >= usd:
        yield broken(rule, f"{show(cheaper.capital_usd)} USD of the cheaper plan >= {show(usd)} USD of the plan")


@needs("simplest")
def simplest(physics: PlanPhysics, simpler: SimplerPlan) -> Violations:
    """Check that the simpler plan that the objective names is within 2 % of the fewest days and no dearer."""
    result, rule = physics.plan.objective, "objective[simplest]"
    fewest_days = result.ends[0].value if result.ends else result.value
    if physics.instance.objective.minimize != "days_to_train" or not fewest_days:
        yield broken(rule, f"a simpler plan where the goal is {result.name}, fewest days expected")
        return
    share, days = 1 + certificate.SIMPLER_WITHIN, simpler.days_to_train
    yield from must_equal(rule, "loss", simpler.loss, days / fewest_days - 1)
    yield from at_most(rule, days, fewest_days * share, "days", f"days, {share:g} times the fewest")
    yield from at_most(rule, days, physics.instance.limits.deadline_days, "days", "days, the deadline")
    yield from at_most(rule, simpler.capital_usd, _capital_usd(physics), "USD", "USD of the plan")
    layers = machine_of(physics.instance).model.layers
    yield from must_equal(rule, "layers of all stages", sum(simpler.layers_per_stage), layers)
    yield from at_most(rule, simpler.recomputed_layers, layers, "recomputed layers", "layers")


@needs("freed")
def freed(physics: PlanPhysics, free: FreedLayout) -> Violations:
    """Check that the framework's rules bind the layers of stages, and how much faster the plan is without them."""
    rule, layout = "objective[freed]", physics.plan.layout
    yield from must_be(rule, "framework", free.framework, physics.instance.workload.rules.framework or "none")
    if layout is None or physics.metrics is None:
        yield broken(rule, "a layout without rules where the plan has no layout")
        return
    own = {key: getattr(free, key) for key in ("layers_per_stage", "recompute", "recomputed_layers_per_stage")}
    found = PlanPhysics(plan=physics.plan.replaced(layout=layout.replaced(**own))).metrics
    if found is None:
        yield broken(rule, f"{len(free.layers_per_stage)} stages that no step can be timed of")
        return
    yield from must_equal(rule, "faster", free.faster, physics.metrics.step_seconds / found.step_seconds - 1)
    used, limit = found.memory_bytes_per_gpu, found.memory_limit_bytes
    yield from at_most(rule, used, limit, "bytes on the worst GPU", "bytes that may be filled")
    layers = machine_of(physics.instance).model.layers
    yield from must_equal(rule, "layers of all stages", sum(free.layers_per_stage), layers)


def ends(physics: PlanPhysics) -> Violations:
    """Check that each end of a plan's choice (capital, leaf, simplicity) keeps the tolerance; the last is the plan."""
    result, asked, rule = physics.plan.objective, physics.instance.objective, "objective[ends]"
    if not result.ends or result.value is None:
        return
    by_name = {end.name: end for end in result.ends}
    order = [name for name in ("goal", "capital", "leaf_local", "simplest") if name in by_name]
    if [end.name for end in result.ends] != order or order[0] != "goal":
        yield broken(rule, f"{', '.join(end.name for end in result.ends)} in an order of its own")
        return
    goal, last, layout = by_name["goal"], result.ends[-1], physics.plan.layout
    yield from must_equal(rule, "days of the last end", last.days_to_train, result.value)
    yield from must_equal(rule, "capital of the last end", last.capital_usd, _capital_usd(physics))
    yield from must_equal(rule, "the goal", goal.value, goal.days_to_train)
    budget, fastest = physics.instance.limits.budget_usd, "USD of the fastest plan"
    yield from at_most(rule, goal.capital_usd, budget, fastest, "USD of the budget")
    yield from at_most(rule, result.bound, goal.value, "days, the bound", "days of the fastest plan")
    for name, end in by_name.items():
        share = 1 + (max(asked.tolerance, asked.indifference) if name == "simplest" else asked.tolerance)
        sides = f"days of {name}", f"days, {share:g} times the fewest"
        yield from at_most(rule, end.days_to_train, goal.value * share, *sides)
    if "capital" in by_name:
        usd, share = by_name["capital"].capital_usd, 1 + asked.tolerance
        yield from must_equal(rule, "the capital", by_name["capital"].value, usd)
        yield from at_most(rule, usd, goal.capital_usd, "USD of the cheapest", fastest)
        for name in order[2:]:
            dearest = usd * share
            yield from at_most(rule, by_name[name].capital_usd, dearest, f"USD of {name}", f"{share:g} of least USD")
    if "simplest" in by_name and layout is not None:
        kinds = sum(degree > 1 for degree in (*layout.degrees, layout.pipeline_parallel, layout.data_parallel))
        yield from must_equal(rule, "kinds of parallelism", by_name["simplest"].value, kinds)
    placement = physics.plan.placement
    if "leaf_local" in by_name and asked.indifference <= asked.tolerance and placement is not None:
        shares = []  # by site, of pipeline stages whose racks are all under one leaf
        for site in placement.sites.values():
            leaves: dict[int, set[int]] = {}
            for piece in site.assignment:
                leaves.setdefault(piece.stage, set()).add(piece.leaf_domain)
            shares.append(sum(len(leaf) == 1 for leaf in leaves.values()) / len(leaves) if leaves else 1.0)
        least = min(shares, default=1.0)
        yield from must_equal(rule, "share of groups under one leaf", by_name["leaf_local"].value, least)


def status(physics: PlanPhysics) -> Violations:
    """Check that a plan is called optimal only at its bound, with every certificate, and by proof."""
    plan, asked, choose = physics.plan, physics.instance.objective, physics.instance.workload.choose
    if plan.status != "optimal":
        return
    # A loss is proven within the bracket of its compute, by less than which it falls.
    bracket = choose.tolerance if choose is not None and asked.minimize == "loss" else asked.days_given_up
    allowed = max(TOLERANCE, bracket)
    yield from _apart("status", plan.objective.value, plan.objective.bound, allowed, "optimal, yet value")
    claims = certificates(plan)
    weaker = [name for name in DECISIONS if name in claims and claims[name].status != "optimal"]
    if weaker or plan.stopped != "proved":
        others = f"{len(weaker)} certificates are not ({', '.join(weaker)})"
        yield broken("status", f"optimal, yet {others}; the search ended by {plan.stopped}")


def claims(physics: PlanPhysics) -> Violations:
    """Check each certificate's claims: who proved its bound, of which question, how it was confirmed or on trust."""
    every, layout, stated = list(_of_joint(physics)), physics.plan.layout, certificates(physics.plan)
    # What those of sites and fibre may claim: HiGHS through Pyomo, and the formulation.
    for name in (name for name in BY_MILP if name in stated and stated[name].bound is not None):
        claim, (formulation, goals) = stated[name], BY_MILP[name]
        own: dict[str, tuple[Any, ...]] = {"formulation": (formulation,), "minimizes": goals}
        if not re.fullmatch(r"HiGHS [\d.]+ through Pyomo [\d.]+", claim.solver):
            own["solver"] = ("HiGHS and Pyomo, each with its version",)
        if name == "sites" and layout is not None:
            gbps, net = layout.assumptions.wan_gbps, physics.wan
            waves = 0 if gbps is None else round(gbps * net.headroom_factor / net.wavelength_gbps)
            column = (*layout.degrees[:2], layout.pipeline_parallel, layout.data_parallel)
            own["given"] = (certificate.given_to_sites(*column, waves),)
        every.append((f"formulations[{name}]", claim, own))
    every += _of_pools(physics)
    columns = len(physics.plan.proof.columns) if physics.plan.proof is not None else 0
    goal, grid = physics.instance.objective.minimize, physics.instance.grid is not None
    joint = certificate.joint_mark(goal, grid=grid, columns=columns)
    for name, claim in stated.items():
        marks = (joint,) if name in JOINT else AGREED if name in BY_MILP else (certificate.ON_TRUST,)
        unmarked = claim.bound is None or name not in DECISIONS
        every.append((f"marks[{name}]", claim, {"checked": ("",) if unmarked else ("", *marks)}))
    for rule, claim, allowed in every:
        for name, values in allowed.items():
            own_words = getattr(claim, name)
            if not any(same(own_words, value) for value in values):
                yield broken(rule, f"{name} {show(own_words)!r} stated, {' or '.join(map(show, values))} expected")


def _of_joint(physics: PlanPhysics) -> Iterator[Claim]:
    """Yield what the certificates of layout, fabric and placement, proven jointly, may claim; sizes are the MILP's."""
    plan, stated = physics.plan, certificates(physics.plan)
    if plan.layout is None:
        return
    first, milp = stated["layout"], stated.get("sites")
    branching = certificate.BRANCHING if physics.instance.grid is None else certificate.GRID_BRANCHING
    sizes = {name: (getattr(milp, name, 0),) for name in ("variables", "constraints")}
    for section in (name for name in JOINT[1:] if name in stated):
        alike = {name: (getattr(first, name),) for name in ALIKE} | sizes
        own = {"space": ({},), "solver": (branching,)} if stated[section].bound is not None else {}
        yield f"joint_claims[{section}]", stated[section], alike | own
    if first.bound is None:
        return
    # Where the loss is to be least, the layout is the fastest of its model.
    unit = certificate.UNITS.get(physics.instance.objective.minimize, certificate.UNITS["days_to_train"])
    allowed: dict[str, tuple[Any, ...]] = {"formulation": (certificate.FORMULATION,), "minimizes": (unit,)}
    allowed |= {"given": ("",), "solver": (branching, f"{branching}; {certificate.LISTED}")}
    allowed |= {"space": (plan.proof.counts,)} if plan.proof is not None else {}
    yield "joint_claims[layout]", first, allowed | (sizes if first.solver == branching else {})


def _of_pools(physics: PlanPhysics) -> Iterator[Claim]:
    """Yield what the certificates of pools may claim: each pool's layout no bound, which the shares' one has."""
    pools, phi = physics.plan.pools, physics.transport_slowdown
    if pools is None:
        return
    owned = {pool.name: pool.racks for pool in physics.instance.hardware.pools}
    for name, layout in pools.layouts.items():
        words = certificate.POOL_FORMULATION, certificate.POOL_MINIMIZES
        yield f"pools_claims[{name}]", layout.certificate, {
            "status": ("feasible",), "bound": (None,), "gap": (None,), "space": ({},),
            "objective": (layout.metrics.days_to_train,), "formulation": words[:1], "minimizes": words[1:],
            "given": (certificate.given_to_pool(owned.get(name), phi),), "solver": (certificate.POOLS_BRANCHING,),
        }  # fmt: skip
    given = "; ".join(f"{name}: {certificate.given_to_pool(racks, phi)}" for name, racks in owned.items())
    allowed: dict[str, tuple[Any, ...]] = {"variables": (len(owned),), "constraints": (len(owned) + 1,)}  # a share each
    allowed |= {"minimizes": (certificate.POOLS_MINIMIZES,), "solver": (certificate.POOLS_BRANCHING,)}
    counts = {name: pools.certificate.space.get(name) for name in ("searches", "boxes")}
    if all(isinstance(count, int) for count in counts.values()):
        allowed["formulation"] = (certificate.POOLS_FORMULATION.format(small=certificate.SMALL_BATCH, **counts),)
    yield "pools_claims", pools.certificate, allowed | {"given": (given,)}


@needs("pools")
def shares_space(physics: PlanPhysics, pools: PoolsPlan) -> Violations:
    """Check the space that the certificate of pool shares states: its keys, its pools, and how the search ended."""
    space, ended = pools.certificate.space, pools.certificate.space.get("ended")
    yield from once("pools_claims", "keys of the space", space, ("boxes", "ended", "pools", "searches"))
    yield from must_be("pools_claims", "pools searched", space.get("pools"), len(physics.instance.hardware.pools))
    by_proof = physics.plan.stopped in ("proved", "gap")
    if ended not in ("proved", "limit", "interrupted") or (ended == "proved") != by_proof:
        yield broken("pools_claims", f"the shares ended by {ended}, the search by {physics.plan.stopped}")


def declared_space(physics: PlanPhysics) -> Violations:
    """Check that the bound of a joint certificate is over the declared space, the one that the check enumerates."""
    result = physics.plan.objective
    joint = physics.plan.layout is not None and result.name in certificate.UNITS
    words = {"space": certificate.declared_space(physics.instance.workload.rules), "outside": certificate.OUTSIDE}
    for name, text in words.items() if not joint or result.bound is not None else ():
        yield from must_be("declared_space", name, getattr(result, name), text if joint else "")
    if not joint or result.name != "days_to_train":
        yield from must_be("declared_space", "fabric_free_bound without a proof", result.fabric_free_bound, None)


def solved(physics: PlanPhysics) -> Violations:
    """Check that a plan has the hash of its instance, and that its search ended by proof just where it is proven."""
    plan, wanted = physics.plan, instance_sha256(physics.instance)
    yield from must_be("instance_hash", "instance_sha256", plan.instance_sha256, wanted)
    if plan.stopped == "proved" and plan.status not in ("optimal", "infeasible"):
        yield broken("stopped", f"the search ended by proof, yet the plan is {plan.status}")
    if plan.stopped == "gap" and plan.objective.gap is None:
        yield broken("stopped", "the search ended by a gap, and none is stated")
    if plan.stopped == "limit" and plan.time_limit_seconds is not None and plan.time_limit_seconds <= 0:
        yield broken("stopped", f"a limit of {show(plan.time_limit_seconds)} s")
    yield from at_most("stopped", 1, plan.threads, "thread at least", "threads")


WITHOUT_PLAN = (reason, solved)
OF_BOUNDS = (each_certificate, objective, status, claims, shares_space, declared_space)
RULES = (*WITHOUT_PLAN, *OF_BOUNDS, cheaper, simplest, freed, ends)
