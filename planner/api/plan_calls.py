"""The library's calls on plans: solve, frontier, check, evaluate, explain, sweep, limits, calibrate; their views.

Each raises PlannerError where its input cannot be used; the message says where and what to do.
"""

import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.argument_ranges import bounded
from planner.errors import InputError, needed
from planner.plan import VIEWS
from planner.plan.plan_files import read_plan
from planner.version import __version__

if TYPE_CHECKING:
    from planner.calibration.constants import MeasuredConstants
    from planner.instance.instance import FabricInstance, Instance
    from planner.plan.certificate import Violation
    from planner.plan.plan import Plan
    from planner.plan.plan_sections import LayoutPlan
    from planner.planning.evaluate import Evaluation
    from planner.planning.explanation import Explanation
    from planner.planning.frontier import Frontier
    from planner.planning.solve import NearLayouts
    from planner.solvers.progress import Event
    from planner.solvers.signals import Interrupter
    from planner.sweeps.row_store import Row
    from planner.sweeps.utilisation import LimitPoint


@bounded
def calibrate(
    measured: str | Path, *, accelerator: str | None = None, software: str | None = None
) -> "MeasuredConstants":
    """Calibrate a cluster's constants in a library call to a few of its own measured steps; others stay as they are.

    Parameters
    ----------
    measured
        A CSV table with a measured step a line; its columns are in docs/accuracy.md.
    accelerator, software
        Names of the catalogue, where the table has no such columns; the software is megatron-bridge if neither has it.
    """
    from planner.calibration.fit import calibrated, read_runs

    return calibrated(read_runs(Path(measured), accelerator, software), Path(measured))


@bounded
def changed(
    instance: "Instance | Mapping[str, Any] | str | Path", changes: Mapping[str, Any], *, searched: bool = True
) -> "Instance":
    """Return an instance with values changed in a library call, outright or against what they are.

    Parameters
    ----------
    instance
        A path to a JSON or YAML file or the name of an instance that ships, its content as a dict, or an Instance.
    changes
        Values by dotted path, or how they move: {"limits.budget_usd": "x1.2", "workload.model": "llama3-70b"}; "+100",
        "-100", "+20%" and None, which takes a value away (a key then has what a file without it has), do as well.
    searched
        Whether what only a search needs must be there; `evaluate` needs less.
    """
    from planner.sweeps.axes import changed as instance_with

    return instance_with(instance, changes, searched=searched)


@bounded
def check(plan: "Plan") -> "list[Violation]":
    """Check a plan in a library call; return each violated rule with both sides in numbers, nothing where all hold."""
    from planner.checks.check_plan import check as verify

    return verify(plan)


