"""Plans in recipes of one's own: what they decide is changed where it stands; layouts solved for a framework."""

import difflib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import placed_on
from commands import invoke
from each_case import each
from launch_layouts import layout_of, plan_for, question
from stored_plans import stored
from tiers import more, slow

import planner
from planner.errors import InputError
from planner.exports.launch import FORMS, STACKS, LaunchRun, launch_file, nearest_choices, run_of
from planner.exports.runnable_layout import runnable_layout
from planner.imports.huggingface import read_config
from planner.imports.recipes import differences, layout_of_run, run_of_text, written_like
from planner.instance.instance import Instance, Limits
from planner.physics.training.parallel_strategy import layout_values, strategy_of

ARRAYS = """\
#!/bin/bash
# Arrays of flags, as of a dense model on many nodes
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=16   # one rack has 4
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 80\x20
    --hidden-size 8192
    --num-attention-heads 64
    --seq-length 8192
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128  # sequences
    --lr 1.5e-4
    --bf16
)
PARALLEL_ARGS=(
\t--tensor-model-parallel-size 8
\t--pipeline-model-parallel-size 4
\t--sequence-parallel
\t--use-distributed-optimizer
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${PARALLEL_ARGS[@]}
"""
VARIABLES = """\
#!/bin/bash
NUM_NODES=2
GPUS_PER_NODE=8
TP_SIZE=2
CP_SIZE=1
MICRO_BATCH_SIZE=1
GLOBAL_BATCH_SIZE=64
DTYPE="fp8"
ARGS="
    --num-layers 32 --hidden-size 4096 --num-query-groups 8 --seq-length 8192
    --micro-batch-size $MICRO_BATCH_SIZE --global-batch-size $GLOBAL_BATCH_SIZE
"
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-param-gather"
    )
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py $ARGS ${DTYPE_ARGS[@]} \\
    --tensor-model-parallel-size ${TP_SIZE} \\
    --context-parallel-size $CP_SIZE \\
    --use-distributed-optimizer \\
    --sequence-parallel
"""
# The same script of a mixture of experts.
EXPERTS = ARRAYS.replace("NUM_NODES=16 ", 'NUM_NODES=${SLURM_NNODES:-"16"} ').replace(
    "--num-layers 80", "--num-layers 32"
)
EXPERTS = re.sub(r"(?s)--hidden-size.*--seq-length 8192\n", "--num-experts 8\n#    --moe-grouped-gemm\n", EXPERTS)
EXPERTS = EXPERTS.replace("--bf16", "# --bf16").replace("batch-size 128", "batch-size 256")
EXPERTS = EXPERTS.replace("\t--tensor-model-parallel-size 8", "    --tensor-model-parallel-size 1")
EXPERTS = EXPERTS.replace("--sequence-parallel", "--expert-model-parallel-size 8")
TABLES = """\
# for 128 GPUs
[job]
description = "a [dense] model"

[model]
flavor = "70B"
converters = []

[training]
local_batch_size = 2
seq_len = 8192
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # inside the node
pipeline_parallel_degree = 1

[activation_checkpoint]
mode = 'full' # ['none', 'selective', 'full']

[compile]
enable=true
"""
OVERRIDES = """\
# Merged on top of the recipe.
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  # the model's own
  seq_length: 4096
  sequence_parallel: true
  expert_model_parallel_size: 4
  expert_tensor_parallel_size: 1

train:
  train_iters: 100000
  global_batch_size: 256
  micro_batch_size: 2

ddp:
  grad_reduce_in_fp32: true  # stable
"""
SLURM = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive

set -euo pipefail
TP="${TP:-2}"
SEQ_LENGTH=${SEQ_LENGTH:-4096}
GLOBAL_BATCH_SIZE=${GLOBAL_BATCH_SIZE:-128}
NUM_NODES=${SLURM_JOB_NUM_NODES:-8}
echo "Nodes: ${NUM_NODES}, model.tensor_model_parallel_size=${TP}"
if [ -z "${CONTAINER_IMAGE}" ]; then
    echo "ERROR: don't start without CONTAINER_IMAGE"
    exit 1
