/* The K types, encoded: searches for the scale, and for the min, of each sub-block; these as codes
 * of a few bits times a half float; then each element's code for what that half float makes of
 * them.
 *
 * Canonical: quantize_q2_K to quantize_q6_K of ggml-quants.c, without FMA. With the importance of
 * columns the searches differ, and so does what weighs in them. An element keeps the code that its
 * search found where the scale of its sub-block has become 0. */
#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

typedef void encode_block(const float *x, const float *importance, uint8_t *dst);

static void encode_each(encode_block *encode, size_t bytes, const float *src, uint8_t *dst,
                        size_t rows, size_t cols, const float *weights) {
  for (size_t row = 0; row < rows; row++)
    for (size_t at = 0; at < cols; at += 256, src += 256, dst += bytes)
      encode(src, weights != NULL ? weights + at : NULL, dst);
}

static float store_half(uint8_t *p, float value) {
  const uint16_t half = amn_f32_to_f16(amn_f32_bits(value));
  amn_store_u16(p, half);
  return amn_f16_to_f32(half);
}

static float sum_of(int n, const float *x) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

static float sum_of_squares(int n, const float *x) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

static float largest_of(int n, const float *x) {
  float most = 0.0f;
  for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

static void by_importance(int n, const float *importance, float square, const float *x,
                          float *weights) {
  for (int i = 0; i < n; i++) weights[i] = importance[i] * sqrtf(square + x[i] * x[i]);
}

/* The codes low to high of (x + min) / scale, less low. */
static void settle(int n, const float *x, float scale, float min, int low, int high,
                   uint8_t *codes) {
  if (scale == 0.0f) return;
  for (int i = 0; i < n; i++)
    codes[i] = (uint8_t)(clamp_int(nearest_int((x[i] + min) / scale), low, high) - low);
}

/* The lowest two bits of 256 codes, four to a byte: those of elements 32 apart. */
static void pack_pairs(const uint8_t *codes, uint8_t *dst) {
  memset(dst, 0, 64);
  for (int i = 0; i < 256; i++) dst[i / 128 * 32 + i % 32] |= (codes[i] & 3) << (i / 32 % 4 * 2);
}

/* One bit of each, eight to a byte: those of elements 32 apart. */
static void pack_bits(const uint8_t *codes, int bit, uint8_t *dst) {
  memset(dst, 0, 32);
  for (int i = 0; i < 256; i++) dst[i % 32] |= (codes[i] >> bit & 1) << (i / 32);
}

/* The lowest four bits, two to a byte: those of elements so far apart. */
static void pack_nibbles(const uint8_t *codes, int apart, uint8_t *dst) {
  memset(dst, 0, 128);
  for (int i = 0; i < 256; i++)
    dst[i / (2 * apart) * apart + i % apart] |= (codes[i] & 15) << (i / apart % 2 * 4);
}

/* ---- Q2_K: 16 sub-blocks of scale and min, 4 bits each ---- */

static const affine_tries TRIES_BY_IMPORTANCE = {-0.9f, 0.05f, 37, 0};

static void q2_k_search(const float *x, uint8_t *codes, block_q2_k *block) {
  static const affine_tries tries = {-0.5f, 0.1f, 16, 1};
  float weights[16], scales[16], mins[16];
  for (int i = 0; i < 16; i++, x += 16) {
    for (int k = 0; k < 16; k++) weights[k] = fabsf(x[k]);
    scales[i] = search_affine(16, 3, x, weights, &tries, codes + 16 * i, &mins[i]);
  }
  const float scale = largest_of(16, scales), min = largest_of(16, mins);
  memset(block->scales, 0, 16);
  for (int i = 0; i < 16 && scale > 0.0f; i++)
    block->scales[i] = (uint8_t)nearest_int(15.0f / scale * scales[i]);
  for (int i = 0; i < 16 && min > 0.0f; i++)
    block->scales[i] |= (uint8_t)(nearest_int(15.0f / min * mins[i]) * 16);
  store_half(block->d, scale / 15.0f);
  store_half(block->dmin, min / 15.0f);
}

static void q2_k_search_by_importance(const float *x, const float *importance, uint8_t *codes,
                                      block_q2_k *block) {
  float weights[16], scales[16], mins[16], sums[16];
  uint8_t scale_codes[16], min_codes[16];
  const float square = sum_of_squares(256, x) / 256.0f;
  for (int i = 0; i < 16; i++, x += 16, importance += 16) {
    by_importance(16, importance, square, x, weights);
    sums[i] = sum_of(16, weights);
    scales[i] = search_affine(16, 3, x, weights, &TRIES_BY_IMPORTANCE, codes + 16 * i, &mins[i]);
  }
  store_half(block->d, search_positive(16, 15, scales, sums, scale_codes));
  store_half(block->dmin, search_positive(16, 15, mins, sums, min_codes));
  for (int i = 0; i < 16; i++) block->scales[i] = (uint8_t)(scale_codes[i] | min_codes[i] << 4);
}

static void q2_k_encode(const float *x, const float *importance, uint8_t *dst) {
  block_q2_k *block = (block_q2_k *)dst;
  uint8_t codes[256];
  if (importance == NULL)
    q2_k_search(x, codes, block);
  else
    q2_k_search_by_importance(x, importance, codes, block);
  const float d = amn_f16_to_f32(amn_load_u16(block->d));
  const float dmin = amn_f16_to_f32(amn_load_u16(block->dmin));
  for (int i = 0; i < 16; i++) {
    const float scale = d * (float)(block->scales[i] & 15);
    settle(16, x + 16 * i, scale, dmin * (float)(block->scales[i] >> 4), 0, 3, codes + 16 * i);
  }
  pack_pairs(codes, block->qs);
}

void encode_q2_k_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  encode_each(q2_k_encode, sizeof(block_q2_k), src, dst, rows, cols, weights);
}

