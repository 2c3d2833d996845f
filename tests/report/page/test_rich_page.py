"""The page of a plan with fibre, a chosen model, scenarios, soft rules, upgrades and simulated transport."""

import json
import math
import re
from typing import get_args

import pytest
from page_cases import agrees, rich
from worked_plan import edited, small

from planner.instance.network import FabricFamily
from planner.report.page.drawings.bars import stacked
from planner.report.page.drawings.fibre_map import at_work, fibre_map
from planner.report.page.drawings.svg import WIDTH
from planner.report.page.page import report_page

FIGURE = re.compile(r'<data data-path="([^"]+)" value="([^"]+)">')


def values_by_path(html: str) -> dict[str, str]:
    """Return the exact values of a page by their paths."""
    return {path: value.replace("&#34;", '"') for path, value in FIGURE.findall(html)}


def test_every_figure_is_the_plans() -> None:
    """Each figure of the page carries the value that stands at its path in the plan."""
    data, shown = json.loads(rich().model_dump_json()), values_by_path(report_page([("rich", rich())]))
    assert len(shown) > 150
    for path, value in shown.items():
        assert agrees(json.loads(value), data, path), path


def test_every_part_is_shown() -> None:
    """No demand, route, span, form, share, scenario, upgrade or excess is left out, and neither are single figures."""
    plan, shown = rich(), values_by_path(report_page([("rich", rich())]))
    assert plan.wan is not None and plan.model_choice is not None and plan.sites is not None and plan.fabric is not None
    paths = {
        f"wan.{k}"
        for k in (
            "protection",
            "exchange",
            "window_seconds",
            "capex_usd",
            "edges[*].wavelengths",
            "edges[*].fibre_pairs",
        )
    }
    paths |= {
        f"wan.forms.{n}.{k}"
        for n, f in enumerate(plan.wan.forms)
        for k in ("link_gbps", "seconds")
        if getattr(f, k) is not None
    }
    for n, d in enumerate(plan.wan.demands):
        paths |= {f"wan.demands.{n}.{k}_gbps" for k in ("requested", "admitted", "missing")}
        paths |= {
            f"wan.demands.{n}.routes.{m}.{k}"
            for m in range(len(d.routes))
            for k in ("route_km", "rtt_ms", "gbps", "backup_rtt_ms")
        }
    paths |= {
        f"wan.edges.{n}.{k}" for n in range(len(plan.wan.edges)) for k in ("wavelengths", "fibre_pairs", "usd_per_year")
    }
    paths |= {f"model_choice.compute_shares.{k}" for k in plan.model_choice.compute_shares}
    paths |= {
        f"model_choice.{k}"
        for k in ("flop", "flop_bound", "parameters", "tokens", "loss", "loss_bound", "batch_tokens")
    }
    paths |= {f"model_choice.ideal.{k}" for k in ("flop", "parameters", "tokens", "loss")}
    paths |= {f"transport.{k}" for k in ("transport", "slowdown", "configured_slowdown")} | {
        f"fabric.sites.{s}.family" for s in plan.fabric.sites
    }
    paths |= {
        "sites.upgrades.0.steps",
        "sites.excess.0.amount",
        "sites.excess.0.usd_per_year",
        "sites.scenarios.dry.energy_usd_per_year",
    }
    paths |= {f"sites.scenarios.dry.running_mw.{x}" for x in plan.sites.scenarios["dry"].running_mw}
    assert paths <= set(shown), sorted(paths - set(shown))


def test_shares_of_the_ideal_fill_the_bar() -> None:
    """The parts of the bar are as wide as their shares, the part in use first, and what is below zero has no mark."""
    plan = rich()
    assert plan.model_choice is not None
    html = report_page([("rich", plan)])
    bar = next(s for s in re.findall(r"<svg.*?</svg>", html) if "Where the compute of the ideal goes" in s)
    drawn = re.findall(r'width="([\d.]+)" height="20" class="c\d"><title>([^:]+): ', bar)
    above = {k: v for k, v in plan.model_choice.compute_shares.items() if v > 0}
    assert [name.replace(" ", "_") for _, name in drawn] == [k.replace(" ", "_") for k in above]
    widths = {name.replace(" ", "_"): float(width) for width, name in drawn}
    for name, value in above.items():
        assert widths[name.replace(" ", "_")] / widths["used"] == pytest.approx(value / above["used"], abs=1e-3)
    assert sum(widths.values()) <= WIDTH


