"""The page of plans: what it shows is what is in the plan."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_cases import agrees, infeasible
from worked_plan import edited, small

from planner.cli.commands.report import report
from planner.cluster.hostlist import fold
from planner.errors import InputError
from planner.plan.placement import Assignment
from planner.report.page.drawings.leaf_domains import by_pieces, kinds_of
from planner.report.page.drawings.pipeline import pipeline
from planner.report.page.page import report_page
from planner.units import amount, gap, memory, money


class Figures(HTMLParser):
    """Collects the figures of a page: path and exact value, by plan."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.plan, self.figures, self.svgs, self.named = -1, [], 0, 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag carries."""
        attributes = dict(attrs)
        if tag == "section":
            self.plan = int(attributes["data-plan"] or 0)
        if tag == "data":
            self.figures.append((self.plan, attributes["data-path"], attributes["value"]))
        self.svgs += tag == "svg"
        self.named += tag == "title" and self.plan >= 0


def test_every_figure_is_the_plans() -> None:
    """Each figure of the page carries the value at its path in the plan, and the key figures are among them."""
    plan = small()
    data = json.loads(plan.model_dump_json())
    page = Figures(report_page([("worked", plan)]))
    for _, path, value in page.figures:
        assert agrees(json.loads(value), data, path), path
    paths = {path for _, path, _ in page.figures}
    assert {
        "cost.total_usd",
        "layout.metrics.days_to_train",
        "sites.sites[*].facility_mw",
        "layout.gpus_used",
        "fabric.sites[*].switches",
    } <= paths
    m = plan.layout.metrics
    assert {
        f"layout.metrics.breakdown_seconds.{k}" for k, v in m.breakdown_seconds.items() if v > 1e-3 * m.step_seconds
    } <= paths
    assert {f"{k}.certificate.objective" for k in ("sites", "layout", "fabric", "placement")} <= paths


def test_shown_text_agrees_with_the_value() -> None:
    """What is read beside a value is that value, rounded."""
    html = report_page([("worked", small())])
    shown = re.findall(r'<data data-path="layout\.metrics\.days_to_train" value="([^"]+)">([^<]+)</data>', html)
    assert shown
    assert all(text == f"{float(value):,.1f} days" for value, text in shown)
    for value, text in re.findall(r'<data data-path="cost\.[^"]+" value="([^"]+)">([^<]+)</data>', html):
        assert text == money(float(value))


def test_every_picture_is_described() -> None:
    """Each drawing has a role and a first child that says what it shows."""
    html = report_page([("worked", small())])
    pictures = re.findall(r'<svg viewBox="[^"]+" role="img" xmlns="[^"]+"><title>([^<]{10,})</title>', html)
    assert len(pictures) == html.count("<svg") >= 9
    assert any(p.startswith("Map of the sites: e1 at 40.0, -76.0") for p in pictures)


def test_page_asks_for_nothing() -> None:
    """No source, import or address to load from stands in the page, and its own policy forbids any."""
    html = report_page([("worked", small())])
    assert 'content="default-src &#39;none&#39;;' in html
    assert not re.search(r"<script|<img|<iframe|@import|url\(|\ssrc=", html)
    assert set(re.findall(r'href="([^"]*)"', html)) == {"data:,"}


def test_same_plan_same_page() -> None:
    """The page depends on the plan alone."""
    assert report_page([("worked", small())]) == report_page([("worked", small())])


def test_plans_side_by_side() -> None:
    """Several plans are sections of their own, numbered where they share a name, and stand in one table."""
    slow = edited(small(), layout__metrics__days_to_train=99.0)
    html = report_page([("plan", small()), ("plan", slow)])
    assert {p for p, _, _ in Figures(html).figures} == {0, 1}
    assert html.count('<section class="plan"') == 2
    assert 'href="#plan-plan-1"' in html
    assert "99.0 days" in html.split("<main")[0]


def test_names_are_text() -> None:
    """A plan's names are written as text, whatever they hold."""
    html = report_page([("<script>alert(1)</script>", edited(small(), instance__name="a<b>&c"))])
    assert "<script" not in html
    assert "a&lt;b&gt;&amp;c" in html


def test_conflict_page() -> None:
    """An infeasible plan's page names the reason, each rule, and what the grid offers."""
    html = report_page([("none", infeasible())])
    assert "No plan: the grid is too small" in html
    assert "<code>headroom[EAST]</code>" in html
    assert 'data-path="instance.grid.balancing_authorities.0.headroom_mw" value="1.5"' in html
    assert 'class="cards"' not in html


def test_parts_that_were_not_asked_for_are_left_out() -> None:
    """A layout alone makes a page without sites, fabric and placement."""
    bare = edited(
        small(),
        sites=None,
        fabric=None,
        placement=None,
        cost=None,
        instance__grid=None,
        instance__wan=None,
        instance__network=None,
    )
    html = report_page([("bare", bare)])
    assert "<h3>Layout</h3>" in html
    assert not re.search("<h3>(Sites|Power and cost|Fabric|Placement)", html)


