"""Files that run code when they are loaded, made in every way known: none of them is called safe.

Each is really loaded, by Python's unpicklers, torch and NumPy, with a function of this package's
own for `os.system`; and looked at by other scanners.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import logging
import lzma
import os
import pickle
import struct
import sys
import tarfile
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import picklescan.scanner
import pytest
import torch
from modelscan.modelscan import ModelScan

from anamnesis.formats.scan.scan import scan
from anamnesis.formats.torch.globals import is_allowed
from helpers.pickle_handmade import Runs, torch_saved, zipped
from helpers.zip_handmade import Member, zip_bytes

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))
from other_programs import ask

logging.getLogger("picklescan").setLevel(logging.CRITICAL + 1)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(raw)) + raw


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


CALL = text("true") + b"\x85R."
RUN = b"cos\nsystem\n(" + text("true") + b"tR."
MAGIC = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
LEGACY = [MAGIC, b"M\xe9\x03.", b"}.", b"}.", b"]."]
EMPTY = b"\x80\x02}."

PICKLES: dict[str, bytes] = {
    "GLOBAL": RUN,
    "posix": b"cposix\nsystem\n" + CALL,
    "STACK_GLOBAL": b"\x80\x04" + short("os") + short("system") + b"\x93" + CALL,
    "STACK_GLOBAL, memoised": b"\x80\x04" + short("os") + b"\x940" + short("system") + b"\x940"
    b"h\x00h\x01\x93" + CALL,
    "STACK_GLOBAL, put": short("os")
    + b"q\x050"
    + short("system")
    + b"r\x99\0\0\x000h\x05j\x99\0\0\0"
    b"\x93" + CALL,
    "STACK_GLOBAL, UNICODE": b"Vos\nV\\u0073ystem\n\x93" + CALL,
    "STACK_GLOBAL, STRING": b"S'os'\nS\"sys\\x74em\"\n\x93" + CALL,
    "STACK_GLOBAL, BINSTRING": b"U\x02osT\x06\x00\x00\x00system\x93" + CALL,
    "STACK_GLOBAL, BINUNICODE8": b"\x8d\2\0\0\0\0\0\0\0os" + short("system") + b"\x93" + CALL,
    "INST": b"(" + text("true") + b"ios\nsystem\n.",
    "OBJ": b"(cos\nsystem\n" + text("true") + b"o.",
    "NEWOBJ": b"\x80\x02csubprocess\nPopen\n" + text("true") + b"\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04csubprocess\nPopen\n" + text("true") + b"\x85}\x92.",
    "BUILD": b"ccollections\nOrderedDict\n)R}"
    + text("__setstate__")
    + b"cos\nsystem\nsb"
    + text("true")
    + b"b.",
    "EXT1": b"\x80\x02\x82\x01)R.",
    "the second pickle": b"N." + RUN,
    "getattr": b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n("
    + text("os")
    + b"tR"
    + text("system")
    + b"tR"
    + CALL,
    "a dotted name": b"\x80\x04" + short("torch") + short("os.system") + b"\x93" + CALL,
    "rot13": short("os")
    + b"c_codecs\nencode\n("
    + text("flfgrz")
    + text("rot13")
    + b"tR\x93"
    + CALL,
    "an encoded name": short("os") + b"c_codecs\nencode\n(" + text("system") + b"tR\x93" + CALL,
    "_reconstructor": b"ccopyreg\n_reconstructor\n(csubprocess\nPopen\ncbuiltins\nobject\nNtR.",
    "pip": b"cpip\nmain\n.",
    "runstring": b"cnumpy.testing._private.utils\nrunstring\n(" + text("1") + b"}tR.",
    "pickle.loads": b"cpickle\nloads\n(C" + bytes([len(RUN)]) + RUN + b"tR.",
    "_load_from_bytes": b"ctorch.storage\n_load_from_bytes\n(C" + bytes([len(RUN)]) + RUN + b"tR.",
    "protocol 0 with \\r": b"cos\nsystem\n(S'true'\ntR.".replace(b"\ntR", b"\r\ntR").replace(
        b"'true'\r", b"'true'"
    ),
    "a persistent id": b"Pfoo\n0" + RUN,
    "a persistent id on the stack": b"NQ0" + RUN,
    "a memo index of 2^31": b"N0Np99999\n0" + RUN,
    "a line without an end": b"cos\nsystem",
    "a list for arguments": b"cos\nsystem\n](" + text("true") + b"eR.",
}

# What one unpickler or another takes before the call.
BEFORE: dict[str, bytes] = {
    "LONG1": b"\x8a\x000",
    "LONG4": b"\x8b\x01\x00\x00\x00\x050",
    "marks": b"((((1111",
    "a mark popped": b"(0",
    "POP_MARK": b"(N1",
    "INT 01": b"I01\n0I00\n0",
    "INT in hexadecimal": b"I0x10\n0",
    "INT in octal": b"I017\n0",
    "INT in binary": b"I0b1\n0",
    "INT with an underscore": b"I1_0\n0",
    "INT with spaces": b"I 7 \n0",
    "INT of nothing": b"I\n0",
    "INT behind a NUL": b"I1\0x\n0",
    "INT with a return": b"I1\r\n0",
    "LONG": b"L0x10L\n0",
    "LONG behind a NUL": b"L5\0x\n0",
    "FLOAT": b"F 1.5\n0Finf\n0F1_0.0\n0",
    "FLOAT behind a NUL": b"F1\0x\n0",
    "STRING with escapes": b"S'\\q\\x4'\n0"[:-4] + b"1'\n0",
    "STRING with quotes in it": b"S'a'b'\n0S\"a'b\"\n0",
    "UNICODE": b"V\\ud800\n0",
    "a surrogate": b"X\x03\x00\x00\x00\xed\xa0\x800",
    "PUT": b"Np 5\n0g5\n0Np+6\n0g6\n0Np1_0\n0g10\n0",
    "PUT behind a NUL": b"Np5\0x\n0g5\0y\n0",
    "a set": b"\x8f(K\x01K\x02\x900(K\x01\x910",
    "nothing set of None": b"N(u0",
    "nothing appended to None": b"N(e0",
    "nothing added to None": b"N(\x900",
    "nothing set of a string": text("a") + b"(u0",
    "a list's items by number": b"](K\x01eK\x00K\x05s0",
    "a bytearray": b"\x96\1\0\0\0\0\0\0\0aK\x01a0",
    "READONLY_BUFFER": b"C\x01a\x980",
    "READONLY_BUFFER of a bytearray": b"\x96\1\0\0\0\0\0\0\0a\x980",
    "NEXT_BUFFER": b"\x970",
    "BUILD of None": b"ccollections\nOrderedDict\n)RNb0",
    "BUILD of a pair": b"ccollections\nOrderedDict\n)R(NNtb0",
    "the state of a class": b"ctorch\nTensor\nN}" + text("x") + b"Ns\x86b0",
    "a deque's items": b"ccollections\ndeque\n)R(K\x01e0",
    "protocols": b"\x80\x04\x80\x02\x80\x00",
    "protocol 6": b"\x80\x06",
    "a key that is a tuple": b"}((K\x01K\x02tNu0",
    "MEMOIZE twice": b"N\x94\x940",
    "300 marks": b"(" * 300 + b"l" * 300 + b"0",
    "5,000 tuples": b"N" + b"\x85" * 5000 + b"0",
    "a frame": b"\x95" + struct.pack("<Q", len(RUN)),
    "a frame too long": b"\x95" + struct.pack("<Q", 10**6),
    "a frame too short": b"\x95" + struct.pack("<Q", 1),
    "an empty frame": b"\x95" + bytes(8),
    "a frame in a frame": b"\x95" + struct.pack("<Q", 11) + b"\x95" + struct.pack("<Q", 20) + b"N0",
}
PICKLES |= {f"{name} before it": before + RUN for name, before in BEFORE.items()}


def desynced(n_before: int) -> bytes:
    """Return a pickle: what reads it from a file may drop what is left of a frame."""
    swallow = b"X" + struct.pack("<I", len(RUN))
    n = 5 + len(swallow)
    before = b"X" + struct.pack("<I", n_before) + b"C" * n_before + b"0" if n_before else b""
    frame = before + b"X" + struct.pack("<I", n) + b"AAAAA"
    head = b"\x80\x04\x95" + struct.pack("<Q", len(frame)) + frame
    return head + b"B" * (n - 5) + swallow + RUN + b"0}."


def stopped_in_frame() -> bytes:
    """Return pickles of which the second is found only where the frame does not end."""
    return b"\x80\x04\x95" + struct.pack("<Q", 7) + b"N.N.N.N" + RUN


def broken_at_the_end_of_a_frame(inside: bytes, behind: bytes) -> bytes:
    """Return a pickle whose last opcode in a frame is understood only without what is left."""
    return b"\x95" + struct.pack("<Q", len(inside)) + inside + behind + b"0" + RUN


BROKEN = {
    "a global": broken_at_the_end_of_a_frame(b"cos\n\xff", b"system\n"),
    "text": broken_at_the_end_of_a_frame(b"X\2\0\0\0\xff", b"ab"),
    "a string": broken_at_the_end_of_a_frame(b"S\xff", b"'ab'\n"),
    "the memo": broken_at_the_end_of_a_frame(b"Nq\x05j\xff", b"\5\0\0\0"),
}
PICKLES |= {
    **{f"broken at the end of a frame: {name}": data for name, data in BROKEN.items()},
    "desynced": desynced(0),
    "desynced, long": desynced(140_000),
    "stopped in a frame": stopped_in_frame(),
}

# Codes of extensions, which data often looks like, are told as globals of this module too.
COPYREG = b"I1\0x\n0\x80\x04ccopyreg\n__builtins__.get\n" + short("eval") + b"\x85R"
COPYREG += short("1") + b"\x85R\xff"


def array(descr: str, data: bytes, version: int = 1) -> bytes:
    raw = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}\n".encode()
    n = struct.pack("<H" if version == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes((version, 0)) + n + raw + data


OBJECT = b"cnumpy\nndarray\n0" + RUN
DESCRS = (
    *("'|O'", "'O'", "'|O8'", "'object'", "[('a', '|O')]", "[('a', [('b', 'O')])]", "('O', (1,))"),
    *("'=O'", "'V8,O'", "'f4,O'", "'1O'", "',O'", "'O,'", "'U0'", "'object_'", "'S1,O'", "b'O'"),
    *("'\\x4f'", "'' 'O'", "'a8,O'", "'c8,O'", "'M8[s],O'", "'<f4', 'descr': '|O'", "'<U1'"),
)
ARRAYS = {
    f"{version}: {descr}": array(descr, OBJECT, version)
    for descr in DESCRS
    for version in (1, 2, 3)
}

NAMES = (
    *("data.pkl", "constants.pkl", "data/0", "data/x", "data/data.pkl", "extra/foo", "code/x.py"),
    *("version", "version2", "attributes.pkl", "DATA.PKL", "x.PICKLE", "payload", "foo.data"),
    *("foo.bin", "foo.npy", "foo.model", "foo.ckpt", "code/x.py.debug_pkl", "constants/0"),
    *(".data/serialization_id", "byteorder", ".data/extern_modules", "foo.p", "foo.joblib"),
)
OBJECTS, FLOATS = array("'|O'", OBJECT), array("'<f4'", b"abcd")


def torch_with(name: str, data: bytes) -> bytes:
    return zipped({"m/data.pkl": EMPTY, "m/version": b"3\n", f"m/{name}": data})


ARCHIVES: dict[str, bytes] = {
    **{f"{name} of torch's": torch_with(name, RUN) for name in NAMES},
    **{f"{name} of torch's, protocol 4": torch_with(name, b"\x80\x04" + RUN) for name in NAMES},
    **{f"{name} of torch's, an array": torch_with(name, OBJECTS) for name in NAMES},
    **{f"{name} of no torch's": zipped({"w": b"", name: RUN}) for name in NAMES},
    **{
        f"{name} of arrays": zipped({"w.npy": array("'<f4'", b"abcd"), name: OBJECTS})
        for name in NAMES
    },
    **{f"broken at the end of a frame: {k}": zipped({"x.bin": v}) for k, v in BROKEN.items()},
    "broken behind copyreg's": zipped({"x.bin": COPYREG}),
    "INST without a mark": zipped({"x.bin": b"imodels.net\nNet\n"}),
    "an archive in it": torch_with("inner.zip", zipped({"data.pkl": RUN})),
    "an archive for a storage": torch_with("data/1", zipped({"data.pkl": RUN})),
    "packed once more": zipped({"a.bin": gzip.compress(RUN, mtime=0)}),
    "deflated": zip_bytes([Member(b"m/data.pkl", RUN, 8)]),
    "deflated, not as a pickle": zip_bytes([Member(b"m/x.bin", RUN, 8)]),
    "damaged behind it": zip_bytes([Member(b"m/x.bin", RUN, 8, central={"crc": 1})]),
    "encrypted": zip_bytes([Member(b"m/data.pkl", RUN, flags=1)]),
    "encrypted, says the directory": zip_bytes([Member(b"m/data.pkl", RUN, central={"flags": 1})]),
    "encrypted, says the member": zip_bytes([Member(b"m/data.pkl", RUN, local={"flags": 1})]),
    "a wrong sum": zip_bytes([Member(b"m/data.pkl", RUN, central={"crc": 1})]),
    "a wrong method": zip_bytes([Member(b"m/data.pkl", RUN, central={"method": 99})]),
    "a wrong length": zip_bytes(
        [Member(b"m/data.pkl", RUN, central={"n_bytes": 0, "n_compressed": 0})]
    ),
    "two names": zip_bytes([Member(b"m/data.pkl", RUN, central={"name": b"m/data.xyz"})]),
    "a prefix": b"#!x\n" + zipped({"m/data.pkl": RUN}),
    "a suffix": zipped({"m/data.pkl": RUN}) + b"\0",
    "a pickle before it": b"N." + zipped({"m/data.pkl": RUN}),
    "two ends": zipped({"m/data.pkl": RUN}) + zipped({"m/x.txt": b""})[-22:],
    "a comment that is one": zipped({"a.txt": b""})[:-2] + struct.pack("<H", 0) + RUN,
}


def tarred(first: bytes, members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    raw = bytearray(stream.getvalue())
    raw[: max(len(first), 8)] = first.ljust(8, b"\0") if first else raw[:8]
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


def safetensors(low: int, data: bytes) -> bytes:
    """Return a valid file, whose header's length ends in a byte that is an opcode."""
    header = {"a": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    raw = json.dumps(header).encode()[:-1]
    raw = raw.ljust((256 if low < len(raw) + 2 else 0) + low - 2) + b"\n}"
    return len(raw).to_bytes(8, "little") + raw + data


HEAD = b"\0\0\0{" + b'"a":12}'
WEIGHTS = {"a": torch.ones(2)}
LEGACY_FILE = torch_saved(WEIGHTS, _use_new_zipfile_serialization=False)
OTHERS: dict[str, bytes] = {
    "torch": torch_saved({"e": Runs(os.system, "true"), **WEIGHTS}),
    "legacy torch": torch_saved(
        {"e": Runs(os.system, "true"), **WEIGHTS}, _use_new_zipfile_serialization=False
    ),
    **{
        f"the {n}th of legacy torch": b"".join([*LEGACY[:n], RUN, *LEGACY[n + 1 :]])
        for n in range(6)
    },
    "behind legacy torch's storages": LEGACY_FILE + RUN,
    "before legacy torch": RUN + LEGACY_FILE,
    "a tar": tarred(b"", {"storages": RUN, "tensors": RUN, "pickle": RUN}),
    "a tar called like pickles": tarred(b"".join(LEGACY), {"x": b"", "storages": RUN}),
    "like safetensors": text(HEAD) + b"0" + RUN,
    "like safetensors, and a buffer": text(HEAD) + b"0C\x01a\x980" + RUN,
    "like safetensors, and legacy torch": b"".join(
        [text(HEAD) + b"0" + MAGIC, *LEGACY[1:3], RUN, LEGACY[4]]
    ),
    **{f"safetensors with {low:#x}": safetensors(low, b"0" + RUN) for low in b"VILFP"},
    "safetensors with an archive in it": safetensors(0x60, zipped({"m/data.pkl": RUN})),
    "like GGUF": b"GGUF\x03\0\0\0\0" + b"0" + RUN,
    "gzip": gzip.compress(RUN, mtime=0),
    "bz2": bz2.compress(RUN),
    "xz": lzma.compress(RUN),
    "zlib": zlib.compress(RUN),
    "7z": b"7z\xbc\xaf'\x1c\0\4" + bytes(50) + RUN,
    "nested": pickle.dumps(["x", RUN.replace(b"cos", b"\x80\x02cos")], 4),
}

FILES = {
    **{f"pickle: {name}": data for name, data in PICKLES.items()},
    **{f"torch: {name}": zipped({"m/data.pkl": data}) for name, data in PICKLES.items()},
    **{f"array: {name}": data for name, data in ARRAYS.items()},
    **{f"archive: {name}": data for name, data in ARCHIVES.items()},
    **OTHERS,
}


def runs(data: bytes) -> bool:
    """Return whether anything that loads a file asks for what does more than make tensors."""
    return any(not is_allowed(*found) for found in ask("loaders", data))


def infected_to_picklescan(path: Path) -> bool:
    with suppress(Exception):
        return picklescan.scanner.scan_file_path(str(path)).infected_files > 0
    return False


def unsafe_to_modelscan(path: Path) -> bool:
    scanner = ModelScan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanner.scan(path)
    return bool(scanner.issues.all_issues)


@pytest.mark.parametrize("name", FILES)
def test_what_runs_is_not_safe(name: str, tmp_path: Path) -> None:
    data = FILES[name]
    told = scan(data)
    if runs(data):
        assert told.verdict != "safe", list(told.lines(name))
    for ending in (".pkl", ".pt", ".npy", ".npz"):
        path = tmp_path / f"x{ending}"
        path.write_bytes(data)
        for is_bad in (infected_to_picklescan, unsafe_to_modelscan):
            assert not is_bad(path) or scan(path).verdict != "safe", (ending, is_bad)


def test_none_is_safe() -> None:
    assert [name for name, data in FILES.items() if scan(data).verdict == "safe"] == []


def loaded_by(load: Callable[[str], Any], path: Path) -> None:
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        load(str(path))


def test_the_loaders_run_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus that nothing runs proves nothing: these are loaded for real."""
    asked: list[str] = []
    monkeypatch.setattr(os, "system", asked.append)
    ran = {}
    for name, data in FILES.items():
        if "true" not in repr(data) or "subprocess" in repr(data):
            continue
        (path := tmp_path / "x").write_bytes(data)
        asked.clear()
        loaded_by(lambda path: pickle.loads(Path(path).read_bytes()), path)
        loaded_by(lambda path: torch.load(path, weights_only=False), path)
        loaded_by(lambda path: np.load(path, allow_pickle=True), path)
        ran[name] = list(asked)
    assert sum(map(bool, ran.values())) > 60
    assert {scan(FILES[name]).verdict for name, calls in ran.items() if calls} <= {
        "dangerous",
        "unknown",
    }


@pytest.mark.parametrize("low", range(256))
def test_no_false_alarm_at_safetensors(low: int) -> None:
    data = struct.pack("<2f", 1.0, 2.0)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for high in (1, 3, 40, 0x60):
        raw = header.ljust(high * 256 + low)
        if len(raw) & 0xFF == low:
            assert scan(len(raw).to_bytes(8, "little") + raw + data).verdict == "safe"
