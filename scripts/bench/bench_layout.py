"""Time the layout search on named questions, with the size of each space, and enumerate the small one.

    python scripts/bench/bench_layout.py [NAME ...]

Times are of this machine; compare them as ratios within one run.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.instance.instance import Instance
from planner.models.layout import solve as layout
from planner.models.layout.data import Problem, problem_of
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import stage_memory
from planner.physics.training.blocks import prediction
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.planning.load import load_instance

HALF = {
    "parameter_bytes": 2,
    "working_parameter_bytes": 2,
    "gradient_bytes": 4,
    "optimizer_bytes": 12,
    "activation_bytes": 2,
    "collective_bytes": 2,
}


def question(
    model: str | Mapping[str, object],
    accelerator: str,
    rack: str,
    racks: int,
    sequences: int,
    software: str,
    sequence: int = 2048,
) -> Instance:
    """Return a layout question on one cluster."""
    data = {
        "name": "bench",
        "limits": {"max_batch_tokens": sequences * sequence},
        "workload": {
            "model": model,
            "tokens": 3e11,
            "sequence_length": sequence,
            "software": software,
            "precision": {"compute": "fp16" if accelerator.startswith("A") else "bf16", **HALF},
        },
        "hardware": {"accelerator": accelerator, "rack": rack, "racks": racks},
    }
    return load_instance(data)


SMALL: Mapping[str, object] = {"name": "small", "layers": 3, "hidden": 1024, "heads": 8, "vocabulary": 51200}
QUESTIONS: dict[str, tuple[str | Mapping[str, object], str, str, int, int, str]] = {
    "megatron-1t": ("megatron-1t", "A100-80GB", "DGX-A100", 384, 3072, "megatron-lm-2022"),
    "gpt3-175b": ("gpt3-175b", "H100", "DGX-H100", 512, 2304, "megatron-core"),
    "turing-530b": ("turing-530b", "A100-80GB", "DGX-A100", 641, 2520, "megatron-lm-2022"),
    "small": (SMALL, "A100-80GB", "DGX-A100", 1, 4, "megatron-lm-2022"),
}


def cuts(problem: Problem) -> Iterator[ParallelStrategy]:
    """Enumerate every layout of a one-site question, nothing left out but what breaks a rule of the space."""
    m = problem.machine
    layers, gpus, racks = m.model.layers, m.rack.gpus, problem.racks[0]
    for t, p, b, parallel in itertools.product((1, 2, 4, 8), range(1, layers + 1), (1, 2, 4, 8, 16), (False, True)):
        if parallel and t == 1:
            continue
        for q in {1, min(p, gpus // t)}:
            r = gpus // (q * t)
            for d in range(1, r * (racks // -(-p // q)) + 1):
                yield from _filled_in(problem, t, p, b, q, r, d, parallel=parallel)


def _filled_in(
    problem: Problem, t: int, p: int, b: int, q: int, r: int, d: int, *, parallel: bool
) -> Iterator[ParallelStrategy]:
    layers = problem.machine.model.layers
    splits = [x for x in itertools.product(range(1, layers + 1), repeat=p) if sum(x) == layers]
    for n, v, zero, split in itertools.product(
        range(1, problem.max_sequences // (d * b) + 1), range(1, layers // p + 1), range(4), splits
    ):
        if (p == 1 and v > 1) or (v > 1 and n < p) or min(split) < v:
            continue
        for kept, again in [
            ("none", (0,) * p),
            *(("full", x) for x in itertools.product(*(range(k + 1) for k in split))),
        ]:
            yield ParallelStrategy(
                tensor_parallel=t,
                pipeline_parallel=p,
                data_parallel_by_site=(d,),
                virtual_stages=v,
                micro_batch=b,
                micro_batches=n,
                recompute="selective" if kept == "full" and not any(again) else kept,  # type: ignore[arg-type]
                sequence_parallel=parallel,
                zero_stage=zero,
                layers_per_stage=split,
                replicas_per_rack=r,
                stages_per_rack=q,
                recomputed_layers_per_stage=again if any(again) else (),
            )


def enumerate_all(instance: Instance, request: LayoutRequest) -> tuple[float, int, float]:
    """Return the least seconds per sequence by enumeration, the number of layouts timed, and the seconds taken."""
    problem, started, best, count = problem_of(instance, request), time.perf_counter(), float("inf"), 0
    for cut in cuts(problem):
        count += 1
        if sum(stage_memory.worst_memory(problem.machine, cut).values()) <= problem.memory_limit:
            seconds = sum(prediction.step_breakdown(problem.machine, problem.conditions, cut).values())
            best = min(best, seconds / (cut.data_parallel * cut.micro_batches * cut.micro_batch))
    return best, count, time.perf_counter() - started


def bench(name: str) -> None:
    """Search one question and print what was found, over which space and in what time."""
    if name == "5gw":
        instance = load_instance(Path(__file__).resolve().parents[2] / "instances" / "5gw.json")
        request = LayoutRequest(
            racks_by_site={"a": 9045, "b": 11053}, pipeline_send_slowdown=1.05, allreduce_slowdown=1.05
        )
    else:
        instance = question(*QUESTIONS[name])
        request = LayoutRequest(
            racks_by_site={"cluster": instance.hardware.racks or 0}, pipeline_send_slowdown=1.0, allreduce_slowdown=1.0
        )
    started = time.perf_counter()
    out = layout.solve(instance, request, Options())
    seconds = time.perf_counter() - started
    if out.solution is None:
        print(f"{name}: {out.detail}")
        return
    x, space = out.solution, out.solution.certificate.space
    print(
        f"{name}: {seconds:.2f} s; {space['columns_declared']:,} columns declared, "
        f"{space['columns_expanded']:,} expanded, {space['verified_by_cpsat']:,} verified by CP-SAT "
        f"({space['not_verified_by_cpsat']:,} not); {x.certificate.status}"
    )
    print(
        f"  TP {x.tensor_parallel} PP {x.pipeline_parallel} v {x.virtual_stages} DP {x.data_parallel} "
        f"micro-batch {x.microbatch_sequences} x {x.microbatches_per_step}; recompute {x.recompute}, "
        f"SP {x.sequence_parallel}, ZeRO {x.zero_stage}, {x.gpus_used:,} GPUs of {x.gpus_used + x.gpus_idle:,}; "
        f"layers {min(x.layers_per_stage)}-{max(x.layers_per_stage)}; step {x.metrics.step_seconds:.3f} s, "
        f"MFU {100 * x.metrics.mfu:.1f} %, "
        f"{x.metrics.tokens_per_step / 2048 / x.metrics.step_seconds:.1f} sequences/s of 2,048"
    )
    if name == "small":
        least, count, took = enumerate_all(instance, request)
        found = x.metrics.step_seconds * instance.workload.sequence_length / x.metrics.tokens_per_step
        print(
            f"  enumerated {count:,} layouts in {took:.1f} s, {took / seconds:.0f} times as long; "
            f"least {least:.9f} s a sequence, found {found:.9f}"
        )


if __name__ == "__main__":
    for asked in sys.argv[1:] or [*QUESTIONS, "5gw"]:
        bench(asked)
