"""One byte string feeds every kernel at every level; all must give the same bytes.

Run `python fuzz/fuzz_kernels.py -max_total_time=60` (needs atheris), or call `check` with bytes.
"""

from __future__ import annotations

import random
import sys

from anamnesis import _core

_BLOCK_SIZES = {row.id: (row.elements, row.bytes) for row in _core.block_types()}
_WIDEST_OUTPUT = 4
_HEAD = 12
_NV = {_core.RULES[name] for name in ("nv divided", "nv multiplied", "nv quotient")}


def _outcome(
    level: str, call: str, size: int, *arguments: object, **some: int
) -> tuple[object, bytes]:
    """What one call did: its count or its error, and all of the destination."""
    dst = bytearray(b"\xa5" * size)
    function = getattr(_core, call)
    n_before = 2 if call == "dequantize_rotated" else 3  # which has one kind of codes
    before, after = arguments[:n_before], arguments[n_before:]
    try:
        result: object = function(*before, dst, *after, level=_core.LEVELS[level], **some)
    except ValueError as error:
        result = str(error)
    return result, bytes(dst)


def _assert_same(call: str, size: int, *arguments: object, **some: int) -> None:
    reference = _outcome("scalar", call, size, *arguments, **some)
    for level in _core.supported_levels()[1:]:
        outcome = _outcome(level, call, size, *arguments, **some)
        assert outcome == reference, (call, level, arguments, some)


