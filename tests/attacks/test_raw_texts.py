"""Names and texts of a hostile file come out of errors printable, whatever quotes them.

Escape sequences rewrite a terminal, line breaks forge lines of a log, and marks of direction turn
what is read.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.printable import shortened
from anamnesis.cli.app import main
from anamnesis.schemes.detect import not_weights
from helpers.gguf_handmade import STRING, U32, Raw, Tensor, gguf_bytes
from helpers.handmade import Entry, safetensors_bytes
from helpers.npy_cases import archive, header, with_header

EVIL = {
    "escape": "\x1b[2K\x1b[32m",
    "line": "\n2026-01-01 INFO accepted\r",
    "right-to-left": "\u202e",
    "isolate": "\u2066",
    "nul": "\0",
    "c1": "\x9b2J\x85",
    "separator": "\u2028",
}

Files = Mapping[str, bytes]
ONE = struct.pack("<f", 1)


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def pth(data: bytes, folder: str = "a", members: Files | None = None) -> bytes:
    return archive({f"{folder}/data.pkl": data, f"{folder}/data/0": bytes(16), **(members or {})})


def torch_tensor(key: str = "0", kind: str = "FloatStorage", size: int = 4) -> bytes:
    storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n"
    storage += text(key) + text("cpu") + b"K" + bytes([size]) + b"tQ"
    shape = b"K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + shape + b"tR"


def pickled(*items: tuple[str, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(text(k) + v for k, v in items) + b"u."


def of_safetensors(evil: str) -> Iterator[Files]:
    auxiliary = [
        *not_weights._ALWAYS,
        *not_weights._ALWAYS_SUFFIXES,
        *not_weights._STACKED_SUFFIXES,
        "input_scale",
    ]
    for other in [*not_weights._AS_INTEGERS, *not_weights._WITH]:
        auxiliary += [other, *not_weights._WITH.get(other, ())]
    for dtype, n in (("F32", 4), ("U8", 1), ("I32", 4), ("F8_E4M3", 1)):
        entries: dict[str, Entry] = {
            f"{evil}.{name}".replace("..", "."): (dtype, (2, 2), bytes(4 * n)) for name in auxiliary
        }
        for name in entries:
            yield {"m.safetensors": safetensors_bytes({name: entries[name]})}
        yield {"m.safetensors": safetensors_bytes(entries)}
    weight: dict[str, Entry] = {f"{evil}.weight": ("F8_E4M3", (4,), bytes(4))}
    yield {"m.safetensors": safetensors_bytes(weight)[:-1]}
    yield {
        "m.safetensors": safetensors_bytes(
            {**weight, f"{evil}.weight_scale": ("I8", (3,), bytes(3))}
        )
    }
    for entry in (
        {"dtype": evil, "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": evil, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [evil, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], evil: 1},
        evil,
    ):
        raw = json.dumps({evil: entry}).encode()
        yield {"m.safetensors": struct.pack("<Q", len(raw)) + raw + ONE}
    raw = json.dumps({"__metadata__": {evil: 1}}).encode()
    yield {"m.safetensors": struct.pack("<Q", len(raw)) + raw}


def of_gguf(evil: str) -> Iterator[Files]:
    tensor = Tensor((32,), 2, bytes(18))
    for keys, tensors in (
        ({evil: Raw(99, b"")}, {}),
        ({evil: (U32, 1)}, {}),
        ([(evil, (U32, 1))] * 2, {}),
        ({"general.alignment": (STRING, evil)}, {}),
        ({"general.architecture": (STRING, evil)}, {"w": tensor}),
        ({}, [(evil, tensor)] * 2),
        ({}, {evil: Tensor((32,), 99, bytes(18))}),
        ({}, {evil: Tensor((31,), 2, bytes(18))}),
        ({}, {evil: Tensor((32,), 2, b"")}),
        ({}, {evil: Tensor((32,), 2, bytes(18), 7)}),
        ({}, {evil: Tensor((1 << 40, 1 << 40), 0)}),
        ({"split.count": (STRING, evil)}, {evil: tensor}),
    ):
        raw = gguf_bytes(keys, tensors)
        yield {"m.gguf": raw}
        yield {"m.gguf": raw[:-1]}
    yield {f"{evil}-00001-of-00002.gguf".replace("\0", ""): gguf_bytes({"split.count": (2, 2)})}


def of_pickles(evil: str) -> Iterator[Files]:
    tensor = torch_tensor()
    for module, name in ((evil, "a"), ("os", f"system{evil}"), (f"numpy.{evil}", evil)):
        found = b"\x80\x04" + text(module) + text(name) + b"\x93."
        yield {"m.pth": pth(found)}
        yield {"m.pth": pth(b"\x80\x04" + text(module) + text(name) + b"\x93)R}b.")}
        yield {"m.pth": found}
    for data in (
        pickled((evil, tensor), (evil, torch_tensor("0", size=3))),
        pickled((evil, torch_tensor(evil))),
        pickled((evil, torch_tensor("1"))),
        pickled((evil, torch_tensor("0", "FloatTensor"))),
        pickled((evil, torch_tensor("0", "QInt8Storage"))),
        pickled((evil, b"cnumpy.core.multiarray\n_reconstruct\n(" + text(evil) + b"tR")),
        pickled((evil, b"cnumpy\ndtype\n(" + text(evil) + b"\x89\x88tR")),
        pickled((f"a.{evil}", tensor), ("a", b"}" + text(evil) + tensor + b"s")),
        b"\x80\x02" + text(evil) + b"Q.",
        b"\x80\x02(" + text("storage") + text(evil) + text(evil) + text(evil) + text(evil) + b"tQ.",
        b"\x80\x02g" + evil.encode().replace(b"\n", b" ") + b"\n.",
        b"\x80\x02I" + evil.encode().replace(b"\n", b" ") + b"\n.",
        b"\x80\x02S" + evil.encode().replace(b"\n", b" ") + b"\n.",
    ):
        yield {"m.pth": pth(data)}
    zipped = evil.replace("\0", "\x01")
    yield {"m.pth": pth(pickled(("w", tensor)), zipped)}
    yield {"m.pth": pth(pickled(("w", tensor)), members={f"{zipped}/x": b""})}
    yield {"m.pth": pth(pickled(("w", tensor)), members={f"{zipped}/data.pkl": b"N."})}
    yield {"m.pth": pth(pickled(("w", tensor)), members={"a/byteorder": evil.encode()})}
    yield {"m.pth": pth(pickled(("w", tensor)), members={f"a/data/{zipped}": bytes(4)})}


def of_arrays(evil: str) -> Iterator[Files]:
    name = evil.replace("\0", "\x01")
    broken = [with_header(evil, b"", 3), with_header(header(evil, (1,)), ONE, 3)]
    for raw in (b"", b"\x93NUMPY", *broken):
        yield {"m.npz": archive({f"{name}.npy": raw})}
        yield {"m.npy": raw}
    yield {"m.npz": archive({f"{name}.npy": with_header(header([(evil, "<f4")], (1,)), ONE, 3)})}
    yield {"m.npz": archive({name: b"text"})}
    yield {"m.npz": archive({f"{name}.npy": with_header(header("|O", (1,)), ONE)})}
    yield {"m.npz": archive({f"{name}.npy": with_header(header("<f4", (9,)), ONE)})}


def of_directories(evil: str) -> Iterator[Files]:
    file = evil.replace("\0", "").replace("/", "")
    weight = safetensors_bytes({"w": ("F32", (1,), ONE)})
    for config in (
        {"quantization_config": {"quant_method": evil}},
        {"quantization_config": {"quant_method": "gptq", "bits": evil}},
        {"quantization_config": {"quant_method": "compressed-tensors", "format": evil}},
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [evil, 1]}},
        {
            "quantization_config": {"quant_method": "mlx", "mode": evil},
            "quantization": {"bits": evil},
        },
        {
            "quantization_config": {
                "quant_method": "quark",
                "export": evil,
                "global_quant_config": evil,
            }
        },
        {"model_type": evil, "quantization_config": evil},
    ):
        yield {"model.safetensors": weight, "config.json": json.dumps(config).encode()}
        yield {
            "model.safetensors": safetensors_bytes({f"{evil}.qweight": ("I32", (4,), bytes(16))}),
            "config.json": json.dumps(config).encode(),
        }
    yield {"model.safetensors": weight, "config.json": f'{{"{evil}'.encode()}
    for index in (
        {"weight_map": {evil: "model.safetensors"}},
        {"weight_map": {"w": f"../{evil}"}},
        {"weight_map": {evil: f"{evil}.safetensors"}},
        {"weight_map": evil},
    ):
        yield {
            "model.safetensors": weight,
            "model.safetensors.index.json": json.dumps(index).encode(),
        }
    yield {f"{file}.safetensors": b"no", "model.safetensors": weight}
    yield {f"{file}.safetensors": weight, "model.safetensors": weight}
    yield {f"{file}-00001-of-00003.safetensors": weight}
    yield {f"{file}.onnx": b"no"}


MAKERS = {
    "safetensors": of_safetensors,
    "gguf": of_gguf,
    "pickle": of_pickles,
    "numpy": of_arrays,
    "directory": of_directories,
}


def texts_of(error: BaseException) -> Iterator[str]:
    """Yield all that an error says, by itself and in its attributes."""
    yield str(error)
    yield repr(error)
    for value in (*error.args, *vars(error).values()):
        if isinstance(value, str):
            yield value
    if isinstance(error, an.AnamnesisError):
        yield error.message


def told_of(path: Path) -> Iterator[str]:
    """Yield what every call says of an input that it does not take, and what a model says."""
    calls: list[Callable[[an.Model], object]] = [
        lambda model: model.remember(io.BytesIO()),
        lambda model: model.remember_to_bytes(allow_unknown=True),
        lambda model: model.state_dict(),
        lambda model: model.convert(io.BytesIO(), "gguf"),
        lambda model: model.convert(io.BytesIO(), "npz", verify=True),
        lambda model: model.convert(io.BytesIO(), "fp8-block"),
        lambda model: model.select("no such name"),
        lambda model: [tensor.numpy() for tensor in model.values()],
        lambda model: [tensor[99, 99] for tensor in model.values()],
    ]
    for options in ({}, {"strict": True}, {"allow_foreign": True}, {"select": "none"}):
        try:
            with an.parse(path, **options) as model:
                yield repr(model)
                yield from str(model.inspect()).splitlines()
                for problem in model.problems.values():
                    yield from texts_of(problem)
                for call in calls if not options else ():
                    try:
                        call(model)
                    except (an.AnamnesisError, OSError, ValueError, LookupError) as error:
                        yield from texts_of(error)
        except (an.AnamnesisError, OSError, ValueError) as error:
            yield from texts_of(error)
    for file in path.iterdir() if path.is_dir() else [path]:
        try:
            found = an.scan(file)
        except an.AnamnesisError as error:
            yield from texts_of(error)
        else:
            yield from str(found).splitlines()
            yield from found.problems
            yield from (p.malformed for p in found.pickles if p.malformed)


def written(folder: Path, files: Files) -> Path:
    """Write files into a new folder; return what is to be parsed."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files)) if len(files) == 1 else folder


