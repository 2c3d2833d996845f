"""What tests of the page share: the page of one plan, and a plan that cannot be."""

from datetime import date
from functools import cache

from stored_plans import stored
from worked_plan import edited, instance_with, small

from planner.plan.plan import Plan
from planner.report.page.page import report_page

MADE = date(2026, 11, 24)

CITIES = [("A", 40, -77), ("B", 36, -95), ("C", 33, -112), ("D", 42, -95), ("dark", 45, -100)]
WAYS = ("AB", "BC", "AD", "DC")
TRAFFIC = [
    {"name": "checkpoint", "bytes": 1e7, "period_seconds": 10},
    {"name": "logs", "bytes": 1e5, "deadline_seconds": 9, "priority": 2},
]
DRY = {"name": "dry", "weight": 0.5, "headroom_mw": {"EAST": 1.0, "WEST": 0.6}, "energy_usd_per_mwh": {"EAST": 90}}
SHARES = {"used": 0.5, "gemm": 0.3, "idle GPUs": 0.15, "attention": 0.0506}
SHARES |= {"pipeline_bubble": 0.0004, "elementwise": -0.001}
CHOICE = {
    "flop": 9e21, "flop_bound": 9.4e21, "parameters": 8.57e9, "tokens": 1.775e11, "batch_tokens": 2e6, "loss": 2.1464,
    "loss_bound": 2.1447, "ideal": {"flop": 1.8e22, "parameters": 9.875e9, "tokens": 2.184e11, "loss": 2.1266},
    "compute_shares": SHARES, "days_by_flop": {"5.17571e+21": 17.2, "9.00396e+21": 29.6, "9.40914e+21": 30.9},
}  # fmt: skip


def page_of(plan: Plan) -> str:
    """Return the page of one plan, as if made on a fixed day."""
    return report_page([("x", plan)], MADE)


@cache
def rich() -> Plan:
    """Return a plan with every part of a page: fibre, scenarios, soft rules, upgrades, simulated transport, a model."""
    fibre = {
        "wan__fibre_nodes": [{"id": n, "latitude": y, "longitude": x} for n, y, x in CITIES],
        "wan__fibre_edges": [{"a": w[0], "b": w[1]} for w in WAYS] + [{"a": "dark", "b": "D"}],
        "wan__protection": "one_cut", "wan__exchange": "auto", "wan__traffic": TRAFFIC,
    }  # fmt: skip
    grid = {"grid__scenarios": [DRY], "grid__rules__scenarios": "expected"}
    grid |= {"grid__rules__curtailment_usd_per_mwh": 60.0}
    runs = {"network__transport": {"simulate": {"transport": "ecmp", "seeds": 3, "hosts": 64}, "slowdown": 1.5}}
    plan = stored(instance_with(**fibre, **grid, **runs))
    # No small grid needs these at once; the page shows what a plan holds, whether it could be or not.
    bought = {"sites__upgrades": [{"node": "e1", "steps": 2}]}
    bought |= {"instance__grid__nodes__0__upgrade": {"step_mw": 0.1, "max_steps": 2, "capex_usd": 1e4}}
    over = [{"rule": "headroom[EAST]", "amount": 0.25, "unit": "MW", "usd_per_year": 250.0}]
    return edited(plan, model_choice=CHOICE, sites__excess=over, **bought)


def infeasible() -> Plan:
    """Return a plan that says why there is none."""
    gone = dict.fromkeys(("sites", "layout", "fabric", "placement", "cost"))
    conflict = {"decision": "sites", "rules": ["demand", "headroom[EAST]"], "reason": "the grid is too small"}
    objective = {"name": "days_to_train", "value": None, "bound": None, "gap": None}
    return edited(small(), status="infeasible", conflict=conflict, objective=objective, **gone)
