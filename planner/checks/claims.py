"""Rules of what certificates claim beside value and bound: how, of what, for which choices, and in one run."""

import math
import re
from collections.abc import Iterator

from planner.checks.rule import Rule, broken, must_be, must_equal, same, show
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Certificate, Violation
from planner.plan.declared import (
    BOUNDED,
    BRANCHING,
    CONFIRMED,
    FORMULATION,
    GRID_BRANCHING,
    LEAST_YEARLY,
    LISTED,
    ON_TRUST,
    OUTSIDE,
    POOL_FORMULATION,
    POOL_MINIMIZES,
    POOLS_BRANCHING,
    POOLS_FORMULATION,
    POOLS_MINIMIZES,
    SITES_FORMULATION,
    SITES_MINIMIZES,
    SITES_RUN_MINIMIZES,
    SMALL_BATCH,
    SPACE,
    UNITS,
    UNPRICED,
    WAN_FORMULATION,
    given_to_pool,
    given_to_sites,
    joint_mark,
)
from planner.plan.wan import LEAST_CAPITAL

SHARED = ("status", "bound", "gap", "objective", "formulation", "minimizes", "given", "seed")  # by what is joint
AGREED = (CONFIRMED, BOUNDED, ON_TRUST)
JOINT = ("layout", "fabric", "placement")
HOW = {
    "sites": (SITES_FORMULATION, (SITES_MINIMIZES, SITES_RUN_MINIMIZES)),
    "wan": (WAN_FORMULATION, (LEAST_CAPITAL, LEAST_YEARLY, UNPRICED)),
}


def _certificates(c: PlanPhysics) -> dict[str, Certificate]:
    """Return every certificate of a plan by its path."""
    sections = ("sites", "wan", "layout", "pools", "fabric", "placement")
    found = {name: x.certificate for name in sections if (x := getattr(c.plan, name)) is not None}
    layouts = c.plan.pools.layouts if c.plan.pools is not None else {}
    return found | {f"pools.layouts.{name}": x.certificate for name, x in layouts.items()}


def one_run(c: PlanPhysics) -> Iterator[Violation]:
    """Check that certificates have the plan's seed, sizes and seconds that a run may have, and gaps of their own."""
    for name, x in _certificates(c).items():
        yield from must_equal(f"one_run[{name}]", "seed against the plan's", x.seed, c.plan.seed)
        if not (math.isfinite(x.seconds) and x.seconds >= 0 and x.variables >= 0 and x.constraints >= 0):
            sizes = f"{show(x.seconds)} s, {show(x.variables)} variables and {show(x.constraints)} constraints"
            yield broken(f"one_run[{name}]", f"{sizes} are below 0")


def joint_claims(c: PlanPhysics) -> Iterator[Violation]:
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
                f"joint_claims[{section}]", "space of a section beside the layout", x.certificate.space, {}
            )
    if first.bound is None:
        return
    # Where the loss is to be least, the layout is the fastest of its model.
    unit = UNITS.get(name, UNITS["days_to_train"])
    yield from must_be("joint_claims[layout]", "formulation", first.formulation, FORMULATION)
    yield from must_be("joint_claims[layout]", "minimizes", first.minimizes, unit)
    yield from must_be("joint_claims[layout]", "given", first.given, "")
    if counts is not None:
        yield from must_be("joint_claims[layout]", "counts of the search against the proof's", first.space, counts)


def _sizes(c: PlanPhysics, section: str, x: Certificate) -> Iterator[Violation]:
    """Check that variables and constraints are those of the MILP over sites, none of a cluster without sites."""
    sites = c.plan.sites.certificate if c.plan.sites is not None else None
    for key in ("variables", "constraints"):
        wanted = getattr(sites, key) if sites is not None else 0
        yield from must_equal(f"joint_claims[{section}]", f"{key} of the MILP over sites", getattr(x, key), wanted)


