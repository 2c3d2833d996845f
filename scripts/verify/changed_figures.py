"""Change every figure of a plan, one at a time, and count the changes that `planner check` does not notice.

Run `.venv/bin/python scripts/verify/changed_figures.py PLAN.json … [--each N] [--show]`; with `--topology FILE --job
FILE` the files are placements of `planner place --format json` on free nodes of that cluster. Figures of a list or of
a table by name are alike: of each kind of figure N are changed. What the instance inside a plan says is not changed:
its hash notices all of it. Changes that pass because nothing in the plan recomputes the figure are listed in
`on_trust.py` with the reason; exits with 1 where another one passes.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from on_trust import ON_TRUST, PLACED_ON_TRUST
from pydantic import BaseModel, ValidationError

from planner.checks import check_plan
from planner.checks import joint_proof as joint_rules
from planner.checks.check_plan import violations
from planner.checks.placement import check_placement
from planner.checks.strategy_space_check import Space
from planner.cluster.job import Job, read_job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.formats.cluster_files import SCHEDULER_KEYS, read_topology
from planner.instance.instance import instance_sha256
from planner.plan.certificate import JointProof, Violation
from planner.plan.plan import Plan
from planner.units import aligned

EACH = 2  # figures of a kind that are changed
SLIGHTLY = 1e-3  # relative: far above rounding, far below what a reader would notice
ROUNDING = 1e-9  # below it a figure is 0 but for rounding
ABSENT = object()
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is changed: its type, and the rules that one of it breaks."""

    model: type[BaseModel]
    broken: Callable[[Any], Iterable[Violation]]


PLANS = Checked(Plan, violations)


def placements(topology: Topology, job: Job) -> Checked:
    """Return placements of a job on the free nodes of a cluster."""
    return Checked(Placement, lambda placed: check_placement(topology, job, placed))


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of a plan, and what it is changed to."""

    kind: str  # the path with `*` for names and places in lists
    path: Path_
    what: str
    value: Any


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a change: the rule that noticed it, or none."""

    change: Change
    noticed: str | None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the type of a section that an annotation has inside it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)


def _is_table(annotation: Any) -> bool:
    """Return whether the keys of an annotation are names and not fields."""
    return get_origin(annotation) is dict or any(get_origin(a) is dict for a in get_args(annotation))


def figures(data: Any, annotation: Any = Plan, path: Path_ = (), kind: str = "") -> Iterator[tuple[str, Path_, Any]]:
    """Yield each figure of a plan with its kind and path; lists and tables first, then what they hold."""
    if isinstance(data, dict):
        model = None if _is_table(annotation) else _model_in(annotation)
        if model is None:
            yield kind, path, data
        for key, value in data.items():
            inside = model.model_fields[key].annotation if model is not None else annotation
            if model is None:
                inside = _model_in(annotation)
            if (*path, key) != ("instance",):
                yield from figures(value, inside, (*path, key), f"{kind}.{key if model is not None else '*'}")
    elif isinstance(data, list):
        yield kind, path, data
        for i, value in enumerate(data):
            yield from figures(value, _model_in(annotation), (*path, i), f"{kind}[]")
    else:
        yield kind, path, data


def _changed_number(value: float) -> Iterator[tuple[str, Any]]:
    if isinstance(value, int):
        yield from (("+1", value + 1), ("-1", value - 1), ("x2", value * 2 or 2))
    elif abs(value) < ROUNDING:
        yield from (("+0.001", value + SLIGHTLY), ("-0.001", value - SLIGHTLY))
    else:
        yield from (("+0.1 %", value * (1 + SLIGHTLY)), ("-0.1 %", value * (1 - SLIGHTLY)), ("x2", value * 2))
    if (isinstance(value, int) and value) or abs(value) >= ROUNDING:
        yield "0", type(value)(0)


def new_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a figure is changed to, each with what the change is."""
    if isinstance(value, bool):
        yield "turned", not value
    elif isinstance(value, (int, float)):
        yield from _changed_number(value)
        yield "absent", ABSENT
    elif isinstance(value, str):
        yield from (("another", f"{value} "), ("empty", ""), ("absent", ABSENT))
    elif value is None:
        yield from (("a number", 1.0), ("a word", "x"))
    elif isinstance(value, list):
        yield from (("one less", value[:-1]), ("twice", [*value, value[-1]])) if value else [("a number", [1])]
    elif isinstance(value, dict) and value:
        first, *rest = value.items()
        yield from (("one less", dict(rest)), ("another name", {**value, "x": first[1]}))
    elif isinstance(value, dict):
        yield "a number", {"x": 1}


def changes(data: dict[str, Any], each: int = EACH, of: Checked = PLANS) -> Iterator[Change]:
    """Yield the changes of a plan, of so many figures of each kind."""
    by_kind: dict[str, list[tuple[Path_, Any]]] = defaultdict(list)
    for kind, path, value in figures(data, of.model):
        by_kind[kind.removeprefix(".")].append((path, value))
    for kind, alike in by_kind.items():
        for place in sorted({round(i * (len(alike) - 1) / max(each - 1, 1)) for i in range(each)}):
            path, value = alike[place]
            for what, new in new_values(value):
                if path:
                    yield Change(kind, path, what, new)


def changed(data: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return the plan with a change, sharing what is not on its path."""

    def at(x: Any, path: Path_) -> Any:
        if not path:
            return change.value
        copy, first = (list(x) if isinstance(x, list) else dict(x)), path[0]
        new = at(x[first], path[1:])
        if new is ABSENT:
            del copy[first]  # type: ignore[arg-type]
        else:
            copy[first] = new  # type: ignore[index]
        return copy

    return at(data, change.path)  # type: ignore[no-any-return]


