"""What modules of selective recompute keep and take again, and attention in FP8: by hand, and as properties."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from training_toys import accelerator, layout, machine_of, precision_of, shape

from planner.errors import InputError
from planner.instance.catalogue_entries import catalogue
from planner.instance.instance import instance_sha256
from planner.instance.software import RECOMPUTE_MODULES, RecomputeModule, Software
from planner.instance.workload import Experts, LatentAttention, Model
from planner.physics.training import collectives, layer_time, memory
from planner.physics.training.memory import stored_tensors, weights_of
from planner.physics.training.operations import Machine, layer_operations, narrow_heads
from planner.physics.training.transformer import layer_kinds
from planner.planning.load import load_instance

CLUSTER = Path(__file__).parents[3] / "instances" / "cluster-1k.json"
H, WIDTH, SEQUENCE = 64, 96, 8
DENSE = Model(name="dense", layers=4, hidden=H, heads=4, kv_heads=2, ffn=WIDTH, gated_ffn=True, vocabulary=32)
MIXED = DENSE.replaced(experts=Experts(count=8, per_token=2, ffn=24, shared_ffn=16, dense_layers=1), gated_ffn=True)
LATENT = MIXED.replaced(
    kv_heads=None, latent_attention=LatentAttention(q_rank=12, kv_rank=8, head_nope=10, head_rope=6, head_value=9)
)
MODELS = {"dense": DENSE, "mixed": MIXED, "latent": LATENT}
SHAPE = shape(2, recompute="selective", sp=True, e=4)
NONE = replace(SHAPE, recompute="none")


def machine(model: Model = DENSE, compute: str = "fp16", softmax_width: float = 0.0, **software: Any) -> Machine:
    """Return nodes of 8 GPUs whose every operation takes time."""
    gpu = accelerator(
        {"fp16": 1e6, "fp8": 2e6}, share={"fp16": 0.5, "fp8": 0.75}, operand_traffic=0.2, hbm_bytes_per_second=1e6,
        kernel_seconds=1e-3, softmax_width=softmax_width, scale_up=(1e5, 1e-3), nic=(1e4, 1e-3),
    )  # fmt: skip
    stack = {"launch_seconds": 1e-4, "fp8_recipe": "mxfp8", **software}
    return machine_of(gpu, model, SEQUENCE, precision_of(compute), **stack)


@each("name", MODELS)
@each(("compute", "cast"), [("fp16", False), ("fp8", True), ("fp8", False)])
def test_each_module_more_keeps_no_more_and_takes_no_less(name: str, compute: str, cast: bool) -> None:
    model, sizes = MODELS[name], range(1, len(RECOMPUTE_MODULES) + 1)
    for front in (False, True) if model.experts else (False,):
        found = {}
        for named in (x for count in sizes for x in itertools.combinations(RECOMPUTE_MODULES, count)):
            m = machine(model, compute, recompute_modules=named, keeps_cast_inputs=cast)
            times, kept = layer_time.layer_times(m, SHAPE, front=front), memory.layer_bytes(m, SHAPE, front=front).kept
            found[frozenset(named)] = kept, times.forward_seconds + times.backward_seconds
        for named, (kept, seconds) in found.items():
            for less in (named - {module} for module in named if len(named) > 1):
                assert kept <= found[less][0] * (1 + 1e-12)
                assert seconds >= found[less][1] * (1 - 1e-12)
        every = machine(model, compute, recompute_modules=RECOMPUTE_MODULES, keeps_cast_inputs=cast)
        assert memory.layer_bytes(every, SHAPE).checkpoint < min(kept for kept, _ in found.values())
        for kind in layer_kinds(model):
            times = layer_time.kind_times(every, SHAPE, kind)
            assert 0 < times.parts["recompute"] < times.forward_seconds


@each("name", MODELS)
def test_core_attention_alone_is_as_without_recompute(name: str) -> None:
    """Under flash attention the default repeats nothing, to the last digit, and whole layers stand among plain ones."""
    m = machine(MODELS[name])
    modules = machine(MODELS[name], recompute_modules=("core_attn", "moe_act", "mlp"))
    full, plain, unfused = replace(SHAPE, recompute="full"), NONE, machine(MODELS[name], flash_attention=False)
    for s in (SHAPE, full):
        assert memory.layer_bytes(m, s) == memory.layer_bytes(m, plain)
        assert layer_time.layer_times(m, s) == layer_time.layer_times(m, plain)
    assert memory.layer_bytes(modules, full) == memory.layer_bytes(m, plain)
    assert memory.layer_bytes(modules, SHAPE) != memory.layer_bytes(m, SHAPE)
    assert layer_time.layer_times(unfused, full) == layer_time.layer_times(unfused, SHAPE)


def discarded(model: Model, module: RecomputeModule, **kind: Any) -> dict[str, float]:
    """Elements of a layer per token that a module discards, by the kind of tensor."""
    elements = Counter[str]()
    for tensor in stored_tensors(model, **kind):
        elements[tensor.kind] += tensor.elements * (module in tensor.rerun)
    return {kind: count for kind, count in elements.items() if count}


def test_what_modules_discard_by_hand() -> None:
    """Of a gated FFN of f: its normed input, gate and product, and the activation's output, three in all."""
    # Of two experts of width 24: what each receives and returns, 64 wide, two tensors and one of 24; and of attention
    # in 4 heads, queries and keys of 16 and values of 9.
    assert discarded(DENSE, "mlp") == {"input": H + WIDTH, "other": 2 * WIDTH}
    assert discarded(MIXED, "moe_act", routed=True, imbalance=1.5) == {"input": 1.5 * 2 * 24}
    inputs = 16 + 2 * (24 + H)
    assert discarded(MIXED, "moe", routed=True) == {"input": inputs, "other": 2 * 16 + 2 * (2 * 24 + H)}
    assert discarded(LATENT, "mla_up_proj", routed=True) == {"attention": 4 * (16 + 16 + 9)}
    cases = ((DENSE, False), (MIXED, True), (LATENT, False), (LATENT, True))
    assert [discarded(m, "layernorm", routed=r).get("input", 0) for m, r in cases] == [0, H, H, 2 * H]


