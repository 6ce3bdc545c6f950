/* Integers of a row one after the other, with a grid of scales and zero points. */
#include "sizes.h"

#define GROUPS 512 /* scales widened to float32 at a time */

typedef struct {
  unsigned char bits, offset;
} integers_kind;

static const integers_kind kinds[] = {
#define INTEGERS(NAME, name, bits, offset, levels) {bits, offset},
#include "../kernels.def"
};

typedef struct {
  const amn_level *level;
  int code;
  amn_out out;
  const uint8_t *src;
  uint64_t stride, cols;
  const amn_grid *grid;
  const amn_zero_points *zeros;
} integers_job;

static unsigned int per_word(const integers_job *job) {
  return 32u / kinds[job->code].bits;
}

static void find_zeros(const integers_job *job, uint64_t row, uint64_t group, size_t n,
                       float *zeros) {
  const amn_zero_points *from = job->zeros;
  const uint64_t stride = job->grid->stride;
  const integers_kind kind = kinds[job->code];
  if (from->data.n_bytes == 0) {
    for (size_t i = 0; i < n; i++) zeros[i] = 0;
  } else if (from->is_packed) {
    const uint64_t at = row + from->row_phase;
    const uint8_t *words = from->data.data + (at / per_word(job) * stride + group) * 4;
    const int shift = (int)(at % per_word(job)) * kind.bits;
    for (size_t i = 0; i < n; i++) {
      const uint32_t code = amn_load_u32(words + 4 * i) >> shift & ((1u << kind.bits) - 1);
      zeros[i] = (float)((int)code - kind.offset);
    }
  } else {
    const uint8_t *bytes = from->data.data + row * stride + group;
    for (size_t i = 0; i < n; i++) zeros[i] = (float)(int8_t)bytes[i];
  }
}

/* n integers of a row, whose first is `into` the first group; from a byte's start on. */
static uint64_t integers_stretch(const integers_job *job, const uint8_t *src, uint8_t *dst,
                                 size_t n, const float *zeros, const float *scales, uint64_t into) {
  const uint64_t block = job->grid->block_cols;
  _Alignas(64) float values[SCRATCH];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n; done += SCRATCH) {
    const size_t count = (size_t)min_u64(n - done, SCRATCH);
    const uint64_t group = (done + into) / block, first = block - (done + into) % block;
    job->level->integers[job->code](src + done * kinds[job->code].bits / 8, values, count,
                                    zeros + group, scales + group, (size_t)min_u64(first, SIZE_MAX),
                                    (size_t)min_u64(block, SIZE_MAX));
    n_overflow += job->level->narrow[job->out]((const uint8_t *)values,
                                               dst + done * out_bytes[job->out], count);
  }
  return n_overflow;
}

static uint64_t integers_row(const integers_job *job, uint64_t row, uint8_t *dst) {
  const amn_grid *grid = job->grid;
  const uint64_t item = float_bytes[grid->dtype], block = grid->block_cols;
  const uint64_t at_once = min_u64(block, SCRATCH) * (GROUPS - 1) / 2 * 2; /* begins a byte */
  _Alignas(64) float scales[GROUPS], zeros[GROUPS];
  uint64_t n_overflow = 0;
  for (uint64_t col = 0, count; col < job->cols; col += count) {
    const uint64_t group = (col + grid->col_phase) / block, into = (col + grid->col_phase) % block;
    count = min_u64(job->cols - col, at_once);
    const size_t n_groups = (size_t)((count - 1 + into) / block) + 1;
    const uint8_t *stored = grid->data.data + (row * grid->stride + group) * item;
    job->level->widen[grid->dtype](stored, (uint8_t *)scales, n_groups);
    find_zeros(job, row, group, n_groups, zeros);
    n_overflow +=
        integers_stretch(job, job->src + row * job->stride + col * kinds[job->code].bits / 8,
                         dst + col * out_bytes[job->out], (size_t)count, zeros, scales, into);
  }
  return n_overflow;
}

static amn_status check_integers(const integers_job *job, uint64_t rows, amn_bytes src,
                                 amn_buffer dst) {
  const amn_grid *grid = job->grid;
  const amn_zero_points *zeros = job->zeros;
  uint64_t n, n_bytes, groups, needed;
  if (!multiply(rows, job->cols, &n) || !multiply(n, out_bytes[job->out], &n_bytes))
    return AMN_BAD_SIZE;
  if (n == 0) return AMN_OK;
  const uint64_t row_bytes = (job->cols - 1) / (8 / kinds[job->code].bits) + 1;
  if (!multiply(rows - 1, job->stride, &needed) || !add(needed, row_bytes, &needed) ||
      needed > src.n_bytes)
    return AMN_SHORT_SRC;
  if (n_bytes > dst.n_bytes) return AMN_SHORT_DST;
  if (!blocks_touched(job->cols, grid->col_phase, grid->block_cols, &groups)) return AMN_BAD_SIZE;
  if (groups > grid->stride) return AMN_SHORT_STRIDE;
  if (!multiply(rows - 1, grid->stride, &needed) || !add(needed, groups, &needed) ||
      needed > grid->data.n_bytes / float_bytes[grid->dtype])
    return AMN_SHORT_SCALES;
  if (zeros->data.n_bytes == 0) return AMN_OK;
  if (zeros->is_packed) {
    uint64_t end;
    if (!add(rows - 1, zeros->row_phase, &end) ||
        !multiply(end / per_word(job), grid->stride, &needed) || !add(needed, groups, &needed))
      return AMN_BAD_SIZE;
    return needed > zeros->data.n_bytes / 4 ? AMN_SHORT_ZEROS : AMN_OK;
  }
  return needed > zeros->data.n_bytes ? AMN_SHORT_ZEROS : AMN_OK;
}

amn_status amn_dequantize_integers(int level, int code, int out, amn_bytes src, uint64_t stride,
                                   amn_buffer dst, uint64_t rows, uint64_t cols,
                                   const amn_grid *grid, const amn_zero_points *zeros,
                                   uint64_t *n_overflow) {
  *n_overflow = 0;
  if (amn_level_at(level) == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_INTEGERS || out < 0 || out >= AMN_N_OUTS || grid->dtype < 0 ||
      grid->dtype >= AMN_N_FLOATS)
    return AMN_BAD_DTYPE;
  if (grid->block_rows != 1 || grid->block_cols == 0) return AMN_BAD_BLOCK;
  const integers_job job = {
      amn_level_at(level), code, (amn_out)out, src.data, stride, cols, grid, zeros};
  const amn_status status = check_integers(&job, rows, src, dst);
  if (status != AMN_OK || rows == 0 || cols == 0) return status;
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (uint64_t r = 0; r < rows; r++)
    *n_overflow += integers_row(&job, r, dst.data + r * cols * out_bytes[out]);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
