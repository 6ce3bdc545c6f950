"""The table of loaders is whole, its proofs are there, and what it says is said in time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.convert.loaders.table import ANY, CELLS, KINDS, PROGRAMS
from anamnesis.convert.loaders.verdicts import absent, listed_name, loaders
from anamnesis.convert.request.targets import encoding
from anamnesis.schemes.encodings import ENCODINGS, TAKING
from helpers.handmade import write_safetensors

TESTS = Path(__file__).parents[1]
NAMES = (*ENCODINGS, *TAKING)
CONTAINERS = ("safetensors", "gguf", "npz", "npy", "torch")


@pytest.mark.parametrize("proof", sorted({row.proof for row in CELLS}))
def test_each_proof_is_there(proof: str) -> None:
    file, _, test = proof.partition("::")
    if test:
        assert f"def {test}(" in (TESTS / file).read_text()
    else:
        assert re.match(r"by (source|hand|documentation)\b", proof)


def test_each_row_is_of_what_there_is() -> None:
    for row in CELLS:
        assert row.program in PROGRAMS
        assert row.kind == ANY or row.kind in KINDS
        assert set(row.encodings) <= {*NAMES, *CONTAINERS}, row
        assert row.outcome == "loads" or row.why, row


@pytest.mark.parametrize("name", [*NAMES, *CONTAINERS])
def test_each_target_has_a_program(name: str) -> None:
    assert loaders(name)
    if name in NAMES:
        assert listed_name(encoding(name).id) == name


@pytest.mark.parametrize(
    ("id", "want"),
    [
        ("int4-32-asym", "int4-asym"),
        ("fp8-block-64x32-ue8m0", "fp8-block-ue8m0"),
        ("bnb-nf4-128-nested", "bnb-nf4-nested"),
        ("gptq-4bit-32", "gptq-4bit"),
        ("other", None),
    ],
)
def test_settings_behind_names(id: str, want: str | None) -> None:
    assert listed_name(id) == want


def saved(folder: Path, kind: str, names: list[str]) -> Path:
    values = np.random.default_rng(0).standard_normal((128, 128)).astype("<f4").tobytes()
    write_safetensors(
        folder / "model.safetensors",
        dict.fromkeys(names, ("F32", (128, 128), values)),
        {"format": "pt"},
    )
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return folder


EXPERTS = [
    f"model.layers.0.mlp.experts.{i}.{name}_proj.weight"
    for i in range(2)
    for name in ("gate", "up", "down")
]


def amn(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, list(map(str, args)))
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "Output" not in line)
    return done.exit_code, " ".join(done.output.split())


def test_what_loads_wrong_needs_force(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "mixtral", EXPERTS)
    code, told = amn("plan", source, "--to", "nvfp4")
    assert code == 0
    assert "loads it wrong, without an error" in told
    code, told = amn("convert", source, "--to", "nvfp4", "-o", tmp_path / "out")
    assert (code, "--force writes it even so" in told) == (1, True)
    assert not (tmp_path / "out").exists()
    code, told = amn("convert", source, "--to", "nvfp4", "-o", tmp_path / "out", "--force")
    assert (code, "without an error" in told) == (0, True)
    with an.parse(source) as model:
        assert "without an error" in model.forget(tmp_path / "lib", "nvfp4").warnings[0]
        with pytest.raises(an.UnsupportedError, match="without an error"):
            model.forget(tmp_path / "strict", "nvfp4", strict=True)
        assert not model.plan("mxfp4").warnings


@pytest.mark.parametrize(
    ("to", "out", "told"),
    [
        ("gguf", "x.gguf", "llama.cpp does not load this: tensor names and metadata are Hugging"),
        ("npz-bf16", "x.npz", "two bytes a value; cast all to F32, or"),
        ("int8", "x.safetensors", "no config.json tells its codes"),
        ("bf16", "x", None),
        ("npz-f32", "x.npz", None),
    ],
)
def test_said_at_the_end(to: str, out: str, told: str | None, tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "llama", ["model.layers.0.mlp.up_proj.weight"])
    names = ("--names", "keep") if to == "gguf" else ()
    code, said = amn("convert", source, "--to", to, "-o", tmp_path / out, *names)
    assert code == 0
    assert ("not load this" in said) == (told is not None)
    assert (told or "") in said
    if out == "x.gguf":
        assert "llama.cpp does not load this" in CliRunner().invoke(
            cli, ["inspect", str(tmp_path / out)]
        ).output.replace("  ", "")


@pytest.mark.parametrize(
    ("shown", "is_renamed"),
    [
        (["x_embedder.weight"], True),  # Flux
        (["transformer_blocks.0.attn.add_q_proj.weight", "pos_embed.proj.weight"], True),
        (["noise_refiner.0.attention.norm_k.weight"], True),
        (["conv_in.weight", "down_blocks.0.resnets.0.conv1.weight"], True),
        (["img_in.weight", "txt_norm.weight"], False),  # Qwen-Image, which has one set of names
    ],
)
def test_diffusers_names_are_told_where_comfyui_renames_them(
    shown: list[str], is_renamed: bool, tmp_path: Path
) -> None:
    source = saved(tmp_path, "", [*shown, "transformer_blocks.0.attn.to_q.weight"])
    code, told = amn("plan", source / "model.safetensors", "--to", "comfy-fp8")
    assert code == 0
    assert ("ComfyUI: it renames these weights, and leaves their scales" in told) == is_renamed


def test_mistrals_own_files(tmp_path: Path) -> None:
    """Codes are moved; nothing says any more that params.json describes them."""
    layer, codes = "layers.0.attention.wo", bytes(range(120)) * 32
    source = write_safetensors(
        tmp_path / "in" / "consolidated.safetensors",
        {
            f"{layer}.weight": ("F8_E4M3", (32, 120), codes),
            f"{layer}.qscale_weight": ("F32", (), b"\x00\x00\x40\x3f"),
            f"{layer}.qscale_act": ("F32", (), b"\x00\x00\x80\x3f"),
        },
    ).parent
    told = {"dim": 120, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}
    (source / "params.json").write_text(json.dumps(told))
    for to in ("fp8-tensor-ct", "fp8-channel", "fp8-block-ct", "fp8-tensor"):
        code, said = amn("convert", source, "--to", to, "-o", tmp_path / to, "--lossless")
        assert code == 0
        assert "dropped 1 (range of activations or of a cache)" in said
        assert "Mistral's params.json does not tell these codes; convert the model under" in said
        assert json.loads((tmp_path / to / "params.json").read_text()) == {"dim": 120}
        with an.parse(source) as before, an.parse(tmp_path / to) as after:
            one, other = (model[f"{layer}.weight"].numpy("f32") for model in (before, after))
            assert (one.view("u4") == other.view("u4")).all()
            assert after.stored[f"{layer}.weight"].read() == codes
    assert "Mistral's params" not in amn("remember", source, "-o", tmp_path / "plain")[1]


@pytest.mark.parametrize("to", ["fp8-block", "fp8-block-ue8m0", "fp8-block-ct"])
def test_blocks_that_are_not_square(to: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "llama", ["model.layers.0.mlp.up_proj.weight"])
    amn("convert", source, "--to", "mxfp8", "-o", tmp_path / "mxfp8")
    code, told = amn("convert", tmp_path / "mxfp8", "--to", to, "-o", tmp_path / "out")
    assert code == 0
    assert "vLLM does not load this: it groups as many activations as blocks have rows" in told
    code, told = amn("convert", source, "--to", to, "-o", tmp_path / "square")
    assert (code, "vLLM" in told) == (0, False)


def test_gguf_that_llama_cpp_loads_has_no_such_line(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "llama", ["blk.0.ffn_up.weight", "token_embd.weight"])
    keys = {"general.architecture": "llama", "tokenizer.ggml.model": "llama"}
    with an.parse(source) as model:
        report = model.convert(tmp_path / "a.gguf", "gguf", metadata=keys)
        assert not report.warnings
        assert (
            "no tokenizer"
            in model.convert(
                tmp_path / "b.gguf", "gguf", metadata={"general.architecture": "llama"}
            ).warnings[0]
        )
        assert "general.architecture" in model.convert(tmp_path / "c.gguf", "gguf").warnings[0]
    with an.parse(tmp_path / "a.gguf") as model:
        assert not model.convert(tmp_path / "again.gguf", "gguf").warnings
        assert not model.inspect().notes
        assert "llama.cpp's" in model.remember(tmp_path / "d.safetensors").warnings[0]


@pytest.mark.parametrize(("name", "tool"), [("exl2-4", "exllamav2"), ("hqq", "hqq")])
def test_known_and_not_written(name: str, tool: str, tmp_path: Path) -> None:
    assert f"{tool} does" in (absent(name) or "")
    source = saved(tmp_path / "in", "llama", ["model.layers.0.mlp.up_proj.weight"])
    code, told = amn("convert", source, "--to", name, "-o", tmp_path / "x.gguf")
    assert code != 0
    assert f"{tool} does" in told
    assert absent("int4") is None


def test_layouts_that_find_no_codes(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "llama", ["model.layers.0.mlp.up_proj.weight"])
    keep = ("--names", "keep")
    _, told = amn("convert", source, "--to", "gguf-mxfp4", "-o", tmp_path / "x.gguf", *keep)
    assert "it quantises nothing; gguf-mxfp4_moe does" in told
    _, told = amn("convert", source, "--to", "gguf-nvfp4", "-o", tmp_path / "x.gguf", *keep)
    assert "nvfp4 does" in told


def test_what_was_quantised_before_is_re_quantised(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", "llama", ["model.layers.0.mlp.up_proj.weight"])
    amn("convert", source, "--to", "fp8-block", "-o", tmp_path / "fp8")
    _, told = amn("convert", tmp_path / "fp8", "--to", "int4", "-o", tmp_path / "int4")
    assert "1 weight re-quantised: " in told
    assert "the loss is against what they decode to" in told
    with an.parse(tmp_path / "fp8") as model:
        assert list(model.plan("int4").account.requantised) == ["model.layers.0.mlp.up_proj.weight"]
    with an.parse(source) as model:
        assert not model.plan("int4").account.requantised