@each(("module", "names", "exchanges"), [
    ("mlp", ("norm", "FFN in", "cast for FFN in", "FFN activation", "FFN out", "cast for FFN out"), 1),
    ("moe_act", ("experts activation", "cast for experts out"), 0),
    ("layernorm", ("norm", "cast for shared experts in"), 0),
])  # fmt: skip
def test_what_modules_run_again_by_hand(module: str, names: tuple[str, ...], exchanges: int) -> None:
    m = machine(DENSE if module == "mlp" else MIXED, "fp8", recompute_modules=(module,), launch_seconds=0.0)
    kind = next(k for k in layer_kinds(m.model) if k.routed == (module != "mlp"))
    each = {o.name: o.seconds for o in layer_operations(m, SHAPE, routed=kind.routed).forward}
    wanted = sum(each[name] for name in names)
    wanted += exchanges * collectives.tensor_exchange_seconds(m, SHAPE, kind) / 2
    plain, again = (layer_time.kind_times(m, s, kind) for s in (NONE, SHAPE))
    assert again.backward_seconds - plain.backward_seconds == pytest.approx(wanted)
    assert again.forward_seconds == plain.forward_seconds
    assert again.parts["recompute"] == pytest.approx(wanted)


def test_a_layer_that_runs_again_stands_in_work() -> None:
    """A stage holds what one layer discards once more, of the front's dense layer where that is more."""
    m = machine(MIXED, recompute_modules=("mlp", "moe_act"))
    usual, front = (memory.layer_bytes(m, SHAPE, front=x) for x in (False, True))
    assert 0 < usual.selective < front.selective
    plain = memory.layer_bytes(m, NONE)
    assert plain.kept - usual.kept == pytest.approx(usual.selective)
    for f, layer in enumerate((usual, front)):
        own = {"zero_stage": 1, "recomputed": 0, "front": f}
        each = ((SHAPE, usual), (NONE, plain))
        work, less = (memory.working_bytes(m, s, weights_of(m, s), x, **own) for s, x in each)
        assert float(work) - float(less) == pytest.approx(layer.selective)


def test_layers_beside_whole_ones_keep_all_where_modules_are_named() -> None:
    """A framework has whole layers or modules: a plan of full recompute has the bytes of none and of all layers."""
    m = machine(MIXED, recompute_modules=("moe",))
    degrees = {"tensor_parallel": 2, "data_parallel_by_site": (2,), "micro_batches": 4, "replicas_per_rack": 2}
    strategy = layout((2, 2), zero_stage=0, sequence_parallel=True, **degrees)
    none = memory.memory_by_stage(m, strategy)["activations"]
    some = memory.memory_by_stage(m, replace(strategy, recompute="full", recomputed_layers_per_stage=(0, 2)))
    assert some["activations"][0] == none[0] and some["activations"][1] < none[1]
    selective = memory.memory_by_stage(m, replace(strategy, recompute="selective"))
    assert all(selective["activations"] < none)


