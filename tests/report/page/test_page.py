"""The page of plans, all parts of them: what it says is what the plan says, and what it shows is what the plan has."""

import json
import re
from collections.abc import Callable
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from curves import POINTS, curve
from failing_plan import failing
from page_cases import MADE, infeasible, page_of, rich
from worked_plan import edited, small

import planner
from planner.cli.plan_commands import report
from planner.errors import InputError
from planner.imports.command_options import FabricWish
from planner.imports.fabric_question import fabric_data
from planner.plan.certificate import Violation
from planner.plan.plan import Plan
from planner.report.decisions import name_of_part
from planner.report.page.charts import WIDTH
from planner.report.page.page import NOT_SHOWN, PARTS, report_page
from planner.report.summary import statements
from planner.report.verdict import USED
from planner.units import money


def with_curve(at: int = 1, **changes: Any) -> Plan:
    """Return a plan that holds a curve of which it is a point."""
    drawn = curve(**changes)
    points = tuple(x.replaced(asked=n == at) for n, x in enumerate(drawn.points))
    return small().replaced(curve=drawn.replaced(points=points))


PLANS: dict[str, Callable[[], Plan]] = {
    "small": small, "rich": rich, "restart": lambda: failing("restart"),
    "failing": lambda: failing("restart", "warm-spares", "elastic"), "none": infeasible, "curve": with_curve,
}  # fmt: skip


def figures_of(html: str) -> list[tuple[str, str]]:
    """Return the path and the exact value of each figure of a page."""
    return [(path, unescape(value)) for path, value in re.findall(r'<data data-path="([^"]+)" value="([^"]*)"', html)]


def leaves(value: Any, path: str) -> set[str]:
    """Return the paths of all figures and texts in a part of a plan; a list of them is one."""
    if isinstance(value, list) and not any(isinstance(x, dict) for x in value):
        return set()
    if not isinstance(value, (dict, list)):
        return set() if value in (None, "") else {path}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return {p for k, v in pairs if k not in NOT_SHOWN for p in leaves(v, f"{path}.{k}")}


@pytest.mark.parametrize("name", PLANS)
def test_all_that_the_plan_says_is_on_the_page(name: str) -> None:
    """No statement is left out, those of the first screen come first; no source or address to load is there."""
    plan = PLANS[name]()
    html, said = page_of(plan), statements(plan)
    assert 'content="default-src &#39;none&#39;;' in html
    assert not re.search(r"<script|<img|<iframe|@import|url\(|\ssrc=", html)
    assert set(re.findall(r'href="([^"]*)"', html)) == {"data:,"}
    text = unescape(html)
    screen = text.partition("<summary>")[0]
    assert [x.text for x in said if x.text not in text] == []
    kinds = {x.kind for x in said}
    assert {"limit"} <= kinds if plan.conflict else {"warning", "verdict"} <= kinds
    for x in said:
        if x.first and x.kind in ("limit", "warning"):
            assert x.text.replace("(--verbose)", "(below, in full)") in screen


def test_the_first_screen() -> None:
    """One sentence says what is bought, trained when and how sure; one that is not verified says so before all."""
    plan = small()
    html = page_of(plan)
    screen = html.partition("<h3>Where</h3>")[0]
    (sentence,) = re.findall(r'<p class="verdict">([^<]+)</p>', screen)
    bought = r"Buys 14 racks .* at 2 sites for \$32.93M \(budget \$34.00M\)"
    assert re.fullmatch(rf"{bought}; trains in .* days \(likely .*\); .*\.", sentence) and sentence.count(". ") == 0
    assert "Page made on 24 November 2026" in screen and page_of(plan) == html and "Plans side by side" not in html
    values = re.findall(r'<dd class="value"><data data-path="([^"]+)"', screen)
    assert values == ["layout.metrics.days_to_train", "cost.total_usd", "layout.metrics.mfu"]
    m = plan.layout.metrics
    low, high = (m.mfu * m.days_to_train / x for x in reversed(m.days_to_train_interval))
    assert f"likely {100 * low:.0f} % to {100 * high:.0f} %" in screen
    assert f"of a budget of {money(34e6)}, {money(34e6 - plan.cost.total_usd)} left" in screen
    wrong = plan.replaced(verified=False, violations=(Violation(rule="bill", message="stated $2, recomputed $3"),))
    assert "NOT VERIFIED" not in html and "NOT VERIFIED" in page_of(wrong).partition('class="verdict')[0]


