"""Figures of an instance that are implausible: named with their range, by a table that has every key."""

import math
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from worked_plan import small

import planner
from planner.imports.instance_file import shipped_names
from planner.instance.instance import Instance
from planner.planning.load import load_instance
from planner.planning.plausible import RANGES, implausible, range_of
from planner.report.statements.verdict import implausible_inputs
from planner.sweeps.sweep_run import SweepOptions, tasks_for

BATCH = "limits.max_batch_tokens is 5e+12, not from 10000 to 3e+09: published runs take 0.5 to 60 million tokens a step"


@pytest.mark.parametrize("name", [n for n in shipped_names() if n != "limits-h100"])  # is for `planner limits`
def test_shipped_instances_are_plausible(name: str) -> None:
    assert list(implausible(load_instance(name))) == []


def keys(kind: Any, key: str = "", bounds: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield every key of a type that holds numbers, with what its annotations say of them."""
    origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if name not in ("pins", "schema_version", "source"):
                at = f"{key}.{name}" if key else name
                yield from keys(field.annotation, at, tuple(field.metadata))
    elif origin is Annotated:
        inner, *said = get_args(kind)
        found = [m for s in said for m in (s.metadata if isinstance(s, FieldInfo) else [s])]
        yield from keys(inner, key, (*bounds, *found))
    elif origin in (Union, UnionType):
        for part in get_args(kind):
            yield from keys(part, key, bounds)
    elif origin is dict:
        yield from keys(get_args(kind)[1], f"{key}.*")
    elif origin is tuple:
        yield from keys(get_args(kind)[0], key)
    elif kind in (int, float) and origin is not Literal:
        yield key, bounds


def bounded(bounds: tuple[Any, ...]) -> bool:
    """Return whether a type itself refuses what is too small and what is too large."""
    low, high = (any(hasattr(b, x) or hasattr(b, y) for b in bounds) for x, y in (("ge", "gt"), ("le", "lt")))
    return low and high


KEYS = sorted(dict(keys(Instance)).items())


def test_every_numeric_key_has_a_range() -> None:
    """A number is bounded by its type on both sides, or has a row in the table; and no row is of no key."""
    assert len(KEYS) > 200
    assert [key for key, bounds in KEYS if not bounded(bounds) and range_of(key) is None] == []
    used = {id(range_of(key)) for key, _ in KEYS}
    assert [end for end, usual in RANGES.items() if id(usual) not in used] == []
    assert all(x.low < x.high and x.reason for x in RANGES.values())


# Ends that are figures of their own, among them a hundred years in days, once around the earth and ten years.
OWN_ENDS = {36_525.0, 41_000.0, 315_576_000.0, 0.6, 800.0, 1_500.0, 4e6, 1.1e7}


def test_ends_are_round_numbers() -> None:
    """An end is 1, 2, 3 or 5 of a power of ten, or a power of two, as a reader remembers it."""
    ends = {end for usual in RANGES.values() for end in (usual.low, usual.high)}
    round_ends = {2.0**n for n in range(-2, 13)} | {float(f"{n}e{k}") for n in (1, 2, 3, 5) for k in range(-9, 33)}
    assert sorted({abs(end) for end in ends} - round_ends - OWN_ENDS) == []


def holding(kind: Any, parts: list[str], value: float) -> Any:
    """Return an instance of a type that has nothing but a value at a key."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and parts and parts[0] in kind.model_fields:
        inner = holding(kind.model_fields[parts[0]].annotation, parts[1:], value)
        return None if inner is None else kind.model_construct(**dict.fromkeys(kind.model_fields) | {parts[0]: inner})
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Annotated, Union, UnionType):
        found = (holding(part, parts, value) for part in args if not isinstance(part, FieldInfo))
        return next((x for x in found if x is not None), None)
    if origin is tuple:
        inner = holding(args[0], parts, value)
        return None if inner is None else (inner,)
    if origin is dict and parts and parts[0] == "*":
        inner = holding(args[1], parts[1:], value)
        return None if inner is None else {"x": inner}
    return value if kind in (int, float) and not parts else None


def test_each_warning_fires_just_outside() -> None:
    """At either end of a range nothing is said, just beyond it the path, the value and the range; 0 is none."""
    for key, _ in KEYS:
        usual = range_of(key)
        if usual is None:
            continue
        for end, beyond in ((usual.low, -1), (usual.high, 1)):
            assert list(implausible(holding(Instance, key.split("."), end))) == [], key
            outside = math.nextafter(end, beyond * math.inf)
            (line,) = implausible(holding(Instance, key.split("."), outside))
            path = key.replace("*", "x")
            assert line.replace("[0]", "").startswith(f"{path} is ") and line.endswith(usual.reason)
        assert list(implausible(holding(Instance, key.split("."), 0))) == [], key


def test_a_key_is_named_once() -> None:
    """Many figures of one key outside their range are one line, with the first of them and how many there are."""
    nodes = load_instance("two-sites-405b").grid.nodes  # type: ignore[union-attr]
    changes = {f"grid.nodes.{n.id}.generation_mw": 1e9 for n in nodes}
    (line,) = implausible(planner.changed("two-sites-405b", changes))
    assert line.startswith(
        f"grid.nodes[0].generation_mw is 1e+09 (and {len(nodes) - 1} more), not from 0.001 to 200000"
    )


def test_a_batch_larger_than_any_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A batch of 5e12 tokens made the whole training one step: every call says so, and so does the plan's summary."""
    asked = planner.changed("one-rack", {"limits.max_batch_tokens": 5e12})
    layout = {"tensor_parallel": 8, "pipeline_parallel": 1, "data_parallel": 1, "microbatches_per_step": 8}
    calls: dict[str, Callable[[], object]] = {
        "evaluate": lambda: planner.evaluate(asked, layout),
        "solve": lambda: planner.solve(asked, time_limit=0.01),
        "explain": lambda: planner.explain(asked, time_limit=0.01),
        "sweep": lambda: tasks_for("one-rack", [{"limits.max_batch_tokens": x} for x in (1e6, 5e12)], SweepOptions()),
    }
    for name, call in calls.items():
        caplog.clear()
        call()
        assert [r.message.startswith(f"implausible: {BATCH}") for r in caplog.records] == [True], name
    assert any(x.text.startswith(BATCH) for x in implausible_inputs(small(limits__max_batch_tokens=5e12)))
