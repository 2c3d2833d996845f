"""The scripts that fit the catalogue: any table is read to its end, held-out errors are of rows a fit has not seen."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import accuracy_page
import calibrate
import numpy as np
import pytest
from bridge_recipes import BRIDGE, BRIDGE_2025, Stack, bridge_stack, recipe_stack, recipes, titan_stack
from calibration_rows import Case, read
from catalogue_files import catalogue_with, laid_out, on_a_bound, write
from each_case import each
from error_table import error_classes, multiple_of, spreads_of, write_points
from fitted_constants import ALIKE, CONSTANTS, TUNED, Known, whitened
from held_out import clusters, errors_by_half, errors_by_source
from recent_rows import LOSS_OF_MLPERF, NEMO_2, recent_stack

from planner.calibration.constants import CODE, GPU, FittedConstant, is_tunable
from planner.calibration.fit import log_errors
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.software import SWITCHES, Software
from planner.physics.training import step_errors
from planner.physics.training.step_errors import MIN_ROWS, ErrorTable, classes_of
from planner.planning.evaluate import SET_BY

EMPTY = "moe", "ffn", "kv_heads", "fsdp", "interleave_vp", "zero", "recompute", "seq_parallel", "oom", "derived_step_s"
FINE = dict.fromkeys(EMPTY, "") | {
    **{"id": "a", "source": "NVIDIA Megatron-Bridge performance summary", "table": "26.08", "model": "GPT 1B"},
    **{"layers": "12", "hidden": "1024", "heads": "16", "seq": "2048", "vocab": "51200", "global_batch": "8"},
    **{"micro_batch": "1", "gpus": "8", "gpu_type": "H100", "precision": "bf16"},
    **{"TP": "1", "PP": "1", "DP": "8", "CP": "1", "EP": "1", "step_s": "0.5"},
}
"""A row of the table of published steps."""


def rows_read(tmp_path: Path, *changes: dict[str, str]) -> tuple[list[Case], list[str]]:
    """Return the cases and the reasons of a table of the fine row with changes."""
    path = tmp_path / "published_steps.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(FINE))
        writer.writeheader()
        writer.writerows(FINE | {"id": str(i)} | change for i, change in enumerate(changes))
    return read(path)


WHOLE = "is not a whole number from 1"
WRONG = [
    ({"TP": "0"}, f"TP {WHOLE}"), ({"PP": "-1"}, f"PP {WHOLE}"), ({"DP": "eight"}, f"DP {WHOLE}"),
    ({"gpus": "7.5"}, f"gpus {WHOLE}"), ({"gpus": "16"}, "TP x CP x PP x DP is not the number of GPUs"),
    ({"TP": "3", "gpus": "24"}, "TP does not divide the heads"), ({"gpu_type": "H999"}, "names or lacks 'H999'"),
    ({"PP": "32", "gpus": "256"}, "has more stages than layers"), ({"hidden": "1023"}, "describes no run: "),
    ({"global_batch": "12"}, "DP x micro-batch does not divide the global batch"),
    ({"gpu_type": "A100-80GB", "precision": "fp8"}, "names or lacks 'fp8'"),
    *(({"step_s": seconds}, "step_s is not a time") for seconds in ("fast", "0", "nan")),
]  # fmt: skip


@each(("change", "reason"), WRONG)
def test_an_impossible_row_is_left_out(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    cases, left = rows_read(tmp_path, {}, change, {})
    assert [(c.id, c.source, c.strategy.gpus) for c in cases] == [(x, FINE["source"], 8) for x in "02"]
    assert len(left) == 1 and reason in left[0]


@each("text", ["", "x,y\n1,2\n", "id,gpu_type\n1\n2,H100,3\n"])
def test_another_table_is_read_to_its_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    cases, left = read(path)
    assert (cases, len(left)) == ([], max(0, text.count("\n") - 1))


def test_the_script_ends_with_one_where_a_constant_is_on_a_bound(tmp_path, monkeypatch, capsys):
    """The status is 1 and the constant is named where one lies on a bound, else 0."""
    c = FittedConstant("software", ("torchtitan",), "step_seconds", 0.01, 1.0)
    assert on_a_bound([c] * 4, [0.0102, 0.98, 0.0105, 0.5]) == []
    assert [line.split(" is ")[0] for line in on_a_bound([c, c], [0.01005, 0.995])] == ["torchtitan: step_seconds"] * 2
    rows_read(tmp_path, {}, {"TP": "0"})
    monkeypatch.setattr("sys.argv", ["calibrate.py", str(tmp_path / "published_steps.csv")])
    for value, status in ((0.3, 0), (0.98, 1)):
        monkeypatch.setattr(calibrate, "on_a_bound", lambda *_, v=value: on_a_bound([SHARE], [v]))
        with pytest.raises(SystemExit) as ended:
            calibrate.main()
        printed = capsys.readouterr().out
        assert ended.value.code == status
        assert ("on the bound 0.98" in printed) == bool(status)
        assert "1 rows read, 1 left out:\n  1 rows: TP is not a whole number from 1" in printed


SHARE = FittedConstant("accelerators", ("H100", "H200"), "gemm_efficiency.max_share.bf16", 0.15, 0.98)


def test_every_constant_is_one_of_users_too() -> None:
    """What the scripts fit, a user's own lines may determine and an evaluation names as a constant behind a part."""
    names = {name for part in SET_BY.values() for name in part}
    behind = {(GPU if name.partition(".")[0] in Accelerator.model_fields else CODE) + name for name in names}
    for constant in CONSTANTS:
        assert 0 < constant.low < constant.high and constant.read() >= 0, constant
        assert set(constant.entries) <= set(catalogue(constant.kind)), constant
        path = (GPU if constant.kind == "accelerators" else CODE) + constant.path
        assert any(path == p or path.startswith(f"{p}.") for p in behind), constant
        product = constant.path == "attention_share"  # with attention_efficiency, from which no line tells it
        assert is_tunable(path) or product, constant


