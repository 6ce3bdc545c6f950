"""ConvRot: integers of rows whose columns are rotated by Hadamard matrices.

    weight       I8 [rows, cols]; of convrot_w4a4 I8 [rows, cols / 2], two's complement, the low
        nibble first
    weight_scale F32 [rows, 1], or one; of convrot_w4a4 [rows]
    comfy_quant  U8: JSON with the format and the columns of a group, 256 if it says none

    result = round(rotated(float32(code) * scale))

The matrix is the regular one of 4, 16, 64, 256, 1024 or 4096 columns, divided by their root, and
its own inverse. `asym_w4a8_int8` has codes of such codes:

    weight           I8 [rows, cols / 2], levels of 4 bits, the low nibble first; or
        [rows, 3 cols / 4]: these, then the high 2 bits of each, of 6 bits
    weight_s_rel     F8_E4M3 | U8 of the same bits | F32 [rows, groups]
    weight_s_channel F32 [rows]
    weight_codebook  F32 [16], if any; else a level stands for itself less 8, or less 32
    weight_correction F32 | F16 | BF16 [groups, rows], if any; ComfyUI's loader leaves it unread

    code = clamp(round(codebook[level] * s_rel), -127, 127), whose scale is s_channel; corrections
        are added before columns are rotated

All is in float32, as in comfy-kitchen's own functions on a CPU. Asked for 16 bits, that of
`asym_w4a8_int8` rounds what it rotates, too; then its sums of corrected F16 have another order.
"""
