/* Numbers to codes and scales: a row of blocks after the other, in units of so many blocks that
 * there is room for their scales. */
#include "loss.h"
#include "nested.h"
#include "sizes.h"

#define UNIT 1024 /* blocks */
#define PIECE 512 /* codes of 4 bits that wait as bytes */

typedef struct {
  unsigned char bits;
  float largest;
} code_kind;

static const code_kind code_kinds[] = {
#define QUANTIZE(NAME, name, bits, largest, levels) {bits, largest},
#include "../kernels.def"
};

/* As a tensor's dtype and as an output. */
typedef struct {
  unsigned char item_bytes;
  amn_float widen;
  amn_out narrow;
  float epsilon;
} source_kind;

static const source_kind sources[] = {
    [AMN_SOURCE_F32] = {4, AMN_FLOAT_F32, AMN_OUT_F32, 0x1p-23f},
    [AMN_SOURCE_F16] = {2, AMN_FLOAT_F16, AMN_OUT_F16, 0x1p-10f},
    [AMN_SOURCE_BF16] = {2, AMN_FLOAT_BF16, AMN_OUT_BF16, 0x1p-7f},
};

typedef struct {
  const amn_level *level;
  const amn_quantization *how;
  source_kind source;
  code_kind code;
  uint64_t grid_cols, code_stride;
  uint8_t zero_code; /* which an odd number of 4-bit codes ends with */
  const uint8_t *src;
  uint8_t *codes, *scales, *zeros;
  amn_loss *loss;
} quantize_job;

/* What the values of a unit's blocks are encoded by. */
typedef struct {
  uint64_t row, rows, col, cols; /* of the unit */
  uint64_t grid_row, grid_col;
  size_t n_blocks, block;
  _Alignas(64) float forward[UNIT];
  _Alignas(64) float scales[UNIT];
  _Alignas(64) float zeros[UNIT];
  float divisor; /* of a block that is not whole, where one is treated differently */
} quantize_unit;

static int is_divided(int rule) {
  return rule == AMN_RULE_DIVIDED || rule == AMN_RULE_ASYMMETRIC;
}

static int is_absmax(int rule) {
  return rule == AMN_RULE_ABSMAX || rule == AMN_RULE_NESTED;
}

static int is_mx(int rule) {
  return rule == AMN_RULE_MX || rule == AMN_RULE_MX_UP;
}

static int is_nv(int rule) {
  return rule == AMN_RULE_NV_DIVIDED || rule == AMN_RULE_NV_MULTIPLIED;
}

/* Whether what codes round is rounded to the source's dtype first. */
static int rounds_to_source(int rule) {
  return is_divided(rule) || rule == AMN_RULE_MX;
}

/* Of one row, whatever the matrix: bitsandbytes' codes of 4 bits. */
static int is_flat(const quantize_job *job) {
  return job->code.bits == 4 && is_absmax(job->how->rule);
}

/* How many values at the end of a flat unit are no whole block. */
static uint64_t tail_of(const quantize_job *job, const quantize_unit *unit) {
  return is_flat(job) ? unit->cols % job->how->block_cols : 0;
}

static const uint8_t *unit_row(const quantize_job *job, const quantize_unit *unit, uint64_t r) {
  return job->src + ((unit->row + r) * job->how->cols + unit->col) * job->source.item_bytes;
}

/* ---- scales ---- */

static void round_to(const quantize_job *job, amn_out narrow, amn_float widen, float *values,
                     size_t n) {
  uint8_t rounded[4 * UNIT];
  job->level->narrow[narrow]((const uint8_t *)values, rounded, n);
  job->level->widen[widen](rounded, (uint8_t *)values, n);
}

/* Each rounded to the source's dtype. */
static void round_to_source(const quantize_job *job, float *values, size_t n) {
  round_to(job, job->source.narrow, job->source.widen, values, n);
}

/* The exponent of the least power of two from float32 log2(value) on, where value is normal. A
 * logarithm's distance from a whole number is lost if it is less than half a unit in its last
 * place: then as many numbers above a power of two count as that power. */
static uint32_t power_above(uint32_t bits) {
  static const unsigned char lost[] = {0, 0, 1, 2, 5, 11, 22};
  const int exponent = (int)(bits >> 23) - 127;
  int size = exponent < 0 ? -exponent - 1 : exponent, width = 0;
  for (; size > 1; size >>= 1) width++;
  return (bits >> 23) + ((bits & 0x7fffff) > lost[width]);
}

