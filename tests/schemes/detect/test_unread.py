"""Nothing that is quantised passes as plain, and nothing that is plain is dropped or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.schemes.detect.unread import _table
from helpers.claims import NORM, Q, Tensors, described, directory, empty, refusal
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

# --- encodings that are not read ------------------------------------------------------------------

# Method, or None where no config is needed; what its library stores; the tensors with the codes.
UNREAD: dict[str, tuple[dict[str, Any] | None, Tensors, list[str]]] = {
    "EETQ": (
        {"quant_method": "eetq"},
        {f"{Q}.weight": empty("I8", 64, 64), f"{Q}.weight_scales": empty("F16", 64)},
        [f"{Q}.weight", f"{Q}.weight_scales"],
    ),
    "SpQR": (
        {"quant_method": "spqr", "bits": 3},
        {
            f"{Q}.dense_weights": empty("I64", 64),
            f"{Q}.row_offsets": empty("I32", 65),
            f"{Q}.col_vals": empty("I32", 4),
            f"{Q}.in_perm": empty("I16", 64),
        },
        [f"{Q}.dense_weights"],
    ),
    "QuIP#": (
        {"quant_method": "quip"},
        {
            f"{Q}.Qidxs": empty("I64", 64, 8),
            f"{Q}.SU": empty("F16", 64),
            f"{Q}.Wscale": empty("F32"),
        },
        [f"{Q}.Qidxs"],
    ),
    "bare integers": (
        {"quant_method": "somebody's"},
        {f"{Q}.weight": empty("I8", 64, 64)},
        [f"{Q}.weight"],
    ),
    "bare integers in 64 bits": (
        {"quant_method": "somebody's"},
        {f"{Q}.weight": empty("I64", 8, 8)},
        [f"{Q}.weight"],
    ),
    "stacked integers": (
        {"quant_method": "somebody's"},
        {"model.layers.0.mlp.experts.down_proj": empty("U8", 2, 8, 8)},
        ["model.layers.0.mlp.experts.down_proj"],
    ),
    "quanto with whole shifts": (
        None,
        {
            f"{Q}.weight._data._data": empty("U8", 8, 96),
            f"{Q}.weight._scale": empty("BF16", 16, 1),
            f"{Q}.weight._shift": empty("I8", 16, 1),
            f"{Q}.input_scale": empty("BF16"),
        },
        [f"{Q}.weight._data._data", f"{Q}.weight._scale", f"{Q}.weight._shift"],
    ),
    "Transformer Engine": (
        None,
        {f"{Q}.weight": empty("F8_E4M3", 4, 4), f"{Q}._extra_state": empty("U8", 100)},
        [f"{Q}.weight"],
    ),
    "EETQ without a config": (
        None,
        {f"{Q}.weight": empty("I8", 64, 64), f"{Q}.weight_scales": empty("F16", 64)},
        [f"{Q}.weight"],
    ),
    "HQQ, codes of a pickle viewed as floats": (
        None,
        {
            f"{Q}.W_q": empty("BF16", 8, 8),
            f"{Q}.meta.scale": empty("BF16", 16, 1),
            f"{Q}.meta.zero": empty("BF16", 16, 1),
        },
        [f"{Q}.W_q"],
    ),
    "HQQ, the same with zero points in codes": (
        None,
        {f"{Q}.W_q": empty("F32", 8, 8), f"{Q}.meta.zero_q": empty("U8", 16, 1)},
        [f"{Q}.W_q"],
    ),
    "HQQ, codes viewed as floats": (
        None,
        {
            f"{Q}.W_q": empty("BF16", 8, 8),
            f"{Q}.scale": empty("BF16", 8),
            f"{Q}.zero": empty("BF16", 8),
        },
        [f"{Q}.W_q"],
    ),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_codes_never_pass_as_weights(kind: str, root: Path) -> None:
    section, tensors, codes = UNREAD[kind]
    config = {} if section is None else {"quantization_config": section}
    with an.parse(directory(root, config, NORM | tensors)) as model:
        for name in codes:
            assert name in model.problems
            with pytest.raises(
                an.UnsupportedError, match=r"cannot be decoded yet|looks like a part of a quantised"
            ):
                model[name]
        with pytest.raises(an.UnsupportedError) as caught:
            model.remember(root.parent / "out")
    assert not (root.parent / "out").exists()
    for part in (section or {}).get("quant_method", ""), Q if Q in codes[0] else codes[0]:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", UNREAD)
def test_what_passes_unread_stays_described(kind: str, root: Path) -> None:
    section, tensors, _ = UNREAD[kind]
    section = {**(section or {"quant_method": "mine"}), "weights": {"dtype": "int4"}}
    config = {"text_config": {"quantization_config": section}, "torch_dtype": "float16"}
    read = {"b.weight": empty("F8_E4M3", 4, 4), "b.weight_scale": empty("F32")}
    directory(root, config, NORM | tensors | read)
    (root / "hf_quant_config.json").write_text('{"producer": {"name": "modelopt"}}')
    out = root.parent / "out"
    with an.parse(root) as model:
        report = model.remember(out, allow_unknown=True)
    written = json.loads((out / "config.json").read_bytes())
    assert written["text_config"]["quantization_config"] == section
    assert (out / "hf_quant_config.json").read_text() == '{"producer": {"name": "modelopt"}}'
    assert report.still_quantized == ("config.json", "hf_quant_config.json")
    assert "config.json" in str(report)
    before, after = load_file(root / "model.safetensors"), load_file(out / "model.safetensors")
    assert after.keys() == before.keys() - {"b.weight_scale"}
    for name in tensors:
        assert after[name].dtype == before[name].dtype
    assert after["b.weight"].dtype == torch.bfloat16


def test_metadata_describe_what_passes_unread(tmp_path: Path) -> None:
    told = {"_quantization_metadata": json.dumps({"layers": {"a": {"format": "nvfp4"}}})}
    tensors = {"a.weight": empty("U8", 4, 4), "a.weight_scale_2": empty("F32")}
    source = write_safetensors(tmp_path / "a.safetensors", tensors, told)
    with an.parse(source) as model:
        model.remember(tmp_path / "out.safetensors", allow_unknown=True)
    with an.parse(tmp_path / "out.safetensors") as written:
        assert written.metadata["_quantization_metadata"] == told["_quantization_metadata"]


def of_row(row: Any) -> Tensors:
    """The tensors of one weight that a row of the table describes, as small as it allows."""
    names = [part.partition(":") for part in row.parts.split()]
    tensors: Tensors = {}
    for i, (name, _, dtypes) in enumerate(names):
        dtype = dtypes.split(",")[0] or ("I32" if i == 0 else "BF16")
        tensors[f"{Q}.{name}"] = empty(dtype, 4, 4)
    return tensors


@pytest.mark.parametrize("row", _table().rows, ids=lambda row: f"{row.encoding}-{row.producer}")
def test_each_row_is_reached(row: Any, root: Path) -> None:
    """No other row stands in its way, and nothing of it is read or passes for a weight."""
    # Without a config, INT8 is read as compressed-tensors'.
    method = row.method or ("another" if row.parts == "weight:I8 weight_scale" else None)
    section = {"quant_method": method} if method else None
    config = {} if section is None else {"quantization_config": section}
    with an.parse(directory(root, config, NORM | of_row(row))) as model:
        assert [name for name in model if name not in model.problems] == list(NORM)
        found = {getattr(error, "encoding", None) for error in model.problems.values()}
        called = f"{row.encoding} ({row.producer})" if row.producer else row.encoding
        assert len(found) == 1
        assert str(found.pop()).startswith(called)
        message = str(next(iter(model.problems.values())))
    told = "the config says " if section else "use the"
    assert re.search(rf" cannot be decoded yet(, for [^;]+)?; {told}", message)


@pytest.mark.parametrize(
    ("method", "called"),
    [("vptq", "VPTQ"), ("auto-round", "AutoRound"), ("fouroversix", "Four Over Six")],
)
def test_what_only_the_config_names(method: str, called: str, root: Path) -> None:
    config = {"quantization_config": {"quant_method": method, "bits": 3}}
    with an.parse(directory(root, config, NORM | {f"{Q}.weight": empty("U8", 8, 8)})) as model:
        (error,) = model.problems.values()
    assert isinstance(error, an.UnsupportedError)
    assert error.encoding == called
    assert f"; the config says {method}" in str(error)


def test_each_weight_is_named_by_itself(root: Path) -> None:
    tensors = {
        "a.Qidxs": empty("I16", 8, 8),
        "b.weight": empty("I8", 8, 8),
        "b.weight_scales": empty("BF16", 8, 1),
        "c.dense_weights": empty("I16", 4, 8),
    }
    with an.parse(directory(root, {}, tensors)) as model:
        found = {error.message.partition(": ")[2] for error in model.problems.values()}
    assert found == {
        "a.Qidxs (I16 [8, 8]): QuIP# cannot be decoded yet",
        "b.weight (I8 [8, 8]): INT8 (EETQ) cannot be decoded yet",
        "c.dense_weights (I16 [4, 8]): SpQR cannot be decoded yet",
    }


# --- a config that the tensors do not bear out ----------------------------------------------------

PLAIN: Tensors = {**NORM, f"{Q}.weight": empty("BF16", 8, 8)}
DECLARED = [
    ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
    ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
    ({"a": {"b": {"c": {"quantization_config": {"quant_method": "gptq"}}}}}, "gptq"),
    ({"models": [[{"quantization_config": {"quant_method": "awq"}}]]}, "awq"),
    (
        {"compression_config": {"quant_method": "compressed-tensors", "format": "x"}},
        "compressed-tensors, x",
    ),
    ({"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}}, "mlx, affine"),
    ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandb"),
    ({"quantization_config": {"quant_type": "int4_weight_only"}}, "a quantisation"),
]


@pytest.mark.parametrize(("config", "told"), DECLARED, ids=str)
def test_quantised_only_by_its_config(config: dict[str, Any], told: str, root: Path) -> None:
    with an.parse(directory(root, config, PLAIN)) as model:
        assert set(model.problems) == set(PLAIN)
        with pytest.raises(an.UnsupportedError, match=f"config says {told}.*remove that section"):
            model.remember(root.parent / "out")
        model.remember(root.parent / "out", allow_unknown=True)
    assert json.loads((root.parent / "out" / "config.json").read_bytes()) == config


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False}),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "version": "GEMM"}),
        ("quantization_config.json", {"quant_method": "auto-round", "bits": 4}),
        ("params.json", {"dim": 8, "quantization": {"qformat_weight": "fp8_e4m3"}}),
    ],
)
def test_quantised_only_by_another_file(name: str, told: dict[str, Any], root: Path) -> None:
    directory(root, {"model_type": "llama"}, PLAIN)
    (root / name).write_text(json.dumps(told))
    with an.parse(root) as model:
        assert set(model.problems) == set(PLAIN)
        report = model.remember(root.parent / "out", allow_unknown=True)
    assert report.still_quantized == (name,)
    assert json.loads((root.parent / "out" / name).read_bytes()) == told


def test_one_shard_may_have_nothing_quantised(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    with an.parse(described(tmp_path / "model-00001-of-00002.safetensors", config, PLAIN)) as model:
        assert not model.problems
        assert set(model) == set(PLAIN)
    with an.parse(described(tmp_path / "model.safetensors", config, PLAIN)) as model:
        assert set(model.problems) == set(PLAIN)


@pytest.mark.parametrize(
    "section",
    [
        None,
        {},
        {"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"},
        {"quant_algo": "NO_QUANT"},
        {"quant_method": "compressed-tensors", "sparsity_config": {"format": "dense"}},
        {"quant_method": "compressed-tensors", "config_groups": {}, "transform_config": {}},
        {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False},
    ],
    ids=str,
)
def test_sections_that_quantise_no_weight(section: dict[str, Any] | None, root: Path) -> None:
    kept = {f"{Q}.k_scale": empty("F32")}
    config = {"quantization_config": section}
    with an.parse(directory(root, config, PLAIN | kept)) as model:
        assert not model.problems
        model.remember(root.parent / "out")
    assert load_file(root.parent / "out" / "model.safetensors").keys() == (PLAIN | kept).keys()


# --- plain tensors that are no weights ------------------------------------------------------------


def integer_buffers() -> dict[str, torch.Tensor]:
    """The integer buffers of several models of transformers, which older files have."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    configs = [
        transformers.BertConfig(**small),
        transformers.RobertaConfig(**small),
        transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2),
        transformers.GPTNeoConfig(
            hidden_size=32, num_layers=1, num_heads=2, attention_types=[[["global"], 1]]
        ),
        transformers.SwinConfig(embed_dim=16, depths=[1], num_heads=[2]),
        transformers.Swinv2Config(embed_dim=16, depths=[1], num_heads=[2]),
        transformers.BeitConfig(use_relative_position_bias=True, **small),
        transformers.CLIPConfig(),
        transformers.LayoutLMv3Config(**small),
        transformers.LevitConfig(),
        transformers.ResNetConfig(),
        transformers.MimiConfig(),
        transformers.DacConfig(),
    ]
    found: dict[str, torch.Tensor] = {}
    for config in configs:
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(config)
        for name, buffer in model.named_buffers():
            if not buffer.dtype.is_floating_point:
                values = torch.zeros(buffer.shape, dtype=buffer.dtype)
                found[f"{config.model_type}.{name}"] = values
    mask = torch.ones(1, 1, 16, 16)
    found |= {"h.0.attn.bias": mask.to(torch.uint8), "h.1.attn.bias": mask.bool()}
    found["bert.embeddings.position_ids"] = torch.arange(16, dtype=torch.int32)[None]
    return found