fi
CLI_OVERRIDES="\\
    model.seq_length=${SEQ_LENGTH} \\
    model.tensor_model_parallel_size=$TP \\
    model.pipeline_model_parallel_size=1 \\
    model.expert_model_parallel_size=8 \\
    model.expert_tensor_parallel_size=1 \\
    model.sequence_parallel=True \\
    train.micro_batch_size=1 \\
    train.global_batch_size=${GLOBAL_BATCH_SIZE} \\
    logger.log_interval=1"
CMD="uv run python scripts/training/run_recipe.py --recipe moe_pretrain_config $CLI_OVERRIDES"
srun --mpi=pmix --nodes=${NUM_NODES} bash -c "$CMD"
"""
ON_NODES = """\
#!/bin/bash
#SBATCH --job-name=titan
#SBATCH --ntasks=4
#SBATCH --nodes=4
#SBATCH --gpus-per-task=8

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
CONFIG=${CONFIG:-"llama3_70b"}
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d -m torchtitan.train --config ${CONFIG} \\
    --training.seq_len 8192 --training.local_batch_size 2 --parallelism.data_parallel_shard_degree=-1 \\
    --parallelism.tensor_parallel_degree=8 --activation_checkpoint.mode full "$@"
"""
DEEPSPEED = """\
{
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 16,
\t"bf16": {"enabled": true},
    "zero_optimization": {"stage": 1, "overlap_comm": true},
    "tensor_parallel": {"autotp_size": 8}, "pipeline": {"stages": 4}
}
"""
DENSE = layout_of(4, 8, 8, sequence_parallel=True, zero_stage=1)
ROUTED = layout_of(2, 4, 16, sequence_parallel=True, expert_parallel=8, microbatches_per_step=8)

FULL = {"recompute": "full"}
TWICE = {"virtual_stages": 2, "microbatches_per_step": 16}
UNEVEN = {"zero_stage": 2, "layers_per_stage": [9, *[10] * 6, 11]}
SHARDED = layout_of(4, 1, 64, sequence_parallel=True, zero_stage=3, microbatches_per_step=2)
STAGED = layout_of(8, 8, 4, zero_stage=1, microbatch_sequences=2, microbatches_per_step=4)
# By file its text, the model, sequence length, precision, and another layout than the file's.
RECIPE: dict[str, tuple[str, str, int, str, dict[str, Any]]] = {
    "arrays.sh": (ARRAYS, "llama3-70b", 8192, "bf16", DENSE | TWICE | {"recompute": "selective"}),
    "variables.sh": (VARIABLES, "llama-3.1-8b", 8192, "fp8", layout_of(1, 2, 16, context_parallel=2) | FULL),
    "experts.sh": (EXPERTS, "mixtral-8x7b", 4096, "bf16", ROUTED | {"layers_per_stage": [7, 8, 8, 9]}),
    "titan.toml": (TABLES, "llama3-70b", 8192, "bf16", DENSE | UNEVEN | {"microbatches_per_step": 8}),
    "overrides.yaml": (
        OVERRIDES, "qwen3-30b-a3b", 4096, "bf16", ROUTED | {"zero_stage": 1, "virtual_stages": 3} | FULL,
    ),
    "slurm.sh": (
        SLURM, "qwen3-30b-a3b", 4096, "bf16", ROUTED | layout_of(4, 1, 16, zero_stage=3) | {"recompute": "selective"},
    ),
    "slurm_layers.sh": (SLURM, "qwen3-30b-a3b", 4096, "bf16", ROUTED | {"layers_per_stage": [11, 12, 12, 13]}),
    "titan.slurm": (ON_NODES, "llama3-70b", 8192, "bf16", SHARDED | {"recompute": "selective"}),
    "deepspeed.json": (DEEPSPEED, "llama3-70b", 8192, "bf16", STAGED | FULL),
}  # fmt: skip


def asked(name: str, layout: dict[str, Any] | None = None, **choices: Any) -> tuple[str, LaunchRun, Instance]:
    """Return the text of a recipe, the run of another layout and its instance."""
    text, model, length, precision, own = RECIPE[name]
    instance = question(model, sequence_length=length, precision=precision)
    return text, run_of(plan_for(instance, (layout or own) | choices), "plan"), instance


@each(("name", "gpus", "replicas", "microbatches"), [
    ("arrays.sh", 128, 4, 32), ("variables.sh", 16, 8, 8), ("experts.sh", 128, 32, 8), ("titan.toml", None, 16, 1),
    ("overrides.yaml", None, 128, 1), ("slurm.sh", 32, 16, 8), ("slurm_layers.sh", 32, 16, 8),
    ("titan.slurm", 32, 4, 1), ("deepspeed.json", None, 16, 16),
])  # fmt: skip
def test_its_own_plan_changes_nothing(name: str, gpus: int | None, replicas: int, microbatches: int) -> None:
    """Nodes times GPUs of a node, of variables, torchrun or #SBATCH lines, give replicas and micro-batches."""
    text, model, length, precision, _ = RECIPE[name]
    racks = 16 if "toml" in name else None
    instance = question(model, sequence_length=length, precision=precision, racks=racks)
    run = run_of_text(text, Path(name))
    pins = layout_of_run(run, instance, name)
    found = (run.gpus, pins["layout.data_parallel"], pins["layout.microbatches_per_step"])
    assert found == (gpus, replicas, microbatches)
    plan = plan_for(instance, {key.removeprefix("layout."): value for key, value in pins.items()})
    assert written_like(text, Path(name), run_of(plan, "plan"), instance)[0] == text


