"""Write the sites section of a plan from the joint MILP, with its integers fixed and its flows shortest."""

from typing import Any

import pyomo.core as pyo

from planner.models.joint.places.milp import stated
from planner.models.joint.places.site_question import PlacedParts, SiteQuestion
from planner.models.joint.sites import Sites
from planner.models.sites import model
from planner.models.sites.model import SplitSolution, dispatch, excess_of, security_space
from planner.models.sites.report import link_of, sites_plan
from planner.models.sites.site_rules import max_sites
from planner.models.sites.split_data import SplitData, block_of, expected_musd, scenarios, years
from planner.plan.certificate import SITES_FORMULATION, SITES_MINIMIZES, SITES_RUN_MINIMIZES, Certificate
from planner.plan.plan_sections import SitesPlan, WanPlan
from planner.solvers import highs
from planner.solvers.outcome import UnansweredError, relative_gap

ROUNDING = 1e-9  # relative: a gap that sums in another order leave


def sites_section(sites: Sites, placed: PlacedParts, fabric_mw: dict[str, float], *, given: str = "") -> SitesPlan:
    """Return the sites section of a plan; `fabric_mw`: power in MW by site, `given`: the fixed choices in words."""
    # The certificate is that of the question to the MILP, whose capital is that of the whole plan.
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))
    m = stated(q)
    _fix(m, q, placed)
    _settle(m, q, sites.seed)
    own, data = dispatch(m, q.data), q.data
    waves = placed.circuit.wavelengths if placed.circuit is not None else 0
    # A link has the wavelengths of the plan; none where one of its sites holds no blocks.
    lit = {pair: waves * (set(pair) <= set(placed.parts)) for pair in data.pairs if set(pair) <= set(placed.racks)}
    solution = SplitSolution(
        modules={site: racks // data.module_racks for site, racks in placed.racks.items()},
        circuits=placed.circuits,
        steps=placed.steps,
        generated=own.generated,
        flow=own.flow,
        excess=excess_of(m),
        scenarios={n: dispatch(block_of(m, n), year) for n, year in scenarios(data).items()},
    )
    return sites_plan(
        data,
        solution,
        fabric_mw,
        links=tuple(link_of(data, pair, n, required_gbps=n * data.wan.wavelength_gbps) for pair, n in lit.items()),
        certificate=_certificate(sites, q, placed, given),
    )


def wan_section(sites: Sites, placed: PlacedParts, *, window_seconds: float = 0.0) -> WanPlan | None:
    """Return the design of the fibre between the sites where the instance asks for it; None elsewhere."""
    # `window_seconds` is the window of the exchange where one site alone trains.
    if not sites.designed or len(placed.racks) < 2:
        return None
    return sites.fibre.design(placed.joined, placed.circuit, window_seconds)


def over_the_run(made: Certificate, usd: float, alike_usd: float) -> Certificate:
    """Return the certificate of sites at run prices as one on the total cost `usd` of a whole run, in dollars."""
    # `alike_usd`, which all plans cost alike, is added to its bound. The search asked for the sites at the prices of a
    # run that is no longer, so that its bound holds.
    bound = None if made.bound is None else min(made.bound + alike_usd, usd)
    gap = relative_gap(usd, bound)
    proved = made.status == "optimal" and gap is not None and gap <= ROUNDING
    return made.model_copy(
        update={
            "status": "optimal" if proved else "feasible",
            "objective": usd,
            "bound": bound,
            "gap": gap,
            "minimizes": SITES_RUN_MINIMIZES,
        }
    )


def _fix(m: Any, q: SiteQuestion, placed: PlacedParts) -> None:
    """Fix the whole decisions at those of a solution, by their bounds."""
    fixed: list[tuple[Any, float]] = []
    fixed += [(m.part[x, k], float(placed.parts.get(x, (-1, 0))[0] == k)) for x, k in m.part]
    fixed += [(m.fabric[x, k, f], float(placed.parts.get(x) == (k, f))) for x, k, f in m.fabric]
    fixed += [(m.modules[x], placed.racks.get(x, 0) // q.data.module_racks) for x in m.modules]
    fixed += [(m.open[x], float(x in placed.racks)) for x in m.open]
    fixed += [(m.circuits[k], placed.circuits.get(k, 0)) for k in m.circuits]
    fixed += [(m.steps[k], placed.steps.get(k, 0)) for k in m.steps]
    for var, x in fixed:
        var.setlb(x)
        var.setub(x)


def _settle(m: Any, q: SiteQuestion, seed: int) -> None:
    """Set the model to the solution: excess at its price, then scenarios at theirs, then the shortest flows."""
    _solve(m, seed)
    for year in years(m, q.data):
        for rule in model.RULES.values():
            for var in (year.block.component(f"{rule.name}_excess") or {}).values():
                var.setub(max(var.value, 0.0) + 1e-9)
    if q.data.grid.rules.scenarios == "expected":
        m.goal.set_value(expected_musd(m, q.data, 0.0))
        _solve(m, seed)
        for name in scenarios(q.data):
            block = block_of(m, name)
            for x in (*block.modules.values(), *(block.component("extra_mw") or {}).values()):
                x.setlb(max(x.value - 1e-7, 0.0))
    if q.data.network is None:
        m.goal.set_value(_length(m, q.data))
        _solve(m, seed)


def _length(m: Any, data: SplitData) -> Any:
    """Return the sum of all flows of all years, whatever their way: the cost leaves flows free, and loops confuse."""
    total: Any = 0.0
    for year in years(m, data):
        block = year.block
        keys = list(block.flow)
        block.size = pyo.Var(keys, domain=pyo.NonNegativeReals, bounds=lambda b, k: (0, b.flow[k].ub))
        block.forward = pyo.Constraint(keys, rule=lambda b, k: b.flow[k] <= b.size[k])
        block.backward = pyo.Constraint(keys, rule=lambda b, k: -b.flow[k] <= b.size[k])
        total += sum(block.size.values())
    return total


def _solve(m: Any, seed: int) -> None:
    outcome = highs.run(m, seed=seed)
    if outcome.solution is None:
        raise UnansweredError(f"joint sites: the decisions of the plan have no dispatch ({outcome.detail})")
    for var in m.component_data_objects(pyo.Var):
        x = outcome.solution.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)


def _certificate(sites: Sites, q: SiteQuestion, placed: PlacedParts, given: str) -> Certificate:
    """Return the certificate of the MILP: no other sites hold these parts for less."""
    proof, value = placed.proof, placed.capital_usd
    # A bound above the objective differs from it by rounding only.
    bound = value if proof.proved else None if proof.bound_usd is None else min(proof.bound_usd, value)
    limit = q.data.grid.rules.max_rtt_ms
    space: dict[str, Any] = {
        "candidate_sites": len(q.data.candidates),
        "max_sites": max_sites(q.data, model.rules_without()),
        "parts": sum(n for _, n in q.kinds),
        "fabrics": sum(len(p.fabrics) for p, _ in q.kinds),
        "pairs": len(q.data.pairs),
        "pairs_over_rtt": sum(limit is not None and q.data.rtt_ms(p) > limit for p in q.data.pairs),
        "designs": sites.fibre.solved,
        "questions": sites.solved,
    }
    if q.data.network is not None:
        space |= security_space(q.data.network)
    return Certificate(
        status="optimal" if proof.proved else "feasible",
        objective=value,
        bound=bound,
        gap=relative_gap(value, bound),
        solver=proof.solver,
        formulation=SITES_FORMULATION,
        variables=proof.variables,
        constraints=proof.constraints,
        seconds=proof.seconds,
        seed=sites.seed,
        minimizes=SITES_MINIMIZES,
        given=given,
        space=space,
    )