def test_integer_buffers_beside_quantised_weights_stay(root: Path) -> None:
    buffers = integer_buffers()
    assert len(buffers) > 20
    fp8 = {"a.weight": torch.ones(8, 8).to(torch.float8_e4m3fn), "a.weight_scale": torch.ones(())}
    save_file(buffers | fp8, root / "model.safetensors")
    config = {"quantization_config": {"quant_method": "fp8"}}
    (root / "config.json").write_text(json.dumps(config))
    with an.parse(root) as model:
        assert not model.problems
        assert not model._ledger.dropped
        assert model.keys() == buffers.keys() | {"a.weight"}


ORDINARY: dict[str, Entry] = {
    "embed.weight": empty("I8", 16, 4),
    "tokens.weight": empty("I32", 16, 4),
    "table": empty("U8", 4, 4),
    "stats.absmax": empty("F32", 4),
    "audio.quantizer.codebooks": empty("F32", 2, 4, 4),
    "audio.codes": empty("I64", 2, 4),
    "attn.W_q": empty("F32", 4, 4),
    "attn.q_weight": empty("F32", 4, 4),
    "hmm.trellis": empty("F32", 4, 4),
    "moe.biases": empty("F32", 4),
    "pyramid.scales": empty("F32", 4),
    "unet.blocks": empty("U8", 4, 4),
    "warp.shape": empty("I64", 2),
    "x._data": empty("F32", 4),
    "y._scale": empty("F32", 4),
    "z._extra_state": empty("U8", 16),
    "z.weight": empty("BF16", 4, 4),
    "norm.a": empty("F32", 4),
    "search.indices": empty("I32", 4, 4),
    "search.lookup_table": empty("F32", 4, 4),
    "model_ema.diffusion_modelblocks0attn1to_qweight": empty("F32", 4, 4),
    "attn.c_qweight": empty("F16", 4, 4),
    "ip_adapter_to_qweight": empty("BF16", 4, 4),
    "own.qweight": empty("F32", 4, 4),
    "speech.codebooks": empty("F32", 2, 4, 4),
    "speech.codes": empty("F32", 2, 4),
    "maze.blocks": empty("F32", 4, 4),
    "maze.scales": empty("F32", 4, 4),
    "tree.indices": empty("F32", 4, 4),
    "tree.perm": empty("F32", 4),
    "affine.weight": empty("F32", 4, 4),
    "affine.scales": empty("F32", 4, 1),
    "affine.biases": empty("F32", 4, 1),
    "group.scales": empty("F32", 4),
    "group.biases": empty("F32", 4),
}
# Floats of names that are codes elsewhere, beside what goes with codes.
BESIDE: dict[str, dict[str, Entry]] = {
    "a.qweight": {"a.qweight": empty("F16", 4, 4), "a.qzeros": empty("I32", 1, 1)},
    "a.up_qweight": {"a.up_qweight": empty("F16", 2, 4, 4), "a.up_scales": empty("F16", 2, 1, 4)},
    "own.qweight": {"own.qweight": empty("I32", 4, 4)},
    "own.to_qweight": {"own.to_qweight": empty("I32", 4, 4)},
}


