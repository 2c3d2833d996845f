"""Tables as text: layouts near the fastest, designs of fabrics, and the catalogue's entries."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from planner.errors import InputError, hint
from planner.files import read_json
from planner.imports.instance_file import shipped_folder
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.workload import Model
from planner.physics.training.transformer import active_parameters, total_parameters
from planner.plan.plan_sections import DEGREES, layout_in_short
from planner.planning.solve import NearLayouts
from planner.report.comparison import cell
from planner.units import aligned, money, power, ratio, to_one


def layout_rows(found: NearLayouts) -> Iterator[dict[str, Any]]:
    """Yield a table row of figures for each near layout: degrees, days, time by part, memory, racks and capital."""
    choices = "virtual_stages", "microbatch_sequences", "microbatches_per_step", "zero_stage", "recompute"
    for plan, layout in ((plan, plan.layout) for plan in found.plans if plan.layout is not None):
        metrics, fewest = layout.metrics, found.fewest_days or math.inf
        yield {
            "layout": layout_in_short(layout),
            "days_to_train": metrics.days_to_train,
            "share_slower": max(0.0, metrics.days_to_train / fewest - 1),
            **{name: getattr(layout, name) for name in (*DEGREES, *choices)},
            "layers_per_stage": list(layout.layers_per_stage),
            **{name: getattr(metrics, name) for name in ("step_seconds", "mfu", "memory_bytes_per_gpu")},
            "gpus_used": layout.gpus_used,
            "capital_usd": None if plan.cost is None else plan.cost.total_usd,
            "breakdown_seconds": dict(metrics.breakdown_seconds),
        }


Entry = dict[str, Any]


def fabric_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the frontier of a plan's site fabrics as a table, a design a line."""
    lines = [["site", "cost", "power", "p2p", "split", "leaf racks", "switches", "tiers", "family", "switch"]]
    for row in rows:
        slowed, splits = f"{row['pipeline_send_slowdown']:.2f}x", f"{row['unavoidable_splits']:.0f}"
        first = [row["site"], money(row["cost_usd"]), power(row["power_mw"]), slowed, splits]
        last = (row[key] for key in ("leaf_domain_racks", "switches", "tiers", "family", "switch"))
        lines.append([*first, *map(cell, last)])
    return aligned(lines)


def fabric_ratio_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the cheapest fabrics by the oversubscription that they are allowed as a table, a line each."""
    lines = [["at most", "carried", "cost", "power", "switches", "links", "tiers", "leaf hosts", "family", "switch"]]
    for row in rows:
        asked = "any" if row["oversubscription"] is None else to_one(row["oversubscription"])
        first = [asked, f"{ratio(100 * row['carried_share'])} %", money(row["cost_usd"]), power(row["power_mw"])]
        last = (row[key] for key in ("switches", "switch_links", "tiers", "leaf_domain_racks", "family", "switch"))
        lines.append([*first, *map(cell, last)])
    return aligned(lines) if rows else "no oversubscription leaves a fabric that keeps the rules"


def _model(entry: Entry) -> list[Any]:
    model = Model.model_validate(entry)
    weights = [f"{count(model) / 1e9:,.4g}B" for count in (total_parameters, active_parameters)]
    experts = f"{model.experts.count} x {model.experts.per_token}" if model.experts else "-"
    return [*weights, model.layers, model.hidden, experts]


def _accelerator(entry: Entry) -> list[Any]:
    gpu = Accelerator.model_validate(entry)
    dtype = "bf16" if "bf16" in gpu.peak_flop_per_second else next(iter(gpu.peak_flop_per_second))
    return [
        f"{gpu.hbm_bytes / 1e9:,.0f} GB",
        f"{gpu.peak_flop_per_second[dtype] / 1e12:,.0f} {dtype}",
        f"{gpu.scale_up_bytes_per_second / 1e9:,.0f} GB/s",
        f"{gpu.nic_bytes_per_second * 8 / 1e9:,.0f}G",
        ", ".join(sorted(gpu.peak_flop_per_second)),
    ]


# Kind: the headings of its figures, and the keys of an entry or how they are read from it.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...] | Callable[[Entry], list[Any]]]] = {
    "models": (("weights", "for a token", "layers", "hidden", "experts x used"), _model),
    "accelerators": (("HBM", "TFLOP/s", "scale-up", "NIC", "types"), _accelerator),
    "racks": (("GPUs", "IT kW", "price", "accelerator"), lambda entry: [
        entry["gpus"], entry["it_kw"], f"${entry['price_usd']:,.0f}",
        " or ".join(catalogue("rack_accelerators")[entry["name"]]["accelerators"]),
    ]),
    "switches": (("ports", "Gb/s", "price_usd", "watts"), ("ports", "port_gbps", "price_usd", "power_watts")),
    "media": (("reach m", "price_usd", "watts"), ("reach_m", "price_usd", "power_watts")),
    "precisions": (
        ("products", "weights", "gradients", "moments"),
        ("compute", "parameter_bytes", "gradient_bytes", "optimizer_bytes"),
    ),
    "software": (("schedules", "ZeRO"), lambda entry: [
        ", ".join(entry.get("schedules", ["1f1b"])), ", ".join(map(str, entry.get("zero_stages", [0, 1, 2, 3])))
    ]),
    "scaling_laws": (("kind",), ("kind",)),
    "batch_laws": (("of", "coefficient", "exponent"), ("of", "coefficient", "exponent")),
    "depth_laws": (("kind",), ("kind",)),
    "reliability": ((), ()),
    "instances": ((), ()),
}  # fmt: skip


def entries(kind: str) -> dict[str, Entry]:
    """Return, for a table to print, the catalogue's entries of a kind, or shipped instances. InputError: no kind."""
    if kind not in KINDS:
        raise InputError(f"catalogue: {kind!r} is no part of it; {hint(kind, list(KINDS))}")
    if kind == "instances":
        return {path.stem: read_json(path) for path in sorted(shipped_folder().glob("*.json"))}
    return catalogue(kind)
