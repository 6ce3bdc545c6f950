/* GGUF blocks. */
#include "../blocks.h"
#include "sizes.h"

typedef struct {
  unsigned short elements, bytes;
} block_size;

static const block_size block_sizes[] = {
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) {elements, bytes},
#include "../blocks.def"
};

/* The row of a type, or -1. */
static int block_row(int ggml_id) {
  switch (ggml_id) {
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  case ggml_id:                                                      \
    return AMN_BLOCK_##NAME;
#include "../blocks.def"
    default:
      return -1;
  }
}

_Static_assert(SCRATCH % AMN_BLOCK_ELEMENTS_MAX == 0, "the scratch holds whole blocks");

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
static int may_have_nan(int row, const uint8_t *blocks, size_t n) {
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

/* To float32, decoded where it is wanted: seldom is there a NaN to be made the quiet one. */
static void dequantize_to_f32(const amn_level *level, int row, const uint8_t *src, uint8_t *dst,
                              size_t n_blocks) {
  const block_size size = block_sizes[row];
  level->block[row](src, (float *)(void *)dst, n_blocks);
  if (may_have_nan(row, src, n_blocks))
    level->narrow[AMN_OUT_F32](dst, dst, n_blocks * size.elements);
}

static uint64_t dequantize_all(const amn_level *level, int row, int out, const uint8_t *src,
                               uint8_t *dst, size_t n_blocks) {
  const block_size size = block_sizes[row];
  const size_t at_once = SCRATCH / size.elements;
  const int in_place = out == AMN_OUT_F32 && (uintptr_t)dst % sizeof(float) == 0;
  if (out == AMN_OUT_BF16 && level->block_bf16[row] != NULL)
    return level->block_bf16[row](src, dst, n_blocks);
  _Alignas(64) float values[SCRATCH];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n_blocks; done += at_once) {
    const size_t count = (size_t)min_u64(n_blocks - done, at_once);
    const uint8_t *blocks = src + done * size.bytes;
    uint8_t *decoded = dst + done * size.elements * out_bytes[out];
    if (in_place) {
      dequantize_to_f32(level, row, blocks, decoded, count);
      continue;
    }
    level->block[row](blocks, values, count);
    n_overflow += level->narrow[out]((const uint8_t *)values, decoded, count * size.elements);
  }
  return n_overflow;
}

amn_status amn_dequantize_blocks(int level, int type, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  const int row = block_row(type);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (row < 0 || out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  const block_size size = block_sizes[row];
  if (src.n_bytes % size.bytes) return AMN_SHORT_SRC;
  const uint64_t n_blocks = src.n_bytes / size.bytes;
  if (n_blocks > dst.n_bytes / out_bytes[out] / size.elements) return AMN_SHORT_DST;
  if (n_blocks == 0) return AMN_OK;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = dequantize_all(table, row, out, src.data, dst.data, (size_t)n_blocks);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
