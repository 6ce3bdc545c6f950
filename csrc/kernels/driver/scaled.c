/* 8-bit codes times a grid of scales. */
#include "leave.h"
#include "rounding.h"

#define SCALES 512 /* scales widened to float32 at a time */

typedef struct {
  const amn_level *level;
  amn_code code;
  amn_out out;
  uint64_t rows, cols;
  const amn_grid *grid;
  way_out *way;
} scaled_job;

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
      count = at_once(job->way, min_u64(n - col, stretch - into), out_bytes[job->out]);
      if (index != widened || grid->rounded != AMN_OUT_F32) {
        uint64_t n_scales = one_block ? 1 : (count + into - 1) / block + 1;
        job->level->widen[grid->dtype](grid->data.data + index * scale_bytes, (uint8_t *)scales,
                                       (size_t)n_scales);
        if (grid->rounded != AMN_OUT_F32)
          n_overflow +=
              round_blocks(job->level, grid->rounded, scales, (size_t)n_scales, into, block, count);
        widened = index;
      }
      uint64_t at = row * job->cols + col;
      uint8_t *to = dst + at * out_bytes[job->out];
      n_overflow +=
          scaled_stretch(job, src + at, room_for(job->way, to), (size_t)count, scales, into, block);
      leave(job->way, to, count * out_bytes[job->out]);
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
      grid->dtype >= AMN_N_FLOATS || grid->rounded < 0 || grid->rounded >= AMN_N_OUTS)
    return AMN_BAD_DTYPE;
  if (grid->block_rows == 0 || grid->block_cols == 0) return AMN_BAD_BLOCK;
  way_out way;
  const scaled_job job = {table, (amn_code)code, (amn_out)out, rows, cols, grid, &way};
  amn_status status = check_scaled(&job, src, dst);
  if (status != AMN_OK || rows == 0 || cols == 0) return status;
  find_way_out(&way, table, dst);
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = scaled_rows(&job, src.data, dst.data);
  end_way_out(&way, table);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