@each(("line", "gpus"), [
    ("#SBATCH -N 4\n#SBATCH --gres=gpu:h100:8\nsrun python", 32),
    ("#SBATCH --nodes 4\n#SBATCH --ntasks-per-node=8\nsrun python", 32),
    ("#SBATCH --nodes 4\n#SBATCH --gpus-per-task=1\n#SBATCH --ntasks-per-node=8\nsrun python", 32),
    ("#SBATCH --nodes=4 # all\ntorchrun --nnodes=$SLURM_NNODES --nproc_per_node=8", 32),
    ("srun -N4 torchrun --nnodes ${SLURM_JOB_NUM_NODES:-${NODES:-2}} --nproc-per-node 8", 16),
    ("srun --nodes=2 --ntasks-per-node=4 python", 8),
    ("#SBATCH --nodes=2-4\n#SBATCH --ntasks-per-node=8\nsrun python", None),
    ("python scripts/performance/run_script.py -ng 64 -gn 8", 64),
])  # fmt: skip
def test_gpus_of_a_script(line: str, gpus: int | None) -> None:
    assert run_of_text(f"{line} pretrain.py --micro-batch-size 1 # -N 9\n", Path("own.sh")).gpus == gpus


MAY_CHANGE = """parallel batch recompute optimizer strategy virtual TP CP NODES nodes BATCH mode zero accumulation NUM
    ntasks nnodes CONNECTIONS stages"""


def changed_lines(before: str, after: str) -> list[str]:
    return [x[2:] for x in difflib.ndiff(before.splitlines(), after.splitlines()) if x.startswith("- ")]


@each("name", RECIPE)
def test_another_plan_is_read_back(name: str, tmp_path: Path) -> None:
    text, run, instance = asked(name)
    new, told = written_like(text, tmp_path / name, run, instance)
    back = run_of_text(new, tmp_path / name)
    assert differences(back, run) == {}
    for key, value in RECIPE[name][4].items():
        assert back.layout.get(key, value) == value, key
    assert back.gpus in (None, run.gpus)
    assert written_like(new, tmp_path / name, run, instance)[0] == new
    assert all(str(tmp_path / name) in line for line in told)
    for number, old in re.findall(r": line (\d+): .*: (\S+) becomes ", "\n".join(told)):  # as in the user's own file
        assert old in text.splitlines()[int(number) - 1]
    for line in changed_lines(text, new):
        assert any(word in line for word in MAY_CHANGE.split()), line


@each(("name", "text"), [
    ("own.json", '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1}'),
    ("own.json", '{\n  "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}\n}\n'),
    ("own.yaml", "train: {global_batch_size: 8, micro_batch_size: 1}"),
    ("own.yaml", "# torchrun --nnodes 2 --nproc-per-node 4\nmodel:\n  tensor_model_parallel_size:\n  x: {a: 1}\n"),
    ("own.toml", "training.local_batch_size = 1\ntraining.seq_len = 8192\n[parallelism]\n"),
    ("own.toml", "training.local_batch_size = 3\r\ntraining.seq_len = 8192\r\n[parallelism]\r\n"),
    ("own.toml", "[training]\r\nseq_len = 8192\r\nlocal_batch_size = 1 # one"),
    ("own.sh", "run_script.py -ng 8 -gn 8 -tp 2 model.pipeline_model_parallel_size=1"),
    ("own.sh", "srun --nodes=1 --ntasks-per-node=8 train --micro-batch-size=1 --global-batch-size=8"),
    ("own.sh", "X='--micro-batch-size 1 --global-batch-size=8'\r\nrun $X"),
])  # fmt: skip
def test_short_files(name: str, text: str, tmp_path: Path) -> None:
    layout = layout_of(4, 2, 4, sequence_parallel=True, zero_stage=0, microbatches_per_step=4) | FULL
    instance = question("llama3-70b", precision="bf16")
    run = run_of(plan_for(instance, layout), "plan")
    new, _ = written_like(text, tmp_path / name, run, instance)
    assert differences(run_of_text(new, tmp_path / name), run) == {}
    assert ("\n" in new.replace("\r\n", "")) == ("\r" not in text and "\n" in new)