def solvers_named(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a bound names who found it."""
    plan, grid = c.plan, c.instance.grid is not None
    branching = GRID_BRANCHING if grid else BRANCHING
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
        if head != branching or (rest and not (name == "layout" and rest == [LISTED])):
            yield broken(f"solvers_named[{name}]", f"{x.solver!r} stated, {branching!r} expected")
    if plan.sites is not None and plan.sites.certificate.bound is not None:
        yield from _by_highs("sites", plan.sites.certificate)
    if plan.wan is not None and plan.wan.certificate.bound is not None:
        yield from _by_highs("wan", plan.wan.certificate)


def _by_highs(name: str, x: Certificate) -> Iterator[Violation]:
    """Check that a bound is by HiGHS through Pyomo, each with its version."""
    if not re.fullmatch(r"HiGHS [\d.]+ through Pyomo [\d.]+", x.solver):
        yield broken(f"solvers_named[{name}]", f"{x.solver!r} stated, HiGHS expected")


def marks(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a certificate says what stands behind its bound: this check, another solver, or trust."""
    columns = len(c.plan.proof.columns) if c.plan.proof is not None else 0
    joint = joint_mark(c.instance.objective.minimize, grid=c.instance.grid is not None, columns=columns)
    for name, x in _certificates(c).items():
        expected = (joint,) if name in JOINT else AGREED if name in HOW else (ON_TRUST,)
        if name.startswith("pools.layouts.") or x.bound is None:
            expected = ("",)
        if x.checked not in ("", *expected):
            wanted = " or ".join(repr(mark) for mark in expected)
            yield broken(f"marks[{name}]", f"the bound is stated to be {x.checked!r}, {wanted} expected")


def formulations(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a bound on sites and on fibre says what is least, how it was found, and for which choices."""
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
    yield from must_be("formulations[sites]", "given", sites.certificate.given, given_to_sites(*degrees, waves))


def declared_space(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a joint bound is of the declared space, which is the one that the columns are enumerated in."""
    o = c.plan.objective
    joint = c.plan.layout is not None and o.name in UNITS
    if joint and o.bound is not None:
        yield from must_be("declared_space", "space", o.space, SPACE)
        yield from must_be("declared_space", "outside", o.outside, OUTSIDE)
    if not joint:
        yield from must_be("declared_space", "space of what is not decided jointly", o.space, "")
        yield from must_be("declared_space", "outside of what is not decided jointly", o.outside, "")
    if not joint or o.name != "days_to_train":
        yield from must_be("declared_space", "fabric_free_bound without a proof", o.fabric_free_bound, None)


def stopped(c: PlanPhysics) -> Iterator[Violation]:
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


def pools_claims(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the layout of a pool claims no bound, as the shares' certificate does, and has its own days."""
    owned = {p.name: p.racks for p in c.instance.hardware.pools}
    for name, layout in c.plan.pools.layouts.items() if c.plan.pools is not None else ():
        x, rule = layout.certificate, f"pools_claims[{name}]"
        yield from must_be(rule, "status", x.status, "feasible")
        yield from must_be(rule, "bound", x.bound, None)
        yield from must_be(rule, "gap", x.gap, None)
        yield from must_be(rule, "space", x.space, {})
        yield from must_equal(rule, "objective, days by this pool", x.objective, layout.metrics.days_to_train)
        given = given_to_pool(owned.get(name), c.transport_slowdown)
        for key, text in (("formulation", POOL_FORMULATION), ("minimizes", POOL_MINIMIZES), ("given", given)):
            yield from must_be(rule, key, getattr(x, key), text)
        yield from must_be(rule, "solver", x.solver, POOLS_BRANCHING)
    yield from _shares_claims(c, owned)


def _shares_claims(c: PlanPhysics, owned: dict[str, int]) -> Iterator[Violation]:
    """Check what the certificate of the shares says of itself: sizes by the pools, and its words."""
    if c.plan.pools is None:
        return
    x, rule = c.plan.pools.certificate, "pools_claims"
    yield from must_be(rule, "pools searched", x.space.get("pools"), len(owned))
    yield from must_equal(rule, "variables, a share for each pool", x.variables, len(owned))
    yield from must_equal(rule, "constraints", x.constraints, len(owned) + 1)
    boxes, searches = x.space.get("boxes"), x.space.get("searches")
    yield from must_be(rule, "keys of the space", sorted(x.space), ["boxes", "ended", "pools", "searches"])
    if isinstance(boxes, int) and isinstance(searches, int):
        words = POOLS_FORMULATION.format(small=SMALL_BATCH, searches=searches, boxes=boxes)
        yield from must_be(rule, "formulation", x.formulation, words)
    yield from must_be(rule, "minimizes", x.minimizes, POOLS_MINIMIZES)
    yield from must_be(rule, "solver", x.solver, POOLS_BRANCHING)
    given = "; ".join(f"{name}: {given_to_pool(racks, c.transport_slowdown)}" for name, racks in owned.items())
    yield from must_be(rule, "given", x.given, given)
    ended = x.space.get("ended")
    if ended not in ("proved", "limit", "interrupted") or (ended == "proved") != (c.plan.stopped in ("proved", "gap")):
        yield broken(rule, f"the shares ended by {ended}, the search by {c.plan.stopped}")


RULES: tuple[Rule, ...] = (
    one_run,
    joint_claims,
    solvers_named,
    marks,
    formulations,
    declared_space,
    stopped,
    pools_claims,
)