/* From the largest magnitudes, which `unit->forward` has, by way of a multiplication. */
static void reciprocal_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const float amax = unit->forward[i];
    float forward = amax > 0 ? 1.0f / amax * job->code.largest : 1.0f;
    float scale = 1.0f / forward;
    if (job->how->rule == AMN_RULE_POWER_OF_TWO) {
      const uint32_t code = power_above(amn_f32_bits(scale < 0x1p-126f ? 0x1p-126f : scale));
      stored[i] = (uint8_t)code;
      scale = amn_f32_from_bits(code << 23);
      forward = 1.0f / scale;
    } else {
      amn_store_u32(stored + 4 * i, amn_f32_bits(scale));
    }
    unit->forward[i] = forward;
    unit->scales[i] = scale;
  }
}

static void store_divisors(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++)
    if (unit->scales[i] == 0) unit->scales[i] = job->source.epsilon;
  for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = 1.0f / unit->scales[i];
  job->level->narrow[job->source.narrow]((const uint8_t *)unit->scales, stored, unit->n_blocks);
}

static void divided_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++)
    unit->scales[i] = unit->forward[i] / job->code.largest;
  round_to_source(job, unit->scales, unit->n_blocks);
  store_divisors(job, unit, stored);
}

/* A block of zeros only has 0 / 0, which torch makes the whole number 0 of. */
static float whole_zero(float zero, float largest) {
  if (!(zero == zero)) return 0;
  const float most = largest - 0.5f, least = -largest - 0.5f;
  const float clamped = zero < least ? least : zero > most ? most : zero;
  return (clamped + 0x1.8p23f) - 0x1.8p23f; /* where float32 holds whole numbers only */
}

/* The zero points of a row of blocks, to words that hold those of 8 rows. */
static void store_zeros(const quantize_job *job, const quantize_unit *unit) {
  uint8_t *words = job->zeros + (unit->grid_row / 8 * job->grid_cols + unit->grid_col) * 4;
  const int shift = (int)(unit->grid_row % 8) * 4;
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const uint32_t word = shift == 0 ? 0 : amn_load_u32(words + 4 * i);
    amn_store_u32(words + 4 * i, word | (uint32_t)((int)unit->zeros[i] + 8) << shift);
  }
}

/* From the ranges, which `unit->forward` and `unit->zeros` have. */
static void asymmetric_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const float *low = unit->forward, *high = unit->zeros;
  const float least = -job->code.largest - 0.5f;
  const size_t n = unit->n_blocks;
  for (size_t i = 0; i < n; i++) unit->scales[i] = high[i] - low[i];
  round_to_source(job, unit->scales, n);
  for (size_t i = 0; i < n; i++) unit->scales[i] /= 2 * job->code.largest;
  round_to_source(job, unit->scales, n);
  for (size_t i = 0; i < n; i++) unit->zeros[i] = low[i] / unit->scales[i];
  round_to_source(job, unit->zeros, n);
  for (size_t i = 0; i < n; i++) unit->zeros[i] = least - unit->zeros[i];
  round_to_source(job, unit->zeros, n);
  for (size_t i = 0; i < n; i++) unit->zeros[i] = whole_zero(unit->zeros[i], job->code.largest);
  store_divisors(job, unit, stored);
  store_zeros(job, unit);
}

/* From the largest magnitudes, which are stored themselves. */
static void absmax_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const size_t n = unit->n_blocks;
  if (tail_of(job, unit) > 0) unit->forward[n - 1] = not_below_least(unit->forward[n - 1]);
  for (size_t i = 0; i < n; i++) {
    unit->scales[i] = unit->forward[i];
    const float by = 1.0f / not_below_least(unit->scales[i]) * job->code.largest;
    unit->forward[i] = unit->scales[i] > 0 ? (by < FLT_MAX ? by : FLT_MAX) : 1.0f;
  }
  unit->divisor = unit->scales[n - 1];
  if (job->how->rule == AMN_RULE_NESTED)
    nest(unit->scales, n, amn_f32_from_bits(amn_load_u32(job->how->found.data)), stored,
         job->zeros + unit->grid_col / NEST * sizeof(float));
  else
    memcpy(stored, unit->scales, n * sizeof(float));
}

/* 2^(code - 127), of codes up to 254. */
static float e8m0_number(int code) {
  return code == 0 ? 0x1p-127f : amn_f32_from_bits((uint32_t)code << 23);
}

