"""What a plan says in the words of a reader, what failures do to a run, and lines within a width."""

import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from each_case import each
from failing_plan import RATES, failing
from page_cases import infeasible, rich
from stored_plans import stored
from worked_plan import edited, small

import planner
from planner.errors import InputError
from planner.instance.workload import Experts
from planner.physics.site import cost
from planner.physics.training.step_prediction import SECONDS_PER_DAY
from planner.plan.certificate import ChoiceEnd
from planner.plan.plan import Plan
from planner.plan.plan_figures import digest
from planner.report import decisions, verdict
from planner.report.comparison import Side, figures_of, rows_of
from planner.report.decisions import CALENDAR, SECTIONS, STEP_PARTS, STEPS, days, days_by_part, shown_days
from planner.report.summary import HANG, INDENT, fitted, statements, summary
from planner.units import amount, duration, gap, memory, ratio, short, storage

PLAN = small()
OPERATION = {"maintenance_share_per_year": 0.05, "staff_usd_per_year": 1e6, "fabric_life_years": 9.0}
SHIPPED = ("one-rack", "cluster-1k", "two-sites-405b", "5gw-one-site")
PLANS = {"small": small, "rich": rich, "failing": lambda: failing("restart", "elastic"), "none": infeasible}


def said(plan: Plan, section: str, *, first: bool = False) -> str:
    """Return the statements of one section, a line each."""
    found = [x for x in statements(plan) if section in (x.section, x.topic) and (x.first or not first)]
    return "\n".join(x.text for x in found)


def run_of(years: float, **changes: Any) -> Plan:
    """Return the worked plan with a run of some years."""
    plan = small(operation=OPERATION, hardware__rack__life_years=4.0, **changes)
    return plan.replaced(run=cost.section(plan.instance, 365 * years, plan.cost, 0, plan.sites, plan.fabric.sites))


@each("name", [*PLANS, *SHIPPED])
def test_the_first_screen_fits_and_is_part_of_all_that_is_said(name: str) -> None:
    """Sections are known, the screen is part of all that is said, and has 26 lines and a toy's warnings."""
    plan = PLANS[name]() if name in PLANS else stored(name)
    found, screen, all_of_it = statements(plan), summary(plan), summary(plan, verbose=True)
    assert {x.section for x in found} <= set(SECTIONS)
    assert all(x.text in screen for x in found if x.first) and all(x.text in all_of_it for x in found if not x.short)
    assert sum(x.kind == "verdict" for x in found) == 1 and found[0].kind == "verdict"
    assert all(x.first for x in found if x.kind == "limit")
    toy = [x for x in found if x.first and ("implausible" in x.text or "No source" in x.text)]
    assert name == "rich" or len(summary(plan, 100).splitlines()) - 2 * len(toy) <= 26


def test_one_section_is_shown_whole() -> None:
    """`show PLAN fabric` has what the first screen leaves out, and nothing of another section; a typo is answered."""
    text = summary(PLAN, section="fabric")
    assert "planes of" in text or "plane of" in text
    assert "LAYOUT" not in text and "PROOF      fabric: " in text
    assert f"ipeline sends {max(x.p2p_seconds for x in PLAN.fabric.sites.values()) * 1e3:.3g} ms" in text
    # Without a pipeline no stage sends, and nothing is said of sends; of all-reduces it is.
    sites = {name: x.replaced(p2p_seconds=0.0) for name, x in PLAN.fabric.sites.items()}
    text = summary(PLAN.replaced(fabric__sites=sites), section="fabric")
    assert "ipeline sends" not in text and "all-reduces" in text
    with pytest.raises(InputError, match=r"section: must be one of verdict, sites, .*proof \(is 'fabrics'\)"):
        summary(PLAN, section="fabrics")
    with pytest.raises(InputError, match=r"has no curve; solve without --point"):
        summary(PLAN.replaced(curve=None), section="curve")


