"""Plans and rows of sweeps compared, as text: verdicts on their differences, and a table of their figures."""

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from rich.console import Console
from rich.table import Table

from planner.errors import InputError
from planner.plan.plan import Plan
from planner.plan.plan_figures import Figure, digest
from planner.planning.finish_date import FINISH_DATE
from planner.report.decisions import Statement, name_of_part
from planner.report.summary import PIPE, fitted, statements
from planner.sweeps.axes import asked_values, canonical
from planner.sweeps.row_store import LINES, TABLES, RowObjective, read_flat_rows
from planner.sweeps.sweep_run import point_text
from planner.units import counted, money, short

CHANGES = 4  # values of the instance that are named
MOST_JUDGED = 8  # sides that are compared with the first
SMALL = 0.02  # of the largest term, below which one is left out
NOTHING = 1e-9  # relative: the same but for rounding
STEP, LOST, CAPITAL = "layout.metrics.breakdown_seconds.", "reliability.lost_days.", "cost.capex_usd."
UNITS = {FINISH_DATE: "days from the decision", "loss": "nats a token"}  # of objectives other than days of training


@dataclass
class Side:
    """A side of a comparison: a plan or a sweep's row, its figures; a plan's instance and statements too."""

    name: str
    figures: Mapping[str, Figure]
    asked: Mapping[str, Any] | None = None
    reported: Sequence[Statement] = ()

    def __post_init__(self) -> None:
        self.goal = str(self.figures.get("objective.name", ""))
        self.numbers = {key: float(value) for key, value in self.figures.items() if _is_number(value)}
        self.value, self.usd = map(self.numbers.get, ("objective.value", "cost.total_usd"))  # None: not known
        own = self.value if self.goal == "days_to_train" else None
        self.days = self.numbers.get("layout.metrics.days_to_train", own)
        # Cost of the idle GPUs, with their racks.
        names = "layout.gpus_used", "layout.gpus_idle", "cost.capex_usd.racks"
        used, idle, racks = (self.numbers.get(name, 0.0) for name in names)
        self.idle_usd = racks * idle / (used + idle) if used and idle else 0.0

    def parts(self, front: str) -> dict[str, float]:
        """Return figures of one side of a comparison whose names begin with `front`, by the rest of their names."""
        return {name.removeprefix(front): x for name, x in self.numbers.items() if name.startswith(front)}


def verdicts(sides: Sequence[Side]) -> Iterator[str]:
    """Write a comparison: each side's headline, then for all but the first changed inputs, effects and terms."""
    wide = max(len(side.name) for side in sides)
    for side in sides:
        # Its headline: a plan's verdict and money; a row's objective, money and status.
        text = f"{side.figures.get('status', 'no status')}{', not verified' * (side.figures.get('verified') is False)}"
        if side.reported:
            facts = (fact for fact in side.reported if fact.section == "verdict" and fact.first and not fact.instead)
            text = " ".join(fact.text for fact in facts)
        elif side.value is not None:
            dated, racks = side.goal == FINISH_DATE, side.numbers.get("sites.racks")
            parts = [f"loss {side.value:.4f}"] if side.goal == "loss" else []
            parts += [f"{side.value:,.1f} {UNITS[FINISH_DATE]}"] if dated else []
            parts += [] if side.days is None else [f"{side.days:,.1f} days{' of training' * dated}"]
            parts += [] if side.usd is None else [money(side.usd)]
            parts += [] if racks is None else [f"{racks:,.0f} racks"]
            text = f"{', '.join(parts)}; {text}"
        elif reason := side.figures.get("reason"):
            text += f": {reason}"
        yield f"{side.name:<{wide}}  {text}"
    first = sides[0]
    for side in sides[1:]:
        yield ""
        front, what = [] if len(sides) == 2 else [f"{side.name} beside {first.name}"], changes(first, side)
        yield ": ".join([*front, *([] if front and what == side.name else [what]), brings(first, side)])
        yield from (f"  {line}" for line in terms(first, side))
        known = {fact.text for fact in first.reported}
        for fact in side.reported:
            if fact.first and fact.kind in ("limit", "warning") and fact.text not in known:
                yield f"  {side.name}: {fact.text}"


def changes(before: Side, after: Side) -> str:
    """Write the instance values that differ between two compared plans; a number's change is a share of its old one."""
    if before.asked is None or after.asked is None:
        return after.name
    keys = dict.fromkeys((*before.asked, *after.asked))
    differ = [key for key in keys if before.asked.get(key) != after.asked.get(key)]
    # A name says all of its object.
    named_objects = tuple(key.removesuffix("name") for key in differ if key.endswith(".name"))
    if named_objects:
        differ = [key for key in differ if key.endswith(".name") or not key.startswith(named_objects)]
    named = []
    for key in differ[:CHANGES]:
        old, new = before.asked.get(key), after.asked.get(key)
        words = f"{short(old)} -> {short(new)}"
        if old and _is_number(old) and _is_number(new):
            words += f" ({100 * (new - old) / abs(old):+.3g} %)"
        named.append(f"{canonical(key).removesuffix('.name')} {words}")
    more = [f"{len(differ) - CHANGES} other values"] if len(differ) > CHANGES else []
    return ", ".join(named + more) or "the same instance"


