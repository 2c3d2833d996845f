"""A tiny layout problem, to be changed key by key."""

from typing import Any

from joint_toys import GPU, PRECISION

from planner.instance.instance import Instance

FLASH = {
    "name": "flash", "launch_seconds": 1e-6, "microbatch_seconds": 1e-4, "step_seconds": 1e-3, "tensor_overlap": 0.5,
    "sharding_exposed": 0.1, "schedules": ["1f1b"],
}  # fmt: skip


def instance(
    *, layers: int = 3, hbm: float = 4e9, pins: dict[str, Any] | None = None, software: dict[str, Any] = FLASH
) -> Instance:
    """Return six sequences of a model of 4 heads on racks of 4 GPUs."""
    model = {"name": "m", "layers": layers, "hidden": 2048, "heads": 4, "kv_heads": 4, "vocabulary": 8000}
    workload = {"model": model, "tokens": 1e9, "sequence_length": 1024, "precision": PRECISION, "software": software}
    rack = {"name": "r", "gpus": 4, "it_kw": 4, "price_usd": 1}
    return Instance.model_validate(
        {
            "name": "tiny",
            "limits": {"max_batch_tokens": 6 * 1024, "memory_reserve_fraction": 0.0},
            "workload": workload,
            "hardware": {"accelerator": GPU | {"hbm_bytes": hbm, "nic_bytes_per_second": 2e10}, "rack": rack},
            "pins": pins or {},
        }
    )