@pytest.mark.parametrize("name", BESIDE)
def test_codes_are_no_plain_weights(name: str) -> None:
    with an.parse(safetensors_bytes(BESIDE[name])) as model:
        assert name in model.problems


def test_plain_models_may_use_the_same_names(root: Path) -> None:
    with an.parse(directory(root, {"model_type": "mine"}, ORDINARY)) as model:
        assert not model.problems
        assert model.keys() == ORDINARY.keys()
        model.remember(root.parent / "out")
    assert (root.parent / "out" / "model.safetensors").stat().st_size > 0


# --- with what is refused, its codes are ----------------------------------------------------------


@pytest.mark.parametrize("extra", ["a.weight_scale_inv", "a.pre_quant_scale", "a.fp8_scale_w"])
def test_codes_with_a_part_too_many_are_not_decoded(extra: str, tmp_path: Path) -> None:
    tensors = {"a.weight": empty("F8_E4M3", 4, 4), "a.weight_scale": empty("F32"), **NORM}
    tensors[extra] = empty("F32")
    refusal(tensors)
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert set(model.problems) == set(tensors) - set(NORM)
        model.remember(tmp_path / "out.safetensors", allow_unknown=True)
    passed = load_file(tmp_path / "out.safetensors")
    assert passed["a.weight"].dtype == torch.float8_e4m3fn
    assert passed.keys() == tensors.keys()


