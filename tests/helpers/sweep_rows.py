"""Rows of a small budget sweep, made up: sites open at $70B and $110B, the fabric grows at $90B."""

import json
from pathlib import Path
from typing import Any

X, Y = "limits.budget_usd", "layout.metrics.days_to_train"


def row(billions: int, factor: float = 1.1) -> dict[str, Any]:
    point = {X: billions * 1e9, "hardware.facility_overhead_factor": factor}
    if billions < 40:
        rules = ["limits.budget_usd", "memory"]
        return {"point": point, "status": "infeasible", "reason": "too little", "rules": rules, "plan": {}}
    if (billions, factor) == (150, 1.3):
        return {"point": point, "status": "failed", "reason": "its worker died twice", "plan": {}}
    names = ["palo-verde", *(["salem"] if billions >= 64 else []), *(["comanche-peak"] if billions >= 110 else [])]
    plan: dict[str, Any] = {
        Y: 900 * factor / (min(billions, 170) / 40) ** 0.8, "layout.tensor_parallel": 8 if billions < 90 else 16,
        "layout.pipeline_parallel": 64, "layout.virtual_stages": 1, "cost.total_usd": billions * 0.98e9,
    }  # fmt: skip
    for name in names:
        plan |= {f"sites.sites.{name}.racks": 10 * billions, f"fabric.sites.{name}.planes": 4}
        plan |= {f"fabric.sites.{name}.tiers.{t}": "3 of 4/5" for t in ("leaf", "spine", "core")[: 2 + (billions > 80)]}
    return {"point": point, "status": "optimal", "plan": plan, "seconds": 1.0}


def written(folder: Path) -> Path:
    """Write the sweep of 20 to 200 billion dollars by two factors."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row(b, f)) + "\n" for b in range(20, 201, 10) for f in (1.3, 1.1)))
    return path
