"""4-bit floats with a scale for each group of a row: NVFP4 and MXFP4.

    codes  two E2M1 to a byte, [..., rows, cols / 2]: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the negatives
    scale  E4M3 for each 16 codes (NVFP4), a power of two (E8M0) for each 32 (MXFP4)
    second one float32 that NVFP4 multiplies its scales with, or divides them by

    result = round(value(code) * scale), where NVFP4's scale is float32(scale) * second or / second

AutoRound's `mx_int` and `nvfp4_v2`, which only the config tells from MXFP4 and NVFP4, have others:

    MXINT4      codes are a sign and a magnitude in quarters, 0 to 1.75; scales as MXFP4's
    NVFP4 E5M3  scales of 5 bits of exponent and 3 of mantissa in U8, and no second one

GGUF has its NVFP4 in blocks, with the second scale that llama.cpp keeps beside them, if any:

    NAME.weight  NVFP4  [..., out features, in features]
    NAME.scale   F32    one, or one for each matrix of a stack of experts

llama.cpp multiplies what a layer gives by it. Here it is multiplied with each scale of the blocks,
as in ModelOpt, whose codes and scales these are: so the values are ModelOpt's, too. Where there
is none, the blocks are ggml's own.

What differs from producer to producer is data: names, which nibble comes first, what the second
scale does, whether code 8 is -0 or +0, and what the largest E8M0 stands for. `formats.py` has a row
for each; `layouts.py` has one for each way to store them.
"""