def test_a_part_below_zero_counts_in_the_sum_alone() -> None:
    """A bar with a part below zero stays inside the drawing and shows the sum of all parts."""
    svg = stacked(
        "A bar",
        [("row", {"a": 0.8, "b": 0.4, "c": -0.2}, None)],
        {"a": "c0", "b": "c1", "c": "c2"},
        lambda v: f"{v:.2f}",
    )
    marks = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)]
    assert len(marks) == 2 and max(x + w for x, w in marks) <= WIDTH
    assert ">1.00</text>" in svg


def test_the_map_tells_lit_spans_from_those_for_cuts() -> None:
    """Spans on a route are drawn as such, those that only stand in are dashed, and fibre that is not lit is thin."""
    plan = rich()
    assert plan.wan is not None and plan.sites is not None and plan.instance.wan is not None
    svg, in_us = fibre_map(plan.wan, plan.sites, plan.instance.wan)
    used = at_work(plan.wan)
    backups = {e for d in plan.wan.demands for r in d.routes for e in r.backup_edges or ()}
    assert used and backups - used and in_us
    by_class = {
        cls: {
            title.split(":")[0]
            for c, title in re.findall(r'class="(lit|spare|line)"[^>]*><title>([^<]+)', svg)
            if c == cls
        }
        for cls in ("lit", "spare", "line")
    }
    assert by_class == {"lit": set(used), "spare": backups - used, "line": {"dark-D"}}


def test_fibre_takes_the_place_of_the_links() -> None:
    """Where the wide area is designed the split's estimate of its links is not shown, and else it is."""
    assert "<caption>Links</caption>" not in report_page([("rich", rich())])
    without = report_page([("worked", small())])
    assert "<caption>Links</caption>" in without
    assert not re.search("<h3>(Fibre|The best model|Years|Transport)", without)


def test_fibre_without_a_graph_or_traffic() -> None:
    """Sites joined two by two make a map without cities; a site that trains alone has neither routes nor forms."""
    plan = rich()
    empty = {
        "wan__edges": [],
        "wan__demands": [],
        "wan__forms": [],
        "wan__exchange": None,
        "instance__wan__fibre_edges": [],
    }
    html = report_page([("alone", edited(plan, **empty, instance__wan__fibre_nodes=[]))])
    assert "none: one site trains" in html
    assert "<caption>Forms of the exchange</caption>" not in html


def test_what_is_missing_names_the_full_spans() -> None:
    """A demand that is not carried in full shows how much is missing and where no more can be lit."""
    cut = {
        "wan__demands__1__missing_gbps": 0.5,
        "wan__demands__1__saturated_edges": ["A-B", "D-C"],
        "wan__demands__1__routes": [],
    }
    html = report_page([("short", edited(rich(), **cut))])
    assert "A-B, D-C" in html
    assert math.isclose(float(values_by_path(html)["wan.demands.1.missing_gbps"]), 0.5)


def test_names_of_the_fibre_are_text() -> None:
    """Places and spans are written as text, in drawings too, whatever they hold."""
    plan = json.loads(rich().model_dump_json().replace('"dark', '"<b>dark'))
    html = report_page([("rich", type(rich()).model_validate(plan))])
    assert "<b>" not in html
    assert "&lt;b&gt;dark" in html


@pytest.mark.parametrize("family", get_args(FabricFamily))
def test_every_family_of_fabrics_has_its_words(family: str) -> None:
    """Each family that a plan may hold is described in words; groups are named where there are any."""
    groups = 3 if family.startswith("dragonfly") else 0
    html = report_page(
        [("x", edited(small(), fabric__sites__e1__family=family, fabric__sites__e1__group_links=groups))]
    )
    assert f'data-path="fabric.sites.e1.family" value="&#34;{family}&#34;">{family}: ' in html
    assert ("groups, 3 links between each two" in html) == (groups > 0)
    assert ('data-path="fabric.sites.e1.group_links" value="3"' in html) == (groups > 0)


@pytest.mark.parametrize("columns", [3, 4])
def test_wide_tables_name_each_cell(columns: int) -> None:
    """Cells of tables of more than three columns carry their column's name, for screens that show rows as lists."""
    html = report_page([(f"p{n}", small()) for n in range(columns - 1)])
    table = html.split("<main")[0]
    assert ('class="stack"' in table) == (columns > 3)
    assert ('data-label="p1"' in table) == (columns > 3)
