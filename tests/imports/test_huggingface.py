"""Models of Hugging Face configurations: 31 public ones against their published sizes, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from each_case import each

import planner
from planner.errors import InputError
from planner.imports.huggingface import FAMILIES, read_config, read_model
from planner.instance.workload import LatentAttention
from planner.physics.training.transformer import active_parameters, attention_parameters, total_parameters
from planner.planning.load import load_instance

CONFIGS = Path(__file__).parent / "hf_configs"
INSTANCES = Path(__file__).parents[2] / "instances"
NAMES = sorted(p.stem for p in CONFIGS.glob("*.json"))
# Published figures of activated weights are rounded, and count the embedding or leave it out; these are further off.
ROUGH_ACTIVE = {"olmoe-1b-7b": 0.05, "glm-4.5": 0.03, "deepseek-v2-lite": 0.15}


def known(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def changed(name: str, **keys: Any) -> dict[str, Any]:
    """Return a public configuration with other values; None leaves a key out."""
    return {k: v for k, v in (known(name)["config"] | keys).items() if v is not None or k not in keys}


def inside(name: str, **keys: Any) -> dict[str, Any]:
    """Return a known configuration of pictures and text with keys of its Transformer changed."""
    config = known(name)["config"]
    return config | {"text_config": config["text_config"] | keys}


def test_parameters_are_the_published() -> None:
    """Weights of the model read are those published, to 1 %: biases, norms and positions are not counted.

    They are of at least twenty public configurations, each with its source; the page on formats lists every family.
    """
    every = {name: known(name) for name in NAMES}
    assert len(every) >= 20 and len({x["config"]["model_type"] for x in every.values()}) >= 12
    for name, data in every.items():
        model, published = read_config(data["config"], name, name), data["published"]
        assert data["source"].startswith("https://") and published["source"]
        assert total_parameters(model) == pytest.approx(published["parameters"], rel=0.01)
        if (active := published.get("active_parameters")) is not None:
            counts = [active_parameters(model), active_parameters(model, embedding=True)]
            assert min(abs(c / active - 1) for c in counts) < ROUGH_ACTIVE.get(name, 0.025)
    assert any("active_parameters" in x["published"] for x in every.values())
    page = (INSTANCES.parent / "docs" / "formats.md").read_text()
    listed = page.partition("`model_type`: ")[2].partition(".\n")[0].replace("\n", " ")
    assert [name.strip() for name in listed.split(",")] == sorted(FAMILIES)


def test_windows() -> None:
    """A `max_window_layers` of null is read as one that is left out: windows begin at the first layer."""
    seen = {n: read_config(known(n)["config"], n, n) for n in NAMES}
    windows = {"gemma-2-9b": (4096, 21), "gemma-3-27b": (1024, 52), "gpt-oss-20b": (128, 12)}
    windows |= {"llama-4-maverick": (8192, 36), "llama-4-scout": (8192, 36), "mistral-7b": (4096, 32)}
    windows |= {"phi-3-mini": (2047, 32), "qwen3-next-80b-a3b": (192, 36)}
    assert {n: (m.window, m.window_layers) for n, m in seen.items() if m.window_layers} == windows
    without = changed("qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=None)
    for config in (without, without | {"max_window_layers": None}):
        model = read_config(config, "x", "x")
        assert model.window_layers == model.layers


def test_attention_and_experts_of_several_kinds() -> None:
    """Queries of DeepSeek-V2-Lite have no rank: 2048 x 16 x 192 weights. A token of V3 goes to four of eight groups."""
    lite = read_config(known("deepseek-v2-lite")["config"], "x", "lite")
    assert lite.latent_attention.q_rank is None
    rank = LatentAttention(**lite.latent_attention.model_dump() | {"q_rank": 1})
    more = attention_parameters(lite) - attention_parameters(lite.replaced(latent_attention=rank))
    assert more == 2048 * 16 * 192 - 2048 - 16 * 192
    config = known("deepseek-v3")["config"]
    given = ({"n_group": 8, "topk_group": 4}, {"n_group": 8}, {"n_group": 1, "topk_group": 1})
    found = [read_config(config | groups, "x", "v3").experts for groups in given]
    assert [(x.groups, x.groups_per_token) for x in found if x is not None] == [(8, 4), (8, 8), (1, 1)]
    silent = changed("llama-2-7b", tie_word_embeddings=None)  # tied where transformers ties them
    tied = [read_config(silent | {"model_type": kind}, "x", kind).tied_embeddings for kind in ("llama", "smollm3")]
    assert tied == [False, True]
    # Heads of linear attention that together are as wide as the model need no size of their own.
    heads = known("qwen3-next-80b-a3b")["config"]["hidden_size"] // 256
    config = changed("qwen3-next-80b-a3b", num_attention_heads=heads, num_key_value_heads=heads, head_dim=256)
    assert read_config(config, "x", "x").head == 256


def test_what_is_not_counted_is_noted() -> None:
    """Layers for further tokens, parts beside the text, and unknown keys are told; all other keys are known."""
    notes = {n: read_config(known(n)["config"], "x", n).note for n in NAMES}
    assert {n: note for n, note in notes.items() if note} == {
        "deepseek-v3": "not modelled: num_nextn_predict_layers (is 1)",
        "falcon-40b": "not modelled: parallel_attn (is True)",
        "falcon-7b": "not modelled: parallel_attn (is True)",
        "gemma-3-27b": "not modelled: vision_config",
        "glm-4.5": "not modelled: num_nextn_predict_layers (is 1)",
        "llama-4-maverick": "not modelled: attention_chunk_size (chunks are taken as windows), "
        "interleave_moe_layer_step (24 of 48 layers have experts, each layer here has their mean), vision_config",
        "llama-4-scout": "not modelled: attention_chunk_size (chunks are taken as windows), vision_config",
        "qwen3-next-80b-a3b": "not modelled: linear attention of 36 of 48 layers (windows of equal work, "
        "its projections in the shared expert)",
    }
    strange = known("llama-2-7b")["config"] | {"altup_num_inputs": 4, "use_cache": True, "mlp_bias": False}
    assert read_config(strange, "x", "strange").note == "not modelled: altup_num_inputs (unknown)"


@each(("config", "complaint"), [
    ({"hidden_size": 4}, "x: model_type: is missing; give a Hugging Face config.json"),
    ([], "x: model_type: is missing; give a Hugging Face config.json"),
    (changed("llama-2-7b", model_type="mamba2"), "x: model_type: 'mamba2' is not read; known: bloom"),
    (changed("llama-2-7b", model_type="qwen3moe"), "did you mean 'qwen3_moe'?; or give workload.model inline"),
    (changed("llama-2-7b", num_hidden_layers=None), "x: num_hidden_layers: is missing; add it"),
    (changed("llama-2-7b", intermediate_size=None), "x: intermediate_size: is missing; add it"),
    *(
        (changed(name, **{key: wrong}), f"x: {key}: must be a whole number from 0 (is {wrong})")
        for name, key in (("llama-2-7b", "intermediate_size"), ("falcon-40b", "ffn_hidden_size"))
        for wrong in (False, [])
    ),
    (changed("llama-2-7b", hidden_size="4096"), "x: hidden_size: must be a whole number from 0 (is '4096')"),
    (changed("qwen3-30b-a3b", decoder_sparse_step=2), "x: decoder_sparse_step: is 2; the planner knows dense"),
    (changed("qwen3-30b-a3b", mlp_only_layers=[4]), "x: mlp_only_layers: is [4]; the planner knows dense layers"),
    (changed("qwen3-30b-a3b", mlp_only_layers=["0"]), "x: mlp_only_layers: is ['0']; the planner knows dense"),
    (changed("qwen3-30b-a3b", mlp_only_layers=4), "x: mlp_only_layers: must be a list (is 4); correct it"),
    (inside("llama-4-scout", no_rope_layers=1), "x: no_rope_layers: must be a list (is 1); correct it"),
    (inside("llama-4-scout", interleave_moe_layer_step=0), "x: interleave_moe_layer_step: must be at least 1"),
    (inside("gemma-3-27b", sliding_window_pattern="2"), "x: sliding_window_pattern: must be a whole number"),
    (inside("llama-4-maverick", num_hidden_layers=0, moe_layers=[1], no_rope_layers=[]), "x: layers: "),
    (changed("qwen2.5-7b", use_sliding_window=True, max_window_layers="2"), "x: max_window_layers: must be a"),
    (changed("qwen3-next-80b-a3b", num_experts=0), "x: num_experts: is missing; add it"),
    (changed("qwen3-next-80b-a3b", num_hidden_layers=0), "x: layers: "),
    (changed("gpt-oss-20b", layer_types=["linear_attention"]), "x: layer_types: linear_attention is not known"),
    (changed("llama-2-7b", num_attention_heads=33), "x: heads must divide hidden (4096 / 33); give 32"),
])  # fmt: skip
def test_refused(config: Any, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(config, "x", "x")
    assert complaint in str(caught.value)


def test_a_config_is_a_workload(tmp_path: Path) -> None:
    """`"model": "config.json"` beside the instance is read, and evaluates as the catalogue's entry does."""
    (tmp_path / "llama-3.1-70b.json").write_text(json.dumps(known("llama-3.1-70b")["config"]))
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data["workload"]["model"] = "llama-3.1-70b.json"
    (tmp_path / "own.json").write_text(json.dumps(data))
    layout = {"tensor_parallel": 8, "pipeline_parallel": 4, "data_parallel": 8}
    own = planner.evaluate(tmp_path / "own.json", layout)
    data["workload"]["model"] = "llama-3.1-70b"
    assert own.step_seconds == planner.evaluate(data, layout).step_seconds
    assert load_instance(tmp_path / "own.json", searched=False).workload.model.name == "llama-3.1-70b"
    folder = tmp_path / "Llama-2-7b-hf"  # which names the model of a config.json
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(known("llama-2-7b")["config"]))
    assert read_model(folder / "config.json").name == read_model(folder).name == "Llama-2-7b-hf"
    data["workload"]["model"] = "nowhere/config.json"
    (tmp_path / "own.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"own.json: workload.model: .*nowhere/config.json: no such file"):
        load_instance(tmp_path / "own.json")
