"""The summary says what failures do to a run: days of steps, days on a calendar, and what lies between them."""

import re
from itertools import pairwise

import pytest
from each_case import each
from failing_plan import RATES, failing
from page_cases import infeasible
from worked_plan import edited, small

from planner.api.plans import check
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.plan.plan import Plan, digest
from planner.report.statements.training import CALENDAR, OTHER, STEP_PARTS, STEPS, day_bars, days_by_part, shown_days
from planner.report.summary import statements, summary
from planner.report.tables import Side, figures_of, rows_of
from planner.units import duration, storage

WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]


def section(plan: Plan) -> list[str]:
    """Return the statements on days and stops, then the bars."""
    found = [x.text for x in statements(plan) if x.topic == "days"]
    return [*found, *day_bars(plan, 36)]


@each("ways", WAYS)
def test_the_plan_of_these_tests_breaks_no_rule(ways: tuple[str, ...]) -> None:
    """The checker's own arithmetic agrees with every figure that the summary writes."""
    assert check(failing(*ways)) == []


@each("ways", WAYS)
def test_parts_sum_to_the_days(ways: tuple[str, ...]) -> None:
    """Parts of a step sum to days of steps, with what is lost to days on a calendar, by the plan's own figures."""
    plan = failing(*ways)
    m, rows = plan.layout.metrics, days_by_part(plan)
    at = [r.name for r in rows].index(STEPS)
    assert sum(r.days for r in rows[:at]) == pytest.approx(m.step_days_to_train, rel=1e-12)
    assert sum(r.days for r in rows if not r.is_sum) == pytest.approx(m.days_to_train, rel=1e-9)
    assert [(r.name, r.days) for r in rows if r.is_sum] == [(STEPS, m.step_days_to_train), (CALENDAR, m.days_to_train)]
    steps = plan.instance.workload.tokens / m.tokens_per_step
    bubble = (m.breakdown_seconds["pipeline_bubble"] + m.breakdown_seconds["chunk_wait"]) * steps / SECONDS_PER_DAY
    assert {r.name: r.days for r in rows}["pipeline bubble"] == pytest.approx(bubble, rel=1e-9)


def test_every_part_of_a_step_has_its_row() -> None:
    plan = failing("restart")
    parts = [key for keys in STEP_PARTS.values() for key in keys]
    assert sorted(parts) == sorted(plan.layout.metrics.breakdown_seconds)
    strange = edited(
        plan, layout__metrics__breakdown_seconds={"gemm": 1.0, "strange": 3.0}, layout__metrics__step_seconds=4
    )
    rows = {r.name: r.days for r in days_by_part(strange)}
    assert rows[OTHER] == pytest.approx(0.75 * plan.layout.metrics.step_days_to_train)


@each("ways", WAYS)
def test_days_are_written_with_their_bars(ways: tuple[str, ...]) -> None:
    plan = failing(*ways)
    rows = [re.fullmatch(r"(.+?)\s+([\d.,]+) d\s+([\d.]+) %  ( *)([#=]+)", line) for line in section(plan)]
    bars = [(r[1], float(r[2]), len(r[4]), len(r[4] + r[5]), r[5][0]) for r in rows if r]
    steps, total = (days for _, days, _, _, mark in bars if mark == "=")
    lost = sum(days for _, days, _, _, mark in bars[[b[0] for b in bars].index(STEPS) :] if mark == "#")
    left_out = 0.0005 * len(days_by_part(plan))
    assert steps + lost == pytest.approx(total, abs=left_out)
    assert max(end for _, _, _, end, _ in bars) == bars[-1][3]
    for (_, _, _, end, _), (_, _, start, _, mark) in pairwise(bars):
        assert start == 0 if mark == "=" else abs(start - end) <= 1


def test_the_section_says_how_failures_are_met() -> None:
    """Recovery, time between stops by cause, checkpoint and spares are named with the plan's own figures."""
    plan = failing("warm-spares")
    x, m, lines = plan.reliability, plan.layout.metrics, section(plan)
    both = f"{m.step_days_to_train:.3f} days of steps are {m.days_to_train:.3f} on a calendar"
    assert lines[1] == f"{both}: {100 * x.useful_share:.0f} % of the time trains."
    total = sum(x.stops_per_day_by_part.values())
    stop = f"A stop every {24 / total:.1f} h of work; the whole job restarts on spares that stand by (warm-spares)."
    assert lines[2] == stop
    first = 100 * x.stops_per_day_by_part["software"] / total
    causes = f"A stop costs 50.0 s and the lost work. By cause (rates of toy): software {first:.0f} %, gpu"
    assert lines[3].startswith(causes) and re.search(r", 2 others [\d.]+ %\.$", lines[3])
    assert f"to memory of neighbours every {x.checkpoint_interval_seconds / 60:.1f} min, written in" in lines[4]
    assert lines[5].startswith("Spare racks: 1 at e1, 1 at w1; no spare GPUs; enough racks are fit ")