def test_the_verdict_says_what_is_proven() -> None:
    """Days with their range and the proof; a gap with what ended the search; money, loss; no bound."""
    low, high = PLAN.layout.metrics.days_to_train_interval
    o = PLAN.objective.replaced(fabric_free_bound=None)

    def verdict(status: str = PLAN.status, stopped: str = "proved", **changes: Any) -> str:
        return statements(PLAN.replaced(status=status, stopped=stopped, objective=o.replaced(**changes)))[0].text

    proven = f"Trains in {days(o.value)} days (likely {days(low)} to {days(high)}). Proven optimal."
    assert verdict(gap=0.0, bound=o.value) == proven
    faster = verdict(gap=0.0, bound=o.value, fabric_free_bound=0.9 * o.value)
    assert faster.endswith(f"no fabric, at any price, could bring it below {days(0.9 * o.value)} (10.0 % less).")
    ended = f"no plan is better than {days(0.75 * o.value)} days (gap 25.0 %; the time limit ended the search)."
    assert verdict(gap=0.25, bound=0.75 * o.value, stopped="limit").endswith(ended)
    assert verdict(gap=None, bound=None).endswith("No bound is proven.")
    assert verdict(name="cost_usd", value=2e9, gap=0.0, bound=2e9).startswith("Costs $2.00B to buy; trains in ")
    assert verdict(name="loss", value=1.5, gap=0.0, bound=1.5).startswith("Reaches a loss of 1.5000 nats a token")
    within = "no plan comes below 1.5000 nats a token (gap under 0.1 %), as long as larger models take longer."
    assert verdict(status="optimal", name="loss", value=1.5, gap=1e-5, bound=1.499985).endswith(f"Proven: {within}")


@each(("proven", "texts"), [
    (True, ("of plans that tie none has more.", "of plans that tie none is simpler.")),
    (False, ("others may have more.", "others may be simpler.")),
])  # fmt: skip
def test_an_end_of_the_choice_says_what_others_may_be(proven: bool, texts: tuple[str, str]) -> None:
    own = {"days_to_train": 9.0, "capital_usd": 1e6, "proven": proven}
    values = {"goal": 9.0, "capital": 1e6, "leaf_local": 0.5, "simplest": 3.0}
    ends = tuple(ChoiceEnd(name=name, value=value, **own) for name, value in values.items())
    told = [x.text for x in statements(PLAN.replaced(objective__ends=ends)) if x.text.startswith("Within ")]
    assert [text.partition("; ")[2] for text in told] == list(texts)


