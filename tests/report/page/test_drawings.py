"""The pictures of a page: each is to scale, and what it draws is the plan's."""

import re
from itertools import combinations, pairwise

import pytest
from each_case import each
from failing_plan import failing
from hypothesis import given
from hypothesis import strategies as st
from page_cases import infeasible, page_of, rich
from worked_plan import edited, instance_with, small, worked

from planner.plan.plan_sections import LayoutPlan
from planner.report.decisions import STEP_PARTS, DaysPart
from planner.report.page import charts
from planner.report.page.charts import HIGH, WIDTH, pieces, schedule, stacked, stages, width_of
from planner.report.page.drawings import Label, labels, plan_map
from planner.report.page.page import days_money_and_power, how_a_step_runs, stops, where
from planner.report.summary import summary

RECT = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="(\w+)"><title>([^<]*)<')
BARS = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="13" class="(\w+)"')
WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]
SCHEDULES = st.fixed_dictionaries(
    {
        "pipeline_parallel": st.integers(1, 300), "virtual_stages": st.integers(1, 8), "per_stage": st.integers(1, 9),
        "bubble": st.floats(0, 9), "gemm": st.floats(0.1, 9), "tail": st.floats(0, 2),
    }
)  # fmt: skip


def layout_of(x: dict[str, float]) -> LayoutPlan:
    """Return the worked layout with other counts and parts of its step."""
    own, stages = small().layout, int(x["pipeline_parallel"])
    parts = {
        "gemm": x["gemm"], "tensor_parallel": x["gemm"] / 4, "pipeline_bubble": x["bubble"] if stages > 1 else 0.0,
        "chunk_wait": x["bubble"] / 8 if stages > 1 else 0.0, "data_parallel": x["tail"], "optimizer": x["tail"] / 3,
    }  # fmt: skip
    counts = {"pipeline_parallel": stages, "virtual_stages": int(x["virtual_stages"])}
    metrics = own.metrics.replaced(breakdown_seconds=parts, step_seconds=sum(parts.values()))
    return own.replaced(metrics=metrics, layers_per_stage=(int(x["per_stage"]),) * stages, **counts)


