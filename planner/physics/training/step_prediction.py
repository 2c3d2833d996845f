"""The prediction of a step: of a layout in whole blocks of racks, of one layout given in full, and of pools.

The pipeline is timed as if every stage were as large as the largest and every chunk of the fill as the largest of its
stage; the waits of unequal chunks are added, from the order of events. For equal stages and whole rounds of
micro-batches this is the time of 1F1B.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.instance.hardware import Hardware, Pool, PoolLink
from planner.instance.instance import Instance
from planner.physics import Ints, Num
from planner.physics.network.uplink_slowdowns import wait_for_others
from planner.physics.site import wan_exchange
from planner.physics.training import collectives, data_parallel, layer_time, memory, schedule, step_errors, transformer
from planner.physics.training.collectives import exposed_tail_seconds
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.memory import stage_gradient_bytes, weights_of, worst_memory
from planner.physics.training.operations import LayerShape, Machine, embedding_seconds, hbm_rate, head_seconds
from planner.physics.training.parallel_strategy import ParallelStrategy, padded, strategy_of
from planner.physics.training.schedule import PipelineCounts, Schedule
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions of step prediction: the network's slowdowns, rates and round trips."""

    pipeline_send_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float | None = 0.0
    wan_round_trips: float = 1.0
    transport_slowdown: float = 1.0


def free_conditions(slowdown: float = 1.0) -> Conditions:
    """Return the conditions of step prediction on a free network, with only its transport's `slowdown`."""
    return Conditions(pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown, transport_slowdown=slowdown)


