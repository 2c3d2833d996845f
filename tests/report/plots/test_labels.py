"""Names in plots: none lies on another, and none is cut off at the edge of the picture."""

from itertools import combinations
from typing import Any

import pytest
from failing_plan import failing
from sweep_rows import X, Y, row
from worked_plan import small

from planner.report.plots.plots import PlotRequest, sweep_figure
from planner.report.plots.sweep_rows import flattened

pytest.importorskip("matplotlib")
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

ROWS = [flattened(row(billions, factor)) for billions in range(20, 201, 10) for factor in (1.3, 1.1)]
FACTOR = "hardware.facility_overhead_factor"
REQUESTS = [
    PlotRequest(X, Y), PlotRequest(X, Y, log="xy"), PlotRequest(X, Y, color=FACTOR), PlotRequest(X, Y, facet=FACTOR),
    PlotRequest(X, Y, log="y", color="layout.tensor_parallel"),
    PlotRequest("cost.total_usd", Y, color="cost.total_usd"),
]  # fmt: skip


def overprinted(figure: Any) -> list[tuple[str, ...]]:
    """Return texts of a figure that overlap by more than an edge, and those beyond the picture's edge."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    unseen: set[int] = set()
    for axes in figure.findobj(lambda x: hasattr(x, "xaxis")):
        for axis in (axes.xaxis, axes.yaxis):
            ticks = {id(t) for tick in axis._update_ticks() for t in (tick.label1, tick.label2)}
            own = {id(t) for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) for t in tick.findobj(Text)}
            unseen |= own - ticks if axes.axison else own
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in unseen]
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts]
    edge = figure.bbox
    cut = [(n,) for n, b in boxes if min(b.x0, b.y0) < -1 or b.x1 > edge.width + 1 or b.y1 > edge.height + 1]
    return cut + [
        (n, m)
        for (n, a), (m, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 2
    ]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_plots_of_sweeps(request_: PlotRequest) -> None:
    """Titles, axes, marks, legends, lanes and changes leave each other room."""
    assert overprinted(sweep_figure(ROWS, request_)) == []


@pytest.mark.parametrize("name", ["plot_step", "plot_memory", "plot_cost", "plot_sites"])
@pytest.mark.parametrize("plan", [small(), failing("elastic")], ids=["worked", "failing"])
def test_plots_of_a_plan(name: str, plan: Any) -> None:
    figure = getattr(plan, name)().get_figure()
    assert overprinted(figure) == []
    pyplot.close("all")


def test_the_watch_sees_overprints() -> None:
    figure = pyplot.figure()
    for x, y, text in ((0.5, 0.5, "one"), (0.51, 0.51, "two"), (0.99, 0.2, "far away")):
        figure.text(x, y, text)
    assert overprinted(figure) == [("far away",), ("one", "two")]
    pyplot.close("all")
