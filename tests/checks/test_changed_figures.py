"""Figures of plans changed one at a time: none passes unnoticed but those on trust, which are listed with a reason."""

import json
from typing import Any

import pytest
from changed_figures import placements, results, unlisted
from cluster_worlds import tree
from each_case import each
from on_trust import ON_TRUST
from stored_plans import stored
from worked_plan import LAYOUT, instance_with

import planner
from planner.cluster import GroupKind, Job
from planner.plan.plan import Plan
from planner.scheduling.cluster_session import Cluster

QUESTIONS: dict[str, dict[str, Any]] = {
    "days": {},
    "late": {"limits__deadline_days": 0.001},
    "poor": {"limits__budget_usd": 3e6},
    "run": {
        "operation": {"maintenance_share_per_year": 0.03, "staff_usd_per_year": 1e5, "fabric_life_years": 3.0},
        "hardware__rack__life_years": 2.0,
        "limits__operation_years": 5.5,
        "limits__budget_usd": 1e9,
        **{f"grid__balancing_authorities__{i}__carbon_kg_per_mwh": 300.0 + i for i in range(2)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_only_what_is_on_trust_passes(name: str) -> None:
    plan = stored(instance_with(pins=LAYOUT, **QUESTIONS[name]))
    found = list(results(json.loads(plan.model_dump_json()), each=1))
    assert len(found) > 60
    assert [(x.change.kind, x.change.what) for x in unlisted(found)] == []


@each("job", [
    Job(name="mesh", mesh={"pipeline": 2, "data": 4}),
    Job(name="groups", groups=(GroupKind(name="a", size=6, count=2),)),
    Job(name="too large", mesh={"pipeline": 20, "data": 4}),
])  # fmt: skip
def test_figures_of_a_placement_are_noticed(job: Job) -> None:
    topology = tree([5, 6, 7, 4], 2)
    data, kind = json.loads(Cluster(topology).place(job).model_dump_json()), placements(topology, job)
    assert list(kind.broken(kind.model.model_validate(data))) == []
    found = list(results(data, each=1, of=kind))
    assert len(found) > 60
    assert [(x.change.kind, x.change.what) for x in unlisted(found, kind)] == []


def test_no_value_bound_or_status_is_on_trust() -> None:
    hidden = [p for p in ON_TRUST if p.rpartition(".")[2] in ("value", "bound", "gap", "status", "objective", "*")]
    assert hidden == ["certificate.space.*", "proof.max_racks_by_wired_gpus.*", "model_choice.days_by_flop.*"]


@each("decision", ["sites", "layout", "fabric", "placement"])
def test_a_lying_certificate_is_found(decision: str) -> None:
    """A certificate that calls a plan of a search cut short optimal, with value and bound alike, breaks a rule."""
    data = json.loads(stored(instance_with(pins=LAYOUT)).model_dump_json())
    part = data[decision]["certificate"]
    part |= {"formulation": "an oracle", "solver": "oracle 1.0"}
    rules = {v.rule.partition("[")[0] for v in planner.check(Plan.model_validate(data))}
    assert rules & {"joint_claims", "solvers_named", "formulations"}


@pytest.mark.parametrize(("rules", "decision", "rule"), [
    (["limits.budget_usd"], "budget", "no_column"), (["memory", "limits.max_batch_tokens"], "layout", "no_column"),
    (["limits.deadline_days"], "layout", "known_rules"), (["pins.layout.data_parallel"], "layout", "known_rules"),
    (["the weather"], "layout", "known_rules"), (["limits.budget_usd"], "layout", "known_rules"),
])  # fmt: skip
def test_a_made_up_conflict_is_found(rules: list[str], decision: str, rule: str) -> None:
    asked = instance_with(pins=LAYOUT)
    refused = json.loads(stored(instance_with(pins=LAYOUT, limits__budget_usd=3e6)).model_dump_json())
    sound = stored(asked)
    data = refused | {
        "instance": sound.model_dump(mode="json")["instance"],
        "instance_sha256": sound.instance_sha256,
        "conflict": {"decision": decision, "rules": rules, "reason": "because"},
        "proof": {"columns": []},
    }
    assert rule in {v.rule for v in planner.check(Plan.model_validate(data))}