def brings(before: Side, after: Side) -> str:
    """Write, to compare two plans, the changes of days, objective, capital and idle racks, and the unspent budget."""
    if before.value is None or after.value is None:
        old, new = before.figures.get("status"), after.figures.get("status")
        return f"still {new}" if old == new else f"{old} -> {new}"
    parts, goals = list[str](), (before.goal, after.goal)
    compared = [(before.days, after.days, "days of training" if FINISH_DATE in goals else "days")]
    if goals[0] == goals[1] and after.goal in UNITS:
        compared.append((before.value, after.value, UNITS[after.goal]))
    for old, new, unit in compared:
        if old is not None and new is not None:
            moves = abs(new - old) > NOTHING * max(abs(old), abs(new))
            share = f" ({100 * (new - old) / old:+.1f} %)" if old and moves else ""
            parts.append(f"{f'{new - old:+,.4g}' if moves else '0'} {unit}{share}")
    if before.usd is not None and after.usd is not None:
        parts.append(f"{_dollars(after.usd - before.usd)} of capital")
    if FINISH_DATE in goals and goals[0] != goals[1]:
        dated = before if before.goal == FINISH_DATE else after
        parts.append(f"{dated.name} alone counts days from the decision ({dated.value:,.4g})")
    left = after.numbers.get("slack.budget_usd")
    # The budget that a goal in dollars does not spend is the saving.
    if left and after.usd and left > SMALL * after.usd and not after.goal.endswith("_usd"):
        parts.append(f"{money(left)} of the budget is not spent")
    idle_usd = after.idle_usd - before.idle_usd
    if after.usd and idle_usd > 1e-3 * after.usd:  # less is not named
        parts.append(f"{money(idle_usd)} {'more ' if before.idle_usd else ''}of idle racks")
    return ", ".join(parts)


def best(sides: Sequence[Side]) -> str:
    """Name in a comparison the sides of fewest days and of least money, of any number; empty where none is a plan."""
    dated, found = [side.goal == FINISH_DATE for side in sides], []
    soonest = "fewest days from the decision" if all(dated) else f"fewest days{' of training' * any(dated)}"
    # Days are compared where those of each side are known, or it has no plan.
    known_days = all(side.days is not None or side.value is None for side in sides)
    days = [(side.value if all(dated) else side.days, side.name) for side in sides if known_days]
    capital = [(side.usd, side.name) for side in sides]
    for what, figures, show in ((soonest, days, "{:,.1f}".format), ("least money", capital, money)):
        if known := [(value, name) for value, name in figures if value is not None]:
            value, name = min(known)
            alike = sum(other == value for other, _ in known) - 1
            more = f" and {counted(alike, 'other')}" if alike else ""
            found.append(f"{what}: {name}{more} ({show(value)})")
    return "; ".join(found)


def _dollars(usd: float) -> str:
    return f"{'+' if usd > 0 else ''}{money(usd)}"


def terms(before: Side, after: Side) -> Iterator[str]:
    """Write, to compare two plans, the parts of their days and of their capital that differ most."""
    days = []
    for side in (before, after):
        seconds, whole = (side.numbers.get(f"layout.metrics.step_{key}") for key in ("seconds", "days_to_train"))
        steps = {part: time * whole / seconds for part, time in side.parts(STEP).items()} if seconds and whole else {}
        days.append(side.parts(LOST) | steps)
    capital = [side.parts(CAPITAL) for side in (before, after)]
    for name, (old, new), show in (("days", days, "{:+,.4g}".format), ("capital", capital, _dollars)):
        if not (old and new):
            continue
        moved = {part: new.get(part, 0.0) - old.get(part, 0.0) for part in dict.fromkeys((*old, *new))}
        most = max(map(abs, moved.values()), default=0.0)
        total = max(sum(map(abs, value.values())) for value in (old, new))
        if most > NOTHING * total:
            order = sorted(moved.items(), key=lambda item: -abs(item[1]))
            named = [f"{name_of_part(part)} {show(change)}" for part, change in order if abs(change) >= SMALL * most]
            yield f"{name}: {', '.join(named[:4])}"  # more are not named


Rows = dict[str, list[Figure]]
# The order in which a reader asks: what, how well, which decisions, at what price, how near the limits, how sure.
SECTIONS = ("", "objective", "sites", "layout", "fabric", "placement", "reliability", "cost", "run", "slack")
LEAST_COLUMN, MOST_COLUMN = 14, 30  # characters of a column of figures; longer words go on below
OF_GOAL = re.compile(r"^objective\.|certificate\.(objective|bound)$")  # figures in the unit of the objective
SAME = 1e-12  # relative: sums in another order differ by less