@pytest.mark.parametrize("name", PLANS)
def test_every_figure_is_the_plans(name: str) -> None:
    """Each figure of the page carries the value at its path in the plan, and no figure of its parts is left out."""
    plan = PLANS[name]()
    data, shown = json.loads(plan.model_dump_json()), figures_of(page_of(plan))
    for path, text in shown:
        value, own = json.loads(text), data
        for key in path.split("."):
            own = own[int(key)] if isinstance(own, list) else own[key]
        assert (type(value), value) == (type(own), own), path
    parts = dict.fromkeys(PARTS, data)
    for path in PARTS:
        for key in path.split("."):
            parts[path] = (parts[path] or {}).get(key)
    expected = {p for path, value in parts.items() for p in leaves(value, path)}
    missing = expected - {path for path, _ in shown}
    assert {p for p in missing if "days_by_flop" not in p} == set()


def test_texts_are_of_the_values_and_every_picture_is_described() -> None:
    """A figure's text is that of its value; each drawing has a role and a first child that says what it shows."""
    html = page_of(small())
    for value, text in re.findall(r'<data data-path="cost\.[^"]+_usd[^"]*" value="([^"]+)">([^<]+)</data>', html):
        assert text.removesuffix(" a year") == money(float(value))
    assert re.search(r'path="layout\.metrics\.mfu" value="[\d.]+">\d+\.\d %<', html)
    assert re.search(r'path="layout\.sequence_parallel" value="true">yes<', html)
    pictures = re.findall(r'<svg viewBox="[^"]+" role="img" xmlns="[^"]+"><title>([^<]{10,})</title>', html)
    assert len(pictures) == html.count("<svg") >= 7
    assert any(p.startswith("Map of the sites: e1 at 40.0, -76.0") for p in pictures)


def test_plans_side_by_side() -> None:
    """Verdicts come first, then a table whose cells carry their column's name, then sections in their own places."""
    slow = edited(small(), layout__metrics__days_to_train=99.0)
    html = report_page([("plan", small()), ("plan", slow), ("none", infeasible())], MADE)
    head, *sections = html.split('<section class="plan"')
    assert len(sections) == 3 and all(figures_of(part) for part in sections)
    head = head.split("<main")[0]
    assert re.findall(r'href="#([^"]+)"', head) == re.findall(r'<section class="plan" id="([^"]+)"', html)
    assert head.index("trains in 99.0 days") < head.index("<caption>Plans side by side</caption>")
    assert head.index("No plan: the grid is too small") < head.index("<caption>")
    assert "99.0 days; likely" in head and '<th scope="row" role="rowheader" data-label="">limits</th>' in head
    assert 'class="stack"' in head and all(f'data-label="{name}"' in head for name in ("plan (1)", "plan (2)", "none"))
    for names in (("a.b", "a-b"), ("計画", "план")):  # they differ in other signs than Latin letters and digits alone
        html = report_page([(name, small()) for name in names], MADE)
        assert len(set(re.findall(r'<section class="plan" id="([^"]+)"', html))) == 2
        assert 'class="stack"' not in html.split("<main")[0]  # three columns fit


def test_names_are_text() -> None:
    """Names of plans, instances, places and spans are written as text, in drawings too, whatever they hold."""
    html = report_page([("<script>alert(1)</script>", edited(small(), instance__name="a<b>&c"))], MADE)
    assert "<script" not in html and "a&lt;b&gt;&amp;c" in html
    html = page_of(Plan.model_validate_json(rich().model_dump_json().replace('"dark', '"<b>dark')))
    assert "<b>" not in html and "&lt;b&gt;dark" in html


def test_parts_that_were_not_asked_for_are_left_out() -> None:
    """A layout alone makes a page without sites, fabric and placement; where there is no plan no figure comes first."""
    gone = "sites", "fabric", "placement", "cost", "instance__grid", "instance__wan", "instance__network"
    html = page_of(edited(small(), **dict.fromkeys(gone)))
    assert "<h3>How a step runs</h3>" in html
    assert not re.search("<h3>(Where|Fabric)|Figures: (sites|fabric|placement|cost)", html)
    none = page_of(infeasible())
    assert "<caption>What each place could hold at most with all lines built</caption>" in none
    assert 'class="headline"' not in none


def test_sites_beyond_the_outline_have_a_plain_map() -> None:
    """Places outside the 48 states are drawn without the outline, which is said; a link to no place is refused."""
    html = page_of(edited(small(), sites__sites__0__latitude=-33.0, sites__sites__0__longitude=151.0))
    assert 'class="coast"' not in html and "beyond the outline" in html
    with pytest.raises(InputError, match="'nowhere' is no site of the plan"):
        page_of(edited(small(), sites__links__0__a="nowhere"))


