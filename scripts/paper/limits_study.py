"""Print how the fall and the end of scaling move: `planner limits` under one change at a time, as a table.

Run by hand: scripts/paper/limits_study.py [INSTANCE] [POINTS]. A row takes about as long as one `planner limits`.
"""

import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from planner.api.plan_calls import limits
from planner.sweeps.axes import changed, read_changes
from planner.sweeps.utilisation import fall, wall

INSTANCE = Path(__file__).parents[2] / "instances" / "limits-h100.json"
ACCELERATOR, CHOOSE = "hardware.accelerator", "workload.choose"
CHANGES: dict[str, list[str]] = {
    "as it is": [],
    "network twice as fast": [f"{ACCELERATOR}.nic_bytes_per_second=x2"],
    "network half as fast": [f"{ACCELERATOR}.nic_bytes_per_second=x0.5"],
    "latencies a tenth": [f"{ACCELERATOR}.nic_latency_seconds=x0.1", f"{ACCELERATOR}.scale_up_latency_seconds=x0.1"],
    "latencies ten times": [f"{ACCELERATOR}.nic_latency_seconds=x10", f"{ACCELERATOR}.scale_up_latency_seconds=x10"],
    "HBM twice as large and fast": [f"{ACCELERATOR}.hbm_bytes=x2", f"{ACCELERATOR}.hbm_bytes_per_second=x2"],
    "72 GPUs in a scale-up domain": ["hardware.rack.gpus=72", f"{CHOOSE}.family.heads_multiple_of=72"],
    "the same, no 2-D tensor parallelism": [
        "hardware.rack.gpus=72",
        f"{CHOOSE}.family.heads_multiple_of=72",
        "pins.layout.tensor_parallel_inner=1",
    ],
    "batch of 4M tokens": [f"{CHOOSE}.critical_batch=fixed-4m"],
    "batch by Zhang 2024": [f"{CHOOSE}.critical_batch=zhang-2024"],
    "batch by DeepSeek 2024": [f"{CHOOSE}.critical_batch=deepseek-2024"],
    "depth by Levine 2020": [f"{CHOOSE}.family.depth=levine-2020"],
    "16 experts, one a token": [f"{CHOOSE}.family.experts=16", f"{CHOOSE}.family.experts_per_token=1"],
}


def main() -> None:
    """Print one row a change."""
    instance = Path(sys.argv[1]) if len(sys.argv) > 1 else INSTANCE
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    flop = [10 ** (24 + 8 * k / (count - 1)) for k in range(count)]
    print(f"{'change':38} {'best use':>9} {'under 80 % of it from':>22} {'none in time from':>24} {'seconds':>8}")
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        for name, change in CHANGES.items():
            started = time.perf_counter()
            asked = changed(instance, read_changes(change), searched=False)
            largest_first = limits(asked, flop[::-1], tolerance=0.02, time_limit=120, executor=pool)
            points = list(largest_first)[::-1]
            best = max((p.utilisation or 0.0 for p in points), default=0.0)
            drop, ends = fall(points), wall(points)
            none_from = f"{ends[0]:.1e} to {ends[1]:.1e}" if ends else "not shown"
            seconds, falls = time.perf_counter() - started, drop or math.nan
            print(f"{name:38} {100 * best:8.1f}% {falls:22.1e} {none_from:>24} {seconds:8.0f}", flush=True)


if __name__ == "__main__":
    main()
