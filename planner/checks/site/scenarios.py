"""Checks of the power that feeds the sites, in the grid's own year and in every scenario of the plan."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.instance.grid import SOFT_UNITS, Scenario
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.physics.site.grid import normal_share
from planner.plan.certificate import Violation
from planner.plan.sites import Flow, ScenarioRun

BALANCE_MW = 1e-4  # power flows are written to the watt; a node adds up several


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """Figures of one year: headroom and available generation, and the load, generation and flows of the plan."""

    suffix: str  # of the names of a scenario's rules
    headroom: dict[str, float]
    available: dict[str, float]
    load: dict[str, float]
    generated: dict[str, float]
    flows: tuple[Flow, ...]


def years(c: PlanPhysics) -> Iterator[Year]:
    """Yield the grid's own year, then the scenarios that count."""
    plan = c.plan.sites
    if plan is None:
        return
    headroom = {b.id: b.headroom_mw for b in c.grid.balancing_authorities}
    available = {n.id: n.generation_mw for n in c.grid.nodes}
    load = {x.site.id: c.load_mw(x.site.id, x.site.racks) for x in c.standing}
    yield Year(
        suffix="",
        headroom=headroom,
        available=available,
        load=load,
        generated=plan.generation_mw,
        flows=plan.flows,
    )
    for s in c.grid.scenarios if c.grid.rules.scenarios != "off" else ():
        run = plan.scenarios.get(s.name)
        if run is not None:
            yield Year(
                suffix=f" in {s.name}",
                headroom=headroom | s.headroom_mw,
                available=available | s.generation_mw,
                load=run.running_mw,
                generated=run.generation_mw,
                flows=run.flows,
            )


def _excess(c: PlanPhysics, year: Year, rule: str) -> float:
    """Return the excess of a soft rule that the plan states; scenarios have none."""
    return 0.0 if year.suffix else c.excess(rule)


