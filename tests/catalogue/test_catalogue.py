"""The catalogue: every entry is valid, sourced, agrees with what is known; entries like another; derived figures."""

import json
import math
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import calibration_rows
import pytest
from each_case import each
from fitted_constants import EVERY
from worked_plan import instance_with, with_entries

import planner
from planner.errors import InputError
from planner.imports.instance_file import shipped_folder
from planner.instance.base_types import Sourced
from planner.instance.catalogue_entries import catalogue, completed
from planner.instance.hardware import Accelerator, Rack
from planner.instance.network import Medium, Network, Switch
from planner.instance.software import REPLACED, SWITCHES, Software
from planner.instance.workload import Model
from planner.physics.training.transformer import total_parameters
from planner.plan.plan_figures import runs
from planner.planning.load import load_instance

TYPES: dict[str, type[Sourced]] = {
    "accelerators": Accelerator, "racks": Rack, "switches": Switch, "models": Model, "media": Medium,
    "software": Software,
}  # fmt: skip
# Billions of parameters by model, as its publisher says, and as its configuration of kimi-k2, whose paper says 1,040.
NOMINAL = """gpt3-175b 175, megatron-22b 22, megatron-530b 530, megatron-1t 1008, llama3-70b 70.6, llama3-405b 405,
    agache-50t 52500, agache-100t 99200, turing-530b 530, nemotron-4-340b 341, llama-2-7b 6.74, llama-2-13b 13.02,
    llama-2-70b 68.98, llama-3.1-8b 8.03, llama-3.1-70b 70.6, llama-3.1-405b 405, mixtral-8x7b 46.7,
    qwen3-30b-a3b 30.5, qwen3-235b-a22b 235, gpt-oss-120b 116.8, deepseek-v3 671, kimi-k2 1026, deepseek-v2 236,
    palm-540b 540, gpt-oss-20b 20.9, qwen3-8b 8.2, mixtral-8x22b 140.6, nemotron-4-15b 15.6, nemotron-3-8b 8.5,
    nemotron-3-22b 21.3"""

FOLDER = Path(planner.__file__).parent / "catalogue"
RAW: dict[str, dict[str, Any]] = {
    kind: json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8")) for kind in ("accelerators", "software")
}


def test_entries_say_where_each_figure_is_from():
    """One text covers all figures; a text by key must cover each of them, and no key that is not there."""
    for kind, name, entry in ((x, *item) for x in TYPES for item in catalogue(x).items()):
        assert TYPES[kind].model_validate(entry).name == name
        source = entry["source"]
        if isinstance(source, str):
            assert source.strip(), (kind, name)
            continue
        parts = {k for k, v in entry.items() if isinstance(v, dict) and "source" in v}
        words = {*SWITCHES, "released", "expert_overlap_layouts"}
        figures = {k for k, v in entry.items() if not isinstance(v, str) or k in words} - {"source"} - parts
        assert set(source) == figures, (kind, name)
        empty = [k for k, text in source.items() if not text.strip()]
        assert empty + [part for part in parts if not entry[part]["source"].strip()] == [], (kind, name)
    # Each framework states its ZeRO stages and ways to divide a step; ideal alone leaves them out.
    for name, entry in catalogue("software").items():
        assert all(name == "ideal" or entry["source"][key].strip() for key in ("zero_stages", "parallelism")), name
    built_for = catalogue("rack_accelerators")
    assert set(built_for) == set(catalogue("racks"))
    for name, entry in built_for.items():
        assert entry["accelerators"] and set(entry["accelerators"]) <= set(catalogue("accelerators")), name
        assert entry["source"].strip(), name


def test_names_of_measured_rows_lead_to_the_catalogue() -> None:
    """An accelerator without measured rows is like one that has some: it keeps no copy of fitted figures."""
    names = {
        "accelerators": {*calibration_rows.ACCELERATORS.values(), *calibration_rows.RACKS},
        "racks": set(calibration_rows.RACKS.values()),
        "models": set(calibration_rows.MODELS.values()),
        "software": {name for _, name in calibration_rows.FRAMEWORKS},
    }
    assert {kind: own - catalogue(kind).keys() for kind, own in names.items()} == {kind: set() for kind in names}
    entries = RAW["accelerators"]
    assert set(EVERY) == {name for name, entry in entries.items() if "like" not in entry}
    assert {entry["like"] for entry in entries.values() if "like" in entry} <= set(EVERY)


