"""A proof that one solve of a session enumerated again and found to hold is not enumerated for the next."""

from typing import Any

from planner.checks.joint.racks import max_racks
from planner.checks.joint.rules import highest_bound
from planner.models.joint.cache import JointCache
from planner.physics.site.power import rack_of
from planner.plan.plan import Plan


def inspection(plan: Plan, cache: JointCache | None) -> Any:
    """Return all that the enumeration of a proof reads beside the instance without its budget; None where unknown.

    The budget enters it through the most racks alone. A cache of another instance knows nothing of this one.
    """
    if cache is None or plan.proof is None or plan.layout is None or not cache.serves(plan.instance):
        return None
    if plan.instance.objective.minimize != "days_to_train":
        return None
    racks = tuple(max_racks(plan.instance, n) for n in range(rack_of(plan.instance.hardware).gpus + 1))
    proof = plan.proof
    return highest_bound(plan), racks, proof.columns, tuple(sorted(proof.max_racks_by_wired_gpus.items()))
