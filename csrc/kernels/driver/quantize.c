/* Numbers to codes and scales: a row of blocks after the other, in units of so many blocks that
 * there is room for their scales. */
#include "loss.h"
#include "quantize_scales.h"

#define PIECE 512 /* codes of 4 bits that wait as bytes */

/* ---- codes ---- */

static void join_nibbles(const uint8_t *restrict codes, size_t n, uint8_t *restrict dst) {
  for (size_t i = 0; i < n; i++) {
    const unsigned two = amn_load_u16(codes + 2 * i);
    dst[i] = (uint8_t)(two | two >> 4);
  }
}

/* Those of 4 bits, from column `col` on, low ones first; `codes` may be written beyond. */
static void pack_nibbles(uint8_t *codes, size_t n, uint8_t *row, uint64_t col) {
  uint8_t *dst = row + col / 2;
  const size_t odd = (size_t)(col % 2);
  if (n == 0) return;
  if (odd) *dst++ |= (uint8_t)(codes[0] << 4);
  codes[n] = 0;
  join_nibbles(codes + odd, (n - odd + 1) / 2, dst);
}

static void join_high_first(const uint8_t *restrict codes, size_t n, uint8_t *restrict dst) {
  for (size_t i = 0; i < n; i++) {
    const unsigned two = amn_load_u16(codes + 2 * i);
    dst[i] = (uint8_t)(two << 4 | two >> 8);
  }
}

/* The same, high ones first, from an even column on. */
static void pack_high_first(uint8_t *codes, size_t n, uint8_t zero, uint8_t *dst) {
  codes[n] = zero;
  join_high_first(codes, (n + 1) / 2, dst);
}

/* One row of a unit, in pieces of whole blocks, or of parts of one block. */
static void encode_packed_row(const quantize_job *job, const quantize_unit *unit, uint64_t r,
                              amn_quantize_run run, amn_loss_lanes *lanes) {
  uint8_t codes[PIECE + 1];
  const amn_quantize_run whole = run;
  const size_t at_once = run.block < PIECE ? PIECE / run.block * run.block : PIECE;
  const uint64_t tail = unit->cols - tail_of(job, unit);
  const uint8_t *src = unit_row(job, unit, r);
  uint8_t *row = job->codes + (unit->row + r) * job->code_stride;
  for (uint64_t done = 0; done < unit->cols; done += run.n) {
    const size_t block = (size_t)(done / run.block);
    const uint64_t end = done < tail ? tail : unit->cols;
    run.n = (size_t)min_u64(end - done, at_once);
    if (run.block > PIECE) run.n = (size_t)min_u64(run.n, (block + 1) * run.block - done);
    run.scales = whole.scales + block;
    run.forward = whole.forward + block;
    if (whole.zeros != NULL) run.zeros = whole.zeros + block;
    run.divisor = done < tail ? 0 : unit->divisor;
    const amn_level *level = done < tail ? job->level : amn_level_at(0);
    level->quantize[job->how->code](src + done * job->source.item_bytes, codes, &run, lanes);
    if (is_flat(job))
      pack_high_first(codes, run.n, job->zero_code, row + (unit->col + done) / 2);
    else
      pack_nibbles(codes, run.n, row, unit->col + done);
  }
}

static void encode_row(const quantize_job *job, const quantize_unit *unit, uint64_t r,
                       const amn_quantize_run *run) {
  amn_loss_lanes measured = {.n = 0};
  amn_loss_lanes *lanes = job->loss == NULL ? NULL : &measured;
  if (job->code.bits == 4)
    encode_packed_row(job, unit, r, *run, lanes);
  else
    job->level->quantize[job->how->code](
        unit_row(job, unit, r), job->codes + (unit->row + r) * job->code_stride + unit->col, run,
        lanes);
  if (lanes != NULL) add_row(job->loss, lanes);
}

/* A row of the next row of blocks is read from memory while this row is encoded. */
static void prefetch_next(const quantize_job *job, const quantize_unit *unit, uint64_t r) {
  const uint64_t n_bytes = unit->cols * job->source.item_bytes;
  if (job->how->rows - unit->row <= r + unit->rows) return;
  const uint8_t *next = unit_row(job, unit, r + unit->rows);
  for (uint64_t i = 0; i < n_bytes; i += AMN_CACHE_LINE) AMN_PREFETCH(next + i);
}

static void encode_unit(const quantize_job *job, const quantize_unit *unit) {
  const amn_quantize_run run = {
      .source = (amn_source)job->how->source,
      .rounded = rounds_to_source(job->how->rule) ? (amn_source)job->how->source : AMN_SOURCE_F32,
      .is_divided = is_divided(job->how->rule) || is_nv(job->how->rule),
      .is_within = !is_amax_given(job) && job->how->rule != AMN_RULE_LATTICE,
      .n = (size_t)unit->cols,
      .block = unit->block,
      .forward = unit->forward,
      .scales = unit->scales,
      .zeros = job->how->rule == AMN_RULE_ASYMMETRIC ? unit->zeros : NULL,
  };
  for (uint64_t r = 0; r < unit->rows; r++) {
    if (unit->rows > 1) prefetch_next(job, unit, r);
    encode_row(job, unit, r, &run);
  }
}

