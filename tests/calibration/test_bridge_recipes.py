"""Which stack and switches a published row of Megatron-Bridge or Megatron-LM ran with."""

import pytest
from bridge_recipes import BRIDGE, BRIDGE_2025, Stack, bridge_stack, recipe_stack, recipes
from fitted_constants import TUNED
from recent_rows import NEMO_2, recent_stack

from planner.instance.workload import SWITCHES, Software, catalogue


def stack(release: str, gpu: str, model: str, precision: str = "MXFP8", moe: str = "1", **more: str) -> Stack:
    row = {"table": f"{release} NeMo", "gpu_type": gpu, "moe": moe, "precision": precision, "id": "row"}
    return bridge_stack(row | more, model)


@pytest.mark.parametrize(
    ("release", "gpu", "model", "dispatcher", "graphs", "overlap"),
    [
        ("26.06", "GB300", "gpt-oss-120b", "hybrid_ep", "whole", True),
        ("26.08", "B300", "qwen3-30b-a3b", "hybrid_ep", "whole", True),
        ("26.08", "B300", "deepseek-v3", "hybrid_ep", "part", False),
        ("26.02", "B300", "qwen3-235b-a22b", "all_to_all", "none", True),
        ("26.02.01", "B300", "qwen3-235b-a22b", "deep_ep", "none", False),
        ("26.04", "GB300", "gpt-oss-120b", "all_to_all", "part", False),
        ("26.02", "GB200", "qwen3-235b-a22b", "hybrid_ep", "part", False),
    ],
)
def test_switches_of_a_mixture_of_experts(
    release: str, gpu: str, model: str, dispatcher: str, graphs: str, overlap: bool
) -> None:
    """Releases, machines and models as the published recipes have them; whole graphs come with fused experts."""
    found = stack(release, gpu, model)
    assert (found.switches["dispatcher"], found.switches["cuda_graphs"]) == (dispatcher, graphs)
    assert ("experts" in found.switches["overlaps"]) == overlap
    assert found.switches["fused_experts"] == (graphs == "whole") == (found.name == BRIDGE)
    assert found.switches["fp8_recipe"] == "mxfp8"


@pytest.mark.parametrize(
    ("release", "gpu", "model", "precision", "modules"),
    [
        ("26.04", "B200", "deepseek-v3", "MXFP8", ("mla_up_proj",)),
        ("26.02", "GB200", "gpt-oss-120b", "BF16", ("layernorm", "moe_act")),
        ("26.06", "GB300", "deepseek-v3", "MXFP8", None),
        ("26.02", "GB200", "qwen3-235b-a22b", "MXFP8", None),
    ],
)
def test_modules_that_recipes_run_again(
    release: str, gpu: str, model: str, precision: str, modules: tuple[str, ...] | None
) -> None:
    """A recipe that runs modules of a layer again says which; of others the switch stays as the preset has it."""
    assert stack(release, gpu, model, precision).switches.get("recompute_modules") == modules


def test_only_steps_in_8_bits_are_graphs_as_a_whole() -> None:
    """In 16 bits the recipes of 26.06 are those of the releases before; a note may say that experts overlap."""
    plain = stack("26.06", "GB200", "deepseek-v3", "BF16")
    noted = stack("26.06", "GB200", "deepseek-v3", "BF16", notes="EP overlap")
    assert plain.switches["cuda_graphs"] == "part" and "experts" not in plain.switches["overlaps"]
    assert "experts" in noted.switches["overlaps"]


@pytest.mark.parametrize(("release", "name"), [("25.11", BRIDGE_2025), ("26.06", BRIDGE)])
def test_dense_models_have_the_stack_of_their_release(release: str, name: str) -> None:
    """A dense model has the switches of the preset, but for how its FP8 is scaled."""
    assert stack(release, "GB200", "llama-3.1-8b", "FP8-CS", moe="") == Stack(name, {"fp8_recipe": "per_tensor"})


@pytest.mark.parametrize(
    ("source", "release", "found"),
    [
        ("MLPerf Training v4.1", "4.1", Stack("nemo-2024")),
        ("MLPerf Training v5.0", "5.0", Stack("nemo-2024", NEMO_2)),
        ("MLPerf Training v5.1", "5.1", Stack(BRIDGE_2025, {"fp8_recipe": "delayed"})),
        ("MLPerf Training v10.0", "10.0", Stack(BRIDGE_2025, {"fp8_recipe": "delayed"})),
        ("NVIDIA NeMo performance summary 25.02", "25.02", Stack("nemo-2024", NEMO_2)),
    ],
)
def test_releases_are_numbers_of_their_own_series(source: str, release: str, found: Stack) -> None:
    assert recent_stack({"source": source, "release": release}) == found


def test_names_of_recipes_say_their_switches() -> None:
    full = recipe_stack({"id": "a-fullCG_HybridEP_EP-overlap", "precision": "MXFP8"}).switches
    assert (full["cuda_graphs"], full["dispatcher"], full["overlaps"][-1]) == ("whole", "hybrid_ep", "experts")
    plain = recipe_stack({"id": "FP8-blockwise_routerCG", "precision": "FP8"}).switches
    assert (plain["cuda_graphs"], plain["dispatcher"], plain["fp8_recipe"]) == ("part", "all_to_all", "blockwise")


def test_recipes_are_switches_that_a_stack_has() -> None:
    """Every line of the table makes a stack."""
    base = Software.model_validate(catalogue("software")[BRIDGE_2025]).model_dump()
    for known in recipes().values():
        Software.model_validate(base | {k: known[k] for k in ("dispatcher", "cuda_graphs")})


def test_presets_of_one_library_differ_in_switches_alone() -> None:
    apart = {*SWITCHES, "name", "note", "source", "released"}
    entries = [Software.model_validate(catalogue("software")[name]).model_dump() for name in TUNED]
    plain = [{k: v for k, v in e.items() if k not in apart} for e in entries]
    assert all(e == plain[0] for e in plain)
