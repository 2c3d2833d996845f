"""The checker's own least time of the declared space: exact on toys, and no proof that forgets a column passes."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from joint_brute_failures import failing
from joint_brute_force import Column, Toy
from joint_proof import solved_with_proof
from joint_toys import PHI, case, toy, with_pins
from stored_plans import PLANS
from tiers import more, slow

import planner
from planner.checks.check_plan import check
from planner.checks.joint_columns import MaxRacks, max_sites
from planner.checks.joint_proof import highest_bound, missing_columns
from planner.instance.instance import Instance
from planner.plan.certificate import JointProof
from planner.plan.plan_files import read_plan

TOYS: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 2, 3, 4)),
    *((seed, {"forced": True}) for seed in (9, 12, 17, 36)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 14, 36, 48)),
]


def messages(i: Instance, days: float, proof: JointProof) -> list[str]:
    phi = 1.0 if i.network is None else i.network.transport.slowdown
    return [v.message for v in missing_columns(i, days, proof, transport_slowdown=phi)]


def least_on_a_free_network(i: Instance) -> float:
    """Time every plan of a toy by plain loops as if its network were free; return the least seconds a sequence."""
    t, most, best = Toy(i), MaxRacks(i), math.inf
    for shape, p, v, block in t.pipelines():
        for d in range(1, t.most // shape.micro_batch + 1):
            if block.blocks(d) * block.racks > most(block.rails):
                break
            racks = -(-block.blocks(d) // max_sites(i)) * block.stage_racks
            for zero, m in itertools.product(range(4), range(p if v > 1 else 1, t.most // shape.micro_batch // d + 1)):
                fits = d * shape.gpus >= shape.expert_parallel
                if fits and t.fine(zero_stage=zero, microbatches_per_step=m, data_parallel=d):
                    column = Column(shape, p, v, block, d, zero, m)
                    best = min(best, t.times.seconds(column, racks, d, PHI, PHI, None))
    return best


@pytest.mark.parametrize(("seed", "how"), TOYS)
def test_the_least_column_is_that_of_plain_loops(seed: int, how: dict[str, Any]) -> None:
    """Just below the least time that loops over every split find nothing is missing, just above it a column is."""
    i = toy(seed, **how)
    least = least_on_a_free_network(i)
    if math.isinf(least):
        assert messages(i, 1e9, JointProof()) == []
        return
    days = i.workload.tokens / i.workload.sequence_length * least / i.workload.availability / 86_400
    assert messages(i, days * (1 - 1e-7), JointProof()) == []
    above = messages(i, days * (1 + 1e-6), JointProof())
    assert above and all("the proof does not list it" in x for x in above)


CASES = [*TOYS, *((seed, None) for seed in range(14)), *more(*((seed, None) for seed in range(14, 25)))]


@pytest.mark.parametrize(("seed", "how"), CASES)
def test_an_honest_proof_passes(seed: int, how: dict[str, Any] | None) -> None:
    """What the search opened below its bound is all that the checker finds there, also of toys with richer grids."""
    i = case(seed) if how is None else toy(seed, **how)
    found, proof = solved_with_proof(i)
    if found.lower_bound is not None:
        assert messages(i, found.lower_bound, proof) == []


def check_forgeries(i: Instance, days: float, proof: JointProof, columns: int) -> None:
    """Drop columns of a proof and change their bounds, or the bound of all where none is listed; each is noticed."""
    assert messages(i, days, proof) == []
    for k, c in enumerate(proof.columns[:columns]):
        rest = proof.columns[:k] + proof.columns[k + 1 :]
        forgotten = messages(i, days, proof.model_copy(update={"columns": rest}))
        degrees = f"TP {c.tensor_parallel}"
        assert [x for x in forgotten if x.startswith(degrees) and "the proof does not list it" in x]
        assert c.lower_bound_days < days
        high = c.model_copy(update={"lower_bound_days": c.lower_bound_days * (1 + 1e-6)})
        raised = messages(i, days, proof.model_copy(update={"columns": (*rest, high)}))
        assert [x for x in raised if "the lower_bound_days that the proof states for it" in x]
        low = c.model_copy(update={"lower_bound_days": c.lower_bound_days * 0.9})
        assert messages(i, days, proof.model_copy(update={"columns": (*rest, low)})) == []
    if not proof.columns:
        assert messages(i, days * (1 + 1e-6), proof)


REFUSED = [
    toy(9, forced=True),
    toy(36, sites=2, forced=True),
    toy(59, sites=2, forced=True),
    *(case(seed) for seed in (3, 8)),  # experts
    failing(8),
]


@pytest.mark.parametrize("i", REFUSED, ids=lambda i: f"{i.name}{', failures' if i.reliability else ''}")
def test_a_forgotten_column_is_found(i: Instance) -> None:
    found, proof = solved_with_proof(i)
    assert found.days is not None and proof.columns
    check_forgeries(i, found.days, proof, 2)


FORGED = ("one-rack-*", "cluster-1k-e*", "two-sites-405b-*", "case-[12]?-*")  # clusters, sites, failures


@pytest.mark.parametrize("file", sorted(f for name in FORGED for f in PLANS.glob(f"{name}.json")), ids=lambda f: f.stem)
def test_forged_proofs_of_plans_are_refused(file: Path) -> None:
    plan = read_plan(file)
    bound = highest_bound(plan)
    assert plan.proof is not None and bound is not None
    check_forgeries(plan.instance, bound, plan.proof, 1)


NARROWER: list[tuple[int, str, Any]] = [
    (0, "tensor_parallel", 2),
    (2, "context_parallel", 2),
    (2, "pipeline_parallel", 1),
    (0, "sequence_parallel", False),
    (17, "recompute", "none"),
    (6, "microbatch_sequences", 2),
]


@pytest.mark.parametrize(("seed", "name", "value"), NARROWER)
def test_a_search_over_less_than_the_declared_space_is_found(seed: int, name: str, value: Any) -> None:
    """The optimum under a pin that costs time is proven under the pin, and is no optimum without it."""
    i = toy(seed)
    narrow = with_pins(i, **{f"layout.{name}": value})
    (free, _), (pinned, proof) = solved_with_proof(i), solved_with_proof(narrow)
    assert free.days is not None and pinned.days is not None and pinned.days > free.days * (1 + 1e-6)
    assert messages(narrow, pinned.days, proof) == []
    assert messages(i, pinned.days, proof)


def test_a_column_outside_the_space_is_named() -> None:
    i = toy(36, sites=2, forced=True)
    found, proof = solved_with_proof(i)
    assert found.days is not None and proof.columns
    odd = proof.columns[0].model_copy(update={"tensor_parallel": 5})
    columns = (*proof.columns, odd)
    (one,) = messages(i, found.days, proof.model_copy(update={"columns": columns}))
    assert "not in the declared space" in one


@pytest.mark.parametrize("racks", [*slow(63), *more(60)])
def test_unequal_chunks_of_a_short_last_round(racks: int) -> None:
    """Fabrics far from free leave columns between the two bounds: the search lists all that the check still finds.

    One micro-batch fewer than whole rounds is bounded lower than whole rounds where chunks are not alike.
    """
    plan = planner.solve("cluster-1k", pins={"fabric.leaf_domain_racks": racks})
    assert plan.status == "optimal" and check(plan) == []