def test_constants_are_written_to_every_entry(tmp_path: Path) -> None:
    """Written constants stand in each entry that shares them, FP16 with BF16, and the files keep their layout."""
    for kind in ("accelerators", "software"):
        (tmp_path / f"{kind}.json").write_text(laid_out(catalogue(kind)))
    before = (tmp_path / "software.json").read_text()
    write(tmp_path, [SHARE], [0.5])
    entries = json.loads((tmp_path / "accelerators.json").read_text())
    for name in SHARE.entries:
        gpu = Accelerator.model_validate(entries[name])
        assert gpu.gemm_efficiency.max_share["fp16"] == gpu.gemm_efficiency.max_share["bf16"] == 0.5
    assert (tmp_path / "software.json").read_text() == before


def test_a_source_is_predicted_without_itself(tmp_path: Path) -> None:
    """A constant that only the source left out shows is at its centre, not at the value that the source gave it."""
    cases, _ = rows_read(tmp_path, *({"TP": t, "DP": str(8 // int(t))} for t in "1248"))
    m = replace(cases[0].machine, gpu=Accelerator.model_validate(catalogue("accelerators")["A100-80GB"]))
    torch = [replace(c, source="other", id=f"other{c.id}", machine=m) for c in cases]
    a100 = FittedConstant("accelerators", ("A100-80GB",), "gemm_efficiency.max_share.bf16", 0.15, 0.98)
    known = [Known(SHARE, 0.6, 0.3), Known(a100, 0.4, 0.3)]
    errors = errors_by_source([*cases, *torch], known, [0.7, 0.8])
    wanted = np.expm1(log_errors(torch, [a100], [0.4]))
    assert [errors[c.id] for c in torch] == pytest.approx(wanted.tolist())


def test_a_catalogue_of_other_constants_ends_with_its_use() -> None:
    """Constants are put into every entry for a while, and what reads the catalogue predicts by them."""
    before = SHARE.read()
    with catalogue_with([SHARE], [0.5]):
        assert all(replace(SHARE, entries=(name,)).read() == 0.5 for name in SHARE.entries)
    assert SHARE.read() == before != 0.5


def test_half_a_cluster_predicts_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that take half as long again as predicted: a factor and constants by one half both predict the other."""
    degrees = [{"TP": t, "DP": str(8 // int(t))} for t in "1248"]
    few, _ = rows_read(tmp_path, *degrees)
    rows, _ = rows_read(tmp_path, *(x | {"seq": s} for x in degrees for s in ("1024", "4096")))
    assert clusters(few) == {} and [len(x) for x in clusters([*few, *rows]).values()] == [12]
    off = [1.5 * c.seconds * float(np.exp(log_errors([c], [], [])[0])) for c in rows]
    found = clusters([replace(c, seconds=seconds) for c, seconds in zip(rows, off, strict=True)])
    errors = {names: errors_by_half(cases, halvings=1) for names, cases in found.items()}
    (of_rows,) = errors.values()
    assert (of_rows.rows, of_rows.before, of_rows.factor) == (8, pytest.approx(1 / 3), pytest.approx(0.0, abs=1e-9))
    assert of_rows.calibrated < 0.02
    calibrate.print_halves("of two", errors | {("one",): replace(of_rows, calibrated=0.0)})
    assert "no worse than one factor on 1 of 2 clusters" in capsys.readouterr().out


def test_table_of_errors(tmp_path: Path) -> None:
    """Classes have their rows' bias, interval and ranges; one of few rows takes in what wider ones show."""
    cases, _ = rows_read(tmp_path, *({"step_s": str(1 + i)} for i in range(MIN_ROWS + 9)))
    few, many = cases[:MIN_ROWS], [replace(c, machine=replace(c.machine, sequence=8192)) for c in cases[MIN_ROWS:]]
    narrow = few[0].machine.precision.replaced(compute="fp8")
    few = [replace(c, machine=replace(c.machine, precision=narrow)) for c in few]
    errors = [-0.01] * len(few) + list(np.linspace(-0.2, 0.2, len(many)))
    own = dict(zip([c.id for c in (*few, *many)], errors, strict=True))
    found = ErrorTable.model_validate(error_classes([*few, *many], own))
    own = found.classes[next(iter(classes_of(few[0].machine, few[0].strategy)))]
    every = found.classes["any"]
    assert (own.rows, every.rows) == (MIN_ROWS, MIN_ROWS + 9)
    assert own.bias == -0.01
    (low, high), (first, last) = own.measured_over_predicted, every.measured_over_predicted
    assert first < low < 1 < high < last
    assert every.ranges["tokens a sequence"] == (2048, 8192)
    assert own.ranges["tokens a sequence"] == (2048, 2048)
    assert found.accelerators == {"H100": ("16-bit", "fp8")}


@pytest.mark.parametrize("sources", [5, 20])
def test_intervals_hold_for_a_source_that_they_have_not_seen(tmp_path: Path, sources: int) -> None:
    """Of made-up sources that differ as much as their rows, an interval without one holds 4 of 5 of its rows."""
    case = rows_read(tmp_path, {})[0][0]
    rng, inside = np.random.default_rng(sources), []
    for _ in range(40):
        logs = rng.normal(0, 0.05, (sources, 1)) + rng.normal(0, 0.05, (sources, 6))
        rows = [replace(case, source=str(i), id=f"{i} {j}") for i in range(sources) for j in range(6)]
        errors = dict(zip((c.id for c in rows), np.expm1(-logs).ravel().tolist(), strict=True))
        low, high = np.log(error_classes(rows[6:], errors)["classes"]["any"]["measured_over_predicted"])
        inside.append(np.mean((low <= logs[0]) & (logs[0] <= high)))
    assert 0.7 < np.mean(inside) < 0.87


def test_spreads_of_sources_and_rows_are_told_apart(tmp_path: Path) -> None:
    case = rows_read(tmp_path, {})[0][0]
    rng = np.random.default_rng(1)
    rows, errors = list[Case](), dict[str, float]()
    for i in range(400):
        alone = i % 2
        gpu = case.machine.gpu.replaced(name=f"GPU {i}") if alone else case.machine.gpu
        machine, mean = replace(case.machine, gpu=gpu), rng.normal(0, 0.1 if alone else 0.04)
        for j in range(6):
            rows.append(replace(case, source=str(i), id=f"{i} {j}", machine=machine))
            errors[rows[-1].id] = float(np.expm1(mean + rng.normal(0, 0.06)))
    found = spreads_of(rows, errors)
    assert (found.measured, found.unmeasured) == pytest.approx((0.04, 0.1), rel=0.15)
    assert found.rows[step_errors.ANY] == pytest.approx(0.06, rel=0.1)
    assert 1.15 < multiple_of(rows, errors, found) < 1.4  # of normal errors 1.28


def test_page_and_points(tmp_path: Path) -> None:
    cases, _ = rows_read(tmp_path, *({"step_s": "2"} for _ in range(10)))
    errors = {c.id: 0.1 * (i % 2) for i, c in enumerate(cases)}
    write_points(tmp_path / "points.csv", cases, errors, errors)
    points = accuracy_page.read(tmp_path / "points.csv")
    assert [p.error for p in points] == pytest.approx(list(errors.values()))
    name = accuracy_page.TABLE
    begin, end = accuracy_page.MARKS[name]
    text = accuracy_page.with_table(f"before\n{begin}old\n{end}after\n", name, accuracy_page.table(points))
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    line = next(x for x in text.splitlines() if x.startswith("| **all**"))
    low, high = step_errors.table().classes[step_errors.ANY].measured_over_predicted
    inside = np.mean([p.inside for p in points])
    assert line == f"| **all** | 10 | 5.0% | +5.0% | {low:.2f} to {high:.2f} | {inside:.0%} | +10% |"
    assert accuracy_page.with_table(text, name, accuracy_page.table(points)) == text
    assert accuracy_page.recent_table(points).count("\n") == 2
    assert accuracy_page.rule_table(points).endswith("16-bit dense: of one source, which has no rule.\n")


def stack(release: str, gpu: str, model: str, precision: str = "MXFP8", moe: str = "1", **more: str) -> Stack:
    row = {"table": f"{release} NeMo", "gpu_type": gpu, "moe": moe, "precision": precision, "id": "row"}
    return bridge_stack(row | more, model)


@each(("release", "gpu", "model", "dispatcher", "graphs", "overlap", "modules"), [
    ("26.06", "GB300", "gpt-oss-120b", "hybrid_ep", "whole", True, None),
    ("26.08", "B300", "qwen3-30b-a3b", "hybrid_ep", "whole", True, None),
    ("26.08", "B300", "deepseek-v3", "hybrid_ep", "part", False, ("mla_up_proj",)),
    ("26.02", "B300", "qwen3-235b-a22b", "all_to_all", "none", True, None),
    ("26.02.01", "B300", "qwen3-235b-a22b", "deep_ep", "none", False, None),
    ("26.04", "GB300", "gpt-oss-120b", "all_to_all", "part", False, None),
    ("26.06", "GB300", "deepseek-v3", "hybrid_ep", "whole", True, None),
    ("26.02", "GB200", "qwen3-235b-a22b", "hybrid_ep", "part", False, None),
])  # fmt: skip
def test_switches_of_a_mixture_of_experts(release, gpu, model, dispatcher, graphs, overlap, modules):
    """Releases, machines and models as the published recipes have them; whole graphs come with fused experts."""
    found = stack(release, gpu, model)
    assert (found.switches["dispatcher"], found.switches["cuda_graphs"]) == (dispatcher, graphs)
    assert ("experts" in found.switches["overlaps"]) == overlap
    assert found.switches["fused_experts"] == (graphs == "whole") == (found.name == BRIDGE)
    assert (found.switches["fp8_recipe"], found.switches.get("recompute_modules")) == ("mxfp8", modules)


@each(("release", "name"), [("25.11", BRIDGE_2025), ("26.06", BRIDGE)])
def test_stacks_of_16_bits_and_of_dense_models(release: str, name: str) -> None:
    """A dense model has the switches of the preset, but for how its FP8 is scaled; only steps in 8 bits are graphs."""
    # In 16 bits the recipes of 26.06 are those of the releases before; a note may say that experts overlap.
    assert stack(release, "GB200", "llama-3.1-8b", "FP8-CS", moe="") == Stack(name, {"fp8_recipe": "per_tensor"})
    plain = stack("26.06", "GB200", "deepseek-v3", "BF16").switches
    noted = stack("26.06", "GB200", "deepseek-v3", "BF16", notes="EP overlap").switches
    assert plain["cuda_graphs"] == "part" and "experts" not in plain["overlaps"] and "experts" in noted["overlaps"]
    again = stack("26.02", "GB200", "gpt-oss-120b", "BF16").switches["recompute_modules"]
    assert again == ("layernorm", "moe_act")


@each(("source", "release", "found"), [
    ("MLPerf Training v4.1", "4.1", Stack("nemo-2024")),
    ("MLPerf Training v5.0", "5.0", Stack("nemo-2024", NEMO_2 | LOSS_OF_MLPERF)),
    ("MLPerf Training v5.1", "5.1", Stack(BRIDGE_2025, {"fp8_recipe": "delayed"} | LOSS_OF_MLPERF)),
    ("MLPerf Training v10.0", "10.0", Stack(BRIDGE_2025, {"fp8_recipe": "delayed"} | LOSS_OF_MLPERF)),
    ("NVIDIA NeMo performance summary 25.02", "25.02", Stack("nemo-2024", NEMO_2)),
])  # fmt: skip
def test_releases_are_numbers_of_their_own_series(source: str, release: str, found: Stack) -> None:
    assert recent_stack({"source": source, "release": release}) == found


def test_logged_memory_is_that_of_a_stage() -> None:
    """What a rank logged as its most bytes lies from 6 % under one end of the pipeline to 6 % over the other."""
    rows, _ = read(Path(calibrate.__file__).parent / "rows" / "steps_2025_26.csv")
    logged = [(c.stages_memory(), c.logged_bytes) for c in rows if c.logged_bytes is not None]
    assert len(logged) == 12
    for stages, found in logged:
        ends = stages[0], stages[-1]
        assert 0.94 * min(ends) <= found <= 1.06 * max(ends)


def test_names_of_recipes_say_their_switches() -> None:
    full = recipe_stack({"id": "a-fullCG_HybridEP_EP-overlap", "precision": "MXFP8"}).switches
    assert (full["cuda_graphs"], full["dispatcher"], full["overlaps"][-1]) == ("whole", "hybrid_ep", "experts")
    plain = recipe_stack({"id": "FP8-blockwise_routerCG", "precision": "FP8"}).switches
    assert (plain["cuda_graphs"], plain["dispatcher"], plain["fp8_recipe"]) == ("part", "hybrid_ep", "blockwise")
    assert (full["fused_experts"], plain["fused_experts"]) == (True, False)
    assert recipe_stack({"id": "MXFP8-DeepEP", "precision": "MXFP8"}).switches["dispatcher"] == "deep_ep"
    shown = recipe_stack({"id": "mcore-Qwen3-30B-GB200-BF16", "precision": "BF16"}).switches["overlaps"]
    assert {"gradients", "parameters"}.isdisjoint(shown)


@each(("notes", "asynchronous"), [
    ("vanilla TP", False), ("memory in GiB; 2D; seq", False), ("memory in GiB; 2D+asyncTP; seq", True), ("1F1B", True),
])  # fmt: skip
@each("table", ["Table 4", ""])
def test_torchtitan_by_its_notes(notes: str, asynchronous: bool, table: str) -> None:
    """Notes say where TP is not asynchronous; rows of 2024, which name a table, do not compile the loss."""
    found = titan_stack({"notes": notes, "table": table}).switches
    assert ("tensor" in found.get("overlaps", ("tensor",))) == asynchronous
    assert ("logit_memory_bytes" in found) == ("fused_loss" in found) == bool(table)


def test_presets_of_one_library_differ_in_switches_alone() -> None:
    """Those of published recipes are switches that a stack has."""
    base = Software.model_validate(catalogue("software")[BRIDGE_2025]).model_dump()
    for recipe in recipes().values():
        Software.model_validate(base | {k: recipe[k] for k in ("dispatcher", "cuda_graphs")})
    apart = {*SWITCHES, "name", "note", "source", "released"}
    entries = [Software.model_validate(catalogue("software")[name]).model_dump() for name in TUNED]
    plain = [{k: v for k, v in e.items() if k not in apart} for e in entries]
    assert all(e == plain[0] for e in plain)


def test_costs_of_a_mechanism_on_two_stacks_correlate_beforehand() -> None:
    """Two stacks' traffic with spreads of 0.2 and 0.5 correlate; an accelerator's share stands alone."""
    paths = [("software", "a", "elementwise_traffic"), ("software", "b", "elementwise_traffic")]
    paths += [("accelerators", gpu, "hbm_efficiency") for gpu in ("c", "d")]
    known = [
        Known(FittedConstant(kind, (name,), path, 0.1, 9.0), 1.0, spread)  # type: ignore[arg-type]
        for (kind, name, path), spread in zip(paths, (0.2, 0.5, 0.1, 0.3), strict=True)
    ]
    root = whitened(known)
    expected = np.diag([0.04, 0.25, 0.01, 0.09])
    expected[0, 1] = expected[1, 0] = ALIKE * 0.2 * 0.5
    assert np.linalg.inv(root.T @ root) == pytest.approx(expected)
