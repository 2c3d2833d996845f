"""The columns that a proof must list, and its rules as a whole: every figure bent by hand is named."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from joint_brute_force import Column, Toy
from joint_solved import columns_below, solved_with_proof
from joint_toys import PHI, case, toy, with_pins
from stored_plans import PLANS
from tiers import more, slow

import planner
from planner.checks.check_plan import check
from planner.checks.joint_proof import highest_bound, joint_proof, missing_columns, proof_violations
from planner.checks.strategy_space_check import CutPipelines, Space, max_racks, max_sites, most_racks
from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.shapes.site_choice import Sites
from planner.physics.network import fabric_designs
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import JointProof
from planner.plan.plan import Plan
from planner.plan.plan_files import read_plan
from planner.planning.load import load_instance

TOYS: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 2, 3, 4)),
    *((seed, {"forced": True}) for seed in (9, 12, 17, 36)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 14, 36, 48)),
]


def messages(i: Instance, days: float, proof: JointProof) -> list[str]:
    return [v.message for v in columns_below(i, days, proof)]


def least_on_a_free_network(i: Instance) -> float:
    """Time every plan of a toy by plain loops as if its network were free; return the least seconds a sequence."""
    t, most, best = Toy(i), most_racks(i, JointProof()), math.inf
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
    i = toy(seed, **how)
    least = least_on_a_free_network(i)
    if math.isinf(least):
        assert messages(i, 1e9, JointProof()) == []
        return
    days = i.workload.tokens / i.workload.sequence_length * least / i.workload.availability / 86_400
    assert messages(i, days * (1 - 1e-7), JointProof()) == []
    above = messages(i, days * (1 + 1e-6), JointProof())
    assert above and all("the proof does not list it" in x for x in above)


PINNED = (3, {"pins": {"placement.stripes": 2}})
CASES = [*TOYS, PINNED, *((seed, None) for seed in range(8)), *more(*((seed, None) for seed in range(8, 25)))]


@pytest.mark.parametrize(("seed", "how"), CASES)
def test_an_honest_proof_passes(seed: int, how: dict[str, Any] | None) -> None:
    i = case(seed) if how is None else toy(seed, **how)
    found, proof = solved_with_proof(i)
    if found.lower_bound is not None:
        assert messages(i, found.lower_bound, proof) == []


def check_forgeries(i: Instance, days: float, proof: JointProof) -> None:
    """Drop a column of a proof and change its bounds, or the bound of all where none is listed; each is noticed."""
    for c in proof.columns[:1]:
        rest = proof.columns[1:]
        forgotten = messages(i, days, proof.replaced(columns=rest))
        degrees = f"TP {c.tensor_parallel}"
        assert [x for x in forgotten if x.startswith(degrees) and "the proof does not list it" in x]
        assert c.lower_bound_days < days
        high = c.replaced(lower_bound_days=c.lower_bound_days * (1 + 1e-6))
        raised = messages(i, days, proof.replaced(columns=(*rest, high)))
        assert [x for x in raised if "the lower_bound_days that the proof states for it" in x]
        low = c.replaced(lower_bound_days=c.lower_bound_days * 0.9)
        assert messages(i, days, proof.replaced(columns=(*rest, low))) == []
    if not proof.columns:
        assert messages(i, days * (1 + 1e-6), proof)


FORGED = ("one-rack-*", "two-sites-405b-*", "case-[12]?-*", "toy-7-*")  # a cluster, sites, failures


@pytest.mark.parametrize("file", sorted(f for name in FORGED for f in PLANS.glob(f"{name}.json")), ids=lambda f: f.stem)
def test_forged_proofs_of_plans_are_refused(file: Path) -> None:
    plan = read_plan(file)
    bound = highest_bound(plan)
    assert plan.proof is not None and bound is not None
    check_forgeries(plan.instance, bound, plan.proof)


NARROWER: list[tuple[int, str, Any]] = [
    (0, "tensor_parallel", 2), (2, "context_parallel", 2), (2, "pipeline_parallel", 1), (0, "sequence_parallel", False),
    (17, "recompute", "none"), (6, "microbatch_sequences", 2),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "name", "value"), NARROWER)
def test_a_search_over_less_than_the_declared_space_is_found(seed: int, name: str, value: Any) -> None:
    i = toy(seed)
    narrow = with_pins(i, **{f"layout.{name}": value})
    (free, _), (pinned, proof) = solved_with_proof(i), solved_with_proof(narrow)
    assert free.days is not None and pinned.days is not None and pinned.days > free.days * (1 + 1e-6)
    assert messages(narrow, pinned.days, proof) == []
    assert messages(i, pinned.days, proof)


@pytest.mark.parametrize("racks", [*slow(63), *more(60)])
def test_unequal_chunks_of_a_short_last_round(racks: int) -> None:
    """Fabrics far from free leave columns between the two bounds: the search lists all that the check still finds."""
    # One micro-batch fewer than whole rounds is bounded lower than whole rounds where chunks are not alike.
    plan = planner.solve("cluster-1k", pins={"fabric.leaf_domain_racks": racks})
    assert plan.status == "optimal" and check(plan) == []


def violations(i: Instance, found: JointSolution, proof: JointProof, **changes: Any) -> list[str]:
    """Check a proof with the plan's own racks and GPUs cabled, or others."""
    block = found.plan.column.strategy.block(found.plan.column.p)
    own: dict[str, Any] = {"days": found.days, "bound": found.lower_bound, "wired_gpus": block.rails}
    own |= {"racks_in_use": sum(block.racks * n for n in found.plan.blocks_by_site.values())}
    physics = PlanPhysics(plan=Plan.model_construct(instance=i, transport=None))
    assert physics.transport_slowdown == PHI
    return [f"{v.rule}: {v.message}" for v in proof_violations(physics, i, proof, **(own | changes))]