def test_no_plan_says_why_and_which_rules_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the verdict, the rules a limit; where nothing is proven no rules are told as in conflict."""
    text = summary(infeasible(), verbose=True)
    assert "No plan: the grid is too small." in text and "DAYS" not in text
    assert "Rules in conflict (sites): demand, headroom[EAST]; without any one of them the rest can be met." in text
    why = infeasible().conflict.replaced(rules=(), reason="the time limit came before a first plan")
    undecided = infeasible().replaced(status="unknown", stopped="limit", conflict=why)
    assert "No plan yet: the time limit came before a first plan." in summary(undecided)
    assert "conflict" not in summary(undecided)
    monkeypatch.setattr("planner.solvers.search_deadline.FIRST_PLAN_SECONDS", 0.0)
    limited = planner.solve("one-rack", time_limit=1e-3)
    assert limited.status == "unknown" and "the time limit came before a plan was found. Give more" in summary(limited)


@each(("context", "expert"), [(1, 1), (1, 4), (2, 1), (2, 8)])
def test_a_model_with_experts_prints_its_context_and_expert_parallelism(context: int, expert: int) -> None:
    """Of a dense model only what it uses is printed."""
    plan = PLAN.replaced(instance__workload__model__experts=Experts(count=8, per_token=2, ffn=64))
    plan = edited(plan, layout__context_parallel=context, layout__expert_parallel=expert)
    assert f"x CP {context} x" in said(plan, "layout") and f", EP {expert}," in said(plan, "layout")
    dense = said(edited(PLAN, layout__context_parallel=context), "layout", first=True)
    assert "EP" not in dense and (" CP 2 x" in dense) == (" CP " in dense) == (context > 1)


@each(("recompute", "by_stage", "text"), [
    ("none", (), "recomputes nothing"),
    ("selective", (), "recomputes attention scores (selective)"),
    ("full", (), "recomputes all 8 layers"),
    ("full", (4, 4), "recomputes all 8 layers"),
    ("full", (3, 0), "recomputes 3 of 8 layers"),
])  # fmt: skip
def test_recomputation_is_told_in_layers(recompute: str, by_stage: tuple[int, ...], text: str) -> None:
    """A reader of `full` with six layers of eighty took it for all of them."""
    plan = edited(PLAN, layout__recompute=recompute, layout__recomputed_layers_per_stage=by_stage)
    assert text in said(plan, "layout", first=True)


@each(("total", "local", "least", "extra", "text"), [
    (9, 0, 1, 72, "All 9 all-reduce groups span several leaf domains (1 unavoidable): 81 fragments"),
    (1, 0, 0, 3, "The one all-reduce group spans several leaf domains (none unavoidable): 4 fragments"),
    (9, 9, 0, 0, "All 9 all-reduce groups stay in one leaf domain each"),
    (9, 8, 1, 1, "8 of 9 all-reduce groups stay in one leaf domain each; 1 spans several (1 unavoidable): 2 fragments"),
    (9, 7, 1, 4, "7 of 9 all-reduce groups stay in one leaf domain each; 2 span several (1 unavoidable): 6 fragments"),
])  # fmt: skip
def test_groups_are_told_with_their_fragments(total: int, local: int, least: int, extra: int, text: str) -> None:
    """A group over three leaves is three fragments; pieces beyond one a group are what the plan counts."""
    figures = {"groups": total, "groups_leaf_local": local, "lower_bound_split": least, "extra_pieces": extra}
    plan = PLAN.replaced(placement=PLAN.placement.replaced(**figures, groups_cross_pod=0))
    assert said(plan, "placement", first=True) == text


@each(("load", "n1", "text"), [
    (0.0, "off", "of the sites alone: no node states a load_mw; nothing out"),
    (2.5, "full", "with 5 MW of other load; any one circuit or unit out"),
    (2.5, "node", "a site's largest circuit out"),
])  # fmt: skip
def test_a_power_flow_says_of_what_network_it_is(load: float, n1: str, text: str) -> None:
    """Under dc it is told whether load beside the sites is counted, and what may be out."""
    grid = PLAN.instance.grid
    nodes = [n.replaced(load_mw=load if i < 2 else 0.0) for i, n in enumerate(grid.nodes)]
    rules: dict[str, Any] = {"grid_model": "dc", "n1": n1}
    plan = PLAN.replaced(instance__grid__nodes=tuple(nodes), instance__grid__rules=grid.rules.replaced(**rules))
    assert text in said(plan, "proof") and "power flow by reactances" not in said(PLAN, "proof")


def blocks(racks: int, count: int) -> Any:
    """Return the worked placement in some blocks of racks at one site."""
    return PLAN.placement.replaced(block_racks=racks, blocks_by_site={"e1": count})


@each(("ended_by", "changes", "text"), [
    ("budget", {"instance__limits__budget_usd": PLAN.cost.total_usd + 1.5e6},
     "Budget: $1.50M is left, less than one more replica costs."),
    ("grid", {}, "Power and sites: they cannot feed one more replica."),
    ("layout", {}, "One more replica would not train faster."),
    ("owned_racks", {}, "for one more replica."),
    ("owned_racks", {"placement": blocks(4, 3)},
     "Racks: 2 of 14 are left over, too few for one more block of 4 racks."),
    ("owned_racks", {"placement": blocks(7, 2)}, "Racks: 14 given, no room for one more block of 7 racks."),
    ("fabric", {"instance__network__max_tiers": 1},
     " (network.max_tiers is 1) joins at most 4 racks at each site, no room for one more replica."),
    ("fabric", {"instance__network__max_tiers": 2, "instance__pins": {"fabric.tiers": 1}},
     " (pins.fabric.tiers is 1) joins at most 4 racks at each site, no room for one more replica."),
    ("fabric", {"instance__network__max_tiers": 2},
     " (network.max_tiers is 2) join at most 60 racks at each site, no room for one more replica."),
    ("fabric", {"instance__network__max_tiers": 3, "instance__pins": {"fabric.leaf_down_ports": 16}},
     "a leaf as pinned joins at most 4 racks at each site, no room for one more replica."),
])  # fmt: skip
def test_the_limit_that_ends_the_plan_is_named(ended_by: str, changes: dict[str, Any], text: str) -> None:
    """What is left of it is told; of a fabric also the rule: tiers of the network or of a pin, else the leaf."""
    assert text in said(PLAN.replaced(objective__limited_by=ended_by, **changes), "limits", first=True)


@each(("others", "text", "first"), [
    (0, "Not used: w2", True), (1, "Not used: w2, x0", True), (2, "Not used: 3 other candidates", False),
])  # fmt: skip
def test_candidates_that_are_not_used_are_named_where_they_are_few(others: int, text: str, first: bool) -> None:
    """A few are named on the first screen; of many the number is said among all statements."""
    grid = PLAN.instance.grid
    more = [grid.nodes[-1].replaced(id=f"x{n}") for n in range(others)]
    plan = PLAN.replaced(instance__grid__nodes=(*grid.nodes, *more))
    assert [(x.text, x.first) for x in statements(plan) if x.text.startswith("Not used")] == [(text, first)]


def test_limits_that_a_layout_fills_are_told() -> None:
    """Batch, memory and deadline are named where less than a hundredth is left of them, and not where a tenth is."""
    m = PLAN.layout.metrics
    for room, told in ((1.001, True), (1.1, False)):
        most = {"max_batch_tokens": m.tokens_per_step * room, "deadline_days": m.days_to_train * room}
        limits = PLAN.instance.limits.replaced(**most)
        own = m.replaced(memory_limit_bytes=m.memory_bytes_per_gpu * room)
        text = said(PLAN.replaced(instance__limits=limits, layout__metrics=own), "limits", first=True)
        deadline = f"Deadline: {m.days_to_train:,.1f} of {m.days_to_train * room:,.1f} days."
        assert [x in text for x in ("Batch: ", "Memory: ", deadline)] == [told] * 3


def test_idle_money_idle_gpus_and_racks_without_a_price_are_warned_of() -> None:
    """Racks without a price are told of within a budget; a plan file without its workload says what it can."""
    spent, half = (PLAN.replaced(instance__limits__budget_usd=PLAN.cost.total_usd * x) for x in (1.001, 2))
    assert "not spent" not in said(spent, "warnings")
    assert "(50 %) is not spent." in said(half, "warnings", first=True)
    x, gpus = PLAN.layout, PLAN.instance.hardware.rack.gpus
    racks = sum(s.racks for s in PLAN.sites.sites)
    alone = edited(PLAN, layout__replicas_per_rack=1, layout__gpus_used=2 * racks, layout__gpus_idle=(gpus - 2) * racks)
    usd = PLAN.cost.capex_usd["racks"] * (gpus - 2) / gpus
    text = f"{gpus - 2} of {gpus} GPUs in each rack are idle (TP {x.tensor_parallel} x CP 1 uses 2): ${usd / 1e6:,.2f}M"
    assert text in said(alone, "warnings", first=True)
    free = edited(PLAN, instance__hardware__rack__price_usd=0.0)
    boundless = free.replaced(instance__limits__budget_usd=None)
    told = [said(plan, "warnings") for plan in (free, PLAN, boundless)]
    assert ["Racks have no price" in text for text in told] == [True, False, False]
    lost = summary(edited(PLAN, instance__workload=None))
    assert "worked" in lost and "Joins" not in lost


def test_money_energy_and_what_is_left_out_are_told() -> None:
    """A total, MWh and joules a token; what the total leaves out, and what a run that outlasts its racks replaces."""
    text = said(run_of(0.5), "money")
    assert "over 182 days" in text and "a million tokens" in text and "J a token" in text and "CO2" not in text
    assert "Excluded" not in text and "To own and run" not in said(PLAN, "money")
    shorter = small(operation=None)
    bare = shorter.replaced(run=cost.section(shorter.instance, 9.0, shorter.cost, 0, shorter.sites))
    assert "Excluded: " in said(bare, "warnings") and "replacement of racks" in said(bare, "warnings")
    replaced = f"replaced: racks twice (${2 * PLAN.cost.capex_usd['racks'] / 1e6:,.2f}M), fabric once"
    assert replaced in said(run_of(11.6), "warnings", first=True)
    assert "racks 5 times" in said(run_of(21), "warnings") and "replaced" not in said(run_of(3.9), "warnings")


@each("unit", [1e-6, 1.0, 1e6])
def test_parts_of_a_step_stand_by_falling_share(unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest first, each with its note; parts of next to nothing are left out, however long the step is."""
    monkeypatch.setattr(decisions.step_prediction, "extrapolations", lambda *_: {"software": "another stack"})
    parts = {"gemm": 60.0, "head": 9.0, "launch": 20.0, "router": 1.0, "residual": 1e-4, "attention": 7.0, "offload": 3}

    def told(parts: dict[str, float]) -> list[str]:
        figures = {"breakdown_seconds": {k: v * unit for k, v in parts.items()}, "step_seconds": 100.0001 * unit}
        metrics = PLAN.layout.metrics.replaced(**figures)
        plan = PLAN.replaced(layout__metrics=metrics)
        found = [x for x in statements(plan) if x.kind == "figure" and x.text.startswith("Step ")]
        assert [(x.first, x.short) for x in found] == [(True, True), (False, False)]
        return [x.text.partition(": ")[2] for x in found]

    four = "60 % matrix products, 20 % kernel launches (extrapolated), 9.0 % embedding and loss, 7.0 % attention"
    assert told(parts) == [f"{four}, 4.0 % in 2 other parts", f"{four}, 3.0 % offload, 1.0 % router"]
    del parts["router"]
    assert told(parts) == [f"{four}, 3.0 % offload"] * 2


