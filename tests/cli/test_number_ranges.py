"""The one check of numbers: every option of every command and every argument of the library has its range."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.errors import InputError
from planner.scheduling.cluster_changes import defragment, place_queue, preempt, replace, resize
from planner.units import RANGES, NumberRange

LIBRARY: tuple[Callable[..., Any], ...] = (
    *(getattr(planner, n) for n in planner.__all__ if inspect.isfunction(getattr(planner, n))),
    *(planner.Cluster.place, planner.Session.solve),
    *(place_queue, preempt, defragment, replace, resize),
)
WRONG = (math.nan, math.inf, -math.inf, 1e308, -1, -(10**400), True, "5")


def numeric_arguments(calls: Iterable[Callable[..., Any]]) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield every argument that is annotated with a number, with its call."""
    for call in calls:
        for name, parameter in inspect.signature(call).parameters.items():
            if re.search(r"\b(int|float)\b", str(parameter.annotation).partition("typer.models")[0]):
                yield call, name


def commands() -> Iterator[Callable[..., Any]]:
    """Yield what every command of the command line calls."""
    left: list[Any] = [get_command(app)]
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        if not hasattr(command, "commands"):
            yield command.callback


def test_every_argument_of_the_library_has_a_range() -> None:
    """No number reaches a library call before its range was asked: nan, infinity, text and what is far out."""
    arguments = list(numeric_arguments(LIBRARY))
    assert len(arguments) > 30
    for call, name in arguments:
        for value in WRONG:
            with pytest.raises(InputError, match=f"^{name}: must be a "):
                call(**{name: [value] if name == "flop" else value})


def test_every_option_of_every_command_has_a_range() -> None:
    """No number of the command line reaches a command before its range was asked; the complaint names the option."""
    options = list(numeric_arguments(commands()))
    assert len(options) > 40
    for command, name in options:
        for value in WRONG[:6]:
            with pytest.raises(InputError, match=r"^--[a-z-]+: must be a .*; "):
                command(**{name: value})


def test_ranges_have_two_sides() -> None:
    """A range holds what is between its ends, whole numbers where it counts, and no other."""
    assert RANGES["gap"].holds(0) and RANGES["gap"].holds(0.5) and not RANGES["gap"].holds(1)
    assert RANGES["time_limit"].holds(1e-3) and not RANGES["time_limit"].holds(0)
    assert RANGES["place.time_limit"].holds(0)
    assert RANGES["threads"].holds(1024) and not RANGES["threads"].holds(1.0)
    assert NumberRange(0, 1).words() == "a number from 0 to 1"


def test_several_numbers_are_refused_at_once() -> None:
    """All options that are out of range are named in one message, before any file is read."""
    done = CliRunner().invoke(app, ["solve", "none.json", "--time-limit", "nan", "--gap", "2", "--threads", "-1"])
    assert isinstance(done.exception, InputError)
    assert [line.partition(":")[0] for line in str(done.exception).splitlines()] == [
        "--time-limit",
        "--gap",
        "--threads",
    ]


def test_no_option_of_text_is_held_to_a_range_of_numbers() -> None:
    """`--shard 2/8` and the like are read as text: a range under the name of such an option would refuse them all."""
    for command in commands():
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
            ranged = name in RANGES or f"{command.__name__}.{name}" in RANGES
            assert not (ranged and "str" in str(parameter.annotation).partition(",")[0]), (command.__name__, name)