static amn_status quantize_all(const quantize_job *job) {
  const amn_quantization *how = job->how;
  const uint64_t block = min_u64(how->block_cols, how->cols);
  if (has_second(how->rule)) {
    const float found = amn_f32_from_bits(amn_load_u32(how->found.data));
    if (!(found > 0 && found <= FLT_MAX)) return AMN_NOT_FINITE;
  }
  uint64_t wide;
  /* What a unit adds to the loss is rounded: where units begin must not depend on the band. */
  if (!multiply(block, is_flat(job) ? NEST : UNIT, &wide)) wide = UINT64_MAX;
  quantize_unit unit = {.block = (size_t)block};
  for (unit.row = 0; unit.row < how->rows; unit.row += unit.rows, unit.grid_row++) {
    unit.rows = min_u64(how->rows - unit.row, how->block_rows);
    unit.grid_col = 0;
    for (unit.col = 0; unit.col < how->cols; unit.col += unit.cols) {
      unit.cols = min_u64(how->cols - unit.col, wide);
      unit.n_blocks = (size_t)((unit.cols - 1) / block) + 1;
      if (!find_scales(job, &unit)) return AMN_NOT_FINITE;
      encode_unit(job, &unit);
      unit.grid_col += unit.n_blocks;
    }
  }
  return AMN_OK;
}

/* ---- checks ---- */

static amn_status check_ids(const amn_quantization *how) {
  if (how->source < 0 || how->source >= AMN_N_SOURCES || how->code < 0 ||
      how->code >= AMN_N_QUANTIZE)
    return AMN_BAD_DTYPE;
  if (how->block_rows == 0 || how->block_cols == 0) return AMN_BAD_BLOCK;
  if (how->rule < 0 || how->rule >= AMN_N_RULES) return AMN_BAD_RULE;
  const int is_float = how->code == AMN_QUANTIZE_F8_E4M3 || how->code == AMN_QUANTIZE_F8_E5M2;
  const int is_bnb = how->code >= AMN_QUANTIZE_INT8_ABSMAX;
  const int is_e2m1 = how->code >= AMN_QUANTIZE_E2M1 && how->code <= AMN_QUANTIZE_E2M1_AWAY;
  const int has_micro_rule = is_mx(how->rule) || is_nv(how->rule);
  if (is_bnb != is_absmax(how->rule)) return AMN_BAD_RULE;
  if (is_e2m1 && !has_micro_rule) return AMN_BAD_RULE;
  if (has_micro_rule && !is_e2m1 && (is_nv(how->rule) || how->code != AMN_QUANTIZE_F8_E4M3))
    return AMN_BAD_RULE;
  const int is_first = how->code == AMN_QUANTIZE_E2M1_FIRST;
  if (is_nv(how->rule) && is_first != (how->rule == AMN_RULE_NV_ALONE)) return AMN_BAD_RULE;
  if (has_micro_rule && (how->block_rows != 1 || (how->found.n_bytes > 0) != has_second(how->rule)))
    return AMN_BAD_RULE;
  if (!is_float && !is_bnb && !is_e2m1 && !is_divided(how->rule)) return AMN_BAD_RULE;
  if (how->code > AMN_QUANTIZE_INT8_ABSMAX &&
      (how->rows > 1 || how->block_rows > 1 || how->block_cols % 2))
    return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_WHOLE && how->code != AMN_QUANTIZE_INT8) return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_NESTED &&
      (how->code == AMN_QUANTIZE_INT8_ABSMAX || how->found.n_bytes != sizeof(float)))
    return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_ASYMMETRIC &&
      (how->code != AMN_QUANTIZE_INT4 || how->block_rows != 1 || how->found.n_bytes > 0))
    return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_LATTICE &&
      (how->code != AMN_QUANTIZE_INT4 || how->block_rows != 1 || how->found.n_bytes > 0))
    return AMN_BAD_RULE;
  if (how->found.n_bytes != 0 && how->found.n_bytes != sizeof(float)) return AMN_SHORT_SCALES;
  return AMN_OK;
}

