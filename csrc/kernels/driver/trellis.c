/* Trellises of EXL3, a block of in and out features after the other. */
#include "sizes.h"

#define BLOCK ((size_t)AMN_TRELLIS_BLOCK)
#define HALF_BYTES 2

_Static_assert(BLOCK * BLOCK * sizeof(float) + AMN_CACHE_LINE <= AMN_TRELLIS_WORK, "a block");

static amn_status check_trellis(const amn_trellis *trellis, int out, uint64_t dst_bytes) {
  const uint64_t in_tiles = trellis->cols / AMN_TRELLIS_TILE;
  uint64_t needed, end;
  if (trellis->bits < 1 || trellis->bits > 8 || trellis->cols % BLOCK) return AMN_BAD_WORDS;
  if (!add(trellis->first_row, trellis->n_rows, &end) || end > BLOCK) return AMN_BAD_ROWS;
  if (!add(trellis->first_col, trellis->n_cols, &end) || end > trellis->cols) return AMN_BAD_ROWS;
  if (!multiply(in_tiles, BLOCK * AMN_TRELLIS_TILE / 8 * (uint64_t)trellis->bits, &needed))
    return AMN_BAD_SIZE;
  if (needed > trellis->tiles.n_bytes) return AMN_SHORT_SRC;
  if (trellis->cols > trellis->in_scales.n_bytes / HALF_BYTES ||
      trellis->out_scales.n_bytes < BLOCK * HALF_BYTES)
    return AMN_SHORT_SCALES;
  if (!multiply(trellis->n_rows * out_bytes[out], trellis->n_cols, &needed)) return AMN_BAD_SIZE;
  return needed <= dst_bytes ? AMN_OK : AMN_SHORT_DST;
}

/* What is wanted of a block to dst. */
static uint64_t narrow_block(const amn_level *level, const amn_trellis *trellis, int out,
                             const float *values, uint64_t block_col, uint8_t *dst) {
  const uint64_t stop = trellis->first_col + trellis->n_cols;
  const uint64_t first = trellis->first_col > block_col ? trellis->first_col : block_col;
  const size_t n = (size_t)(min_u64(block_col + BLOCK, stop) - first);
  const size_t place = (size_t)(first - trellis->first_col) * out_bytes[out];
  const size_t dst_stride = (size_t)trellis->n_cols * out_bytes[out];
  uint64_t n_overflow = 0;
  values += trellis->first_row * BLOCK + (first - block_col);
  for (size_t row = 0; row < trellis->n_rows; row++)
    n_overflow += level->narrow[out]((const uint8_t *)(values + row * BLOCK),
                                     dst + row * dst_stride + place, n);
  return n_overflow;
}

static uint64_t trellis_blocks(const amn_level *level, int code, int out,
                               const amn_trellis *trellis, uint8_t *dst, float *values) {
  _Alignas(64) float in_scales[BLOCK], out_scales[BLOCK];
  const amn_widen_fn widen = level->widen[AMN_FLOAT_F16];
  const size_t stride = BLOCK * AMN_TRELLIS_TILE / 8 * (size_t)trellis->bits;
  const uint64_t stop = trellis->first_col + trellis->n_cols;
  uint64_t n_overflow = 0;
  widen(trellis->out_scales.data, (uint8_t *)out_scales, BLOCK);
  for (uint64_t col = trellis->first_col / BLOCK * BLOCK; col < stop; col += BLOCK) {
    widen(trellis->in_scales.data + col * HALF_BYTES, (uint8_t *)in_scales, BLOCK);
    const amn_trellis_block block = {
        .tiles = trellis->tiles.data + col / AMN_TRELLIS_TILE * stride,
        .stride = stride,
        .bits = trellis->bits,
        .in_scales = in_scales,
        .out_scales = out_scales,
    };
    level->trellis[code](&block, values);
    n_overflow += narrow_block(level, trellis, out, values, col, dst);
  }
  return n_overflow;
}

amn_status amn_dequantize_trellis(int level, int code, int out, const amn_trellis *trellis,
                                  amn_buffer dst, amn_buffer work, uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_TRELLISES || out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  const amn_status status = check_trellis(trellis, out, dst.n_bytes);
  if (status != AMN_OK || trellis->n_rows == 0 || trellis->n_cols == 0) return status;
  if (work.n_bytes < AMN_TRELLIS_WORK) return AMN_SHORT_DST;
  float *values = (float *)(work.data + (size_t)(-(uintptr_t)work.data % AMN_CACHE_LINE));
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = trellis_blocks(table, code, out, trellis, dst.data, values);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
