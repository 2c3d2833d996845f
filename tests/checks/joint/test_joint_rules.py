"""The rules of the proof as a whole: an honest one passes, and every figure bent by hand is named."""

from typing import Any

from joint_proof import solved_with_proof
from joint_toys import PHI, toy

import planner
from planner.checks.joint_proof import joint_proof, proof_violations
from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import JointProof


def violations(i: Instance, found: JointSolution, proof: JointProof, **changes: Any) -> list[str]:
    """Check a proof with the plan's own racks and GPUs cabled, or others."""
    block = found.plan.column.strategy.block(found.plan.column.p)
    own: dict[str, Any] = {"days": found.days, "bound": found.lower_bound, "wired_gpus": block.rails}
    own |= {"racks_in_use": sum(block.racks * n for n in found.plan.blocks_by_site.values())}
    return [f"{v.rule}: {v.message}" for v in proof_violations(i, proof, transport_slowdown=PHI, **(own | changes))]


def test_an_honest_proof_passes_and_bent_ones_do_not() -> None:
    """Racks too few or too many, a wrong price, and bounds out of order are named, and hide no column."""
    i = toy(59, sites=2, forced=True)
    found, proof = solved_with_proof(i)

    def bent(**parts: Any) -> list[str]:
        return violations(i, found, proof.model_copy(update=parts))

    assert proof.columns and bent() == []
    few = bent(max_racks_by_wired_gpus={1: 1})
    assert [x for x in few if x.startswith("max_racks_stated[1]: ")] and not [x for x in few if "joint_columns" in x]
    assert [x for x in violations(i, found, JointProof(max_racks_by_wired_gpus={1: 1})) if "does not list it" in x]
    (many,) = bent(max_racks_by_wired_gpus={1: 10**6})
    assert "racks by budget, power and sites" in many
    rising = {k: proof.max_racks_by_wired_gpus[1] - 1 + k // 2 for k in (1, 2)}
    assert any("racks with 1 cabled" in x for x in bent(max_racks_by_wired_gpus=rising))
    (price,) = bent(min_fabric_usd_per_wired_gpu=(proof.min_fabric_usd_per_wired_gpu or 0.0) * 1.01)
    assert price.startswith("min_fabric_stated")
    assert violations(i, found, proof, bound=found.days * 1.001)[0].startswith("joint_bounds")
    (free,) = bent(fabric_free_bound_days=min(c.lower_bound_days for c in proof.columns) * 1.001)
    assert "the bound over every fabric" in free
    none = proof.columns[0].model_copy(update={"min_data_parallel": 3, "max_data_parallel": 2})
    assert any("are none" in x for x in bent(columns=(none, *proof.columns)))


def test_a_weaker_bound_needs_fewer_columns() -> None:
    """A search that stopped early claims less: below the bound over every fabric nothing need be listed."""
    i = toy(59, sites=2, forced=True)
    found, _ = solved_with_proof(i)
    assert found.fabric_free_bound is not None
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 - 1e-6)) == []
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 + 1e-6))


def test_a_bound_without_a_largest_batch_is_refused() -> None:
    i = toy(6)
    found, proof = solved_with_proof(i)
    endless = i.model_copy(update={"limits": i.limits.model_copy(update={"max_batch_tokens": None})})
    assert ["max_batch_tokens" in x for x in violations(endless, found, proof)] == [True]


def test_the_rule_reads_the_plan() -> None:
    """A plan's own layout gives racks and GPUs cabled; a plan without a proof claims too much."""
    plan = planner.solve(toy(59, sites=2, forced=True))
    layout, proof, placement = plan.layout, plan.proof, plan.placement
    wired = next(iter(plan.fabric.sites.values())).wired_gpus_per_rack
    racks = placement.block_racks * sum(placement.blocks_by_site.values())

    def named(**changed: Any) -> list[str]:
        return [f"{v.rule}: {v.message}" for v in joint_proof(PlanPhysics(plan=plan.model_copy(update=changed)))]

    assert named() == []
    assert any(x.startswith("joint_columns") for x in named(proof=None))
    assert named(proof=proof.model_copy(update={"columns": ()}))
    for stated, fine in ((racks, True), (racks - 1, False)):
        bent = proof.model_copy(update={"max_racks_by_wired_gpus": {wired: stated}})
        assert (not [x for x in named(proof=bent) if x.startswith(f"max_racks_stated[{wired}]")]) == fine
    (one,) = named(layout=layout.model_copy(update={"tensor_parallel": 5}))
    assert "no block" in one