def test_an_honest_proof_passes_and_bent_ones_do_not() -> None:
    """Racks too few or too many, a wrong price, and bounds out of order are named, and hide no column."""
    i = toy(59, sites=2, forced=True)
    found, proof = solved_with_proof(i)

    def bent(**parts: Any) -> list[str]:
        return violations(i, found, proof.replaced(**parts))

    assert proof.columns and bent() == []
    few = bent(max_racks_by_wired_gpus={1: 1})
    assert [x for x in few if x.startswith("max_racks_stated[1]: ")] and not [x for x in few if "joint_columns" in x]
    assert [x for x in violations(i, found, JointProof(max_racks_by_wired_gpus={1: 1})) if "does not list it" in x]
    (many,) = bent(max_racks_by_wired_gpus={1: 10**6})
    assert "racks by budget, power and sites" in many
    rising = {k: max(proof.max_racks_by_wired_gpus.values()) - 1 + k // 2 for k in (1, 2)}
    assert any("racks with 1 cabled" in x for x in bent(max_racks_by_wired_gpus=rising))
    (price,) = bent(min_fabric_usd_per_wired_gpu=(proof.min_fabric_usd_per_wired_gpu or 0.0) * 1.01)
    assert price.startswith("min_fabric_stated")
    assert violations(i, found, proof, bound=found.days * 1.001)[0].startswith("joint_bounds")
    (free,) = bent(fabric_free_bound_days=min(c.lower_bound_days for c in proof.columns) * 1.001)
    assert "the bound over every fabric" in free
    none = proof.columns[0].replaced(min_data_parallel=3, max_data_parallel=2)
    assert any("are none" in x for x in bent(columns=(none, *proof.columns)))
    (outside,) = bent(columns=(*proof.columns, proof.columns[0].replaced(tensor_parallel=5)))
    assert "not in the declared space" in outside
    endless = i.replaced(limits__max_batch_tokens=None)
    assert ["max_batch_tokens" in x for x in violations(endless, found, proof)] == [True]
    # A search that stopped early claims less: below the bound over every fabric nothing need be listed.
    assert found.fabric_free_bound is not None
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 - 1e-6)) == []
    assert violations(i, found, JointProof(), bound=found.fabric_free_bound * (1 + 1e-6))
    assert violations(i, found, JointProof(), bound=0.0) == []  # of a search cut short before it knew more


