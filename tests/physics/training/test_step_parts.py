"""The step of a layout, stage by stage and chunk by chunk: a second count of every part, over what a layer takes."""
# Times of a layer, of a collective and of a schedule are tested elsewhere; here stands how a step is made of them.

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from test_layer_time import TOY, gpu, machine
from training_toys import layout, shape

from planner.instance.workload import Experts, LatentAttention
from planner.physics.training import collectives, data_parallel, layer_time, memory, schedule, step_prediction
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.memory import weights_of
from planner.physics.training.operations import Machine, embedding_seconds, head_seconds, layer_operations
from planner.physics.training.parallel_strategy import ParallelStrategy, padded
from planner.physics.training.step_prediction import Conditions
from planner.physics.training.transformer import layer_parameters, model_flop_per_token
from planner.planning.load import load_instance

SLOW = {"sharding_exposed": 0.1, "microbatch_seconds": 0.3}
SLOW |= {"step_seconds": 7.0, "launch_seconds": 0.01, "loss_bytes_per_logit": 2.0}


def toy(*, layers: int = 24, **more: Any) -> Machine:
    """Return a machine of toy GPUs, 8 to a rack, of which no part of a step is free."""
    m = machine(gpu(hbm=1e4, kernel=0.01), model=TOY.replaced(layers=layers, tied_embeddings=False), **SLOW | more)
    return dataclasses.replace(m, sequence=16)


