"""The checker's count of what sends and rings share, from cables and racks, against the formula of the search."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_plans import stored
from worked_plan import small

from planner.checks.cables import _links_out, _most_flows, sends_that_meet
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import locality, ring_loads, send_loads
from planner.physics.plan_physics import PlanPhysics


@st.composite
def placed(draw: st.DrawFn) -> tuple[Design, list[list[int]], bool]:
    """Draw a tree of two to four tiers that can be wired, and stages on its racks in any order."""
    tiers, rails, split = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2]))
    racks, domain = draw(st.integers(4, 24)), draw(st.integers(1, 4))
    own: dict[str, Any] = {"ports": 4096, "rails": rails, "racks": racks, "leaf_down": domain, "split": split}
    own |= {"leaf_up": 2 * draw(st.integers(1, 3)), "leaf_bundle": draw(st.sampled_from([1, 2]))}
    own |= {"rails_per_pod": rails, "domains_per_pod": draw(st.integers(1, 3)) if tiers > 2 else 24}
    own |= {"lanes": draw(st.integers(1, 2))}
    if tiers > 2:
        own |= {"spine_up": draw(st.integers(1, 4)), "spine_bundle": 1}
    if tiers > 3:
        own |= {"core_up": draw(st.integers(1, 3)), "core_bundle": 1, "rails_per_zone": rails}
        own |= {"domains_per_zone": own["domains_per_pod"] * draw(st.integers(1, 2))}
    order, stages = draw(st.permutations(range(racks))), draw(st.integers(1, 4))
    size = racks // stages
    return Design(**own), [list(order[i * size : (i + 1) * size]) for i in range(stages)], draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(placed())
def test_loads_of_cables_and_racks_are_those_of_the_formula(x: tuple[Design, list[list[int]], bool]) -> None:
    """Flows out of the fullest block over the cables that leave it are shares times oversubscriptions."""
    d, stages, wrap = x
    assert unwirable(d, cross_rail=True) == []
    blocks = {"leaf_domain_racks": d.domain_racks, "domains_per_pod": d.domains_per_pod}
    where = locality(stages, **blocks, domains_per_zone=d.domains_per_zone, wrap=wrap)
    sends = send_loads(d, where.share_leaving)
    rings = ring_loads(d, where.allreduces_leaving)
    for level, (racks, links) in _links_out(d).items():
        flows, groups = _most_flows(stages, racks, wrap=wrap)
        assert (flows / links, groups / links) == pytest.approx((sends[level], rings[level]))


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, 3),
        ({"virtual_stages": 1}, 1),
        ({"virtual_stages": 1, "schedule": "zb-h1"}, 0),
        ({"stages_per_rack": 2}, 0),
        ({"racks_per_stage_by_site": {"e1": 1, "w1": 1}}, 0),
        ({"zero_stage": 3}, 2 * 3),
        ({"zero_stage": 3, "virtual_stages": 1}, 2 * 1 + 2 * 4),
    ],
)
def test_sends_are_counted_from_the_order_of_passes(change: dict[str, Any], met: int) -> None:
    """On two stages of two chunks three sends go back; four micro-batches of ZeRO-3 meet rings at all that show."""
    layout = small().layout.model_copy(update=change)
    assert sends_that_meet(PlanPhysics(plan=small()), layout) == met


def test_plans_in_which_nothing_meets_say_nothing_of_it() -> None:
    layout = stored("instances/one-rack.json").layout
    assert layout.metrics.sends_beside_rings == 0 and "ring_wait" not in layout.metrics.breakdown_seconds
