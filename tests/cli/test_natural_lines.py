"""What people type before they have read anything: it works, or the answer is what does it."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.cli.demo_models import DEMOS

# What is typed in a folder with `dir/`, `m.gguf`, `m.safetensors`, `two.safetensors`, `empty/`,
# `d.gguf/` and `outs/` (a folder of texts); and what is written then.
WRITES = {
    # inputs and outputs side by side
    "convert dir out.gguf": "out.gguf",
    "convert dir/ out.gguf --to f16": "out.gguf",
    "convert m.gguf out/": "out/config.json",
    "convert m.gguf empty": "empty/config.json",
    "convert m.safetensors outs --to f16": "outs/m-f16.safetensors",
    "convert m.gguf out.safetensors": "out.safetensors",
    "convert m.safetensors out.npz": "out.npz",
    "convert m.safetensors out.pth --to f32": "out.pth",
    "convert m.safetensors two.safetensors new/ --to f16": "new/two-f16.safetensors",
    "convert m.safetensors int8 out.safetensors": "out.safetensors",
    "convert m.safetensors out.safetensors int8": "out.safetensors",
    "remember m.gguf out.safetensors": "out.safetensors",
    "remember m.gguf out/": "out/config.json",
    "remember m.gguf f16": "m-f16.safetensors",
    "remember m.gguf f32 out": "out/config.json",
    "remember m.safetensors out.gguf": "out.gguf",
    "dequantize m.gguf out.npz": "out.npz",
    # as llama-quantize has it
    "quantize dir Q4_K_M": "dir-Q4_K_M.gguf",
    "quantize dir Q4_K_M out.gguf": "out.gguf",
    "quantize dir out.gguf Q4_K_M": "out.gguf",
    "quantize dir q4km": "dir-Q4_K_M.gguf",
    "quantize dir Q4-K-M": "dir-Q4_K_M.gguf",
    "quantize dir IQ4XS": "dir-IQ4_XS.gguf",
    "quantize dir q8": "dir-Q8_0.gguf",
    "quantize dir nf4 out/": "out/config.json",
    "quantize dir int8 out": "out/config.json",
    "quantise m.safetensors fp8-tensor out.safetensors": "out.safetensors",
    "quantize m.safetensors FP8_Per_Tensor": "m-fp8-tensor.safetensors",
    # a directory for transformers
    "convert m.gguf -o hf/": "hf/config.json",
    "convert m.gguf -o hf": "hf/config.json",
    "convert m.gguf --to bf16 -o hf": "hf/config.json",
    "convert m.gguf --to hf": "m-bf16/config.json",
    "convert m.gguf --to transformers -o out": "out/config.json",
    "convert dir --to hf -o out": "out/config.json",
    # options of other tools
    "convert dir --outtype q8_0 --outfile out.gguf": "out.gguf",
    "convert dir --outtype f16": "dir-f16.gguf",
    "convert dir --outtype=auto": "dir-bf16.gguf",
    "quantize dir --outtype Q8_0": "dir-Q8_0.gguf",
    "convert m.safetensors -o two.safetensors --to f16 -y": "two.safetensors",
    "convert m.safetensors -o two.safetensors --to f16 --overwrite": "two.safetensors",
    "convert m.safetensors --to f16 --to f16 out.safetensors": "out.safetensors",
    "convert dir f16 ./q8_0": "q8_0/config.json",
    "convert dir f16 out --to f16": "out/config.json",
    "convert dir f16 d.gguf/": "d.gguf/config.json",
    "quantize dir q8_0 d.gguf": "d.gguf/dir-Q8_0.gguf",
    # several inputs
    "convert dir m.gguf --to f16 -o new/": "new/dir-f16/config.json",
}

# Lines that show something, and a part of that.
SHOWS = {
    "m.gguf": "GGUF v3",
    "dir": "LlamaForCausalLM",
    "./m.safetensors --json": '"n_bytes"',
    "info m.gguf": "GGUF v3",
    "ls m.safetensors": "up_proj.weight",
    "-v": "anamnesis",
    "--version": "anamnesis",
    "convert dir out.gguf --dry-run": "Would write: 1 gguf file",
    "convert m.gguf out/ --dry-run": "Loads in:    transformers",
    "convert m.gguf -o out --dry-run --json": '"peak_memory"',
    "quantize dir Q4_K_M --dry-run": "Loads in:    llama.cpp",
    "remember m.gguf out.npz --dry-run --to f32": "1 npz file",
    "remember -r outs m.gguf --dry-run": "1 safetensors file",
    "plan dir --to q4_k_m --to q8_0": "q8_0 ",
    "plan dir --to q4_k_m,q8_0": "q8_0 ",
    "plan dir Q4_K_M": "Loads in:    llama.cpp",
    "plan dir q4_k_m q8_0": "q8_0 ",
    "plan m.safetensors two.safetensors int8,f16": "int8 ",
    "plan m.gguf --to hf": "Loads in:    transformers",
}

# Lines that are refused, and what is said.
SAYS = {
    "convert dir out": "`amn convert dir -o out --to TARGET`",
    "convert m.gguf out --to bf16": "`amn convert m.gguf -o out --to bf16`",
    "convert m.gguf 'a b'": "`amn convert m.gguf -o 'a b'`",
    "convert m.gguf hf": "`amn convert m.gguf -o hf`",
    "convert m.safetensors two.safetensors": (
        "`amn convert m.safetensors -o two.safetensors --force` replaces it,"
        " `amn convert m.safetensors two.safetensors -o DIR/ --to TARGET` reads it, too"
    ),
    "convert dir m.gguf --to q8_0": (
        "`amn convert dir -o m.gguf --force --to q8_0` replaces it,"
        " `amn convert dir m.gguf -o DIR/ --to q8_0` reads it, too"
    ),
    "quantize dir m.gguf Q4_K_M -y": "`amn quantize dir -o m.gguf Q4_K_M -y` replaces it",
    "quantize m.safetensors two.safetensors int8 --force": "-o two.safetensors int8 --force` repl",
    "remember dir m.safetensors": "`amn remember dir -o m.safetensors --force` replaces it",
    "remember m.gguf dir/": "`amn remember m.gguf -o dir/ --force` replaces it",
    "quantize m.gguf two.gguf Q4_K_M 4": "`amn quantize m.gguf two.gguf Q4_K_M --threads 4`",
    "quantize m.gguf none.gguf Q4_K_M out": "-o out` writes it",
    "quantize dir FP9_X out": "'FP9_X' is no file and no target: amn convert --list",
    "quantize dir FP9_X -o out": "'FP9_X' is no file and no target",
    "quantize dir fp9": "'fp9' is no file and no target: `amn quantize dir -o fp9 --to TARGET`",
    # a directory that is called as a file
    "convert dir d.gguf": "d.gguf: is a directory, though it has the extension of GGUF; name",
    "convert m.safetensors d.gguf --to f16": "a slash behind the name says that a directory is m",
    "remember m.gguf d.gguf": "d.gguf: is a directory",
    "quantize dir nf4 d.gguf": "d.gguf: is a directory",
    "convert m.gguf -o --to f16": "a name is missing before --to; a file of that name is ./--to",
    "convert dir --to f16 --tensor 'lm_head=drop'": "--drop lm_head leaves out weights",
    "convert dir q8_0 f16": "takes one target, not q8_0 and f16; ./f16 is a file of that name",
    "convert dir out.gguf q8_0 --to f16": "takes one target, not f16 and q8_0",
    "quantize dir Q4_K_M out.gguf Q8_0": "takes one target, not q4_k_m and q8_0",
    # words of variables that are not set
    "convert dir --to ''": "there is no target ''",
    "convert dir '' --to f16": "a name is empty",
    "quantize dir '' out": "a name is empty",
    "quantize dir Q8_0 ''": "a name is empty",
    "convert dir --to f16 -o ''": "the output's name is empty",
    # what a model has under other names is not kept as it is stored
    "convert dir out.gguf --to q8_0 --tensor 'model.layers.0.*=keep'": "it has another name there",
    "convert dir out.gguf --to q8_0 --tensor 'blk.0.*=keep'": "name a dtype or an encoding",
    "convert m.gguf out/ --tensor '*.mlp.*=keep'": "--names keep leaves both",
    "quantize dir Q4_K_M m.gguf": "m.gguf: exists; --force replaces it",
    "quantize dir": "amn quantize IN TYPE [OUT]",
    "quantize dir out.gguf": "amn quantize IN TYPE [OUT]",
    "quantize dir fp8": "fp8-block for transformers, vLLM, SGLang; fp8-channel for",
    "quantize dir --to 4bit": "gguf-q4_k_m for llama.cpp, gguf-py; gptq-4bit for",
    "convert dir --to 8-bit": "gguf-q8_0 for llama.cpp",
    "plan dir fp8": "name one: fp8-block",
    "plan dir fp9": "there is no target 'fp9'",
    "plan dir none.gguf": "Missing option '--to'",
    "quantize dir f16": "'f16' quantises nothing",
    "quantize dir exl2": "exllamav2 does",
    "remember m.gguf Q8_0": "'Q8_0' quantises",
    "convert m.safetensors --to q4_k_m --to q8_0": "takes one target, not q4_k_m and q8_0",
    "convert m.gguf --to hf -o out.gguf": "has the extension of GGUF",
    "convert m.gguf --to hf -o out.safetensors": "out.safetensors: names a file",
    "convert m.gguf": "Name an output or a target: amn convert MODEL OUT.gguf",
    "plan m.gguf": "amn plan MODEL Q4_K_M, or --to int4,fp8-block",
    "convert m.safetensors two.safetensors out.gguf": "is the name of one file, for 2 inputs",
    "list": "amn parse MODEL lists its tensors, amn convert --list the targets",
    "version": "amn --version",
    "compare a b": "amn diff A B --values",
    "nope": "amn inspect MODEL",
    "converts m.gguf": "did you mean 'convert'?",
    "to_gguf dir": "amn convert DIRECTORY OUT.gguf",
    "dequant m.gguf": "amn remember MODEL",
    "download org/name": "hf download",
    "org/name": "hf://org/name reads it there",
    "ftp://org/name": "download it first",
    "none.gguf": "none.gguf: No such file",
    "convert dir --quantize q4_0": "amn quantize MODEL TYPE",
    "convert dir --q-bits 4": "mlx-4bit-GROUP",
    "convert dir --output-dir out": "-o OUT/",
    "quantize dir --allow-requantize": "without an option",
    "convert dir --trust-remote-code": "no code of a model is run",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, raw in DEMOS["llama"].make().items():
        (tmp_path / "dir").mkdir(exist_ok=True)
        (tmp_path / "dir" / Path(name).name).write_bytes(raw)
    an.convert(tmp_path / "dir", tmp_path / "m.gguf", "gguf-q8_0")
    values = {"up_proj.weight": np.ones((64, 64), np.float32)}
    for name in ("m", "two"):
        an.save(values, tmp_path / f"{name}.safetensors")
    for name in ("empty", "d.gguf"):
        (tmp_path / name).mkdir()
    (tmp_path / "outs").mkdir()
    (tmp_path / "outs" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line: str) -> Result:
    return CliRunner().invoke(cli, shlex.split(line), prog_name="amn")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", WRITES)
def test_it_writes(here: Path, line: str) -> None:
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    done = typed(line)
    assert done.exit_code == 0, done.stderr
    after = {path for path in here.rglob("*") if path.is_file()}
    changed = {path for path in after if before.get(path) != path.read_bytes()}
    made = here / WRITES[line]
    assert made in changed
    assert {path for path in changed if path.parent == here} <= {made}
    an.parse(made.parent if made.name == "config.json" else made).close()


@pytest.mark.parametrize("line", SHOWS)
def test_it_shows(here: Path, line: str) -> None:
    before = sorted(here.rglob("*"))
    done = typed(line)
    assert (done.exit_code, SHOWS[line] in done.stdout) == (0, True), done.stdout + done.stderr
    assert sorted(here.rglob("*")) == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", SAYS)
def test_it_says_what_does_it(here: Path, line: str) -> None:
    before = sorted(here.rglob("*"))
    done = typed(line)
    assert done.exit_code != 0
    assert SAYS[line] in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_lines_to_copy_do_it(here: Path) -> None:
    for line in ("convert dir out.dir --to f16", "convert m.gguf out"):
        said = typed(line).stderr.split("`")[1]
        assert typed(said.removeprefix("amn ")).exit_code == 0, said


def test_a_model_of_standard_input_is_shown(here: Path) -> None:
    raw = (here / "m.gguf").read_bytes()
    done = CliRunner().invoke(cli, ["-"], input=raw, prog_name="amn")
    assert (done.exit_code, "GGUF v3" in done.stdout) == (0, True)