def test_what_changes_where(tmp_path: Path) -> None:
    """Variables change where they are assigned. A flag that the plan has not goes with its line, or with one blank.

    A command's last line stays empty.
    """
    text, run, instance = asked("variables.sh")
    new, told = written_like(text, tmp_path / "own.sh", run, instance)
    assert {"NUM_NODES=2", "TP_SIZE=2", "CP_SIZE=1"} <= set(changed_lines(text, new))
    assert "--tensor-model-parallel-size ${TP_SIZE} \\\n" in new
    assert '"--fp8-format hybrid"' in new and "\n    --pipeline-model-parallel-size 2 \\\n" in new
    where = f"{tmp_path / 'own.sh'}: line"
    assert f"{where} 4: --tensor-model-parallel-size: 2 becomes 1" in told
    assert any("--pipeline-model-parallel-size: added beside --tensor-model-parallel-size" in line for line in told)
    text, run, instance = asked("variables.sh", layout_of(2, 1, 8, zero_stage=0))
    flag = "--use-distributed-optimizer"
    for others in ("", f"{flag} --lr 3e-4 --bf16", f"--lr 3e-4 {flag} --bf16"):
        own = text.replace(f"    {flag} \\\n", f"    {others or flag} \\\n")
        new, _ = written_like(own, tmp_path / "own.sh", run, instance)
        assert flag not in new and "--sequence-parallel" not in new
        assert new.endswith("    --context-parallel-size $CP_SIZE \\\n\n" if not others else " \\\n\n")
        lines = [x for x in new.splitlines() if "--lr" in x]
        assert [x.split() for x in lines] == [["--lr", "3e-4", "--bf16", "\\"]] * bool(others)
        assert not any("  " in x.strip() for x in lines)
    text, run, instance = asked("arrays.sh")
    text = text.replace("GPUS_PER_NODE=8", "GPUS_PER_NODE=$(nvidia-smi -L | wc -l)")
    new, told = written_like(text, tmp_path / "own.sh", run, instance)
    assert "NUM_NODES=32   # one rack has 4\n" in new
    assert any("states no nodes or no GPUs; start it on 32 nodes of 8 GPUs" in line for line in told)


