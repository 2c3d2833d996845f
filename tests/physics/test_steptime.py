"""Time of one training step: each part by hand on a toy, and what must hold for every layout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.instance import Accelerator, MatrixEfficiency, Model, Precision, Rack
from planner.physics import memory, steptime
from planner.physics.steptime import Machine, Shape

# s = 4 tokens of h = 8: layer weights 12·64 = 768, their FLOP 2·768·4 = 6,144,
# causal attention 2·16·8 = 256, logits 2·4·8·16 = 1,024, s·h·2 B = 64 B.
TOY = Model(name="toy", layers=4, hidden=8, heads=2, vocabulary=16)
PRECISION = Precision(
    compute="fp16", parameter_bytes=2, working_parameter_bytes=2, gradient_bytes=4, optimizer_bytes=12, activation_bytes=2, collective_bytes=2
)
MATRIX, ATTENTION, TENSOR = 6.4, 0.256, 64.0


def gpu(*, most: float = 1.0, half: float = 0.0, hbm: float = 1e9) -> Accelerator:
    """Return a GPU of 1 kFLOP/s with 100 B/s of scale-up at 0.5 s and 10 B/s of NIC at 2 s."""
    return Accelerator(
        name="toy",
        hbm_bytes=1e12,
        hbm_bytes_per_second=hbm,
        peak_flop_per_second={"fp16": 1e3},
        matrix_efficiency=MatrixEfficiency(most=most, half_flop=half),
        scale_up_bytes_per_second=100.0,
        scale_up_latency_seconds=0.5,
        nic_bytes_per_second=10.0,
        nic_latency_seconds=2.0,
    )


def machine(card: Accelerator | None = None, model: Model = TOY) -> Machine:
    """Return a machine of toy GPUs."""
    return Machine(gpu=card or gpu(), rack=Rack(name="r", gpus=8, it_kw=1, price_usd=0), model=model, precision=PRECISION, sequence=4)


def shape(t: int = 1, b: int = 1, recompute: memory.Recompute = "selective", sp: bool = False) -> Shape:
    """Return a shape."""
    return Shape(tensor_parallel=t, micro_batch=b, recompute=recompute, sequence_parallel=sp)


SHAPES = st.builds(shape, st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.sampled_from(memory.RECOMPUTE_MODES), st.booleans())


def test_matrix_product_of_half_size() -> None:
    """A product of `half_flop` runs at half of `most`: 1,000 FLOP at 1e3 · 0.8 · 0.5 take 2.5 s; without a half size at 0.8 1.25 s."""
    assert steptime.matrix_seconds(gpu(most=0.8, half=1e3), PRECISION, 1e3) == pytest.approx(2.5)
    assert steptime.matrix_seconds(gpu(most=0.8), PRECISION, 1e3) == pytest.approx(1.25)


@pytest.mark.parametrize(("moved", "seconds"), [(999.0, 1.0), (1000.0, 1.0), (2000.0, 2.0)])
def test_matrix_product_on_both_sides_of_the_roofline(moved: float, seconds: float) -> None:
    """1,000 FLOP take 1 s until the bytes take longer."""
    assert steptime.matrix_seconds(gpu(hbm=1e3), PRECISION, 1e3, moved) == pytest.approx(seconds)


@given(st.floats(1, 1e6), st.floats(0, 1e6))
def test_smaller_products_never_run_faster_per_flop(flop: float, half: float) -> None:
    """Halving a product takes at least half of its time, and never more than all of it."""
    whole, part = (steptime.matrix_seconds(gpu(half=half), PRECISION, f) for f in (flop, flop / 2))
    assert whole / 2 * (1 - 1e-12) <= part <= whole * (1 + 1e-12)


@pytest.mark.parametrize("t", [1, 2])
def test_layer_matrices(t: int) -> None:
    """The layer's 6,144 FLOP and the causal attention's 256 at 1e3 FLOP/s, over t ranks."""
    assert steptime.attention_seconds(machine(), shape(t)) == pytest.approx(ATTENTION / t)
    assert steptime.layer_matrix_seconds(machine(), shape(t)) == pytest.approx((6.144 + ATTENTION) / t)


def test_each_matrix_has_its_own_efficiency() -> None:
    """With half_flop = 1,024 the products of 1,536, 512, 2,048, 2,048 and 256 FLOP take 1,024 more each."""
    assert steptime.layer_matrix_seconds(machine(gpu(half=1024.0)), shape()) == pytest.approx((6400 + 5 * 1024) / 1e3)


def test_gate_widens_the_first_ffn_product() -> None:
    """A gated FFN reads two matrices in: 8·32·2·4 = 2,048 FLOP more."""
    gated = TOY.model_copy(update={"gated_ffn": True})
    assert steptime.layer_matrix_seconds(machine(model=gated), shape()) == pytest.approx(MATRIX + 2.048)


@pytest.mark.parametrize(
    ("t", "recompute", "sp", "moved"),
    [
        (1, "selective", False, 4 * 2 * (80 + 64)),
        (2, "selective", False, 4 * 2 * (80 + 32)),
        (2, "selective", True, 4 * 2 * (40 + 32)),
        (2, "full", True, 4 * 2 * (40 + 32)),
        (1, "none", False, 4 * 2 * (80 + 64) + 4 * 2 * 2 * 16),
        (2, "none", True, 4 * 2 * (40 + 32) + 4 * 2 * 16),
    ],
)
def test_vector_bytes(t: int, recompute: memory.Recompute, sp: bool, moved: float) -> None:
    """10·h elements a token, the FFN's 2·f, and without a flash kernel four passes over a·s² scores."""
    assert steptime.layer_vector_seconds(machine(gpu(hbm=1.0)), shape(t, recompute=recompute, sp=sp)) == pytest.approx(moved)


