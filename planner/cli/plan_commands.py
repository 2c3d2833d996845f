"""Commands on plans: `planner solve`, `frontier`, `evaluate`, `explain`, `check`, `show`, `compare`, `report`."""

import json
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

import planner
from planner.cli import console
from planner.cli.console import ExitCode
from planner.errors import InputError
from planner.files import exists, read_json, read_text, write_atomically
from planner.plan.plan_files import kind_of, read_plan
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import ending_searches, interrupted
from planner.units import aligned, counted, few, memory, money

if TYPE_CHECKING:
    from pydantic import BaseModel

    from planner.plan.plan import Plan
    from planner.planning.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Options of a command for the search of a plan: its time limit, its gap to the bound, and its solvers."""

    time_limit: Annotated[float | None, "Seconds, up to 20 for a first plan; then the best."] = None
    gap: console.Gap = None
    seed: console.Seed = 0
    threads: console.Threads = None
    solver: Annotated[
        str | None, "Solver that explains why no sites exist: highs or cpsat; highs also skips the second proof."
    ] = None


def solve(
    asked: console.PinnedInstance,
    output: Annotated[Path | None, "Write the plan here."] = None,
    as_json: Annotated[bool, "Print the plan and nothing else."] = False,
    *,
    search: Search,
    progress: console.ProgressOptions,
    models: Annotated[
        Path | None, "Write each model that a solver is asked (MPS, LP) and its log into this folder."
    ] = None,
    verbose: console.Verbose = False,
    point: Annotated[
        bool,
        Option("--point", envvar="PLANNER_POINT", help="The plan alone, without the curve of what less money buys."),
    ] = False,
) -> None:
    """Take all decisions and print the summary of the plan; then what less money buys."""
    from planner.planning.frontier import why_no_curve, with_curve
    from planner.planning.solve import Session
    from planner.report.summary import curve_section, fitted, summary

    pins, instance = console.read_pins(asked.pin), asked.changed()
    plan: Plan | None = None
    ended = False
    try:
        with ending_searches(), progress.line() as watch:
            session, shown, deadline = Session(), watch.shown, Deadline(search.time_limit)
            given: dict[str, Any] = {"on_progress": watch, "models": models, "constants": asked.constants}
            plan = session.solve(instance, **asdict(search), pins=pins, **given)
            console.write_model(plan, output)
            console.tell_not_modelled(plan.instance)
            if not as_json:
                print(summary(plan, console.terminal_width(), verbose=verbose), flush=True)
            # An infeasible plan has no curve; one whose goal was a curve has it already.
            if not point and plan.status not in ("infeasible", "unknown") and plan.curve is None:
                watch.shown = shown  # printing took the line away
                why = why_no_curve(plan)
                if why is None and deadline.passed:
                    why = "a signal ended the search before it" if interrupted() else "the time limit came first"
                if why is None:
                    left, seed, threads = deadline.limit, search.seed, search.threads
                    found = session.curve(plan, time_limit=left, seed=seed, threads=threads, on_progress=watch)
                    plan = with_curve(plan, found.curve)
                    console.write_model(plan, output)
                if not as_json:
                    text = curve_section(plan.curve) if plan.curve else f"No curve of less money: {why}."
                    print(fitted(text, console.terminal_width()))
            ended = not point and interrupted()
    except KeyboardInterrupt:
        if plan is None:
            raise
        ended = True
    if as_json:
        print(plan.model_dump_json(indent=1))
    raise Exit(ExitCode.INTERRUPTED if ended else console.exit_code(plan, search.gap))


EPSILON_HELP = "End where a row is within this share of every plan, in capital and in days: 0.03 is three percent."
OUTPUT_HELP = "Write a row a point here: .jsonl, .csv or .parquet as of a sweep; .json: the curve."


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSearch:
    """Options of `planner frontier`: time of the curve's search, gap of every plan, and how many points are shown."""

    epsilon: Annotated[float, EPSILON_HELP] = 0.03
    points: Annotated[int | None, "Most points, both ends and the knee among them; all unless given."] = None
    time_limit: Annotated[float | None, "Seconds; then the curve as far as it is proven."] = None
    seed: console.Seed = 0
    threads: console.Threads = None


