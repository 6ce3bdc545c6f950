/* The scales of blocks, by each library's rule, for quantize.c. */
#ifndef AMN_DRIVER_QUANTIZE_SCALES_H
#define AMN_DRIVER_QUANTIZE_SCALES_H

#include "nested.h"
#include "sources.h"

#define UNIT 1024          /* blocks */
#define LATTICE_PIECE 1024 /* values of the longest block that is looked at for multiples */

typedef struct {
  unsigned char bits;
  float largest;
} code_kind;

static const code_kind code_kinds[] = {
#define QUANTIZE(NAME, name, bits, largest, levels) {bits, largest},
#include "../kernels.def"
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
  return rule >= AMN_RULE_DIVIDED && rule <= AMN_RULE_LATTICE;
}

static int is_absmax(int rule) {
  return rule == AMN_RULE_ABSMAX || rule == AMN_RULE_NESTED;
}

static int is_mx(int rule) {
  return rule >= AMN_RULE_MX && rule <= AMN_RULE_MX_OWN_POWER;
}

static int is_nv(int rule) {
  return rule >= AMN_RULE_NV_DIVIDED && rule <= AMN_RULE_NV_ALONE;
}

/* Whether scales have a scale, which is given. */
static int has_second(int rule) {
  return is_nv(rule) && rule != AMN_RULE_NV_ALONE;
}

/* Whether what codes round is rounded to the source's dtype first. */
static int rounds_to_source(int rule) {
  return is_divided(rule) || rule == AMN_RULE_MX || rule == AMN_RULE_NV_ALONE;
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

static float rounded_to_source(const quantize_job *job, float value) {
  round_to_source(job, &value, 1);
  return value;
}

/* Whether all of some values are whole numbers from -8 to 7 times a scale, rounded to the source.
 * No rounding moves a product by more than a 256th, or by the least half float: most scales are
 * told by the first values. */
static int are_multiples(const quantize_job *job, const float *values, size_t n, float scale) {
  float products[LATTICE_PIECE];
  for (size_t i = 0; i < n; i++) {
    const float value = values[i], quotient = value / scale;
    if (!(quotient > -8.5f && quotient < 7.5f)) return 0;
    products[i] = ((quotient + 0x1.8p23f) - 0x1.8p23f) * scale;
    const float apart = products[i] - value, room = value * 0x1p-8f;
    if (apart * apart > room * room + 0x1p-48f) return 0;
  }
  round_to_source(job, products, n);
  for (size_t i = 0; i < n; i++)
    if (products[i] != values[i]) return 0;
  return 1;
}

/* The scale that decoded values were multiplied by, given their largest magnitude; 0 if there is
 * none. Rounding the largest product may have moved the quotient to a neighbour. */
static float lattice_scale(const quantize_job *job, const float *values, size_t n, float amax) {
  static const float largest[] = {7, 8, 6, 5, 4, 3, 2, 1};
  const uint32_t step = 1u << (job->source.narrow == AMN_OUT_BF16  ? 16
                               : job->source.narrow == AMN_OUT_F16 ? 13
                                                                   : 0);
  for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
    const uint32_t nearest = amn_f32_bits(rounded_to_source(job, amax / largest[i]));
    const uint32_t tried[] = {nearest, nearest - step, nearest + step};
    for (size_t k = 0; nearest > step && k < sizeof tried / sizeof *tried; k++) {
      const float scale = amn_f32_from_bits(tried[k]);
      if (are_multiples(job, values, n, scale) && rounded_to_source(job, scale) == scale)
        return scale;
    }
  }
  return 0;
}

static void widen_row(const quantize_job *job, const uint8_t *src, float *values, size_t n) {
  job->level->widen[job->source.widen](src, (uint8_t *)values, n);
}

