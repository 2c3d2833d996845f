"""An answer names the rules that it rests on, those alone that the job and the cluster give it."""

import pytest

from planner.cluster import Job
from planner.scheduling.placing import rules_of

ALWAYS = "nodes are taken whole, and busy ones stay busy"


@pytest.mark.parametrize(
    ("segment_nodes", "trees", "more"),
    [
        (1, 1, ""),
        (1, 2, "; a job stays in one tree"),
        (2, 1, "; each 2 consecutive nodes stay in one block of a leaf"),
        (4, 3, "; a job stays in one tree; each 4 consecutive nodes stay in one block of a leaf"),
    ],
)
def test_rules_are_named_where_they_bind(segment_nodes: int, trees: int, more: str) -> None:
    """A job of single nodes has no rule of segments, and a cluster of one tree none of trees."""
    job = Job(name="run", mesh={"data": 2}, nodes_per_member=4, segment_nodes=segment_nodes)
    assert rules_of(job, trees) == ALWAYS + more