@each("reasons", [(), ("more GPUs",), ("more GPUs", "longer sequences", "a larger model")])
def test_extrapolations_take_one_line_of_the_first_screen(reasons, monkeypatch):
    """One reason is given whole; of several the first with the number of the others, all of them beyond the screen."""
    monkeypatch.setattr(verdict.step_prediction, "extrapolations", lambda *_: dict(enumerate(reasons)))
    found = [x for x in statements(PLAN) if x.text.startswith("Step time is extrapolated: ")]
    first = [x.text.partition(": ")[2] for x in found if x.first]
    assert first == {0: [], 1: ["more GPUs."], 3: ["more GPUs, and 2 more (--verbose)."]}[len(reasons)]
    assert [x.text.partition(": ")[2] for x in found if not x.short] == [f"{reason}." for reason in reasons]


WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]


def section(plan: Plan) -> list[str]:
    """Return the statements on days and stops."""
    return [x.text for x in statements(plan) if x.topic == "days"]


@each("ways", WAYS)
def test_parts_sum_to_the_days(ways: tuple[str, ...]) -> None:
    """Parts of a step sum to days of steps, with what is lost to days on a calendar; each part has its row."""
    plan = failing(*ways)
    m, rows = plan.layout.metrics, days_by_part(plan)
    at = [r.name for r in rows].index(STEPS)
    assert sum(r.days for r in rows[:at]) == pytest.approx(m.step_days_to_train, rel=1e-12)
    assert sum(r.days for r in rows if not r.is_sum) == pytest.approx(m.days_to_train, rel=1e-9)
    assert [(r.name, r.days) for r in rows if r.is_sum] == [(STEPS, m.step_days_to_train), (CALENDAR, m.days_to_train)]
    steps = plan.instance.workload.tokens / m.tokens_per_step
    bubble = (m.breakdown_seconds["pipeline_bubble"] + m.breakdown_seconds["chunk_wait"]) * steps / SECONDS_PER_DAY
    assert {r.name: r.days for r in rows}["pipeline bubble"] == pytest.approx(bubble, rel=1e-9)
    assert sorted(key for keys in STEP_PARTS.values() for key in keys) == sorted(m.breakdown_seconds)
    unknown = m.replaced(breakdown_seconds={"gemm": 1.0, "strange": 3.0}, step_seconds=4.0)
    (other,) = [r.days for r in days_by_part(plan.replaced(layout__metrics=unknown)) if r.name == decisions.OTHER]
    assert other == pytest.approx(0.75 * m.step_days_to_train)


