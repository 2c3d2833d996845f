"""`planner evaluate`, and kinds of layout near the fastest: predicted, compared with full enumeration, and written."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import invoke, run_here
from each_case import each
from joint_brute_force import Toy, toy
from tiers import more, slow

import planner
from planner.errors import InputError
from planner.instance.catalogue_entries import catalogue
from planner.instance.software import CORE_ATTENTION
from planner.models import Options
from planner.models.joint.joint_question import Solving
from planner.models.joint.search.fewest_days import FastestOfEachKind, Kind, kind_of
from planner.models.joint.solve_joint import solve_joint
from planner.physics.training.step_prediction import days_of, machine_of
from planner.planning.evaluate import stack_text
from planner.planning.load import load_instance
from planner.planning.solve import near_layouts
from planner.report.evaluated_layout import evaluation_text

FULL = {"tensor_parallel": 8, "pipeline_parallel": 8, "data_parallel": 1, "virtual_stages": 3}
FULL |= {"microbatches_per_step": 64, "sequence_parallel": True}
HALF = dict.fromkeys(("parameter_bytes", "working_parameter_bytes", "activation_bytes", "collective_bytes"), 2)
HALF |= {"gradient_bytes": 4, "optimizer_bytes": 12}


def question(software: str = "megatron-lm-2022", **hardware: Any) -> dict[str, Any]:
    """Return GPT-3 175B on 80-GB A100s, with neither a batch nor a number of racks."""
    work = {"model": "gpt3-175b", "tokens": 3e11, "sequence_length": 2048, "software": software}
    return {
        "name": "gpt3",
        "workload": work | {"precision": {"compute": "fp16", **HALF}},
        "hardware": {"accelerator": "A100-80GB", "rack": "DGX-A100", **hardware},
    }


@each(("switches", "told"), [
    ({"activation_offload": 0.3}, "30% of activations on the host"),
    ({"recompute_modules": ("core_attn", "mlp")}, "selective recompute of core_attn, mlp"),
    ({"overlaps": ("experts", "gradients")}, "overlaps gradients"),
    ({"overlaps": ("experts",)}, "overlaps nothing"),
    ({"cuda_graphs": "whole"}, "CUDA graphs: whole"),
    ({"fused_loss": True}, "fused loss"),
    ({"fused_loss": False}, "loss not fused"),
])  # fmt: skip
def test_the_stack_is_told_by_the_switches_that_matter(switches: dict[str, Any], told: str) -> None:
    """A switch is named where it is on; a dense model has no word of experts, and FP16 none of FP8."""
    m = machine_of(load_instance(question(), searched=False))
    plain = {"activation_offload": 0.0, "recompute_modules": CORE_ATTENTION}
    text = stack_text(replace(m, software=m.software.replaced(**plain | switches)))
    parts = text.partition(": ")[2].split("; ")
    assert text.startswith("megatron-lm-2022") and told in parts
    assert len(parts) == 3 + ("activation_offload" in switches or "recompute_modules" in switches)


def test_prediction_near_the_published_step() -> None:
    """Korthikanti et al. 2022 (table 5) measured 13.75 s: 64 sequences on 64 A100s with selective recompute."""
    # Seconds by part and bytes by part add up, and each part names the constants that it rests on.
    found = planner.evaluate(question(), {**FULL, "recompute": "selective"})
    assert found.step_seconds == pytest.approx(13.75, rel=0.1)
    assert found.fits and found.layout.gpus_used == 64
    for own in (found.layout, found.layout.model_dump(mode="json")):  # a layout that a plan or an evaluation has
        assert planner.evaluate(question(), own).step_seconds == found.step_seconds
    gpu = catalogue("accelerators")["A100-80GB"] | {"nic_efficiency": 1.0}  # the end of its range
    assert planner.evaluate(question(accelerator=gpu), FULL).step_seconds > 0
    assert math.fsum(found.breakdown_seconds.values()) == pytest.approx(found.step_seconds)
    assert max(math.fsum(x.values()) for x in found.memory_by_stage_bytes) == pytest.approx(found.memory_bytes_per_gpu)
    assert set(found.rests_on) == {k for k, v in found.breakdown_seconds.items() if v}
    assert all(c.source for c in found.rests_on["gemm"])
    short, long = evaluation_text(found), evaluation_text(found, why=True)
    residue = found.replaced(breakdown_seconds=found.breakdown_seconds | {"chunk_wait": 1e-12 * found.step_seconds})
    assert evaluation_text(residue, why=True) == long  # a part within rounding has no line
    assert "gpt3: your layout fits" in short and "gemm_efficiency" not in short and "gemm_efficiency" in long


def test_what_does_not_run_is_said() -> None:
    """Activations of 64 micro-batches are too large for 80 GB; 8 nodes are more than 7, and so is the batch."""
    found = planner.evaluate(question(), {**FULL, "recompute": "none", "sequence_parallel": False, "zero_stage": 0})
    assert not found.fits and "GB over" in found.problems[0]
    less = {**question(racks=7), "limits": {"max_batch_tokens": 2048 * 32}}
    problems = planner.evaluate(less, {**FULL, "recompute": "full"}).problems
    assert [p.split(":")[0] for p in problems] == ["racks", "batch"]


def test_an_odd_number_of_replicas_lies_side_by_side_in_racks() -> None:
    """21 replicas of TP 4 over 8 stages are 672 ranks in order: 84 nodes, in half of which no two stages meet."""
    # They take as long as 22 replicas on 88 nodes do: the NICs of a node carry one stage, not two of one replica.
    layout = {**FULL, "tensor_parallel": 4, "recompute": "selective", "zero_stage": 1}
    odd, even = (
        planner.evaluate(question(racks=racks), {**layout, "data_parallel": n}) for racks, n in ((84, 21), (88, 22))
    )
    assert not [x for x in odd.problems if x.startswith("racks")]
    assert (odd.layout.replicas_per_rack, odd.layout.stages_per_rack) == (2, 1)
    assert odd.layout.rack_stages * odd.layout.racks_per_stage_by_site["cluster"] == 88
    assert odd.step_seconds == pytest.approx(even.step_seconds, rel=0.001)


def test_a_replica_that_fills_no_rack_takes_one_a_stage() -> None:
    """Eight stages of one replica of TP 4 leave half of eight nodes idle where these are not too many."""
    alone = {**FULL, "tensor_parallel": 4, "recompute": "full", "zero_stage": 1, "stages_per_rack": 1}
    found = planner.evaluate(question(), alone).layout
    assert (found.gpus_used, found.gpus_idle, found.rack_stages) == (32, 32, 8)
    assert found.racks_per_stage_by_site == {"cluster": 1}
    assert [x.split(":")[0] for x in planner.evaluate(question(racks=7), alone).problems][-1:] == ["racks"]


PALM = {"tensor_parallel": 12, "pipeline_parallel": 1, "data_parallel": 256, "microbatch_sequences": 4}
PALM |= {"microbatches_per_step": 1, "sequence_parallel": True, "zero_stage": 3, "recompute": "full"}


def test_a_step_of_tpus_is_near_the_published_one() -> None:
    """PaLM (arXiv 2204.02311), section 4.1: 238.3K tokens/s of 6,144 TPU v4, which was not fitted; one pod's half."""
    q = question(accelerator="TPU-v4", rack="TPU-v4-pod", racks=2)
    q["workload"] = {"model": "palm-540b", "tokens": 1e12, "sequence_length": 2048, "software": "maxtext"}
    found = planner.evaluate(q, PALM)
    assert found.problems == () and found.step_seconds == pytest.approx(2048**2 / 238.3e3, rel=0.15)