/* ---- Q3_K: 16 sub-blocks of a scale of 6 bits ---- */

/* In the order that dequant_q3_k_scalar reads. */
static void q3_k_pack_scales(const uint8_t *codes, uint8_t *dst) {
  memset(dst, 0, 12);
  for (int i = 0; i < 16; i++) {
    dst[i % 8] |= (uint8_t)((codes[i] & 15) << (i / 8 * 4));
    dst[8 + i % 4] |= (uint8_t)(codes[i] >> 4 << (i / 4 * 2));
  }
}

/* Codes of scales, and the factor of all. */
static float q3_k_search(const float *x, uint8_t *codes, uint8_t *scale_codes) {
  float scales[16];
  for (int i = 0; i < 16; i++) scales[i] = search_descending(16, 4, x + 16 * i, codes + 16 * i);
  const float extreme = extreme_of(16, scales);
  memset(scale_codes, 0, 16);
  if (extreme == 0.0f) return 0.0f;
  const float inverse = -32.0f / extreme;
  for (int i = 0; i < 16; i++) {
    const int8_t level = (int8_t)nearest_int(inverse * scales[i]);
    scale_codes[i] = (uint8_t)(clamp_int(level, -32, 31) + 32);
  }
  return 1.0f / inverse;
}

static float q3_k_search_by_importance(const float *x, const float *importance, uint8_t *codes,
                                       uint8_t *scale_codes) {
  float weights[16], scales[16], sums[16];
  const float square = 2.0f * sum_of_squares(256, x) / 256.0f;
  for (int i = 0; i < 16; i++, x += 16, importance += 16) {
    by_importance(16, importance, square, x, weights);
    sums[i] = sum_of(16, weights);
    scales[i] = search_symmetric(16, 4, x, weights, codes + 16 * i);
  }
  return search_symmetric(16, 32, scales, sums, scale_codes);
}

