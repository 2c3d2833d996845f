"""What mixtures of experts and narrow heads cost beside their FLOP and their traffic, by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
from each_case import each
from training_toys import accelerator, machine_of, precision_of, shape

from planner.instance.workload import Experts, LatentAttention, Model
from planner.physics.training import layer_time
from planner.physics.training.memory import Weights, stored_tensors
from planner.physics.training.operations import Machine, layer_operations, narrow_heads
from planner.physics.training.transformer import LayerKind

ROUTED = LayerKind(layers=4, routed=True, window=None)
LOCAL = 4  # of 16 experts, over 4 GPUs
SHAPE = shape(e=4)
PASSES = "forward_seconds", "backward_seconds", "weight_gradient_seconds"


def machine(
    dtype: str = "fp16", heads: int = 2, softmax_width: float = 0.0, per_token: int = 2, **software: Any
) -> Machine:
    """Return nodes of 8 GPUs and a model of 16 experts, two for a token."""
    experts = Experts(count=4 * LOCAL, per_token=per_token, ffn=8)
    model = Model(name="toy", layers=4, hidden=128, heads=heads, vocabulary=16, experts=experts)
    gpu = accelerator({"fp16": 1e6, "fp8": 2e6}, hbm_bytes_per_second=1e9, softmax_width=softmax_width)
    return machine_of(gpu, model, 4, precision_of(dtype), **software)


def slower(plain: Machine, slow: Machine) -> list[float]:
    """Return how much longer a machine takes forward, backward, of it for weights, in products, and in casts."""
    x, y = (layer_time.kind_times(m, SHAPE, ROUTED) for m in (plain, slow))
    passes = [getattr(y, name) - getattr(x, name) for name in PASSES]
    return [*passes, *(y.parts[part] - x.parts[part] for part in ("gemm", "quantise"))]


@each(("overlap", "shown"), [(0.0, 1.0), (0.75, 0.25)])
def test_a_start_is_never_hidden(overlap: float, shown: float) -> None:
    """Two exchanges a pass: of 2,048 B three quarters go over 100 B/s, some of them hidden, and each starts in 3 s."""
    # 4 tokens, two copies of 128 elements of 2 B.
    found = layer_time.expert_exchange_seconds(machine(all_to_all_seconds=3.0, expert_overlap=overlap), SHAPE)
    assert found == pytest.approx(2 * ((0.75 * 2048 / 100 + 0.5) * shown + 3.0))


@each(("dtype", "casts"), [("fp16", 0), ("fp8", 2)])
def test_each_expert_starts_its_products_and_casts(dtype: str, casts: int) -> None:
    """A GPU's 4 experts each start two products forward and four backward, and a cast for each of two both ways."""
    # The gradients of two weights are among them, which a zero-bubble schedule moves.
    plain, slow = ({"expert_seconds": x, "expert_cast_seconds": x} for x in (0.0, 5.0))
    wanted = [LOCAL * 5 * n for n in (2 + casts, 4 + casts, 2, 6, 2 * casts)]
    assert slower(machine(dtype, **plain), machine(dtype, **slow)) == pytest.approx(wanted)


@each(("heads", "slower"), [(1, 1.0), (2, 1.5), (4, 2.5)])
def test_narrow_heads_wait_for_the_softmax(heads: int, slower: float) -> None:
    """Where a score's softmax takes as long as products 128 wide, heads of 64 take 192 / 64 over 256 / 128 a FLOP."""
    # Latent scores 192 wide and values 128 wide count as 160: (160 + 128) / 160 over 256 / 128.
    m = machine(heads=heads, softmax_width=128.0)
    latent = LatentAttention(q_rank=8, kv_rank=8, head_nope=128, head_rope=64, head_value=128)
    assert narrow_heads(replace(m, model=m.model.replaced(latent_attention=latent))) == pytest.approx(0.9)
    assert narrow_heads(machine(heads=heads, softmax_width=128.0)) == pytest.approx(slower)
    assert narrow_heads(machine(heads=heads)) == 1.0
    each = (layer_time.kind_times(machine(heads=heads, softmax_width=w), SHAPE, ROUTED) for w in (0.0, 128.0))
    plain, slow = (times.parts["attention"] for times in each)
    assert slow == pytest.approx(slower * plain)


@each(("groups", "of_token", "domains", "copies"), [
    (1, 1, 4, 4 * (1 - 0.75**8)), (8, 8, 8, 8 * (1 - 0.875**8)), (8, 4, 8, 4 * (1 - 0.75**8)),
    (8, 4, 4, 4 * (1 - (15 + 40 * 0.75**8 + 15 * 0.5**8) / 70)), (8, 4, 16, 8 * (1 - 0.875**8)), (8, 1, 4, 1.0),
])  # fmt: skip
def test_tokens_reach_the_domains_of_their_groups(groups: int, of_token: int, domains: int, copies: float) -> None:
    """A token's 8 experts are in few groups, which divide the experts, so that it crosses to fewer domains."""
    # In every group as without; of half of the domains each has a quarter of the experts at hand; of a domain none, one
    # or both groups; half a group each.
    experts = Experts(count=256, per_token=8, ffn=8, groups=groups, groups_per_token=of_token)
    assert layer_time.domains_of_token(experts, domains) == pytest.approx(copies)
    for wrong in ((8, 9), (7, 1)):
        with pytest.raises(ValueError, match="groups must divide count .* \\({} of 256 experts, {} for".format(*wrong)):
            Experts(count=256, per_token=8, ffn=8, groups=wrong[0], groups_per_token=wrong[1])