def test_a_stop_is_heeded_where_no_number_of_micro_batches_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that framework rules leave no micro-batches are many, too: the deadline is looked at after each."""
    looked: list[int] = []

    def none(_space: Space, _shape: object, _pipelines: object, replicas: int, micro_batches: Any) -> Any:
        looked.append(replicas)
        return micro_batches[:0]

    monkeypatch.setattr(Space, "counts", none)
    space = Space(instance=toy(2), transport_slowdown=PHI)
    assert list(missing_columns(space, 1e9, JointProof(), stop=lambda: bool(looked))) == [] and len(looked) == 1
    # Pipelines of a model of very many layers take long, and no less memory: a check told to stop makes none.
    monkeypatch.setattr(CutPipelines, "part", lambda *_: pytest.fail("pipelines were enumerated"))
    assert list(missing_columns(space, 1e9, JointProof(), stop=lambda: True)) == []


def test_the_rule_reads_the_plan() -> None:
    """A plan's own layout gives racks and GPUs cabled; a plan without a proof claims too much."""
    plan = planner.solve(toy(59, sites=2, forced=True))
    layout, proof, placement = plan.layout, plan.proof, plan.placement
    wired = next(iter(plan.fabric.sites.values())).wired_gpus_per_rack
    racks = placement.block_racks * sum(placement.blocks_by_site.values())

    def named(**changed: Any) -> list[str]:
        return [f"{v.rule}: {v.message}" for v in joint_proof(PlanPhysics(plan=plan.replaced(**changed)))]

    assert named() == []
    assert any(x.startswith("joint_columns") for x in named(proof=None))
    assert named(proof=proof.replaced(columns=()))
    for stated, fine in ((racks, True), (racks - 1, False)):
        bent = proof.replaced(max_racks_by_wired_gpus={wired: stated})
        assert (not [x for x in named(proof=bent) if x.startswith(f"max_racks_stated[{wired}]")]) == fine
    (one,) = named(layout=layout.replaced(tensor_parallel=5))
    assert "no block" in one