/* Those of blocks of one row that are no longer than a piece; of others DIVIDED's. */
static void lattice_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  float amax[UNIT], values[LATTICE_PIECE];
  memcpy(amax, unit->forward, unit->n_blocks * sizeof *amax);
  divided_scales(job, unit, stored);
  for (size_t i = 0; i < unit->n_blocks && unit->block <= LATTICE_PIECE; i++) {
    const uint64_t first = i * unit->block;
    const size_t n = (size_t)min_u64(unit->cols - first, unit->block);
    if (amax[i] == 0) continue;
    widen_row(job, unit_row(job, unit, 0) + first * job->source.item_bytes, values, n);
    const float scale = lattice_scale(job, values, n, amax[i]);
    if (scale > 0) unit->scales[i] = scale;
  }
  store_divisors(job, unit, stored);
}

static void whole_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const float scale = unit->forward[i] / (job->code.largest - 0.5f);
    unit->scales[i] = scale < 1e-30f ? 1e-30f : scale;
  }
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

/* Of a half float the exponent that its magnitude has once it counts as the next power of two from
 * 1.75 times one on, plus 127; 0 for 0 and 255 for infinity. */
static int nearest_exponent_f16(float amax) {
  const uint32_t bits = (amn_f32_bits(amax) + 0x200000) & 0x7f800000;
  if (amax < 0x1p-14f) return amax < 0x1.8p-15f ? 0 : 127 - 14; /* subnormal */
  return bits > (127u + 15) << 23 ? 255 : (int)(bits >> 23);
}

/* The half float for 2^(code - 127), and what is stored for it. */
static void mx_scales_f16(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const int exponent = nearest_exponent_f16(unit->forward[i]),
              code = exponent - codes_exponent(job);
    const int is_zero = code < 127 - 24, is_infinite = exponent == 255 || code > 127 + 15;
    stored[i] = (uint8_t)(is_zero || is_infinite ? 127 : code);
    unit->scales[i] = e8m0_number(stored[i]);
    unit->forward[i] = is_infinite ? 0 : 1 / unit->scales[i];
  }
}

/* The same of the other sources. Without branches, so that compilers make vectors of it. */
static void mx_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  if (job->how->source == AMN_SOURCE_F16) {
    mx_scales_f16(job, unit, stored);
    return;
  }
  const int32_t least = codes_exponent(job);
  const size_t n = unit->n_blocks;
  int32_t codes[UNIT];
  for (size_t i = 0; i < n; i++) {
    const int32_t exponent = (int32_t)((amn_f32_bits(unit->forward[i]) + 0x200000) >> 23 & 0xff);
    codes[i] = exponent > least ? exponent - least : 0;
    codes[i] = exponent == 255 ? 255 : codes[i];
  }
  for (size_t i = 0; i < n; i++) {
    const uint32_t code = codes[i] == 255 ? 127 : (uint32_t)codes[i];
    unit->scales[i] = amn_f32_from_bits(code == 0 ? 0x400000 : code << 23);
    stored[i] = (uint8_t)code;
  }
  for (size_t i = 0; i < n; i++) unit->forward[i] = 1 / unit->scales[i];
  for (size_t i = 0; i < n; i++) unit->forward[i] = codes[i] == 255 ? 0 : unit->forward[i];
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

/* Both rules of powers: false if a scale has no code. */
static int mx_power_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const int is_own = job->how->rule == AMN_RULE_MX_OWN_POWER;
  float *scales = unit->scales;
  for (size_t i = 0; i < unit->n_blocks; i++) scales[i] = unit->forward[i] / job->code.largest;
  if (is_own) round_to_source(job, scales, unit->n_blocks);
  for (size_t i = 0; i < unit->n_blocks; i++) {
    const int is_zero = scales[i] == 0;
    int code = (int)((amn_f32_bits(scales[i]) + 0x7fffff) >> 23);
    if (is_own && scales[i] <= 0x1p-127f) code = is_zero ? 127 : 0;
    if (is_own && !is_zero && scales[i] <= 0x1p-128f) return 0;
    stored[i] = (uint8_t)code;
    scales[i] = e8m0_number(code);
    unit->forward[i] = is_zero ? 0 : 1 / scales[i];
  }
  return 1;
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
  if (divides) {
    for (size_t i = 0; i < n; i++) stored[i] = stored[i] == 0 ? 0x20 : stored[i];
    for (size_t i = 0; i < n; i++) scales[i] = (scales[i] == 0 ? 0.125f : scales[i]) / found;
  } else {
    for (size_t i = 0; i < n; i++) scales[i] *= found;
  }
  for (size_t i = 0; i < n; i++) unit->forward[i] = 1 / scales[i];
}

