"""Measure how far solves overrun their time limits: every shipped instance under each limit, in fresh processes.

Run `.venv/bin/python scripts/bench/bench_limits.py [--limits 0.1,1,3,10] [NAME...]`. The clock starts once the modules
are imported and stops when the plan is checked. "over" is what it shows above the limit, in seconds, and "own" the
share of that in which the process itself worked: on a busy machine the rest is waiting for others. Exit status 1 where
"own" exceeds a second and 5 % of the limit, or an answer is neither a plan that keeps every rule nor an honest
"unknown".
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

INSTANCES = Path(__file__).parents[2] / "instances"
LIMITS = "0.1,1,3,10"
ALLOWED_SECONDS, ALLOWED_SHARE = 1.0, 0.05
FIGURES = ("wall", "cpu", "over", "own")
NO_PLAN_ASKED = "hardware.racks: is missing"  # of an instance for `planner limits` alone
PLANS = ("optimal", "feasible")
CHILD = """
import json, sys, time
import planner
import planner.planning.load, planner.planning.solve
path, limit = sys.argv[1], float(sys.argv[2])
started, cpu = time.perf_counter(), time.process_time()
plan = planner.solve(path, time_limit=limit)
wall, cpu = time.perf_counter() - started, time.process_time() - cpu
broken = [v.rule for v in planner.check(type(plan).model_validate_json(plan.model_dump_json()))]
print(json.dumps({
    "wall": wall, "cpu": cpu, "status": plan.status, "stopped": plan.stopped, "gap": plan.objective.gap,
    "value": plan.objective.value, "broken": broken, "reason": plan.conflict.reason if plan.conflict else "",
}))
"""


def measured(path: Path, limit: float) -> dict[str, Any]:
    """Solve an instance under a limit in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(limit)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"status": "refused", "broken": []} if NO_PLAN_ASKED in last else {"status": "failed", "broken": [last]}
    found: dict[str, Any] = json.loads(done.stdout)
    found["over"] = max(0.0, found["wall"] - limit)
    found["own"] = found["over"] * min(1.0, found["cpu"] / found["wall"])
    return found


def faults(found: dict[str, Any], limit: float) -> list[str]:
    """List what a run breaks: the allowed overrun, the rules of its plan, or the honesty of its status."""
    wrong = list(found["broken"])
    if found["status"] in ("failed", "refused"):  # refused: it asks for no plan
        return wrong
    if found["own"] > ALLOWED_SECONDS + ALLOWED_SHARE * limit:
        wrong.append("overrun")
    if found["status"] in PLANS and (found["status"] == "optimal") != (found["stopped"] == "proved"):
        wrong.append(f"{found['status']} though stopped by {found['stopped']}")
    if found["status"] == "unknown" and (found["stopped"] == "proved" or not found["reason"]):
        wrong.append("unknown without a reason")
    return wrong


def main() -> None:
    """Print a row a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limits", default=LIMITS, help="Seconds, separated by commas.")
    parser.add_argument("names", nargs="*", help="Instances; all that are shipped unless given.")
    asked = parser.parse_args()
    names = asked.names or sorted(p.stem for p in INSTANCES.glob("*.json"))
    failed = False
    heads = "".join(f"{x:>8}" for x in FIGURES)
    print(f"{'instance':22}{'limit':>8}{heads} {'status':>11} {'stopped':>11} {'gap':>9}")
    for name in names:
        for limit in map(float, asked.limits.split(",")):
            found = measured(INSTANCES / f"{name}.json", limit)
            wrong, gap = faults(found, limit), found.get("gap")
            figures = "".join(f"{found.get(x, 0.0):8.2f}" for x in FIGURES)
            how = f"{found['status']:>11} {found.get('stopped', ''):>11} {'-' if gap is None else f'{gap:.2e}':>9}"
            print(f"{name:22}{limit:8.2f}{figures} {how} {'; '.join(wrong)}", flush=True)
            failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