def sides_of_rows(path: Path, index: int | None, *, several: bool) -> list[Side]:
    """Return rows of a sweep, of limits or of fabrics as sides of a comparison, all of them or the one of an index."""
    if path.suffix not in (*LINES, *TABLES):
        raise InputError(f"{path}#{index}: only rows of a sweep have an index; give the plan's file alone")
    sides = []
    # Rows that are no sweep's have no index of their own: their place in the file is theirs.
    placed = ({"index": place, "key": "", **row} for place, row in enumerate(read_flat_rows(path)))
    for row in sorted(placed, key=lambda row: row["index"]):
        if "status" not in row:
            tables = "`planner sweep`, `frontier`, `limits` or `fabric pareto`"
            raise InputError(
                f"{path}: is no table of {tables}: it has no column status; give one that -o of these writes"
            )
        if index in (None, row["index"]):
            names = list(row)
            point = {name: row[name] for name in names[names.index("key") + 1 : names.index("status")]}
            figures = {key: row[key] for key in names if key not in ("key", "index", "seconds", "planner_version")}
            name = point_text(point) or f"#{row['index']}"
            sides.append(Side(f"{path.stem} {name}" if several else name, figures))
    if not sides:
        raise InputError(f"{path}: has no row of index {index}; give the index of one of its rows, from 0")
    return sides


def side_of(name: str, plan: Plan) -> Side:
    """Return a plan as one side of a comparison."""
    # The instance's name is about it, no part of the question.
    question = {path: x for path, x in asked_values(plan.instance).items() if x is not None and path != "name"}
    return Side(name, figures_of(plan), question, statements(plan))


def figures_of(plan: Plan) -> dict[str, Figure]:
    """Return the figures of a plan that a comparison shows, by path: status, conflict, objective and digest."""
    objective = {f"objective.{name}": getattr(plan.objective, name) for name in RowObjective.model_fields}
    conflict = {"reason": plan.conflict.reason, "rules": "; ".join(plan.conflict.rules)} if plan.conflict else {}
    own = {"status": plan.status, "stopped": plan.stopped, "verified": plan.verified}
    return {**own, **conflict, **objective, **digest(plan)}


def rows_of(columns: Sequence[Side], *, diff: bool = False) -> Rows:
    """Return the rows of a comparison table by section, a figure each; `diff`: only those that differ."""
    names = dict.fromkeys(name for column in columns for name in column.figures)
    places = {section: place for place, section in enumerate(SECTIONS)}
    in_order = sorted(names, key=lambda name: places.get(name.partition(".")[0], 0))  # a section keeps its order
    rows = {name: [column.figures.get(name) for column in columns] for name in in_order}
    rows = {name: values for name, values in rows.items() if any(value not in (None, "") for value in values)}
    return {name: row for name, row in rows.items() if not (diff and all(_same(value, row[0]) for value in row))}


def _same(one: Any, other: Any) -> bool:
    return math.isclose(one, other, rel_tol=SAME) if _is_number(one) and _is_number(other) else str(one) == str(other)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def table(names: Sequence[str], rows: Rows, width: int = PIPE) -> str:
    """Write a comparison table of as many columns as fit the width, later ones with ratios to the first one."""
    goals = rows.get("objective.name", [None] * len(names))
    alike = [goal == goals[0] for goal in goals]  # days have no ratio to dollars
    cells = {
        name: [cell(x, row[0] if i and (alike[i] or not OF_GOAL.search(name)) else None) for i, x in enumerate(row)]
        for name, row in rows.items()
    }
    head = min(max(map(len, rows)), width - 2 * (LEAST_COLUMN + 2))
    figures = [
        [cells[key][at] for key, row in rows.items() if not isinstance(row[at], str)] for at in range(len(names))
    ]
    widths = [max(LEAST_COLUMN, min(MOST_COLUMN, max(map(len, own), default=0))) for own in figures]
    shown = max(2, sum(end <= width - head for end in accumulate(own + 2 for own in widths)))
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column("", overflow="fold", min_width=head)
    for name, own in list(zip(names, widths, strict=True))[:shown]:
        drawn.add_column(name, justify="right", overflow="fold", min_width=LEAST_COLUMN, max_width=own)
    for name, row in cells.items():
        drawn.add_row(name, *row[:shown])
    text = io.StringIO()
    # The height changes nothing; without it the console reads LINES, which need not be a number.
    Console(file=text, width=width, height=1, color_system=None, markup=False, highlight=False).print(drawn)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    if len(names) > shown:
        more = counted(len(names) - shown, "further column")
        lines.append(fitted(f"{more} left out: name those to see as FILE#INDEX, or take --json for all", width))
    return "\n".join(lines)


def cell(figure: Figure, first: Figure = None) -> str:
    """Write a figure in a comparison's table, with its ratio to the first side's, if given."""
    if figure is None or isinstance(figure, bool):
        return "-" if figure is None else json.dumps(figure)
    if isinstance(figure, str):
        return figure
    # In full in place of a power of ten.
    text = f"{figure:,.0f}" if isinstance(figure, int) or 1e6 <= abs(figure) < 1e15 else f"{figure:,.6g}"
    if _is_number(figure) and _is_number(first) and abs(first) > SAME and figure != first:
        text += f" ({figure / first:.3g}x)"
    return text
