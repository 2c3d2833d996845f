"""Plans that a careless search would call optimal."""

import pytest
from joint_bad_plans import bad_plan

from planner.api.plans import check
from planner.plan.plan import Plan


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cp8-3009-days", {"rack_shape", "racks", "metrics"}), ("cp8-3353-days", {"metrics", "breakdown_seconds"})],
)
def test_context_over_racks_is_counted(name: str, expected: set[str]) -> None:
    """CP over racks takes whole racks of TP groups, and NIC time that pipeline exchanges cannot have."""
    data = bad_plan(name)
    data["instance"]["hardware"]["overhead_includes_fabric"] = True
    for part in (x.get("certificate", {}) for x in data.values() if isinstance(x, dict)):
        part.update({k: None for k in part if k.endswith("bound")})  # columns take minutes; physics is false here
    data["objective"].update({k: None for k in data["objective"] if k.endswith("bound")})
    assert expected <= {v.rule.partition("[")[0] for v in check(Plan.model_validate(data))}
