"""Measured training runs as cases that the planner can predict: one reader a published table's columns.

A row states a model, a layout and a step time. What it leaves out is filled by a rule that is the same for all rows of
a framework (below), never by a figure of the row's own.
"""

import csv
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bridge_recipes import BRIDGE_2025, Stack, bridge_stack, titan_stack
from recent_rows import CUSTOM_REMAT, NATURAL, is_mixture, recent_stack
from recent_rows import MODELS as RECENT_MODELS
from row_problems import case_of

from planner.calibration.fit import MeasuredRun, precision
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator, Rack
from planner.instance.software import Software
from planner.instance.workload import Model, Precision
from planner.physics.training import memory, step_prediction
from planner.physics.training.collectives import limits_expert_overlap
from planner.physics.training.operations import Machine, Recompute
from planner.physics.training.parallel_strategy import ParallelStrategy, even_layers, packing
from planner.physics.training.step_prediction import Conditions

FOLDS = 5  # of rows by the hash of their ids, each left out of a fit in turn
ACCELERATORS = {
    "H100-SXM": "H100",
    "H100-96GB-HBM2e-500W": "H100-96GB-500W",
    "H800-SXM": "H800",
    "TPUv4": "TPU-v4",
    "TPU v4": "TPU-v4",
    "TPUv5p": "TPU-v5p",
    "TPU v5p": "TPU-v5p",
    "v5p": "TPU-v5p",
    "TPU v6e": "TPU-v6e",
    "Trillium": "TPU-v6e",
}
RACKS = {
    "GB200": "GB200-NVL72",
    "GB300": "GB300-NVL72",
    "TPU-v4": "TPU-v4-pod",
    "TPU-v5p": "TPU-v5p-pod",
    "TPU-v6e": "TPU-v6e-pod",
}
"""Scale-up domains of the catalogue's accelerators that are not nodes of 8."""
MODELS = {
    "DeepSeekV3": "deepseek-v3",
    "Kimi_K2": "kimi-k2",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "GPT OSS 120B": "gpt-oss-120b",
    "DeepSeek-V2": "deepseek-v2",
    "DeepSeek-V3": "deepseek-v3",
    "PaLM 540B": "palm-540b",
    "Nemotron-8B": "nemotron-3-8b",
    "Nemotron-22B": "nemotron-3-22b",
}
"""Models whose architecture the table does not give in full, in the catalogue."""
FRAMEWORKS = (
    ("Korthikanti", "megatron-lm-2022"),
    ("BigScience", "megatron-deepspeed"),
    ("MosaicML", "llm-foundry-fsdp"),
    ("torchtitan", "torchtitan"),
    ("NeMo 24", "nemo-2024"),
    ("Megatron-Core r0.8", "megatron-core-2024"),
    ("NVIDIA Megatron-Bridge", "megatron-bridge"),
    ("DeepSeek", "hai-llm"),
    ("MaxText", "maxtext"),
    ("PaLM", "maxtext"),
    ("Chowdhery", "maxtext"),
)
"""What a table's source runs on, by the start of its name."""
GIB = 2**30
LATENT = {"q_rank": 1536, "kv_rank": 512, "head_nope": 128, "head_rope": 64, "head_value": 128}
ONE_NODE_MODELS: dict[str, dict[str, Any]] = {
    "llama3-70b": {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocabulary": 128256},
    "llama3-405b": {"hidden": 16384, "heads": 128, "kv_heads": 16, "ffn": 53248, "vocabulary": 128256},
    "llama3-8b": {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 128256},
    "deepseekv2": {"hidden": 5120, "heads": 128, "ffn": 12288, "vocabulary": 102400, "latent_attention": LATENT}
    | {"experts": {"count": 160, "per_token": 6, "ffn": 1536, "shared_ffn": 3072, "dense_layers": 1}},
    "deepseekv3": {"hidden": 7168, "heads": 128, "ffn": 18432, "vocabulary": 129280, "latent_attention": LATENT}
    | {"experts": {"count": 256, "per_token": 8, "ffn": 2048, "shared_ffn": 2048, "dense_layers": 1}},
}
"""Models of the steps with memory by rank, as their launch scripts have them (SimuMax v1.2, simu_tools/
megatron_scripts: 16 KV heads for Llama 3 405B, one dense layer for both DeepSeek models)."""
SPLITTING = ("megatron-core", "megatron-bridge", "nemo", "torchtitan", "maxtext", "hai-llm")
"""Frameworks that divide sequences over TP ranks where a row does not say."""
SHORT_GRADIENTS = ("megatron-lm-2021", "megatron-bridge", BRIDGE_2025, "nemo-2024")
"""Frameworks that keep and reduce gradients in 16 bits: Megatron-LM of 2021 in FP16, Megatron-Bridge, whose performance
recipes all set grad_reduce_in_fp32 to false (scripts/performance of its releases), and NeMo, whose recipes do too
(grad_sync_dtype=bf16 in NeMo-Framework-Launcher, examples/training, up to 24.07; performance_mode of NeMo 2)."""
SMALL_MODULES = ("mla_up_proj", "mlp", "layernorm", "moe_act")
"""What recipes of Megatron-Bridge run again of a layer beside an overlapped exchange of experts, the first alone first
(scripts/performance/configs, DeepSeek-V3)."""
HEADS = {"BigScience": 64}
"""Heads where rows of a source do not state them; of others as many as are 128 wide. The chronicles' NHEADS where they
do: line 617, without, ran at the rate of line 712 with 64, and not of line 727 with 112."""
NETWORKS = {"BigScience": 6.25e9, "vTrain": 12.5e9}
"""NIC bytes/s of one GPU where the source states another rate: 4 x 100 Gb/s for a node of 8 GPUs; 4 x 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(MeasuredRun):
    """A measured run of a published table: where it is from, what is like it, and its memory."""

    id: str
    group: str
    line: int = 0  # of no user's table
    fits: bool | None
    nodes: int
    like: tuple[Any, ...]
    source: str = ""
    stage_bytes: tuple[float, ...] = ()
    """Measured bytes on the fullest GPU of each stage, where the table has them."""
    logged_bytes: float | None = None
    """What one rank logged as its most bytes, where the table has it; of which stage it does not say."""
    recent: bool = False
    natural: bool = False
    """Tokens chose their experts; elsewhere routing is forced to be even."""

    def predict(self) -> float:
        """Predict the seconds of a step."""
        return math.fsum(
            step_prediction.step_breakdown(
                self.machine, Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0), self.strategy
            ).values()
        )

    def memory(self) -> float:
        """Predict the bytes on the GPU that holds most."""
        return math.fsum(memory.worst_memory(self.machine, self.strategy).values())

    def stages_memory(self) -> list[float]:
        """Predict the bytes on a GPU of every stage."""
        parts = memory.memory_by_stage(self.machine, self.strategy)
        return np.sum(list(parts.values()), axis=0).tolist()  # type: ignore[no-any-return]

    @property
    def room(self) -> float:
        """Bytes of HBM that the run could fill: nothing is kept free but the accelerator's constant."""
        return self.machine.gpu.hbm_bytes - self.machine.gpu.memory_reserve_bytes


def hash_of(name: str) -> int:
    """Return a fixed hash of a row's id."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def read(path: Path) -> tuple[list[Case], list[str]]:
    """Read a table of measured runs; returns the cases and why other rows were left out."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cases, left = [], []
    for row in rows:
        found = case_of(_reader(row), row, path.stem)
        if isinstance(found, str):
            left.append(f"{row.get('id', 'row')}: {found}")
        else:
            cases.append(found)
    return cases, left


def _reader(row: dict[str, str]) -> Callable[[dict[str, str]], "Case | str"]:
    """Return the reader of a row's columns."""
    if "gpu_type" in row:
        return _recent if "release" in row else _published
    return _one_node if "max_allocated_gib_by_rank" in row else _vtrain


def _number(text: str | None, absent: int) -> int:
    return int(float(text)) if text else absent


def _vtrain(row: dict[str, str]) -> Case:
    """Read a row of vTrain's validation tables: Megatron-LM of 2021 in FP16 on 80-GB A100s.

    On several nodes every layer is recomputed.
    """
    sizes = ("# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length")
    degrees = ("tensor parallelism", "data parallelism", "pipeline parallelism")
    gpus, batch, b, h, heads, layers, s, t, d, p = (_number(row[k], 1) for k in (*sizes, *degrees))
    several = "Parameters (billion)" in row
    model = Model(name="GPT", layers=layers, hidden=h, heads=heads, vocabulary=51200)
    machine = Machine(
        gpu=_gpu("A100-80GB", NETWORKS["vTrain"] if several else None),
        rack=_rack("A100-80GB"),
        software=_software("megatron-lm-2021"),
        model=model,
        precision=precision("fp16", gradient_bytes=2.0),
        sequence=s,
    )
    stages, replicas = packing(8, t, 1, p, d, gpus)
    strategy = ParallelStrategy(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel_by_site=(d,),
        virtual_stages=1,
        micro_batch=b,
        micro_batches=max(1, batch // (d * b)),
        recompute="full" if several else "none",
        sequence_parallel=False,
        zero_stage=0,
        layers_per_stage=even_layers(layers, p),
        replicas_per_rack=replicas,
        stages_per_rack=stages,
    )
    name = "vtrain-" + "-".join(str(row[k]) for k in row)
    group = "vTrain multi-node" if several else "vTrain single-node"
    like = (group, layers, h, gpus, batch, s)
    return Case(
        id=name,
        group=group,
        machine=machine,
        strategy=strategy,
        seconds=float(row["iteration time (ms)"]) / 1e3,
        fits=True,
        nodes=-(-gpus // 8),
        like=like,
    )


def _one_node(row: dict[str, str]) -> Case:
    """Read a row of the steps that SimuMax measured on one node of 8 B200, with the memory of every rank.

    Megatron-LM in BF16 with the distributed optimizer, sequence parallelism and a fused loss, nothing recomputed.
    """
    layers, gpus, t, p, c, e, d, s, b, n = (
        int(row[k]) for k in ("layers", "gpus", "TP", "PP", "CP", "EP", "DP", "seq", "micro_batch", "micro_batches")
    )
    model = _cut(ONE_NODE_MODELS[row["model"]], layers)
    machine = Machine(
        gpu=_gpu("B200", None),
        rack=_rack("B200"),
        software=_software("megatron-core"),
        model=model,
        precision=precision("bf16", gradient_bytes=4.0),
        sequence=s,
    )
    stages, replicas = packing(8, t, c, p, d, gpus)
    strategy = ParallelStrategy(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel_by_site=(d,),
        virtual_stages=1,
        micro_batch=b,
        micro_batches=n,
        recompute="none",
        sequence_parallel=t > 1,
        zero_stage=1,
        layers_per_stage=even_layers(layers, p),
        context_parallel=c,
        expert_parallel=e,
        replicas_per_rack=replicas,
        stages_per_rack=stages,
    )
    group = f"B200 16-bit {'MoE' if model.experts else 'dense'} one node, memory by rank"
    ranks = [float(x) * GIB for x in row["max_allocated_gib_by_rank"].split()]
    each = gpus // p
    return Case(
        id=row["id"],
        group=group,
        machine=machine,
        strategy=strategy,
        seconds=float(row["step_ms"]) / 1e3,
        fits=True,
        nodes=1,
        like=(group, row["model"], layers, s, n * b * d),
        stage_bytes=tuple(max(ranks[i * each : (i + 1) * each]) for i in range(p)),
    )


def _cut(model: dict[str, Any], layers: int) -> Model:
    """Return a model with so many layers; the first is dense where it has experts."""
    rest = {"name": "cut", "layers": layers, "gated_ffn": True, "tied_embeddings": False}
    return Model.model_validate(model | rest)


def _published(row: dict[str, str]) -> Case | str:
    """Read a row of the table of published throughput, or say why it cannot be a case."""
    software = next((name for start, name in FRAMEWORKS if row["source"].startswith(start)), None)
    if software is None:
        return f"source {row['source']!r} names no framework that the catalogue knows"
    model = _model(row)
    if isinstance(model, str):
        return model
    if row["id"].startswith("kort22-layer"):
        return "times one layer, not a step"
    oom = row["oom"] == "1"
    seconds = float(row["step_s"] or row["derived_step_s"] or 0)
    if not row["TP"] or not row["DP"]:
        return "states no layout"
    if not seconds and not oom:
        return "states neither a step time nor a failure for memory"
    stacks = {"megatron-bridge": lambda: bridge_stack(row, model.name), "torchtitan": lambda: titan_stack(row)}
    stack = stacks.get(software, lambda: Stack(software))()
    return complete(row, model, stack, 0.0 if oom else seconds, fits=not oom)


def _recent(row: dict[str, str]) -> Case | str:
    """Read a row of the table of recent steps: it names a model of the catalogue, and a release in place of a table."""
    model = Model.model_validate(catalogue("models")[RECENT_MODELS[row["model"]]])
    full = row | {"table": row["release"], "moe": str(int(is_mixture(row))), "fsdp": ""}
    if row["notes"].startswith(CUSTOM_REMAT):
        full["recompute"] = "full"
    case = complete(full, model, recent_stack(row), float(row["step_s"]), fits=True)
    if isinstance(case, str):
        return case
    logged, natural = float(row["memory_gb"]) * GIB if row["memory_gb"] else None, NATURAL in row["notes"]
    group = f"{case.group}, {NATURAL}" if natural else case.group
    return replace(case, group=group, logged_bytes=logged, recent=True, natural=natural)


def complete(row: dict[str, str], model: Model, stack: Stack, seconds: float, *, fits: bool) -> Case | str:
    """Make the case of a row; unstated choices follow the framework's practice."""
    software = stack.name
    gpu_name = ACCELERATORS.get(row["gpu_type"], row["gpu_type"])
    network = next((rate for start, rate in NETWORKS.items() if row["source"].startswith(start)), None)
    stated = row["precision"].lower()
    dtype = "fp4" if "fp4" in stated else "fp8" if "fp8" in stated else "bf16" if "bf16" in stated else "fp16"
    gpus, t, p, d, c = (_number(row[k], 1) for k in ("gpus", "TP", "PP", "DP", "CP"))
    b, v, batch = (
        _number(row["micro_batch"], 0),
        max(1, _number(row["interleave_vp"], 1)),
        _number(row["global_batch"], 1),
    )
    zero = _zero(row, software, p)
    if software == "torchtitan" and p > 1:
        b = max(
            1, b // p
        )  # the table states the local batch, which the pipeline cuts into as many micro-batches as stages
    experts = _number(row["EP"], 1) if model.experts else 1
    own = _software(software).replaced(**stack.switches)
    if software == "megatron-deepspeed" and dtype == "bf16":  # the passes' own gradients stay beside the FP32 sums
        own = own.replaced(buffer_bytes_per_parameter=own.buffer_bytes_per_parameter + 2)
    machine = Machine(
        gpu=_gpu(gpu_name, network),
        rack=_rack(gpu_name),
        software=own,
        model=model,
        precision=_precision_of(software, dtype, stated, row["source"]),
        sequence=_number(row["seq"], 1),
    )
    by_recipe = "selective" if "recompute_modules" in stack.switches else "none"
    recompute: Recompute = row["recompute"] if row["recompute"] in ("full", "selective") else by_recipe  # type: ignore[assignment]
    stages, replicas = packing(machine.rack.gpus, t, c, p, d, gpus)
    splits = row["seq_parallel"] == "1" or (row["seq_parallel"] == "" and software.startswith(SPLITTING))
    base = ParallelStrategy(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel_by_site=(d,),
        virtual_stages=v if p > 1 else 1,
        micro_batch=b or 1,
        micro_batches=max(1, batch // (d * (b or 1))),
        recompute=recompute,
        sequence_parallel=t > 1 and splits,
        zero_stage=zero,
        layers_per_stage=stage_layers(model, p, v),
        context_parallel=c,
        expert_parallel=min(experts, t * c * d),
        replicas_per_rack=replicas,
        stages_per_rack=stages,
    )
    nodes = -(-gpus // 8)
    group = _group(row, model, nodes, dtype)
    like = (group, row["model"], gpus, row["gpu_type"], stated, batch, machine.sequence, software, row["table"][:8])
    case = Case(
        id=row["id"], group=group, machine=machine, strategy=base, seconds=seconds, fits=fits, nodes=nodes, like=like
    )
    return _with_unstated(case, row, batch) if fits else case


def stage_layers(model: Model, stages: int, virtual: int) -> tuple[int, ...]:
    """Return the layers of every stage.

    DeepSeek-V3 and Kimi K2 have four in each of 16 chunks but the last, which has one and the head, several as one
    where there are fewer (Megatron-Bridge, get_deepseek_v3_pipeline_layout).
    """
    if stages > 1 and model.name in ("deepseek-v3", "kimi-k2") and 16 % (stages * virtual) == 0:
        return (*[64 // stages] * (stages - 1), 64 // stages - 3)
    return even_layers(model.layers, stages)


def _with_unstated(case: Case, row: dict[str, str], batch: int) -> Case:
    """Choose what a row leaves out as its authors would: the fastest micro-batch and interleaving that fit.

    Layers are recomputed only as far as memory asks for it.
    """
    strategy = case.strategy
    sizes = (
        [strategy.micro_batch]
        if row["micro_batch"]
        else [b for b in (1, 2, 4) if b == 1 or batch % (strategy.data_parallel * b) == 0]
    )
    p, layers = strategy.pipeline_parallel, case.machine.model.layers
    depths = [strategy.virtual_stages]
    if p > 1 and not row["interleave_vp"] and row["source"].startswith("Megatron-Core"):
        depths = [v for v in range(1, layers // p + 1) if layers % (p * v) == 0] or depths
    tries = []
    for b in sizes:
        for v in depths:
            m = max(1, batch // (strategy.data_parallel * b))
            tries.append(
                _recomputed(
                    replace(case, strategy=replace(strategy, micro_batch=b, virtual_stages=v, micro_batches=m)), row
                )
            )
    fitting = [x for x in tries if x.memory() <= x.room] or [_sharded(x, row) for x in tries]
    return min(fitting, key=lambda x: x.predict())


def _sharded(case: Case, row: dict[str, str]) -> Case:
    """Shard the weights too of a run that ran and fits in no other way, where the row states no ZeRO stage."""
    if row["zero"] or 3 not in case.machine.software.zero_stages or case.strategy.pipeline_parallel > 1:
        return case
    plain = replace(case.strategy, recompute="none", recomputed_layers_per_stage=(), zero_stage=3)
    return _recomputed(replace(case, strategy=plain), row)


def _recomputed(case: Case, row: dict[str, str]) -> Case:
    """Recompute the fewest layers a stage that let the run fit, where the row does not say what is recomputed."""
    if row["recompute"] or case.memory() <= case.room:
        return case
    if limits_expert_overlap(case.machine, case.strategy.shape):  # its exchange overlaps, so that no layer runs again
        for n in range(1, len(SMALL_MODULES) + 1):
            software = case.machine.software.replaced(recompute_modules=SMALL_MODULES[:n])
            machine = replace(case.machine, software=software)
            some = replace(case, machine=machine, strategy=replace(case.strategy, recompute="selective"))
            if some.memory() <= some.room:
                return some
    for r in range(1, max(case.strategy.layers_per_stage) + 1):
        again = tuple(min(r, n) for n in case.strategy.layers_per_stage)
        more = replace(case, strategy=replace(case.strategy, recompute="full", recomputed_layers_per_stage=again))
        if more.memory() <= more.room:
            return more
    return case


def _zero(row: dict[str, str], software: str, p: int) -> int:
    """Return the ZeRO stage: as stated; FSDP is stage 3 (2 under a pipeline); Megatron-Core shards its optimiser.

    So does HAI-LLM; MaxText's fsdp axis is stage 3 under a pipeline too.
    """
    if software == "llm-foundry-fsdp" or _number(row["fsdp"], 0) > 1:
        return 3 if p == 1 else 2
    if software == "torchtitan":
        return 3 if p == 1 else 2
    if software == "maxtext":
        return _number(row["zero"], 3)
    sharded = ("megatron-core", "megatron-bridge", "nemo", "hai-llm")
    return _number(row["zero"], 1 if software.startswith(sharded) else 0)


def _group(row: dict[str, str], model: Model, nodes: int, dtype: str) -> str:
    kind = "MoE" if model.experts else "dense"
    family = row["gpu_type"][:4].rstrip("-") if row["gpu_type"][0] in "AH" else row["gpu_type"]
    width = dtype.upper() if dtype in ("fp4", "fp8") else "16-bit"
    return f"{family} {width} {kind} {'multi-node' if nodes > 1 else 'one node'}"


def _model(row: dict[str, str]) -> Model | str:
    name = row["model"].split(" (")[0]
    if name in MODELS:
        known = catalogue("models").get(MODELS[name])
        return Model.model_validate(known) if known else f"model {name!r} is not in the catalogue"
    if not row["layers"] or not row["hidden"]:
        return "states no architecture"
    if row["moe"] == "1":
        return f"states no architecture of the experts of {row['model']!r}"
    hidden = _number(row["hidden"], 1)
    usual = next((n for start, n in HEADS.items() if row["source"].startswith(start)), hidden // 128)
    heads = _number(row["heads"], 0) or usual
    llama = row["model"].lower().startswith("llama")
    return Model(
        name=row["model"],
        layers=_number(row["layers"], 1),
        hidden=hidden,
        heads=heads,
        kv_heads=_number(row["kv_heads"], heads),
        ffn=_number(row["ffn"], 4 * hidden),
        gated_ffn=llama,
        vocabulary=_number(row["vocab"], 51200),
        tied_embeddings=not llama,
    )


def _precision_of(software: str, dtype: str, stated: str, source: str) -> Precision:
    """Return the bytes by role that a framework uses with a type; FSDP's depend on its mixed precision."""
    if software in ("llm-foundry-fsdp", "torchtitan"):
        wide = "amp" in stated or software == "torchtitan"
        gradient = 4.0 if "amp" in stated else 2.0
        return precision(
            dtype, gradient_bytes=gradient, master_bytes=2.0 if wide else 0.0, optimizer_bytes=8.0 if wide else 4.0
        )
    short = software in SHORT_GRADIENTS or (software == "megatron-deepspeed" and dtype == "fp16")
    if source.startswith("Megatron-LM"):  # main_grads_dtype: fp32; those in FP8 have both moments in 16 bits
        return precision(dtype, gradient_bytes=4.0, optimizer_bytes=4.0 if dtype == "fp8" else 8.0)
    return precision(dtype, gradient_bytes=2.0 if short else 4.0)


def _gpu(name: str, network: float | None) -> Accelerator:
    gpu = Accelerator.model_validate(catalogue("accelerators")[name])
    return gpu if network is None else gpu.replaced(nic_bytes_per_second=network)


def _rack(gpu: str) -> Rack:
    """Return the scale-up domain: a rack of 72 where the GPU comes in one, else a node of 8."""
    if gpu in RACKS:
        return Rack.model_validate(catalogue("racks")[RACKS[gpu]])
    return Rack(name="node", gpus=8, it_kw=10.0, price_usd=0.0)


def _software(name: str) -> Software:
    return Software.model_validate(catalogue("software")[name])


def groups(cases: list[Case]) -> Iterator[tuple[str, list[Case]]]:
    """Yield the cases of each group, in order of their names."""
    for name in sorted({c.group for c in cases}):
        yield name, [c for c in cases if c.group == name]
