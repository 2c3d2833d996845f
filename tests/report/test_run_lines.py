"""The run on one screen, on the page and in rows: what outlasts its hardware, what it costs, what is not counted."""

from typing import Any

from worked_plan import small

from planner.physics.site import run_cost
from planner.plan.flatten import digest
from planner.plan.plan import Plan
from planner.report.compare import figures_of, rows_of
from planner.report.page.page import report_page
from planner.report.run_lines import run_lines
from planner.report.summary import summary
from planner.report.verdict import Side

OPERATION = {"maintenance_share_per_year": 0.05, "staff_usd_per_year": 1e6, "fabric_life_years": 9.0}


def plan_of(years: float, **changes: Any) -> Plan:
    """Return the worked plan with a run of some years."""
    plan = small(operation=OPERATION, hardware__rack__life_years=4.0, **changes)
    return plan.model_copy(
        update={"run": run_cost.section(plan.instance, 365 * years, plan.cost, 0, plan.sites, plan.fabric.sites)}
    )


def text(plan: Plan) -> str:
    """Return the lines of a plan's run."""
    return "\n".join(run_lines(plan.instance, plan.run))


def test_a_run_that_outlasts_its_racks_says_so() -> None:
    """The times that racks and fabric are replaced, with the money, are words of the first lines."""
    usd = small().cost.capex_usd["racks"]
    assert f"11.6 years on racks with a life of 4: replaced twice, ${2 * usd / 1e6:,.2f}M" in text(plan_of(11.6))
    assert "11.6 years on a fabric with a life of 9: replaced once" in text(plan_of(11.6))
    assert "replaced 5 times" in text(plan_of(21))
    assert "replaced" not in text(plan_of(3.9)).partition("=")[0]


def test_money_energy_and_what_is_left_out_are_printed() -> None:
    """A total, a million tokens, MWh and joules a token; a life that is not given is named."""
    plan = plan_of(0.5)
    lines = text(plan)
    assert "over 182 days" in lines and "a million tokens" in lines and "J a token" in lines and "CO2" not in lines
    assert "not counted" not in lines
    shorter = small(operation=None)
    run = run_cost.section(shorter.instance, 9.0, shorter.cost, 0, shorter.sites)
    assert "not counted: hardware.rack.life_years" in "\n".join(run_lines(shorter.instance, run))
    assert "RUN " in summary(plan) and "RUN " not in summary(small())


def test_rows_and_comparisons_have_the_cost_of_the_run() -> None:
    """A row of a sweep has the run's columns, and two plans compare by them behind the bill."""
    short, long = plan_of(1.0), plan_of(10.0)
    found = digest(long)
    assert found["run.total_cost_of_ownership_usd"] == long.run.total_cost_of_ownership_usd
    assert found["run.replacements.racks"] == 2 and found["run.usd.staff"] == 1e7
    rows = rows_of([Side(n, figures_of(p)) for n, p in (("a", short), ("b", long))], diff=True)
    assert rows["run.years"] == [1.0, 10.0]
    names = list(rows_of([Side("a", figures_of(long))]))
    assert names.index("cost.total_usd") < names.index("run.days") < names.index("slack.budget_usd")


def test_the_page_has_a_table_of_the_run() -> None:
    """The page shows the run's parts and its years."""
    html = report_page([("p", plan_of(2.5))])
    assert "The run of 2.5 years" in html and "total cost of ownership" in html and "Operation by year" in html
