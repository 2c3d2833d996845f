"""The job of a plan's stages: by site, and what is refused."""

import pytest
from each_case import each
from worked_plan import edited_at, small

from planner.cluster import job_of_plan
from planner.errors import InputError


def test_stages_of_two_sites_are_groups_by_site() -> None:
    plan = small()
    job = job_of_plan(plan)
    sizes = plan.layout.racks_per_stage_by_site
    assert {k.name: (k.size, k.count) for k in job.groups} == {
        s: (n, plan.layout.rack_stages) for s, n in sizes.items()
    }


@each("stages", [0, -3])
def test_a_rack_of_no_stages_is_named(stages: int) -> None:
    with pytest.raises(InputError, match=f"mine: layout.stages_per_rack: {stages} stages share a rack"):
        job_of_plan(edited_at(small(), "layout.stages_per_rack", stages), "mine")
