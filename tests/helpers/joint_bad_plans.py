"""Plans of 5gw whose CP groups cross leaf domains on a fabric that was not sized for their traffic.

Both were solved decision by decision with `planner solve instances/5gw.json --pin layout.context_parallel=8`; the pin
was then taken out of the instance inside the plan and its hash stated anew, all else is as it was written. CP 8 beside
TP 60 spreads over 8 racks. "cp8-3353-days" was solved at commit 0f9c7f8, whose checker finds no fault in it: leaf
domains of 222 and 221 racks with 34 uplinks. "cp8-3009-days" was solved at commit 223db8a, which timed CP over racks as
if it stood in one: leaf domains of 494 and 491 racks with 11 uplinks.
"""

import json
import lzma
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "models" / "joint" / "plans"
NAMES = tuple(sorted(p.name.removesuffix(".json.xz") for p in FOLDER.glob("*.json.xz")))


def bad_plan(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    for gone in ("pipeline_send_step_share", "allreduce_step_share"):  # keys of the instance that no longer exist
        found["instance"]["network"].pop(gone, None)
    software = found["instance"]["workload"]["software"]
    for gone in ("pipeline_overlap", "data_exposed", "context_overlap", "expert_once_per_domain"):
        software.pop(gone, None)
    metrics = found["layout"]["metrics"]
    days = metrics["days_to_train"]  # the keys below are later than the plans
    metrics |= {"days_to_train_interval": [days] * 2, "step_days_to_train": days, "useful_share": 1.0}
    return found
