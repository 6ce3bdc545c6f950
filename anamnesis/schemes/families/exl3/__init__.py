"""EXL3: trellises of a few bits a value, between two Hadamard transforms.

    trellis   I16 [in / 16, out / 16, 16 * bits]: tiles of 16 x 16 codes, of 1 to 8 bits each
    suh, svh  F16 [in], F16 [out]: scales; in older files signs instead: su, sv I16 [in / 16],
              [out / 16], a bit each, the lowest first, of which 1 stands for -1
    mcg, mul1 I32 []: the codebook, if one is there, is that of its name; else `3inst`

    result = round((H128 @ (H128 @ values * suh)) * svh), transposed to [out, in]

A code's state is the 16 bits of its tile's stream that end with its own; the stream bites its tail.
Words have 32 bits, the highest first, and codes the order that tensor cores want. A codebook is a
function from states to half floats:

    3inst, mcg  the two half floats of 0x3b603b60 ^ (0x8fff8fff & word) are added, the word being
                state * 89226354 + 64248484, or state * 0xcbac1fed
    mul1        (1024 + the sum of the bytes of state * 0x83dcd12d) * 0x1.bb8p-8 - 0x1.4c4p+3

All else is in float32. A transform of 128 values adds and subtracts neighbours, then pairs, and so
on up to halves; then each is multiplied by 0.088388347648, then by its scale. That is the order of
`reconstruct` and `had_r_128` of exllamav3's own kernels, which take float32 too. Its
`get_weight_tensor` has torch's matrix product for each transform, the order of whose sums is open,
and rounds each of them, and each product, to half floats; its fused kernel for prompts adds up in
half floats; GPTQModel's torch code does not round values of the codebook to half floats.

Multipliers of codebooks are fixed since exllamav3 0.0.9; a file with another one is refused.
"""
