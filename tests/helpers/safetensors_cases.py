"""safetensors headers to try on two readers: which are valid, which not, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from helpers.handmade import Entry, file_bytes, safetensors_bytes

U64_MAX = 2**64 - 1
MAX_DIMS = 64

Bits = Mapping[str, int]
BITS: Bits = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
}


def info(dtype: str = "U8", shape: str = "[1]", offsets: str = "[0,1]", extra: str = "") -> str:
    """Return a tensor's entry in a header."""
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{extra}}}'


def one(data: bytes = b"a", **entry: str) -> bytes:
    """Return a file of the one tensor `a`."""
    return file_bytes(f'{{"a":{info(**entry)}}}', data)


def extra(value: str) -> bytes:
    """Return a file whose one tensor has a further key of that value."""
    return one(extra=f',"x":{value}')


def two(first: str, second: str, data: bytes, names: tuple[str, str] = ("a", "b")) -> bytes:
    """Return a file of two entries."""
    return file_bytes(f'{{"{names[0]}":{first},"{names[1]}":{second}}}', data)


A = info()
_FOUR = info(shape="[4]", offsets="[0,4]")
_NONE = '"shape":[0]'


VALID: dict[str, bytes] = {
    "nothing": file_bytes("{}"),
    "nothing, spaced": file_bytes("{ \t\r\n} \n"),
    "metadata null": file_bytes('{"__metadata__":null}'),
    "metadata empty": file_bytes('{"__metadata__": { } }'),
    "metadata last": file_bytes(f'{{"a":{A},"__metadata__":{{"k":"v","k2":""}}}}', b"a"),
    "metadata, key escaped": file_bytes('{"\\u005f_metadata__":{"k":"v"}}'),
    "metadata of odd strings": file_bytes(
        '{"__metadata__":{"":"\\u0000\\n\\"\\\\\\/","\\ud83d\\ude00":"é😀"}}'
    ),
    "scalar": one(b"\0\0\x80\x3f", dtype="F32", shape="[]", offsets="[0,4]"),
    "empty tensor": one(b"", shape="[0]", offsets="[0,0]"),
    "empty tensors before, between and after": file_bytes(
        f'{{"z":{info(shape="[0,7]", offsets="[1,1]")},"a":{A},"e":{info("F64", "[0]", "[0,0]")},'
        f'"b":{info(offsets="[1,2]")},"l":{info(shape="[3,0]", offsets="[2,2]")}}}',
        b"ab",
    ),
    "largest dim, of no elements": one(b"", shape=f"[{U64_MAX},0]", offsets="[0,0]"),
    "overflow after a zero": one(b"", shape=f"[0,{U64_MAX},{U64_MAX}]", offsets="[0,0]"),
    "width overflows, but for a zero": one(b"", dtype="F64", shape=f"[{2**61},0]", offsets="[0,0]"),
    "2^40 empty matrices": one(b"", dtype="F32", shape=f"[{2**40},0,3]", offsets="[0,0]"),
    "most dims": one(shape=json.dumps([1] * MAX_DIMS)),
    "F4 of an even count": one(b"ab", dtype="F4", shape="[4]", offsets="[0,2]"),
    "F6 of four": one(b"abc", dtype="F6_E3M2", shape="[2,2]", offsets="[0,3]"),
    "keys in another order": file_bytes(
        '{"a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}}', b"a"
    ),
    "another order of bytes": two(info(offsets="[1,2]"), A, b"ab"),
    "further key": extra('[1,{"b":2,"c":[]},{}," ",null,true,false]'),
    "further keys twice": one(extra=',"x":1,"x":2'),
    "numbers in a further key": extra(f"[0,-0,1.5,-0.0e-1,1e308,1E+2,1e-999,{10**40}]"),
    "further key, deepest": extra("[" * 125 + "]" * 125),
    "escapes in a further key": extra('"\\u0041\\b\\f\\n\\r\\t\\/\\\\\\""'),
    "space everywhere": file_bytes(
        '{ \n"a"\t:\r{ "dtype" : "U8" , "shape" : [ 1 , 1 ] , "data_offsets" : [ 0 , 1 ] } , '
        '"__metadata__" : { "k" : "v" , "l" : "w" } } ',
        b"a",
    ),
    "padded": file_bytes(f'{{"a":{A}}}'.ljust(128), b"a"),
    "header as long as a pickle's first bytes": file_bytes("{}".ljust(0x0280)),
    "dtype escaped": one(dtype="\\u00558"),
    "name empty": file_bytes(f'{{"":{A}}}', b"a"),
    "name with NUL": file_bytes(f'{{"\\u0000":{A}}}', b"a"),
    "name with DEL": file_bytes(f'{{"\x7f":{A}}}', b"a"),
    "name escaped": file_bytes(f'{{"\\u0061\\n\\t\\"\\\\\\/..":{A}}}', b"a"),
    "name as a surrogate pair": file_bytes(f'{{"\\ud83d\\ude00":{A}}}', b"a"),
    "name beyond ASCII": file_bytes(f'{{"weight/é😀\u2028":{A}}}', b"a"),
    "name like a path": file_bytes(f'{{"../../etc/passwd":{A}}}', b"a"),
}