def test_tensor_exchange_moves_the_whole_tensor() -> None:
    """64 B over 2 ranks at 100 B/s and 0.5 s take 1.64 s, over 4 ranks 3.96 s, on one nothing; SP changes nothing."""
    assert steptime.tensor_exchange_seconds(machine(), shape(1)) == 0
    assert steptime.tensor_exchange_seconds(machine(), shape(2)) == pytest.approx(1.64)
    assert steptime.tensor_exchange_seconds(machine(), shape(4)) == pytest.approx(6 * 0.5 + 1.5 * 0.64)
    assert steptime.tensor_exchange_seconds(machine(), shape(2, sp=True)) == pytest.approx(1.64)


@pytest.mark.parametrize(("recompute", "again"), [("none", 0.0), ("selective", ATTENTION / 2), ("full", MATRIX / 2 + 2 * 1.64)])
def test_layer_times(recompute: memory.Recompute, again: float) -> None:
    """Forward is the work and two exchanges; backward twice the work, two exchanges, and what is run again."""
    times = steptime.layer_times(machine(gpu(hbm=1e15)), shape(2, recompute=recompute))
    assert times.forward == pytest.approx(MATRIX / 2 + 2 * 1.64)
    assert times.backward == pytest.approx(MATRIX + 2 * 1.64 + again)
    assert times.tensor_parallel == pytest.approx(4 * 1.64)
    assert times.recompute == pytest.approx(again, abs=1e-9)


@given(SHAPES)
def test_layer_parts_sum_to_the_layer(s: Shape) -> None:
    """The parts are non-negative and sum to forward and backward; the backward is the longer."""
    times = steptime.layer_times(machine(gpu(half=100.0, hbm=1e3)), s)
    parts = (times.matrix, times.vector, times.recompute, times.tensor_parallel)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(times.forward + times.backward)
    assert times.backward >= times.forward


@given(SHAPES)
def test_more_tensor_parallelism_shortens_the_matrices_at_falling_efficiency(s: Shape) -> None:
    """Twice the ranks never take longer over the products, and never less than half the time."""
    m = machine(gpu(half=100.0, hbm=1e3))
    twice = shape(2 * s.tensor_parallel, s.micro_batch, s.recompute, s.sequence_parallel)
    before, after = steptime.layer_matrix_seconds(m, s), steptime.layer_matrix_seconds(m, twice)
    assert before / 2 * (1 - 1e-12) <= after <= before


@pytest.mark.parametrize("t", [1, 2])
def test_head(t: int) -> None:
    """The logits' 1,024 FLOP, three times, over t ranks."""
    assert steptime.head_seconds(machine(), shape(t)) == pytest.approx(3.072 / t)


