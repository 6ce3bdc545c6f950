/* Numbers to IQ4_NL and IQ4_XS: 16 scales for every 32 numbers, each replaced by what fits its
 * levels best; the one that loses least is kept.
 *
 * Canonical: quantize_row_iq4_nl_impl of ggml-quants.c. All sums are float32, in the order of the
 * elements, each product from left to right. */
#include "../blocks.h"
#include "../iq_grids.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

#define TRIES 7 /* on each side */

/* Of the nearest level: of two, the upper one; the last one for a NaN. */
static int level_index(float x) {
  int low = 0, high = 15;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (x < (float)amn_iq4_levels[middle])
      high = middle;
    else
      low = middle;
  }
  return x - (float)amn_iq4_levels[low] < (float)amn_iq4_levels[high] - x ? low : high;
}

/* How much each of 32 numbers counts; `spread` is twice the mean square around them. */
static void weigh(const float *x, const float *importance, float spread, float *weights) {
  for (int i = 0; i < 32; i++) {
    const float square = x[i] * x[i];
    weights[i] = importance == NULL ? square : importance[i] * sqrtf(spread + square);
  }
}

static void level_sums(const float *x, const float *weights, float inverse, float *sum_xq,
                       float *sum_q2) {
  *sum_xq = *sum_q2 = 0.0f;
  for (int i = 0; i < 32; i++) {
    const float level = (float)amn_iq4_levels[level_index(inverse * x[i])];
    *sum_xq += weights[i] * level * x[i];
    *sum_q2 += weights[i] * level * level;
  }
}

static float search_levels(const float *x, const float *weights) {
  const float extreme = extreme_of(32, x), lowest = (float)amn_iq4_levels[0];
  if (fabsf(extreme) < SEARCH_EPSILON) return 0.0f;
  float sum_xq, sum_q2;
  level_sums(x, weights, 1.0f / (-extreme / lowest), &sum_xq, &sum_q2);
  float scale = sum_q2 > 0.0f ? sum_xq / sum_q2 : 0.0f;
  float best = scale * sum_xq;
  for (int i = -TRIES; i <= TRIES; i++) {
    level_sums(x, weights, ((float)i + lowest) / extreme, &sum_xq, &sum_q2);
    if (sum_q2 > 0.0f && sum_xq * sum_xq > best * sum_q2) {
      scale = sum_xq / sum_q2;
      best = scale * sum_xq;
    }
  }
  return scale;
}

static float twice_mean_square(const float *x, int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sum * (2.0f / (float)n);
}

static float scale_of_32(const float *x, const float *importance, float spread) {
  float weights[32];
  weigh(x, importance, spread, weights);
  return search_levels(x, weights);
}

/* The codes that a scale gives 32 numbers: those of the first 16 in the low nibbles. */
static void store_codes(const float *x, float scale, uint8_t *dst) {
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  for (int i = 0; i < 16; i++)
    dst[i] = (uint8_t)(level_index(inverse * x[i]) | level_index(inverse * x[16 + i]) << 4);
}

static void store_half(uint8_t *dst, float value) {
  amn_store_u16(dst, amn_f32_to_f16(amn_f32_bits(value)));
}

void encode_iq4_nl_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                          const float *weights) {
  block_iq4_nl *block = (block_iq4_nl *)dst;
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < cols; c += 32, src += 32, block++) {
      const float *importance = weights == NULL ? NULL : weights + c;
      const float scale = scale_of_32(src, importance, twice_mean_square(src, 32));
      store_half(block->d, scale);
      store_codes(src, scale, block->qs);
    }
}

/* The scales of 32 are 6 bits, signed. The one with the largest magnitude becomes -32. */
static void encode_block(const float *src, const float *importance, block_iq4_xs *block) {
  const float spread = twice_mean_square(src, 256);
  float scales[8];
  for (int i = 0; i < 8; i++)
    scales[i] = scale_of_32(src + 32 * i, importance == NULL ? NULL : importance + 32 * i, spread);
  const float d = -extreme_of(8, scales) / 32.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  uint32_t high = 0;
  store_half(block->d, d);
  for (int i = 0; i < 8; i++) {
    const int scale = clamp_int(nearest_int(inverse * scales[i]), -32, 31);
    const uint32_t stored = (uint32_t)(scale + 32), low = (stored & 15) << i % 2 * 4;
    block->scales_l[i / 2] = (uint8_t)(i % 2 == 0 ? low : block->scales_l[i / 2] | low);
    high |= stored >> 4 << 2 * i;
    store_codes(src + 32 * i, d * (float)scale, block->qs + 16 * i);
  }
  amn_store_u16(block->scales_h, (uint16_t)high);
}

void encode_iq4_xs_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                          const float *weights) {
  block_iq4_xs *block = (block_iq4_xs *)dst;
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < cols; c += 256, src += 256, block++)
      encode_block(src, weights == NULL ? NULL : weights + c, block);
}