@each(("name", "old", "new", "complaint"), [
    ("arrays.sh", "--hidden-size 8192", "--hidden-size 4096", "hidden is 4,096, workload.model.hidden 8,192"),
    ("arrays.sh", "--bf16", "--fp16", "products run in fp16, workload.precision.compute is bf16; give --set workload"),
    ("arrays.sh", "--tensor-model-parallel-size 8", "--tensor-model-parallel-size $((4 * 2))",
     "own.sh: line 26: --tensor-model-parallel-size: is computed by the shell (is '8'); write 4 there yourself"),
    ("arrays.sh", "PARALLEL_ARGS=(", "if true; then\nPARALLEL_ARGS=(",
     "line 27: --tensor-model-parallel-size: is in a branch (if, case, &&), which is not followed; write 4"),
    ("variables.sh", "CP_SIZE=1\n", "CP_SIZE=1\nTP_SIZE=2\n",
     "line 22: --tensor-model-parallel-size: its variable TP_SIZE is assigned at lines 4 and 6, and which value"),
    ("variables.sh", "CP_SIZE=1\n", "CP_SIZE=$TP_SIZE\n",
     "line 22: --context-parallel-size: context_parallel is read back as 1, the plan has 2: it shares"),
    ("variables.sh", "TP_SIZE=2\n", "",
     "line 20: --tensor-model-parallel-size: must be a whole number from 1 (is '${TP_SIZE}': TP_SIZE is "
     "assigned nowhere in it); write the figure there"),
    ("variables.sh", "TP_SIZE=2\n", "TP_SIZE=$(cat tp.txt | head -1)\n",
     "line 4: --tensor-model-parallel-size: must be a whole number from 1 (is '$(cat tp.txt | head -1)': the "
     "shell computes it, and no command is run here); write the figure there"),
    ("variables.sh", "TP_SIZE=2\n", "TP_SIZE=2\nfor TP_SIZE in 1 2; do\n",
     "is '${TP_SIZE}': TP_SIZE is set by line 5: for TP_SIZE in 1 2; do); write the figure there"),
    ("variables.sh", "TP_SIZE=2\n", '[[ -z "$BIG" ]] && TP_SIZE=2\n',
     "line 21: --tensor-model-parallel-size: its variable TP_SIZE is assigned at line 4, in a branch, and which "
     "value holds is not known; write 1 there yourself"),
    ("variables.sh", 'DTYPE="fp8"', "#SBATCH --nodelist=a1,a2", "line 8: #SBATCH --nodelist: names the hosts of"),
    ("deepspeed.json", '"stages": 4', '"stages"\n: 4', "own.json: has a key and its colon in two lines"),
    ("titan.toml", "[activation_checkpoint]\nmode = 'full'", "", "line 1: activation_checkpoint.mode: is in"),
])  # fmt: skip
def test_what_is_refused(name: str, old: str, new: str, complaint: str, tmp_path: Path) -> None:
    """Another model, and what cannot be changed where it stands, are named with file, line, key and remedy."""
    text, run, instance = asked(name)
    file = tmp_path / f"own{Path(name).suffix}"
    if complaint.endswith("mode: is in"):
        text = f'activation_checkpoint = {{mode = "full"}}\n{text}'
    with pytest.raises(InputError, match=re.escape(complaint)):
        written_like(text.replace(old, new), file, run, instance)


@each("name", ["experts.sh", "overrides.yaml"])
def test_experts_are_made_whole(name: str, tmp_path: Path) -> None:
    """A file that divides experts, as Megatron does unless it is told otherwise, gets the plan's degree, which is 1."""
    text, run, instance = asked(name, tensor_parallel=2)
    text = text.replace("--tensor-model-parallel-size 1", "--tensor-model-parallel-size 2")
    for own in (text.replace("  expert_tensor_parallel_size: 1\n", ""), text.replace("size: 1", "size: 2")):
        new, told = written_like(own, tmp_path / name, run, instance)
        assert run_of_text(new, tmp_path / name).expert_tensor == 1
        assert any(re.search("expert.tensor.parallel.size: (added|2 becomes 1)", line) for line in told)


def test_a_variable_that_adds_to_itself(tmp_path: Path) -> None:
    """Flags in a variable that is assigned once more with its own text in front can be changed.

    So can what a loop around a run leaves as it is, and defaults of arguments, and those by :=. Words of Megatron are
    those of the file.
    """
    text, run, instance = asked("arrays.sh")
    more = 'ARGS="$ARGS --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"\n'
    text = re.sub(r"\t--(tensor|pipeline)-model-parallel-size \d\n", "", text).replace("torchrun", f"{more}torchrun")
    text = text.replace("PARALLEL_ARGS=(", 'ARGS="--lr 3e-4"\nPARALLEL_ARGS=(').replace("pretrain_gpt.py", "p.py $ARGS")
    arrays = text.replace('ARGS="$ARGS --tensor', "ARGS+=(--tensor").replace('size 4"\n', "size 4);\n")
    for own, words in (
        (text, ('ARGS="$ARGS --tensor-model-parallel-size 4', "--pipeline-model-parallel-size 8")),
        (arrays, ("ARGS+=(--tensor-model-parallel-size 4", "-pipeline-stage 5);\n")),
        (text.replace('ARGS="$ARGS --tensor', 'ARGS+=" --tensor'), ('ARGS+=" --tensor-model-parallel-size 4',)),
    ):
        new, _ = written_like(own, tmp_path / "own.sh", run, instance)
        assert all(x in new for x in words)
    text = ARRAYS.replace("\t--sequence", "\t--num-virtual-stages-per-pipeline-rank 1\n\t--sequence")
    text = text.replace("    --bf16", "    --recompute-granularity full\n    --bf16")
    new, _ = written_like(text, tmp_path / "own.sh", run, instance)
    assert "--num-virtual-stages-per-pipeline-rank 2\n" in new and "--recompute-granularity selective\n" in new
    assert "--recompute-activations" not in new and "--num-layers-per-virtual" not in new
    text, run, instance = asked("variables.sh")
    text = text.replace("TP_SIZE=2\nCP_SIZE=1\n", ': "${TP_SIZE:=2}"\nCP_SIZE=${1:-1}\n')
    text = text.replace("torchrun", "for TRY in 1 2 3; do\ntorchrun") + "done\n"
    new, _ = written_like(text, tmp_path / "own.sh", run, instance)
    assert ': "${TP_SIZE:=1}"\nCP_SIZE=${1:-2}\n' in new and "--pipeline-model-parallel-size 2" in new