/* The exponent of the codes' largest. */
static int codes_exponent(const quantize_job *job) {
  return (int)(amn_f32_bits(job->code.largest) >> 23) - 127;
}

/* The exponent of a magnitude that counts as the next power of two from 1.75 times one on, as the
 * source has its bits, plus 127; 0 for 0 and 255 for infinity. */
static int nearest_exponent(amn_source source, float amax) {
  const uint32_t bits = (amn_f32_bits(amax) + 0x200000) & 0x7f800000;
  if (source != AMN_SOURCE_F16) return (int)(bits >> 23);
  if (amax < 0x1p-14f) return amax < 0x1.8p-15f ? 0 : 127 - 14; /* subnormal */
  return bits > (127u + 15) << 23 ? 255 : (int)(bits >> 23);
}

/* The number that the source has for 2^(code - 127), and what is stored for it. */
static void mx_scale(amn_source source, int code, float *forward, float *scale, uint8_t *stored) {
  const int is_half = source == AMN_SOURCE_F16;
  const int is_zero = is_half && code<127 - 24, is_infinite = code>(is_half ? 127 + 15 : 254);
  *stored = (uint8_t)(is_zero || is_infinite ? 127 : code);
  *scale = e8m0_number(*stored);
  *forward = is_infinite ? 0 : 1 / *scale;
}

static void mx_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const amn_source source = (amn_source)job->how->source;
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const int exponent = nearest_exponent(source, unit->forward[i]);
    int code = exponent - codes_exponent(job);
    if (exponent == 255) code = 255;
    mx_scale(source, code < 0 ? 0 : code, &unit->forward[i], &unit->scales[i], &stored[i]);
  }
}

/* Of numbers from 2^-127 on, which have a logarithm of as many bits as normal ones. */
static int mx_code_above(float descale) {
  if (descale <= 0x1p-127f) return 0;
  if (descale >= 0x1p-126f) return (int)power_above(amn_f32_bits(descale));
  return (int)power_above(amn_f32_bits(descale * 2)) - 1;
}

static void mx_up_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const int code = mx_code_above(unit->forward[i] / job->code.largest);
    stored[i] = (uint8_t)code;
    unit->scales[i] = e8m0_number(code);
    unit->forward[i] = 1 / unit->scales[i];
  }
}

/* To nearest E4M3, and back to `values`. */
static void round_to_e4m3(const quantize_job *job, float *values, size_t n, uint8_t *codes) {
  static const float one = 1;
  const amn_quantize_run run = {
      .source = AMN_SOURCE_F32,
      .rounded = AMN_SOURCE_F32,
      .n = n,
      .block = n,
      .forward = &one,
      .scales = &one,
  };
  job->level->quantize[AMN_QUANTIZE_F8_E4M3]((const uint8_t *)values, codes, &run, NULL);
  job->level->scaled[AMN_CODE_F8_E4M3](codes, (uint8_t *)values, n, &one, n, n);
}

static void nv_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const float found = amn_f32_from_bits(amn_load_u32(job->how->found.data));
  const int divides = job->how->rule == AMN_RULE_NV_DIVIDED;
  const size_t n = unit->n_blocks;
  float *scales = unit->scales;
  if (divides) {
    for (size_t i = 0; i < n; i++) scales[i] = unit->forward[i] / job->code.largest;
    round_to_source(job, scales, n);
    for (size_t i = 0; i < n; i++) scales[i] = found * scales[i];
  } else {
    const float by = job->code.largest * found;
    for (size_t i = 0; i < n; i++) {
      scales[i] = unit->forward[i] / by;
      if (scales[i] == 0) scales[i] = 1;
      if (scales[i] < 0x1p-9f) scales[i] = 0x1p-9f;
    }
  }
  round_to_e4m3(job, scales, n, stored);
  for (size_t i = 0; i < n; i++) {
    if (divides && scales[i] == 0) {
      scales[i] = 0.125f;
      stored[i] = 0x20;
    }
    scales[i] = divides ? scales[i] / found : scales[i] * found;
    unit->forward[i] = 1 / scales[i];
  }
}

static uint64_t scale_bytes(const quantize_job *job) {
  const int rule = job->how->rule;
  if (rule == AMN_RULE_POWER_OF_TWO || rule == AMN_RULE_NESTED || is_mx(rule) || is_nv(rule))
    return 1;
  return is_divided(rule) ? job->source.item_bytes : 4;
}