def frontier(
    asked: console.AskedInstance,
    output: Annotated[Path | None, OUTPUT_HELP] = None,
    *,
    search: CurveSearch,
    plot: Annotated[Path | None, "Draw days against capital here (.svg, .png)."] = None,
    plans: Annotated[Path | None, "Write the plan of each point into this folder."] = None,
    as_json: Annotated[bool, "Print the curve as JSON and nothing else."] = False,
    progress: console.ProgressOptions,
) -> None:
    """Print the plans that no other beats in both money and days, and how far that is proven."""
    from planner.imports.instance_file import holds_plan
    from planner.report.curve_text import curve_text
    from planner.report.plots import draw_staircase, picture_of
    from planner.report.summary import fitted
    from planner.sweeps.row_store import CURVE, ENDINGS, curve_rows, need_pyarrow, write_rows

    if output is not None and output.suffix not in ENDINGS:
        raise InputError(f"{output}: must end in {', '.join(ENDINGS)} (is {output.suffix or 'without an ending'!r})")
    if output is not None and output.suffix == ".parquet":
        need_pyarrow()
    if holds_plan(asked.instance):
        print(f"{asked.instance}: is a plan; the curve is of its instance, and starts anew", file=sys.stderr)
    started = time.perf_counter()
    with console.folder_for(plans), ending_searches(), progress.line() as watch:
        front = planner.frontier(asked.changed(), **asdict(search), on_progress=watch, constants=asked.constants)
    if output is not None and output.suffix == CURVE:
        console.write_model(front.curve, output)
    elif output is not None:
        write_rows(output, list(curve_rows(front, time.perf_counter() - started)))
    if plans is not None:
        for index, plan in enumerate(front.plans):
            console.write_model(plan, plans / f"{index:03d}.json")  # by the index of its row
        numbered = (file for file in sorted(plans.glob("???*.json")) if file.stem.isdecimal())
        if others := [file.name for file in numbered if int(file.stem) >= len(front.plans)]:
            print(f"{plans}: not of this curve: {few(others)}; remove what is of an earlier one", file=sys.stderr)
    if plot is not None:
        name = f"{front.instance.name}: money against days"
        draw = partial(draw_staircase, front.curve, name)
        write_atomically(plot, picture_of(draw, name, plot.suffix.removeprefix(".")))
    if as_json:
        print(front.curve.model_dump_json(indent=1))
    else:
        print(fitted(curve_text(front, search.epsilon), console.terminal_width()))
    if doubted := [i for i, plan in enumerate(front.plans) if plan.verified is False]:
        such = f"such as that of index {doubted[0]}; `planner check` says on which rules, of a plan of --plans"
        print(f"NOT VERIFIED: the checker disagrees with {counted(len(doubted), 'plan')}, {such}", file=sys.stderr)
        raise Exit(ExitCode.UNVERIFIED)
    # A search that was cut short has at best proven its share of the plans between the lines.
    ended = {"proved": ExitCode.DONE if front.plans else ExitCode.INFEASIBLE, "interrupted": ExitCode.INTERRUPTED}
    raise Exit(ended.get(front.curve.stopped, ExitCode.LIMIT))


