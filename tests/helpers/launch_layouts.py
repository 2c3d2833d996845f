"""Layouts of nodes of eight H100s as the runs that frameworks start: what tests of exports share."""

import json
from pathlib import Path
from typing import Any

import planner
from planner.exports.runnable_layout import layout_question
from planner.instance.instance import Instance, instance_sha256
from planner.plan.plan import Plan
from planner.planning.evaluate import plan_of_layout
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[2] / "instances"
_PLANS: dict[tuple[str, str], Plan] = {}


def layout_of(tensor: int, pipeline: int, data: int, **choices: Any) -> dict[str, Any]:
    """Return the choices of a layout by its degrees of parallelism."""
    return {"tensor_parallel": tensor, "pipeline_parallel": pipeline, "data_parallel": data, **choices}


DENSE = layout_of(8, 4, 32, sequence_parallel=True)


def question(model: str | dict[str, Any], *, racks: int | None = None, **workload: Any) -> Instance:
    """Return 128 nodes of eight H100s, or some, for a model."""
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data = {k: v for k, v in data.items() if k not in ("network", "pins")}
    data["workload"] |= {"model": model, "software": "ideal", **workload}
    data["hardware"]["racks"] = racks or data["hardware"]["racks"]
    return load_instance(data, searched=False)


def plan_for(instance: Instance, layout: dict[str, Any]) -> Plan:
    key = instance_sha256(instance), json.dumps(layout)
    if key not in _PLANS:
        e = planner.evaluate(instance, layout)
        _PLANS[key] = plan_of_layout(layout_question(instance, e.layout.gpus_used), e.layout)
    return _PLANS[key]
