/* The sizes of GGUF blocks, and which blocks can decode to infinities and NaNs. */
#ifndef AMN_DRIVER_BLOCK_KINDS_H
#define AMN_DRIVER_BLOCK_KINDS_H

#include "../blocks.h"
#include "../levels.h"

typedef struct {
  unsigned short elements, bytes;
} block_size;

static const block_size block_sizes[] = {
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) {elements, bytes},
#include "../blocks.def"
};

/* Where in a block the half floats are without whose infinities and NaNs no value can be a NaN. A
 * type that is not named here may have NaNs anywhere. */
typedef struct {
  unsigned char is_known, n, at[2];
} nan_sources;

#define NO_NAN {1, 0, {0, 0}}
#define NAN_FROM(type, d) {1, 1, {offsetof(type, d), 0}}
#define NAN_FROM_TWO(type, d, m)           \
  {                                        \
    1, 2, {                                \
      offsetof(type, d), offsetof(type, m) \
    }                                      \
  }

static const nan_sources nan_from[AMN_N_BLOCKS] = {
    [AMN_BLOCK_Q4_0] = NAN_FROM(block_q4_0, d),
    [AMN_BLOCK_Q4_1] = NAN_FROM_TWO(block_q4_1, d, m),
    [AMN_BLOCK_Q5_0] = NAN_FROM(block_q5_0, d),
    [AMN_BLOCK_Q5_1] = NAN_FROM_TWO(block_q5_1, d, m),
    [AMN_BLOCK_Q8_0] = NAN_FROM(block_q8_0, d),
    [AMN_BLOCK_Q8_1] = NAN_FROM(block_q8_1, d),
    [AMN_BLOCK_Q2_K] = NAN_FROM_TWO(block_q2_k, d, dmin),
    [AMN_BLOCK_Q3_K] = NAN_FROM(block_q3_k, d),
    [AMN_BLOCK_Q4_K] = NAN_FROM_TWO(block_q4_k, d, dmin),
    [AMN_BLOCK_Q5_K] = NAN_FROM_TWO(block_q5_k, d, dmin),
    [AMN_BLOCK_Q6_K] = NAN_FROM(block_q6_k, d),
    [AMN_BLOCK_Q8_K] = NAN_FROM(block_q8_k, d[2]), /* a float32's upper half: large ones too */
    [AMN_BLOCK_IQ2_XXS] = NAN_FROM(block_iq2_xxs, d),
    [AMN_BLOCK_IQ2_XS] = NAN_FROM(block_iq2_xs, d),
    [AMN_BLOCK_IQ3_XXS] = NAN_FROM(block_iq3_xxs, d),
    [AMN_BLOCK_IQ1_S] = NAN_FROM(block_iq1_s, d),
    [AMN_BLOCK_IQ4_NL] = NAN_FROM(block_iq4_nl, d),
    [AMN_BLOCK_IQ3_S] = NAN_FROM(block_iq3_s, d),
    [AMN_BLOCK_IQ2_S] = NAN_FROM(block_iq2_s, d),
    [AMN_BLOCK_IQ4_XS] = NAN_FROM(block_iq4_xs, d),
    [AMN_BLOCK_TQ1_0] = NAN_FROM(block_tq1_0, d),
    [AMN_BLOCK_TQ2_0] = NAN_FROM(block_tq2_0, d),
    [AMN_BLOCK_MXFP4] = NO_NAN,
    [AMN_BLOCK_NVFP4] = NO_NAN,
    [AMN_BLOCK_Q1_0] = NAN_FROM(block_q1_0, d),
    [AMN_BLOCK_Q2_0] = NAN_FROM(block_q2_0, d),
};

/* An exponent of all ones carries into the bit above it. */
static inline int may_have_nan(int row, const uint8_t *blocks, size_t n) {
  const nan_sources from = nan_from[row];
  const size_t step = block_sizes[row].bytes;
  unsigned int carried = from.is_known ? 0 : 0x8000;
  for (int i = 0; i < from.n; i++) {
    const uint8_t *half = blocks + from.at[i];
    size_t k = 0;
    for (; k + 4 <= n; k += 4, half += 4 * step)
      carried |= ((amn_load_u16(half) & 0x7c00u) + 0x400) |
                 ((amn_load_u16(half + step) & 0x7c00u) + 0x400) |
                 ((amn_load_u16(half + 2 * step) & 0x7c00u) + 0x400) |
                 ((amn_load_u16(half + 3 * step) & 0x7c00u) + 0x400);
    for (; k < n; k++, half += step) carried |= (amn_load_u16(half) & 0x7c00u) + 0x400;
  }
  return (carried & 0x8000) != 0;
}

#endif /* AMN_DRIVER_BLOCK_KINDS_H */
