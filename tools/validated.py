"""The tables of docs/validated.md and docs/dtypes.md, of checkpoints beside the libraries' output.

    ANAMNESIS_REAL=FOLDER python tools/validated.py     puts the tables into the pages

The folder holds slices of published models and checkpoints that the libraries made, each beside
the output that the library's own code gave. What is counted is values whose bits differ; all NaNs
count as one.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file

import anamnesis as an
from anamnesis.base.dtypes import DTypeName

__all__ = ["PAGES", "Compared", "compared", "expected", "renewed"]

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = (_DOCS / "validated.md", _DOCS / "dtypes.md")
TABLE = re.compile(r"<!-- validated: (\w+) -->\n.*?<!-- /validated -->", re.S)
_DTYPES: dict[torch.dtype, DTypeName] = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
}
_INTEGERS = {2: torch.int16, 4: torch.int32}
_SLICES = ("awq", "bnb", "fp8", "gguf", "gptq", "pth")


class Compared(NamedTuple):
    """How many weights and values were compared, and how many values differ."""

    n_weights: int
    n_values: int
    n_differing: int


def compared(model: an.Model, wanted: dict[str, torch.Tensor]) -> Compared:
    """Decode the weights that a library decoded, in its dtype and its roundings, and compare."""
    names = sorted(wanted.keys() & model.keys() - model.problems.keys())
    n_values = n_differing = 0
    for name in names:
        want = wanted[name]
        dtype = _DTYPES.get(want.dtype)
        if dtype is None:  # integers stay as they are stored
            found = torch.frombuffer(bytearray(model.stored[name].read()), dtype=want.dtype)
        else:
            found = model[name].torch(dtype, math="reference")
        n_values += want.numel()
        n_differing += _differing(found.reshape(-1), want.reshape(-1))
    return Compared(len(names), n_values, n_differing)


def _differing(found: torch.Tensor, want: torch.Tensor) -> int:
    """Count values of other bits; those of the wrong shape all differ."""
    if found.shape != want.shape:
        return max(found.numel(), want.numel())
    integers = _INTEGERS.get(want.element_size())
    if integers is None or not want.is_floating_point():
        return int((found != want).sum())
    same = (found.view(integers) == want.view(integers)) | (found.isnan() & want.isnan())
    return int((~same).sum())


def _slices(root: Path) -> Iterator[str]:
    yield "| slice | container | encoding | values | differ |"
    yield "| --- | --- | --- | ---: | ---: |"
    for folder in _SLICES:
        for path in sorted((root / folder).glob("*.expected.safetensors")):
            name = path.name.partition(".")[0]
            [source] = [
                p for p in path.parent.glob(f"{name}.*") if p.suffix != ".json" and p != path
            ]
            with an.parse(source) as model:
                got = compared(model, load_file(path))
                schemes = ", ".join(dict.fromkeys(tensor.scheme for tensor in model.values()))
            n_values, n_differing = got[1:]
            yield f"| `{name}` | {source.suffix} | {schemes} | {n_values:,} | {n_differing} |"


# What was expected of these is from before integers were made of it: their zeros had a sign.
_BEFORE_INTEGERS = frozenset({"ct_marlin24"})


def expected(path: Path) -> dict[str, torch.Tensor]:
    """Return what the library made of a checkpoint, from the file that has it.

    Nothing where that is to be compared with a tolerance: of EXL3, it is another library's decoder.
    """
    name = path.name.partition(".")[0]
    if "tolerance" in json.loads(path.with_name(f"{name}.json").read_bytes()):
        return {}
    tensors: dict[str, torch.Tensor] = load_file(path)
    if name in _BEFORE_INTEGERS:
        return {name: tensor + 0.0 for name, tensor in tensors.items()}
    return tensors


def _checkpoints(root: Path) -> Iterator[str]:
    yield "| made and decoded by | checkpoints | weights | values | differ | refused by name |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    versions: dict[str, set[str]] = defaultdict(set)
    refused: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "modern").glob("*.json")):
        told = json.loads(path.read_bytes())
        library = told["library"].partition(" ")[0]
        versions[library].add(told.get(library) or told["version"])
        checkpoint = path.with_suffix("")
        wanted = expected(checkpoint.with_name(f"{checkpoint.name}.expected.safetensors"))
        with an.parse(checkpoint) as model:
            got = compared(model, wanted)
            if model.problems:
                refused[library].append(f"`{checkpoint.name}`")
        totals[library].update(checkpoints=1, **got._asdict())
    for library, n in sorted(totals.items(), key=lambda item: item[0].lower()):
        yield (
            f"| {library} {', '.join(sorted(versions[library]))} | {n['checkpoints']}"
            f" | {n['n_weights']:,} | {n['n_values']:,} | {n['n_differing']}"
            f" | {', '.join(refused[library])} |"
        )


# A slice of each kind, by its path in the folder.
_ROUNDED = {
    "FP8, 128x128 blocks": "fp8/qwen3_1_7b_fine_grained.safetensors",
    "FP8, per channel": "fp8/llama_dynamic_per_channel.safetensors",
    "GPTQ, 4 bits": "gptq/llama_3_2_1b_int4.safetensors",
    "AWQ, 4 bits": "awq/falcon3_1b_awq.safetensors",
    "NF4": "bnb/llama_1b_nf4.safetensors",
    "Q4_K": "gguf/smollm2_q4_k.gguf",
    "Q8_0": "gguf/smollm2_q8_0.gguf",
}


def _rounded(root: Path) -> Iterator[str]:
    yield "| encoding | exact in BF16 | exact in F16 | SNR of BF16 | SNR of F16 |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for encoding, path in _ROUNDED.items():
        with an.parse(root / path) as model:
            weight = next(iter(model.values()))
            exact = weight.torch("f32").double()
            cells = [_of_rounding(exact, weight.torch(dtype).double()) for dtype in ("bf16", "f16")]
        shares, noises = zip(*cells, strict=True)
        yield f"| {encoding} | {' | '.join(shares)} | {' | '.join(noises)} |"


def _of_rounding(exact: torch.Tensor, rounded: torch.Tensor) -> tuple[str, str]:
    """Return the share of values that a dtype holds exactly, and the SNR of all, in dB."""
    noise = (rounded - exact).square().sum()
    share = (rounded == exact).double().mean()
    snr = "exact" if noise == 0 else f"{10 * (exact.square().sum() / noise).log10():.0f} dB"
    return f"{share:.0%}", snr


_TABLES = {"slices": _slices, "checkpoints": _checkpoints, "rounded": _rounded}


def renewed(text: str, root: Path) -> str:
    """Return a page with its tables as they come out now."""

    def rewrite(found: re.Match[str]) -> str:
        rows = "\n".join(_TABLES[found[1]](root))
        return f"<!-- validated: {found[1]} -->\n\n{rows}\n\n<!-- /validated -->"

    return TABLE.sub(rewrite, text)


if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(renewed(text, Path(os.environ["ANAMNESIS_REAL"])), encoding="utf-8")