def machine_of(instance: Instance) -> Machine:
    """Return the machine of an instance for which step prediction is made: GPU with its NIC, rack, software, model."""
    hardware, workload = instance.hardware, instance.workload
    return Machine(
        gpu=hardware.accelerator.replaced(nic_bytes_per_second=hardware.gpu_nic_bytes_per_second),
        rack=hardware.rack,
        software=workload.software,
        model=workload.model,
        precision=workload.precision,
        sequence=workload.sequence_length,
        expert_imbalance=workload.expert_imbalance,
        replicas_per_rack=instance.pins.get("layout.replicas_per_rack"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The inputs of step prediction other than its counts of stages, replicas and micro-batches; times in seconds.

    Times of layers include the exchange of CP over racks at the transport's own slowdown, which is its whole slowdown
    under one leaf.
    """

    machine: Machine  # padded
    shape: LayerShape
    times: LayerTimes
    front: LayerTimes  # of a dense layer at the front of a model with experts
    head: float
    embedding: float
    context_nic: float
    send_at_rate: float
    send_per_slowdown: float
    zero_stage: int = 0
    order: Schedule = "1f1b"

    @property
    def ends(self) -> float:
        """Return the seconds a micro-batch beyond layers in a step of one stage: logits, loss, embedding's gradient."""
        return self.head + self.embedding

    @property
    def front_excess_seconds(self) -> float:
        """Return the seconds of a micro-batch that a dense front layer adds to a step beyond another layer's."""
        # Exposed ZeRO traffic is taken as equal.
        one, other = self.front, self.times
        return one.forward_seconds + one.backward_seconds - other.forward_seconds - other.backward_seconds

    @property
    def first_excess_seconds(self) -> float:
        """Compute a predicted step's seconds a micro-batch that front layers and embedding add to stage 1."""
        return transformer.front_layers(self.machine.model) * self.front_excess_seconds + self.embedding

    def send(self, slowdown: Num, pipeline: Num) -> Num:
        """Compute the seconds of a step's send between stages of two racks: a fixed part, and the NIC's, slowed."""
        seconds = self.send_at_rate + self.send_per_slowdown * (np.asarray(slowdown) - 1)
        return np.where(np.asarray(pipeline) > 1, seconds, 0.0)


def pipeline_of(
    machine: Machine, shape: LayerShape, transport_slowdown: float, fronts: dict[LayerShape, LayerTimes] | None = None
) -> Pipeline:
    """Predict the pipeline of a step for a layer shape under ZeRO-0 and 1F1B, its stages in racks of their own.

    `fronts` keeps the times of dense layers at the front, of one machine and slowdown: most shapes share them.
    """
    m = padded(machine, shape)
    times = front = layer_time.layer_times(m, shape, transport_slowdown)
    if transformer.front_layers(m.model):
        # A dense layer takes as long however many ranks divide the experts.
        fronts, dense = {} if fronts is None else fronts, replace(shape, expert_parallel=min(shape.expert_parallel, 2))
        if dense not in fronts:
            fronts[dense] = layer_time.layer_times(m, dense, transport_slowdown, front=True)
        front = fronts[dense]
    one, two = (collectives.pipeline_send_seconds(m, shape, x) for x in (1.0, 2.0))
    embedding, head = collectives.end_exchange_seconds(m, shape)
    _, context_nic = collectives.context_exchange(m, shape, transport_slowdown)
    return Pipeline(
        machine=m,
        shape=shape,
        times=times,
        front=front,
        head=head_seconds(m, shape) + head,
        embedding=embedding_seconds(m, shape) + embedding,
        context_nic=context_nic,
        send_at_rate=one,
        send_per_slowdown=two - one,
    )


def inside_rack(x: Pipeline) -> Pipeline:
    """Return a predicted step's pipeline as if all stages were in one rack, whose sends stay in the scale-up domain."""
    seconds = collectives.pipeline_send_seconds(x.machine, x.shape, 1.0, inside=True)
    return replace(x, send_at_rate=seconds, send_per_slowdown=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedTimes:
    """A pipeline's seconds of a layer and micro-batch under ZeRO among replicas: exposed traffic, free time of NIC."""

    pipeline: Pipeline
    group: ReplicaGroup
    sharding_seconds: Num
    free_forward_seconds: Num
    free_backward_seconds: Num

    @property
    def layer_seconds(self) -> Num:
        """Return the seconds of a step's layer and micro-batch under ZeRO, forward and backward, no full recompute."""
        times = self.pipeline.times
        return times.forward_seconds + times.backward_seconds + self.sharding_seconds


def sharded_times(x: Pipeline, group: ReplicaGroup) -> ShardedTimes:
    """Compute a layer's seconds of a step: compute, exposed ZeRO traffic, free NIC; broadcasts over racks."""
    # Each pass hides its traffic up to its own length, but for the share that the framework exposes in any case. The
    # time that CP takes of the NIC, once forward and twice backward, is lost to the exchange of stages.
    m, f, b = x.machine, x.times.forward_seconds, x.times.backward_seconds
    forward, backward = data_parallel.sharding_traffic_seconds(m, x.shape, weights_of(m, x.shape), x.zero_stage, group)
    exposed = m.software.sharding_exposed * (forward + backward)
    return ShardedTimes(
        pipeline=x,
        group=group,
        sharding_seconds=np.maximum(0.0, forward - f) + np.maximum(0.0, backward - b) + exposed,
        free_forward_seconds=np.maximum(0.0, f - forward - x.context_nic),
        free_backward_seconds=np.maximum(0.0, b - backward - 2 * x.context_nic),
    )


def exposed_seconds(sharded: ShardedTimes, virtual_stages: Num, layers: Num, send: Num) -> Num:
    """Compute the seconds of a step's sends that a stage exposes a micro-batch; l mod v chunks have a layer more."""
    v = np.asarray(virtual_stages)
    # Plain 1F1B hides none: each of its passes waits for the one before to cross and come back.
    hidden = (v > 1) * float("sends" in sharded.pipeline.machine.software.overlaps) * send
    small, larger = np.asarray(layers) // v, np.asarray(layers) % v

    def chunk(size: Num) -> Num:  # both ways: what does not overlap, and what is longer than the passes
        windows = size * sharded.free_forward_seconds, size * sharded.free_backward_seconds
        return 2 * (send - hidden) + sum(np.maximum(0.0, hidden - window) for window in windows)

    return larger * chunk(small + 1) + (v - larger) * chunk(small)


def stage_seconds(sharded: ShardedTimes, virtual_stages: Num, layers: Num, recomputed: Num, send: Num) -> Num:
    """Compute a stage's seconds a micro-batch of a step: layers, recomputation, exposed sends; no head nor front."""
    exposed = exposed_seconds(sharded, virtual_stages, layers, send)
    return layers * sharded.layer_seconds + recomputed * sharded.pipeline.times.recompute_seconds + exposed


def end_seconds(x: Pipeline, stages: Ints, pipeline: int) -> Num:
    """Compute the seconds that a micro-batch takes more on the last stage (head) and the first (front, embedding)."""
    return np.where(stages == pipeline - 1, x.head, 0.0) + np.where(stages == 0, x.first_excess_seconds, 0.0)


def least_layers(x: Pipeline) -> int:
    """Count the layers by which a step's prediction is a lower bound, each of a usual layer's time."""
    # Where front layers are faster than others, the count is reduced by the whole layers that make up for it.
    model, usual = x.machine.model, x.times.forward_seconds + x.times.backward_seconds
    spared = transformer.front_layers(model) * max(0.0, -x.front_excess_seconds)
    return max(1, model.layers - math.ceil(spared / usual - 1e-9))


def least_first_stage(x: Pipeline, virtual_stages: int) -> int:
    """Count the fewest layers of a step's first stage whose first, largest chunk holds all dense front layers."""
    return max(virtual_stages, (transformer.front_layers(x.machine.model) - 1) * virtual_stages + 1)


def chunk_seconds(sharded: ShardedTimes, virtual_stages: Num, layers: Num, recomputed: Num) -> Num:
    """Compute the seconds in a step of a stage's largest chunk: whole layers, and whole ones recomputed."""
    whole, repeated = np.ceil(layers / virtual_stages), np.ceil(recomputed / virtual_stages)
    return whole * sharded.layer_seconds + repeated * sharded.pipeline.times.recompute_seconds


def alike_stages(x: Pipeline, pipeline: int) -> Ints:
    """Return for each stage of a step the first one whose unequal chunks wait as long: the first, last, or another."""
    stages = np.arange(pipeline)
    least = int(schedule.smaller_chunks_first(x.machine.model, 0))
    return np.where(stages == pipeline - 1, stages, np.minimum(stages, least))


def excess_seconds(sharded: ShardedTimes, counts: PipelineCounts, layers: int, recomputed: int, *, stage: int) -> float:
    """Compute the seconds that unequal chunks of the slowest stage add to a step, by the order of events."""
    # The last stage has the head in its last chunk, a third of it forward: one product of three.
    x, last = sharded.pipeline, stage == counts.pipeline - 1
    forward, head = x.times.forward_seconds, (x.head / 3, 2 * x.head / 3) if last else (0.0, 0.0)
    each = forward, float(sharded.layer_seconds) - forward, x.times.recompute_seconds
    first = bool(schedule.smaller_chunks_first(x.machine.model, stage))
    return schedule.excess_seconds(counts, layers, recomputed, each, head=head, smaller_first=first)


def pipeline_bubble_seconds(sharded: ShardedTimes, counts: PipelineCounts, stage_seconds: Num, send: Num) -> Num:
    """Compute the bubble of a step: seconds to fill and drain the pipeline, `stage_seconds` a micro-batch and stage."""
    # The passes share a stage's time as they share a layer's.
    x, layer, chunk = sharded.pipeline, sharded.layer_seconds, stage_seconds / counts.virtual_stages
    forward, weights = x.times.forward_seconds / layer, x.times.weight_gradient_seconds / layer
    passes = (chunk * forward, chunk * (1 - forward - weights), chunk * weights)
    return schedule.bubble_seconds(x.order, counts, passes, send)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFibre:
    """The fibre over which a predicted step exchanges gradients between sites: slowest link's rate and round trip."""

    sites: int
    gbps: Num
    rtt_ms: Num
    round_trips: float


def queue_seconds(items: Num, service_seconds: Num, spacing_seconds: Num) -> Num:
    """Compute the seconds that the last of a step's `items` exchanges, ready at a spacing, waits (Lindley 1952)."""
    # His recursion with constant service and spacing: the n-th waits (n-1)·max(0, service - spacing).
    return (items - 1) * np.maximum(0.0, service_seconds - spacing_seconds)


def wan_tail_seconds(
    stage_bytes: Num, gbps: float, rtt_ms: float, round_trips: float, layers: Num, backward_seconds: float
) -> Num:
    """Compute a predicted step's seconds exposed by the WAN exchange of the last stage to end, round trips included."""
    return exposed_tail_seconds(8 * stage_bytes / (gbps * 1e9), backward_seconds, layers) + round_trips * rtt_ms / 1e3


def between_sites_seconds(x: Pipeline, fibre: LayoutFibre | None, counts: PipelineCounts, layers: Num) -> Num:
    """Compute a predicted step's seconds exposed by the exchange between sites, of the stage that ends last."""
    # It waits for the queue of all stages on the links, each as large as the largest and ready one backward pass after
    # the next; under interleaving their chunks are, each with 1/v of the bytes, one chunk's pass apart.
    if fibre is None or fibre.sites < 2:
        return 0.0
    gradients = stage_gradient_bytes(x.machine, x.shape, layers, stage=0, pipeline=counts.pipeline)
    size = wan_exchange.exchange_bytes(gradients, fibre.sites)
    backward = x.times.backward_seconds
    one = wan_tail_seconds(size, fibre.gbps, fibre.rtt_ms, fibre.round_trips, layers, backward)
    each, v = 8 * size / (fibre.gbps * 1e9), np.asarray(counts.virtual_stages)
    return one + queue_seconds(np.asarray(counts.pipeline) * v, each / v, layers * backward / v)


def sends_beside_rings(x: Pipeline, counts: PipelineCounts, racks: Num) -> Num:
    """Count the sends on a predicted step's critical path that meet rings of the GPUs that send; none inside a rack."""
    # ZeRO-0 and 1: a chunk's gradients are complete with its last micro-batch, and the ring of one layer overlaps the
    # backward pass of the next. So the last layer's ring starts as the chunk sends on: the p·v - 1 sends of the last
    # micro-batch on its way back meet rings, and none before does. The ring that ends last, of the first stage, meets
    # none: its last pass sends nothing. Where gradients do not overlap passes, a stage's ring follows its last send,
    # and under ZB-H1 its last W. ZeRO-2 and 3 have rings in every micro-batch, which all sends that passes do not hide
    # meet; hidden ones follow the rings already (`sharded_times` takes their time from the NIC).
    several, v, software = np.asarray(counts.pipeline) > 1, counts.virtual_stages, x.machine.software
    way = np.where(several, counts.pipeline * v - 1, 0)
    if x.zero_stage > 1:
        shown = np.where(np.asarray(v) > 1, 1 - ("sends" in software.overlaps), 1.0)
        met = 2 * (way + several * counts.micro_batches * v * shown)
    else:
        met = way * (x.order == "1f1b" and ("gradients" in software.overlaps))
    return np.where(np.asarray(racks) > 1, met, 0) * (x.send_per_slowdown > 0)


def once_parts(
    sharded: ShardedTimes,
    fibre: LayoutFibre | None,
    counts: PipelineCounts,
    layers: Num,
    chunk_seconds: Num,
    send: Num,
    *,
    alone: bool = False,
) -> dict[str, Num]:
    """Predict the seconds of a step's parts that occur once, by the largest stage's `layers` and the largest chunk."""
    # Filling and draining the pipeline, gradients inside a site and between sites, optimiser and CPU overhead; what
    # ZeRO's traffic for the embeddings exposes in all micro-batches, and what sends wait for rings unless `alone`.
    x, group = sharded.pipeline, sharded.group
    p, v = counts.pipeline, counts.virtual_stages
    m, s, w, zero = x.machine, x.shape, weights_of(x.machine, x.shape), x.zero_stage
    end = memory.end_copies(m.model, 0, p)
    # The stage that ends last is taken to be as large as the largest.
    last = m, s, w, group, x.times, counts
    state = memory.gpu_state_bytes(m, s, w, layers=layers, ends=end, zero_stage=zero, replicas=group.shards)
    parts = {
        "pipeline_bubble": pipeline_bubble_seconds(sharded, counts, chunk_seconds * v, send),
        "data_parallel": data_parallel.data_parallel_tail_seconds(*last, zero_stage=zero, layers=layers, end=end),
        "optimizer": 2 * state / hbm_rate(m),  # every byte is read and written once
        "cpu_overhead": m.software.step_seconds,
        "between_sites": between_sites_seconds(x, fibre, counts, layers),
        "end_sharding": 0.0 * counts.micro_batches,
    }
    if zero >= 2:
        # Stage 3 gathers embeddings once and keeps them until their backward pass, stages 2 and 3 reduce their
        # gradients: neither belongs to a layer (torch.distributed.fsdp: the root's own unit). The head's products hide
        # what they can of it.
        _, traffic = data_parallel.sharding_traffic_seconds(m, s, w, zero, group, layers=0.0, end=end)
        exposed = np.maximum(0.0, traffic - head_seconds(m, s)) + m.software.sharding_exposed * traffic
        parts["end_sharding"] = counts.micro_batches * exposed
    if alone:
        return parts
    met = sends_beside_rings(x, counts, group.racks)
    parts["ring_wait"] = 0.0
    if np.any(np.asarray(met) > 0):  # sends on the critical path wait for rings between racks on NICs and links
        groups = (replace(group, slowdown=times * group.slowdown) for times in (1, 2))
        exchanges = (data_parallel.replica_exchange(m, s, w, each) for each in groups)
        one, two = (exchange(m.precision.gradient_bytes) for exchange in exchanges)
        ring = (two - one) / m.software.data_efficiency * (2 if zero == 0 else 1)  # without steps inside a rack
        most = np.maximum(1.0, layers / np.asarray(v))
        # In flight: a layer's gradients being reduced, or all of a chunk's that its backward pass did not hide.
        in_flight = exposed_tail_seconds(ring * most, x.times.backward_seconds, most)
        parts["ring_wait"] = met * wait_for_others(x.send_per_slowdown, group.slowdown, in_flight)
    return parts


def times_of_strategy(m: Machine, c: Conditions, strategy: ParallelStrategy) -> ShardedTimes:
    """Time the pipeline of a parallel strategy given in full, and its layers under ZeRO, to predict its step."""
    m = replace(m, replicas_per_rack=strategy.replicas_per_rack) if strategy.expert_parallel > 1 else m
    x = pipeline_of(m, strategy.shape, c.transport_slowdown)
    x = replace(x, zero_stage=strategy.zero_stage, order=strategy.schedule)
    x = inside_rack(x) if strategy.stages_per_rack >= strategy.pipeline_parallel else x
    racks, shards = strategy.group_racks(m.rack.gpus), strategy.min_replicas
    return sharded_times(x, ReplicaGroup(strategy.replicas_per_rack, racks, shards, c.allreduce_slowdown))


def step_breakdown(
    machine: Machine, c: Conditions, strategy: ParallelStrategy, sharded: ShardedTimes | None = None
) -> dict[str, float]:
    """Predict the seconds of one step by part, which sum to the step; `sharded`: the times of its layers, if known."""
    # The stage whose layers, recomputation, head, exposed exchange and unequal chunks take longest sets the time;
    # filling and draining take the largest chunk of any stage on every other stage.
    sharded = times_of_strategy(machine, c, strategy) if sharded is None else sharded
    x, p, v = sharded.pipeline, strategy.pipeline_parallel, strategy.virtual_stages
    counts, send = PipelineCounts(p, v, strategy.micro_batches), float(x.send(c.pipeline_send_slowdown, p))
    layers, recompute = np.array(strategy.layers_per_stage), np.array(strategy.recomputed)
    heads = np.where(np.arange(p) == p - 1, x.head, 0.0) + np.where(np.arange(p) == 0, x.embedding, 0.0)
    n = float(schedule.effective_micro_batches(strategy.micro_batches, p, v))
    each_stage = enumerate(zip(strategy.layers_per_stage, strategy.recomputed, strict=True))
    waits = np.array([excess_seconds(sharded, counts, a, b, stage=i) for i, (a, b) in each_stage])
    front = np.array(schedule.front_by_stage(machine.model, strategy.layers_per_stage, v))
    each = stage_seconds(sharded, v, layers, recompute, send) + front * x.front_excess_seconds
    slowest = int(np.argmax(n * (each + heads) + waits))
    slow_layers, repeated, dense = int(layers[slowest]), int(recompute[slowest]), int(front[slowest])
    usual = slow_layers - dense
    parts: dict[str, Num] = {
        part: n * (usual * seconds + dense * x.front.parts[part]) for part, seconds in x.times.parts.items()
    }
    parts |= {"sharding": n * slow_layers * sharded.sharding_seconds, "head": n * heads[slowest]}
    fibre, sites = None, sum(d > 0 for d in strategy.data_parallel_by_site)
    if c.wan_gbps is not None:
        fibre = LayoutFibre(sites=sites, gbps=c.wan_gbps, rtt_ms=c.wan_rtt_ms or 0.0, round_trips=c.wan_round_trips)
    parts["pipeline_send"] = n * exposed_seconds(sharded, v, slow_layers, send)
    chunk = np.max(chunk_seconds(sharded, v, layers, recompute))
    parts |= once_parts(sharded, fibre, counts, int(layers.max()), chunk, send)
    parts["chunk_wait"] = waits[slowest]
    parts["sharding"] += parts.pop("end_sharding")
    parts["recompute"] += n * repeated * x.times.recompute_seconds
    parts["launch"] += n * machine.software.host_seconds
    return {k: float(v) for k, v in parts.items() if k != "ring_wait" or v}


def days_to_train(tokens: float, tokens_per_step: float, step_seconds: float, availability: float) -> float:
    """Predict the days to train from a step's seconds and tokens, and the share of time in which steps advance."""
    return tokens / tokens_per_step * step_seconds / availability / SECONDS_PER_DAY


def days_of(instance: Instance, seconds_per_sequence: float) -> float:
    """Predict the days to train on all tokens of an instance from a step's seconds a sequence."""
    w = instance.workload
    return float(days_to_train(w.tokens, w.sequence_length, seconds_per_sequence, w.availability))


def metrics(
    instance: Instance, c: Conditions, strategy: ParallelStrategy, *, useful_share: float | None = None
) -> LayoutMetrics:
    """Predict all metrics that a plan reports of a layout."""
    # Work, bytes and time are those of padded sequences; tokens are those without what pads them. `useful_share` of the
    # time on a clock goes into steps where failures count; else the workload says it.
    m, workload, shape, p = machine_of(instance), instance.workload, strategy.shape, strategy.pipeline_parallel
    sharded, by_part = times_of_strategy(m, c, strategy), worst_memory(m, strategy)
    parts = step_breakdown(m, c, strategy, sharded)
    seconds = sum(parts.values())
    tokens = float(strategy.data_parallel * strategy.micro_batches * strategy.micro_batch * m.sequence)
    useful = workload.availability if useful_share is None else useful_share
    days = days_to_train(workload.tokens, tokens, seconds, useful)
    flop, peak = tokens * transformer.model_flop_per_token(m.model, m.sequence), m.peak_flop_per_second
    gradient_bytes = stage_gradient_bytes(m, shape, np.array(strategy.layers_per_stage), stage=np.arange(p), pipeline=p)
    # A send overlaps the smallest chunk of a stage, less the time that ZeRO and CP over racks take of the NIC; a
    # layer's all-reduce and the exchange between sites overlap backward passes.
    x, group, between_racks = sharded.pipeline, sharded.group, p > strategy.stages_per_rack
    chunk = max(1, min(strategy.layers_per_stage) // strategy.virtual_stages)
    allreduce = data_parallel.allreduce_layer_seconds(
        m, shape, weights_of(m, shape), group.replicas_per_rack, group.racks
    )
    backward, free = x.times.backward_seconds, np.minimum(sharded.free_forward_seconds, sharded.free_backward_seconds)
    sent = collectives.pipeline_send_bytes(x.machine, shape)
    counts = PipelineCounts(p, strategy.virtual_stages, strategy.micro_batches)
    return LayoutMetrics(
        step_seconds=seconds,
        breakdown_seconds=parts,
        tokens_per_step=tokens,
        memory_bytes_per_gpu=sum(by_part.values()),
        memory_breakdown_bytes=by_part,
        memory_limit_bytes=memory.memory_limit_bytes(instance),
        mfu=flop / (strategy.gpus * peak * seconds),  # without recompute (Chowdhery 2022, app. B)
        days_to_train=days,
        step_days_to_train=days_to_train(workload.tokens, tokens, seconds, 1.0),
        useful_share=useful,
        days_to_train_interval=step_errors.interval(m, strategy, days),
        pipeline_send_seconds=float(x.send(c.pipeline_send_slowdown, 2)) if between_racks else 0.0,
        pipeline_send_nic_seconds=sent / m.gpu.nic_bytes_per_second if between_racks else 0.0,  # at the ideal rate
        pipeline_send_window_seconds=float(chunk * free),
        sends_beside_rings=float(sends_beside_rings(x, counts, group.racks)),
        allreduce_layer_seconds=float(allreduce),
        allreduce_window_seconds=backward,
        wan_window_seconds=max(strategy.layers_per_stage) * backward,
        gradient_bytes_per_stage=float(np.max(gradient_bytes)),
    )


def extrapolations(instance: Instance, layout: LayoutPlan) -> dict[str, str]:
    """Return what a layout's step prediction extrapolates from the measured runs, each with a sentence."""
    if instance.hardware.pools:
        return {}
    m = machine_of(instance)
    return step_errors.unmeasured(m) | step_errors.outside(m, strategy_of(layout))


def pool_instance(instance: Instance, pool: Pool, sequences: int) -> Instance:
    """Return the instance of one pool alone, with its share of the batch as the most that a step may hold."""
    hardware = Hardware(
        accelerator=pool.accelerator,
        rack=pool.rack,
        racks=pool.racks,
        nic_bytes_per_second=pool.nic_bytes_per_second,
        facility_overhead_factor=instance.hardware.facility_overhead_factor,
    )
    free: dict[str, float | None] = dict.fromkeys(("deadline_days", "budget_usd", "facility_power_mw"))
    batch = float(sequences * instance.workload.sequence_length)
    limits = instance.limits.replaced(**free | {"max_batch_tokens": batch})
    return instance.replaced(hardware=hardware, limits=limits)


def pool_exchange_seconds(link: PoolLink | None, metrics: LayoutMetrics, layers: int, training: int) -> float:
    """Compute a step's exposed seconds of a pool's gradient exchange in the ring of pools; 0 without a link."""
    if link is None or training < 2:
        return 0.0
    size = wan_exchange.exchange_bytes(metrics.gradient_bytes_per_stage, training)
    return float(wan_tail_seconds(size, link.gbps, link.rtt_ms, 1.0, layers, metrics.wan_window_seconds / layers))