@each(("software", "change", "problem"), [
    ("megatron-lm-2022", {"zero_stage": 3}, "zero_stage 3: megatron-lm-2022 has ZeRO stages 0 under a pipeline"),
    ("megatron-core", {"zero_stage": 3}, "zero_stage 3: megatron-core has ZeRO stages 0, 1 under a pipeline"),
    ("megatron-lm-2021", {}, 'sequence_parallel > 1: megatron-lm-2021 has no "sequence" among its parallelism'),
    ("megatron-deepspeed", {"sequence_parallel": False, "virtual_stages": 2}, "virtual_stages > 1"),
    ("megatron-core", {"schedule": "zb-h1", "virtual_stages": 1}, "schedule zb-h1: megatron-core has 1f1b"),
    ("megatron-core", {"microbatches_per_step": 61}, "framework_rules: Megatron asks for layout.microbatches_per_st"),
    ("megatron-zero-bubble", {"schedule": "zb-h1", "virtual_stages": 1}, None),
    ("ideal", {"zero_stage": 3}, None),
])  # fmt: skip
def test_what_the_framework_lacks_is_said(software: str, change: dict[str, Any], problem: str | None) -> None:
    found = planner.evaluate(question(software), {**FULL, "recompute": "full"} | change).problems
    assert [x for x in found if x.startswith(problem or ("zero", "schedule"))] == ([found[0]] if problem else [])