static void q3_k_encode(const float *x, const float *importance, uint8_t *dst) {
  block_q3_k *block = (block_q3_k *)dst;
  uint8_t codes[256], scale_codes[16];
  const float found = importance == NULL
                          ? q3_k_search(x, codes, scale_codes)
                          : q3_k_search_by_importance(x, importance, codes, scale_codes);
  q3_k_pack_scales(scale_codes, block->scales);
  const float d = store_half(block->d, found);
  for (int i = 0; i < 16; i++)
    settle(16, x + 16 * i, d * (float)(scale_codes[i] - 32), 0.0f, -4, 3, codes + 16 * i);
  pack_bits(codes, 2, block->hmask);
  pack_pairs(codes, block->qs);
}

void encode_q3_k_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  encode_each(q3_k_encode, sizeof(block_q3_k), src, dst, rows, cols, weights);
}

/* ---- Q4_K and Q5_K: 8 sub-blocks of scale and min, 6 bits each ---- */

typedef struct {
  float d, dmin;
  uint8_t scales[8], mins[8];
} k_found;

/* Codes up to 63 of values of which the largest is `most`. */
static void codes_of_6_bits(const float *values, float most, uint8_t *codes) {
  const float inverse = most > 0.0f ? 63.0f / most : 0.0f;
  for (int i = 0; i < 8; i++) {
    const uint8_t code = (uint8_t)nearest_int(inverse * values[i]);
    codes[i] = code < 63 ? code : 63;
  }
}

static void k_search(const float *x, int largest, const affine_tries *tries, uint8_t *codes,
                     k_found *found) {
  float weights[32], scales[8], mins[8];
  for (int i = 0; i < 8; i++, x += 32) {
    const float mean = sqrtf(sum_of_squares(32, x) / 32.0f);
    for (int k = 0; k < 32; k++) weights[k] = mean + fabsf(x[k]);
    scales[i] = search_affine(32, largest, x, weights, tries, codes + 32 * i, &mins[i]);
  }
  const float scale = largest_of(8, scales), min = largest_of(8, mins);
  codes_of_6_bits(scales, scale, found->scales);
  codes_of_6_bits(mins, min, found->mins);
  found->d = scale / 63.0f;
  found->dmin = min / 63.0f;
}

static void k_search_by_importance(const float *x, const float *importance, int largest,
                                   uint8_t *codes, k_found *found) {
  float weights[32], scales[8], mins[8], sums[8];
  const float square = 2.0f * sum_of_squares(256, x) / 256.0f;
  for (int i = 0; i < 8; i++, x += 32, importance += 32) {
    by_importance(32, importance, square, x, weights);
    sums[i] = sum_of(32, weights);
    scales[i] =
        search_affine(32, largest, x, weights, &TRIES_BY_IMPORTANCE, codes + 32 * i, &mins[i]);
  }
  found->d = search_positive(8, 63, scales, sums, found->scales);
  found->dmin = search_positive(8, 63, mins, sums, found->mins);
}

/* In the order that k_scale and k_min of kquants.c read. Codes beyond 6 bits, which Q4_K does not
 * forbid, spoil what else is in their byte, as in ggml. */
static void k_pack_scales(const k_found *found, uint8_t *dst) {
  for (int i = 0; i < 4; i++) {
    const uint8_t scale = found->scales[i + 4], min = found->mins[i + 4];
    dst[i] = (uint8_t)(found->scales[i] | scale >> 4 << 6);
    dst[i + 4] = (uint8_t)(found->mins[i] | min >> 4 << 6);
    dst[i + 8] = (uint8_t)((scale & 15) | min << 4);
  }
}

