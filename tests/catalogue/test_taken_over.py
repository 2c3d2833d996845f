"""Entries like another have its figures but for those they source, and names of measured rows lead to the catalogue."""

import json
import re
from pathlib import Path
from typing import Any

import calibration_rows
import pytest
from fitted_constants import EVERY

import planner
from planner.errors import InputError
from planner.imports.instance_file import shipped_folder
from planner.instance.hardware import Accelerator
from planner.instance.workload import catalogue, completed
from planner.planning.load import load_instance

FOLDER = Path(planner.__file__).parent / "catalogue"
RAW: dict[str, dict[str, Any]] = {
    kind: json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8")) for kind in ("accelerators", "software")
}
LIKE = [(kind, name) for kind, entries in RAW.items() for name, entry in entries.items() if "like" in entry]
A: dict[str, Any] = {
    "name": "A",
    "products": {"share": {"bf16": 0.7, "fp8": 0.8}, "tail": 3.0, "source": "Fitted"},
    "peak": {"bf16": 1.0, "fp8": 2.0},
    "ports": 8,
    "note": "x",
    "source": {"peak": "datasheet of A", "ports": "datasheet of A"},
}


def test_an_accelerator_without_measured_rows_is_like_one_that_has_some() -> None:
    """It keeps no copy of fitted figures, which the next fit would leave behind."""
    entries = RAW["accelerators"]
    assert set(EVERY) == {name for name, entry in entries.items() if "like" not in entry}
    assert {entry["like"] for entry in entries.values() if "like" in entry} <= set(EVERY)


@pytest.mark.parametrize(("kind", "name"), LIKE, ids=[name for _, name in LIKE])
def test_only_what_a_source_states_is_an_entrys_own(kind: str, name: str) -> None:
    own, whole = RAW[kind][name], catalogue(kind)[name]
    other = catalogue(kind)[own["like"]]
    parts = {k: v for k, v in own.items() if isinstance(v, dict) and "source" in v}
    texts = [own["source"].get(k) for k in own.keys() - parts.keys() - {"name", "note", "source"}]
    for text in (*texts, *(part["source"] for part in parts.values())):
        assert text and not text.startswith(("Fitted", "taken over"))
    for key in other.keys() - {"name", "note", "source"} - own.keys():
        assert whole[key] == other[key] or {**other[key], "source": ""} == {**whole[key], "source": ""}


def test_an_entry_like_another() -> None:
    """Parts with a source of their own are completed key by key, other objects stand whole, each source says whose."""
    entry = {
        "name": "B",
        "like": "A",
        "products": {"share": {"bf16": 0.5}, "source": "measured"},
        "peak": {"bf16": 9.0},
        "source": {"like": "no B row", "peak": "datasheet of B"},
    }
    assert completed(entry, {"A": A}) == {
        "name": "B",
        "products": {"share": {"bf16": 0.5}, "tail": 3.0, "source": "measured"},
        "peak": {"bf16": 9.0},
        "ports": 8,
        "source": {"peak": "datasheet of B", "ports": "taken over from A, no B row"},
    }
    bare = completed({"name": "B", "like": "A"}, {"A": A})
    taken = "taken over from A"
    assert bare["products"] == A["products"] | {"source": taken} and bare["source"] == {"peak": taken, "ports": taken}


@pytest.mark.parametrize("pooled", [False, True])
def test_an_inline_accelerator_like_one_of_the_catalogue(pooled: bool) -> None:
    """An instance or a pool may state one figure of a GPU and take the rest over; an unknown name is told."""
    data = json.loads((shipped_folder() / f"{'two-pools' if pooled else 'one-rack'}.json").read_text(encoding="utf-8"))
    holder = data["hardware"]["pools"][1] if pooled else data["hardware"]
    path = "hardware.pools[1].accelerator.like" if pooled else "hardware.accelerator.like"
    holder["accelerator"] = {"name": "mine", "like": "GB200", "hbm_bytes": 1e11}
    hardware = load_instance(data).hardware
    gpu = hardware.pools[1].accelerator if pooled else hardware.accelerator
    entry = catalogue("accelerators")["GB200"]
    assert isinstance(gpu, Accelerator) and (gpu.name, gpu.hbm_bytes) == ("mine", 1e11)
    assert gpu.gemm_efficiency.max_share == entry["gemm_efficiency"]["max_share"]
    assert gpu.source["nic_efficiency"] == "taken over from GB200"
    holder["accelerator"]["like"] = "GB20"
    with pytest.raises(InputError, match=re.escape(f"{path}: 'GB20' is not in the catalogue; did you mean")):
        load_instance(data)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (calibration_rows.ACCELERATORS.values(), "accelerators"),
        (calibration_rows.RACKS.keys(), "accelerators"),
        (calibration_rows.RACKS.values(), "racks"),
        (calibration_rows.MODELS.values(), "models"),
        ([name for _, name in calibration_rows.FRAMEWORKS], "software"),
    ],
    ids=["accelerators", "accelerators of racks", "racks", "models", "frameworks"],
)
def test_names_of_measured_rows_lead_to_the_catalogue(names: list[str], kind: str) -> None:
    """Every name that a table of measured rows may lead to is an entry."""
    assert set(names) <= set(catalogue(kind))