@each(("change", "word"), [
    ({"tensor_parallel": None}, "--pin layout.tensor_parallel"),
    ({"data_parallel": None, "data_parallel_by_site": {"cluster": 0}}, "no replica"),
    ({"microbatches_per_step": None}, "--pin layout.microbatches_per_step"),
    ({"layers_per_stage": [96]}, "layout.layers_per_stage has 1 entries"),
    ({"layers_per_stage": [12] * 7 + [11]}, "adds up to 95"),
    ({"expert_parallel": 2}, "layout.expert_parallel 2"),
    ({"tensor_parallel": 5}, "layout.tensor_parallel 5 does not divide the model's 96 heads; give 4 or 6"),
    ({"tensor_parallel": 97}, "give 96"),
    ({"schedule": "zb-h1"}, "one virtual stage"),
    ({"virtual_stages": 13}, "layout.virtual_stages 13, more than the 12 layers of the smallest stage"),
    ({"virtual_stages": 1_000_000}, "layout.virtual_stages 1,000,000, more than the 12 layers"),
    ({"recomputed_layers_per_stage": [13] + [0] * 7}, "no larger than its layers"),
])  # fmt: skip
def test_contradictions_are_named(change: dict[str, Any], word: str) -> None:
    layout = {k: v for k, v in {**FULL, **change}.items() if v is not None}
    with pytest.raises(InputError, match="evaluate") as error:
        planner.evaluate(question(), layout)
    assert word in str(error.value)


def test_command_prints_json_and_nothing_else(tmp_path: Any) -> None:
    """With --json the prediction is one JSON object; a layout that does not run exits with 3."""
    path = tmp_path / "q.json"
    path.write_text(json.dumps(question()))
    pins = [x for k, v in FULL.items() for x in ("--pin", f"layout.{k}={json.dumps(v)}")]
    good = invoke("evaluate", path, *pins, "--pin", "layout.recompute=selective", "--json")
    assert good.exit_code == 0
    result = json.loads(good.stdout)
    assert result["step_seconds"] == result["layout"]["metrics"]["step_seconds"]
    plan = tmp_path / "plan.json"
    bad = invoke("evaluate", path, *pins, "--pin", "layout.microbatch_sequences=16", "-o", plan)
    assert bad.exit_code == 3
    assert "does not run" in bad.stdout
    assert "Does not fit in memory" in invoke("show", plan).stdout
    assert "does not fit in memory" in invoke("export", "launch", plan).stderr


def test_a_zero_stage_left_open_is_the_first_that_fits() -> None:
    """On 80 GB the optimiser state of 8 stages is sharded where it must be, and the text says so; a pin stays."""
    q = question("ideal")
    layout = {**FULL, "pipeline_parallel": 4, "data_parallel": 4, "recompute": "full"}
    pinned = {z: planner.evaluate(q, {**layout, "zero_stage": z}) for z in (0, 1, 2, 3)}
    first = min(z for z, e in pinned.items() if e.fits)
    found = planner.evaluate(q, layout)
    assert planner.evaluate(question("torchtitan"), FULL).layout.zero_stage == 2  # the first that it has
    assert first > 0 and found.fits and found.layout.zero_stage == first
    assert found.filled == {"zero_stage": f"ZeRO-{first}, as ZeRO-0 does not fit"}
    assert not pinned[0].fits and pinned[0].filled == {} and found.step_seconds == pinned[first].step_seconds
    assert planner.evaluate(q, {**layout, "pipeline_parallel": 1}).layout.zero_stage in (0, 3)
    del layout["sequence_parallel"]
    assert "no sequence parallelism; --pin" in evaluation_text(planner.evaluate(q, layout))


