/* Numbers to codes, one by one.
 *
 * Canonical: `Fp8Quantize` of transformers' integrations/finegrained_fp8.py; `_quantize` and
 * `round_to_quantized_type_args` of compressed-tensors' quantization/; torch's casts to 8-bit
 * floats, which saturate; `quantize_4bit` and `int8_vectorwise_quant` of bitsandbytes'
 * backends/default/ops.py; `quantize` of MLX's backend/cpu/quantized.cpp, and `fp_quantize` of its
 * ops.cpp; `cast_to_fp4` and `pack_fp4_to_uint8` of compressed-tensors; `_cast_fp4` of ModelOpt's
 * NVFP4QTensor and `cast_fp4` of its MXFP4QTensor; `downcast_to_mxfp_torch` of Triton's
 * triton_kernels; `quantize_nvfp4` and `quantize_int8_rowwise` of comfy-kitchen's eager backend. */
#include "../bnb_tables.h"
#include "../levels.h"
#include "numeric.h"

static float load_f32(const uint8_t *src, size_t i) {
  return amn_f32_from_bits(amn_load_u32(src + 4 * i));
}

static float load_f16(const uint8_t *src, size_t i) {
  return amn_f16_to_f32(amn_load_u16(src + 2 * i));
}

static float load_bf16(const uint8_t *src, size_t i) {
  return amn_bf16_to_f32(amn_load_u16(src + 2 * i));
}

static float load(amn_source source, const uint8_t *src, size_t i) {
  if (source == AMN_SOURCE_BF16) return load_bf16(src, i);
  return source == AMN_SOURCE_F16 ? load_f16(src, i) : load_f32(src, i);
}

#define SOURCE(NAME, name, item_bytes, levels)                                              \
  void amax_##name##_scalar(const uint8_t *src, size_t n, size_t block, uint32_t *maxima) { \
    for (size_t i = 0; i < n; i++) {                                                        \
      const uint32_t magnitude = amn_f32_bits(load_##name(src, i)) & ~AMN_F32_SIGN;         \
      if (magnitude > maxima[i / block]) maxima[i / block] = magnitude;                     \
    }                                                                                       \
  }                                                                                         \
  void range_##name##_scalar(const uint8_t *src, size_t n, size_t block, float *low,        \
                             float *high) {                                                 \
    for (size_t i = 0; i < n; i++) {                                                        \
      const float value = load_##name(src, i);                                              \
      if (value < low[i / block]) low[i / block] = value;                                   \
      if (value > high[i / block]) high[i / block] = value;                                 \
    }                                                                                       \
  }
#include "../kernels.def"

/* Rounded to the dtype of what is encoded. */
static float to_source(amn_source source, float value) {
  const uint32_t bits = amn_f32_bits(value);
  if (source == AMN_SOURCE_BF16) return amn_bf16_to_f32(amn_f32_to_bf16(bits));
  return source == AMN_SOURCE_F16 ? amn_f16_to_f32(amn_f32_to_f16(bits)) : value;
}

static float scaled(const amn_quantize_run *run, size_t block, float value) {
  if (run->divisor != 0) return value / run->divisor;
  if (!run->is_divided) return to_source(run->rounded, value * run->forward[block]);
  const float quotient = to_source(run->rounded, value / run->scales[block]);
  return run->zeros == NULL ? quotient : to_source(run->rounded, quotient + run->zeros[block]);
}

/* To nearest even: from 2^23 on, float32 holds whole numbers only. */
static float to_whole(float magnitude) {
  return (magnitude + 0x1p23f) - 0x1p23f;
}

/* A normal code counts units of 2^(exponent - n_mantissa), and so do the subnormal ones with the
 * least exponent. What is beyond `largest` saturates; a NaN keeps its sign. */