/* Whether the largest magnitude of all is the one of each block. */
static int is_amax_given(const quantize_job *job) {
  return job->how->found.n_bytes > 0 && job->how->rule != AMN_RULE_NESTED && !is_nv(job->how->rule);
}

/* The largest magnitudes of a unit's blocks to `unit->forward`; false if one is not finite. */
static int find_amax(const quantize_job *job, quantize_unit *unit) {
  uint32_t maxima[UNIT] = {0}, largest = 0;
  if (is_amax_given(job)) {
    const float given = amn_f32_from_bits(amn_load_u32(job->how->found.data));
    for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = given;
    return given <= FLT_MAX;
  }
  for (uint64_t r = 0; r < unit->rows; r++)
    job->level->amax[job->how->source](unit_row(job, unit, r), (size_t)unit->cols, unit->block,
                                       maxima);
  for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = amn_f32_from_bits(maxima[i]);
  if (job->how->code == AMN_QUANTIZE_INT8_ABSMAX)
    round_to(job, AMN_OUT_F16, AMN_FLOAT_F16, unit->forward, unit->n_blocks);
  for (size_t i = 0; i < unit->n_blocks; i++)
    if (amn_f32_bits(unit->forward[i]) > largest) largest = amn_f32_bits(unit->forward[i]);
  return largest < 0x7f800000u;
}

static void find_range(const quantize_job *job, quantize_unit *unit) {
  for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = unit->zeros[i] = 0;
  for (uint64_t r = 0; r < unit->rows; r++)
    job->level->range[job->how->source](unit_row(job, unit, r), (size_t)unit->cols, unit->block,
                                        unit->forward, unit->zeros);
}

static int find_scales(const quantize_job *job, quantize_unit *unit) {
  const uint64_t first = unit->grid_row * job->grid_cols + unit->grid_col;
  uint8_t *stored = job->scales + first * scale_bytes(job);
  if (!find_amax(job, unit)) return 0;
  if (job->how->rule == AMN_RULE_ASYMMETRIC) {
    find_range(job, unit);
    asymmetric_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_DIVIDED) {
    divided_scales(job, unit, stored);
  } else if (is_absmax(job->how->rule)) {
    absmax_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_MX) {
    mx_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_MX_UP) {
    mx_up_scales(job, unit, stored);
  } else if (is_nv(job->how->rule)) {
    nv_scales(job, unit, stored);
  } else {
    reciprocal_scales(job, unit, stored);
  }
  return 1;
}

/* ---- codes ---- */

static void join_nibbles(const uint8_t *restrict codes, size_t n, uint8_t *restrict dst) {
  for (size_t i = 0; i < n; i++) dst[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
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

/* The same, high ones first, from an even column on. */
static void pack_high_first(uint8_t *codes, size_t n, uint8_t zero, uint8_t *dst) {
  if (n % 2) codes[n++] = zero;
  for (size_t i = 0; i < n; i += 2) *dst++ = (uint8_t)(codes[i] << 4 | codes[i + 1]);
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
      .is_within = !is_amax_given(job),
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
  if (is_nv(how->rule)) {
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
  const int is_e2m1 = how->code == AMN_QUANTIZE_E2M1 || how->code == AMN_QUANTIZE_E2M1_DOWN;
  const int has_micro_rule = is_mx(how->rule) || is_nv(how->rule);
  if (is_bnb != is_absmax(how->rule)) return AMN_BAD_RULE;
  if (is_e2m1 && !has_micro_rule) return AMN_BAD_RULE;
  if (has_micro_rule && !is_e2m1 && (is_nv(how->rule) || how->code != AMN_QUANTIZE_F8_E4M3))
    return AMN_BAD_RULE;
  if (has_micro_rule && (how->block_rows != 1 || (how->found.n_bytes > 0) != is_nv(how->rule)))
    return AMN_BAD_RULE;
  if (!is_float && !is_bnb && !is_e2m1 && !is_divided(how->rule)) return AMN_BAD_RULE;
  if (how->code > AMN_QUANTIZE_INT8_ABSMAX &&
      (how->rows > 1 || how->block_rows > 1 || how->block_cols % 2))
    return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_NESTED &&
      (how->code == AMN_QUANTIZE_INT8_ABSMAX || how->found.n_bytes != sizeof(float)))
    return AMN_BAD_RULE;
  if (how->rule == AMN_RULE_ASYMMETRIC &&
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