@pytest.mark.parametrize("years", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_sites_milp_is_within(seed: int, years: float) -> None:
    """The most racks that the sites' MILP finds are no more, with few and with many GPUs cabled, energy counted."""
    i = toy(seed, sites=2)
    assert i.limits.budget_usd is not None
    limits = {"operation_years": years, "budget_usd": i.limits.budget_usd + years * 1e6}
    i = i.replaced(limits=i.limits.replaced(**limits))
    sites = Sites(instance=i)
    for wired in (1, 2, 3):
        assert sites.max_racks(wired) <= max_racks(i, wired)


@each("name", ["5gw", "5gw-one-site", "agache2024-100t"])
def test_the_sites_milp_of_a_shipped_instance_is_within(name: str) -> None:
    i = load_instance(f"instances/{name}.json")
    most = Sites(instance=i).max_racks(60)
    assert most <= max_racks(i, 60) <= 1.05 * most


def grid(i: Instance, **rules: Any) -> Instance:
    given = i.model_dump(mode="json", exclude_none=True)
    given["grid"]["rules"] |= rules
    return Instance.model_validate(given)


def test_single_limits() -> None:
    """Each limit alone is what it says: modules, pins, the campus's power, headroom, land and the split by share."""
    i = toy(3, sites=2)
    own = zip(i.grid.balancing_authorities, (12.0, 3.0), strict=True)
    areas = tuple(area.replaced(headroom_mw=mw) for area, mw in own)
    free = i.replaced(limits__budget_usd=None, grid__balancing_authorities=areas)  # racks of 1 MW, 1.2 MW at the grid
    assert max_racks(free, 2) == 12  # 10 of one authority, 2.5 of the other: 12.5
    assert max_racks(grid(free, max_sites=1), 2) == 10 and max_sites(grid(free, max_sites=1)) == 1
    split = grid(free, fault_split={"enabled": True, "max_share": 0.6})
    assert max_racks(split, 2) == 6  # 2.5 racks are 40 % of 6.25
    assert max_racks(with_pins(free, **{"sites.racks": 7}), 2) == 7
    assert max_racks(with_pins(free, **{"sites.racks": 13}), 2) == 0
    assert max_racks(with_pins(free, **{"sites.racks.E1": 4}), 2) == 6
    soft = grid(free, soft={"headroom": {"usd_per_year": 1.0, "max_excess": 100.0}})
    assert max_racks(soft, 2) > 10**6
    by_module = free.replaced(hardware__racks_per_module=5)
    assert max_racks(by_module, 2) == 10 and max_racks(by_module.replaced(limits__facility_power_mw=11.9), 2) == 5
    cluster = toy(3)
    assert max_racks(cluster, 1) == cluster.hardware.racks and max_sites(cluster) == 1
    assert max_racks(cluster.replaced(limits__budget_usd=1.0), 1) == 0


def test_stated_racks_hold_from_their_gpus_on() -> None:
    i = toy(3, sites=2)
    own = max_racks(i, 2)
    assert own > 1
    racks = most_racks(i, JointProof(max_racks_by_wired_gpus={2: own - 1, 5: 10**6}))
    assert (racks(1), racks(2), racks(3)) == (max_racks(i, 1), own - 1, min(max_racks(i, 3), own - 1))
    assert racks(6) == max_racks(i, 6)


def small_switches(seed: int, sites: int, tiers: int, spares: float = 0.0) -> Instance:
    i = toy(seed, sites=sites)
    switches = tuple(box.replaced(ports=4) for box in i.network.switches)
    i = i.replaced(network__max_tiers=tiers, network__switches=switches)
    return i.replaced(network__spares=i.network.spares.replaced(share=spares))


@pytest.mark.parametrize(("seed", "sites"), [(10, 2), (12, 0), (12, 2)])
def test_a_wrong_bound_on_what_a_fabric_joins_is_found(seed: int, sites: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves below spines are said to join nothing: a slower plan is proven optimal, or there is said to be none."""
    monkeypatch.setattr(fabric_designs, "_two_tier_racks", lambda *_: 0)
    with pytest.raises(InternalError, match="joined_racks_stated"):
        planner.solve(small_switches(seed, sites, tiers=2))


def test_a_looser_bound_on_what_a_fabric_joins_is_no_fault() -> None:
    """The search's bound knows no spare ports of a single switch; the checker's count does."""
    plan = planner.solve(small_switches(8, 2, tiers=1, spares=0.3))
    most = plan.proof.max_racks_by_wired_gpus
    joined = plan.proof.joined_racks_by_wired_gpus
    each = ({}, joined, dict.fromkeys({*most, *joined}, 0))  # of the last the checker's own count alone is left
    silent, stated, own = (most_racks(plan.instance, JointProof(joined_racks_by_wired_gpus=x)) for x in each)
    assert plan.status == "optimal" and any(racks > own(w) for w, racks in most.items())
    assert any(own(w) < stated(w) for w in joined)
    assert all(stated(w) <= silent(w) for w in joined)  # what a proof does not say refuses no column
    # Racks of a cluster are joined one by one.
    i = small_switches(10, 0, tiers=1).replaced(hardware__racks_per_module=2)
    assert most_racks(i, JointProof(joined_racks_by_wired_gpus={3: 0}))(3) == 1 and check(planner.solve(i)) == []