def layouts(
    asked: console.PinnedInstance,
    output: Annotated[Path | None, "Write the rows here (.json, .csv)."] = None,
    within: Annotated[float, "Share of the fewest days that a layout may take longer."] = 0.02,
    time_limit: Annotated[float | None, "Seconds; then the layouts so far."] = None,
    *,
    seed: console.Seed = 0,
    threads: console.Threads = None,
    as_json: Annotated[bool, "Print the rows as JSON and nothing else."] = False,
    progress: console.ProgressOptions,
) -> None:
    """Print the kinds of layout that are nearly as fast as the fastest, each by its fastest plan."""
    from planner.report.tables import layout_rows
    from planner.sweeps.row_store import write_table

    if output is not None and output.suffix not in (".json", ".csv"):
        raise InputError(f"{output}: must end in .json or .csv (is {output.suffix or 'without an ending'!r})")
    with ending_searches(), progress.line() as watch:
        options: dict[str, Any] = {"within": within, "time_limit": time_limit, "seed": seed, "threads": threads}
        options |= {"pins": console.read_pins(asked.pin), "constants": asked.constants}
        found = planner.layouts(asked.changed(), **options, on_progress=watch)
    rows, why = list(layout_rows(found)), found.conflict
    written = {key: getattr(found, key) for key in ("within", "fewest_days", "proven")} | {"layouts": rows}
    written |= {"conflict": why.model_dump(mode="json")} if why else {}
    if output is not None and output.suffix == ".csv":
        flat = [dict(row) for row in rows]
        for row in flat:  # the parts of a step have columns of their own
            row["layers_per_stage"] = "+".join(map(str, row["layers_per_stage"]))
            row |= {f"{name}_seconds": seconds for name, seconds in row.pop("breakdown_seconds").items()}
        write_table(output, flat)
    elif output is not None:
        write_atomically(output, json.dumps(written, indent=1) + "\n")
    name = found.plans[0].instance.name if found.plans else asked.instance.stem
    if as_json:
        print(json.dumps(written, indent=1))
    elif not rows:
        reason = f"{why.reason}.{f' {why.in_words}.' * bool(why.rules)}" if why else "the search was cut short."
        print(f"{name}: no plan{'' if found.proven else ' yet'}: {reason}")
    else:
        lines = [["layout", "days", "slower", "chunks", "batch", "ZeRO", "memory", "MFU", "capital"]]
        for row in rows:
            first, _, _ = row["layout"].partition(",")
            figures = [first, f"{row['days_to_train']:.4g}", f"{100 * row['share_slower']:.2f} %"]
            batch = f"{row['microbatches_per_step']} x {row['microbatch_sequences']}"
            figures += [str(row["virtual_stages"]), batch, str(row["zero_stage"]), memory(row["memory_bytes_per_gpu"])]
            capital = "" if row["capital_usd"] is None else money(row["capital_usd"])
            lines.append([*figures, f"{100 * row['mfu']:.0f} %", capital])
        share = f"{100 * found.within:g} % of {found.fewest_days:.4g} days"
        end = f"Within {share}, the fewest found; not proven to be all."
        end = f"No other kind of layout has a plan within {share} (proven)." if found.proven else end
        title = f"{name}: {counted(len(rows), 'kind')} of layout, each by its fastest plan"
        print("\n".join([title, aligned(lines, left=1), end]))
    proven = ExitCode.DONE if found.plans else ExitCode.INFEASIBLE
    raise Exit(proven if found.proven else ExitCode.LIMIT)


def evaluate(
    instance: console.InstanceFile,
    pin: Annotated[list[str] | None, "A choice of the layout: layout.tensor_parallel=8, tp=8."] = None,
    change: console.Changes = None,
    from_flags: Annotated[
        Path | None,
        "Your run: a script (Megatron, NeMo, torchtitan), torchtitan's TOML, NeMo's YAML, DeepSpeed's JSON.",
    ] = None,
    output: Annotated[Path | None, "Write the layout here as a plan: for compare, report, check."] = None,
    as_json: Annotated[bool, "Print the prediction as JSON and nothing else."] = False,
    why: Annotated[bool, "Name the constants behind each part of the step."] = False,
    constants: console.Constants = None,
) -> None:
    """Predict step time and memory of a layout given in full, by pins or as the flags of a run of your own."""
    from planner.exports.runnable_layout import OTHER_DECISIONS, layout_question, with_switches
    from planner.imports.megatron_flags import REMEDY
    from planner.imports.recipes import doubts, layout_of_run, run_of_text
    from planner.instance.pins import long_names
    from planner.planning.evaluate import evaluated, plan_of_layout
    from planner.planning.load import load_instance
    from planner.report import verdict
    from planner.report.evaluated_layout import evaluation_text
    from planner.report.summary import fitted, lines_of

    asked = console.AskedInstance(instance=instance, change=change).changed(searched=False)
    run, pins = None, dict[str, Any]()
    if from_flags is not None:
        run = run_of_text(read_text(from_flags, REMEDY), from_flags)
        pins = layout_of_run(run, load_instance(asked, searched=False), str(from_flags))
        # Of a plan also the replicas of each of several sites, which no flag can say, where they are as many.
        data: Any = read_json(instance) if instance.suffix == ".json" and instance.is_file() else None
        layout = data.get("layout") if kind_of(data) == "plan" else None
        by_site = layout.get("data_parallel_by_site") if isinstance(layout, dict) else None
        if isinstance(by_site, dict) and len(by_site) > 1 and all(isinstance(n, int) for n in by_site.values()):
            as_many = sum(by_site.values()) == pins.get("layout.data_parallel")
            pins |= {"layout.data_parallel_by_site": by_site} if as_many else {}
        stated = ", ".join(f"{key}={value}" for key, value in pins.items())
        print(f"{from_flags}: {run.framework}: {stated}", file=sys.stderr)
        for line in doubts(run, load_instance(asked, searched=False)):
            print(f"{from_flags}: {line}", file=sys.stderr)
    pins |= long_names(console.read_pins(pin), "--pin")
    request = load_instance(asked, pins=pins, searched=False, constants=constants)
    if run is not None:
        request = with_switches(request, run.switches, str(from_flags), run.items.note())
    evaluation = planner.evaluate(request)
    console.tell_not_modelled(request)
    if output is not None:
        # What is written must be what its own instance gives, so the layout is predicted once more without the rest.
        given = evaluation.layout
        alone = layout_question(request, given.gpus_used + given.gpus_idle)
        racks = alone.hardware.racks or 0
        # Racks that carry its stages, where none carries parts of two that are not together in others.
        whole = given.rack_stages * sum(given.racks_per_stage_by_site.values())
        if whole > racks:
            apart = f"a plan has no two stages meet in one as in {racks:,}"
            print(f"{output}: of {whole:,} racks: {apart}", file=sys.stderr)
            alone = alone.replaced(hardware__racks=whole)
        predicted = evaluated(alone)
        left_out = [part for part in OTHER_DECISIONS if getattr(request, part) is not None]
        if left_out:
            parts = f"without {', '.join(left_out)}"
            print(f"{output}: of the layout alone, {parts}: {predicted.step_seconds:.4g} s a step", file=sys.stderr)
        console.write_model(plan_of_layout(alone, predicted.layout), output)
    costs = "\n".join(lines_of(verdict.run(request, evaluation.run)))
    text = fitted(f"{evaluation_text(evaluation, why=why)}\n{costs}", console.terminal_width())
    print(evaluation.model_dump_json(indent=1) if as_json else text)
    raise Exit(ExitCode.DONE if evaluation.fits else ExitCode.INFEASIBLE)


