"""What an instance asks of a fabric in the words of the trade: oversubscription, and losses tried one by one."""

from typing import Any

import pytest
from fabric_cases import instance, switch
from fabric_graph import survives
from fabric_zone_cases import every_design
from stored_plans import stored
from tiers import more, slow
from worked_plan import edited_at, rules

from planner.checks.fabric import cut_by
from planner.errors import InputError
from planner.instance.network import Network
from planner.models.joint.solution import JointStatus
from planner.models.joint.solve import solve_joint
from planner.models.requests import FabricRequest
from planner.physics.network.topology import unwirable
from planner.planning.conflict import _decision, _reason, _relaxations
from planner.planning.load import load_instance
from planner.planning.solve import options_of

QUICK = options_of(time_limit=None, gap=None, seed=0, threads=1)


SLOW = [*slow((4, 3), (4, 4)), *more((5, 5), (6, 9))]


@pytest.mark.parametrize(("ports", "racks"), [(4, 6), (6, 7), *SLOW])
def test_closed_forms_agree_with_every_loss(ports: int, racks: int) -> None:
    """Of every design of up to four tiers, cable by cable: two links, two spines, and nothing less or more."""
    i = instance(2, switch(ports, 5e4), max_tiers=4)
    r = FabricRequest(
        racks=racks, group_racks=racks, groups=1, pipeline_send_seconds=0.0,
        pipeline_send_window_seconds=1.0, allreduce_seconds=0.0, allreduce_window_seconds=1.0,
    )  # fmt: skip
    seen = {True: 0, False: 0}
    for d in every_design(i, r, i.network.switches[0]):
        if d.single or unwirable(d, cross_rail=True) or d.leaves // d.networks < 2 or sum(seen.values()) > 400:
            continue
        up, spines = cut_by(d)
        assert (up >= 2) == survives(d, "one_leaf_uplink"), d
        assert (spines >= 2) == survives(d, "one_spine"), d
        seen[spines >= 2] += 1
    assert seen[False]


def asked(**network: Any) -> dict[str, Any]:
    """Return the cluster of a thousand GPUs with a network that asks for more, on twelve nodes."""
    data = load_instance("instances/cluster-1k.json").model_dump(mode="json", exclude_none=True)
    data["network"] |= network
    data["hardware"]["racks"] = 12
    layout = {"tensor_parallel": 8, "pipeline_parallel": 4, "virtual_stages": 1, "zero_stage": 1, "recompute": "full"}
    data["pins"] = {"fabric.tiers": 2} | {f"layout.{name}": value for name, value in layout.items()}
    return data


def test_a_plan_survives_what_is_asked() -> None:
    """The free answer has one spine; asked for, there are two, the checker finds the difference, and it costs more."""
    free, safe = stored(asked()), stored(asked(survives="one_spine"))
    spines = [x.fabric.sites["cluster"].tiers[0] for x in (free, safe)]
    assert [leaf.up_ports // leaf.bundle >= 2 for leaf in spines] == [False, True]
    assert rules(safe) == set() and safe.cost.total_usd > free.cost.total_usd
    assert "survival" in rules(edited_at(free, "instance.network.survives", "one_spine"))


def test_a_plan_is_no_more_oversubscribed_than_asked() -> None:
    """At 1 the leaves have as many ports up as down."""
    tiers = stored(asked(max_oversubscription=1)).fabric.sites["cluster"].tiers
    assert tiers[0].up_ports >= tiers[0].down_ports
    assert stored(asked()).fabric.sites["cluster"].tiers[0].oversubscription > 1


def test_losses_of_dragonflies_are_refused() -> None:
    """Which links of groups remain is not counted, so that the question is refused and not answered wrongly."""
    network = asked()["network"] | {"families": ["rail", "dragonfly"], "survives": "one_spine"}
    with pytest.raises(ValueError, match=r"survives is of trees, and families has dragonfly; leave one of them out"):
        Network.model_validate(network)
    with pytest.raises(InputError, match=r"network: survives is of trees"):
        load_instance(asked(**{"families": ["dragonfly+"], "survives": "one_leaf_uplink"}))


def test_ratios_by_tier_are_of_trees() -> None:
    """A dragonfly has no tiers of its own, a list names leaf and spine, and none is below 1:1."""
    with pytest.raises(ValueError, match=r"a list of max_oversubscription is of trees, and families has dragonfly"):
        Network.model_validate(asked()["network"] | {"families": ["dragonfly"], "max_oversubscription": [1, 7]})
    for wrong in ([], [1, 2, 3], [0.5]):
        with pytest.raises(ValueError, match="max_oversubscription"):
            Network.model_validate(asked()["network"] | {"max_oversubscription": wrong})


def test_they_are_reasons_why_there_is_no_plan() -> None:
    """With one uplink pinned no plan survives its loss, and some plan exists without the rule: it is named in words."""
    data = asked(survives="one_leaf_uplink", max_oversubscription=8)
    data["pins"] |= {"fabric.leaf_up_ports": 1, "layout.pipeline_parallel": 1, "layout.virtual_stages": 1}
    lost = load_instance(data)
    assert solve_joint(lost, QUICK, lambda _: None).status is JointStatus.INFEASIBLE
    assert {"network.survives", "network.max_oversubscription"} <= set(_relaxations(lost))
    free = _relaxations(lost)["network.survives"](lost)
    assert free.network.survives is None and free.network.max_oversubscription == 8
    reason = _reason(lost, ["network.survives", "network.max_oversubscription"])
    assert "the loss of one link of a leaf upwards cuts no two leaves; no fabric is oversubscribed beyond 8:1" in reason
    assert _decision(["network.survives", "memory"]) == "fabric"
