"""The proof of a joint optimum as a plan of it states it."""

from joint_solved import solved

from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.plan.certificate import JointProof
from planner.planning.joint_proof import proof_of


def solved_with_proof(i: Instance) -> tuple[JointSolution, JointProof]:
    """Solve an instance; return its solution and the proof that the checker asks for."""
    found = solved(i)
    return found, proof_of(i, found)