def explain(
    asked: console.PinnedInstance,
    as_json: Annotated[bool, "Print the explanation as JSON and nothing else."] = False,
    time_limit: Annotated[float | None, "Seconds for the plan, and again for all alternatives, of 40 at least."] = None,
    near: Annotated[int, "List the N best plans over other sets of sites."] = 0,
    within: Annotated[float, "Largest cost of a plan of --near above the best: 0.05 is 5 %."] = 0.05,
    *,
    progress: console.ProgressOptions,
) -> None:
    """Print why there is no plan and what would allow one; or what limits a plan and what each choice costs."""
    from planner.report.explained_plan import explanation_text
    from planner.report.summary import fitted

    pins, instance = console.read_pins(asked.pin), asked.changed()
    printed = 0

    def print_more(grown: "Explanation") -> None:
        nonlocal printed
        lines = fitted(explanation_text(grown), console.terminal_width()).splitlines()
        if lines[printed:] and not as_json:
            print("\n".join(lines[printed:]), flush=True)
        printed = len(lines)

    with progress.line() as watch:
        how: dict[str, Any] = {"time_limit": time_limit, "near": near, "within": within, "constants": asked.constants}
        explanation = planner.explain(instance, pins=pins, on_progress=watch, on_part=print_more, **how)
    print_more(explanation)
    sets = sum(x.choice == "sites" for x in explanation.sites)
    if sets < near and explanation.layout and not ({"other sets of sites"} & {*explanation.unasked}):
        found = f"{counted(sets, 'other set')} of sites found with a plan within {100 * within:g} % of the best"
        print(f"--near {near}: {found if explanation.nodes else 'the plan has no sites (no grid)'}", file=sys.stderr)
    if as_json:
        print(explanation.model_dump_json(indent=1))
    if explanation.interrupted:
        raise Exit(ExitCode.INTERRUPTED)
    if explanation.violations:
        raise Exit(ExitCode.UNVERIFIED)
    raise Exit({"optimal": ExitCode.DONE, "infeasible": ExitCode.INFEASIBLE}.get(explanation.status, ExitCode.LIMIT))


def check(plan: console.PlanFile) -> None:
    """Verify a plan against the instance inside it; print each violated rule, nothing where all hold."""
    given = read_plan(plan)
    violations = planner.check(given)
    for violation in violations:
        print(f"{violation.rule}: {violation.message}")
    if not violations and given.status == "unknown":
        print(f"{plan}: holds no decisions to check: its search ended without a plan", file=sys.stderr)
    raise Exit(ExitCode.BROKEN if violations else ExitCode.DONE)


def show(
    plan: console.PlanFile,
    section: Annotated[
        str | None,
        Argument(help="One section whole: sites, layout, fabric, placement, days, money, limits, warnings, …"),
    ] = None,
    verbose: console.Verbose = False,
) -> None:
    """Print a plan's summary, all that it says, or one section of it."""
    from planner.report.summary import summary

    with console.showable_plan(plan) as given:
        text = summary(given, console.terminal_width(), verbose=verbose, section=section)
    print(text)