AMN_FORCE_INLINE uint8_t f8_code(float value, int n_mantissa, int bias, float largest) {
  const uint32_t bits = amn_f32_bits(value), sign = bits >> 24 & 0x80;
  float magnitude = amn_f32_from_bits(bits & ~AMN_F32_SIGN);
  if (!(magnitude == magnitude)) return (uint8_t)(sign | 0x7f);
  if (magnitude > largest) magnitude = largest;
  int exponent = (int)(amn_f32_bits(magnitude) >> 23) - 127;
  if (exponent < 1 - bias) exponent = 1 - bias;
  const float per_unit = amn_f32_from_bits((uint32_t)(127 + n_mantissa - exponent) << 23);
  const uint32_t units = (uint32_t)to_whole(magnitude * per_unit);
  return (uint8_t)(sign | (((uint32_t)(exponent + bias - 1) << n_mantissa) + units));
}

/* What a code is, and the number that it stands for. */
typedef struct {
  uint8_t code;
  float number;
} coded;

typedef coded (*code_fn)(float scaled);

static coded f8_e4m3_code(float value) {
  const uint8_t code = f8_code(value, 3, 7, 448.0f);
  return (coded){code, amn_f8_e4m3_to_f32(code)};
}

static coded f8_e5m2_code(float value) {
  const uint8_t code = f8_code(value, 2, 15, 57344.0f);
  return (coded){code, amn_f8_e5m2_to_f32(code)};
}

AMN_FORCE_INLINE coded int_code(float value, float least, float most, int offset) {
  const float clamped = value < least ? least : value > most ? most : value;
  const float whole = clamped < 0 ? -to_whole(-clamped) : to_whole(clamped);
  return (coded){(uint8_t)((int)whole + offset), whole};
}

static coded int8_code(float value) {
  return int_code(value, -128, 127, 0);
}

static coded int4_code(float value) {
  return int_code(value, -8, 7, 8);
}

static coded int8_absmax_code(float value) {
  return int_code(value, -127, 127, 0);
}

/* bitsandbytes keeps numbers within -1 and 1 first, where all midpoints are. */
AMN_FORCE_INLINE coded codebook_code(const amn_codebook4 *book, float value, unsigned int place) {
  for (int i = 0; i < 15; i++) place += book->midpoints[i] < value;
  return (coded){book->codes[place], book->numbers[place]};
}

static coded nf4_code(float value) {
  return codebook_code(&amn_nf4, value, 0);
}

static coded fp4_code(float value) {
  return codebook_code(&amn_fp4, value, 0);
}

/* The second zero is the next entry behind the first. */
static coded fp4_zeros_code(float value) {
  return codebook_code(&amn_fp4, value, amn_f32_bits(value) == AMN_F32_SIGN);
}

static const float e2m1_numbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
static const float e2m1_midpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};

/* A tie goes to the number below, or to the even code, which is above every other midpoint. A NaN,
 * as 0 / 0 is where a scale is 0, becomes the largest number. */
AMN_FORCE_INLINE coded e2m1_coded(float value, int is_negative, int to_even) {
  const float magnitude = amn_f32_from_bits(amn_f32_bits(value) & ~AMN_F32_SIGN);
  unsigned int place = 0;
  for (unsigned int i = 0; i < 7; i++) {
    const int is_up = to_even && i % 2 == 1 && magnitude == e2m1_midpoints[i];
    place += is_up || !(magnitude <= e2m1_midpoints[i]);
  }
  const float number = e2m1_numbers[place];
  return (coded){(uint8_t)(place | (is_negative ? 8u : 0u)), is_negative ? -number : number};
}

static coded e2m1_code(float value) {
  return e2m1_coded(value, value < 0, 1);
}

static coded e2m1_signed_code(float value) {
  return e2m1_coded(value, amn_f32_bits(value) >> 31 != 0, 1);
}

static coded e2m1_down_code(float value) {
  return e2m1_coded(value, !(value > 0), 0);
}

/* MLX asks which number is nearest in float32, where all are as near to a huge one. Of two, the
 * first counts; both zeros are as near, and 0 comes before -0. */
