"""4-bit floats with a scale for each group of a row: NVFP4 and MXFP4.

    codes  two E2M1 to a byte, [..., rows, cols / 2]: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the negatives
    scale  E4M3 for each 16 codes (NVFP4), a power of two (E8M0) for each 32 (MXFP4)
    second one float32 that NVFP4 multiplies its scales with, or divides them by

    result = round(value(code) * scale), where NVFP4's scale is float32(scale) * second or / second

What differs from producer to producer is data: names, which nibble comes first, what the second
scale does, whether code 8 is -0 or +0, and what the largest E8M0 stands for. `formats.py` has a row
for each; `layouts.py` has one for each way to store them.
"""