def test_peaks_are_dense():
    """Halving the type doubles the dense peak, on Gaudi 3 not that of fp8; bf16 equals fp16 where there is that."""
    for name, entry in catalogue("accelerators").items():
        peak = entry["peak_flop_per_second"]
        assert peak["bf16"] == peak.get("fp16", peak["bf16"]), name
        assert ("fp16" in peak) == (not name.startswith("TPU")), name
        assert peak.get("fp8", 2 * peak["bf16"]) == (1 if name == "Gaudi-3" else 2) * peak["bf16"], name
        assert "fp4" not in peak or peak["fp4"] >= 2 * peak["fp8"], name


def test_parameters_are_nominal():
    nominal = {name: 1e9 * float(n) for name, n in (x.split() for x in NOMINAL.split(","))}
    found = {name: total_parameters(Model.model_validate(entry)) for name, entry in catalogue("models").items()}
    assert {name: n for name, n in found.items() if n != pytest.approx(nominal[name], rel=0.01)} == {}


def test_chips_carry_the_ports():
    """The chips of a box switch what its ports carry, and boxes of 51.2T chips cost and draw by the chip."""
    one = Switch.model_validate(catalogue("switches")["51.2T-64x800G"])
    for name, entry in catalogue("switches").items():
        switch, chip = Switch.model_validate(entry), float(name.split("T-")[0])
        assert switch.ports * switch.port_gbps / switch.planes / 1e3 == pytest.approx(chip, rel=1e-9), name
        if chip == 51.2:
            assert switch.price_usd == switch.planes * one.price_usd, name
            assert switch.power_watts == switch.planes * one.power_watts, name


@each(("old", "new"), [
    ({"pipeline_overlap": 0.0}, {"overlaps": ("experts", "context", "gradients", "parameters", "tensor")}),
    ({"context_overlap": 0, "data_exposed": 1}, {"overlaps": ("experts", "parameters", "sends", "tensor")}),
    ({"pipeline_overlap": 1.0, "context_overlap": 1.0, "data_exposed": 0.0}, {"note": None}),
    ({"data_exposed": 0.2}, {"note": "not modelled: data_exposed 0.2 (overlaps follow the schedule)"}),
    ({"expert_once_per_domain": True, "dispatch_seconds": 1e-4}, {"dispatcher": "deep_ep", "deep_ep_seconds": 1e-4}),
    ({"expert_once_per_domain": False}, {"dispatcher": "all_to_all", "all_to_all_seconds": 0.0}),
    ({"dispatch_seconds": 1e-4}, {"dispatcher": "all_to_all", "all_to_all_seconds": 1e-4}),
])  # fmt: skip
def test_keys_of_before_are_read_as_the_switches_in_their_place(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert {key: getattr(Software.model_validate({"name": "own", **old}), key) for key in new} == new
    for key in old:
        with pytest.raises(ValueError, match=f"{key} must be from 0 to 1 .is 2"):
            Software.model_validate({"name": "own", key: 2})


@each("key", sorted(REPLACED))
def test_a_key_that_others_replaced_names_them(key: str) -> None:
    """Beside such a switch a key of before is refused with what says the same now."""
    data = json.loads(planner.changed("cluster-1k", {}).model_dump_json(exclude_none=True))
    data["workload"]["software"][key] = 0.5
    told = re.escape(f"has {key}, which is no key any more; give {REPLACED[key]}")
    with pytest.raises(planner.InputError, match=told):
        planner.solve(data)


@each(("choices", "ratios"), [
    ({}, [math.inf] * 3), ({"max_oversubscription": 4}, [4.0, 4.0, 4.0]),
    ({"max_oversubscription": [2, 8]}, [2.0, 8.0, 8.0]),
    ({"max_oversubscription": [2, 8, 3]}, [2.0, 8.0, 3.0]),
    ({"max_oversubscription": [4]}, [4.0, 4.0, 4.0]), ({"min_core_share": 0.25}, [4.0, 4.0, 4.0]),
    ({"min_core_share": 0.25, "max_oversubscription": [2, 8]}, [2.0, 4.0, 4.0]),
    ({"min_core_share": 0.25, "max_oversubscription": 2}, [2.0, 2.0, 2.0]),
])  # fmt: skip
def test_the_narrowest_of_the_asked_ratios_holds(choices: dict[str, object], ratios: list[float]) -> None:
    """A quarter of the rate up is four ports down to one up; of two rules for a tier the stricter one holds."""
    network = Network.model_validate(instance_with().network.model_dump() | choices)
    assert [network.ratio_of(tier) for tier in range(3)] == ratios


def test_counts_are_written_as_runs() -> None:
    assert [runs(x) for x in ((), (5,), (2, 2, 2, 1), (1, 2, 2, 1, 1))] == ["", "5", "3x2 1", "1 2x2 2x1"]
    rng = random.Random(1)
    for _ in range(100):
        counts = tuple(rng.choices((1, 2, 30), k=rng.randint(1, 12)))
        parts = [part.rpartition("x") for part in runs(counts).split()]
        assert tuple(int(n) for times, _, n in parts for _ in range(int(times or 1))) == counts
        assert all(a[2] != b[2] for a, b in pairwise(parts)) and all(int(times or 2) > 1 for times, *_ in parts)


A: dict[str, Any] = {
    "name": "A", "products": {"share": {"bf16": 0.7, "fp8": 0.8}, "tail": 3.0, "source": "Fitted"},
    "peak": {"bf16": 1.0, "fp8": 2.0}, "ports": 8, "note": "x",
    "source": {"peak": "datasheet of A", "ports": "datasheet of A"},
}  # fmt: skip


@each(("kind", "name"), [(kind, name) for kind in RAW for name, entry in RAW[kind].items() if "like" in entry])
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
        "name": "B", "like": "A", "products": {"share": {"bf16": 0.5}, "source": "measured"}, "peak": {"bf16": 9.0},
        "source": {"like": "no B row", "peak": "datasheet of B"},
    }  # fmt: skip
    own = {"products": entry["products"] | {"tail": 3.0}, "peak": {"bf16": 9.0}, "ports": 8}
    source = {"peak": "datasheet of B", "ports": "taken over from A, no B row"}
    assert completed(entry, {"A": A}) == {"name": "B", **own, "source": source}
    bare = completed({"name": "B", "like": "A"}, {"A": A})
    taken = "taken over from A"
    assert bare["products"] == A["products"] | {"source": taken} and bare["source"] == {"peak": taken, "ports": taken}


