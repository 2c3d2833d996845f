"""What each flag of Megatron-LM that is not read does to time and memory (cores 0.14 to 0.17: arguments.py, configs).

NeMo's keys are the same names with underscores.
"""

import re
from typing import Any

from planner.instance.read_items import NO_EFFECT

NO_WORDS = "-"  # an effect that its name says
# Flags that change time or memory, or the model, in a way that no figure here follows; by what stands in for them.
STAND_INS: dict[str, str] = {
    "workload.software.tensor_overlap has a fixed share": """tp-comm-overlap tp-comm-overlap-cfg tp-comm-overlap-ag
        tp-comm-overlap-rs tp-comm-overlap-rs-dgrad tp-comm-bulk-wgrad tp-comm-bulk-dgrad tp-comm-split-ag
        tp-comm-split-rs tp-comm-atomic-ag tp-comm-atomic-rs disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad
        disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs
        tp-comm-overlap-disable-qkv tp-comm-overlap-disable-fc1 no-async-tensor-model-parallel-allreduce""",
    "workload.software.expert_overlap has a fixed share": """overlap-moe-expert-parallel-comm delay-wgrad-compute
        moe-shared-expert-overlap overlap-dispatch-backward-with-experts-wgrad ep-overlap-early-attn-memory-release""",
    "workload.software.dispatch_seconds is that of one dispatcher": """moe-token-dispatcher-type moe-enable-deepep
        moe-flex-dispatcher-backend moe-deepep-num-sms moe-hybridep-num-sms moe-flex-dispatcher-num-sms
        moe-use-legacy-grouped-gemm moe-permute-fusion moe-router-fusion""",
    "workload.software.pipeline_overlap has a fixed share": """no-overlap-p2p-communication overlap-p2p-comm
        overlap-p2p-communication-warmup-flush overlap-p2p-comm-warmup-flush use-ring-exchange-p2p batch-p2p-comm
        pipeline-model-parallel-comm-backend no-scatter-gather-tensors-in-pipeline""",
    "workload.software.context_overlap has a fixed share": "cp-comm-type hierarchical-context-parallel-sizes "
    "hybrid-context-parallel max-seqlen-per-dp-cp-rank",
    "workload.software.launch_seconds is without graphs": """enable-cuda-graph external-cuda-graph cuda-graph-impl
        cuda-graph-scope cuda-graph-modules optimizer-cuda-graph""",
    "workload.software.elementwise_traffic is of fused kernels": """no-bias-gelu-fusion no-bias-swiglu-fusion
        no-bias-dropout-fusion no-rope-fusion no-persist-layer-norm no-masked-softmax-fusion
        no-gradient-reduce-div-fusion no-gradient-accumulation-fusion bias-activation-fusion bias-dropout-fusion
        masked-softmax-fusion apply-rope-fusion gradient-accumulation-fusion transformer-impl disable-jit-fuser
        fp32-residual-connection use-fused-weighted-squared-relu use-transformer-engine-op-fuser
        fused-residual-rmsnorm mla-down-proj-fusion""",
    "workload.software.loss_bytes_per_logit is of one kernel": """cross-entropy-loss-fusion cross-entropy-fusion-impl
        fp16-lm-cross-entropy defer-embedding-wgrad-compute wgrad-deferral-limit output-logit-dtype""",
    "workload.precision has the bytes of each role": """use-precision-aware-optimizer main-grads-dtype main-params-dtype
        exp-avg-dtype exp-avg-sq-dtype fp8-param-gather fp8-param fp4-param-gather fp4-param grad-reduce-in-bf16
        accumulate-allreduce-grads-in-fp32 optimizer keep-fp8-transpose-cache reuse-grad-buf-for-mxfp8-param-ag
        megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-grad-comm-dtype
        ddp-reduce-scatter-with-fp32-accumulation gtp-remat-reduce-scatter-with-fp32-accumulation
        ddp-param-name-patterns-for-fp32-local-accumulation""",
    "all products run in one type": """fp8-recipe first-last-layers-bf16 num-layers-at-start-in-bf16 fp4-recipe
        num-layers-at-end-in-bf16 no-fp8-wgrad fp8-wgrad kitchen-config-file kitchen-recipe-number quant-recipe
        fp8-dot-product-attention fp8-multi-head-attention fp8-output-proj te-precision-config-file""",
    "the batch is that of every step": "rampup-batch-size step-batch-size-schedule decrease-batch-size-if-needed",
    "tokens spread evenly over experts": """moe-expert-capacity-factor moe-pad-expert-input-to-capacity
        moe-router-padding-for-fp8 moe-router-topk-limited-devices moe-router-padding-for-quantization
        moe-expert-rank-capacity-factor""",
    "the NIC's own rate": """use-nccl-ub use-sharp sharp-enabled-group nccl-communicator-config-path symmetric-ar-type
        distributed-backend ddp-bucket-size ddp-num-buckets ddp-pad-buckets-for-high-nccl-busbw
        suggested-communication-unit-size no-align-grad-reduce no-align-param-gather high-priority-stream-groups
        num-distributed-optimizer-instances overlap-param-gather-with-optimizer-step fsdp-double-buffer
        enable-full-sharding-in-hsdp outer-dp-sharding-strategy use-tp-pp-dp-mapping create-all-gather-group
        ddp-average-in-collective disable-symmetric-registration fsdp-db-use-persist-buf-on-alloc-fail
        fsdp-manual-registration gtp-expert-remat-nccl-ub gtp-remat-nccl-ub no-use-layer-wise-param-layout
        megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer megatron-fsdp-version""",
    "recomputed whole, or the kernel of attention alone": """moe-layer-recompute distribute-saved-activations
        checkpoint-activations gtp-weight-remat-size expert-gtp-weight-remat-size mhc-recompute-layer-num
        num-microbatches-with-partial-activation-checkpoints mlp-chunks-for-training""",
    "every layer is of one kind but for windows and first dense ones": """is-hybrid-model hybrid-attention-ratio
        hybrid-mlp-ratio hybrid-override-pattern hybrid-layer-pattern heterogeneous-layers-config-path
        heterogeneous-layers-config-encoded-json linear-attention-freq experimental-attention-variant spec
        mtp-num-layers moe-latent-size enable-mhc-connections retro-add-retriever vision-pretraining yaml-cfg
        encoder-num-layers decoder-num-layers window-size window-attn-skip-freq""",
    NO_WORDS: """optimizer-cpu-offload optimizer-offload-fraction overlap-cpu-optimizer-d2h-h2d
        use-torch-optimizer-for-cpu-offload no-pin-cpu-grads no-pin-cpu-params cpu-offloading
        cpu-offloading-num-layers cpu-offloading-activations cpu-offloading-weights
        fine-grained-activation-offloading offload-modules activation-offload-fraction moe-paged-stash
        microbatch-group-size-per-virtual-pipeline-stage microbatch-group-size-per-vp-stage
        account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split use-torch-fsdp2
        torch-fsdp2-no-reshard-after-forward deterministic-mode attention-backend use-legacy-models
        empty-unused-memory-level reset-position-ids reset-attention-mask variable-seq-lengths sft
        train-sync-interval batch-invariant-mode tensor-parallel-num-weight-shards
        expert-tensor-parallel-num-weight-shards add-qkv-bias attention-output-gate apply-query-key-layer-scaling
        attention-softmax-in-fp32""",
}
EFFECTS = {flag: words for words, flags in STAND_INS.items() for flag in flags.split()}
# Names, or their beginnings before a *, of flags without effect on time and memory; what the instance's model or the
# planner's own prediction states already is among them.
WITHOUT = """
    lr* min-lr decoupled-* override-opt* adam-* sgd-* lion-* muon-* *weight-decay* clip-grad seed init-m*
    embedding-init* *-initialization tokenizer* *vocab* merge-file tiktoken-* data-* *-data-path split mock-data
    dataloader-* num-workers num-dataset* eod-mask* no-mmap* no-create-attention-mask* fim-* *log* *tensorboard*
    wandb-* timing-* app-tag* save* load* no-save* no-load* async-save *persistent-* *ckpt* *-checkpoint* finetune
    exit-* eval-* test-mode skip-train train-iters train-samples *validation* profile* *profiler* record-* memory-*
    rerun-* error-injection* inprocess-* enable-ft* calc-ft* ft-* *straggler* inference-* rl-* grpo-* langrl-*
    perform-rl* retro-* bert-* biencoder-* ict-* img-* dino-* swin-* vision-* indexer-* embedding-path mask-*
    query-in* retriever-* short-seq* use-one-sent* iter-per-epoch num-classes num-channels patch-dim classes-fraction
    sample-rate result-* norm-epsilon *layernorm* qk-l2-norm rotary-* rope-* use-rope* use-rotary* no-rope-freq
    mscale* mrope-* *yarn-* *dropout openai-gelu quick-geglu onnx-safe normalization *position-embedding* pad-*
    relative-attention-* beta-* swiglu squared-relu gated-linear-unit activation-func* bf16 fp16 loss-scale*
    initial-loss* min-loss* hysteresis fp8-margin fp8-interval fp8-amax* params-dtype pipeline-dtype autocast*
    *-bias-linear multi-latent-attention group-query-attention untie-embeddings* share-embeddings* use-mcore-models
    use-flash-attn moe-grouped-gemm moe-router-* moe-aux* moe-z* moe-input-jitter* moe-per-layer* moe-apply-probs*
    moe-extended-tp moe-use-upcycling moe-upcycling* moe-layer-freq moe-token-drop-policy overlap-grad-reduce
    overlap-param-gather use-megatron-fsdp mtp-loss* *check-for* check-weight* distributed-timeout* local-rank
    lazy-mpu-init no-data-sharding data-parallel-random* no-barrier* *manual-gc* disable-gloo* *rng-tracker
    enable-experimental calculate-per-token* *strict-fsdp* iterations-to-skip cache-mla* flash-decode *-for-prefill
    decode-only* *chunked-prefill max-tokens-to-oom mid-level* run-workload* replication* adlr-* no-clone* *-msc
    object-storage* mamba-* disable-mamba* cuda-graph-* head-lr* disable-bf16* otel-* flight-recorder* batch-size
    warmup model-parallel-size decoder-seq-length encoder-seq-length per-split* phase-transition* use-legacy-static*
    sft-tokenizer* per-dataset* freeze-* dump-* timers *-func scatter-embedding* parallel-output generation-config
    hf-* bias-init* output-bert* allow-ambiguous* num-speculative* refit-method use-same-sampling* fake-process-group
    tp-comm-bootstrap-backend recompute-* *-pipeline-num-layers use-distributed-* num-layers-per-virtual*
    num-virtual-stages* name rdzv* node-rank max-restarts master-* local-addr nproc-per-node nnodes role tee redirects
    standalone container-* partition account ntasks* cpus-per* gpus* time job-name output error nodes mem mpi
    exclusive export qos constraint comment dependency
"""
_WITHOUT = re.compile("|".join(re.escape(word).replace(r"\*", ".*") for word in WITHOUT.split()))
# Values that are what the planner takes anyway.
AS_TAKEN = {
    "optimizer": ("adam",),
    "transformer-impl": ("transformer_engine",),
    "distributed-backend": ("nccl",),
    "attention-backend": ("auto", "flash", "fused"),
}
CORE_ATTENTION = "core-attn"  # the only module that selective recompute repeats here


def megatron_effect(flag: str, value: Any) -> str | None:
    """Return what a flag does that no figure follows: nothing, words on it, or None where it is not known."""
    name = flag.replace("_", "-")
    if name == "recompute-modules":
        text = value if isinstance(value, str) else " ".join(value or ())
        modules = [m for m in text.replace("_", "-").split() if m != CORE_ATTENTION]
        return f"recomputed here: {CORE_ATTENTION} alone" if modules else NO_EFFECT
    if value in AS_TAKEN.get(name, ()):
        return NO_EFFECT
    if name in EFFECTS:
        return EFFECTS[name]
    return NO_EFFECT if _WITHOUT.fullmatch(name) else None