def check(data: bytes) -> None:
    """Raise AssertionError if two levels differ on anything made of `data`."""
    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    rows = head[0] % 8 + 1
    cols = len(body) // (2 * rows) if head[1] % 4 else head[1]  # now and then too many
    split = rows * cols
    codes, scales = body[:split], body[split:] + bytes(8 * (head[2] % 16))
    size = max(rows * cols * _WIDEST_OUTPUT - head[3] % 2, 0)
    grid = (head[4] % 5, head[5] | (head[6] & 1) << 8, head[7] % 4, head[8])
    stride = head[9] % 64 + (head[10] & 1) * cols
    for out in _core.OUTPUTS.values():
        for code in _core.CODES.values():
            scale = (head[11] + code) % len(_core.SCALES)
            _assert_same(
                "dequantize_scaled",
                size,
                code,
                out,
                codes,
                rows,
                cols,
                scales,
                scale,
                stride,
                *grid,
                rounded=head[2] % (len(_core.OUTPUTS) + (head[3] == 0)),
            )
        for src in _core.FLOATS.values():
            whole = body[: len(body) // 8 * 8]
            _assert_same("convert", len(whole) * _WIDEST_OUTPUT, src, out, whole)
        for code in _core.ABSMAX.values():
            _check_absmax(code, out, head, body)
        for kind, (elements, n_bytes) in _BLOCK_SIZES.items():
            n_blocks = len(body) // n_bytes
            whole = body[: n_blocks * n_bytes + (head[1] % 8 == 7)]  # now and then a byte more
            size = max(n_blocks * elements * _WIDEST_OUTPUT - head[3] % 2, 0)
            _assert_same("dequantize_blocks", size, kind, out, whole)
    _check_packed(head, body)
    _check_integers(head, body)
    _check_trellis(head, body)
    _check_rotated(head, body)
    _check_quantize(head, body)
    _check_looks(head, body)


def _check_looks(head: bytes, body: bytes) -> None:
    """What compares numbers and looks through them at every level; now and then too few."""
    half = len(body) // 8 * 4
    a, b = body[:half], body[half : 2 * half - head[1] // 250]
    calls: list[tuple[str, tuple[object, ...], dict[str, int]]] = [
        ("compare", (a, other), {"source": source})
        for source in _core.SOURCES.values()
        for other in (a, b)
    ]
    calls += [("check_values", (dtype, b, head[3] % 40), {}) for dtype in _core.FLOAT_WORDS]
    for name, arguments, more in calls:
        found = set()
        for level in map(_core.LEVELS.get, _core.supported_levels()):
            try:
                found.add(repr(getattr(_core, name)(*arguments, level=level, **more)))
            except ValueError as error:
                found.add(str(error))
        assert len(found) == 1, (name, arguments, more, found)


def _check_integers(head: bytes, body: bytes) -> None:
    """Integers of rows: sizes of the head, now and then too large for the body."""
    rows, cols = head[0] % 9 + 1, head[3] + 1
    scales, zeros = body[len(body) // 2 :], body[len(body) // 3 :]
    biases = body[len(body) // 4 :] if head[4] & 1 else b""
    groups = bytes(body[i] % 3 * (i % 4 == 0) for i in range(len(body))) if head[4] & 2 else b""
    block = (head[5] % 4, head[6] % 160)
    stride = cols + head[5] % 4
    size = max(rows * cols * _WIDEST_OUTPUT - head[3] % 2, 0)
    for out in _core.OUTPUTS.values():
        for code in _core.INTEGERS.values():
            scale = (head[8] + code) % len(_core.SCALES)
            scale_stride = cols // max(block[1], 1) + 1 + head[7] % 2
            arguments = (rows, cols, stride, scales, scale, scale_stride, *block)
            stored = (head[4] >> 2 & 3, zeros, head[7] - 128, head[9] % 40, biases, groups)
            phases = (head[9] % max(block[0], 1), head[10] % max(block[1], 1), head[8] % 12)
            width = (1, 4, 1, 3)[head[4] >> 5 & 3]
            planes = (head[10] % 5, head[11] % (8 * width), head[9] % 4, head[11] % 3, width)
            planes = planes if head[4] & 16 else (0, 0, 1, 0, 1)
            more = (*stored, *phases, planes)
            rounded = head[2] % (len(_core.OUTPUTS) + (head[3] == 0))
            how = {"rounded": rounded, "roundings": head[1] % 17}
            _assert_same("dequantize_integers", size, code, out, body, *arguments, *more, **how)


def _check_trellis(head: bytes, body: bytes) -> None:
    """Trellises: a block or two, of which some, or more, is asked for."""
    bits, cols = head[0] % 10, 128 * (head[1] % 3) + (head[2] == 0)
    tiles = body * -(-16 * bits * cols // max(len(body), 1))
    tiles = tiles[: 16 * bits * cols - (head[3] % 16 == 15)]
    scales = (body[: 2 * cols], body[len(body) // 2 :])
    some = (head[4] % 130, head[5] % 130, head[6], head[7] % 160) if head[8] % 2 else ()
    out = head[9] % len(_core.OUTPUTS)
    size = 128 * cols * _WIDEST_OUTPUT - head[10] % 2
    for code in _core.TRELLISES.values():
        arguments = (tiles, bits, cols, *scales, *some)
        _assert_same("dequantize_trellis", max(size, 0), code, out, *arguments)


def _check_rotated(head: bytes, body: bytes) -> None:
    """Codes of rotated rows, of which there may be too few."""
    group = 4 ** (head[0] % 6) + (head[1] % 16 == 15)
    cols = group * (head[2] % 4) + (head[3] % 16 == 15)
    rows, out = head[4] % 4, head[5] % len(_core.OUTPUTS)
    codes = (body * -(-rows * cols // max(len(body), 1)))[: rows * cols]
    size = max(rows * cols * _WIDEST_OUTPUT - head[6] % 2, 0)
    _assert_same("dequantize_rotated", size, out, codes, rows, cols, body[: 4 * rows], group)


def _check_quantize(head: bytes, body: bytes) -> None:
    """Encoders at every level, by every rule; of a tensor's largest magnitude now and then."""
    block = (head[4] % 5, head[5] % 160)
    cols = head[3] + 1
    for source in _core.SOURCES.values():
        item = 4 if source == _core.SOURCES["F32"] else 2
        rows = len(body) // item // cols + (head[1] % 16 == 15)
        results = {
            _core.amax(source, body[: len(body) // 4 * 4], level)
            for level in map(_core.LEVELS.get, _core.supported_levels())
        }
        assert len(results) == 1, (source, results)
        for code in _core.QUANTIZERS.values():
            for rule in _core.RULES.values():
                _check_levels_quantize(source, code, rule, body, rows, cols, block, head[6] % 2)
            _check_flat(source, code, head, body, len(body) // item)
        _check_pack(source, head, body, len(body) // item)


def _check_pack(source: int, head: bytes, body: bytes, count: int) -> None:
    """Dense integers at every level, by every rule; sizes now and then as no rule takes them."""
    group = (32, 64, 128, head[5])[head[4] & 3]
    cols = (head[3] % 5 + 1) * group + head[6] // 250
    rows = count // max(cols, 1) // 8 * 8 if head[7] % 8 else head[7] % 11
    for code in _core.PACKERS.values():
        for rule in _core.PACKING_RULES.values():
            found = set()
            for level in map(_core.LEVELS.get, _core.supported_levels()):
                outs = codes, scales, shifts = tuple(
                    bytearray(b"\xa5" * (rows * cols // part)) for part in (1, 8, 8)
                )
                how = (source, code, rule, body, rows, cols, group)
                measure = bool(head[8] % 2)
                try:
                    result = repr(_core.pack(*how, codes, scales, shifts, measure, level))
                except ValueError as error:
                    result = str(error)
                found.add((result, *(() if result == "None" else map(bytes, outs))))
            assert len(found) == 1, (source, code, rule, rows, cols, group)


def _check_levels_quantize(
    source: int,
    code: int,
    rule: int,
    body: bytes,
    rows: int,
    cols: int,
    block: tuple[int, int],
    measure: int,
) -> None:
    found = set()
    for level in _core.supported_levels():
        codes, scales, zeros = outs = tuple(
            bytearray(b"\xa5" * n) for n in (rows * (cols + 7), 4 * rows * cols, 4 * rows * cols)
        )
        try:
            result = repr(
                _core.quantize(
                    source,
                    code,
                    rule,
                    body,
                    rows,
                    cols,
                    *block,
                    codes,
                    scales,
                    zeros,
                    body[:4] if rule in _NV else b"",
                    measure=bool(measure),
                    level=_core.LEVELS[level],
                )
            )
        except ValueError as error:
            result = str(error)
        found.add((result, *map(bytes, outs)))
    assert len(found) == 1, (source, code, rule, rows, cols, block)


def _check_flat(source: int, code: int, head: bytes, body: bytes, count: int) -> None:
    """Codes of one row, with the largest magnitudes of their blocks, and those encoded as well."""
    block = 2 * (head[7] % 70)
    found = set()
    for level in map(_core.LEVELS.get, _core.supported_levels()):
        nested, absmax = (bytearray(b"\xa5" * 4 * count) for _ in range(2))
        size = max(count - head[8] % 2, 0)  # now and then too few
        codes = (bytearray(b"\xa5" * size), bytearray(b"\xa5" * size))
        results: list[object] = []
        try:
            is_finite = _core.blocks_amax(source, body[: len(body) // 4 * 4], block, absmax, level)
            results.append(is_finite)
            if not is_finite:
                absmax = bytearray(4 * count)  # NaNs may have any payload
            plain = (source, code, _core.RULES["absmax"], body, 1, count, 1, block)
            results.append(repr(_core.quantize(*plain, codes[0], absmax, nested, b"", True, level)))
            inner = (source, code, _core.RULES["nested"], body, 1, count, 1, block)
            more = (codes[1], bytearray(count), nested, head[:4])
            results.append(repr(_core.quantize(*inner, *more, True, level)))
        except ValueError as error:
            results.append(str(error))
        found.add((*map(str, results), *map(bytes, (*codes, absmax, nested))))
    assert len(found) == 1, (source, code, count, block)


def _check_packed(head: bytes, body: bytes) -> None:
    """Packed integers: sizes of the head, now and then too large for the body."""
    rows, cols = 8 * (head[0] % 12 + 1) - head[1] % 8 * (head[2] & 1), head[3] + 1
    codes, zeros, scales = body, body[len(body) // 2 :], body[len(body) // 3 :]
    listed = bytes(b if i % 4 == 0 else 0 for i, b in enumerate(body)) if head[4] & 1 else b""
    group_size = head[6] % 160 if head[5] & 2 else 32 << head[6] % 4  # as most have it
    grouping = (head[5] & 1, group_size, head[7] if head[5] & 4 else 0, listed)
    first_row = 32 * (head[9] % 3) + (head[9] > 240)
    some = {"first_row": first_row, "n_rows": head[10] % 72} if head[9] % 4 else {}
    size = max(rows * cols * _WIDEST_OUTPUT - head[3] % 2, 0)
    for out in _core.OUTPUTS.values():
        for packing in _core.PACKINGS.values():
            scale = (head[8] + packing) % len(_core.SCALES)
            arguments = (codes, rows, cols, zeros, scales, scale, *grouping)
            _assert_same("dequantize_packed", size, packing, out, *arguments, **some)


def _check_absmax(code: int, out: int, head: bytes, body: bytes) -> None:
    """The same for codes with an absmax for each block of them."""
    is_four_bit = code != _core.ABSMAX["INT8"]
    codebook, body = (body[:64], body[64:]) if is_four_bit else (b"", body)
    count = len(body) // 2 * (1 + is_four_bit) - head[3] % 2
    block = head[5] | (head[6] & 1) << 8 if head[1] % 2 else 32 << head[5] % 8
    phase = head[8] * 32 % max(block, 1) + head[7] % 2
    absmax = body[len(body) // 2 :] + bytes(8 * (head[2] % 16))
    size = max(count * _WIDEST_OUTPUT - head[9] % 2, 0)
    dtype = head[11] % len(_core.FLOATS)
    arguments = (count, codebook, absmax, dtype, block, phase)
    _assert_same("dequantize_absmax", size, code, out, body[: len(body) // 2], *arguments)


def drawn(max_size: int, chance: random.Random) -> bytes:
    """Random bytes of any length, some without the bits that make huge numbers and indices."""
    data = chance.randbytes(chance.randrange(max_size + 1))
    mask = chance.choice((0xFF, 0x7F, 0x3F, 0x07))
    return data[:_HEAD] + bytes(byte & mask for byte in data[_HEAD:])


def _fresh(_: bytes, max_size: int, seed: int) -> bytes:
    return drawn(max_size, random.Random(seed))


def main() -> None:
    """Fuzz until libFuzzer's options say stop.

    Nothing tells it what a kernel does with an input, so that its own mutations would never get
    beyond a few bytes.
    """
    import atheris

    options = ["-len_control=0", "-max_len=8192", *sys.argv[1:]]
    atheris.Setup([sys.argv[0], *options], check, custom_mutator=_fresh)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