@each(("per_token", "tensor_parallel"), [(1, 1), (2, 1), (4, 2)])
def test_what_a_layer_moves_beside_its_products(per_token: int, tensor_parallel: int) -> None:
    """Elements of 128 and 2 B of 4 tokens, over 1 GB/s: both norms and residual additions, and copies to experts."""
    # Forward a norm reads and writes one each, an addition reads two and writes one; backward the norm reads two and
    # writes one, and its gradient is added to the other's, again two read and one written. A token, of the GPU's part
    # of them, is read and written once; each of its copies is written and read on the way to its expert and back.
    found = layer_operations(machine(per_token=per_token), shape(tensor_parallel, e=4), routed=True)
    one = 4 * 128 * 2 / 1e9
    for passes, whole in ((found.forward, 2 + 3), (found.backward, 3 + 3)):
        seconds = [(o.name, o.seconds) for o in passes]
        assert sum(x for name, x in seconds if name in ("norm", "residual")) == pytest.approx(2 * whole * one)
        copied = [x for name, x in seconds if name == "dispatch and combine"]
        assert copied == pytest.approx([one / tensor_parallel * (1 + 1 + 2 * 2 * per_token)])


@each(("hidden", "ffn", "fused"), [(256, 512, True), (256, 320, False), (320, 256, False)])
def test_fused_experts_cast_what_comes_in(hidden: int, ffn: int, fused: bool) -> None:
    m = machine("fp8", fused_experts=True, quantise_traffic=1.0, expert_seconds=1.0, expert_cast_seconds=1.0)
    experts = Experts(count=4 * LOCAL, per_token=2, ffn=ffn, clamped=True)
    m = replace(m, model=m.model.replaced(hidden=hidden, experts=experts))
    passes = layer_operations(m, SHAPE, routed=True)
    for listed in (passes.forward, passes.backward):
        casts = [o.seconds for o in listed if o.name.startswith("cast for experts")]
        elements = 4 * 2 * (hidden + (0 if fused else ffn))
        assert math.fsum(casts) == pytest.approx(elements * 4 / 1e9 + (0 if fused else 2 * LOCAL))
    one_kernel = [] if fused else [pytest.approx(4 * 2 * ffn * 2 * 2 / 1e9)]
    assert [o.seconds for o in passes.forward if o.name == "experts activation"] == one_kernel


@each("efficiency", [1.0, 0.5, 0.25])
def test_grouped_products_run_at_their_own_efficiency(efficiency: float) -> None:
    # At a half of the efficiency each takes twice its time, at a quarter four times.
    more = (1 / efficiency - 1) * 2 * 2 * 128 * 8 * LOCAL / 1e6
    found = slower(machine(), machine(expert_efficiency=efficiency))
    assert found == pytest.approx([2 * more, 4 * more, 2 * more, 6 * more, 0])


@each(("t", "e", "near", "far"), [(1, 2, 4, 3), (2, 2, 4, 3), (2, 4, 2, 3), (4, 8, 1, 3)])
def test_experts_are_reduced_over_all_gpus_that_hold_them(t: int, e: int, near: int, far: int) -> None:
    """On three full racks of 8 every e-th GPU holds the same experts, whatever the TP: 8 / e of a rack."""
    # Rings of them inside the rack at 0.5 s and 100 B/s, then each its share between racks at 2 s and 10 B/s.
    s = replace(SHAPE, tensor_parallel=t, expert_parallel=e)
    experts = Weights(shared=0.0, experts=1000.0, end=0.0, front=0.0)
    size = 4 * 1000.0
    inside, between = 8 // t - 1, 2  # of the shared weights, none here: the waits alone
    expected = inside * 0.5 + between * 2
    expected += (near - 1) * 0.5 + (near - 1) / near * size / 100 + (far - 1) * 2 + (far - 1) / far * size / near / 10
    group = layer_time.ReplicaGroup(8 // t, 3)
    assert layer_time.replica_exchange(machine(), s, experts, group)(4) == pytest.approx(expected)


def test_the_busiest_rank_sets_the_time_of_experts() -> None:
    """Twice the mean's tokens on one rank takes as long as twice the experts of a token."""
    even, uneven = machine(), replace(machine(), expert_imbalance=2.0)
    twice = replace(even, model=even.model.replaced(experts=Experts(count=16, per_token=4, ffn=8)))
    assert layer_time.expert_exchange_seconds(uneven, SHAPE) == layer_time.expert_exchange_seconds(twice, SHAPE)
    passes = (layer_operations(m, SHAPE, routed=True).forward for m in (uneven, twice))
    found, wanted = ([o for o in forward if o.name.startswith("experts")] for forward in passes)
    assert found == wanted
    assert stored_tensors(uneven.model, routed=True, imbalance=2.0) == stored_tensors(twice.model, routed=True)


@each("c", [1, 2, 4])
def test_results_over_context_ranks_are_summed(c: int) -> None:
    """Each of c kernels has its output, or its gradients of Q, K and V, read, and a sum in FP32 read and written."""
    m = machine(elementwise_traffic=1.0)
    s = replace(SHAPE, expert_parallel=1, context_parallel=c)
    passes = layer_operations(m, s, routed=False)
    merges = [o.seconds for o in (*passes.forward, *passes.backward) if o.name == "merge of CP ranks"]
    tokens, width = 4 / c, 128
    wanted = [3 * c * tokens * width * 4 / 1e9, 3 * c * tokens * 3 * width * 4 / 1e9] if c > 1 else []
    assert merges == pytest.approx(wanted)