def headroom(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the draw of each authority's sites is within its headroom."""
    for year in years(c) if c.grid.rules.headroom else ():
        for area, mw in _by_authority(c, year).items():
            rule = f"headroom[{area}]"
            yield from at_most(
                rule + year.suffix,
                mw,
                year.headroom[area] + _excess(c, year, rule),
                "MW drawn by its sites",
                "MW headroom",
            )


def _by_authority(c: PlanPhysics, year: Year) -> dict[str, float]:
    mw: dict[str, float] = {}
    for x in c.standing:
        mw[x.authority.id] = mw.get(x.authority.id, 0.0) + year.load.get(x.site.id, 0.0)
    return dict(sorted(mw.items()))


def generation(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each node feeds in no more than its plants can.

    An authority's sites are fed, where no flows are stated, by its own plants' power above its load.
    """
    for year in years(c):
        yield from _known_plants(year)
        if c.grid.rules.generation:
            yield from _plants(c, year)
            yield from _own_plants(c, year) if c.grid.rules.grid_model == "none" else ()


def _known_plants(year: Year) -> Iterator[Violation]:
    for n, mw in sorted(year.generated.items()):
        if n not in year.available:
            yield broken(
                f"generation[{n}]{year.suffix}",
                f"{show(mw)} MW fed in at a node that is none of the grid's {len(year.available)}",
            )
        else:
            yield from at_most(f"generation[{n}]{year.suffix}", 0.0, mw, "MW at least", "MW fed in")


def _plants(c: PlanPhysics, year: Year) -> Iterator[Violation]:
    for n, mw in sorted(year.generated.items()):
        if n in year.available:
            rule = f"generation[{n}]"
            yield from at_most(
                rule + year.suffix,
                mw,
                year.available[n] + _excess(c, year, rule),
                "MW fed in",
                "MW that its plants can spare",
            )


def _own_plants(c: PlanPhysics, year: Year) -> Iterator[Violation]:
    for area, drawn in _by_authority(c, year).items():
        rule = f"generation[{area}]"
        spare = sum(year.available[n.id] - n.load_mw for n in c.grid.nodes if n.balancing_authority == area)
        limit = max(0.0, spare) + _excess(c, year, rule)
        yield from at_most(rule + year.suffix, drawn, limit, "MW drawn", "MW that its plants can spare")


def balance(c: PlanPhysics) -> Iterator[Violation]:
    """Check that at each node generation plus inflow is its own load and its site's."""
    if c.grid.rules.grid_model == "none":
        return
    drawn = {n.id: n.load_mw for n in c.grid.nodes}
    ends = {x.id: (x.a, x.b) for x in c.grid.lines} | {x.id: (x.a, x.b) for x in c.grid.new_lines}
    for year in years(c):
        net = {n: year.generated.get(n, 0.0) for n in year.available}
        for f in year.flows:
            if f.line in ends:
                a, b = ends[f.line]
                net[a] -= f.mw
                net[b] += f.mw
        for n, mw in sorted(net.items()):
            load = year.load.get(n, 0.0) + drawn[n]
            if abs(mw - load) > max(BALANCE_MW, TOLERANCE * load):
                yield broken(
                    f"balance[{n}]{year.suffix}", f"{show(mw)} MW from its plants and corridors, {show(load)} MW drawn"
                )


def rating(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each corridor's flow, in both directions, is within its circuits, built ones included."""
    share = normal_share(c.grid)
    capacity = {x.id: share * x.circuits * x.rating_mw for x in c.grid.lines}
    capacity |= {x.id: share * c.built.get(x.id, 0) * x.rating_mw for x in c.grid.new_lines}
    for year in years(c):
        for line, count in sorted(Counter(f.line for f in year.flows).items()):
            if line not in capacity:
                yield broken(
                    f"rating[{line}]{year.suffix}", f"a flow on a corridor that is none of the grid's {len(capacity)}"
                )
            if count > 1:
                yield broken(f"rating[{line}]{year.suffix}", f"{count} flows > 1")
        for f in year.flows:
            if f.line in capacity:
                rule = f"rating[{f.line}]"
                yield from at_most(
                    rule + year.suffix,
                    abs(f.mw),
                    capacity[f.line] + _excess(c, year, rule),
                    "MW flow",
                    "MW of its circuits",
                )


def scenarios(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the split runs in every scenario: in full where it must be robust, elsewhere within what it holds."""
    plan, rules = c.plan.sites, c.grid.rules
    if plan is None:
        return
    known = {s.name: s for s in c.grid.scenarios} if rules.scenarios != "off" else {}
    for name in sorted(set(known) ^ set(plan.scenarios)):
        yield broken(f"scenarios[{name}]", "is missing" if name in known else "is none that counts")
    for name, run in sorted(plan.scenarios.items()):
        if name in known:
            yield from _scenario(c, known[name], run)


def _scenario(c: PlanPhysics, scenario: Scenario, run: ScenarioRun) -> Iterator[Violation]:
    usd, name, rules = 0.0, scenario.name, c.grid.rules
    for x in c.standing:
        rule, full = f"scenarios[{name}, {x.site.id}]", c.load_mw(x.site.id, x.site.racks)
        drawn = run.running_mw.get(x.site.id, 0.0)
        yield from at_most(rule, drawn, full + BALANCE_MW, "MW drawn", "MW that the site holds")
        if rules.scenarios == "robust":
            yield from at_most(rule, full, drawn + BALANCE_MW, "MW that the site holds", "MW drawn")
        price = scenario.energy_usd_per_mwh.get(x.authority.id, x.authority.energy_usd_per_mwh)
        usd += cost.energy_usd_per_year(drawn, price)
        usd += cost.energy_usd_per_year(max(full - drawn, 0.0), rules.curtailment_usd_per_mwh)
    for s in sorted(set(run.running_mw) - {x.site.id for x in c.standing}):
        yield broken(f"scenarios[{name}, {s}]", "draws power where no site stands")
    yield from must_equal(f"scenarios[{name}]", "energy_usd_per_year", run.energy_usd_per_year, usd, " USD")


def excess(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only soft rules are exceeded, no further than they may be, in their unit and at their price."""
    for x in c.plan.sites.excess if c.plan.sites else ():
        family = x.rule.partition("[")[0]
        soft = c.grid.rules.soft.get(family)
        if soft is None:
            yield broken(f"excess[{x.rule}]", f"{show(x.amount)} {x.unit} beyond a rule that is hard")
            continue
        yield from at_most(f"excess[{x.rule}]", 0.0, x.amount, "at least", "stated")
        yield from at_most(f"excess[{x.rule}]", x.amount, soft.max_excess, x.unit, f"{x.unit} at most")
        yield from must_equal(f"excess[{x.rule}]", "usd_per_year", x.usd_per_year, x.amount * soft.usd_per_year, " USD")
        yield from must_be(f"excess[{x.rule}]", "unit", x.unit, SOFT_UNITS[family])


RULES: tuple[Rule, ...] = (headroom, generation, balance, rating, scenarios, excess)
