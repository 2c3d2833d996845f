"""Study the limits of utilisation: the model that a law gives for a compute, on the fewest GPUs that meet the days."""

from typing import Literal

from pydantic import Field

from planner.errors import InputError
from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.models import model_size
from planner.models.joint.free_network import conditions_of, fewest_racks, problem_on
from planner.physics.training import step, step_prediction, transformer
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.physics.training.parallel_strategy import layout_values


class LimitLayout(Frozen):
    """The parallel strategy of a point."""

    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    virtual_stages: int
    data_parallel: int
    expert_parallel: int
    microbatch_sequences: int
    microbatches_per_step: int
    zero_stage: int


class LimitPoint(Frozen):
    """The best utilisation at a compute, with its bound."""

    flop: float = Field(description="6·N·D of the model.")
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    reason: str = ""
    parameters: float
    tokens: float
    layers: int
    hidden: int
    batch_tokens: float
    gpus: int | None = Field(None, description="Fewest GPUs that train it by the deadline.")
    gpus_too_few: int = Field(0, description="Most GPUs with which it is proven that no layout meets the deadline.")
    days: float | None = None
    utilisation: float | None = Field(None, description="6·N·D over the peak of these GPUs for the whole duration.")
    utilisation_bound: float | None = Field(None, description="No layout that meets the deadline uses its GPUs better.")
    loss: float
    layout: LimitLayout | None = None
    step_seconds: float | None = None
    shares: dict[str, float] = Field(default_factory=dict, description="Parts of the step.")


def point(instance: Instance, flop: float, *, days: float, tolerance: float, time_limit: float | None) -> LimitPoint:
    """Return the best utilisation with which the law's model for a compute in FLOP is trained in `days` days.

    Raise InputError where the instance names no law.
    """
    choose = instance.workload.choose
    if choose is None:
        raise InputError("workload.choose: is missing; say by which law and of which family models are chosen")
    candidate = model_size.model_for(choose, flop)
    asked = model_size.instance_with(instance, candidate)
    machine = step.machine_of(asked)
    peak = machine.gpu.peak_flop_per_second[machine.precision.compute] * machine.rack.gpus
    full = flop / (peak * days * SECONDS_PER_DAY * asked.workload.availability)  # racks at full use
    found = fewest_racks(asked, days, tolerance=tolerance, time_limit=time_limit)
    known = {
        "flop": float(transformer.training_flop(candidate.parameters, candidate.tokens)),
        "status": found.status,
        "parameters": candidate.parameters,
        "tokens": candidate.tokens,
        "layers": candidate.model.layers,
        "hidden": candidate.model.hidden,
        "batch_tokens": asked.limits.max_batch_tokens or 0.0,
        "loss": transformer.loss(model_size.loss_law_of(choose), candidate.parameters, candidate.tokens),
        "gpus_too_few": found.too_few * machine.rack.gpus,
    }
    if found.racks is None or found.strategy is None:
        why = (
            f"no layout trains it in {days:g} days, whatever the GPUs"
            if found.status == "infeasible"
            else "the time limit came first"
        )
        return LimitPoint.model_validate(known | {"reason": why})
    conditions = conditions_of(problem_on(asked, found.racks))
    breakdown = step_prediction.step_breakdown(machine, conditions, found.strategy)
    seconds = sum(breakdown.values())
    return LimitPoint.model_validate(
        known
        | {
            "gpus": found.racks * machine.rack.gpus,
            "days": found.days,
            "utilisation": full / found.racks,
            "utilisation_bound": min(1.0, full / found.too_few) if found.too_few else 1.0,
            "layout": {
                name: value for name, value in layout_values(found.strategy).items() if name in LimitLayout.model_fields
            },
            "step_seconds": seconds,
            "shares": {part: time / seconds for part, time in breakdown.items() if time > 0},
        }
    )
