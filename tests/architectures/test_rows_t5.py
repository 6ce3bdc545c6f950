"""T5's encoder: what is refused, and the embeddings under two names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import anamnesis as an
from helpers import recorded_hf

TABLE = "encoder.embed_tokens.weight"
BIAS = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"


def changed(folder: Path, name: str) -> Path:
    root = recorded_hf.remake("t5_encoder", folder / "hf")
    with an.parse(root) as model:
        tensors = {name: model[name].numpy() for name in model}
    source = {TABLE: "shared.weight", BIAS: BIAS.replace("block.1", "block.0")}.get(name)
    tensors |= {} if source is None else {name: tensors[source]}
    an.save(tensors, root / "model.safetensors", force=True)
    return root


def with_facts(root: Path, facts: dict[str, object]) -> Path:
    path = root / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))
    return root


def written(root: Path) -> set[str]:
    an.convert(root, root.parent / "out.gguf", "gguf")
    with an.parse(root.parent / "out.gguf") as model:
        return set(model)


def test_embeddings_that_are_there_twice_are_written_once(tmp_path: Path) -> None:
    assert "token_embd.weight" in written(changed(tmp_path, TABLE))


def test_positions_of_each_layer_are_umt5s(tmp_path: Path) -> None:
    with pytest.raises(an.ParseError, match="is no tensor of its layer"):
        written(changed(tmp_path, BIAS))
    root = with_facts(
        tmp_path / "hf", {"architectures": ["UMT5EncoderModel"], "model_type": "umt5"}
    )
    assert "enc.blk.1.attn_rel_b.weight" in written(root)
    an.convert(tmp_path / "out.gguf", f"{tmp_path / 'back'}/", "f32")
    assert "UMT5EncoderModel" in (tmp_path / "back/config.json").read_text()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj is 'gated-silu'"),
        ({"relative_attention_max_distance": 64}, "relative_attention_max_distance is 64"),
        ({"feed_forward_proj": "relu", "is_gated_act": False}, "ffn_gate|wi_0"),
    ],
)
def test_what_llama_cpp_computes_otherwise_is_refused(
    facts: dict[str, object], why: str, tmp_path: Path
) -> None:
    root = with_facts(recorded_hf.remake("t5_encoder", tmp_path / "hf"), facts)
    with pytest.raises(an.AnamnesisError, match=why):
        written(root)
