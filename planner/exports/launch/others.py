"""A plan's layout for torchtitan (TOML), NeMo's Megatron Bridge (YAML) and DeepSpeed (JSON)."""

import json
from collections.abc import Callable
from typing import Any

from planner.errors import InputError
from planner.exports.launch.megatron import SHARDING, connections, megatron_script, require_startable
from planner.exports.launch.run import Run, equal_recomputed, module_names, pipeline_layout, require
from planner.formats.kubernetes.yaml import dump


def torchtitan_toml(run: Run) -> str:
    """Write the parts of a train config that the layout decides (torchtitan/config/job_config.py).

    Under a pipeline torchtitan cuts the local batch into micro-batches; without one it accumulates gradients.

    Raises
    ------
    InputError
        The layout has what torchtitan cannot be told.
    """
    require(
        run,
        "torchtitan",
        context_parallel=True,
        expert_parallel=True,
        pipeline_parallel=True,
        virtual_stages=True,
        zero_stage=True,
    )
    x, replicas = run.layout, run.data_parallel
    routed = run.model.experts is not None and x.tensor_parallel > 1
    if routed and x.expert_parallel % (x.context_parallel * x.tensor_parallel):
        raise InputError(
            f"layout.expert_parallel: torchtitan keeps experts whole beside TP {x.tensor_parallel} only where TP x CP "
            f"divides it (is {x.expert_parallel}); pin a multiple of {x.context_parallel * x.tensor_parallel}, or TP 1"
        )
    if x.zero_stage == 1:
        raise InputError("layout.zero_stage: torchtitan has replicas, ZeRO-2 and ZeRO-3 (is 1); pin 0, 2 or 3")
    if x.tensor_parallel > 1 and not x.sequence_parallel:
        raise InputError(
            "layout.sequence_parallel: torchtitan has it wherever tensors are parallel (is false); pin true"
        )
    pipelined = x.pipeline_parallel > 1
    local = x.microbatch_sequences * (x.microbatches_per_step if pipelined else 1)
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if x.zero_stage else replicas,
        "data_parallel_shard_degree": replicas if x.zero_stage else 1,
        "fsdp_reshard_after_forward": "never" if x.zero_stage == 2 else "always",
        "tensor_parallel_degree": x.tensor_parallel,
        "context_parallel_degree": x.context_parallel,
        "pipeline_parallel_degree": x.pipeline_parallel,
        "expert_parallel_degree": x.expert_parallel,
    }
    if routed:
        parallelism["expert_tensor_parallel_degree"] = 1  # an expert is whole on its GPU
    if pipelined:
        parallelism["pipeline_parallel_schedule"] = "Interleaved1F1B" if x.virtual_stages > 1 else "1F1B"
        parallelism["pipeline_parallel_microbatch_size"] = x.microbatch_sequences
        parallelism["module_fqns_per_model_part"] = list(module_names(run))
    tables = {
        "training": {"seq_len": run.sequence_length, "local_batch_size": local, "global_batch_size": run.global_batch},
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": x.recompute}
        | ({"selective_ac_option": "op"} if x.recompute == "selective" else {}),
    }
    head = f"# {run.name}: NNODES={run.nodes} NGPU={run.node_gpus}; model, data and optimiser are yours to add.\n"
    head += '# Environment: PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"\n'
    return (
        head
        + "\n".join(
            f"\n[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items())
            for name, table in tables.items()
        )
        + "\n"
    )


def nemo_yaml(run: Run) -> str:
    """Write the overrides of a recipe of NeMo's Megatron Bridge (its ConfigContainer: model, train, ddp, dataset).

    Raises
    ------
    InputError
        The layout has what it cannot be told.
    """
    require(
        run,
        "nemo",
        context_parallel=True,
        expert_parallel=True,
        pipeline_parallel=True,
        virtual_stages=True,
        recomputed_layers_per_stage=True,
        zero_stage=True,
    )
    require_startable(run)
    x = run.layout
    model: dict[str, Any] = {
        "seq_length": run.sequence_length,
        "tensor_model_parallel_size": x.tensor_parallel,
        "pipeline_model_parallel_size": x.pipeline_parallel,
        "virtual_pipeline_model_parallel_size": x.virtual_stages if x.virtual_stages > 1 else None,
        "context_parallel_size": x.context_parallel,
        "expert_model_parallel_size": x.expert_parallel,
        "expert_tensor_parallel_size": 1,  # an expert is whole on its GPU
        "sequence_parallel": x.sequence_parallel,
    }
    if x.pipeline_parallel > 1 and not run.is_even:
        model["pipeline_model_parallel_layout"] = pipeline_layout(run)
        del model["virtual_pipeline_model_parallel_size"]  # the layout says it
    if x.recompute == "selective":
        model["recompute_granularity"] = "selective"
    if x.recompute == "full":
        some = equal_recomputed(run, "nemo")
        model |= {"recompute_granularity": "full", "recompute_method": "uniform" if some is None else "block"}
        model["recompute_num_layers"] = 1 if some is None else some
    ddp: dict[str, Any] = {"use_distributed_optimizer": x.zero_stage > 0, "overlap_grad_reduce": True}
    if x.zero_stage in SHARDING:
        ddp |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": SHARDING[x.zero_stage]}
    data = {
        "model": model,
        "train": {"micro_batch_size": x.microbatch_sequences, "global_batch_size": run.global_batch},
        "ddp": ddp,
        "dataset": {"seq_length": run.sequence_length},
    }
    start = f"torchrun --nnodes {run.nodes} --nproc-per-node {run.node_gpus}"
    return f"# {run.name}: {start}; environment: CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}\n{dump(data)}"


def deepspeed_json(run: Run) -> str:
    """Write a DeepSpeed configuration; stages are cut evenly, as its configuration has no layers by stage.

    Raises
    ------
    InputError
        The layout has what DeepSpeed cannot be told.
    """
    require(run, "deepspeed", pipeline_parallel=True, zero_stage=True)
    x = run.layout
    if x.pipeline_parallel > 1 and x.zero_stage > 1:
        raise InputError(f"layout.zero_stage: DeepSpeed has 0 or 1 under a pipeline (is {x.zero_stage}); pin 1")
    if not run.is_even:
        raise InputError(
            f"layout.layers_per_stage: DeepSpeed cuts stages evenly (are {list(x.layers_per_stage)}); "
            "pin layers_per_stage to even numbers, or choose another framework"
        )
    data: dict[str, Any] = {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": x.microbatch_sequences,
        "gradient_accumulation_steps": x.microbatches_per_step,
        "zero_optimization": {"stage": x.zero_stage, "overlap_comm": True},
        ("fp16" if run.precision.compute == "fp16" else "bf16"): {"enabled": True},
        "tensor_parallel": {"autotp_size": x.tensor_parallel},
        "pipeline": {
            "stages": x.pipeline_parallel,
            "partition": "uniform",
            "activation_checkpoint_interval": 1 if x.recompute == "full" else 0,
        },
    }
    if x.recompute == "selective":
        raise InputError("layout.recompute: DeepSpeed's configuration has none or full (is 'selective'); pin one")
    return json.dumps(data, indent=2) + "\n"


WRITERS: dict[str, Callable[[Run], str]] = {
    "megatron": megatron_script,
    "torchtitan": torchtitan_toml,
    "nemo": nemo_yaml,
    "deepspeed": deepspeed_json,
}