@each("name", ["arrays.sh", "overrides.yaml", "slurm.sh"])
def test_modules_of_selective_recompute(name: str, tmp_path: Path) -> None:
    """Modules that selective recompute runs again are written as words of a flag, or as a list, and taken out again."""
    text, run, instance = asked(name, recompute="selective")
    modules = run.software.replaced(recompute_modules=("core_attn", "layernorm"))
    new, _ = written_like(text, tmp_path / name, replace(run, software=modules), instance)
    assert run_of_text(new, tmp_path / name).switches["recompute_modules"] == ("core_attn", "layernorm")
    without, _ = written_like(new, tmp_path / name, run, instance)
    assert run_of_text(without, tmp_path / name).switches.get("recompute_modules", ("core_attn",)) == ("core_attn",)


def test_switches_that_are_not_the_plans(tmp_path: Path) -> None:
    """Switches of the file that make a step longer are told, with both values and both times; others are not."""
    text, *_, layout = RECIPE["arrays.sh"]
    plan = plan_for(question("llama3-70b", precision="bf16", software="megatron-bridge"), layout)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    own, out = tmp_path / "own.sh", tmp_path / "out.sh"
    own.write_text(text)
    command = ["export", "launch", str(tmp_path / "plan.json"), "--like", str(own), "-o", str(out)]
    told = invoke(*command).stderr
    assert "overlap of gradients off (plan: on)" in told and "cuda_graphs none (plan: whole)" in told
    assert "dispatcher" not in told and "overlap of context" not in told
    done = invoke("evaluate", tmp_path / "plan.json", "--from-flags", out, "--json")
    assert f"a step takes {json.loads(done.stdout)['step_seconds']:.4g} s with them" in told
    switches = "--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --enable-cuda-graph"
    switches += " --cuda-graph-scope full_iteration --cross-entropy-loss-fusion --cross-entropy-fusion-impl te"
    own.write_text(text.replace("    --bf16", f"    --bf16 {switches}"))
    assert "its switches stay" not in invoke(*command).stderr


def test_hosts_of_a_placement(tmp_path: Path) -> None:
    """The hosts of a placement become nodes and node list of the script; how ranks keep its order is told."""
    text, run, instance = asked("slurm.sh")
    nodes = tuple(f"n{k:02}" for k in (*range(9, 5, -1), *range(1, 5)))
    placed = placed_on("train", nodes)
    new, told = written_like(text, tmp_path / "own.sh", run, instance, placed)
    assert "#SBATCH --nodes=8\n" in new and "#SBATCH --nodelist=n[01-04,06-09]\n" in new
    assert "SLURM_HOSTFILE=train.hostfile srun -n64 -m arbitrary" in told[-1]
    again, _ = written_like(new, tmp_path / "own.sh", run, instance, placed)
    assert again == new
    with pytest.raises(InputError, match="the placement has 56 GPUs, the plan 64; place that plan"):
        written_like(text, tmp_path / "own.sh", run, instance, placed_on("train", nodes[:7]))


