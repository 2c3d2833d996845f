"""How plans differ, in a few lines: the headline of each, what was changed, what it brings, and the terms behind it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.plan.flatten import Figure
from planner.plan.plan import Plan
from planner.report.statements.statement import Statement
from planner.sweeps.paths import canonical
from planner.units import counted, money, percent, short, words

CHANGES = 4  # values of the instance that are named
MOST_JUDGED = 8  # sides of which each is set beside the first
TERMS = 4  # of days and of dollars that are named
IDLE = 1e-3  # share of the money from which idle racks are named
SMALL = 0.02  # of the largest term, below which one is left out
NOTHING = 1e-9  # relative: the same but for rounding
UNITS = {"days_to_train": "days", "loss": "nats a token"}
NAMES = ("name", "source", "note")  # of an instance: words about it, no part of the question
STEP, LOST, CAPITAL = "layout.metrics.breakdown_seconds.", "reliability.lost_days.", "cost.capex_usd."
STEP_SECONDS, STEP_DAYS = "layout.metrics.step_seconds", "layout.metrics.step_days_to_train"


@dataclass(frozen=True, slots=True)
class Side:
    """A plan or a row of a sweep by its name and figures; of a plan also its instance's values and what it says."""

    name: str
    figures: Mapping[str, Figure]
    asked: Mapping[str, Any] | None = None
    reported: Sequence[Statement] = ()

    def number(self, key: str) -> float | None:
        """Return a figure that is a number."""
        value = self.figures.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def parts(self, front: str) -> dict[str, float]:
        """Return the figures that are numbers and whose names begin so, by the rest of their names."""
        figures = {k.removeprefix(front): self.number(k) for k in self.figures if k.startswith(front)}
        return {k: x for k, x in figures.items() if x is not None}


def asked_of(plan: Plan) -> dict[str, Any]:
    """Return the values of a plan's instance by path."""
    return dict(_leaves(plan.instance.model_dump(mode="json", exclude_none=True), ""))


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, x in value.items():
            if key not in NAMES or (where and key == "name"):
                yield from _leaves(x, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for n, x in enumerate(value):
            own = x.get("id", x.get("name")) if isinstance(x, dict) else None
            yield from _leaves(x, f"{where}[{n if own is None else own}]")
    else:
        yield where, value


def verdicts(sides: Sequence[Side]) -> Iterator[str]:
    """Write the headline of each side, then for each behind the first what it changes, brings, and by which terms."""
    wide = max(len(s.name) for s in sides)
    for s in sides:
        yield f"{s.name:<{wide}}  {headline(s)}"
    first = sides[0]
    for s in sides[1:]:
        yield ""
        front = "" if len(sides) == 2 else f"{s.name} beside {first.name}: "
        yield f"{front}{changes(first, s)}: {brings(first, s)}"
        yield from (f"  {line}" for line in terms(first, s))
        known = {x.text for x in first.reported}
        own = [x.text for x in s.reported if x.first and x.kind in ("limit", "warning") and x.text not in known]
        yield from (f"  {s.name}: {text}" for text in own)


def headline(s: Side) -> str:
    """Write what a plan comes to: its verdict and money; of a row its objective, money and status."""
    if s.reported:
        return " ".join(x.text for x in s.reported if x.section == "verdict" and x.first and not x.runner_up)
    status = str(s.figures.get("status", "no status"))
    if s.figures.get("verified") is False:
        status += ", not verified"
    value, name = s.number("objective.value"), str(s.figures.get("objective.name", ""))
    if value is None:
        reason = s.figures.get("reason")
        return status + (f": {reason}" if reason else "")
    days, usd = s.number("layout.metrics.days_to_train"), s.number("cost.total_usd")
    parts = [f"loss {value:.4f}"] if name == "loss" else []
    parts += [] if days is None and name != "days_to_train" else [f"{value if days is None else days:,.1f} days"]
    parts += [] if usd is None else [money(usd)]
    racks = s.number("sites.racks")
    parts += [] if racks is None else [f"{racks:,.0f} racks"]
    return f"{', '.join(parts)}; {status}"


def changes(a: Side, b: Side) -> str:
    """Write which values of the instance differ; a number that moved as its share of what it was."""
    if a.asked is None or b.asked is None:
        return b.name
    differ = [k for k in dict.fromkeys((*a.asked, *b.asked)) if a.asked.get(k) != b.asked.get(k)]
    # A name says all of its object.
    named_objects = tuple(k.removesuffix("name") for k in differ if k.endswith(".name"))
    differ = [k for k in differ if k.endswith(".name") or not k.startswith(named_objects)] if named_objects else differ
    named = [_change(k, a.asked.get(k), b.asked.get(k)) for k in differ[:CHANGES]]
    more = [f"{len(differ) - CHANGES} other values"] if len(differ) > CHANGES else []
    return ", ".join(named + more) or "the same instance"


def _change(path: str, old: Any, new: Any) -> str:
    path = canonical(path).removesuffix(".name")
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (old, new))
    if numbers and old:
        return f"{path} {short(old)} -> {short(new)} ({100 * (new - old) / abs(old):+.3g} %)"
    return f"{path} {'none' if old is None else short(old)} -> {'none' if new is None else short(new)}"