def test_hop_over_the_nics() -> None:
    """Each of t ranks sends its part of 64 B at 10 B/s."""
    assert steptime.hop_nic_seconds(machine(), shape(1)) == pytest.approx(6.4)
    assert steptime.hop_nic_seconds(machine(), shape(2, b=3)) == pytest.approx(9.6)


def test_hop() -> None:
    """A hop is the NIC's 2 s, 64 B over the ranks at 10 B/s slowed by 1.5, and the gather of 64 B between the ranks."""
    assert steptime.hop_seconds(machine(), shape(1), 1.5) == pytest.approx(2 + 9.6)
    assert steptime.hop_seconds(machine(), shape(2), 1.5) == pytest.approx(2 + 4.8 + 0.5 + 0.32)


def test_hop_under_sequence_parallelism_needs_no_gather() -> None:
    """Under sequence parallelism the next stage starts from its shards: the gather is the one its first exchange already counts."""
    assert steptime.hop_seconds(machine(), shape(2, sp=True), 1.5) == pytest.approx(2 + 4.8)


@given(st.integers(1, 128), st.integers(1, 8), st.integers(1, 512), st.floats(0.01, 100))
def test_fill_is_the_bubble_of_the_ideal_step(p: int, v: int, m: int, stage: float) -> None:
    """Without hops the fill is (p-1)/(v·m) of the ideal step of m·stage seconds (Narayanan 2021)."""
    assert steptime.fill_seconds(p, stage / v, 0.0) / (m * stage) == pytest.approx((p - 1) / (v * m))


def test_fill_counts_both_exchanges_of_each_stage() -> None:
    """Five stages fill in four chunks of 3 s and eight hops of 0.5 s; one stage has nothing to fill."""
    assert steptime.fill_seconds(5, 3.0, 0.5) == pytest.approx(16.0)
    assert steptime.fill_seconds(1, 3.0, 0.5) == 0


@pytest.mark.parametrize(("hop", "exposed"), [(0.5, 0.0), (1.0, 0.0), (1.5, 6 * 0.5), (3.0, 6 * (2.0 + 1.0))])
def test_hops_are_exposed_beyond_their_chunk(hop: float, exposed: float) -> None:
    """Of 3 micro-batches in 2 chunks each hop exposes what exceeds 1 s forward and 2 s backward."""
    assert steptime.exposed_hops_seconds(3, 2, hop, 1.0, 2.0) == pytest.approx(exposed)


def test_gradients_inside_the_rack() -> None:
    """768 weights at 4 B over 2 TP ranks are 1,536 B: between 4 replicas 3·0.5 + 0.75·15.36 s, alone nothing."""
    assert steptime.hierarchical_seconds(machine(), 768, 4, 2, 4, 1, 2.0) == pytest.approx(1.5 + 11.52)
    assert steptime.hierarchical_seconds(machine(), 768, 4, 2, 1, 1, 2.0) == 0


def test_gradients_between_racks() -> None:
    """Each of 4 replicas rings its 384 B over 3 racks at 10 B/s and 2 s: 4·2 + 4/3·38.4 s; in one rack nothing."""
    assert steptime.ring_seconds(machine(), 768, 2, 4, 3) == pytest.approx(8 + 51.2)
    assert steptime.ring_seconds(machine(), 768, 2, 4, 1) == 0


@pytest.mark.parametrize(("backward", "end", "exposed"), [(1e6, 0, 1.0), (0.0, 0, 5.0), (1e6, 768, 2.0)])
def test_gradient_tail(backward: float, end: int, exposed: float) -> None:
    """Of five layers' exchanges one remains or all, and the embedding's comes on top; the slowdown is the fabric's alone."""
    one = (3 + 23.04) + 2.0 * (8 + 51.2)
    tail = steptime.data_parallel_tail_seconds(machine(), 2, 4, 3, 2.0, zero_stage=0, layers=5, layer_backward=backward, end_parameters=end)
    # An exchange of no weights still waits for its latencies.
    still = 0.0 if end else 3 + 2.0 * 8
    assert tail == pytest.approx(exposed * one + still)