INVALID: dict[str, bytes] = {
    "no byte": b"",
    "seven bytes": bytes(7),
    "header of no bytes": bytes(8),
    "header of no bytes, then data": bytes(8) + b"{}",
    "header longer than the file": (3).to_bytes(8, "little") + b"{}",
    "header over 100 MB": (100_000_001).to_bytes(8, "little") + b"{}",
    "header of 2^63 bytes": (2**63).to_bytes(8, "little") + b"{}",
    "header of 2^64 - 1 bytes": b"\xff" * 8 + b"{}",
    "header of one brace": file_bytes("{"),
    "an array": file_bytes("[]"),
    "a string": file_bytes('"a"'),
    "a number": file_bytes("1"),
    "spaces": file_bytes("    "),
    "byte order mark": file_bytes("\ufeff{}"),
    "not UTF-8": file_bytes(b'{"\xff":' + A.encode() + b"}", b"a"),
    "UTF-8 of a surrogate": file_bytes(b'{"\xed\xa0\x80":' + A.encode() + b"}", b"a"),
    "overlong UTF-8": file_bytes(b'{"\xc0\x80":' + A.encode() + b"}", b"a"),
    "UTF-16": file_bytes("{}".encode("utf-16-le")),
    "garbage after": file_bytes(f'{{"a":{A}}} x', b"a"),
    "NUL padding": file_bytes(f'{{"a":{A}}}\0', b"a"),
    "two objects": file_bytes(f'{{"a":{A}}}{{}}', b"a"),
    "form feed as space": file_bytes(f'{{\f"a":{A}}}', b"a"),
    "no-break space": file_bytes(f'{{\xa0"a":{A}}}', b"a"),
    "comma before": file_bytes(f'{{,"a":{A}}}', b"a"),
    "comma after": file_bytes(f'{{"a":{A},}}', b"a"),
    "two commas": file_bytes(f'{{"a":{A},,"b":{_FOUR}}}', b"a"),
    "no comma": file_bytes(f'{{"a":{A}"b":{info(offsets="[1,2]")}}}', b"ab"),
    "no colon": file_bytes(f'{{"a"{A}}}', b"a"),
    "no name": file_bytes(f"{{{A}}}", b"a"),
    "name in single quotes": file_bytes(f"{{'a':{A}}}", b"a"),
    "name without quotes": file_bytes(f"{{a:{A}}}", b"a"),
    "name not closed": file_bytes('{"a'),
    "name with a raw NUL": file_bytes(f'{{"\0":{A}}}', b"a"),
    "name with a raw newline": file_bytes(f'{{"\n":{A}}}', b"a"),
    "name with a bad escape": file_bytes(f'{{"\\x41":{A}}}', b"a"),
    "name with a short escape": file_bytes(f'{{"\\u41":{A}}}', b"a"),
    "name with a signed escape": file_bytes(f'{{"\\u+041":{A}}}', b"a"),
    "name, high surrogate alone": file_bytes(f'{{"\\ud800":{A}}}', b"a"),
    "name, low surrogate alone": file_bytes(f'{{"\\udc00":{A}}}', b"a"),
    "name, surrogates reversed": file_bytes(f'{{"\\ude00\\ud83d":{A}}}', b"a"),
    "surrogate in a further key": extra('"\\ud800"'),
    "surrogate in a further key's name": extra('{"\\ud800":1}'),
    "surrogate in metadata": file_bytes('{"__metadata__":{"a":"\\ud800"}}'),
    "metadata of numbers": file_bytes('{"__metadata__":{"a":1}}'),
    "metadata of nulls": file_bytes('{"__metadata__":{"a":null}}'),
    "metadata of objects": file_bytes('{"__metadata__":{"a":{}}}'),
    "metadata as an array": file_bytes('{"__metadata__":[]}'),
    "metadata as a string": file_bytes('{"__metadata__":"a"}'),
    "metadata false": file_bytes('{"__metadata__":false}'),
    "metadata, nulls": file_bytes('{"__metadata__":nulls}'),
    "metadata with a comma after": file_bytes('{"__metadata__":{"a":"b",}}'),
    "metadata twice": file_bytes('{"__metadata__":{},"__metadata__":{}}'),
    "metadata null twice": file_bytes('{"__metadata__":null,"__metadata__":null}'),
    "metadata twice, once escaped": file_bytes('{"__metadata__":{},"\\u005f_metadata__":{}}'),
    "metadata is a tensor": file_bytes(f'{{"__metadata__":{A}}}', b"a"),
    "tensor null": file_bytes('{"a":null}'),
    "tensor a number": file_bytes('{"a":1}'),
    "tensor an empty object": file_bytes('{"a":{}}'),
    "no dtype": file_bytes('{"a":{"shape":[1],"data_offsets":[0,1]}}', b"a"),
    "no shape": file_bytes('{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"a"),
    "no offsets": file_bytes('{"a":{"dtype":"U8","shape":[1]}}', b"a"),
    "dtype twice": one(extra=',"dtype":"U8"'),
    "shape twice": one(extra=',"shape":[1]'),
    "offsets twice": one(extra=',"data_offsets":[0,1]'),
    "dtype unknown": one(dtype="F7"),
    "dtype in lower case": one(dtype="u8"),
    "dtype empty": one(dtype=""),
    "dtype null": file_bytes('{"a":{"dtype":null,"shape":[1],"data_offsets":[0,1]}}', b"a"),
    "shape null": one(shape="null"),
    "shape a number": one(shape="1"),
    "shape nested": one(shape="[[1]]"),
    "shape of strings": one(shape='["1"]'),
    "shape with a comma after": one(shape="[1,]"),
    "shape without a comma": one(shape="[1 1]"),
    "shape not closed": one(shape="[1"),
    "dim negative": one(shape="[-1]"),
    "dim minus zero": one(b"", shape="[-0]", offsets="[0,0]"),
    "dim a float": one(shape="[1.0]"),
    "dim with an exponent": one(shape="[1e0]"),
    "dim with a leading zero": one(shape="[01]"),
    "dim with a plus": one(shape="[+1]"),
    "dim in hexadecimal": one(shape="[0x1]"),
    "dim with an underscore": one(shape="[1_0]"),
    "dim in other digits": one(shape="[\u0661]"),
    "dim true": one(shape="[true]"),
    "dim null": one(shape="[null]"),
    "dim over 64 bits": one(b"", shape=f"[{2**64},0]", offsets="[0,0]"),
    "dim over 64 bits after a zero": one(b"", shape=f"[0,{2**64}]", offsets="[0,0]"),
    "dim of 21 digits": one(b"", shape=f"[0,{10**20}]", offsets="[0,0]"),
    "dim of 5,000 digits": one(b"", shape=f"[0,{'9' * 5000}]", offsets="[0,0]"),
    "overflow of elements": one(shape=f"[{2**32},{2**32}]"),
    "overflow of elements to 1": one(shape=f"[{2**63 + 1},{2**63 + 1}]"),
    "overflow of elements before a zero": one(
        b"", shape=f"[{U64_MAX},{U64_MAX},0]", offsets="[0,0]"
    ),
    "overflow by the width": one(b"", dtype="F64", shape=f"[{2**61}]", offsets="[0,0]"),
    "overflow in bits only": one(shape=f"[{2**61}]", offsets=f"[0,{2**61}]"),
    "F4 of an odd count": one(b"ab", dtype="F4", shape="[3]", offsets="[0,2]"),
    "F6 of two": one(b"ab", dtype="F6_E2M3", shape="[2]", offsets="[0,2]"),
    "range longer than the tensor": one(b"ab", offsets="[0,2]"),
    "range shorter than the tensor": one(b"a", shape="[2]"),
    "wider dtype than the range": one(dtype="F32"),
    "data missing": one(b""),
    "data one byte short": one(b"abc", shape="[4]", offsets="[0,4]"),
    "bytes after the data": one(b"ab"),
    "bytes without tensors": file_bytes("{}", b"a"),
    "hole before": one(b"ab", offsets="[1,2]"),
    "hole between": two(A, info(offsets="[2,3]"), b"abc"),
    "overlap": two(_FOUR, info(shape="[4]", offsets="[2,6]"), b"abcdef"),
    "the same range twice": two(A, A, b"a"),
    "one range in another": two(_FOUR, info(offsets="[1,2]"), b"abcd"),
    "empty tensor inside another": two(_FOUR, info(shape="[0]", offsets="[2,2]"), b"abcd"),
    "empty tensor past the end": two(_FOUR, info(shape="[0]", offsets="[5,5]"), b"abcd"),
    "empty tensor past the end, alone": one(b"", shape="[0]", offsets="[1,1]"),
    "range reversed": one(offsets="[1,0]"),
    "range past the end": one(offsets="[1,2]"),
    "range at 2^64 - 1": one(offsets=f"[{U64_MAX - 1},{U64_MAX}]"),
    "range over 64 bits": one(offsets=f"[{2**64},{2**64 + 1}]"),
    "range negative": one(offsets="[-1,0]"),
    "range from minus zero": one(offsets="[-0,1]"),
    "range of floats": one(offsets="[0.0,1.0]"),
    "range of one number": one(offsets="[1]"),
    "range of three numbers": one(offsets="[0,1,1]"),
    "range of none": one(offsets="[]"),
    "range an object": one(offsets='{"0":0,"1":1}'),
    "NaN": extra("NaN"),
    "Infinity": extra("Infinity"),
    "minus Infinity": extra("-Infinity"),
    "number too large": extra("1e999"),
    "integer too large": extra("9" * 400),
    "number with a leading zero": extra("01"),
    "number without decimals": extra("1."),
    "number without a digit": extra("-"),
    "number with an empty exponent": extra("1e"),
    "bad literal": extra("truex"),
    "half a literal": extra("tru"),
    "no value": extra(""),
    "further key not closed": extra("[1"),
    "further key closed wrongly": extra("[1}"),
    "further key with a comma after": extra("[1,]"),
    "further object with a comma after": extra('{"a":1,}'),
    "further object without values": extra('{"a"}'),
    "bad escape in a further key": extra('"\\x"'),
    "raw newline in a further key": extra('"\n"'),
    "comment": extra("1/**/"),
    "further key, too deep by one": extra("[" * 126 + "]" * 126),
    "further key of objects, too deep": extra('{"a":' * 126 + "1" + "}" * 126),
    "further key, 50,000 deep": extra("[" * 50_000 + "]" * 50_000),
    "further key, 50,000 deep, not closed": extra('{"a":[' * 25_000),
}


def header_of(raw: bytes) -> Any:
    """Return the header as lists of pairs where it has objects, None where it is no JSON."""
    try:
        return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")], object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON."""

    def has_twins(self) -> bool:
        return len({key for key, _ in self}) < len(self)


def _starts_with_space(raw: bytes) -> bool:
    return raw[8:9] in (b" ", b"\t", b"\n", b"\r")


def _has_twin_tensors(raw: bytes) -> bool:
    header = header_of(raw)
    return isinstance(header, _Pairs) and header.has_twins()


def _has_twins_in_metadata(raw: bytes) -> bool:
    values = [v for k, v in header_of(raw) or () if k == "__metadata__"]
    return any(isinstance(value, _Pairs) and value.has_twins() for value in values)


def _has_tensor_as_array(raw: bytes) -> bool:
    return any(type(value) is list for _, value in header_of(raw) or ())


def _has_many_dims(raw: bytes) -> bool:
    infos = [dict(value) for _, value in header_of(raw) or () if isinstance(value, _Pairs)]
    return any(isinstance(i.get("shape"), list) and len(i["shape"]) > MAX_DIMS for i in infos)


class Difference(NamedTuple):
    """Something that the reference implementation takes and this project refuses, and why."""

    why: str
    applies: Callable[[bytes], bool]
    examples: tuple[bytes, ...]


# All deliberate differences. There is none the other way round.
DIFFERENCES: dict[str, Difference] = {
    "tensor names twice": Difference(
        "the format forbids it; the reference keeps the last, and which one a reader shows decides "
        "what weights a model has",
        _has_twin_tensors,
        (
            two(A, A, b"a", ("a", "a")),
            two(A, A, b"a", ("a", "\\u0061")),
            two(info(shape="[0]", offsets="[0,0]"), A, b"a", ("a", "a")),
        ),
    ),
    "metadata keys twice": Difference(
        "as above: the metadata of ComfyUI decides how weights are read",
        _has_twins_in_metadata,
        (file_bytes('{"__metadata__":{"a":"1","a":"2"}}'),),
    ),
    "space before the header": Difference(
        "the format says that it must begin with '{'",
        _starts_with_space,
        (file_bytes(f' {{"a":{A}}}', b"a"), file_bytes("\n{}")),
    ),
    "tensor as an array": Difference(
        "an accident of how the reference derives its reader: [dtype, shape, data_offsets]",
        _has_tensor_as_array,
        (file_bytes('{"a":["U8",[1],[0,1]]}', b"a"),),
    ),
    "more than 64 dims": Difference(
        "SAFETENSORS_MAX_DIMS: no array library holds them, and a header of ones takes gigabytes",
        _has_many_dims,
        (one(shape=json.dumps([1] * (MAX_DIMS + 1))), one(shape=json.dumps([1] * 10_000))),
    ),
}


def every_dtype() -> bytes:
    """Return a valid file with a scalar-like, a matrix and an empty tensor of every dtype."""
    tensors: dict[str, Entry] = {}
    for i, (dtype, bits) in enumerate(BITS.items()):
        codes = bytes((i * 37 + k * 11) % 251 for k in range(8 * 16))
        tensors[f"{dtype}.matrix"] = (dtype, (4, 4), codes[: 16 * bits // 8])
        tensors[f"{dtype}.flat"] = (dtype, (8,), codes[16 : 16 + bits])
        tensors[f"{dtype}.empty"] = (dtype, (0, 3), b"")
    return safetensors_bytes(tensors, {"format": "pt"})