def brings(a: Side, b: Side) -> str:
    """Write the change of the objective, of the money and of what is left of it."""
    if a.number("objective.value") is None or b.number("objective.value") is None:
        return f"{a.figures.get('status')} -> {b.figures.get('status')}"
    parts: list[str] = []
    for key, unit in (("layout.metrics.days_to_train", "days"), ("objective.value", "")):
        old, new = a.number(key), b.number(key)
        own = unit or UNITS.get(str(b.figures.get("objective.name")), "")
        if old is not None and new is not None and own and not any(own in p for p in parts):
            share = f" ({percent((new - old) / old)})" if old and abs(new - old) > NOTHING * abs(old) else ""
            moved = f"{new - old:+,.4g}" if abs(new - old) > NOTHING * max(abs(old), abs(new)) else "0"
            parts.append(f"{moved} {own}{share}")
    usd = [s.number("cost.total_usd") for s in (a, b)]
    if usd[0] is not None and usd[1] is not None:
        parts.append(f"{_dollars(usd[1] - usd[0])} of capital")
    left = b.number("slack.budget_usd")
    in_dollars = str(b.figures.get("objective.name")).endswith("_usd")  # then what is left is what was saved
    if left is not None and left > 0 and usd[1] and left > SMALL * usd[1] and not in_dollars:
        parts.append(f"{money(left)} of the budget is not spent")
    before, idle = idle_racks(a), idle_racks(b)
    if usd[1] and idle - before > IDLE * usd[1]:
        parts.append(f"{money(idle - before)} {'more ' if before else ''}of idle racks")
    return ", ".join(parts)


def idle_racks(s: Side) -> float:
    """Return what the GPUs that do no work cost with their racks, in dollars."""
    used, idle, racks = (s.number(k) for k in ("layout.gpus_used", "layout.gpus_idle", "cost.capex_usd.racks"))
    return racks * idle / (used + idle) if used and idle and racks else 0.0


def best(sides: Sequence[Side]) -> str:
    """Name the side of fewest days and that of least money, however many there are; nothing where none is a plan."""
    found = []
    for what, keys, show in (
        ("fewest days", ("layout.metrics.days_to_train", "objective.value"), lambda x: f"{x:,.1f}"),
        ("least money", ("cost.total_usd",), money),
    ):
        figures = [(next((v for k in keys if (v := s.number(k)) is not None), None), s.name) for s in sides]
        known = [(v, name) for v, name in figures if v is not None]
        if known and (what != "fewest days" or all(_in_days(s) for s in sides)):
            value, name = min(known)
            alike = sum(v == value for v, _ in known) - 1
            more = f" and {counted(alike, 'other')}" if alike else ""
            found.append(f"{what}: {name}{more} ({show(value)})")
    return "; ".join(found)


def _in_days(s: Side) -> bool:
    """Return whether the days of a side are known, or it has no plan."""
    days = s.figures.get("objective.name") == "days_to_train" or s.number("layout.metrics.days_to_train") is not None
    return days or s.number("objective.value") is None


def _dollars(usd: float) -> str:
    return f"{'+' if usd > 0 else ''}{money(usd)}"


def terms(a: Side, b: Side) -> Iterator[str]:
    """Write the parts of days and of capital that moved most."""
    for name, (old, new), show in (
        ("days", (_days(a), _days(b)), lambda x: f"{x:+,.4g}"),
        ("capital", (a.parts(CAPITAL), b.parts(CAPITAL)), _dollars),
    ):
        moved = {k: new.get(k, 0.0) - old.get(k, 0.0) for k in dict.fromkeys((*old, *new))}
        most = max(map(abs, moved.values()), default=0.0)
        total = max(sum(map(abs, x.values())) for x in (old, new))
        if most > NOTHING * total:
            order = sorted(moved.items(), key=lambda item: -abs(item[1]))
            named = [f"{words(k)} {show(v)}" for k, v in order if abs(v) >= SMALL * most]
            yield f"{name}: {', '.join(named[:TERMS])}"


def _days(s: Side) -> dict[str, float]:
    seconds, days = s.number(STEP_SECONDS), s.number(STEP_DAYS)
    if not seconds or not days:
        return s.parts(LOST)
    return s.parts(LOST) | {k: x * days / seconds for k, x in s.parts(STEP).items()}
