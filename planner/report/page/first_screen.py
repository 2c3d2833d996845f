"""What a reader sees first: the verdict in one sentence, three figures with their ranges, limits and risks."""

from collections.abc import Iterator, Sequence

from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.report.page.parts import Headline, Row, Table, figure
from planner.report.statements.statement import Statement, days, short_percent
from planner.units import money

BUILT = ("sites", "wan", "model", "layout", "pools", "fabric")  # sections on purchases and choices


def in_one_sentence(reported: Sequence[Statement]) -> str:
    """Join purchase, sites, price, days and proof."""
    first = [x for x in reported if x.topic == "verdict" and x.kind in ("verdict", "choice") and x.first]
    parts = [x.text for x in sorted(first, key=lambda x: x.kind == "verdict") if not x.runner_up]
    sentences = [s.rstrip(".") for text in parts for s in text.split(". ")]
    return "; ".join([sentences[0], *(s[0].lower() + s[1:] for s in sentences[1:])]) + "." if sentences else ""


def headlines(plan: Plan) -> Iterator[Headline]:
    """Yield days with their range, capital against its budget, and how well the GPUs are used, with its range."""
    section, at = (plan.layout.metrics, "layout.metrics") if plan.layout else (plan.pools, "pools")
    if section is None:
        return
    value, (low, high) = section.days_to_train, section.days_to_train_interval
    top = max(high, value)
    shown = figure(f"{at}.days_to_train", value, f"{days(value)} days")
    likely = f"likely {days(low)} to {days(high)} (4 of 5 like runs)"
    yield Headline("Trains in", shown, likely, low / top, high / top, value / top)
    if plan.cost is not None:
        yield _capital(plan, plan.cost.total_usd)
    slow, fast = (value / x for x in (high, low))  # the range of a rate is that of the days, turned over
    if isinstance(plan.layout, LayoutPlan):
        mfu = plan.layout.metrics.mfu
        shown = figure("layout.metrics.mfu", mfu, short_percent(mfu))
        text = f"model FLOP utilisation; likely {short_percent(mfu * slow)} to {short_percent(mfu * fast)}"
        yield Headline("Uses of the GPUs' peak", shown, text, mfu * slow, min(1.0, mfu * fast), mfu)
    elif plan.pools is not None:
        seconds = plan.pools.step_seconds
        text = f"likely {seconds / fast:.3g} to {seconds / slow:.3g} s"
        shown = figure("pools.step_seconds", seconds, f"{seconds:.3g} s")
        yield Headline("A step takes", shown, text, low / top, high / top, value / top)


def _capital(plan: Plan, usd: float) -> Headline:
    budget = plan.instance.limits.budget_usd
    shown = figure("cost.total_usd", usd, money(usd))
    if not budget:
        return Headline("Costs", shown, "no budget is set", 0.0, 0.0, 0.0)
    left = f"{money(budget - usd)} left" if usd <= budget else f"{money(usd - budget)} over"
    return Headline("Costs", shown, f"of a budget of {money(budget)}, {left}", 0.0, min(1.0, usd / budget), 1.0)


def with_range(x: Statement) -> str:
    """Return a statement with its range, where its words do not have it."""
    if x.interval is None or "likely" in x.text:
        return x.text
    low, high = x.interval
    return f"{x.text} (in all likely {low:.3g} to {high:.3g})"


def side_by_side(names: Sequence[str], plans: Sequence[Plan], reported: Sequence[Sequence[Statement]]) -> Table:
    """Return the table of plans, a column each: the figures of the first screen, purchases, limits and risks."""
    rows: list[Row] = [("status", *(p.status for p in plans))]
    figures = [{h.label: f"{h.figure.text}; {h.range}" for h in headlines(p)} for p in plans]
    for label in dict.fromkeys(label for own in figures for label in own):
        rows.append((label, *(own.get(label, "-") for own in figures)))
    texts = [_by_section(own) for own in reported]
    for section in dict.fromkeys(name for own in texts for name in own):
        rows.append((section, *(_joined(own.get(section, ["-"])) for own in texts)))
    return Table("Plans side by side", ("", *names), rows, tuple(names))


def _by_section(reported: Sequence[Statement]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for x in reported:
        if x.first and (x.kind in ("limit", "warning") or (x.kind == "choice" and x.topic in BUILT)):
            found.setdefault(x.section, []).append(on_page(x))
    return found


def _joined(texts: Sequence[str]) -> str:
    """Join sentences by spaces, and phrases by semicolons."""
    return "; ".join(texts).replace(".; ", ". ")


def on_page(x: Statement) -> str:
    """Return a statement of the first screen, which sends the reader of a page not to the terminal but further down."""
    return x.text.replace("(--verbose)", "(below, in full)")
