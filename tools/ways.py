"""Writes what becomes of codes between each two encodings: python tools/ways.py

Weights of several kinds are written in each encoding, and each other one is asked what it does with
their codes. The result stands in a file of its own; `--list` and docs/repacking.md show it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.core.layout import Repack, Unmovable
from anamnesis.schemes.encodings import ENCODINGS, TAKING, Row, find, made

__all__ = ["NAMES", "PAGE", "outcomes", "output", "samples", "text"]

PAGE = Path(__file__).parents[1] / "anamnesis" / "schemes" / "ways.json"

NAMES = (*ENCODINGS, *TAKING)
_SHAPE = (256, 512)
_EXPERTS = {"gate_up_proj": (2, 64, 256), "gate_up_proj_bias": (2, 256), "down_proj": (2, 128, 64)}
_DTYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
_GROUP = 16  # of the least values that share a scale: each has the largest magnitude


def _values() -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield values by what they are: any ones, and such as some encodings have exact scales for."""
    rng = np.random.default_rng(25)
    yield "any", rng.normal(size=_SHAPE).astype(np.float32)
    grids = {
        "448": rng.integers(-14, 15, _SHAPE) * 32,
        "2688": rng.choice([0, 224, 448, 672, 896, 1344, 1792, 2688], _SHAPE),
        "127": rng.integers(-127, 128, _SHAPE),
        "7": rng.integers(-8, 8, _SHAPE),
        "6": rng.choice([0, 0.5, 1, 1.5, 2, 3, 4, 6], _SHAPE),
        "1": rng.integers(-1, 2, _SHAPE),
    }
    for name, grid in grids.items():
        values = (grid * 2.0**-10).astype(np.float32)
        largest = np.abs(values).max()
        values[:, ::_GROUP] = np.where(name == "7", -1, 1) * largest
        yield f"steps to {name}", values


def _plain(folder: Path) -> Path:
    """Write all values in all dtypes as the layers of one model."""
    arrays: dict[str, Any] = {}
    for i, (of, values) in enumerate(_values()):
        for dtype, scalar in _DTYPES.items():
            arrays[f"model.layers.{i}.{_word(of)}.{dtype.lower()}.weight"] = values.astype(scalar)
    return _saved(folder, arrays, "llama")


def _stacks(folder: Path) -> Path:
    rng = np.random.default_rng(26)
    arrays = {
        f"model.layers.0.mlp.experts.{name}": rng.normal(size=prod(shape))
        .reshape(shape)
        .astype(ml_dtypes.bfloat16)
        for name, shape in _EXPERTS.items()
    }
    return _saved(folder, arrays, "gpt_oss")


def _bitnet(folder: Path) -> Path:
    """Write ternary codes as transformers stores BitNet's, which no encoding makes."""
    quarters = np.random.default_rng(27).integers(0, 3, (4, _SHAPE[0] // 4, _SHAPE[1]), np.uint8)
    packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    name, scale = "model.layers.0.f16.weight", np.array([0.375], np.float32)
    section = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    arrays = {name: packed, f"{name}_scale": scale}
    return _saved(folder, arrays, "llama", quantization_config=section)


def _word(text: str) -> str:
    return text.replace(" ", "_")


def _saved(folder: Path, arrays: Mapping[str, Any], model_type: str, **config: Any) -> Path:
    if folder.exists():
        return folder
    folder.mkdir()
    an.save(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **config}))
    return folder


def samples(name: str, folder: Path) -> Iterator[Path]:
    """Yield models in an encoding, whose weights are samples of what it can hold.

    Parameters
    ----------
    name : str
        The encoding.
    folder : Path
        Where they are written, and what they are made of where it is not there yet.
    """
    plain, experts = _plain(folder / "plain"), _stacks(folder / "experts")
    source = experts if name == "gptoss-mxfp4" else plain
    takes = _row_of(name).takes
    if takes == "bitnet":
        source = _bitnet(folder / "bitnet")
    elif takes:
        source = _converted(plain, takes, folder / f"from-{name}")
    yield _converted(source, name, folder / f"in-{name}")
    if "mxfp4" in name and name != "gptoss-mxfp4":
        stacks = _converted(experts, "gptoss-mxfp4", folder / "gptoss")
        yield _converted(stacks, name, folder / f"stacks-{name}")


def _converted(source: Path, name: str, out: Path) -> Path:
    out = output(out, name)
    if not out.exists():
        with an.parse(source) as model:
            movable = "*.f16.*" if _row_of(name).takes and "experts" not in "".join(model) else ()
            model.convert(out, name, loss=False, include=movable, names="keep")
    return out


def output(path: Path, name: str) -> Path:
    """Return a path as that of an output in an encoding: a file where no config.json says it."""
    row = _row_of(name)
    is_told = row.container == "safetensors" and made(row).layout.config_name == "config.json"
    return path if is_told else path.with_suffix(f".{row.container}")


def _row_of(name: str) -> Row:
    row = find(name)
    assert row is not None
    return row


def outcomes(model: an.Model) -> Iterator[tuple[str, str, Repack | Unmovable | None]]:
    """Yield targets, names of weights in codes, and what the one does with the codes of the other.

    Each weight is asked for by itself, though settings may have to be the same of all of a model.
    """
    weights = [w for w in model._ledger.weights.values() if w.own_dtype is None]
    for target, row in (ENCODINGS | TAKING).items():
        encoding = made(row)
        for weight in weights:
            yield target, weight.name, encoding.repacks([weight]).get(weight.name)


def _settled(found: list[Repack | Unmovable | None]) -> tuple[str, str] | None:
    """Return how codes come over, and why some do not; None if none do."""
    repacks = [one for one in found if isinstance(one, Repack)]
    if not repacks:
        return None
    how = "cast" if all(one.is_cast for one in repacks) else "moved"
    why = Counter(one.why for one in found if isinstance(one, Unmovable)).most_common(1)
    return how, why[0][0] if why else ""


def text() -> str:
    """Return the text of the file."""
    found: dict[tuple[str, str], list[Repack | Unmovable | None]] = {}
    with TemporaryDirectory() as folder:
        for name in NAMES:
            for path in samples(name, Path(folder)):
                with an.parse(path) as model:
                    for target, _, outcome in outcomes(model):
                        found.setdefault((target, name), []).append(outcome)
    return "[\n" + ",\n".join(map(json.dumps, _rows(found))) + "\n]\n"


def _rows(
    found: Mapping[tuple[str, str], list[Repack | Unmovable | None]],
) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is found, in which each row stands for all targets that take the same sources."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for target in NAMES:
        sources: dict[tuple[str, str], list[str]] = {}
        for source in NAMES:
            way = _settled(found.get((target, source), []))
            if way is not None:
                sources.setdefault(way, []).append(source)
        for way, names in sources.items():
            alike.setdefault((*way, " ".join(names)), []).append(target)
    for (how, why, taken), targets in alike.items():
        yield how, why, " ".join(targets), taken


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
