"""The catalogue's entries with their main figures, a line each."""

from collections.abc import Callable
from typing import Any

from planner.errors import InputError, hint
from planner.imports.instance_file import shipped_folder
from planner.instance.catalogue import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.workload import Model
from planner.units import aligned

Entry = dict[str, Any]
COLUMNS = 96  # of a source, so that its line fits a terminal


def _model(entry: Entry) -> list[str]:
    from planner.physics.training.transformer import active_parameters, total_parameters

    model = Model.model_validate(entry)
    weights = [f"{count(model) / 1e9:,.4g}B" for count in (total_parameters, active_parameters)]
    experts = f"{model.experts.count} x {model.experts.per_token}" if model.experts else "-"
    return [*weights, str(model.layers), f"{model.hidden:,}", experts]


def _accelerator(entry: Entry) -> list[str]:
    gpu = Accelerator.model_validate(entry)
    dtype = "bf16" if "bf16" in gpu.peak_flop_per_second else next(iter(gpu.peak_flop_per_second))
    return [
        f"{gpu.hbm_bytes / 1e9:,.0f} GB",
        f"{gpu.peak_flop_per_second[dtype] / 1e12:,.0f} {dtype}",
        f"{gpu.scale_up_bytes_per_second / 1e9:,.0f} GB/s",
        f"{gpu.nic_bytes_per_second * 8 / 1e9:,.0f}G",
        ", ".join(sorted(gpu.peak_flop_per_second)),
    ]


def _by_keys(*keys: str) -> Callable[[Entry], list[str]]:
    def figures(entry: Entry) -> list[str]:
        values = [entry.get(k) for k in keys]
        return ["-" if v is None else f"{v:,g}" if isinstance(v, (int, float)) else str(v) for v in values]

    return figures


# Kind: the headings of its figures, and how they are read from an entry.
KINDS: dict[str, tuple[tuple[str, ...], Callable[[Entry], list[str]]]] = {
    "models": (("weights", "for a token", "layers", "hidden", "experts x used"), _model),
    "accelerators": (("HBM", "TFLOP/s", "scale-up", "NIC", "types"), _accelerator),
    "racks": (("GPUs", "IT kW", "price"), lambda e: [
        f"{e['gpus']:,}", f"{e['it_kw']:,g}", f"${e['price_usd']:,.0f}"
    ]),
    "switches": (("ports", "Gb/s", "price_usd", "watts"), _by_keys("ports", "port_gbps", "price_usd", "power_watts")),
    "media": (("reach m", "price_usd", "watts"), _by_keys("reach_m", "price_usd", "power_watts")),
    "precisions": (("products", "weights", "gradients", "moments"), _by_keys(
        "compute", "parameter_bytes", "gradient_bytes", "optimizer_bytes"
    )),
    "software": (("schedules", "ZeRO"), lambda e: [
        ", ".join(e.get("schedules", ["1f1b"])), ", ".join(map(str, e.get("zero_stages", [0, 1, 2, 3])))
    ]),
    "scaling_laws": (("kind",), _by_keys("kind")),
    "batch_laws": (("of", "coefficient", "exponent"), _by_keys("of", "coefficient", "exponent")),
    "depth_laws": (("kind",), _by_keys("kind")),
    "reliability": ((), lambda _: []),
    "instances": ((), lambda _: []),
}  # fmt: skip


def entries(kind: str) -> dict[str, Entry]:
    """Return the entries of a kind by name, of instances the shipped ones; refuse a kind that there is not."""
    if kind not in KINDS:
        raise InputError(f"catalogue: {kind!r} is no part of it; {hint(kind, list(KINDS))}")
    if kind == "instances":
        from planner.files import read_json

        return {p.stem: read_json(p) for p in sorted(shipped_folder().glob("*.json"))}
    return catalogue(kind)


def catalogue_text(kind: str | None) -> str:
    """Return a table of the entries of a kind, or the names of all kinds."""
    if kind is None:
        return aligned([[name, f"{len(entries(name))} entries"] for name in KINDS], left=1)
    known, (headings, figures) = entries(kind), KINDS[kind]
    if headings:
        return aligned([[kind, *headings], *([name, *figures(entry)] for name, entry in known.items())], left=1)
    lines = []
    for name, entry in known.items():
        source = entry.get("source") or entry.get("note", "")
        text = source if isinstance(source, str) else ""
        text = text if len(text) <= COLUMNS else f"{text[:COLUMNS].rsplit(' ', 1)[0]} …"
        lines.append(f"{name:24}{text}".rstrip())
    return "\n".join(lines)