def test_sites_beyond_the_outline_have_a_plain_map() -> None:
    """Places outside the 48 states are drawn without the outline, and the page says so."""
    abroad = edited(small(), **{"sites__sites__0__latitude": -33.0, "sites__sites__0__longitude": 151.0})
    html = report_page([("abroad", abroad)])
    assert 'class="coast"' not in html
    assert "beyond the outline" in html


PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=12)


@given(PIECES, st.integers(2, 9))
def test_leaf_domains_hold_every_rack_once(pieces: list[tuple[int, int]], per_leaf: int) -> None:
    """Kinds of leaf domains, each times its count, hold all racks, pieces and domains of the site."""
    assignment, rack = [], 0
    for stage, count in pieces:
        todo = list(range(rack, rack + count))
        for leaf in sorted({r // per_leaf for r in todo}):
            hosts = fold(r for r in todo if r // per_leaf == leaf)
            assignment.append(Assignment(stage=stage, leaf_domain=leaf, racks=hosts))
        rack += count
    racks = rack + 3
    kinds = kinds_of(assignment, racks=racks, leaf_domain_racks=per_leaf)
    assert sum(k.domains for k in kinds) == -(-racks // per_leaf)
    assert sum(k.domains * (k.whole + k.pieces) for k in kinds) == len(assignment)
    assert sum(k.domains * (k.whole_racks + k.piece_racks) for k in kinds) == rack
    assert sum(k.domains * k.idle_racks for k in kinds) == 3
    assert sum(n * c for n, c in by_pieces(assignment).items()) == len(assignment)
    assert sum(k.domains * k.whole for k in kinds) == by_pieces(assignment).get(1, 0)


def test_racks_that_a_plan_claims_are_counted_not_walked_through() -> None:
    """A quadrillion of them, one domain in use and the last one smaller: three kinds, and at once."""
    racks, assignment = 10**15 + 3, [Assignment(stage=0, leaf_domain=7, racks="r[70-73]")]
    kinds = kinds_of(assignment, racks=racks, leaf_domain_racks=10)
    assert [(k.domains, k.whole_racks, k.idle_racks) for k in kinds] == [(10**14 - 1, 0, 10), (1, 0, 3), (1, 4, 6)]


def test_without_jinja2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where jinja2 is not installed, the message says which extra has it."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InputError, match="install the extra `report`"):
        report_page([("worked", small())])


def test_command(tmp_path: Path) -> None:
    """The command reads plan files and writes the page; a wrong ending or file is named."""
    plan = tmp_path / "plan.json"
    plan.write_text(small().model_dump_json())
    report([plan], tmp_path / "a.html")
    assert "<title>Plan: plan</title>" in (tmp_path / "a.html").read_text()
    with pytest.raises(InputError, match=r"must end in \.html"):
        report([plan], tmp_path / "a.pdf")
    with pytest.raises(InputError, match=r"none\.json"):
        report([tmp_path / "none.json"], tmp_path / "b.html")
    assert not (tmp_path / "b.html").exists()


def test_figures_read_well() -> None:
    """Thousands stand in full, memory in its own unit, and what rounding leaves of a gap is none."""
    assert [amount(x) for x in (28837.4, 999.96, 0.00137512)] == ["28,837", "1,000", "0.001375"]
    assert [memory(x) for x in (172.2e9, 2.87e6)] == ["172.2 GB", "2.87 MB"]
    assert [gap(x) for x in (1.1e-16, 0.0, 0.0123)] == ["0 %", "0 %", "1.2 %"]


@pytest.mark.parametrize(
    ("choice", "listed", "dark"), [("full", (), [4, 4]), ("full", (3, 0), [3, 0]), ("selective", (), [0, 0])]
)
def test_pipeline_shows_what_runs_again(choice: str, listed: tuple[int, ...], dark: list[int]) -> None:
    """Stages show their recomputed layers: as listed, else all under full recompute and none under another."""
    drawn = pipeline(edited(small(), layout__recompute=choice, layout__recomputed_layers_per_stage=list(listed)).layout)
    for stage, count in enumerate(dark):
        assert (f"stage {stage}: 4 layers, {count} recomputed" in drawn) == (count > 0)


def test_stages_are_those_that_are_listed() -> None:
    """A plan that names more stages than it lists is drawn with those listed."""
    drawn = pipeline(edited(small(), layout__pipeline_parallel=10**9, layout__layers_per_stage=[2, 3]).layout)
    assert "stage 1: 3 layers" in drawn


def test_many_equal_stages_are_one_mark() -> None:
    """A pipeline of thousands of stages is drawn in a few marks."""
    many = edited(small(), layout__pipeline_parallel=5000, layout__layers_per_stage=[2] * 4000 + [1] * 1000)
    drawn = pipeline(many.layout)
    assert drawn.count("<rect") == 4
    assert "stages 4000 to 4999: 1 layers" in drawn