/* The codes of all elements, for scales as they are packed. */
static void k_settle(const float *x, const uint8_t *packed, float d, float dmin, int largest,
                     uint8_t *codes) {
  for (int i = 0; i < 8; i++) {
    const uint8_t *p = packed + i;
    const int scale = i < 4 ? p[0] & 63 : (p[4] & 15) | p[-4] >> 6 << 4;
    const int min = i < 4 ? p[4] & 63 : p[4] >> 4 | p[0] >> 6 << 4;
    settle(32, x + 32 * i, d * (float)scale, dmin * (float)min, 0, largest, codes + 32 * i);
  }
}

static void q4_k_encode(const float *x, const float *importance, uint8_t *dst) {
  static const affine_tries tries = {-1.0f, 0.1f, 21, 0};
  block_q4_k *block = (block_q4_k *)dst;
  uint8_t codes[256];
  k_found found;
  if (importance == NULL)
    k_search(x, 15, &tries, codes, &found);
  else
    k_search_by_importance(x, importance, 15, codes, &found);
  k_pack_scales(&found, block->scales);
  const float d = store_half(block->d, found.d), dmin = store_half(block->dmin, found.dmin);
  k_settle(x, block->scales, d, dmin, 15, codes);
  pack_nibbles(codes, 32, block->qs);
}

void encode_q4_k_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  encode_each(q4_k_encode, sizeof(block_q4_k), src, dst, rows, cols, weights);
}

static void q5_k_encode(const float *x, const float *importance, uint8_t *dst) {
  static const affine_tries tries = {-0.5f, 0.1f, 16, 0};
  block_q5_k *block = (block_q5_k *)dst;
  uint8_t codes[256];
  k_found found;
  if (importance == NULL)
    k_search(x, 31, &tries, codes, &found);
  else
    k_search_by_importance(x, importance, 31, codes, &found);
  for (int i = 0; i < 8; i++) {
    found.scales[i] = found.scales[i] < 63 ? found.scales[i] : 63;
    found.mins[i] = found.mins[i] < 63 ? found.mins[i] : 63;
  }
  k_pack_scales(&found, block->scales);
  const float d = store_half(block->d, found.d), dmin = store_half(block->dmin, found.dmin);
  k_settle(x, block->scales, d, dmin, 31, codes);
  pack_bits(codes, 4, block->qh);
  pack_nibbles(codes, 32, block->qs);
}

void encode_q5_k_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  encode_each(q5_k_encode, sizeof(block_q5_k), src, dst, rows, cols, weights);
}

/* ---- Q6_K: 16 sub-blocks of a scale of 8 bits ---- */

static void q6_k_encode(const float *x, const float *importance, uint8_t *dst) {
  block_q6_k *block = (block_q6_k *)dst;
  float scales[16];
  uint8_t codes[256];
  for (int i = 0; i < 16; i++) {
    const float *at = x + 16 * i;
    float squares[16];
    for (int k = 0; k < 16; k++) squares[k] = at[k] * at[k];
    const float *weights = importance != NULL ? importance + 16 * i : squares;
    scales[i] = search_symmetric(16, 32, at, weights, codes + 16 * i);
  }
  const float extreme = extreme_of(16, scales);
  if (fabsf(extreme) < SEARCH_EPSILON) {
    memset(dst, 0, sizeof *block);
    return;
  }
  const float inverse = -128.0f / extreme;
  const float d = store_half(block->d, 1.0f / inverse);
  for (int i = 0; i < 16; i++) {
    const int code = nearest_int(inverse * scales[i]);
    const int8_t scale = (int8_t)(code < 127 ? code : 127);
    block->scales[i] = (uint8_t)scale;
    settle(16, x + 16 * i, d * (float)scale, 0.0f, -32, 31, codes + 16 * i);
  }
  pack_nibbles(codes, 64, block->ql);
  for (int i = 0; i < 256; i++) codes[i] >>= 4;
  pack_pairs(codes, block->qh);
}

void encode_q6_k_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  encode_each(q6_k_encode, sizeof(block_q6_k), src, dst, rows, cols, weights);
}