static amn_status check_sizes(quantize_job *job, amn_bytes src, amn_buffer codes, amn_buffer scales,
                              amn_buffer zeros) {
  const amn_quantization *how = job->how;
  uint64_t n, n_bytes, grid;
  if (!multiply(how->rows, how->cols, &n) || !multiply(n, job->source.item_bytes, &n_bytes))
    return AMN_BAD_SIZE;
  if (n == 0) return AMN_OK;
  const uint64_t grid_rows = (how->rows - 1) / how->block_rows + 1;
  job->grid_cols = (how->cols - 1) / how->block_cols + 1;
  job->code_stride = job->code.bits == 4 ? (how->cols - 1) / 2 + 1 : how->cols;
  if (how->code == AMN_QUANTIZE_INT4) job->code_stride = ((how->cols - 1) / 8 + 1) * 4;
  if (n_bytes > src.n_bytes) return AMN_SHORT_SRC;
  if (!multiply(how->rows, job->code_stride, &n) || n > codes.n_bytes) return AMN_SHORT_DST;
  if (!multiply(grid_rows, job->grid_cols, &grid) || !multiply(grid, scale_bytes(job), &n_bytes) ||
      n_bytes > scales.n_bytes)
    return AMN_SHORT_SCALES;
  if (how->rule == AMN_RULE_ASYMMETRIC &&
      ((grid_rows - 1) / 8 + 1) * job->grid_cols > zeros.n_bytes / 4)
    return AMN_SHORT_ZEROS;
  if (how->rule == AMN_RULE_NESTED && (grid - 1) / NEST + 1 > zeros.n_bytes / sizeof(float))
    return AMN_SHORT_ZEROS;
  return AMN_OK;
}

/* What follows the last code of a row is zeros. */
static void clear_padding(const quantize_job *job) {
  if (job->code.bits != 4 || is_flat(job)) return;
  const uint64_t filled = job->how->cols / 2; /* the last of an odd number is written with a 0 */
  for (uint64_t r = 0; r < job->how->rows; r++)
    for (uint64_t i = filled; i < job->code_stride; i++) job->codes[r * job->code_stride + i] = 0;
}

amn_status amn_quantize(int level, const amn_quantization *how, amn_bytes src, amn_buffer codes,
                        amn_buffer scales, amn_buffer zeros, amn_loss *loss) {
  quantize_job job = {
      .level = amn_level_at(level),
      .how = how,
      .src = src.data,
      .codes = codes.data,
      .scales = scales.data,
      .zeros = zeros.data,
      .loss = loss,
  };
  if (job.level == NULL) return AMN_BAD_LEVEL;
  amn_status status = check_ids(how);
  if (status != AMN_OK) return status;
  job.source = sources[how->source];
  job.code = code_kinds[how->code];
  job.zero_code = how->code == AMN_QUANTIZE_NF4 ? 7 : 0;
  status = check_sizes(&job, src, codes, scales, zeros);
  if (status != AMN_OK || how->rows == 0 || how->cols == 0) return status;
  clear_padding(&job);
  const uint64_t fp_mode = amn_fp_mode_enter();
  status = quantize_all(&job);
  amn_fp_mode_leave(fp_mode);
  return status;
}

amn_status amn_amax(int level, int source, amn_bytes src, float *amax) {
  const amn_level *table = amn_level_at(level);
  uint32_t largest = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (source < 0 || source >= AMN_N_SOURCES) return AMN_BAD_DTYPE;
  const uint64_t n = src.n_bytes / sources[source].item_bytes;
  if (src.n_bytes % sources[source].item_bytes) return AMN_SHORT_SRC;
  if (n > 0) {
    const uint64_t fp_mode = amn_fp_mode_enter();
    table->amax[source](src.data, (size_t)n, (size_t)n, &largest);
    amn_fp_mode_leave(fp_mode);
  }
  *amax = amn_f32_from_bits(largest);
  return largest < 0x7f800000u ? AMN_OK : AMN_NOT_FINITE;
}

amn_status amn_blocks_amax(int level, int source, amn_bytes src, uint64_t block, amn_buffer dst) {
  const amn_level *table = amn_level_at(level);
  if (table == NULL) return AMN_BAD_LEVEL;
  if (source < 0 || source >= AMN_N_SOURCES) return AMN_BAD_DTYPE;
  if (block == 0) return AMN_BAD_BLOCK;
  const uint64_t n = src.n_bytes / sources[source].item_bytes;
  if (src.n_bytes % sources[source].item_bytes) return AMN_SHORT_SRC;
  if (n == 0) return AMN_OK;
  const uint64_t n_blocks = (n - 1) / block + 1;
  if (n_blocks > dst.n_bytes / sizeof(float)) return AMN_SHORT_DST;
  const uint64_t fp_mode = amn_fp_mode_enter();
  uint32_t maxima[UNIT], largest = 0;
  for (uint64_t done = 0, count; done < n_blocks; done += count) {
    count = min_u64(n_blocks - done, UNIT);
    memset(maxima, 0, sizeof maxima);
    table->amax[source](src.data + done * block * sources[source].item_bytes,
                        (size_t)(min_u64(n - done * block, count * block)), (size_t)block, maxima);
    for (uint64_t i = 0; i < count; i++) {
      if (maxima[i] > largest) largest = maxima[i];
      amn_store_u32(dst.data + (done + i) * sizeof(float), maxima[i]);
    }
  }
  if (n % block) {
    uint8_t *last = dst.data + (n_blocks - 1) * sizeof(float);
    const float amax = not_below_least(amn_f32_from_bits(amn_load_u32(last)));
    amn_store_u32(last, amn_f32_bits(amax));
  }
  amn_fp_mode_leave(fp_mode);
  return largest < 0x7f800000u ? AMN_OK : AMN_NOT_FINITE;
}