@bounded
def evaluate(
    instance: "Instance | Mapping[str, Any] | str | Path",
    layout: "Mapping[str, Any] | LayoutPlan | None" = None,
    *,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Evaluation":
    """Evaluate a layout given in full in a library call: predict step time, memory and their breakdown.

    Parameters
    ----------
    instance
        A path to a JSON or YAML file or the name of an instance that ships, its content as a dict, or an Instance; its
        own pins count too. A plan's file is an instance too, here and in the other calls.
    layout
        The layout's choices by name, as in the plan's `layout` section and in pins (`tensor_parallel` or `tp`, ...), or
        such a section whole: `plan.layout`, or its dict.
        `tensor_parallel`, `pipeline_parallel` and `data_parallel` must be there; micro-batches come from
        `limits.max_batch_tokens` where they are not given, and the rest has the plainest value.
    constants
        Of the user's own cluster, as `calibrate` returns them, or their file: in place of the catalogue's.

    Returns
    -------
    Evaluation
        The metrics, with the layout, the memory of every stage, the constants behind each part, and what stops it
        from running.
    """
    from planner.instance.consistency import of_one_layout
    from planner.instance.plausible_ranges import warn
    from planner.physics.training.parallel_strategy import layout_values, strategy_of
    from planner.plan import plan_sections
    from planner.planning.evaluate import evaluated
    from planner.planning.load import load_instance

    choices = dict(layout or {})
    if "metrics" in choices:  # a plan's own layout, whose choices are among its figures
        choices = layout_values(strategy_of(plan_sections.LayoutPlan.model_validate(choices)))
    pins = {f"layout.{key}": value for key, value in choices.items() if value not in ((), [])}
    request = of_one_layout(load_instance(instance, pins=pins, searched=False, constants=constants))
    warn(request)
    return evaluated(request)


@bounded
def design_fabric(
    question: "FabricInstance | Mapping[str, Any] | str | Path", *, time_limit: float | None = None
) -> "Plan":
    """Design a cluster's cheapest fabric in a library call; return it with its proof and the other kinds of fabric.

    Parameters
    ----------
    question
        A path to a file with `network` and `hardware` and no `workload`, its content as a dict, or a FabricInstance.
    time_limit
        Seconds for the search; a kind of fabric that was not searched by then is named.
    """
    from planner.models import Options
    from planner.planning.cheapest_fabric import design_fabric as designed
    from planner.planning.load import question_of

    return designed(question_of(question, {}), Options(time_limit=time_limit))


@bounded
def explain(
    instance: "Instance | Plan | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    pins: Mapping[str, Any] | None = None,
    near: int = 0,
    within: float = 0.05,
    on_progress: "Callable[[Event], Any] | None" = None,
    interrupt: "Interrupter | None" = None,
    on_part: "Callable[[Explanation], Any] | None" = None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Explanation":
    """Explain a plan in a library call, or solve an instance and explain the answer.

    Parameters
    ----------
    instance
        A plan or its file: where it is proven it is not solved again. Else a path to an instance's file, its content as
        a dict, or an Instance.
    time_limit
        Seconds for the plan, and again for all alternatives that it is compared with: 40, or twice as
        long as the plan took, at least.
    seed, threads, pins, constants
        As in `solve`.
    near, within
        How many of the best plans over other sets of sites to list, of those within this share of the best.
    on_progress, interrupt
        As in `solve`; after an interrupt nothing more is asked, and what was is returned.
    on_part
        Called with the explanation as it grows: the plan, its sites, each limit, each other choice.
    """
    from planner.imports.instance_file import holds_plan
    from planner.instance.consistency import of_one_layout
    from planner.models import Options
    from planner.plan.plan import Plan
    from planner.planning.explanation import explained, proven_plan
    from planner.planning.solve import read_question
    from planner.solvers.progress import Reporter
    from planner.solvers.search_deadline import Deadline, turn
    from planner.solvers.signals import ended_by

    plan = instance if isinstance(instance, Plan) else None
    if isinstance(instance, (str, Path)) and holds_plan(Path(instance)):
        plan = read_plan(Path(instance))
    request = read_question(instance, pins, constants, of_one_layout)
    options = Options(time_limit=time_limit, seed=seed, threads=threads)
    reporter = Reporter(on_event=on_progress, unit="usd" if request.objective.in_dollars else "days")
    asked = plan if plan is not None and request == plan.instance and proven_plan(plan) else request
    with ended_by(interrupt), turn(Deadline()):
        for found in explained(asked, options, reporter, near=near, within=within):
            if on_part is not None:
                on_part(found)
    return found  # at least that of the plan itself


@bounded
def frontier(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    epsilon: float = 0.03,
    points: int | None = None,
    time_limit: float | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
    on_progress: "Callable[[Event], Any] | None" = None,
    interrupt: "Interrupter | None" = None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Frontier":
    """Answer a library call with the curve of money against days: plans that none beats in both, and its proof.

    Parameters
    ----------
    instance
        As in `solve`. Its budget and its deadline bound the curve; its objective does not matter.
    epsilon
        The search ends where every plan within the bounds is matched by a point at most this share worse in capital
        (dollars) and in days: 0.03 is three percent.
    points
        Most points to return, spread evenly, both ends and the knee among them; None: all.
    time_limit
        Seconds after which the curve is returned as far as it is proven.
    set
        Values of the instance to change first, by dotted path, as in `changed`.
    seed, threads, progress, on_progress, interrupt, constants
        As in `solve`.

    Returns
    -------
    Frontier
        `curve.points`, capital ascending and days descending; `plans`, one for each point in the same order;
        `curve.epsilon`, the share that is proven, and `curve.stopped`, why the search ended. Where no plan keeps the
        bounds there are no points.

    Raises
    ------
    PlannerError
        The input cannot be used, or has no such curve: a fabric alone, pools, a model chosen for the least loss.
    """
    from planner.models import Options
    from planner.planning import frontier as search
    from planner.planning.solve import read_question
    from planner.solvers.progress import Reporter
    from planner.solvers.signals import ended_by, ending_at_once

    options = Options(time_limit=time_limit, seed=seed, threads=threads)
    with ending_at_once():
        asked = changed(instance, set) if set else instance
        request = read_question(asked, None, constants, search.refuse_without_curve)
    reporter = Reporter(on_line=progress, on_event=on_progress)
    with ended_by(interrupt):
        return search.frontier_of(request, options, reporter, epsilon=epsilon, points=points)


@bounded
def layouts(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    within: float = 0.02,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    pins: Mapping[str, Any] | None = None,
    on_progress: "Callable[[Event], Any] | None" = None,
    interrupt: "Interrupter | None" = None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "NearLayouts":
    """Answer a library call with the kinds of layout nearly as fast as the fastest, each by its fastest plan.

    Parameters
    ----------
    instance
        As in `solve`; its objective does not matter.
    within
        Share of the fewest days that a layout may take longer: 0.02 is two percent.
    time_limit, seed, threads, pins, on_progress, interrupt, constants
        As in `solve`.

    Returns
    -------
    NearLayouts
        `plans`, the fastest first, one for each kind (tensor, context, expert and pipeline parallelism); `proven`:
        whether no other kind has a plan within the share.

    Raises
    ------
    PlannerError
        The input cannot be used, or has several layouts: pools, alternatives to the hardware.
    """
    from planner.instance.consistency import of_one_layout
    from planner.models import Options
    from planner.planning.solve import near_layouts, read_question
    from planner.solvers.progress import Reporter
    from planner.solvers.signals import ended_by

    options = Options(time_limit=time_limit, seed=seed, threads=threads)
    request = read_question(instance, pins, constants, of_one_layout)
    with ended_by(interrupt):
        return near_layouts(request, options, Reporter(on_event=on_progress), within=within)


@bounded
def limits(
    instance: "Instance | Mapping[str, Any] | str | Path",
    flop: Sequence[float],
    *,
    days: float = 90.0,
    tolerance: float = 0.01,
    time_limit: float | None = None,
    executor: Executor | None = None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Iterator[LimitPoint]":
    """Answer a library call with the best utilisation that trains the law's model of each compute in the days given.

    Parameters
    ----------
    instance
        The accelerator, the rack, the precision and `workload.choose`: the laws and the family of models. The number
        of racks is free, and neither objective nor deadline matters: `days` is the deadline.
    flop
        Training compute of each point, 6·N·D.
    days
        Duration of every run.
    tolerance
        Relative width of the bracket around the smallest number of GPUs.
    time_limit
        Seconds of one layout search; a point whose search is cut short is no longer proven.
    executor
        Where points are computed at once; None: here, one after another.
    constants
        As in `solve`.
    """
    from planner.instance.consistency import of_one_layout
    from planner.planning.load import load_instance
    from planner.sweeps.utilisation import limit_point

    request = of_one_layout(load_instance(instance, searched=False, constants=constants))
    answer = partial(limit_point, request, days=days, tolerance=tolerance, time_limit=time_limit)
    yield from map(answer, flop) if executor is None else executor.map(answer, flop)


@bounded
def solve(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    solver: str | None = None,
    pins: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    on_progress: "Callable[[Event], Any] | None" = None,
    interrupt: "Interrupter | None" = None,
    models: str | Path | None = None,
    curve: bool = False,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Plan":
    """Solve an instance in a library call: take every decision that it asks for; return the plan with its proofs.

    Parameters
    ----------
    instance
        A path to a JSON or YAML file or the name of an instance that ships, its content as a dict, or an Instance.
    time_limit
        Seconds after which the best plan so far is returned, with its gap. A first plan may take up to 20.
    gap
        Relative gap within which a decision counts as done.
    seed, threads
        Of the solvers; the same instance, seed and threads give the same plan.
    solver
        "highs" or "cpsat" for the reasons why no sites exist; "highs" leaves out the second proof of the sites.
    pins
        Decisions fixed by hand, by dotted path, over those of the instance.
    progress
        Called with a line of text as the search moves on.
    on_progress
        Called with each Event: phase, elapsed seconds, incumbent, bound and gap. Both callbacks run in the thread of
        the solve; one that raises is logged and called no more, and the solve goes on.
    interrupt
        Ends the solve from another thread with the best plan so far, as Ctrl-C does at the command line.
    models
        An empty or new folder for every model that HiGHS (MPS and LP) and CP-SAT (text) are asked, their logs, and an
        index with status, objective and bound of each.
    curve
        Whether to go on, behind the plan, with what less money buys: the plan's `curve`, in the time that is left.
        Where there is none, a warning in the log and a note of the progress say why.
    constants
        Of the user's own cluster, as `calibrate` returns them, or their file: in place of the catalogue's.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do. An infeasible instance is a plan, not an error,
        and so is one that the checker disagrees with: its `verified` is false and its `violations` say on what.
    """
    from planner.planning.solve import Session

    how: dict[str, Any] = {"solver": solver, "pins": pins, "models": models, "curve": curve, "constants": constants}
    how |= {"progress": progress, "on_progress": on_progress, "interrupt": interrupt}
    return Session().solve(instance, time_limit=time_limit, gap=gap, seed=seed, threads=threads, **how)


@bounded
def sweep(
    instance: "Instance | Mapping[str, Any] | str | Path",
    vary: Mapping[str, str | Sequence[Any]],
    *,
    pairs: Sequence[Mapping[str, Any]] = (),
    executor: Executor | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    finished: Collection[str] = (),
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    plans: str | Path | None = None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
) -> "Iterator[Row]":
    """Sweep a grid in a library call: solve an instance at each point; yield a row a point, as it finishes.

    Bad paths, and bad values of the first thousand points, are named before anything runs; an infeasible or failed
    point is a row with its reason.

    Parameters
    ----------
    instance
        A path to a JSON or YAML file or the name of an instance that ships, its content as a dict, or an Instance.
    vary
        Values by dotted path of the instance or of a pin: a sequence, or a text such as "20e9:200e9:10e9".
    pairs
        Points taken together, as one more axis: values by path.
    executor
        Where points are solved; it is left open. None: processes of this machine, ended when the iterator is.
    workers
        Processes where there is no executor; None: the cores.
    shard
        (i, n): only the i-th of n parts, counted from 1.
    finished
        Keys of rows at hand: their points are left out.
    time_limit, gap, seed, constants
        Of every solve, as in `solve`.
    plans
        A folder for the complete plans, named by place and key.
    """
    from planner.sweeps.axes import points_of, shard_of
    from planner.sweeps.sweep_run import SweepOptions, rows_of, tasks_for

    points = points_of(vary, [dict(pair) for pair in pairs])
    folder = None if plans is None else Path(plans)
    part = None if shard is None else shard_of("/".join(map(str, shard)))
    options = SweepOptions(shard=part, time_limit=time_limit, gap=gap, seed=seed, plans=folder, constants=constants)
    return rows_of(tasks_for(instance, points, options), options, finished=finished, executor=executor, workers=workers)


def html(plan: "Plan") -> str:
    """Show a plan in a notebook where a library call returned it: its first screen in HTML, a row a section."""
    from planner.report.summary import by_section, statements

    texts = by_section(statement for statement in statements(plan) if statement.first)
    head, *verdict = map(escape, [f"{plan.instance.name}: {plan.status}", *texts.pop("verdict", [])])
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name.capitalize())}</th>'
        f'<td style="text-align:left">{"<br>".join(map(escape, lines))}</td></tr>'
        for name, lines in texts.items()
    )
    return f"<div><p><b>{head}</b><br>{'<br>'.join(verdict)}</p><table>{cells}</table></div>"


@bounded
def to_frame(rows: "Iterable[Row | Plan]") -> Any:
    """Answer a library call with a sweep's rows, or plans, as a pandas DataFrame: a column a figure by dotted name.

    Parameters
    ----------
    rows
        What `planner.sweep` yields, or plans: the columns of both have the same names.

    Returns
    -------
    pandas.DataFrame
        A figure that a plan has not is missing (NaN) in its row.
    """
    from planner.plan.plan import Plan
    from planner.report.comparison import figures_of
    from planner.sweeps.row_store import Row

    with needed("to_frame", "pandas", "frames"):
        import pandas

    flat = list[dict[str, Any]]()
    for item in rows:
        if not isinstance(item, (Plan, Row)):
            raise InputError(f"rows: must be rows of a sweep, or plans (one is {item!r:.40})")
        named = {"name": item.instance.name, "reason": None} if isinstance(item, Plan) else {}
        flat.append(named | (figures_of(item) if isinstance(item, Plan) else item.flat()))
    return pandas.DataFrame(flat)


VIEWS.update(html=html, to_frame=to_frame)
VIEWS["summary"] = lambda *given, **options: import_module("planner.report.summary").summary(*given, **options)
VIEWS["plot"] = lambda *given, **options: import_module("planner.report.plots").plotted(*given, **options)


def show_versions() -> None:
    """Print in a library call the versions of planner, Python, solvers and optional packages, and the platform."""
    from importlib.metadata import distributions

    lines = {"planner": __version__, "python": sys.version.split()[0], "platform": platform.platform()}
    needed_by_all = ("ortools", "highspy", "pyomo", "numpy", "scipy", "networkx", "pydantic", "pyyaml", "typer", "rich")
    installed = {(package.name or "").lower(): package.version for package in reversed([*distributions()])}
    for package in (*needed_by_all, "pandas", "matplotlib", "jinja2", "pyarrow", "distributed"):
        lines[package] = installed.get(package, "not installed")
    print("\n".join(f"{name:{max(map(len, lines))}}  {value}" for name, value in lines.items()))