def test_by_command(tmp_path: Path) -> None:
    """The command: a plan into one's own script, with its hosts; what changes is told on stderr."""
    text, model, length, precision, layout = RECIPE["slurm.sh"]
    plan = plan_for(question(model, sequence_length=length, precision=precision), layout)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    own, out = tmp_path / "own.sh", tmp_path / "train.sh"
    own.write_text(text)
    command = ["export", "launch", str(tmp_path / "plan.json"), "--like", str(own)]
    done = invoke(*command, "-o", out)
    assert done.exit_code == 0, done.output
    assert "own.sh: line 9: model.tensor_model_parallel_size: 2 becomes 4" in done.stderr
    assert 'TP="${TP:-4}"\n' in out.read_text() and own.read_text() == text
    placement = placed_on("train", tuple(f"n{i}" for i in range(8)))
    (tmp_path / "placed.json").write_text(placement.model_dump_json())
    done = invoke(*command, "--placement", tmp_path / "placed.json")
    assert done.exit_code == 0 and "#SBATCH --nodelist=n" in done.stdout
    for wrong, complaint in ((["--for", "torchtitan"], "own.sh is of nemo"), (["--placement", str(own)], "own.sh")):
        done = invoke(*command, *wrong)
        assert done.exit_code != 0 and complaint in str(done.exception) + done.output


ROOT = Path(__file__).parents[3]
RACKS = {  # of 8 H100 each; mixtures that DeepSpeed's configuration has no words for are left to the others
    "llama-2-7b": (2, "megatron nemo torchtitan deepspeed"),
    "llama-3.1-8b": (2, "megatron nemo torchtitan deepspeed"),
    "llama-3.1-70b": (8, "megatron nemo torchtitan deepspeed"),
    "mixtral-8x7b": (2, "megatron nemo torchtitan"),
    "qwen3-30b-a3b": (2, "nemo torchtitan"),
    "gpt-oss-20b": (2, "megatron nemo torchtitan"),
}
CASES = [(model, framework) for model, (_, names) in RACKS.items() for framework in names.split()]
QUICK = [("llama-2-7b", "torchtitan"), ("llama-2-7b", "deepspeed")]
SLOW = [("mixtral-8x7b", "megatron"), ("llama-3.1-70b", "nemo")]


def solved_question(config: str, framework: str) -> Instance:
    """Return a question of some H100 nodes for a public configuration under a framework's rules."""
    file, racks = ROOT / "tests" / "imports" / "hf_configs" / f"{config}.json", RACKS[config][0]
    model = read_config(json.loads(file.read_text())["config"], str(file), config).model_dump(exclude_none=True)
    workload = {"software": STACKS[framework], "sequence_length": 4096, "tokens": 1e12}
    instance = question(model, racks=racks, **workload).replaced(reliability=None)
    return instance.replaced(limits=Limits(max_batch_tokens=4096 * 8 * racks))


def test_replicas_at_several_sites_are_read_back_with_the_plan(tmp_path: Path) -> None:
    """Flags have no sites; of a plan with as many replicas they are the plan's, and so is the exchange at a site."""
    plan = stored("two-sites-405b")
    (own := tmp_path / "own.sh").write_text(launch_file(run_of(plan, "plan"), "megatron"))
    (file := tmp_path / "plan.json").write_text(plan.model_dump_json())
    found = invoke("evaluate", file, "--from-flags", own, "--json")
    parts, asked_for = json.loads(found.stdout)["breakdown_seconds"], plan.layout
    assert asked_for is not None and len(asked_for.data_parallel_by_site) == 2
    assert parts["data_parallel"] == pytest.approx(asked_for.metrics.breakdown_seconds["data_parallel"])


@pytest.mark.parametrize(
    ("config", "framework"), [*QUICK, *slow(*SLOW), *more(*(case for case in CASES if case not in QUICK + SLOW))]
)
def test_the_export_is_the_plan(config: str, framework: str) -> None:
    """The export of a plan that was solved for a framework neither refuses nor changes the layout."""
    plan = planner.solve(solved_question(config, framework))
    assert plan.status == "optimal" and plan.verified
    run = run_of(plan, config)
    assert nearest_choices(run, framework) == {} and runnable_layout(plan, run, framework) is None
    back = run_of_text(launch_file(run, framework), Path(f"own.{FORMS[framework]}"))
    read = layout_of_run(back, plan.instance, "own")
    again = planner.evaluate(plan.instance, {path.removeprefix("layout."): value for path, value in read.items()})
    own, other = (layout_values(strategy_of(x)) for x in (plan.layout, again.layout))
    untold = {"replicas_per_rack", "stages_per_rack"} | ({"sequence_parallel"} if framework == "deepspeed" else set())
    assert {k: v for k, v in other.items() if k not in untold} == {k: v for k, v in own.items() if k not in untold}
