/* Size checks and loops, once for all kernels.
 *
 * Most kernels decode into a float32 scratch that stays in the first-level cache, and a `narrow`
 * kernel makes the output of it: types and outputs add up instead of multiplying. */
#include "blocks.h"
#include "kernels.h"

#define SCRATCH 1024 /* float32 elements decoded before they are narrowed: 4 KiB */
#define SCALES 512   /* scales widened to float32 at a time */

static const unsigned char float_bytes[] = {
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) item_bytes,
#include "kernels.def"
};

static const unsigned char out_bytes[] = {
#define NARROW(NAME, name, item_bytes, avx2, neon) item_bytes,
#include "kernels.def"
};

static uint64_t min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* a * b or a + b into *result, false if 64 bits cannot hold it. Sizes come from file headers. */
static int multiply(uint64_t a, uint64_t b, uint64_t *result) {
  *result = a * b;
  return b == 0 || a <= UINT64_MAX / b;
}

static int add(uint64_t a, uint64_t b, uint64_t *result) {
  *result = a + b;
  return *result >= a;
}

static int is_convertible(int dtype) {
  switch (dtype) {
#define IS_CONVERTIBLE_convert 1
#define IS_CONVERTIBLE_scale 0
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) \
  case AMN_FLOAT_##NAME:                                  \
    return IS_CONVERTIBLE_##family;
#include "kernels.def"
    default:
      return 0;
  }
}

/* ---- dequantize_scaled ---- */

typedef struct {
  const amn_level *level;
  amn_code code;
  amn_out out;
  uint64_t rows, cols;
  const amn_grid *grid;
} scaled_job;

/* The grid blocks that `n` rows or columns (not 0) from `phase` on touch. */
static int blocks_touched(uint64_t n, uint64_t phase, uint64_t block, uint64_t *count) {
  uint64_t end;
  if (!add(n, phase, &end)) return 0;
  *count = (end - 1) / block + 1;
  return 1;
}

static amn_status check_grid(const amn_grid *grid, uint64_t rows, uint64_t cols) {
  uint64_t grid_rows, grid_cols, needed;
  if (!blocks_touched(rows, grid->row_phase, grid->block_rows, &grid_rows) ||
      !blocks_touched(cols, grid->col_phase, grid->block_cols, &grid_cols))
    return AMN_BAD_SIZE;
  if (grid_cols > grid->stride) return AMN_SHORT_STRIDE;
  if (!multiply(grid_rows - 1, grid->stride, &needed) || !add(needed, grid_cols, &needed) ||
      !multiply(needed, float_bytes[grid->dtype], &needed))
    return AMN_BAD_SIZE;
  return needed <= grid->data.n_bytes ? AMN_OK : AMN_SHORT_SCALES;
}

static amn_status check_scaled(const scaled_job *job, amn_bytes src, amn_buffer dst) {
  uint64_t n, n_bytes;
  if (!multiply(job->rows, job->cols, &n) || !multiply(n, out_bytes[job->out], &n_bytes))
    return AMN_BAD_SIZE;
  if (n == 0) return AMN_OK;
  if (n > src.n_bytes) return AMN_SHORT_SRC;
  if (n_bytes > dst.n_bytes) return AMN_SHORT_DST;
  return check_grid(job->grid, job->rows, job->cols);
}

/* One scale per element, for blocks too short for a run; the first scale has `first` elements. Each
 * scale is written a fixed number of times, a whole number of vectors, and the next overwrites what
 * is too many: `expanded` has room for AMN_MIN_RUN more than n. */
static void expand_scales(const float *scales, size_t first, size_t block, float *expanded,
                          size_t n) {
  for (size_t at = 0, next = first; at < n; at = next, next += block) {
    const float scale = *scales++;
    if (block <= 8)
      for (int i = 0; i < 8; i++) expanded[at + (size_t)i] = scale;
    else
      for (int i = 0; i < AMN_MIN_RUN; i++) expanded[at + (size_t)i] = scale;
  }
}

/* n codes, the first of them `into` its block, by way of the scratch. */
static uint64_t scaled_by_scratch(const scaled_job *job, const uint8_t *src, uint8_t *dst, size_t n,
                                  const float *scales, uint64_t into, uint64_t block) {
  _Alignas(64) float values[SCRATCH], expanded[SCRATCH + AMN_MIN_RUN];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n; done += SCRATCH) {
    size_t count = (size_t)min_u64(n - done, SCRATCH);
    const float *first_scale = scales + (done + into) / block;
    uint64_t first = block - (done + into) % block;
    uint64_t run = block;
    if (block > 1 && block < AMN_MIN_RUN) {
      expand_scales(first_scale, (size_t)first, (size_t)block, expanded, count);
      first_scale = expanded;
      first = run = 1;
    }
    job->level->scaled[job->code](src + done, (uint8_t *)values, count, first_scale,
                                  (size_t)min_u64(first, SIZE_MAX), (size_t)min_u64(run, SIZE_MAX));
    n_overflow += job->level->narrow[job->out]((const uint8_t *)values,
                                               dst + done * out_bytes[job->out], count);
  }
  return n_overflow;
}