@st.composite
def strategies(draw: st.DrawFn) -> ParallelStrategy:
    """Draw a strategy: TP in the rack, CP within or over racks, chunks of unlike stages, and any ZeRO stage."""
    t, c = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 4), (8, 2), (1, 16)]))
    p, zb = draw(st.integers(1, 4)), draw(st.booleans())
    v = 1 if zb or p == 1 else draw(st.integers(1, 3))
    layers = tuple(draw(st.integers(v, v + 3)) for _ in range(p))
    full = draw(st.booleans())
    in_rack = max(1, 8 // (t * c))
    return ParallelStrategy(
        tensor_parallel=t, context_parallel=c, pipeline_parallel=p,
        data_parallel_by_site=draw(st.sampled_from([(4,), (2, 4), (6, 0), (2, 2, 2)])), virtual_stages=v,
        micro_batch=draw(st.integers(1, 2)), micro_batches=p * draw(st.integers(1, 3)),
        recompute="full" if full else "selective", sequence_parallel=t > 1 and draw(st.booleans()),
        zero_stage=draw(st.integers(0, 3)), layers_per_stage=layers,
        replicas_per_rack=draw(st.sampled_from(range(1, in_rack + 1))), schedule="zb-h1" if zb else "1f1b",
        stages_per_rack=1, recomputed_layers_per_stage=tuple(draw(st.integers(0, n)) for n in layers) if full else (),
    )  # fmt: skip


CONDITIONS = st.builds(
    Conditions, pipeline_send_slowdown=st.sampled_from([1.0, 1.5, 3.0]), allreduce_slowdown=st.sampled_from([1.0, 2.0]),
    wan_gbps=st.sampled_from([None, 1e-7, 1e-6]), wan_rtt_ms=st.sampled_from([0.0, 400.0]),
    wan_round_trips=st.sampled_from([1.0, 2.0]), transport_slowdown=st.sampled_from([1.0, 1.25]),
)  # fmt: skip


class Layer:
    """One layer and micro-batch of a strategy: its times, what ZeRO's traffic exposes, and the NIC's time it leaves."""

    def __init__(self, m: Machine, c: Conditions, s: ParallelStrategy) -> None:
        self.m, self.s = padded(m, s.shape), s
        self.times = layer_time.layer_times(self.m, s.shape, c.transport_slowdown)
        group = ReplicaGroup(s.replicas_per_rack, s.group_racks(m.rack.gpus), slowdown=c.allreduce_slowdown)
        sent = data_parallel.sharding_traffic_seconds(self.m, s.shape, weights_of(self.m, s.shape), s.zero_stage, group)
        passes = self.times.forward_seconds, self.times.backward_seconds
        late = [max(0.0, float(x) - own) for x, own in zip(sent, passes, strict=True)]
        self.sharding = sum(late) + m.software.sharding_exposed * float(sum(sent))
        _, nic = collectives.context_exchange(self.m, s.shape, c.transport_slowdown)
        left = [max(0.0, own - float(x)) for x, own in zip(sent, passes, strict=True)]
        self.free = [max(0.0, left[0] - nic), max(0.0, left[1] - 2 * nic)]
        self.seconds = sum(passes) + self.sharding
        # Of the embeddings: gradients reduced from stage 2 on, weights gathered at stage 3.
        reduced, gathered = self.m.precision.gradient_bytes, self.m.precision.working_parameter_bytes
        exchange = data_parallel.replica_exchange(self.m, s.shape, weights_of(self.m, s.shape), group)
        sizes, ends = {2: [reduced], 3: [reduced, gathered]}.get(s.zero_stage, []), 1.0 + (s.pipeline_parallel == 1)
        of_ends = sum(float(exchange(size, layers=0.0, end=ends)) for size in sizes)
        late_ends = max(0.0, of_ends - head_seconds(self.m, s.shape))
        self.end_sharding = late_ends + m.software.sharding_exposed * of_ends

    def exposed(self, layers: int, send: float) -> float:
        """Return the exposed sends of a micro-batch: for each chunk one on and one back, beside the chunk's layers."""
        total = 0.0
        for size in schedule.chunk_sizes(layers, self.s.virtual_stages):
            hidden = send if self.s.virtual_stages > 1 and "sends" in self.m.software.overlaps else 0.0
            total += sum(send - hidden + max(0.0, hidden - size * free) for free in self.free)
        return total


def ranks_in_rack(s: ParallelStrategy) -> int:
    """Count the GPUs of a rack of 8 with the same weights: of whole replicas, or one of each TP group."""
    in_rack = s.tensor_parallel * s.context_parallel <= 8
    return s.replicas_per_rack * s.context_parallel if in_rack else 8 // s.tensor_parallel


def send_seconds(m: Machine, c: Conditions, s: ParallelStrategy) -> float:
    """Return the seconds between stages of two racks; stages that all stand in one never leave it."""
    if s.pipeline_parallel == 1:
        return 0.0
    inside = s.stages_per_rack >= s.pipeline_parallel
    return collectives.pipeline_send_seconds(m, s.shape, c.pipeline_send_slowdown, inside=inside)


@given(strategies(), CONDITIONS, st.booleans(), st.sampled_from([{}, {"overlaps": ("gradients",)}]))
def test_a_step_is_what_its_parts_take(s: ParallelStrategy, c: Conditions, together: bool, own: Any) -> None:
    """The slowest stage for every micro-batch, the fill by the largest chunk of any, and what comes once."""
    if together and s.tensor_parallel * s.context_parallel * s.pipeline_parallel <= 8:
        s = dataclasses.replace(s, stages_per_rack=s.pipeline_parallel, replicas_per_rack=1)
    m, p, v = toy(layers=sum(s.layers_per_stage), **own), s.pipeline_parallel, s.virtual_stages
    x, found = Layer(m, c, s), step_prediction.step_breakdown(m, c, s)
    n, send = float(schedule.effective_micro_batches(s.micro_batches, p, v)), send_seconds(x.m, c, s)
    sums, again = collectives.end_exchange_seconds(x.m, s.shape), x.times.recompute_seconds
    head, embedding = head_seconds(x.m, s.shape) + sums[1], embedding_seconds(x.m, s.shape) + sums[0]
    stages = list(zip(s.layers_per_stage, s.recomputed, strict=True))
    each = x.times.forward_seconds, x.seconds - x.times.forward_seconds, again
    ends = [(0.0, 0.0)] * (p - 1) + [(head / 3, 2 * head / 3)]  # one product of three forward, on the last stage
    counts = schedule.PipelineCounts(p, v, s.micro_batches)
    waits = [  # the first stage has its smaller chunks first, where the embedding is
        schedule.excess_seconds(counts, a, b, each, head=end, smaller_first=i == 0)
        for i, ((a, b), end) in enumerate(zip(stages, ends, strict=True))
    ]
    took = [
        n * (a * x.seconds + b * again + x.exposed(a, send) + head * (i == p - 1) + embedding * (i == 0))
        for i, (a, b) in enumerate(stages)
    ]
    worst = max(w + t for w, t in zip(waits, took, strict=True))
    once = {"data_parallel", "between_sites", "optimizer", "cpu_overhead", "pipeline_bubble", "ring_wait"}
    per_batch = sum(seconds for part, seconds in found.items() if part not in once)
    wanted = worst + n * m.software.microbatch_seconds + s.micro_batches * x.end_sharding
    assert per_batch == pytest.approx(wanted)
    assert any(found["head"] == pytest.approx(n * (head * (i == p - 1) + embedding * (i == 0))) for i in range(p))

    chunks = [-(-a // v) * x.seconds + -(-b // v) * again for a, b in stages]
    share = x.times.forward_seconds / x.seconds, x.times.weight_gradient_seconds / x.seconds
    passes = share[0], 1 - sum(share), share[1]
    fill = schedule.bubble_seconds(s.schedule, counts, tuple(max(chunks) * x for x in passes), send)
    assert found["pipeline_bubble"] == pytest.approx(float(fill))
    assert found["cpu_overhead"] == 7.0

    most, backward = max(s.layers_per_stage), x.times.backward_seconds
    both = 2.0 if p == 1 else 1.0
    own = {"layers": most, "ends": both, "zero_stage": s.zero_stage, "replicas": s.min_replicas}
    state = memory.gpu_state_bytes(x.m, s.shape, weights_of(x.m, s.shape), **own)
    assert found["optimizer"] == pytest.approx(2 * float(state) / (1e4 * m.gpu.hbm_efficiency))
    rounds = min(s.micro_batches, p), s.micro_batches - p * ((s.micro_batches - 1) // p)
    tail = data_parallel.data_parallel_tail_seconds(
        x.m, s.shape, weights_of(x.m, s.shape),
        ReplicaGroup(s.replicas_per_rack, s.group_racks(8), slowdown=c.allreduce_slowdown),
        x.times, dataclasses.replace(counts, rounds=rounds), zero_stage=s.zero_stage, layers=most, end=both,
    )  # fmt: skip
    assert found["data_parallel"] == pytest.approx(float(tail))

    sites = sum(d > 0 for d in s.data_parallel_by_site)
    between = 0.0
    if sites > 1 and c.wan_gbps is not None:
        size = float(memory.stage_gradient_bytes(x.m, s.shape, most, stage=0, pipeline=p))
        one = 8 * 2 * (sites - 1) / sites * size / (c.wan_gbps * 1e9)
        between = max(one / most, one - (most - 1) * backward) + c.wan_round_trips * c.wan_rtt_ms / 1e3
        between += (p * v - 1) * max(0.0, one / v - most * backward / v)
    assert found["between_sites"] == pytest.approx(between)


@given(strategies(), CONDITIONS)
def test_what_a_layout_asks_of_the_network(s: ParallelStrategy, c: Conditions) -> None:
    m = toy(layers=sum(s.layers_per_stage))
    x = Layer(m, c, s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_prediction, "machine_of", lambda _: padded(m, s.shape))
        found = dict(step_prediction.metrics(load_instance(Path("instances/one-rack.json")), c, s))
    chunk = min(min(schedule.chunk_sizes(n, s.virtual_stages)) for n in s.layers_per_stage)
    apart = s.pipeline_parallel > 1
    assert found["pipeline_send_window_seconds"] == pytest.approx(chunk * min(x.free))
    assert found["pipeline_send_seconds"] == pytest.approx(send_seconds(x.m, c, s))
    size = collectives.pipeline_send_bytes(x.m, s.shape)
    assert found["pipeline_send_nic_seconds"] == pytest.approx(size / 10 if apart else 0.0)
    assert found["allreduce_window_seconds"] == x.times.backward_seconds
    assert found["wan_window_seconds"] == pytest.approx(max(s.layers_per_stage) * x.times.backward_seconds)
    racks = s.group_racks(8)
    ring = 2 * (racks - 1) * 2.0 + 2 * (racks - 1) / racks * weights_of(x.m, s.shape).layer / ranks_in_rack(s) * 4 / 10
    assert found["allreduce_layer_seconds"] == pytest.approx(ring)


@given(strategies())
def test_memory_of_every_stage(s: ParallelStrategy) -> None:
    """Stage by stage: state of its layers and ends, the chunks in flight, one recomputed layer at work, and logits."""
    m = padded(toy(layers=sum(s.layers_per_stage)), s.shape)
    found, each = memory.memory_by_stage(m, s), memory.layer_bytes(m, s.shape)
    p, v, w = s.pipeline_parallel, s.virtual_stages, weights_of(m, s.shape)
    for i, (a, b) in enumerate(zip(s.layers_per_stage, s.recomputed, strict=True)):
        ends = (i == 0) + (i == p - 1)
        own = {"layers": a, "ends": ends, "zero_stage": s.zero_stage, "replicas": s.min_replicas}
        state = memory.gpu_state_bytes(m, s.shape, w, **own)
        flying = float(schedule.chunks_in_flight(s.schedule, i, p, v, s.micro_batches))
        # Of a first stage the smaller chunks come first: the larger ones have a round in flight, elsewhere two.
        layers = a // v * flying + min(flying, a % v * min(s.micro_batches, (1 if i == 0 else 2) * p))
        mean = each.kept + b / a * (each.checkpoint - each.kept)
        gathered = 2 * w.layer * 2 if s.zero_stage == 3 else 0.0
        # Gradients of a layer's output and of the FFN's inner tensor as its backward pass begins, two bytes each.
        t, h, tokens = s.tensor_parallel, m.model.hidden, s.micro_batch * m.sequence / s.context_parallel
        split = t if s.sequence_parallel else 1
        working = (each.in_work if b else 0.0) + gathered + 2 * tokens * (h / split + m.model.ffn_width / t)
        # The head's peak where it is more: a token's logits over the vocabulary of 16, two bytes each of a fused
        # loss; the last norm's input and output, the gradients of both, and what is gathered.
        head = tokens / t * 16 * 2 + 2 * tokens * h * (2 / split + 2 + (split > 1))
        expected = {"state": float(state), "activations": layers * mean, "working": working}
        expected["logits"] = max(0.0, head - working) * (i == p - 1)
        assert {k: found[k][i] for k in expected} == pytest.approx(expected)
    fullest = max(sum(found[k][i] for k in found) for i in range(p))
    assert sum(memory.worst_memory(m, s).values()) == pytest.approx(fullest)


@each(("zero", "replicas", "c"), [(0, 4, 1), (1, 4, 1), (2, 4, 2), (3, 2, 2)])
def test_state_of_shared_weights_and_experts(zero: int, replicas: int, c: int) -> None:
    """Weights of 2 bytes, gradients of 4, optimiser of 12, each divided from its stage on, the framework's copies."""
    # Three layers of shared weights and two ends are sharded over replicas and CP ranks; their experts, on as many
    # GPUs as the expert group has, over the others: replicas·c GPUs of which 4 hold one set.
    model = TOY.replaced(experts=Experts(count=8, per_token=2, ffn=8))
    m = machine(model=model, buffer_bytes_per_parameter=1.5, sharded_buffer_bytes_per_parameter=0.5)
    s = shape(recompute="selective", c=c, e=4)
    w = weights_of(m, s)

    def state(parameters: float, shards: float) -> float:
        parts = (2, 3), (4, 2), (12, 1), (0.5, 1)
        return parameters * (1.5 + sum(size / (shards if zero >= stage else 1) for size, stage in parts))

    expected = state(3 * w.shared + 2 * w.end, replicas * c) + state(3 * w.experts, max(1.0, replicas * c / 4))
    found = memory.gpu_state_bytes(m, s, w, layers=3, ends=2, zero_stage=zero, replicas=replicas)
    assert float(found) == pytest.approx(expected)
    assert w.experts * 4 == pytest.approx(8 * 2 * 8 * 8)  # eight experts


def test_keys_and_values_by_hand() -> None:
    """Two sequences of 4 tokens, 2·2 heads of 4 elements, of 3 bytes, over two TP ranks: 2·4·16/2·3 = 192 bytes."""
    # Over two racks of 8 GPUs, of which each holds 4 of 8 CP ranks, a NIC of 10 B/s at half its rate carries the 48 B
    # of its share: half of the 96 B that two racks exchange, in 2 s of latency and 24/5 s.
    m = machine(precision=machine().precision.replaced(collective_bytes=3))
    s = shape(2, b=2, recompute="selective", c=8)
    assert collectives.context_exchange(m, s, 2.0)[1] == pytest.approx(2 + 192 / 4 / 2 / (10 / 2))
    assert collectives.context_exchange(m, dataclasses.replace(s, context_parallel=4), 2.0)[1] == 0.0
    assert collectives.context_exchange(m, dataclasses.replace(s, context_parallel=1), 2.0) == (0.0, 0.0)


def test_figures_of_a_step() -> None:
    """The model's FLOP, without recompute, over those of all GPUs at their peak in the seconds of a step; the days."""
    # Of the memory a fraction is kept first, then the constant.
    instance, s = load_instance(Path("instances/one-rack.json")), layout((40, 40), recompute="full")
    own = {"hardware__accelerator__hbm_bytes": 80e9, "hardware__accelerator__memory_reserve_bytes": 1e9}
    limited = instance.replaced(**own, limits__memory_reserve_fraction=0.05)
    assert memory.memory_limit_bytes(limited) == pytest.approx(75e9)
    m, free = step_prediction.machine_of(instance), step_prediction.free_conditions()
    found = step_prediction.metrics(instance, free, s, useful_share=0.5)
    flop = found.tokens_per_step * model_flop_per_token(m.model, m.sequence)
    steps = instance.workload.tokens / found.tokens_per_step
    assert found.tokens_per_step == 8 * m.sequence
    assert found.days_to_train == pytest.approx(2 * steps * found.step_seconds / 86_400)
    assert found.mfu == pytest.approx(flop / (s.gpus * m.gpu.peak_flop_per_second["bf16"] * found.step_seconds))


@each(("t", "e"), [(1, 1), (2, 1), (4, 4), (2, 8)])
def test_sites_exchange_every_gradient_of_a_stage_once(t: int, e: int) -> None:
    """However its GPUs divide them: 3 layers of 12·8² weights, 4·8² of attention and 8 experts of 2·8·8, or an end."""
    # Beside them a router of 8·8 weights in each routed layer; an embedding has 16·8, a gradient 4 bytes.
    s = shape(t, recompute="selective", e=e)
    experts = TOY.replaced(experts=Experts(count=8, per_token=2, ffn=8))
    for model, layer in ((TOY, 12 * 64), (experts, 4 * 64 + 8 * 2 * 64 + 64)):
        m = machine(model=model)
        assert layer_parameters(model) == layer
        found = [float(memory.stage_gradient_bytes(m, s, 3, stage=i, pipeline=3)) for i in range(3)]
        assert found == pytest.approx([(3 * layer + 128) * 4, 3 * layer * 4, (3 * layer + 128) * 4])


@each("t", [1, 2])
def test_products_of_latent_attention(t: int) -> None:
    """Down to ranks of 6 and 5, with 3 of position, up to two heads of 4 + 3 and of 4 + 7: 2 FLOP a weight."""
    # A TP rank has its part of the heads and all of what leads down to them. The projection takes heads of 7.
    latent = LatentAttention(q_rank=6, kv_rank=5, head_nope=4, head_rope=3, head_value=7)
    m = machine(model=TOY.replaced(latent_attention=latent))
    s = shape(t, recompute="selective")
    down = 8 * 6 + 8 * (5 + 3)
    heads = 6 * 2 * (4 + 3) + 5 * 2 * (4 + 7) + 2 * 7 * 8
    ffn = 2 * 8 * 32
    found = sum(o.seconds for o in layer_operations(m, s, routed=False).forward if o.kind == "gemm")
    assert found == pytest.approx(2 * 4 * (down + (heads + ffn) / t) / 1e3)