# --- configs that disagree ------------------------------------------------------------------------


def gptq() -> Tensors:
    return {
        "a.qweight": empty("I32", 4, 32),
        "a.qzeros": empty("I32", 1, 4),
        "a.scales": empty("F16", 1, 32),
        "a.g_idx": empty("I32", 32),
    }


@pytest.mark.parametrize(("other", "agrees"), [("gptq", True), ("gptq_v2", False), (None, True)])
def test_configs_that_disagree_on_zero_points(other: str | None, agrees: bool, root: Path) -> None:
    section = {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq"}
    directory(root, {"quantization_config": section}, gptq())
    told = {"bits": 4, "checkpoint_format": other, "desc_act": False}
    (root / "quantize_config.json").write_text(json.dumps(told))
    with an.parse(root) as model:
        assert bool(model.problems) is not agrees
        if not agrees:
            assert "one config says 'gptq', another 'gptq_v2'" in str(model.problems["a.qweight"])


def test_a_method_that_keeps_gptq_names_for_something_else(root: Path) -> None:
    section = {"quant_method": "paroquant", "bits": 4, "krot": 8}
    with an.parse(directory(root, {"quantization_config": section}, gptq())) as model:
        assert "ParoQuant cannot be decoded yet" in str(model.problems["a.qweight"])