@pytest.mark.sampled(12)
@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_text_is_raw(make: Callable[[str], Iterator[Files]], evil: str, tmp_path: Path) -> None:
    n = 0
    for i, files in enumerate(make(f"m{evil}")):
        path = written(tmp_path / str(i), files)
        for told in told_of(path):
            n += 1
            assert told.isprintable(), (files, told)
            assert len(told) < 5_000
    assert n > 20  # something was said


@pytest.mark.slow
@pytest.mark.parametrize("evil", [EVIL["escape"], EVIL["right-to-left"]])
def test_no_command_says_it_raw(
    evil: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, make in MAKERS.items():
        for i, files in enumerate(make(f"m{evil}")):
            path = str(written(tmp_path / f"{kind}{i}", files))
            for command in (
                ["parse", "--metadata"],
                ["inspect"],
                ["scan"],
                ["plan", "--to", "gguf"],
            ):
                with pytest.raises(SystemExit):
                    main([*command, path])
            out, err = capsys.readouterr()
            for line in (out + err).split("\n"):
                assert line.isprintable(), files


def all_kinds(kind: type[an.AnamnesisError] = an.AnamnesisError) -> set[type[an.AnamnesisError]]:
    return {kind}.union(*map(all_kinds, kind.__subclasses__()))


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_errors_are_printable_by_construction(evil: str) -> None:
    made: list[an.AnamnesisError] = [
        kind(evil, remedy=evil)
        for kind in all_kinds()
        if kind.__init__ is an.AnamnesisError.__init__
    ]
    made += [
        an.ParseError(evil, source=evil, offset=1, remedy=evil),
        an.LimitExceeded("max_item_count", evil),
        an.DisallowedGlobal(evil, evil),
    ]
    for error in made:
        error.tensor = error.source = evil
        error.__dict__.setdefault("encoding", None)
        for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert all(told.isprintable() for told in texts_of(again))
            assert ascii(evil[-1])[1:-1] in str(again)


def test_long_texts_are_cut() -> None:
    long = "\u202e" * 20_000_000
    for error in (
        an.DisallowedGlobal(long, long),
        an.ParseError(long, source=long),
        an.UnsupportedError("x", remedy=long),
    ):
        error.tensor = long
        assert all(len(told) < 5_000 for told in texts_of(error))
    assert an.DisallowedGlobal("os", "system").module == "os"
    assert shortened("a" * 1_000_000).endswith("… (1,000,000 characters)")


def test_a_long_name_is_listed_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_bytes({"n" * (1 << 20): ("F32", (1,), ONE)}))
    for command in (["parse"], ["parse", "--schemes"], ["inspect"], ["plan", "--to", "fp8-block"]):
        with pytest.raises(SystemExit):
            main([*command, str(path)])
    out, err = capsys.readouterr()
    assert "(1,048,576 characters)" in out
    assert max(map(len, (out + err).split("\n"))) < 3_000