@each("ways", WAYS)
def test_days_are_written_with_their_bars(ways: tuple[str, ...]) -> None:
    plan = failing(*ways)
    lines = [line.strip() for line in summary(plan, section="days").splitlines()]
    rows = [re.fullmatch(r"(.+?)\s+([\d.,]+) d\s+([\d.]+) %  ( *)([#=]+)", line) for line in lines]
    bars = [(r[1], float(r[2]), len(r[4]), len(r[4] + r[5]), r[5][0]) for r in rows if r]
    steps, total = (days for _, days, _, _, mark in bars if mark == "=")
    lost = sum(days for _, days, _, _, mark in bars[[b[0] for b in bars].index(STEPS) :] if mark == "#")
    assert steps + lost == pytest.approx(total, abs=0.0005 * len(days_by_part(plan)))
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


def test_where_no_stops_are_stated_it_is_told_why() -> None:
    """Failures are not modelled, or a share that is given stands for them, reliability or not, or a plan lost them."""
    (line,) = [x.text for x in statements(PLAN) if x.topic == "days" and x.kind == "warning"]
    assert line == "Failures not modelled. Set reliability: llama3-2024 to include them."
    plan = small(workload__availability=0.8)
    m = plan.layout.metrics
    days = f"{m.step_days_to_train:.3f} days of steps are {m.days_to_train:.3f} on a calendar: 80 % of the time trains"
    assert section(plan)[1] == f"{days}, as workload.availability says."
    both, lost = small(workload__availability=0.8, reliability=RATES), edited(failing("elastic"), reliability=None)
    assert section(both)[1] == f"{days}, as workload.availability and not reliability says."
    assert section(lost)[1] == "The plan does not say what stops cost, though its instance counts them."


