"""Pipeline schedules of one training step: the time they leave idle, and the chunks they keep in flight."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.physics.num import Num

Schedule = Literal["1f1b", "zb-h1"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "zb-h1")


def bubble_seconds(
    schedule: Schedule,
    pipeline: Num,
    virtual_stages: Num,
    forward: Num,
    backward_input: Num,
    backward_weight: Num,
    send: Num,
    *,
    micro_batches: Num = np.inf,
) -> Num:
    """Compute the idle seconds of one of p equal stages in a step: the pipeline bubble.

    F, B and W are the passes of one chunk (1/v of a stage) and micro-batch, S one pipeline send, all in seconds.

    1F1B, interleaved where v > 1: (p-1)·(F+B+W), the bubble (p-1)/(v·m) of the ideal step (Narayanan 2021, section
    2.2), and the 2·(p·v-1) sends on the first micro-batch's way through the chunks and back. Beside the work of the
    effective micro-batches exact without sends; with them and v > 1, exact while none takes longer than F or B+W. With
    them and v = 1, filling and draining alone: p micro-batches wait for one round trip, so another 2·⌊(m-1)·(p-1)/p⌋
    sends show in the step however well they overlap.

    ZB-H1 (v = 1) delays W: (p-1)·(F+B+2·S), less min(W - 2·S, F, B - S) for each of the min(m, p) - 1 delayed W. From p
    micro-batches on and without sends that is (p-1)·(F+B-min(F,B,W)): the (p-1)·(F+B-W) of Qi 2023 (Zero Bubble, arXiv
    2401.10241, table 2) where W is the shortest pass, else what filling (F) or the way back (B) costs. Exact without
    sends; with them exact for m > p and 2·S ≤ W, an upper bound for m ≤ p, a lower one for m > p and 2·S > W.
    """
    work = forward + backward_input
    if schedule == "zb-h1":
        saving = np.minimum(np.minimum(backward_weight - 2 * send, backward_input - send), forward)
        return (pipeline - 1) * (work + 2 * send) - (np.minimum(micro_batches, pipeline) - 1) * saving
    sends = 2 * (pipeline * virtual_stages - 1) * np.minimum(pipeline - 1, 1)
    return (pipeline - 1) * (work + backward_weight) + sends * send


@dataclass(frozen=True, slots=True)
class Rounds:
    """Micro-batches that a stage takes through one chunk before it goes on to the next: at first, and at last."""

    first: Num
    last: Num


@dataclass(frozen=True, slots=True)
class PipelineCounts:
    """The counts of a pipeline: its stages, the chunks of a stage, and the micro-batches of a step.

    `rounds`: those of the micro-batches unless given.
    """

    pipeline: Num
    virtual_stages: Num
    micro_batches: Num
    rounds: Rounds | None = None


def rounds_of(micro_batches: Num, pipeline: Num) -> Rounds:
    """Return the micro-batches of the first and the last round of a step: p, or the fewer that there are."""
    return Rounds(np.minimum(micro_batches, pipeline), (micro_batches - 1) % pipeline + 1)


def effective_micro_batches(micro_batches: Num, pipeline: Num, virtual_stages: Num) -> Num:
    """Compute the micro-batches plus the loss, in micro-batches, of interleaving them in incomplete rounds of p.

    m + (v-1)/v·(p-r), with r = m mod p > 0: each of the v-1 chunk switches of a round of r waits p-r slots (the
    round-robin of Narayanan 2021, section 2.2). Exact for complete rounds and for m < p. For m > p the last round may
    overlap the one before: the truth lies between m + (v-1)/v·(p-r)·B/(F+B), B the whole backward pass, and this.
    """
    return micro_batches + (virtual_stages - 1) / virtual_stages * (-micro_batches % pipeline)


def sends_beside_rings(
    schedule: Schedule,
    pipeline: Num,
    virtual_stages: Num,
    micro_batches: Num,
    *,
    zero_stage: int,
    gradients_overlap: bool,
    sends_overlap: bool,
) -> Num:
    """Count the pipeline sends on the critical path of a step that overlap rings of the GPUs that send.

    ZeRO-0 and 1: a chunk's gradients are complete with its last micro-batch, and the ring of one layer overlaps the
    backward pass of the next. So the last layer's ring starts as the chunk sends on: the p·v - 1 sends of the last
    micro-batch on its way back meet rings, and no send before them does. The ring that ends last, that of the first
    stage, meets none, as the stage's last pass has no stage to send to. Where gradients do not overlap passes, a
    stage's ring follows its last send, and under ZB-H1 its last W, which comes after.

    ZeRO-2 and 3 have rings in every micro-batch: all sends that passes do not hide meet them. The sends that passes
    hide follow the rings already (`step.sharded_times` takes the rings' time from the NIC).
    """
    several = np.asarray(pipeline) > 1
    way = np.where(several, pipeline * virtual_stages - 1, 0)
    if zero_stage > 1:
        shown = np.where(np.asarray(virtual_stages) > 1, 1 - sends_overlap, 1.0)
        return 2 * (way + several * micro_batches * virtual_stages * shown)
    return way * (schedule == "1f1b" and gradients_overlap)


def chunks_in_flight(schedule: Schedule, stage: Num, pipeline: Num, virtual_stages: Num, micro_batches: Num) -> Num:
    """Return the chunk-micro-batches whose activations stage i (from 0) keeps at its peak.

    1F1B: min(m, p - i). Interleaved: the warm-up of rank i is 2·(p-i-1) + (v-1)·p chunks, plus the one in work, at most
    v·m (Narayanan 2021, section 2.2; Korthikanti 2022, eq. 5 with the first stage's v·p + p - 1). ZB-H1: min(m, p) on
    every stage, as a micro-batch stays until its W; from p micro-batches on, p - i wait for their B and i for their W
    only, which needs less of each (Qi 2023, section 2.3).
    """
    if schedule == "zb-h1":
        return np.minimum(micro_batches, pipeline + 0 * stage)
    plain = pipeline - stage
    interleaved = 2 * (pipeline - stage - 1) + (virtual_stages - 1) * pipeline + 1
    return np.minimum(np.where(np.asarray(virtual_stages) == 1, plain, interleaved), virtual_stages * micro_batches)


def layers_per_chunk(layers: Num, virtual_stages: Num) -> Num:
    """Return the layers of the largest of the v chunks of a stage."""
    return np.ceil(layers / virtual_stages)


def recomputed_alike(layers: Num, virtual_stages: int, each: int) -> Num:
    """Return the layers that a stage of some layers recomputes where each of its chunks recomputes `each`, or all."""
    least, more = np.asarray(layers) // virtual_stages, np.asarray(layers) % virtual_stages
    return more * np.minimum(each, least + 1) + (virtual_stages - more) * np.minimum(each, least)


def may_overlap_experts(pipeline: Num, virtual_stages: Num) -> Num:
    """Return whether a pipeline lets the experts' exchange overlap: of one stage, or of interleaved ones.

    Megatron-Core takes the passes of two micro-batches together, which 1F1B has next to each other only there
    (transformer_config.py, overlap_moe_expert_parallel_comm).
    """
    return (np.asarray(pipeline) == 1) | (np.asarray(virtual_stages) > 1)