def compare(
    files: Annotated[
        list[str], Argument(help="Plans (JSON) and rows (JSONL, CSV, Parquet); FILE#N takes the row of index N alone.")
    ],
    diff: Annotated[bool, "Only what differs."] = False,
    as_json: Annotated[bool, "Print the table as JSON."] = False,
) -> None:
    """Compare plans and sweep rows with the first: verdicts, what differs, by which terms, and all figures."""
    from planner.report.comparison import MOST_JUDGED, best, rows_of, side_of, sides_of_rows, table, verdicts
    from planner.report.summary import PIPE, fitted
    from planner.sweeps.row_store import LINES, TABLES

    # An existing file may have a # in its own name.
    parts = [(given, "") if exists(Path(given)) else given.partition("#")[::2] for given in files]
    several, columns = len({Path(name) for name, _ in parts}) > 1, []
    for given, (name, number) in zip(files, parts, strict=True):
        path = Path(name)
        if number and not (number.isascii() and number.isdigit()):
            raise InputError(f"{given}: after # must be the index of a row, a whole number (is {number!r})")
        if number or path.suffix in (*LINES, *TABLES):
            columns += sides_of_rows(path, int(number) if number else None, several=several)
        else:
            with console.showable_plan(path) as plan:
                columns.append(side_of(path.stem, plan))
    if len(columns) < 2:
        raise InputError(f"compare: give two plans or rows, or more (is {len(columns)})")
    rows = rows_of(columns, diff=diff)
    if as_json:
        print(json.dumps({"columns": [column.name for column in columns], **rows}, indent=1))
    else:
        width = console.terminal_width() or PIPE
        judged = [best(columns), ""] if len(columns) > 2 and best(columns) else []
        print(fitted("\n".join([*judged, *verdicts(columns[:MOST_JUDGED])]), width), end="\n\n")
        print(table([column.name for column in columns], rows, width) if rows else "no difference")


def kept_types() -> "dict[str, type[BaseModel]]":
    """Return the types whose JSON Schema `planner schema` prints, by kind: instance, plan, job and placement."""
    from planner.cluster.job import Job
    from planner.cluster.placement import Placement
    from planner.instance.instance import Instance
    from planner.plan.plan import Plan

    return {"instance": Instance, "plan": Plan, "job": Job, "placement": Placement}


def schema(what: Annotated[str, Argument(help="instance, plan, job or placement.")]) -> None:
    """Print the JSON Schema of an instance, a plan, a job or a placement."""
    from planner.instance.plausible_ranges import put_ranges

    kinds = kept_types()
    console.require_choice("schema", what, tuple(sorted(kinds)))
    text = kinds[what].model_json_schema()
    if what == "instance":
        put_ranges(text)
    print(json.dumps(text, indent=1, sort_keys=True))


def report(
    plans: Annotated[list[Path], Argument(help="Plan files (JSON), one or more.")],
    output: Annotated[Path, "Write the page here (HTML)."],
) -> None:
    """Read plan files and write one self-contained page to -o: maps, bars, layout, fabric, placement and proofs."""
    from planner.report.page.page import report_page

    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: must end in .html")
    with ExitStack() as stack:
        page = report_page([(x.stem, stack.enter_context(console.showable_plan(x))) for x in plans], date.today())
    write_atomically(output, page)


def serve(
    instance: console.InstanceFile,
    port: Annotated[int, "Port of this machine; 0: any that is free."] = 8765,
    time_limit: Annotated[float | None, "Seconds of each question."] = None,
    change: console.Changes = None,
    seed: console.Seed = 0,
) -> None:
    """Open a page of this machine on which the instance is asked again with other limits, goals and prices."""
    from planner.imports.instance_file import holds_plan
    from planner.planning.load import load_instance
    from planner.serve.local_server import HOST, AskedQuestion, QuestionThread, local_server

    asked = console.AskedInstance(instance=instance, change=change)
    questions = QuestionThread(load_instance(asked.changed()), time_limit=time_limit, seed=seed)
    server = local_server(questions, port)
    if holds_plan(instance) and not change:
        plan = read_plan(instance)  # it is the first answer of the page
        questions.asked.append(AskedQuestion(number=1, changes=(), instance=plan.instance, plan=plan, seconds=0.0))
    else:
        questions.ask({})
    print(f"http://{HOST}:{server.server_port}/ shows {questions.instance.name}; Ctrl-C ends it", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        questions.stop(wait_seconds=2.0)
    finally:
        server.server_close()
