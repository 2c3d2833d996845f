"""Measure what a session saves after a change of the budget, and how soon an interrupter ends a solve.

Run `scripts/bench/bench_session.py INSTANCE …`; `--at SECONDS …` asks for the end at these moments of a cold solve.
"""

import argparse
import threading
import time
from collections.abc import Callable

import planner
from planner.planning.load import load_instance


def with_budget(instance: planner.Instance, usd: float) -> planner.Instance:
    """Return an instance with another budget."""
    return instance.replaced(limits__budget_usd=usd)


def resolve(name: str, change: float) -> str:
    """Solve an instance, change its budget, and solve again in the session and cold; in CPU-seconds."""
    instance, session = load_instance(name), planner.Session()
    if instance.limits.budget_usd is None:  # one that the plan does not spend
        bill = planner.solve(instance).cost
        instance = with_budget(instance, 1.1 * (bill.total_usd if bill else 1e9))
    first = session.solve(instance)
    richer = with_budget(instance, (instance.limits.budget_usd or 0.0) * (1 + change))
    seconds, plans = [], []
    ways: tuple[Callable[[], planner.Plan], ...] = (
        lambda: session.solve(richer, start=first),
        lambda: planner.solve(richer),
    )
    for solve in ways:
        began = time.process_time()
        plans.append(solve())
        seconds.append(time.process_time() - began)
    warm, cold = seconds
    same = "the same answer" if plans[0].objective == plans[1].objective else "ANOTHER ANSWER"
    return f"{name}: {warm:.2f} of {cold:.2f} CPU-s ({warm / cold:.0%}) after {change:+.0%} of the budget; {same}"


def interrupted(name: str, at: float) -> str:
    """Ask for the end of a cold solve at a moment; return how long it took to come back, and with what."""
    stop, asked = planner.Interrupter(), list[float]()

    def ask() -> None:
        asked.append(time.perf_counter())
        stop.interrupt()

    timer = threading.Timer(at, ask)
    timer.start()
    plan = planner.solve(name, interrupt=stop)
    ended = time.perf_counter()
    timer.cancel()
    if not asked:
        return f"{name}: ended before {at:g} s"
    return f"{name}: back {ended - asked[0]:.3f} s after the word at {at:g} s; {plan.status}, {plan.stopped}"


def main() -> None:
    """Print a line an instance, and a line a moment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("instances", nargs="+", help="files, or names that ship")
    parser.add_argument("--change", type=float, default=0.01, help="of the budget, a share")
    parser.add_argument("--at", type=float, nargs="*", default=[], help="seconds at which a cold solve is ended")
    asked = parser.parse_args()
    planner.solve("one-rack")  # loads the solvers
    for name in asked.instances:
        print(resolve(name, asked.change), flush=True)
        for at in asked.at:
            print(interrupted(name, at), flush=True)


if __name__ == "__main__":
    main()
