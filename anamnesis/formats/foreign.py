"""Files that are no model: what they are, and what to pass instead.

Consulted only when a file could not be parsed, so it costs nothing otherwise.
"""

from __future__ import annotations

import os
import re

from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source

_PASS_A_MODEL = "pass a .safetensors, .gguf, .npz, .npy or .pth file, or a model's directory"
_UNPACK = "unpack it and pass the model inside"
_EXPORT = "export the weights as safetensors, and pass that"
_DOWNLOAD = "download the model file itself"

# Offset, what is there, what the file is, what to do.
_MAGICS = (
    (0, b"\x1f\x8b", "a gzip archive", _UNPACK),
    (0, b"BZh", "a bzip2 archive", _UNPACK),
    (0, b"\xfd7zXZ\0", "an xz archive", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", _UNPACK),
    (0, b"\x04\x22\x4d\x18", "an LZ4 archive", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras and others)", _EXPORT),
    (4, b"TFL3", "a TensorFlow Lite model", _EXPORT),
    (0, b"lmgg", "a GGML file from before GGUF", "convert it to GGUF with llama.cpp's scripts"),
    (0, b"fmgg", "a GGML file from before GGUF", "convert it to GGUF with llama.cpp's scripts"),
    (0, b"tjgg", "a GGML file from before GGUF", "convert it to GGUF with llama.cpp's scripts"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run git lfs pull"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image", _PASS_A_MODEL),
    (0, b"\xff\xd8\xff", "a JPEG image", _PASS_A_MODEL),
    (0, b"GIF8", "a GIF image", _PASS_A_MODEL),
    (8, b"WEBP", "a WebP image", _PASS_A_MODEL),
    (0, b"RIFF", "a WAV or AVI file", _PASS_A_MODEL),
    (0, b"%PDF-", "a PDF document", _PASS_A_MODEL),
    (0, b"SQLite format 3\0", "an SQLite database", _PASS_A_MODEL),
    (0, b"PAR1", "a Parquet table", _PASS_A_MODEL),
    (0, b"ARROW1", "an Arrow table", _PASS_A_MODEL),
    (0, b"\x7fELF", "a program or library (ELF)", _PASS_A_MODEL),
    (0, b"\xcf\xfa\xed\xfe", "a program or library (Mach-O)", _PASS_A_MODEL),
    (0, b"MZqFpD", "a llamafile", "pass the GGUF file that it was made from"),
    (0, b"MZ", "a Windows program or library", _PASS_A_MODEL),
)

# The same where no fixed bytes identify it. ONNX begins with a version and its producer's name.
_ONNX = re.compile(rb"\x08[\x01-\x20](?:\x12.[A-Za-z]|[:B])", re.DOTALL)
_PROTOBUF = re.compile(rb"\x08[\x01-\x20]\x12")
_HTML = re.compile(rb"\s*+<(?:!doctype html|html)", re.IGNORECASE)
_XML = re.compile(rb"\s*+<(?:\?xml|svg)")
_ZEROS = re.compile(rb"\0{64}")
_PATTERNS = (
    (_ONNX, "an ONNX model", _EXPORT),
    (_PROTOBUF, "a Core ML or TensorFlow model (protobuf)", _EXPORT),
    (_HTML, "a web page", _DOWNLOAD),
    (_XML, "an XML file", _PASS_A_MODEL),
    (_ZEROS, "a file of zeros: a download that did not finish", _DOWNLOAD),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_TEXT_PICKLE = re.compile(rb"[(\]})dlt]*+(?:p\d++\n|q\0|[ci][\w.]++\n[\w.]++\n|[IFLSV][^\n]*+\n|N)")
_END_OF_PICKLE = b"."
_SCAN = "anamnesis.scan shows what it refers to"

_LOOK_AT = 512
_NOT_TEXT = bytes({*range(32), 127} - set(b"\t\n\f\r"))


def foreign_error(source: Source) -> ParseError | None:
    """Return an error that says what kind of file this is; None if it is unknown."""
    what, remedy = _kind(source)
    if not what:
        return None
    error = ParseError(f"this is {what}, not a model file", source=source.name, remedy=remedy)
    error.offset = 0  # of no use in the message
    return error


def foreign_kind(source: Source) -> str | None:
    """Return what kind of file this is, and that it must be unpacked; None if it is unknown."""
    what, remedy = _kind(source)
    return f"{what}; unpack it" if remedy == _UNPACK else what or None


def _head(source: Source) -> bytes:
    return source.read(0, min(_LOOK_AT, source.size))


def _kind(source: Source) -> tuple[str, str]:
    """Return what a file is, and what to do about it; empty texts if it is unknown."""
    head = _head(source)
    if not head:
        return "an empty file", _DOWNLOAD
    for offset, magic, what, remedy in _MAGICS:
        if head.startswith(magic, offset):
            return what, remedy
    for pattern, what, remedy in _PATTERNS:
        if pattern.match(head):
            return what, remedy
    if looks_like_a_pickle(source):
        return "a pickle that PyTorch did not save", _SCAN
    if not _is_text(head):
        return "", ""
    if not head.lstrip().startswith((b"{", b"[")):
        return "text", _PASS_A_MODEL
    if source.path is None:
        return "JSON", "pass the directory of the model that it belongs to"
    folder = os.path.dirname(source.path) or os.curdir
    return "JSON", f"pass the model's directory, {folder!r}"


def looks_like_a_pickle(source: Source) -> bool:
    """Return whether a file begins, and if it is text also ends, like a pickle."""
    head = _head(source)
    if _PICKLE.match(head):
        return True
    return (
        _TEXT_PICKLE.match(head) is not None and source.read(source.size - 1, 1) == _END_OF_PICKLE
    )


def _is_text(head: bytes) -> bool:
    if head.translate(None, _NOT_TEXT) != head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.end == len(head) == _LOOK_AT and error.start > len(head) - 4  # a cut character
    return True