REDUCE = 1.5 + 0.75 * 15.36 + 2.0 * (4 + 2 / 3 * 38.4)  # 768 weights at 4 B over 2 TP ranks: 4 replicas a rack, 3 racks at twice the time
GATHER = 1.5 + 0.75 * 7.68 + 2.0 * (4 + 2 / 3 * 19.2)  # the same at 2 B


def test_shards_between_racks() -> None:
    """1,536 B are reduced between 4 in the rack, then 384 B of each GPU between 3 racks at twice the time."""
    assert steptime.hierarchical_seconds(machine(), 768, 4, 2, 4, 3, 2.0) == pytest.approx(REDUCE)
    assert steptime.hierarchical_seconds(machine(), 768, 2, 2, 4, 3, 2.0) == pytest.approx(GATHER)


@pytest.mark.parametrize(("zero", "forward", "backward"), [(0, 0, 0), (1, 0, 0), (2, 0, REDUCE), (3, GATHER, GATHER + REDUCE)])
def test_sharding_traffic_by_zero_stage(zero: int, forward: float, backward: float) -> None:
    """Stages 0 and 1 send nothing with a micro-batch, 2 the reduction, 3 the gather in both passes too."""
    assert steptime.sharding_traffic_seconds(machine(), 2, zero, 4, 3, 2.0) == pytest.approx((forward, backward))


@pytest.mark.parametrize(("zero", "exposed"), [(0, 5 * 2 * REDUCE), (1, 5 * (REDUCE + GATHER)), (2, REDUCE + 5 * GATHER), (3, REDUCE)])
def test_tail_by_zero_stage(zero: int, exposed: float) -> None:
    """With nothing to hide behind, gradients come back (0), weights do (1, 2), or nothing does (3); 2 and 3 owe one layer's sums."""
    tail = steptime.data_parallel_tail_seconds(machine(), 2, 4, 3, 2.0, zero_stage=zero, layers=5, layer_backward=0.0, end_parameters=0)
    still = (1.5 + 2.0 * 4) * (2 if zero < 3 else 1)  # an exchange of no weights still waits for its latencies
    assert tail == pytest.approx(exposed + still)


@pytest.mark.parametrize(("backward", "exposed"), [(0.9, 0.5), (0.5, 0.5), (0.1, 0.9)])
def test_exchange_between_sites(backward: float, exposed: float) -> None:
    """1 GB at 8 Gbps is 1 s: half of it, or what one other layer does not hide, and the wait of a 40 ms round trip."""
    assert steptime.wan_tail_seconds(1e9, 8.0, 40.0, 1.0, 2, backward) == pytest.approx(exposed + 0.04)
    assert steptime.wan_tail_seconds(1e9, 8.0, 40.0, 0.0, 2, backward) == pytest.approx(exposed)


def test_optimizer_reads_and_writes_its_state() -> None:
    """1 GB of state at 1 GB/s takes 2 s."""
    assert steptime.optimizer_seconds(gpu(), 1e9) == pytest.approx(2.0)


@pytest.mark.parametrize(("layers", "v", "chunk"), [(6, 2, 3), (7, 2, 4), (1, 1, 1), (8, 3, 3)])
def test_layers_per_chunk(layers: int, v: int, chunk: int) -> None:
    """The largest of v chunks has the rounded-up share."""
    assert steptime.layers_per_chunk(layers, v) == chunk


@pytest.mark.parametrize(("replicas", "per_rack", "racks"), [(7, 7, 1), (8, 7, 2), (721, 7, 103), (1, 9, 1)])
def test_group_racks(replicas: int, per_rack: int, racks: int) -> None:
    """721 replicas at 7 a rack are 103 racks, one more than full takes another."""
    assert steptime.group_racks(replicas, per_rack) == racks


def test_days_to_train() -> None:
    """1,000 steps of 86.4 s are a day, at half the time available two."""
    assert steptime.days_to_train(1e9, 1e6, 86.4, 1.0) == pytest.approx(1.0)
    assert steptime.days_to_train(1e9, 1e6, 86.4, 0.5) == pytest.approx(2.0)


def test_model_flop_utilisation() -> None:
    """1e15 FLOP on two GPUs of 1e14 FLOP/s in 10 s is a half."""
    assert steptime.model_flop_utilisation(1e15, 2, 1e14, 10.0) == pytest.approx(0.5)
