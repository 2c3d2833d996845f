"""The proof of a joint optimum as a plan of it states it."""

from collections.abc import Iterator
from typing import Any

from joint_brute_force import Plan
from joint_solved import require_optimum, solved

from planner.checks.joint_proof import missing_columns
from planner.checks.strategy_space_check import Space
from planner.instance.instance import Instance
from planner.models.joint.joint_world import JointSolution
from planner.plan.certificate import JointProof
from planner.planning.joint_plan import proof_of


def solved_with_proof(i: Instance) -> tuple[JointSolution, JointProof]:
    found = solved(i)
    return found, proof_of(i, found)


def require_proven_optimum(i: Instance, best: Plan | None) -> JointSolution:
    """Require the optimum of full enumeration, and that the checker finds no column below it."""
    found = require_optimum(i, best)
    if found.days is not None:
        assert list(columns_below(i, found.days, proof_of(i, found))) == []
    return found


def columns_below(i: Instance, days: float, proof: JointProof | None = None) -> Iterator[Any]:
    """Yield what the checker finds below so many days, by a proof or by one that lists nothing."""
    phi = i.network.transport.slowdown if i.network is not None else 1.0
    yield from missing_columns(Space(instance=i, transport_slowdown=phi), days, proof or JointProof())