def test_elastic_names_copies_and_replicas() -> None:
    """A job that goes on without a replica says what shares its state, and how many replicas want racks."""
    lines = section(failing("elastic", target=0.0))
    assert "the job goes on without the lost replica (elastic)" in lines[2] and "costs 2.0 min" in lines[3]
    assert lines[4].endswith("; each step ends with a copy of the sharded state to memory of neighbours.")
    assert lines[5].startswith("No spare racks; no spare GPUs; of 10 replicas 0.1")
    whole = edited(failing("elastic"), layout__zero_stage=0, reliability__checkpoint_interval_seconds=None)
    assert section(whole)[4] == "No checkpoint is written behind the first (6.4 MB)."


@each(("exponent", "grow"), [(0.0, "in proportion to GPUs"), (0.3, "as GPUs to the power of 1.3")])
def test_more_gpus_than_were_measured_are_warned_of(exponent: float, grow: str) -> None:
    """A plan beyond the measured GPUs says so, and how its stops are taken to grow; one within does not."""
    plan = edited(failing("restart"), instance__reliability=RATES | {"scale_exponent": exponent})
    line = f"Failure rates of 8 GPUs for 40: growth {grow} is assumed."
    assert line in [x.text for x in statements(plan) if x.kind == "warning"]
    assert line not in section(edited(plan, reliability__extrapolated=False))


def test_without_failures_a_warning_says_how_to_count_them() -> None:
    (line,) = [x.text for x in statements(small()) if x.topic == "days" and x.kind == "warning"]
    assert line == "Failures not modelled. Set reliability: llama3-2024 to include them."


def test_a_given_availability_is_named() -> None:
    """A share that is given stands for failures, reliability or not; nothing says then that nothing fails."""
    plan = small(workload__availability=0.8)
    m = plan.layout.metrics
    days = f"{m.step_days_to_train:.3f} days of steps are {m.days_to_train:.3f} on a calendar: 80 % of the time trains"
    assert section(plan)[1] == f"{days}, as workload.availability says."
    both = section(small(workload__availability=0.8, reliability=RATES))[1]
    assert both == f"{days}, as workload.availability and not reliability says."


def test_a_section_that_is_missing_is_named() -> None:
    """A plan that leaves out what its instance counts does not pass for one in which nothing fails."""
    line = section(edited(failing("elastic"), reliability=None))[1]
    assert line == "The plan does not say what stops cost, though its instance counts them."


def test_no_plan_has_no_calendar() -> None:
    assert "DAYS" not in summary(infeasible(), verbose=True)


def test_compare_sets_days_of_steps_beside_days_on_a_calendar() -> None:
    """Both figures, the useful share and the section stand in the rows of a comparison, before money."""
    names = ("without", "with")
    found = rows_of([Side(n, figures_of(p)) for n, p in zip(names, (small(), failing("elastic")), strict=True)])
    days = list(found)
    at = days.index("layout.metrics.days_to_train")
    assert days[at + 1 : at + 3] == ["layout.metrics.step_days_to_train", "layout.metrics.useful_share"]
    assert found["reliability.recovery"] == [None, "elastic"]
    assert found["reliability.spare_racks_by_site.e1"] == [None, 1]
    assert days.index("placement.groups") < days.index("reliability.recovery") < days.index("cost.total_usd")
    lost = sum(v for k, v in digest(failing("elastic")).items() if k.startswith("reliability.lost_days."))
    m = failing("elastic").layout.metrics
    assert lost == pytest.approx(m.days_to_train - m.step_days_to_train, rel=1e-9)


@each(
    ("seconds", "text"),
    [(0.002, "2 ms"), (2.84, "2.8 s"), (60, "1.0 min"), (3600, "1.0 h"), (5838, "1.6 h"), (172_800, "2.0 days")],
)
def test_durations_read_in_a_unit_that_suits(seconds: float, text: str) -> None:
    """Seconds, minutes, hours, days and years by length; bytes likewise."""
    assert duration(seconds) == text
    assert duration(4e8) == "12.7 years"
    assert (storage(3.47e14), storage(1e15), storage(6.4e6)) == ("347.0 TB", "1.0 PB", "6.4 MB")
    assert (shown_days(14_649, 1.18), shown_days(39, 0.0363), shown_days(6.2, 0.008)) == ("1.2", "0.04", "0.008")