@given(SCHEDULES)
def test_every_stage_takes_the_step_and_waits_for_the_same_bubble(x: dict[str, float]) -> None:
    layout, last = layout_of(x), int(x["pipeline_parallel"]) - 1
    for stage in {0, min(1, last), last // 2, last}:
        found = list(pieces(layout, stage))
        assert sum(s for _, s in found) == pytest.approx(layout.metrics.step_seconds)
        assert all(s >= -1e-12 for _, s in found)
        bubble = sum(s for kind, s in found if kind == "bubble")
        parts = layout.metrics.breakdown_seconds
        assert bubble == pytest.approx(parts["pipeline_bubble"] + parts["chunk_wait"], abs=1e-9)


@each("virtual_stages", [1, 2, 4])
def test_the_first_stage_waits_in_the_drain_for_passes_of_chunks(virtual_stages: int) -> None:
    """Of four stages three are behind the first: a backward pass each, of as many layers as a chunk has."""
    shape = {"pipeline_parallel": 4, "virtual_stages": virtual_stages, "per_stage": 8}
    layout = layout_of({**shape, "bubble": 9, "gemm": 9, "tail": 1})
    _, _, (kind, drain), *_ = pieces(layout.replaced(metrics__allreduce_window_seconds=0.1), 0)
    assert (kind, drain) == ("bubble", pytest.approx(3 * 0.1 * 8 / virtual_stages))


def test_the_schedule_is_to_scale() -> None:
    """Each bar is as long as its seconds, exposed exchange as large as its share of the passes, rows end together."""
    layout = layout_of({"pipeline_parallel": 8, "virtual_stages": 1, "per_stage": 1, "bubble": 2, "gemm": 4, "tail": 1})
    rects = [(float(x), float(y), float(w), float(h), c, t) for x, y, w, h, c, t in RECT.findall(schedule("", layout))]
    rows = {t.split(",")[0] for *_, t in rects}
    assert rows == {f"stage {n}" for n in (0, 1, 3, 4, 6, 7)}
    for row in rows:
        own = [r for r in rects if r[5].startswith(f"{row},")]
        assert max(x + w for x, _, w, *_ in own) == pytest.approx(WIDTH, abs=0.2)
    area = {c: sum(w * h for *_, w, h, cls, _ in [r[:6] for r in rects] if cls == c) for c in ("c0", "c5")}
    assert area["c5"] / area["c0"] == pytest.approx(0.2, abs=0.01)
    wide = {c: sum(r[2] for r in rects if r[4] == c) for c in ("c4", "c3")}
    assert wide["c3"] / wide["c4"] == pytest.approx(1 / 2.25, abs=0.02)


def test_pools_have_a_schedule_each() -> None:
    """A plan of pools draws the step of every pool; a plan that is none draws no step."""
    plan = small()
    pools = {
        "sequences": {"a": 3, "b": 1}, "layouts": dict.fromkeys("ab", plan.layout.model_dump(mode="json")),
        "exchange_seconds": {"a": 0.1, "b": 0.1}, "step_seconds": 2.0, "tokens_per_step": 100.0, "days_to_train": 1.0,
        "days_to_train_interval": (0.9, 1.2), "certificate": plan.layout.certificate.model_dump(mode="json"),
    }  # fmt: skip
    both = edited(plan, layout=None, pools=pools)
    assert [p.caption.split(":")[0] for p in how_a_step_runs(both)] == ["a", "b"]
    assert 'data-path="pools.step_seconds" value="2.0"' in page_of(both).split("<h3>Where")[0]
    assert "a: 3 sequences (75 %)" in summary(both) and "b: 1 sequences (25 %)" in summary(both)
    assert list(how_a_step_runs(infeasible())) == []


def test_memory_of_stages_is_to_scale_and_merged() -> None:
    """Equal neighbours are one bar, each part is as high as its bytes, and recomputed layers are named."""
    one, two = (4, 2, {"state": 30.0, "logits": 10.0}), (3, 0, {"state": 50.0})
    svg = stages([one] * 4000 + [two] * 1000, 100.0)
    found = [(float(h), float(w), c, t) for _, _, w, h, c, t in RECT.findall(svg)]
    heights = {t.split(" of ")[0]: h / HIGH for h, _, _, t in found}
    assert heights == {
        "stages 0 to 3999: 4 layers, 2 recomputed; model states 3e-05 MB": pytest.approx(0.3, abs=1e-3),
        "stages 0 to 3999: 4 layers, 2 recomputed; logits 1e-05 MB": pytest.approx(0.1, abs=1e-3),
        "stages 4000 to 4999: 3 layers; model states 5e-05 MB": pytest.approx(0.5, abs=1e-3),
    }
    assert found[0][1] / found[2][1] == pytest.approx(4, abs=0.1)


def test_the_fullest_stage_is_the_plans() -> None:
    """The highest bar is the plan's worst GPU; full names layers that run again; stages without layers are left out."""
    plan = small()
    for choice in ("full", "selective"):
        _, picture = how_a_step_runs(edited(plan, layout__recompute=choice))
        assert ("recomputed;" in picture.svg) == (choice == "full")
    _, picture = how_a_step_runs(plan)
    assert f"fullest {plan.layout.metrics.memory_bytes_per_gpu / 1e6:,.3g} MB" in picture.svg
    (picture,) = how_a_step_runs(edited(plan, layout__pipeline_parallel=10**9, layout__layers_per_stage=[2, 3]))
    assert "Schedule of one step" in picture.svg


def why(plan: object) -> dict[str, tuple[str, ...]]:
    """Return the rows of the places that are not open, by name."""
    _, *tables = where(plan)
    return {name: row[1:] for table in tables for row in table.rows for name in row[0].split(", ")}


def test_places_that_are_not_open_say_why() -> None:
    """Each has the least of its limits, and a reason that plan and question hold: sites in number, size, time, use."""
    nodes = instance_with().grid.model_dump(mode="json")["nodes"]
    more = [nodes[2] | {"id": name, "area_m2": area} for name, area in (("w3", 90.0), ("w4", 600.0))]
    more.append(nodes[0] | {"id": "e3", "area_m2": None, "ready_months": 9.0})
    own = {"grid__nodes": [*nodes, *more], "grid__rules__interconnect__enabled": False}
    own |= {"grid__rules__min_site_modules": 1}
    plan = worked(instance_with(**own, grid__rules__ready_within_months=6))
    assert why(plan) == {
        "e3": ("0.3", "headroom of EAST", "ready in 9 months, asked for within 6"),
        "w2": ("0.3", "headroom of WEST", "2 sites at most"),
        "w4": ("0.3", "headroom of WEST", "2 sites at most"),
        "w3": ("0.18", "land for cooling", "too little: a site takes 300 kW or more"),
    }
    free = worked(instance_with(**own, grid__rules__max_sites=None))
    assert why(free)["w4"][2] == "left out by the best split that was found"
    limited = edited(free, objective__limited_by="layout")
    assert why(limited)["w4"][2] == "not needed: more racks would not train faster"
    none = why(infeasible())
    assert none == {"e1": ("1.5", "headroom of EAST"), **dict.fromkeys(("w1", "w2"), ("1.2", "headroom of WEST"))}


def test_the_map_tells_lit_spans_from_those_for_cuts() -> None:
    """Spans on a route are drawn as such, those that only stand in are dashed, and fibre that is not lit is thin."""
    plan = rich()
    svg, in_us = plan_map(plan, plan.instance.grid)
    used = {e for d in plan.wan.demands for r in d.routes for e in r.edges}
    backups = {e for d in plan.wan.demands for r in d.routes for e in r.backup_edges or ()}
    assert used and backups - used and in_us
    found = re.findall(r'class="(lit|spare|line)"[^>]*><title>([^<:]+)', svg)
    by_class = {cls: {title for c, title in found if c == cls} for cls in ("lit", "spare", "line")}
    assert by_class == {"lit": used, "spare": backups - used, "line": {"dark-D"}}
    rate = next(d.routes[0].gbps for d in plan.wan.demands if d.priority == 0)
    assert f"km, {rate / 1e3:,.4g} Tbps</text>" in svg
    svg, _ = plan_map(small(), small().instance.grid)
    (link,) = small().sites.links
    assert f"{link.route_km:,.0f} km, {link.capacity_gbps / 1e3:,.4g} Tbps</text>" in svg


@each("plan", [small(), small(workload__availability=0.8), failing("elastic")])
def test_the_waterfall_joins_and_ends_at_the_days(plan: object) -> None:
    """Each bar begins where the one before it ends, sums begin at 0, and the last is the plan's days to train."""
    picture, *_ = days_money_and_power(plan)
    bars = [(float(x), float(w), c) for x, _, w, h, c, _ in RECT.findall(picture.svg) if h == "13"]
    sums = [b for b in bars if b[2] == "rest"]
    m = plan.layout.metrics
    assert bars[-1] == sums[-1]
    assert len(sums) == (1 if m.useful_share == 1 else 2)
    assert sums[0][1] / sums[-1][1] == pytest.approx(m.step_days_to_train / m.days_to_train, abs=2e-3)
    for (x, w, _), (start, _, shade) in pairwise(bars):
        assert start == pytest.approx(bars[0][0] if shade == "rest" else x + w, abs=1.0)


def test_bars_of_days_are_coloured_by_what_they_are() -> None:
    """Compute, exchanges, idle parts and what stops take have a colour each, as the words below the bars say."""
    plan = failing("restart", "elastic")
    picture, *_ = days_money_and_power(plan)
    colours = {tip.partition(":")[0]: c for *_, c, tip in RECT.findall(picture.svg)}
    lost = [name for name, days in plan.reliability.lost_days.items() if days]
    kinds = {"c0": ("compute",), "c4": ("pipeline bubble", "host"), "c1": tuple(lost)}
    kinds["c5"] = tuple(name for name in STEP_PARTS if "exchange" in name or "sends" in name)
    assert lost and any(name in colours for name in kinds["c5"])
    for colour, names in kinds.items():
        assert {colours[name] for name in names if name in colours} <= {colour}
    assert "orange is lost to stops" in picture.caption


def test_a_part_below_zero_counts_in_the_sum_alone() -> None:
    """It has no mark of its own in a bar, whose long name is cut before its figures, and goes back in a waterfall."""
    shades = {"a": "c0", "b": "c1", "c": "c2"}
    svg = stacked("A bar", [("n" * 90, {"a": 0.8, "b": 0.4, "c": -0.2}, None)], shades, "{:.2f}".format)
    marks = [(float(x), float(w)) for x, _, w, *_ in RECT.findall(svg)]
    assert len(marks) == 2 and max(x + w for x, w in marks) <= WIDTH
    assert ">1.00</text>" in svg and re.search(r">n{20,60}…</text>", svg)
    bars = [(DaysPart("a", 10), "c0"), (DaysPart("b", -4), "c1"), (DaysPart("s", 6, True), "rest")]
    found = BARS.findall(charts.waterfall("bars", bars, str))
    (a, wa, _), (b, wb, _), (s, ws, _) = ((float(x), float(w), c) for x, w, c in found)
    assert b + wb == pytest.approx(a + wa) and wb == pytest.approx(0.4 * wa, abs=0.1)
    assert (s, ws) == (a, pytest.approx(0.6 * wa, abs=0.1))


@each("y", [5.0, 60.0, 115.0])
def test_names_at_one_place_are_drawn_beside_each_other(y: float) -> None:
    """Places that lie on each other keep all their names, none over another, at the edges of the drawing too."""
    names = [Label((300.0, y), 4.0, f"place-{n}", "small") for n in range(6)]
    spare = Label((300.0, y), 4.0, "12 km", "small", must=False)
    drawn = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)<', labels([*names, spare], 120.0))
    assert [content for *_, content in drawn] == [n.content for n in names]
    boxes = [(float(x), float(at)) for x, at, _ in drawn]
    half = width_of("place-0", "small") / 2
    for (x1, y1), (x2, y2) in combinations(boxes, 2):
        assert abs(x1 - x2) >= 2 * half - 0.2 or abs(y1 - y2) >= 15 - 0.2
    assert all(11 <= at <= 116 for _, at in boxes)