static coded e2m1_first_code(float value) {
  const float magnitude = amn_f32_from_bits(amn_f32_bits(value) & ~AMN_F32_SIGN);
  unsigned int place = 0;
  float nearest = magnitude;
  for (unsigned int i = 1; i < 8; i++) {
    const float apart = magnitude - e2m1_numbers[i];
    const float distance = apart < 0 ? -apart : apart;
    if (!(distance < nearest)) continue;
    nearest = distance;
    place = i;
  }
  const int is_negative = place > 0 && value < 0;
  const float number = e2m1_numbers[place];
  return (coded){(uint8_t)(place | (is_negative ? 8u : 0u)), is_negative ? -number : number};
}

static coded e2m1_away_code(float value) {
  const uint32_t bits = amn_f32_bits(value);
  const float magnitude = amn_f32_from_bits(bits & ~AMN_F32_SIGN);
  unsigned int place = 0;
  for (unsigned int i = 0; i < 7; i++) place += magnitude >= e2m1_midpoints[i];
  const float number = e2m1_numbers[place];
  return (coded){(uint8_t)(place | bits >> 31 << 3), bits >> 31 ? -number : number};
}

/* The errors of some values, zeros after them, and the values themselves. */
typedef struct {
  float errors[AMN_LOSS_GROUP], values[AMN_LOSS_GROUP];
} loss_group;

static float sum_of_four(float a, float b, float c, float d) {
  return (a + b) + (c + d);
}

static void add_group(amn_loss_lanes *lanes, const loss_group *group) {
  for (int i = 0; i < AMN_LOSS_LANES; i++) {
    const int at[4] = {2 * i, 2 * i + 1, AMN_LOSS_GROUP / 2 + 2 * i,
                       AMN_LOSS_GROUP / 2 + 2 * i + 1};
    float error[4], value[4];
    for (int k = 0; k < 4; k++) {
      error[k] = group->errors[at[k]] < 0 ? -group->errors[at[k]] : group->errors[at[k]];
      value[k] = group->values[at[k]];
      if (error[k] > lanes->largest[i]) lanes->largest[i] = error[k];
    }
    lanes->run.absolute[i] += sum_of_four(error[0], error[1], error[2], error[3]);
    for (int k = 0; k < 4; k++) error[k] *= error[k], value[k] *= value[k];
    lanes->run.squared[i] += sum_of_four(error[0], error[1], error[2], error[3]);
    lanes->run.power[i] += sum_of_four(value[0], value[1], value[2], value[3]);
  }
}

static void end_run(amn_loss_lanes *lanes) {
  for (int i = 0; i < AMN_LOSS_LANES; i++) {
    lanes->absolute[i] += lanes->run.absolute[i];
    lanes->squared[i] += lanes->run.squared[i];
    lanes->power[i] += lanes->run.power[i];
  }
  lanes->run = (amn_loss_run){{0}, {0}, {0}};
  lanes->n = 0;
}

/* Inlined into each kernel below with its `code_of`. */
AMN_FORCE_INLINE void quantize(code_fn code_of, int is_127ths, const uint8_t *src, uint8_t *codes,
                               const amn_quantize_run *run, amn_loss_lanes *lanes) {
  for (size_t start = 0; start < run->n;) {
    const size_t block = start / run->block, block_end = (block + 1) * run->block;
    size_t end = start + AMN_LOSS_RUN < block_end ? start + AMN_LOSS_RUN : block_end;
    if (end > run->n) end = run->n;
    const float zero = run->zeros == NULL ? 0 : run->zeros[block];
    loss_group group = {{0}, {0}};
    for (size_t i = start; i < end; i++) {
      const size_t at = (i - start) % AMN_LOSS_GROUP;
      const float value = load(run->source, src, i);
      const float taken = is_127ths ? to_source(AMN_SOURCE_F16, value) : value;
      const coded to = code_of(scaled(run, block, taken));
      codes[i] = to.code;
      const float unit = is_127ths ? AMN_ONE_127TH : 1.0f;
      group.errors[at] = (to.number - zero) * run->scales[block] * unit - value;
      group.values[at] = value;
      if (lanes == NULL || (at + 1 < AMN_LOSS_GROUP && i + 1 < end)) continue;
      add_group(lanes, &group);
      group = (loss_group){{0}, {0}};
    }
    if (lanes != NULL && (lanes->n += end - start) >= AMN_LOSS_RUN) end_run(lanes);
    start = end;
  }
}