def test_unequal_chunks_are_explained() -> None:
    uneven = {"layers_per_stage": [13, 12, 12, 12, 12, 12, 12, 11], "virtual_stages": 3}
    found = planner.evaluate(question(), {**FULL, **uneven, "recompute": "selective", "microbatches_per_step": 61})
    assert found.breakdown_seconds["chunk_wait"] > 0 and found.rests_on["chunk_wait"]


CASES = [*((seed, {}) for seed in (2, 6, 14, 17)), *((seed, {"sites": 2, "forced": True}) for seed in (3, 7))]


def enumerated(every: Toy) -> dict[Kind, float]:
    """Return the least seconds a sequence of each kind, by plain loops."""
    found: dict[Kind, float] = {}
    for _, c, sizes, shards in every.work():
        s = c.shape
        kind = s.tensor_parallel, s.context_parallel, s.expert_parallel, c.p
        for plan in every.plans(c, sizes, shards, found.get(kind, math.inf)):
            found[kind] = min(found.get(kind, math.inf), plan.seconds)
    return found


@pytest.mark.parametrize(("seed", "how"), [*CASES[:2], *slow(CASES[3], CASES[5]), *more(CASES[2], CASES[4])])
def test_equals_full_enumeration(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    best = solve_joint(i, Solving()).plan
    problem, every = Solving().world(i).problem, enumerated(Toy(i))
    for within in (0.05, 0.5):
        found = near_layouts(i, Options(), lambda _: None, within=within)
        wanted = {k: t for k, t in every.items() if t <= best.seconds * (1 + within) * (1 + 1e-9)}
        assert found.proven and len(found.plans) == len(wanted)
        for plan in found.plans:
            x = plan.layout
            assert plan.verified
            kind = x.tensor_parallel, x.context_parallel, x.expert_parallel, x.pipeline_parallel
            assert x.metrics.days_to_train == pytest.approx(days_of(problem.instance, wanted[kind]), rel=1e-9)
        assert kind_of(best.column) in wanted


def test_an_interrupt_keeps_the_layouts_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a kind of layout without a plan is looked at loses none of the plans of the others."""
    i, looked = toy(CASES[0][0], **CASES[0][1]), list[bool]()

    def stop(goal: FastestOfEachKind, *_: Any) -> None:
        looked.append(goal.incumbent is None)
        if looked[-1]:
            raise KeyboardInterrupt

    monkeypatch.setattr(FastestOfEachKind, "price", stop)
    found = near_layouts(i, Options(), lambda _: None, within=0.5)
    assert looked[-1] and len(found.plans) == 1 and not found.proven


def test_the_command_lists_and_writes(tmp_path: Path) -> None:
    """A table that says what is proven, rows as CSV and JSON, a file of another ending refused, and a limit."""
    done = run_here("layouts", "cluster-1k", "-o", tmp_path / "rows.csv", "-q")
    assert done.returncode == 0 and "No other kind of layout has a plan within 2 %" in done.stdout
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8")))
    assert rows and float(rows[0]["days_to_train"]) <= float(rows[-1]["days_to_train"])
    assert run_here("layouts", "cluster-1k", "-o", tmp_path / "rows.txt").returncode == 2
    data = json.loads(run_here("layouts", "one-rack", "--json", "-q").stdout)
    assert data["proven"] and data["layouts"][0]["share_slower"] == pytest.approx(0, abs=1e-9)
    assert sum(data["layouts"][0]["breakdown_seconds"].values()) == pytest.approx(data["layouts"][0]["step_seconds"])
    assert run_here("layouts", "cluster-1k", "--time-limit", "0.01", "-q").returncode == 4
    late = run_here("layouts", "one-rack", "--set", "limits.deadline_days=1", "-q")
    assert late.returncode == 3 and "one-rack: no plan: no plan trains in less than 6.4" in late.stdout
    assert late.stdout.endswith("Rule in conflict (layout): limits.deadline_days.\n")
