"""Time the site split on a grid: by transport, by dc and by dc with full N-1, beside the plain formulation by angles.

    .venv/bin/python scripts/bench/bench_sites.py [--buses 2000] [--candidates 100] [--gw 5] [--sites 5] [--limit 120]
    .venv/bin/python scripts/bench/bench_sites.py --grid part.json          the grid of an instance, or of a part of one
    .venv/bin/python scripts/bench/bench_sites.py --only dc,dc-angles

Every run has a process of its own and one thread; read the times beside each other, not alone. N-1 by angles has a
network for every outage: it is run up to a hundred buses.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

from made_grid import made_grid

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
RUNS = ("transport", "dc", "dc-angles", "n1", "n1-angles")
GPU = {
    "name": "gpu",
    "hbm_bytes": 1e11,
    "hbm_bytes_per_second": 1e12,
    "peak_flop_per_second": {"bf16": 1e15},
    "gemm_efficiency": {"max_share": {"bf16": 0.7}},
    "scale_up_bytes_per_second": 1e11,
    "scale_up_latency_seconds": 1e-6,
    "nic_bytes_per_second": 5e10,
    "nic_latency_seconds": 1e-6,
}
PRECISION = {
    "compute": "bf16",
    "parameter_bytes": 6,
    "working_parameter_bytes": 2,
    "gradient_bytes": 2,
    "optimizer_bytes": 8,
    "activation_bytes": 2,
    "collective_bytes": 2,
}
MODEL = {"name": "m", "layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100}
WORKLOAD = {
    "model": MODEL,
    "tokens": 1e9,
    "sequence_length": 128,
    "software": {"name": "ideal"},
    "precision": PRECISION,
}
MODULE_MW = 2.8  # 16 racks of 125 kW and 40 % of overhead


def question(grid: dict[str, Any], model: str, n1: str, sites: int) -> Any:
    """Return the instance: modules of 16 racks, no exchange between sites."""
    from planner.instance.instance import Instance

    rules = {"grid_model": model, "n1": n1, "max_sites": sites, "headroom": False}
    prices = {"building_usd_per_it_mw": 1e7, "site_usd": 1e8}
    hardware: dict[str, Any] = {"accelerator": GPU, "rack": {"name": "r", "gpus": 72, "it_kw": 125, "price_usd": 3e6}}
    hardware |= {"racks_per_module": 16, "facility_overhead_factor": 1.4}
    data = {
        "name": "bench",
        "workload": WORKLOAD,
        "hardware": hardware,
        "grid": {**grid, "rules": rules, "prices": prices},
    }
    return Instance.model_validate(data)


def solved(run: str, grid: dict[str, Any], gw: float, sites: int, limit: float, results: Any) -> None:
    """Solve one question in this process, and put seconds, peak memory and what was found into the queue."""
    from best_splits import asking, split

    from planner.models import Options, SitesRequest

    racks = 16 * round(gw * 1e3 / MODULE_MW)
    model = "transport" if run == "transport" else "dc"
    instance = question(grid, model, "full" if run.startswith("n1") else "off", sites)
    started = time.perf_counter()
    if run.endswith("angles"):
        found = _angles(asking(instance, racks), limit)
    else:
        outcome = split(asking(instance, racks), SitesRequest(), Options(time_limit=limit))
        plan = outcome.solution
        space = plan.certificate.space if plan else {}
        effort = ", ".join(f"{k} {space[k]}" for k in ("rounds", "rating_cuts", "outages", "outage_cuts") if k in space)
        found = outcome.objective, plan.certificate.status if plan else without_plan(outcome, limit), effort
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    results.put((time.perf_counter() - started, peak, *found))


def _angles(instance: Any, limit: float) -> tuple[float | None, str, str]:
    import pyomo.environ as pyo
    from angle_formulation import by_angles
    from best_splits import yearly_musd

    from planner.models import SitesRequest
    from planner.solvers import highs
    from planner.solvers.outcome import Stop

    m, q = by_angles(instance, SitesRequest())
    m.goal = pyo.Objective(expr=yearly_musd(m, q))
    outcome = highs.run(m, time_limit=limit)
    objective = None if outcome.objective is None else outcome.objective * 1e6
    status = (
        without_plan(outcome, limit) if objective is None else "optimal" if outcome.stop is Stop.PROVED else "feasible"
    )
    return objective, status, f"{outcome.variables} variables, {outcome.constraints} rows"


def without_plan(outcome: Any, limit: float) -> str:
    """Say why there is no plan; at its limit, HiGHS may name an error of its own."""
    if outcome.infeasible:
        return "infeasible"
    return (
        f"no plan within {limit:g} s"
        if outcome.seconds >= 0.95 * limit
        else f"no plan: {outcome.detail} after {outcome.seconds:.1f} s"
    )


def main() -> None:
    """Print a row a run; ratios are to the planner's own run of the same question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buses", type=int, default=2000)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--gw", type=float, default=5.0)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--only", default=",".join(RUNS))
    given = parser.parse_args()
    grid = made_grid(given.buses, given.candidates, given.seed)
    if given.grid is not None:
        data = json.loads(given.grid.read_text(encoding="utf-8"))
        grid = {k: v for k, v in data.get("grid", data).items() if k not in ("rules", "prices", "new_lines")}
    nodes, candidates = len(grid["nodes"]), sum(n.get("site", True) for n in grid["nodes"])
    print(f"{nodes} nodes, {len(grid['lines'])} lines, {candidates} candidate sites, {given.gw:g} GW")
    print(f"{'run':10} {'seconds':>8} {'ratio':>6} {'peak MB':>8} {'M$ a year':>10}  status, effort")
    context = multiprocessing.get_context("spawn")
    seconds: dict[str, float] = {}
    for run in (r for r in RUNS if r in given.only.split(",") and (r != "n1-angles" or nodes <= 100)):
        results = context.Queue()
        process = context.Process(target=solved, args=(run, grid, given.gw, given.sites, given.limit, results))
        process.start()
        seconds[run], peak, objective, status, effort = results.get()
        process.join()
        ratio = seconds[run] / seconds.get(run.removesuffix("-angles"), seconds[run])
        cost = "-" if objective is None else f"{objective / 1e6:.3f}"
        print(f"{run:10} {seconds[run]:8.2f} {ratio:6.2f} {peak:8.0f} {cost:>10}  {status}, {effort}", flush=True)


if __name__ == "__main__":
    main()