@each("ways", WAYS)
def test_the_chosen_point_lies_on_its_line(ways: tuple[str, ...]) -> None:
    """The dot of each chart is at the height and place of the plan, on the line of its way to go on."""
    pictures = list(stops(failing(*ways)))
    assert len(pictures) == 2
    for picture in pictures:
        paths = re.findall(r'<path d="M([^"]+)" class="k\d"', picture.svg)
        lines = [[tuple(map(float, point.split())) for point in path.split("L")] for path in paths]
        dot = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="chosen"', picture.svg)
        cx, cy = map(float, dot.groups())
        assert min(height_above(line, cx, cy) for line in lines) < 0.6
        assert all(charts.CURVE_LEFT <= x <= WIDTH and y >= charts.CURVE_TOP - 0.1 for line in lines for x, y in line)
        # No other way, and no number of spares below, trains more than what the plan takes by more than a line's width.
        assert min(y for line in lines for x, y in line if x <= cx) > cy - 1.0
    assert list(stops(small())) == list(stops(infeasible())) == []
    pictures = stops(edited(failing("elastic"), reliability__checkpoint_interval_seconds=None))
    assert [p.svg.split("<title>")[1][:25] for p in pictures] == ["Time that trains by spare"]


def height_above(line: list[tuple[float, ...]], x: float, y: float) -> float:
    """Return how far a point is from a line at its place."""
    for (x1, y1), (x2, y2) in pairwise(line):
        if x1 - 0.1 <= x <= x2 + 0.1:
            return abs(y - (y1 + (y2 - y1) * (x - x1) / ((x2 - x1) or 1.0)))
    return float("inf")


@each(("low", "high"), [(0.0, 0.4), (0.858, 0.962), (0.9987, 0.9991), (0.5, 0.5), (0, 812)])
def test_marks_span_the_range(low: float, high: float) -> None:
    """Marks have even round steps, a handful of them, from no more than the lowest to no less than the highest."""
    marks = charts.marks_over(low, high)
    assert marks[0] <= low + 1e-12 and marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 7
    steps = [b - a for a, b in pairwise(marks)]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_a_line_of_one_height_and_names_that_would_touch() -> None:
    """A flat line is drawn, and of marks that stand close every name but the first is left out."""
    line, axis = (
        charts.ChartLine("a", [(1.0, 0.5), (10.0, 0.5)], 0),
        charts.ChartAxis("x", "{:g} s".format, (1.0, 1.01, 9.0)),
    )
    svg = charts.curve("flat", [line], (1.0, 0.5), axis, charts.ChartAxis("y", str))
    assert ">1 s<" in svg and ">1.01 s<" not in svg and ">9 s<" in svg and "nan" not in svg