#define QUANTIZE(NAME, name, bits, largest, levels)                                              \
  void quantize_##name##_scalar(const uint8_t *src, uint8_t *codes, const amn_quantize_run *run, \
                                amn_loss_lanes *lanes) {                                         \
    const int is_127ths = AMN_QUANTIZE_##NAME == AMN_QUANTIZE_INT8_ABSMAX;                       \
    quantize(name##_code, is_127ths, src, codes, run, lanes);                                    \
  }
#include "../kernels.def"

/* ---- packed ---- */

AMN_FORCE_INLINE int pack_code(float value, float zero, int most) {
  const float least = 0 - zero, largest = (float)most - zero;
  if (!(value == value)) return 0;
  const float clamped = value < least ? least : value > largest ? largest : value;
  const float whole = clamped < 0 ? -to_whole(-clamped) : to_whole(clamped);
  return (int)(whole + zero);
}

/* What is packed are the numbers that codes stand for, in the weight's dtype: GPTQModel's
 * quantizer.py, then its `pack_block`. */
static int pack_twice(const amn_pack_run *run, float scale, float zero, float value, int most) {
  const float safe = scale == 0 ? 0x1p-126f : scale;
  const int code = pack_code(value / safe, zero, most);
  const float decoded = to_source(run->source, safe * ((float)code - zero));
  return pack_code((decoded + zero * scale) / scale, 0, most);
}

AMN_FORCE_INLINE int pack_one(const amn_pack_run *run, size_t i, float value, int most) {
  const size_t block = i / run->block;
  const float scale = run->scales[block];
  if (run->is_twice) return pack_twice(run, scale, run->zeros[block], value, most);
  const amn_source kept = run->is_half ? AMN_SOURCE_F16 : AMN_SOURCE_F32;
  const float quotient = (to_source(kept, value) - run->biases[block]) / scale;
  return pack_code(to_source(kept, quotient), run->zeros[block], most);
}

AMN_FORCE_INLINE void pack(int bits, const uint8_t *src, uint8_t *dst, const amn_pack_run *run,
                           amn_loss_lanes *lanes) {
  loss_group group;
  memset(dst, 0, run->n / 8 * (size_t)bits);
  for (size_t i = 0; i < run->n; i++) {
    const size_t block = i / run->block, bit = i * (size_t)bits;
    const float value = load(run->source, src, i);
    const int code = pack_one(run, i, value, (1 << bits) - 1);
    const int shifted = code << bit % 8;
    dst[bit / 8] |= (uint8_t)shifted;
    if (shifted > 0xff) dst[bit / 8 + 1] |= (uint8_t)(shifted >> 8);
    if (lanes == NULL) continue;
    const float number = (float)code - run->zeros[block];
    const float decoded = number * run->stored_scales[block] + run->stored_biases[block];
    group.errors[i % AMN_LOSS_GROUP] = decoded - value;
    group.values[i % AMN_LOSS_GROUP] = value;
    if ((i + 1) % AMN_LOSS_GROUP == 0) add_group(lanes, &group);
    if (++lanes->n == AMN_LOSS_RUN) end_run(lanes);
  }
}

#define PACK(NAME, name, bits, levels)                                                 \
  void pack_##name##_scalar(const uint8_t *src, uint8_t *dst, const amn_pack_run *run, \
                            amn_loss_lanes *lanes) {                                   \
    pack(bits, src, dst, run, lanes);                                                  \
  }
#include "../kernels.def"
