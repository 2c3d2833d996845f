"""How a layout given in full meets failures on one cluster: its spares are racks that it leaves, or wants."""

import math

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.physics.reliability.recovery import Job
from planner.physics.reliability.spares import min_spares, rack_availability
from planner.physics.reliability.standing import Upkeep, checkpoint_bytes, counted, standing_of, stretches
from planner.physics.reliability.stops import fewest_stops
from planner.physics.training import step
from planner.physics.training.blocks.rack_blocks import block_of
from planner.physics.training.parallel_strategy import ParallelStrategy

SITE = "cluster"


def upkeep_of(instance: Instance, strategy: ParallelStrategy, step_seconds: float) -> tuple[Job, Upkeep] | None:
    """Return the job of a layout and how it best meets failures; None where they do not count.

    The spare racks are those of the target that leaves most time to steps, within the racks of the cluster where their
    number is given.

    Raises
    ------
    InputError
        No way to go on ever trains: too few racks are fit for work at any time.
    """
    r, machine, s = counted(instance), step.machine_of(instance), strategy.shape
    block = block_of(
        machine.rack.gpus,
        tensor_parallel=s.tensor_parallel,
        context_parallel=s.context_parallel,
        expert_parallel=s.expert_parallel,
        pipeline_parallel=strategy.pipeline_parallel,
        stages_per_rack=strategy.stages_per_rack,
        replicas_per_rack=strategy.replicas_per_rack,
    )
    if r is None or block is None:
        return None
    job = Job(
        r=r,
        gpus=float(strategy.gpus),
        replica_gpus=strategy.gpus // strategy.data_parallel,
        state_bytes=checkpoint_bytes(instance, machine.model),
        replicas=strategy.data_parallel,
        step_seconds=step_seconds,
        shares_state=strategy.zero_stage > 0,
        links=fewest_stops(instance, r),  # no fabric is chosen
    )
    needed, fit = block.blocks(strategy.data_parallel) * block.racks, rack_availability(r, block.work_gpus, 0)
    found: list[Upkeep] = []
    for target in r.spare_targets:
        spare = min_spares(needed, fit, target)
        if instance.hardware.racks is not None and needed + spare > max(needed, instance.hardware.racks):
            continue
        there = standing_of([(needed, spare)], fit, block.replicas)
        for stretch, way in stretches(job, there):
            found.append(
                Upkeep(
                    way=way,
                    stretch=float(stretch),
                    standing=there,
                    spare_target=target,
                    spare_racks={SITE: spare},
                    rack_availability=fit,
                    work_gpus=block.work_gpus,
                    rails=block.work_gpus,
                )
            )
    best = min(found, key=lambda u: u.stretch, default=None)
    if best is None or math.isinf(best.stretch):
        problem = f"{needed:,} racks are never all fit for work, and no replica can be spared"
        raise InputError(f"reliability: {problem}; give spare racks, shorter repairs, or another way to go on")
    return job, best
