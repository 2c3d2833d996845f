"""The rules of the proof as a whole: an honest one passes, and every figure bent by hand is named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joint_proof import solved_with_proof
from joint_toys import PHI, case, toy

from planner.checks.joint_proof import joint_proof, proof_violations
from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.plan.certificate import JointProof, ObjectiveValue
from planner.plan.plan_sections import LayoutPlan
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"


def violations(i: Instance, found: JointSolution, proof: JointProof, phi: float = PHI, **changes: Any) -> list[str]:
    """Check a proof with the plan's own racks and GPUs cabled, or others."""
    assert found.plan is not None
    block = found.plan.column.strategy.block(found.plan.column.p)
    assert block is not None
    own: dict[str, Any] = {
        "days": found.days,
        "bound": found.lower_bound,
        "racks_in_use": sum(block.racks * n for n in found.plan.blocks_by_site.values()),
        "wired_gpus": block.rails,
        "transport_slowdown": phi,
    }
    return [f"{v.rule}: {v.message}" for v in proof_violations(i, proof, **(own | changes))]


def test_an_honest_proof_passes_and_bent_ones_do_not() -> None:
    """Racks too few or too many, a wrong price, and bounds out of order are named, and hide no column."""
    i = toy(59, sites=2, forced=True)
    found, proof = solved_with_proof(i)
    assert found.days is not None and proof.columns and proof.max_racks_by_wired_gpus
    assert violations(i, found, proof) == []
    few = violations(i, found, proof.model_copy(update={"max_racks_by_wired_gpus": {1: 1}}))
    assert [x for x in few if x.startswith("max_racks_stated[1]: ")] and not [x for x in few if "joint_columns" in x]
    hidden = JointProof(max_racks_by_wired_gpus={1: 1})
    assert [x for x in violations(i, found, hidden) if "does not list it" in x]
    many = violations(i, found, proof.model_copy(update={"max_racks_by_wired_gpus": {1: 10**6}}))
    assert len(many) == 1 and "racks by budget, power and sites" in many[0]
    rising = {k: proof.max_racks_by_wired_gpus[1] - 1 + k // 2 for k in (1, 2)}
    assert any(
        "racks with 1 cabled" in x
        for x in violations(i, found, proof.model_copy(update={"max_racks_by_wired_gpus": rising}))
    )
    usd = (proof.min_fabric_usd_per_wired_gpu or 0.0) * 1.01
    (price,) = violations(i, found, proof.model_copy(update={"min_fabric_usd_per_wired_gpu": usd}))
    assert price.startswith("min_fabric_stated")
    assert violations(i, found, proof, bound=found.days * 1.001)[0].startswith("joint_bounds")
    least = min(c.lower_bound_days for c in proof.columns)
    (free,) = violations(i, found, proof.model_copy(update={"fabric_free_bound_days": least * 1.001}))
    assert "the bound over every fabric" in free
    none = proof.columns[0].model_copy(update={"min_data_parallel": 3, "max_data_parallel": 2})
    bent = violations(i, found, proof.model_copy(update={"columns": (none, *proof.columns)}))
    assert any("are none" in x for x in bent)


def test_a_weaker_bound_needs_fewer_columns() -> None:
    """A search that stopped early claims less: below the bound over every fabric nothing need be listed."""
    i = toy(59, sites=2, forced=True)
    found, _ = solved_with_proof(i)
    assert found.fabric_free_bound is not None
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 - 1e-6)) == []
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 + 1e-6))


def test_a_bound_without_a_largest_batch_is_refused() -> None:
    """Without the most tokens of a step the space has no end, and no bound can be recomputed."""
    i = toy(6)
    found, proof = solved_with_proof(i)
    endless = i.model_copy(update={"limits": i.limits.model_copy(update={"max_batch_tokens": None})})
    (one,) = violations(endless, found, proof)
    assert "max_batch_tokens" in one