def noticed(data: dict[str, Any], original: BaseModel, change: Change, of: Checked = PLANS) -> str | None:
    """Return what notices a change: reading, a rule by name, or None where nothing does.

    A figure that is left out and has the changed figure as its default says the same: "unchanged".
    """
    try:
        plan = of.model.model_validate(changed(data, change))
    except ValidationError:
        return "unreadable"
    if plan == original:
        return "unchanged"
    first = next(iter(of.broken(plan)), None)
    return None if first is None else first.rule


def results(data: dict[str, Any], each: int = EACH, of: Checked = PLANS) -> Iterator[Result]:
    """Change the figures of a plan one at a time."""
    original = of.model.model_validate(data)
    with columns_once():
        for change in changes(data, each, of):
            yield Result(change, noticed(data, original, change, of))


@contextmanager
def columns_once() -> Iterator[None]:
    """Recompute the columns behind a bound once for each bound and proof: most changes leave both as they are."""
    recomputed, seen = vars(joint_rules)["missing_columns"], dict[str, list[Violation]]()

    def missing(space: Space, days: float, proof: JointProof, **more: Any) -> Iterator[Violation]:
        key = f"{instance_sha256(space.instance)} {days!r} {space.transport_slowdown!r} {proof.model_dump_json()}"
        if key not in seen:
            seen[key] = list(recomputed(space, days, proof, **more))
        yield from seen[key]

    for module in (joint_rules, check_plan):
        vars(module)["missing_columns"] = missing
    try:
        yield
    finally:
        for module in (joint_rules, check_plan):
            vars(module)["missing_columns"] = recomputed


def unlisted(found: list[Result], of: Checked = PLANS) -> list[Result]:
    """Return the unnoticed changes of figures that are not on trust."""
    known = ON_TRUST if of.model is Plan else PLACED_ON_TRUST
    return [x for x in found if x.noticed is None and not any(_matches(x.change.kind, k) for k in known)]


def _matches(kind: str, pattern: str) -> bool:
    """Return whether a figure's kind ends like a pattern: `certificate.seconds` is that of every certificate."""
    return kind == pattern or kind.endswith(f".{pattern}")


def _row(name: str, found: list[Result], seconds: float, of: Checked) -> list[str]:
    tried = [x for x in found if x.noticed != "unchanged"]
    missed = [x for x in tried if x.noticed is None]
    kinds = {x.change.kind for x in missed}
    return [
        name,
        f"{len({x.change.kind for x in tried}):,}",
        f"{len(tried):,}",
        f"{len(missed):,}",
        f"{len(kinds):,}",
        f"{len(unlisted(found, of)):,}",
        f"{seconds:.0f}",
    ]


def main() -> int:
    """Run the changes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", nargs="+", type=Path)
    parser.add_argument("--each", type=int, default=EACH, help="figures of a kind that are changed")
    parser.add_argument("--show", action="store_true", help="print every unnoticed change")
    parser.add_argument("--topology", type=Path, help="of the cluster that the files are placements on")
    parser.add_argument("--job", type=Path, help="that the files are placements of")
    given = parser.parse_args()
    of = PLANS if given.topology is None else placements(read_topology(given.topology), read_job(given.job))
    rows, missed = [["plan", "kinds", "changes", "unnoticed", "of kinds", "not on trust", "s"]], []
    for path in given.plans:
        started = time.monotonic()
        data = json.loads(path.read_text(encoding="utf-8"))
        known = data if of is PLANS else {k: v for k, v in data.items() if k not in SCHEDULER_KEYS}
        found = list(results(known, given.each, of))
        rows.append(_row(path.stem, found, time.monotonic() - started, of))
        missed += [(path.stem, x) for x in (found if given.show else unlisted(found, of)) if x.noticed is None]
    print(aligned(rows))
    by_kind: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, x in missed:
        by_kind[x.change.kind][name].append(x.change.what)
    for kind, names in sorted(by_kind.items()):
        print(kind, "; ".join(f"{n}: {', '.join(sorted(set(w)))}" for n, w in names.items()))
    return 1 if any(unlisted([x], of) for _, x in missed) else 0


if __name__ == "__main__":
    sys.exit(main())
