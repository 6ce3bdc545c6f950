"""bitsandbytes: NF4 and FP4, plain and double-quantised, and INT8.

    weight              U8, or what it was put into (quant_storage)   ceil(elements / 2) bytes
    weight.absmax       F32 | F16 | BF16, or U8 if double-quantised   one for every `blocksize`
    weight.quant_map    F32 [16]
    weight.nested_absmax, weight.nested_quant_map                     F32, F32 [256]
    weight.quant_state.bitsandbytes__nf4 | fp4                        U8: JSON, the shape among it

    result = round(quant_map[nibble] * absmax), the high nibble of a byte first
    absmax = nested_quant_map[code] * nested_absmax + nested_offset, if double-quantised

    weight I8 [rows, cols], SCB F32 [rows], weight_format U8 (0: rows)

    result = round(float32(code) * SCB * float32(1 / 127))

As its own `dequantize_4bit` and `int8_vectorwise_dequant` have it, product by product in float32.
FP4 has two zeros, and quant_map gives both as +0; the one whose nibble has its high bit set comes
out as -0, as from bitsandbytes' own kernels, so that an encoder can give the same nibbles again.

The encoders give the library's own bytes, of arrays as in conversions.

The shape is that of quant_state. (`dequantize_4bit` itself transposes what is in one byte, [1, 1].)
"""