def test_compare_sets_days_of_steps_beside_days_on_a_calendar() -> None:
    """Both figures, the useful share, the stops, the bill and the cost of the run stand in that order."""
    plans = {"without": run_of(1.0), "with": failing("elastic").replaced(run=run_of(10.0).run)}
    found = rows_of([Side(name, figures_of(plan)) for name, plan in plans.items()])
    days, m = "layout.metrics.", plans["with"].layout.metrics
    order = [f"{days}days_to_train", f"{days}step_days_to_train", f"{days}useful_share", "placement.groups"]
    order += ["reliability.recovery", "cost.total_usd", "run.days", "slack.budget_usd"]
    assert [name for name in found if name in order] == order
    both = [found[name] for name in ("reliability.recovery", "reliability.spare_racks_by_site.e1", "run.years")]
    assert both == [[None, "elastic"], [None, 1], [1.0, 10.0]]
    figures = digest(plans["with"])
    lost = sum(v for k, v in figures.items() if k.startswith("reliability.lost_days."))
    assert lost == pytest.approx(m.days_to_train - m.step_days_to_train, rel=1e-9)
    assert figures["run.replacements.racks"] == 2 and figures["run.usd.staff"] == 1e7


@each(("write", "figures", "texts"), [
    (days, (9023.6, 160.57, 9.97, 6.2431, 0.04157), ("9,024", "160.6", "10.0", "6.24", "0.0416")),
    (decisions.short_percent, (0.129, 0.0996, 0.0512, 0), ("13 %", "10 %", "5.1 %", "0.0 %")),
    (decisions.rate, (14_260.0, 100.0, 99.5, 0.8), ("14.3 Tbps", "0.1 Tbps", "99.5 Gbps", "0.8 Gbps")),
    (ratio, (1.05, 6.3, 99.7, 284.0, 994_000.0), ("1.1", "6.3", "100", "280", "990,000")),
    (partial(ratio, digits=3), (99.96, 1234.0), ("100", "1,230")),
    (duration, (0.002, 2.84, 60, 3600, 5838, 172_800), ("2 ms", "2.8 s", "1.0 min", "1.0 h", "1.6 h", "2.0 days")),
    (duration, (4e8,), ("12.7 years",)),
    (storage, (3.47e14, 1e15, 6.4e6), ("347.0 TB", "1.0 PB", "6.4 MB")),
    (memory, (172.2e9, 2.87e6), ("172.2 GB", "2.87 MB")),
    (amount, (28837.4, 999.96, 0.00137512), ("28,837", "1,000", "0.001375")),
    (gap, (1.1e-16, 0.0, 0.0123), ("0 %", "0 %", "1.2 %")),
    (short, (0, 99_999, 250_000, 1.25, 3.2e12, True, None), ("0", "99,999", "250K", "1.25", "3.2T", "True", "none")),
    (partial(shown_days, 14_649), (1.18,), ("1.2",)),
    (partial(shown_days, 39), (0.0363,), ("0.04",)),
    (partial(shown_days, 6.2), (0.008,), ("0.008",)),
])  # fmt: skip
def test_figures_have_as_many_digits_as_a_reader_uses(write, figures, texts):
    """In full from a thousand on, in a unit that suits, without an exponent; of next to nothing nothing is left."""
    assert tuple(map(write, figures)) == texts


LINE = "LAYOUT     used 40.2 %, attention 16.1 %, pipeline bubble 9.1 %, context parallel 6.5 %, recompute 12.7 %"


def test_lines_are_broken_between_words() -> None:
    """Every width keeps all words in their order, set in below the section's name, and numbers by their unit."""
    assert fitted(LINE, None) == LINE  # into a pipe
    for width in range(40, 110):
        lines = fitted(LINE, width).split("\n")
        assert max(map(len, lines)) <= width
        assert " ".join(lines).split() == LINE.split(), width
        started = [line.startswith(" " * (INDENT + HANG)) and not line.lstrip().startswith("%") for line in lines[1:]]
        assert all(started), width
