"""A plan's layout as a shell script for Megatron-LM (flags of core 0.14: megatron/training/arguments.py)."""

from collections.abc import Iterator

from planner.errors import InputError
from planner.exports.launch.run import Run, equal_recomputed, pipeline_layout, require

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # by ZeRO stage
Flag = tuple[str, object]  # the name without its dashes, and the value; True: no value


def megatron_script(run: Run) -> str:
    """Write the environment, the flags by group, and the command that starts them.

    Raises
    ------
    InputError
        The layout has what Megatron-LM cannot be told.
    """
    require(
        run,
        "megatron",
        context_parallel=True,
        expert_parallel=True,
        pipeline_parallel=True,
        virtual_stages=True,
        recomputed_layers_per_stage=True,
        zero_stage=True,
    )
    require_startable(run)
    groups = {"MODEL_ARGS": _model(run), "PARALLEL_ARGS": _parallel(run), "TRAINING_ARGS": _training(run)}
    arrays = "\n\n".join(
        f"{name}=(\n" + "".join(f"    {_text(f)}\n" for f in flags) + ")" for name, flags in groups.items()
    )
    use = " ".join(f'"${{{name}[@]}}"' for name in groups)
    return f"""\
#!/bin/bash
# {run.name}: {run.gpus:,} GPUs on {run.nodes:,} nodes. Data, optimiser and checkpoints are yours to add.
export CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}
NNODES={run.nodes}
GPUS_PER_NODE={run.node_gpus}

{arrays}

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \\
    pretrain_gpt.py {use} "$@"
"""


def require_startable(run: Run) -> None:
    """Refuse what Megatron Core stops at in its first step (moe_layer.py, schedules.py of core 0.14).

    Raises
    ------
    InputError
        Names the choice, its value and the pin that mends it.
    """
    x = run.layout
    if run.model.experts is not None and x.tensor_parallel > 1 and not x.sequence_parallel:
        raise InputError(
            "layout.sequence_parallel: Megatron Core asks for it where experts stand beside tensor parallelism "
            "(is false); plan with --pin layout.sequence_parallel=true"
        )
    if x.virtual_stages > 1 and x.microbatches_per_step < x.pipeline_parallel:
        raise InputError(
            f"layout.virtual_stages: Megatron Core asks for {x.pipeline_parallel} micro-batches or more under "
            f"interleaving (are {x.microbatches_per_step}); plan with --pin layout.virtual_stages=1"
        )


def connections(run: Run) -> int:
    """Return CUDA's work queues: one, as tensor and context parallelism require; more, as Megatron FSDP does."""
    return 32 if run.layout.zero_stage in SHARDING else 1


def _text(flag: Flag) -> str:
    name, value = flag
    return (
        f"--{name}"
        if value is True
        else f"--{name} '{value}'"
        if set(str(value)) & set("()|*[] ")
        else f"--{name} {value}"
    )


def _model(run: Run) -> Iterator[Flag]:
    """Yield the flags of the model."""
    m = run.model
    yield "num-layers", m.layers
    yield "hidden-size", m.hidden
    yield "num-attention-heads", m.heads
    yield "ffn-hidden-size", m.ffn_width
    yield "seq-length", run.sequence_length
    yield "max-position-embeddings", run.sequence_length
    yield "vocab-size", m.vocabulary
    yield "position-embedding-type", "rope"
    yield "normalization", "RMSNorm"
    yield "disable-bias-linear", True
    if m.gated_ffn:
        yield "swiglu", True
    if not m.tied_embeddings:
        yield "untie-embeddings-and-output-weights", True
    latent = m.latent_attention
    if latent is not None:
        yield "multi-latent-attention", True
        if latent.q_rank is not None:
            yield "q-lora-rank", latent.q_rank
        yield "kv-lora-rank", latent.kv_rank
        yield "qk-head-dim", latent.head_nope
        yield "qk-pos-emb-head-dim", latent.head_rope
        yield "v-head-dim", latent.head_value
    else:
        yield "kv-channels", m.head
        if m.kv != m.heads:
            yield "group-query-attention", True
            yield "num-query-groups", m.kv
    if m.experts is not None:
        e = m.experts
        yield "num-experts", e.count
        yield "moe-router-topk", e.per_token
        yield "moe-ffn-hidden-size", e.ffn
        yield "moe-grouped-gemm", True
        if e.shared_ffn:
            yield "moe-shared-expert-intermediate-size", e.shared_ffn
        if e.dense_layers:
            yield "moe-layer-freq", f"([0]*{e.dense_layers}+[1]*{m.layers - e.dense_layers})"


def _parallel(run: Run) -> Iterator[Flag]:
    """Yield the flags of the layout, pipeline layout included."""
    x = run.layout
    yield "tensor-model-parallel-size", x.tensor_parallel
    yield "pipeline-model-parallel-size", x.pipeline_parallel
    yield "context-parallel-size", x.context_parallel
    if run.model.experts is not None:
        yield "expert-model-parallel-size", x.expert_parallel
        yield "expert-tensor-parallel-size", 1  # an expert is whole on its GPU
    if x.sequence_parallel:
        yield "sequence-parallel", True
    if x.pipeline_parallel > 1 and not run.is_even:
        yield "pipeline-model-parallel-layout", pipeline_layout(run)
    elif x.virtual_stages > 1:
        yield "num-layers-per-virtual-pipeline-stage", run.chunks[0]
    if x.zero_stage in SHARDING:
        yield "use-megatron-fsdp", True
        yield "data-parallel-sharding-strategy", SHARDING[x.zero_stage]
        yield "ckpt-format", "fsdp_dtensor"  # the only one that Megatron FSDP takes
    if x.zero_stage:
        yield "use-distributed-optimizer", True
        yield "overlap-param-gather", True
    yield "overlap-grad-reduce", True


def _training(run: Run) -> Iterator[Flag]:
    """Yield the flags of the batch, recompute and precision."""
    x, p = run.layout, run.precision
    yield "micro-batch-size", x.microbatch_sequences
    yield "global-batch-size", run.global_batch
    if x.recompute == "selective":
        yield "recompute-activations", True
    if x.recompute == "full":
        some = equal_recomputed(run, "megatron")
        yield "recompute-granularity", "full"
        yield "recompute-method", "uniform" if some is None else "block"
        yield "recompute-num-layers", 1 if some is None else some
    yield ("fp16" if p.compute == "fp16" else "bf16"), True
    if p.compute == "fp8":
        yield "fp8-format", "hybrid"
    if p.gradient_bytes <= 2 and p.compute != "fp16":
        yield "grad-reduce-in-bf16", True