static uint64_t scaled_stretch(const scaled_job *job, const uint8_t *src, uint8_t *dst, size_t n,
                               const float *scales, uint64_t into, uint64_t block) {
  amn_scaled_bf16_fn direct = job->out == AMN_OUT_BF16 ? job->level->scaled_bf16[job->code] : NULL;
  if (direct == NULL || block < AMN_MIN_RUN)
    return scaled_by_scratch(job, src, dst, n, scales, into, block);
  return direct(src, dst, n, scales, (size_t)min_u64(block - into, SIZE_MAX),
                (size_t)min_u64(block, SIZE_MAX));
}

/* All rows, in stretches of at most SCALES blocks. Where a row lies within one block, the rows that
 * share it are one long row. */
static uint64_t scaled_rows(const scaled_job *job, const uint8_t *src, uint8_t *dst) {
  const amn_grid *grid = job->grid;
  const uint64_t scale_bytes = float_bytes[grid->dtype];
  const uint64_t first_block = grid->col_phase / grid->block_cols;
  const uint64_t col_phase = grid->col_phase % grid->block_cols;
  const int one_block = job->cols <= grid->block_cols - col_phase;
  const uint64_t block = one_block ? UINT64_MAX : grid->block_cols;
  const uint64_t stretch = one_block || block > UINT64_MAX / SCALES ? UINT64_MAX : block * SCALES;
  _Alignas(64) float scales[SCALES];
  uint64_t widened = UINT64_MAX; /* index of the grid's scale that is in scales[0] */
  uint64_t n_overflow = 0;
  for (uint64_t row = 0, n_rows; row < job->rows; row += n_rows) {
    uint64_t grid_row = (row + grid->row_phase) / grid->block_rows;
    uint64_t into_row = (row + grid->row_phase) % grid->block_rows;
    n_rows = one_block ? min_u64(grid->block_rows - into_row, job->rows - row) : 1;
    const uint64_t n = n_rows * job->cols;
    for (uint64_t col = 0, count; col < n; col += count) {
      uint64_t into = one_block ? 0 : (col + col_phase) % block;
      uint64_t index =
          grid_row * grid->stride + first_block + (one_block ? 0 : (col + col_phase) / block);
      count = min_u64(n - col, stretch - into);
      if (index != widened) {
        uint64_t n_scales = one_block ? 1 : (count + into - 1) / block + 1;
        job->level->widen[grid->dtype](grid->data.data + index * scale_bytes, (uint8_t *)scales,
                                       (size_t)n_scales);
        widened = index;
      }
      uint64_t at = row * job->cols + col;
      n_overflow += scaled_stretch(job, src + at, dst + at * out_bytes[job->out], (size_t)count,
                                   scales, into, block);
    }
  }
  return n_overflow;
}

amn_status amn_dequantize_scaled(int level, int code, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, const amn_grid *grid,
                                 uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_CODES || out < 0 || out >= AMN_N_OUTS || grid->dtype < 0 ||
      grid->dtype >= AMN_N_FLOATS)
    return AMN_BAD_DTYPE;
  if (grid->block_rows == 0 || grid->block_cols == 0) return AMN_BAD_BLOCK;
  const scaled_job job = {table, (amn_code)code, (amn_out)out, rows, cols, grid};
  amn_status status = check_scaled(&job, src, dst);
  if (status != AMN_OK || rows == 0 || cols == 0) return status;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = scaled_rows(&job, src.data, dst.data);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}

/* ---- convert ---- */

static uint64_t convert_all(const amn_level *level, int src_dtype, int out, const uint8_t *src,
                            uint8_t *dst, size_t n) {
  _Alignas(64) float values[SCRATCH];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n; done += SCRATCH) {
    const size_t count = (size_t)min_u64(n - done, SCRATCH);
    const uint8_t *widened = src + done * float_bytes[src_dtype];
    if (src_dtype != AMN_FLOAT_F32) {
      n_overflow += level->widen[src_dtype](widened, (uint8_t *)values, count);
      widened = (const uint8_t *)values;
    }
    n_overflow += level->narrow[out](widened, dst + done * out_bytes[out], count);
  }
  return n_overflow;
}

amn_status amn_convert(int level, int src_dtype, int out, amn_bytes src, amn_buffer dst,
                       uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (!is_convertible(src_dtype) || out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  if (src.n_bytes % float_bytes[src_dtype]) return AMN_SHORT_SRC;
  const uint64_t n = src.n_bytes / float_bytes[src_dtype];
  if (n > dst.n_bytes / out_bytes[out]) return AMN_SHORT_DST;
  if (n == 0) return AMN_OK;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = convert_all(table, src_dtype, out, src.data, dst.data, (size_t)n);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}

/* ---- dequantize_blocks ---- */

typedef struct {
  unsigned short elements, bytes;
} block_size;

static const block_size block_sizes[] = {
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) {elements, bytes},
#include "blocks.def"
};

/* The row of a type, or -1. */
static int block_row(int ggml_id) {
  switch (ggml_id) {
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) \
  case ggml_id:                                                 \
    return AMN_BLOCK_##NAME;
#include "blocks.def"
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
