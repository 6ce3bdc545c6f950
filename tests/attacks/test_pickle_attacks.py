"""Pickles that hide what they do: the tricks that scanners were bypassed with, rebuilt here."""

from __future__ import annotations

import pickle
import random
import struct
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import anamnesis as an
from anamnesis.formats.scan.scan import scan
from helpers.pickle_handmade import RUN, SAFE, Runs, numpy_saved, torch_saved, zipped
from helpers.zip_handmade import Member, zip_bytes

pytestmark = pytest.mark.usefixtures("bounded")

CALL = b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."


def npy(descr: str, data: bytes) -> bytes:
    """Return an array of objects whose header spells their dtype in another way."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def rebuilt(function: bytes, *rest: bytes) -> bytes:
    """Return a state dictionary with a tensor that is made by `function`."""
    tail = b"".join(rest)
    return b"\x80\x02}X\x01\x00\x00\x00wctorch._tensor\n_rebuild_from_type_v2\n(" + (
        b"c" + function + b"\nctorch\nTensor\n" + tail + b"}tRs."
    )


ENDLESS = b")" + b"2\x86" * 60  # a pair of pairs of pairs ...: printing it would never end
LEGACY = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
OBJECTS = numpy_saved(np.array([Runs(eval, "1")], dtype=object))

# What they hold is found, and is dangerous.
DANGEROUS: dict[str, bytes] = {
    "reduce": RUN,
    "protocol 0": b"cos\nsystem\n(S'true'\ntR.",
    "inst": b"(S'true'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'true'\no.",
    "newobj": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85\x81.",
    "newobj_ex": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85}\x92.",
    "built": b"\x80\x04\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R\x8c\x02os\x8c\x06system\x93b.",
    "stack global": b"\x80\x04" + CALL,
    "by the memo": b"\x80\x04\x8c\x06system\x940\x8c\x02os\x940h\x01h\x00\x93\x8c\x04true\x85R.",
    "memoised twice": b"\x80\x04\x8c\x04jsonq\x00\x8c\x02osq\x00\x8c\x06system\x93N.",
    "memoised twice, and used": b"\x8c\x04jsonq\x000\x8c\x02osq\x000h\x00\x8c\x06system\x93N.",
    "memoised far off": b"\x8c\x02osr\xff\xff\xff\x7f0j\xff\xff\xff\x7f\x8c\x06system\x93N.",
    "popped between": b"\x8c\x02os\x8c\x04json0N0\x8c\x06system\x93N.",
    "doubled": b"\x8c\x06system\x8c\x02os20\x940\x940h\x00h\x01\x93N.",
    "below a mark": b"\x8c\x02os\x8c\x06system(NNN1\x93N.",
    "an empty dictionary between": b"\x8c\x02os\x8c\x06system}0\x93N.",
    "in Python 2's strings": b"U\x02osU\x06system\x93N.",
    "in escapes": b"V\\u006f\\u0073\nS'sys\\x74em'\n\x93N.",
    "computed": b"\x80\x04\x8c\x02os]\x93)R.",
    "an extension code": b"\x80\x02\x82\x01)R.",
    "an extension code of four bytes": b"\x80\x02\x84\x01\x00\x00\x00)R.",
    "never called": b"\x80\x02cos\nsystem\n0N.",
    "popped": b"\x80\x02(cos\nsystem\n1N.",
    "a key": b"}cos\nsystem\nNs.",
    "a persistent id": b"cos\nsystem\nQ.",
    "the second pickle": SAFE + RUN,
    "the second protocol": b"\x80\x04\x80\x02\x80\x00" + RUN[2:],
    "a frame too short": b"\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00" + CALL,
    "broken behind it": RUN[:-1] + b"\xff",
    "cut short behind it": RUN[:-1],
    "with an empty stack behind it": RUN[:-1] + b"000.",
    "a list's item by number before it": b"]Na(K\x00K\x01u0" + RUN,
    "a number in hexadecimal before it": b"I0x1F\n0" + RUN,
    "in a string": pickle.dumps(["x", b"y" * 20, RUN], 4),
    "in a string in a string": pickle.dumps(pickle.dumps(RUN, 4), 4),
    "in a string for torch": b"ctorch.storage\n_load_from_bytes\n(B"
    + struct.pack("<I", len(RUN))
    + RUN
    + b"tR.",
    "a chain": pickle.dumps(Runs(getattr, Runs(__import__, "os"), "system"), 2),
    "a dotted name": b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93.",
    "a dotted name of what is safe": b"\x8c\x0ctorch._utils\x8c\x0bsys.modules\x93.",
    "dunders": b"\x80\x04\x8c\x0bcollections\x8c\x15OrderedDict.__class__\x93.",
    "python 2's builtins": b"c__builtin__\neval\n(S'1'\ntR.",
    "pip": b"cpip\nmain\n(lp0\ntR.",
    "torch's own gadgets": b"ctorch.jit.unsupported_tensor_ops\nexecWrapper\n.",
    "a rebuild by another function": rebuilt(b"os\nsystem", b"X\x04\x00\x00\x00true\x85"),
    "a rebuild of a rebuild": rebuilt(
        b"torch._tensor\n_rebuild_from_type_v2", b"(cbuiltins\neval\nctorch\nTensor\nN)t"
    ),
    "a tensor's hooks": b"\x80\x02ctorch._utils\n_rebuild_parameter\n(NIcbuiltins\nexec\n".replace(
        b"NI", b"N\x89"
    )
    + b"tR.",
    "a member of torch's archive": zipped({"m/data.pkl": RUN, "m/version": b"3\n"}),
    "a renamed data.pkl": zipped({"m/weights.bin": RUN, "m/version": b"3\n"}),
    "an unusual ending": zipped({"m/data.PKL": RUN[2:]}),
    "a second pickle in the archive": zipped({"m/data.pkl": SAFE, "m/other.pkl": RUN}),
    "in a folder of storages": zipped({"m/data.pkl": SAFE, "m/data/0/data.pkl": RUN}),
    "in TorchScript's folder": zipped({"m/data.pkl": SAFE, "m/constants.pkl": RUN}),
    "deflated": zip_bytes([Member(b"m/data.pkl", RUN, 8)]),
    "without a checksum": zip_bytes(
        [Member(b"m/data.pkl", RUN, local={"crc": 0}, central={"crc": 0})]
    ),
    "an array of objects": OBJECTS,
    "an array of objects by name": npy("'object'", RUN),
    "an array of objects escaped": npy(r"'\x4f'", RUN),
    "an array of rows of objects": npy("'(1,)O'", RUN),
    "an array of fields of objects": npy("'U,O'", RUN),
    "an array of records of objects": npy("[('x', '<f4'), ('y', 'object')]", RUN),
    "in an npz": zipped({"a.npy": OBJECTS}),
    "a pickle for an array": zipped({"a.npy": RUN}),
    "legacy torch": torch_saved({"x": Runs(eval, "1")}, _use_new_zipfile_serialization=False),
    "behind legacy torch's magic in a string": pickle.dumps(
        (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    )
    + SAFE * 5
    + RUN,
    "torch": torch_saved({"x": Runs(eval, "1"), "w": torch.ones(2)}),
    "a GGUF file": b"GGUF\x03\x00\x00\x00\x00" + RUN,
    "a GGUF file, and a list's item by number": b"GGUF\x03\x00\x00\x00\x00]Na(K\x00K\x01u0" + RUN,
    "a safetensors file": b"X\x08\x00\x00\x00\x00\x00\x00{}      "[:13] + b"0" + RUN,
}


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous(name: str) -> None:
    found = scan(DANGEROUS[name])
    assert found.verdict == "dangerous", list(found.lines(name))


def broken(**told: Any) -> bytes:
    return zip_bytes([Member(b"m/data.pkl", RUN, **told)])


# What they hold is not all found, but they are not called safe.
NOT_SAFE: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello\n",
    "cut short": SAFE[:-1],
    "something behind it": SAFE + b"\0\0",
    "an unknown global": b"\x80\x02cmodels.yolo\nDetect\n.",
    "an unknown name of torch": b"\x80\x02ctorch.nn.modules.linear\nLinear\n.",
    "the state of a class": b"ctorch\nTensor\nN}X\x01\x00\x00\x00xNs\x86b.",
    "protocol 6": b"\x80\x06N.",
    "a pickle of pickles without an end": b"\x80\x04" * 10,
    "deep": b"(" * 1000,
    "an integer too long": b"\x8b\xff\xff\xff\x7f",
    "gzip": zlib.compress(RUN, wbits=31),
    "zlib": zlib.compress(RUN),
    "an archive in an archive": zipped({"a.bin": zipped({"data.pkl": RUN})}),
    "an archive with something before it": SAFE + zipped({"data.pkl": RUN}),
    "an archive that looks like safetensors": b"PK\3\4\0\0\0\0{" + zipped({"data.pkl": RUN})[9:],
    "encrypted": broken(flags=1),
    "encrypted in the directory only": broken(central={"flags": 1}),
    "encrypted in the member only": broken(local={"flags": 1}),
    "packed in another way": broken(method=12),
    "packed otherwise in the directory": broken(central={"method": 8}),
    "two names": broken(local={"name": b"m/data.txt"}),
    "a wrong checksum": broken(central={"crc": 1}),
    "a wrong length": broken(central={"n_bytes": 5, "n_compressed": 5}),
    "a member that is damaged": zipped({"m/data.pkl": SAFE}).replace(SAFE, SAFE[:-3] + b"\0\0."),
    "a damaged member beside it": zip_bytes(
        [Member(b"m/a.pkl", SAFE, central={"crc": 1}), Member(b"m/data.pkl", SAFE)]
    ),
    "a member twice": zipped({"m/data.pkl": SAFE, "m/data.pk2": RUN}).replace(b"pk2", b"pkl"),
    "no archive at all": b"PK\x03\x04" + bytes(100),
    "another archive": b"7z\xbc\xaf\x27\x1c" + bytes(100),
    "an array of an unknown version": b"\x93NUMPY\x09\x00" + RUN,
    "a safetensors file cut short": (30).to_bytes(8, "little") + b'{"__metadata__":{}}',
    "a safetensors file and more": (2).to_bytes(8, "little") + b"{}" + b"N.",
    "a GGUF file cut short": b"GGUF\x03\0\0\0\x01",
    "a GGUF file and more": b"GGUF\x03\0\0\0" + bytes(16) + b"x" * 40,
    "an array of strings and more": numpy_saved(np.array(["a"])) + b"N.",
    "a byte behind legacy torch": torch_saved(
        {"w": torch.ones(2)}, _use_new_zipfile_serialization=False
    )
    + b"\0",
    "a frame that an opcode reaches over": b"\x80\x04\x95\x03" + bytes(7) + b"\x8c\x03abc.",
    "a frame in what is called like text": zipped(
        {"extra/a.txt": b"\x95\x07" + bytes(7) + b"N0U\x07abcdefg\xff"}
    ),
    "a frame that goes on": b"\x80\x04\x95\x04" + bytes(7) + b"N.N.",
    "a frame in a frame": b"\x80\x04\x95\x0b" + bytes(7) + b"\x95\x02" + bytes(7) + b"N.",
    "an array without an end": b"\x93NUMPY\x01\x00\xff\xff" + RUN,
}


@pytest.mark.parametrize("name", NOT_SAFE)
def test_not_safe(name: str) -> None:
    found = scan(NOT_SAFE[name])
    assert found.verdict != "safe"
    assert all(len(line) < 300 for line in found.lines(name))


# What costs far more than its size says.
COSTLY: dict[str, bytes] = {
    "many pickles": b"N." * 30_000,
    "many globals": b"".join(b"c%d\n\n" % n for n in range(9_000)) + b".",
    "many members": zip_bytes([Member(b"%d.pkl" % n, b"N.") for n in range(600)]),
    "memos of memos": b"(" + b"2" * 60_000 + b"t.",
    "replayed": b"]\x94" + b"h\x00h\x00\x86\x94" * 8_000 + b".",
    "pushed": zip_bytes([Member(b"m/data.pkl", b"N" * 30_000_000 + b".", 8)]),
    "as long as is allowed": zip_bytes(
        [Member(b"m/data.pkl", b"N0" * 450_000 + random.Random(1).randbytes(58_000), 8)]
    ),
    "pushed and popped": zip_bytes([Member(b"m/data.pkl", b"N0" * 15_000_000 + b"N.", 8)]),
    "members that are many pickles": zip_bytes(
        [Member(b"%d.pkl" % n, b"N." * 20_000, 8) for n in range(200)]
    ),
    "a call of what is told without an end": zipped({"m/data.pkl": ENDLESS + b")R."}),
    "a call for what is told without an end": zipped(
        {"m/data.pkl": b"c_codecs\nencode\n(X\x00\x00\x00\x00" + ENDLESS + b"tR."}
    ),
    "a layout without an end": zipped(
        {
            "m/data.pkl": b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n"
            b"_get_layout\n(" + ENDLESS + b"tR)tR."
        }
    ),
    "a version without an end": LEGACY + b"(" + ENDLESS + b"t.",
    "a storage's key without an end": LEGACY + b"M\xe9\x03.}.}.](" + ENDLESS + b"e.",
    "a persistent id without an end": zipped({"m/data.pkl": ENDLESS + b"Q."}),
    "a global without an end": b"(" + ENDLESS + b"N\x93.",
    "strings like pickles": b"".join(b"C\x03\x80\x02." for _ in range(12_000)) + b".",
    "a module of many packages": b"X" + struct.pack("<I", 28_001) + b"a." * 14_000 + b"a\x94"
    b"0\x8c\x01b\x940" + b"h\x00h\x01\x930" * 5_500 + b"N.",
    "a name of many steps": b"ca\n" + b"a." * 30_000 + b"\nN.",
    "members that are lines": zip_bytes([Member(b"%d" % n, b"V" * 600_000, 8) for n in range(50)]),
    "strings in strings": pickle.dumps(pickle.dumps(pickle.dumps(SAFE * 2_000, 4), 4), 4),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COSTLY)
def test_costly(name: str) -> None:
    assert len(COSTLY[name]) <= 65_536
    scan(COSTLY[name])


@pytest.mark.parametrize(
    "frame", [b"\x03" + bytes(7) + b"\x8c\x03abc.", b"\4" + bytes(7) + b"N.N."]
)
def test_frames_end_with_opcodes(frame: bytes) -> None:
    """What is left of a frame is dropped by what reads from a file, and not by others."""
    with pytest.raises(an.ParseError, match="frame"):
        an.parse(zipped({"m/data.pkl": b"\x80\x04\x95" + frame}))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_frames_of_real_files(protocol: int) -> None:
    """Frames end in the midst of tensors."""
    weights = {f"layers.{n}.weight": torch.full((2,), float(n)) for n in range(3_000)}
    for is_zipped in (True, False):
        options = {"_use_new_zipfile_serialization": is_zipped, "pickle_protocol": protocol}
        data = torch_saved(weights, **options)
        assert scan(data).verdict == "safe"
        with an.parse(data) as model:
            assert {name: float(model[name].numpy()[0]) for name in model} == {
                name: float(tensor[0]) for name, tensor in weights.items()
            }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*DANGEROUS, *NOT_SAFE, *COSTLY])
def test_parsing_them_ends_too(name: str) -> None:
    data = {**DANGEROUS, **NOT_SAFE, **COSTLY}[name]
    for allow_foreign in (False, True):
        with (
            suppress(an.AnamnesisError),
            an.parse(data, allow_foreign=allow_foreign) as model,
        ):
            model.inspect()
