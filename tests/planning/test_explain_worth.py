"""What explanations say of limits and of closed sites, held against solves of the changed question, and their time."""

from typing import Any

import pytest
from stored_plans import stored
from tiers import slow
from worked_plan import LAYOUT, instance_with

import planner
from planner.instance.instance import Instance
from planner.models.requests import GradientExchange, SitesRequest
from planner.models.sites import solve as sites_explain
from planner.plan.plan import Plan
from planner.planning import explain
from planner.planning.explain import Explanation, Worth, summary
from planner.planning.solve import options_of
from planner.solvers.signals import Deadline

OPTIONS = options_of(time_limit=None, gap=None, seed=0, threads=1)
ASKED = instance_with(pins=LAYOUT, objective__tolerance=0.0)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return stored(ASKED)


@pytest.fixture(scope="module", params=slow("all limits"))  # its tests are slow
def found() -> Explanation:
    """Return its explanation, with time for every limit on a machine however busy."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(explain, "AT_LEAST", 900.0)
        return planner.explain(ASKED)


def changed(path: str, factor: float) -> Instance:
    """Return the instance with one limit multiplied."""
    return planner.changed(ASKED, {path: f"x{factor}"})


@pytest.mark.parametrize(
    ("limit", "path"), [("budget", "limits.budget_usd"), ("facility power", "limits.facility_power_mw")]
)
def test_a_limit_is_worth_what_solving_with_more_of_it_saves(
    plan: Plan, found: Explanation, limit: str, path: str
) -> None:
    """A hundredth more, every decision taken anew by a cold solve."""
    x = next(x for x in found.worth if x.limit == limit)
    better = stored(changed(path, 1.01))
    saved = plan.layout.metrics.days_to_train - better.layout.metrics.days_to_train
    assert x.proved and x.most_days_saved is None
    assert x.days_saved == pytest.approx(saved, rel=1e-6, abs=1e-12)
    assert x.more == pytest.approx(0.01 * (ASKED.limits.budget_usd if limit == "budget" else 2.5))


def test_dollars_megawatts_memory_and_batch_have_a_worth(found: Explanation) -> None:
    assert {"budget", "batch", "memory", "headroom"} <= {x.limit for x in found.worth}
    text = summary(found)
    for unit in (" of budget: ", "tokens of batch: ", "1 GB of HBM: ", "MW of headroom: "):
        assert unit in text


def test_the_batch_grows_by_whole_steps(plan: Plan, found: Explanation) -> None:
    """One more micro-batch of every replica, so that a token of batch is not worth nothing for want of a whole one."""
    x, sequence = plan.layout, ASKED.workload.sequence_length
    more = next(w.more for w in found.worth if w.limit == "batch")
    assert more >= x.data_parallel * x.microbatch_sequences * sequence


def test_closed_sites_are_named_with_megawatts_and_rules(plan: Plan, found: Explanation) -> None:
    """Every candidate is either open or rejected, and what it lacks of the whole load is in MW."""
    opened, load = {s.id for s in plan.sites.sites}, sum(s.facility_mw for s in plan.sites.sites)
    candidates = {n.id for n in ASKED.grid.nodes if n.site}
    assert {x.node for x in found.sites.rejected} == {x.node for x in found.sites.nodes} - opened
    assert opened | {x.node for x in found.sites.rejected} <= candidates
    for x in found.sites.rejected:
        assert x.missing_mw == pytest.approx(max(0.0, load - x.mw))
        assert x.stopped_by
        assert f"{x.node:24}carries {x.mw:,.1f} MW alone, {x.missing_mw:,.1f} MW short: {x.stopped_by[0]}" in summary(
            found
        )


def test_a_forced_site_costs_what_the_best_split_with_it_costs(plan: Plan) -> None:
    """Of all sets of sites, one after another, the cheapest with the site in it, over the cheapest of all."""
    m = plan.layout.metrics
    exchange = GradientExchange(stage_bytes=m.gradient_bytes_per_stage, window_seconds=m.wan_window_seconds)
    request = SitesRequest(racks=sum(s.racks for s in plan.sites.sites), exchange=exchange)
    free = ASKED.model_copy(update={"limits": ASKED.limits.model_copy(update={"budget_usd": None})})
    every = sites_explain.near_best(free, request, OPTIONS, count=99, within=1e9)
    best = min(x.certificate.objective for x in every)
    nodes = [n.id for n in ASKED.grid.nodes if n.site]
    asked = list(sites_explain.forced_open(free, request, OPTIONS, nodes, Deadline()))
    assert [x.node for x in asked] == nodes
    for x in asked:
        with_it = [p.certificate.objective for p in every if x.node in {s.id for s in p.sites}]
        assert (x.dearer_usd_per_year is None) == (not with_it)
        if with_it:
            assert x.dearer_usd_per_year == pytest.approx(min(with_it) - best, rel=1e-6, abs=1.0)
    assert not list(sites_explain.forced_open(free, request, OPTIONS, nodes, Deadline(0.0)))


def test_without_time_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    monkeypatch.setattr(explain, "TIMES", 0.0)
    monkeypatch.setattr(explain, "AT_LEAST", 0.0)
    names: list[Any] = []
    short = planner.explain(ASKED, on_progress=lambda e: names.append(e.phase))
    assert short.worth and not any(x.proved for x in short.worth)
    better = stored(changed("limits.budget_usd", 1.01))
    most = next(x for x in short.worth if x.limit == "budget").most_days_saved
    assert most >= plan.layout.metrics.days_to_train - better.layout.metrics.days_to_train - 1e-12
    assert {x.choice for x in short.others if x.proved} <= {"expert_parallel"}  # a dense model has no other
    assert all(x.days is None for x in short.others)
    assert "no plan found in time; not proven" in summary(short)
    assert {"what more budget is worth", "sites"} <= set(names)


def test_more_that_costs_days_is_later(found: Explanation) -> None:
    x = Worth(limit="fibre", more=1.0, unit="fibre pair", days_saved=-0.5, proved=True)
    assert "  1 fibre pair: 0.5 days later, for its price" in summary(found.model_copy(update={"worth": (x,)}))