@each(("softmax_width", "share"), [(0.0, 1 / 3), (16.0, (1 / 3 + 1) / 2)])
def test_attention_in_fp8(softmax_width: float, share: float) -> None:
    """FP8 reaches 0.75 of 2 TFLOP/s where 16 bits reach half of 1; exponentials of heads of 16 take as long."""
    # Q, K and V are kept in a byte, and cast for it from two.
    off, on = (machine(DENSE, "fp8", softmax_width, fp8_attention=x) for x in (False, True))
    assert narrow_heads(on) / narrow_heads(off) == pytest.approx(share)
    before, after = ({o.name: o.seconds for o in layer_operations(m, SHAPE, routed=False).forward} for m in (off, on))
    assert (after["attention"] - 1e-3) / (before["attention"] - 1e-3) == pytest.approx(share)
    assert set(after) - set(before) == {"cast for attention"}
    assert after["cast for attention"] == pytest.approx(SEQUENCE * (64 + 2 * 32) / 2 * 3 / 1e6)
    kept = [memory.layer_bytes(m, SHAPE).kept for m in (off, on)]
    assert kept[0] - kept[1] == pytest.approx(SEQUENCE * (64 + 2 * 32) / 2)


def test_attention_in_fp8_is_of_products_in_fp8() -> None:
    """Products in 16 bits leave attention as it is, and an instance that asks for both is refused with a remedy."""
    off, on = (machine(DENSE, "fp16", fp8_attention=x) for x in (False, True))
    assert layer_time.layer_times(off, SHAPE) == layer_time.layer_times(on, SHAPE)
    assert memory.layer_bytes(off, SHAPE) == memory.layer_bytes(on, SHAPE)
    data = json.loads(CLUSTER.read_text())
    software = catalogue("software")["megatron-core"]
    delayed = {"fp8_recipe": "delayed", "recompute_modules": ["moe_act"]}
    for precision, switches, fault in (
        ("bf16", {}, r"needs products in fp8 or fp4 \(workload.precision.compute is bf16\)"),
        ("fp8", {"flash_attention": False}, "needs flash_attention"),
        ("fp8", delayed, "Megatron has moe_act under other scales than those of fp8_recipe delayed alone; choose"),
    ):
        own = {"software": software | {"source": "own", "fp8_attention": True, **switches}, "precision": precision}
        with pytest.raises(InputError, match=fault):
            load_instance({**data, "workload": {**data["workload"], **own}}, searched=False)


def test_switches_as_before_leave_an_instance_as_it_was() -> None:
    """A stack that states the defaults has the hash of one that does not; another has its own."""
    instance = load_instance(CLUSTER, searched=False)
    known = catalogue("software")["megatron-core"]
    stated = {}, {"recompute_modules": ["core_attn"], "fp8_attention": False}, {"recompute_modules": ["mlp"]}
    stacks = (Software.model_validate(known | x) for x in stated)
    plain, same, other = (instance_sha256(instance.replaced(workload__software=x)) for x in stacks)
    assert plain == same != other


@each("name", [name for name, model in MODELS.items() if model.experts])
def test_dense_layers_take_as_long_however_experts_are_divided(name: str) -> None:
    """The shape by which front layers are timed once gives the times of each that has it, and their bytes."""
    code = {"overlaps": ("experts",), "expert_overlap": 0.9, "expert_overlap_layouts": "interleaved"}
    m = machine(MODELS[name], **code, overlap_launch_seconds=10.0)
    for overlap, e in itertools.product((False, True), (1, 2, 4, 8)):
        own = replace(SHAPE, expert_parallel=e, experts_overlap=overlap)
        same = replace(own, expert_parallel=min(e, 2))  # whose time a pipeline takes for the other
        assert layer_time.layer_times(m, own, front=True) == layer_time.layer_times(m, same, front=True)


@each("name", list(MODELS))
def test_no_exchange_has_no_launches_of_its_overlap(name: str) -> None:
    """Dense models, and experts on one rank, launch no second micro-batch, whatever the stack may overlap."""
    slow, usual = (machine(MODELS[name], overlaps=("experts",), overlap_launch_seconds=x) for x in (10.0, 0.0))
    alone = replace(SHAPE, expert_parallel=1)
    assert layer_time.layer_times(slow, alone) == layer_time.layer_times(usual, alone)
