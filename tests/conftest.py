"""What all tests share: the answer to Ctrl-C, the tier that each test is of, and what a quick one may cost."""

import gc
import importlib
import os
import signal
from collections.abc import Collection, Generator
from functools import cache
from typing import Any

import pytest
import stored_plans
import tiers
import typer.main
import typer.testing
from hypothesis import settings

from planner.cli.main import CYCLES

QUICK_CASES = 4  # of a test over seeds in the quick tier, always the same ones
CASES = 6  # of a test over seeds in both tiers; scripts/verify/all_seeds.py has the others
MADE_CASES = 2 * CASES  # of them: some are dear, and other parameters take turns
OF_A_TERMINAL = "COLUMNS", "LINES", "FORCE_COLOR"  # they change how wide and how coloured a command prints
MAX_CPU_SECONDS = 2.0  # of a quick test, with the processes that it starts; tiers.py leaves half of it for noise
NOISE = 3.0  # times as much on a loaded machine, or where no test before has filled what a worker keeps
# What tests load as they go: a worker of scripts/test loads it before any test, so that none pays for the others.
LOADED_FIRST = (
    "highspy", "jinja2", "matplotlib.pyplot", "networkx", "ortools.sat.python.cp_model", "pandas", "pyarrow.parquet",
    "pyomo.environ", "pyomo.contrib.solver.solvers.highs", "scipy.optimize", "scipy.sparse.csgraph", "scipy.stats",
)  # fmt: skip
# The file of long tests, each a page or a process: it begins first, so that no worker is alone with one at the end.
LONG = "tests/repository/test_documentation.py"
STARTED = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Forget the caller's terminal, take no plan that fails its check, and answer Ctrl-C, in the background too."""
    for name in LOADED_FIRST if hasattr(config, "workerinput") else ():
        importlib.import_module(name)
    for name in OF_A_TERMINAL:
        os.environ.pop(name, None)
        os.unsetenv(name)  # readline, which pytest loads, sets them behind os.environ for processes that tests start
    gc.set_threshold(*CYCLES)  # as the command line has it: else a sixth of what tests take
    os.environ["PLANNER_POINT"] = "1"  # of `planner solve`, in all tests but those of its curve
    os.environ["PLANNER_UNVERIFIED"] = "error"  # a plan that the checker disagrees with passes in no test
    # As over seeds, the tiers take the same random cases every time, and scripts/verify/all_seeds.py many others.
    drawn = tiers.ALL in os.environ
    settings.register_profile("tiers", deadline=None, derandomize=not drawn, max_examples=1_000 if drawn else 100)
    settings.load_profile("tiers")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Typer makes all commands anew for each that is run: a third of what a small one takes.
    typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make only the first cases of a test over seeds, from which both tiers have theirs: making all takes seconds."""
    if tiers.ALL in os.environ:
        return
    marks = metafunc.definition.own_markers
    for i, mark in enumerate(marks):
        if mark.name == "parametrize" and mark.args[0] == "seed" and len(mark.args) > 1:
            marks[i] = pytest.mark.parametrize("seed", list(mark.args[1])[:MADE_CASES], **mark.kwargs).mark


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the slow tier what is measured to be dear, controllers, and random cases but for four of each test.

    Long tests come first. Random cases beyond those of both tiers run in scripts/verify/all_seeds.py alone.
    """
    dear = tiers.dear_cases()
    for item in items:
        # A Slurm controller starts once for all tests of its file, at the cost of whichever is the first.
        if item.nodeid in dear or "slurm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    tests: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and isinstance(call.params.get("seed"), int):
            others = repr({name: value for name, value in call.params.items() if name != "seed"})
            tests.setdefault(item.nodeid.partition("[")[0], {}).setdefault(others, []).append(item)
    beyond: set[int] = set()
    for by_others in tests.values():
        cheap = [[item for item in row if not item.get_closest_marker("slow")] for row in by_others.values()]
        quick = _in_turns(cheap, QUICK_CASES)
        for item in (item for row in cheap for item in row if id(item) not in quick):
            item.add_marker(pytest.mark.slow)
        both = quick | _in_turns(list(by_others.values()), CASES - len(quick), without=quick)
        beyond |= {id(item) for row in by_others.values() for item in row} - both
    if tiers.ALL not in os.environ:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in beyond])
        items[:] = [item for item in items if id(item) not in beyond]
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def _in_turns(rows: list[list[pytest.Item]], count: int, without: Collection[int] = ()) -> set[int]:
    """Return the ids of items, one of each row in turn, another seed each time: those of a test's other parameters."""
    left = [[item for item in row if id(item) not in without] for row in rows]
    left = [row for row in left if row]
    chosen: set[int] = set()
    for turn in range(count):
        row = left[turn % len(left)] if left else []
        first = turn % max(1, len(row))
        fresh = [id(item) for item in row[first:] + row[:first] if id(item) not in chosen]
        chosen.update(fresh[:1])
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note the processor time at which a test begins, and whether it may solve what is not stored."""
    stored_plans.SLOW = item.get_closest_marker("slow") is not None
    item.stash[STARTED] = sum(os.times()[:4])  # of this process and those that it has started and that have ended
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Name a quick test that takes more processor time than one may, and fail it where noise cannot be the reason.

    So it is in scripts/test, whose workers have loaded what tests share.
    """
    result = yield
    spent = sum(os.times()[:4]) - item.stash[STARTED]
    if tiers.MEASURE in os.environ:
        tiers.note(item.nodeid, spent)
        return result
    limited = hasattr(item.config, "workerinput") and not stored_plans.SLOW and stored_plans.MAKE not in os.environ
    if limited and spent > MAX_CPU_SECONDS:
        dear = f"{spent:.1f} CPU-seconds of {MAX_CPU_SECONDS:g}: read a stored plan, take less, or run tiers.py"
        if spent > NOISE * MAX_CPU_SECONDS:
            pytest.fail(dear, pytrace=False)
        item.warn(pytest.PytestWarning(dear))
    return result
