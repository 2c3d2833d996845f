"""JSON Schemas of the files that users keep: instances, plans, jobs and placements."""

import json

from pydantic import BaseModel

from planner.cluster import Job, Placement
from planner.instance.base_types import put_ranges
from planner.instance.instance import Instance
from planner.plan.plan import Plan

SCHEMAS: dict[str, type[BaseModel]] = {"instance": Instance, "plan": Plan, "job": Job, "placement": Placement}


def schema_text(what: str) -> str:
    """Return the text of a JSON Schema as it is committed: keys sorted, one a line."""
    schema = SCHEMAS[what].model_json_schema()
    if what == "instance":
        put_ranges(schema)
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