def test_command(tmp_path: Path) -> None:
    """The command reads plan files and writes the page with today's date; a wrong ending or file is named."""
    plan = tmp_path / "plan.json"
    plan.write_text(small().model_dump_json())
    report([plan], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<title>Plan: plan</title>" in page and f"{date.today():%B %Y}." in page
    for file, output, told in ((plan, "a.pdf", r"must end in \.html"), (tmp_path / "none.json", "b.html", "none.json")):
        with pytest.raises(InputError, match=told):
            report([file], tmp_path / output)
        assert not (tmp_path / output).exists()


def test_a_curve_is_drawn_and_tabulated() -> None:
    """The page of a plan that holds a curve has each point in a table, its own marked, the knee and what is proven."""
    page = page_of(with_curve())
    block = page.partition("<h3>Money against days</h3>")[2].partition("<h3>")[0]
    assert block.count("<figure>") == 1 and "no plan is below, proven" in block
    (table,) = re.findall(r"<tbody.*?</tbody>", block, flags=re.DOTALL)
    assert table.count("<tr") == 4 and "this plan, knee" in table and "ZeRO-3" in table
    assert "Knee: $2.00B" in unescape(block) and "a row is within 9.9 %" in block
    assert "Money against days" not in page_of(small())
    alone = page_of(with_curve(0, points=(POINTS[0],))).partition("<h3>Money against days</h3>")[2]
    assert "<figure>" not in alone.partition("<h3>")[0] and "$1.00B" in alone.partition("<h3>")[0]


def test_the_parts_of_the_argument_in_order() -> None:
    """Where, how a step runs, days with money, the fabric; then what few plans have: scenarios and a chosen model."""
    titles = re.findall("<h3>([^<]+)</h3>", page_of(rich()))
    every = ["What is built", "Risks", "Where", "How a step runs", "Days, money and power", "Fabric"]
    assert [x for x in titles if x != "Limits"] == [
        *every,
        *("Years that may come", "The best model for the deadline", "In full"),
    ]


def test_a_fabric_alone_is_what_was_chosen() -> None:
    """Built is the chosen fabric, with what it carries, its tails and what it survives; other kinds have their list."""
    wish = FabricWish(hosts=16, gpus_per_host=1, nic_gbps=400, switch=["16x400:9000:300"], max_tiers=2)
    plan = planner.design_fabric(fabric_data(wish))
    assert plan.fabric is not None
    chosen, *others = (x.name for x in plan.fabric.alternatives if x.fabric is not None)
    lists = dict(re.findall(r"<h3>([^<]+)</h3>\n<ul>(.*?)</ul>", unescape(page_of(plan)), re.S))
    built = lists["What is built"]
    for words in (f"{chosen}: ", "Tb/s between two halves", "under ECMP", "Survives the loss of", "GPU ports"):
        assert words in built, words
    assert others and all(f"<li>{name}: " in lists["Other kinds"] and f"{name}: $" not in built for name in others)


def test_shares_of_the_ideal_fill_the_bar() -> None:
    """The parts of the bar are as wide as their shares, the part in use first, and what is below zero has no mark."""
    plan = rich()
    assert plan.model_choice is not None
    html = page_of(plan)
    bar = next(s for s in re.findall(r"<svg.*?</svg>", html) if "Where the compute of the ideal goes" in s)
    drawn = re.findall(r'width="([\d.]+)" height="20" class="c\d"><title>([^:]+): ', bar)
    above = {USED.get(k) or name_of_part(k): v for k, v in plan.model_choice.compute_shares.items() if v > 0}
    assert [name for _, name in drawn] == list(above)
    widths, used = {name: float(width) for width, name in drawn}, USED["used"]
    for name, value in above.items():
        assert widths[name] / widths[used] == pytest.approx(value / above[used], abs=1e-3)
    assert sum(widths.values()) <= WIDTH


def test_the_wide_area_as_far_as_there_is_one() -> None:
    """Without fibre there are no routes and forms; what is missing is a risk; a list too long to look at is cut."""
    empty = {"wan__edges": [], "wan__demands": [], "wan__forms": [], "wan__exchange": None}
    html = page_of(edited(rich(), **empty, instance__wan__fibre_edges=[], instance__wan__fibre_nodes=[]))
    assert "<title>Map of the sites: e1" in html and "WAN: forms" not in html
    cut = {"missing_gbps": 0.5, "saturated_edges": ["A-B", "D-C"], "routes": []}
    changes: dict[str, Any] = {f"wan__demands__1__{key}": value for key, value in cut.items()}
    edge = json.loads(rich().wan.edges[0].model_dump_json())
    html = page_of(edited(rich(), **changes, wan__edges=[edge | {"id": f"x{n}"} for n in range(200)]))
    assert "WAN: forms" in html and "140 more are in the plan" in html
    assert 'data-path="wan.demands.1.missing_gbps" value="0.5"' in html
    assert "full: A-B, D-C" in html.split("<h3>Where</h3>")[0]
