"""Racks that the replicas of a layout fill.

Whole blocks, the GPUs of a rack that work, and sequences that their ranks divide.
"""

import math
from dataclasses import dataclass, replace

from planner.physics.training.operations import LayerShape, Machine


def context_racks(gpus: int, tensor_parallel: int, context_parallel: int) -> int:
    """Count the racks over which the CP ranks of one replica's stage spread.

    a TP group stays in a rack, which holds floor(g/t) of them. Where TP itself spans racks every CP rank has racks of
    its own.
    """
    if tensor_parallel > gpus:
        return context_parallel
    return math.ceil(context_parallel / (gpus // tensor_parallel))


def racks_per_replica(gpus: int, tensor_parallel: int, context_parallel: int) -> int:
    """Count the racks of one replica's stage."""
    return context_racks(gpus, tensor_parallel, context_parallel) * math.ceil(tensor_parallel / gpus)


def unit_racks(*, replica_gpus: int, racks: int, replicas_per_rack: int, expert_parallel: int) -> int:
    """Count the racks of one unit of a rack stage, which holds whole replicas and whole expert groups.

    One stage of a replica has `replica_gpus` GPUs on `racks` racks; each rack holds GPUs of `replicas_per_rack`
    replicas.
    """
    in_rack = max(1, replica_gpus // racks * replicas_per_rack)
    return math.lcm(racks, max(1, math.ceil(expert_parallel / in_rack)))


def group_racks(replicas: int, *, unit: int, racks: int, replicas_per_rack: int) -> int:
    """Count the racks of one stage's replicas at a site in whole units: its all-reduce group between racks."""
    return math.ceil(replicas / (replicas_per_rack * (unit // racks))) * unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RackBlock:
    """The racks that hold `replicas` whole replicas.

    `rack_stages` x `stage_racks` of them, `work_gpus` of each at work and `rails` cabled. `context_racks` of the
    `stage_racks` of a rack stage hold one replica; with experts there are as many more as make both a CP group and an
    expert group whole. A rack holds `stages_per_rack` stages of `replicas_per_rack` replicas.
    """

    stages_per_rack: int
    replicas_per_rack: int
    context_racks: int
    stage_racks: int
    rack_stages: int
    rails: int
    work_gpus: int

    @property
    def racks(self) -> int:
        """Racks of a block."""
        return self.rack_stages * self.stage_racks

    @property
    def replicas(self) -> int:
        """Replicas of a block."""
        return self.replicas_per_rack * (self.stage_racks // self.context_racks)

    def blocks(self, replicas: int) -> int:
        """Count the blocks that hold `replicas` replicas."""
        return -(-replicas // self.replicas)


def block_of(
    gpus: int,
    *,
    tensor_parallel: int,
    context_parallel: int,
    expert_parallel: int,
    pipeline_parallel: int,
    stages_per_rack: int,
    replicas_per_rack: int | None = None,
) -> RackBlock | None:
    """Return the block of a layout on racks of `gpus` GPUs; None where it has none in the declared space.

    CP fills whole racks or stays in one: any degree up to floor(g/t), and multiples of it. A rack takes as many
    replicas as it holds unless their number is given, with experts as many as make whole expert groups in a rack, or a
    group of whole racks.
    """
    t, k, e, q = tensor_parallel, context_parallel, expert_parallel, stages_per_rack
    if t > gpus:
        return None
    unit = gpus // t
    c = math.ceil(k / unit)
    if c > 1 and (k % unit or q > 1):
        return None
    own = t * k // c  # GPUs of a rack that one replica's stage takes
    r = gpus // (q * own) if c == 1 else 1
    asked = range(r, 0, -1) if replicas_per_rack is None else [n for n in (replicas_per_rack,) if n <= r]
    r = next((n for n in asked if (n * own) % e == 0 or e % (n * own) == 0), 0)
    if r == 0:
        return None
    together = unit_racks(replica_gpus=t * k, racks=c, replicas_per_rack=r, expert_parallel=e)
    return RackBlock(
        stages_per_rack=q,
        replicas_per_rack=r,
        context_racks=c,
        stage_racks=together,
        rack_stages=-(-pipeline_parallel // q),
        rails=q * r * own,
        work_gpus=q * r * own,
    )


def padded_sequence(sequence: int, *, tensor_parallel: int, context_parallel: int, sequence_parallel: bool) -> int:
    """Return the tokens that a sequence takes once it is padded.

    Under sequence parallelism every CP rank holds two chunks (the causal balance of ring attention, Brandon 2023,
    arXiv 2311.09431; Megatron-Core pads to a multiple of 2·CP), and TP divides the tokens of a rank: a multiple of
    CP·lcm(2, TP). Without it, and without CP, whole parts are enough: a multiple of CP.
    """
    unit = context_parallel * (math.lcm(2, tensor_parallel) if sequence_parallel else 1)
    return -(-sequence // unit) * unit


def padded(m: Machine, s: LayerShape) -> Machine:
    """Return the machine with its sequences padded for a shape: work, bytes and time are those of the padded length."""
    sequence = padded_sequence(
        m.sequence,
        tensor_parallel=s.tensor_parallel,
        context_parallel=s.context_parallel,
        sequence_parallel=s.sequence_parallel,
    )
    return m if sequence == m.sequence else replace(m, sequence=sequence)