@each(("instance", "path"), [
    ("one-rack", "accelerator"), ("two-pools", "pools.0.accelerator"), ("two-pools", "pools.1.accelerator"),
])  # fmt: skip
def test_an_inline_accelerator_like_one_of_the_catalogue(instance: str, path: str) -> None:
    """An instance or a pool may state figures of a GPU and take the rest over; a wrong name is told with others."""
    data = json.loads((shipped_folder() / f"{instance}.json").read_text(encoding="utf-8"))
    mine = {"name": "mine", "like": "GB200", "hbm_bytes": 1e11}
    gpu: Any = load_instance(with_entries(data, {f"hardware.{path}": mine})).hardware
    for key in path.split("."):
        gpu = gpu[int(key)] if key.isdecimal() else getattr(gpu, key)
    entry = catalogue("accelerators")["GB200"]
    assert isinstance(gpu, Accelerator) and (gpu.name, gpu.hbm_bytes) == ("mine", 1e11)
    assert gpu.gemm_efficiency.max_share == entry["gemm_efficiency"]["max_share"]
    assert gpu.source["nic_efficiency"] == "taken over from GB200"
    place = re.sub(r"\.(\d)", r"[\1]", f"instance: hardware.{path}.like")
    due = "must be a name of the catalogue (is {}); fix it there"
    told = {"GB20": "'GB20' is not in the catalogue; did you mean 'GB200'?", 3: due.format(3), None: due.format("null")}
    for like, complaint in told.items():
        with pytest.raises(InputError) as refused:
            load_instance(with_entries(data, {f"hardware.{path}": mine | {"like": like}}))
        assert str(refused.value) == f"{place}: {complaint}"
    with pytest.raises(InputError) as refused:
        load_instance(with_entries(data, {f"hardware.{path}": mine | {"like": "GB20", "hbm_bytes": -5}}))
    due = place.replace("like", "hbm_bytes: input should be greater than 0 (is -5); fix it there")
    assert str(refused.value) == f"{place}: {told['GB20']}\n{due}"


@each(("key", "law", "complaint"), [
    ("law", {"kind": "x", "e": 1}, ".kind: input should be 'points' or 'loss' (is \"x\"); fix it there"),
    ("law", {"kind": "loss", "like": "x"}, ".like: unknown key; known: a, alpha, b, beta, e, kind, note, source"),
    ("loss", {"kind": "points", "flop": [1]}, ".kind: input should be 'loss' (is \"points\"); fix it there"),
])  # fmt: skip
def test_a_law_of_a_wrong_kind_is_told_so_and_no_key_of_it(key: str, law: dict[str, Any], complaint: str) -> None:
    data = json.loads((shipped_folder() / "5gw-best-6-months.json").read_text(encoding="utf-8"))
    with pytest.raises(InputError) as refused:
        load_instance(with_entries(data, {f"workload.choose.{key}": law}))
    assert str(refused.value) == f"instance: workload.choose.{key}{complaint}"