@pytest.mark.slow
def test_a_cluster_under_a_pin_is_no_optimum_without_it() -> None:
    """The optimum of 1,024 GPUs passes; that of the same cluster with CP 4, the pin removed, does not."""
    i = load_instance(INSTANCES / "cluster-1k.json")
    found, proof = solved_with_proof(i)
    phi = 1.05
    assert violations(i, found, proof, phi) == []
    narrow = load_instance(INSTANCES / "cluster-1k.json", pins={"layout.context_parallel": 4})
    pinned, own = solved_with_proof(narrow)
    assert pinned.days is not None and found.days is not None and pinned.days > found.days
    assert violations(narrow, pinned, own, phi) == []
    assert any("does not list it" in x for x in violations(i, pinned, own, phi))


@pytest.mark.parametrize("seed", [4, 39])
def test_a_space_without_its_best_degree_is_refused(seed: int) -> None:
    """The columns that the sites refused are listed; without those of one CP degree the proof is refused."""
    i = case(seed)
    found, proof = solved_with_proof(i)
    assert found.plan is not None and i.grid is not None and i.network is not None
    best, phi = found.plan.column.strategy.shape.context_parallel, i.network.transport.slowdown
    assert violations(i, found, proof, phi) == []
    rest = tuple(c for c in proof.columns if c.context_parallel != best)
    assert 0 < len(rest) < len(proof.columns)
    missing = violations(i, found, proof.model_copy(update={"columns": rest}), phi)
    assert missing and all(f"x CP {best} x" in x for x in missing)


def plan_under_check(i: Instance, found: JointSolution, proof: JointProof | None) -> Any:
    """Return what the rule reads of a plan under check: layout, objective, replicas and proof."""
    assert found.plan is not None
    c = found.plan.column
    s, block = c.strategy.shape, c.strategy.block(c.p)
    assert block is not None
    layout = LayoutPlan.model_construct(
        tensor_parallel=s.tensor_parallel,
        context_parallel=s.context_parallel,
        expert_parallel=s.expert_parallel,
        pipeline_parallel=c.p,
        stages_per_rack=block.stages_per_rack,
        replicas_per_rack=block.replicas_per_rack,
        certificate=SimpleNamespace(bound=None),
    )
    bounds = {"bound": found.lower_bound, "fabric_free_bound": found.fabric_free_bound}
    objective = ObjectiveValue(name="days_to_train", value=found.days, gap=0.0, **bounds)
    return SimpleNamespace(
        plan=SimpleNamespace(proof=proof, layout=layout, fabric=None, placement=None, objective=objective),
        faults=[],
        instance=i,
        gpus_per_rack=c.strategy.problem.gpus,
        replicas=found.plan.replicas_by_site,
        transport_slowdown=PHI,
        stop=lambda: False,
    )


def test_the_rule_reads_the_plan() -> None:
    """A plan's own layout gives racks and GPUs cabled; a plan without a proof claims too much."""
    i = toy(59, sites=2, forced=True)
    found, proof = solved_with_proof(i)
    assert list(joint_proof(plan_under_check(i, found, proof))) == []
    assert "joint_columns" in {v.rule.split("[")[0] for v in joint_proof(plan_under_check(i, found, None))}
    assert list(joint_proof(plan_under_check(i, found, proof.model_copy(update={"columns": ()}))))
    assert found.plan is not None
    block = found.plan.column.strategy.block(found.plan.column.p)
    assert block is not None
    racks = sum(block.racks * n for n in found.plan.blocks_by_site.values())
    for stated, fine in ((racks, True), (racks - 1, False)):
        bent = proof.model_copy(update={"max_racks_by_wired_gpus": {block.rails: stated}})
        named = [v.rule for v in joint_proof(plan_under_check(i, found, bent))]
        assert (f"max_racks_stated[{block.rails}]" not in named) == fine
    odd = plan_under_check(i, found, proof)
    wide = odd.plan.layout.model_copy(update={"tensor_parallel": 5})
    (one,) = joint_proof(
        SimpleNamespace(**{**vars(odd), "plan": SimpleNamespace(**{**vars(odd.plan), "layout": wide})})
    )
    assert "no block" in one.message