/* By two divisions. What is divided by a scale of 0 is to become 0. */
static void nv_quotient_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const float found = amn_f32_from_bits(amn_load_u32(job->how->found.data));
  const size_t n = unit->n_blocks;
  float *scales = unit->scales;
  for (size_t i = 0; i < n; i++) scales[i] = unit->forward[i] / job->code.largest / found;
  round_to_e4m3(job, scales, n, stored);
  for (size_t i = 0; i < n; i++) {
    scales[i] = scales[i] == 0 ? FLT_MAX : found * scales[i];
    unit->forward[i] = 1 / scales[i];
  }
}

/* What is divided by a scale of 0 is to become 0. */
static void nv_alone_scales(const quantize_job *job, quantize_unit *unit, uint8_t *stored) {
  const size_t n = unit->n_blocks;
  float *scales = unit->scales;
  for (size_t i = 0; i < n; i++) scales[i] = unit->forward[i] / job->code.largest;
  round_to_source(job, scales, n);
  round_to_e4m3(job, scales, n, stored);
  for (size_t i = 0; i < n; i++) {
    if (scales[i] == 0) scales[i] = FLT_MAX;
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
  return job->how->found.n_bytes > 0 && job->how->rule != AMN_RULE_NESTED &&
         !has_second(job->how->rule);
}

/* The largest magnitudes of a unit's blocks to `unit->forward`; false if one is not finite. */
static int find_amax(const quantize_job *job, quantize_unit *unit) {
  uint32_t maxima[UNIT], beyond = 0;
  if (is_amax_given(job)) {
    const float given = amn_f32_from_bits(amn_load_u32(job->how->found.data));
    for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = given;
    return given <= FLT_MAX;
  }
  memset(maxima, 0, unit->n_blocks * sizeof *maxima);
  for (uint64_t r = 0; r < unit->rows; r++)
    job->level->amax[job->how->source](unit_row(job, unit, r), (size_t)unit->cols, unit->block,
                                       maxima);
  for (size_t i = 0; i < unit->n_blocks; i++) unit->forward[i] = amn_f32_from_bits(maxima[i]);
  if (job->how->code == AMN_QUANTIZE_INT8_ABSMAX)
    round_to(job, AMN_OUT_F16, AMN_FLOAT_F16, unit->forward, unit->n_blocks);
  /* the sign bit, once there is an infinity or a NaN */
  for (size_t i = 0; i < unit->n_blocks; i++) beyond |= amn_f32_bits(unit->forward[i]) + 0x800000;
  return beyond >> 31 == 0;
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
  } else if (job->how->rule == AMN_RULE_LATTICE) {
    lattice_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_WHOLE) {
    whole_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_DIVIDED) {
    divided_scales(job, unit, stored);
  } else if (is_absmax(job->how->rule)) {
    absmax_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_MX) {
    mx_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_MX_UP) {
    mx_up_scales(job, unit, stored);
  } else if (is_mx(job->how->rule)) {
    return mx_power_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_NV_QUOTIENT) {
    nv_quotient_scales(job, unit, stored);
  } else if (job->how->rule == AMN_RULE_NV_ALONE) {
    nv_alone_scales(job, unit, stored);
  } else if (is_nv(job->how->rule)) {
    nv_scales(job, unit, stored);
  } else {
    reciprocal_scales(job, unit, stored);
  }
  return 1;
}

#endif /* AMN_DRIVER_QUANTIZE_SCALES_H */
