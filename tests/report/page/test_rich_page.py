"""The page of a plan with fibre, a chosen model, scenarios, soft rules, upgrades and simulated transport."""

import json
import re

import pytest
from each_case import each
from page_cases import MADE, page_of, rich
from worked_plan import edited, small

from planner.report.page.charts import WIDTH
from planner.report.page.page import report_page


def test_the_parts_of_the_argument_in_order() -> None:
    """Where, how a step runs, days with money, the fabric; then what few plans have: scenarios and a chosen model."""
    titles = re.findall("<h3>([^<]+)</h3>", page_of(rich()))
    asked = ["What is built", "Risks", "Where", "How a step runs", "Days, money and power", "Fabric"]
    assert [x for x in titles if x != "Limits"] == [
        *asked, "Years that may come", "The best model for the deadline", "In full",
    ]  # fmt: skip


def test_shares_of_the_ideal_fill_the_bar() -> None:
    """The parts of the bar are as wide as their shares, the part in use first, and what is below zero has no mark."""
    plan = rich()
    assert plan.model_choice is not None
    html = page_of(plan)
    bar = next(s for s in re.findall(r"<svg.*?</svg>", html) if "Where the compute of the ideal goes" in s)
    drawn = re.findall(r'width="([\d.]+)" height="20" class="c\d"><title>([^:]+): ', bar)
    above = {k: v for k, v in plan.model_choice.compute_shares.items() if v > 0}
    assert [name.replace(" ", "_") for _, name in drawn] == [k.replace(" ", "_") for k in above]
    widths = {name.replace(" ", "_"): float(width) for width, name in drawn}
    for name, value in above.items():
        assert widths[name.replace(" ", "_")] / widths["used"] == pytest.approx(value / above["used"], abs=1e-3)
    assert sum(widths.values()) <= WIDTH


def test_fibre_without_a_graph_or_traffic() -> None:
    """Sites joined two by two make a map without cities; a site that trains alone has neither routes nor forms."""
    empty = {"wan__edges": [], "wan__demands": [], "wan__forms": [], "wan__exchange": None}
    alone = edited(rich(), **empty, instance__wan__fibre_edges=[], instance__wan__fibre_nodes=[])
    html = page_of(alone)
    assert "<title>Map of the sites: e1" in html
    assert "WAN: forms" not in html and "WAN: forms" in page_of(rich())


def test_what_is_missing_names_the_full_spans() -> None:
    """A demand that is not carried in full shows how much is missing and where no more can be lit, and is a risk."""
    cut = {
        "wan__demands__1__missing_gbps": 0.5,
        "wan__demands__1__saturated_edges": ["A-B", "D-C"],
        "wan__demands__1__routes": [],
    }
    html = page_of(edited(rich(), **cut))
    assert 'data-path="wan.demands.1.missing_gbps" value="0.5"' in html
    assert "full: A-B, D-C" in html.split("<h3>Where</h3>")[0]


def test_names_of_the_fibre_are_text() -> None:
    """Places and spans are written as text, in drawings too, whatever they hold."""
    plan = json.loads(rich().model_dump_json().replace('"dark', '"<b>dark'))
    html = page_of(type(rich()).model_validate(plan))
    assert "<b>" not in html
    assert "&lt;b&gt;dark" in html


@each("columns", [3, 4])
def test_wide_tables_name_each_cell(columns: int) -> None:
    """Cells of tables of more than three columns carry their column's name, for screens that show rows as lists."""
    html = report_page([(f"p{n}", small()) for n in range(columns - 1)], MADE)
    table = html.split("<main")[0]
    assert ('class="stack"' in table) == (columns > 3)
    assert ('data-label="p1"' in table) == (columns > 3)
