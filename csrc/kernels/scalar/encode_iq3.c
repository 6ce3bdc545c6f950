/* The way to IQ3_XXS and IQ3_S: for 32 values a scale, and for each 4 the entry of a grid.
 *
 * Canonical: quantize_iq3_xxs and quantize_iq3_s of ggml-quants.c, in float32 and in its order of
 * operations. Levels are 2 * code + 1; a point is the four codes of a group (iq_lists.h).
 *
 * Where distances overflow, or a weight is negative, ggml finds no entry or no scale, and ends the
 * process: here the block's d is a NaN then, which the driver refuses. */
#include <float.h>
#include <math.h>

#include "../blocks.h"
#include "../iq_lists.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

#define IQ3_GROUPS 8 /* of four, in 32 values */

/* How the two types differ. */
typedef struct {
  amn_iq_lists_id lists;
  int n_tries;       /* to either side of the scale that gives the largest value the last level */
  float smallest;    /* maximum of values that are not all taken for 0 */
  int pairs_signs;   /* whether the negative ones of eight values must be even in number */
  int keeps_on_grid; /* whether a group that was on the grid stays what it is at the end */
} iq3_type;

typedef struct {
  float x[32], weights[32];
  float roots[32]; /* of the weights: those of a distance */
  uint8_t signs[4];
  int is_lost; /* whether ggml would have ended */
} iq3_values;

/* What a search has found. */
typedef struct {
  float scale;
  uint32_t points[IQ3_GROUPS];
  int is_on_grid[IQ3_GROUPS]; /* before the nearest entry was looked for */
} iq3_found;

static float iq3_level(uint32_t point, int i) {
  return (float)(2 * (point >> 3 * i & 7) + 1);
}

static uint32_t iq3_point(const float *x, float inverse) {
  uint32_t point = 0;
  for (int i = 0; i < 4; i++) {
    const int code = clamp_int(nearest_int(0.5f * (inverse * x[i] - 1.0f)), 0, 7);
    point |= (uint32_t)code << 3 * i;
  }
  return point;
}

static float iq3_distance(uint32_t point, const float *x, const float *roots, float scale) {
  float distance = 0.0f;
  for (int i = 0; i < 4; i++) {
    const float off = scale * iq3_level(point, i) - x[i];
    distance += roots[i] * off * off;
  }
  return distance;
}

/* The point of a group of values, or the nearest of its neighbours if it is off the grid. */
static uint32_t iq3_entry(const amn_iq_lists *lists, iq3_values *values, int group, float inverse,
                          float scale, int *is_on_grid) {
  const float *x = values->x + 4 * group, *roots = values->roots + 4 * group;
  uint32_t nearest = iq3_point(x, inverse);
  const uint32_t place = lists->places[nearest], n = amn_iq_n_neighbours(place);
  const uint16_t *neighbours = lists->neighbours + amn_iq_start(place);
  float least = FLT_MAX;
  *is_on_grid = n == 0;
  for (uint32_t j = 0; j < n; j++) {
    const float distance = iq3_distance(neighbours[j], x, roots, scale);
    if (distance < least) {
      least = distance;
      nearest = neighbours[j];
    }
  }
  values->is_lost |= n > 0 && least == FLT_MAX;
  return nearest;
}

static void iq3_sums(const iq3_values *values, const uint32_t *points, float *sum_xl,
                     float *sum_l2) {
  *sum_xl = *sum_l2 = 0.0f;
  for (int i = 0; i < 32; i++) {
    const float level = iq3_level(points[i / 4], i % 4);
    *sum_xl += values->weights[i] * values->x[i] * level;
    *sum_l2 += values->weights[i] * level * level;
  }
}

/* Many scales, each replaced by what fits its points best. */
static void iq3_search(const iq3_type *type, const amn_iq_lists *lists, iq3_values *values,
                       float max, iq3_found *best) {
  float best_score = 0.0f;
  for (int k = 0; k < IQ3_GROUPS; k++) {
    best->points[k] = 0;
    best->is_on_grid[k] = type->keeps_on_grid;
  }
  best->scale = max / 15.0f;
  for (int i = -type->n_tries; i <= type->n_tries; i++) {
    const float inverse = (15.0f + (float)i * 0.2f) / max, scale = 1.0f / inverse;
    iq3_found found;
    for (int k = 0; k < IQ3_GROUPS; k++)
      found.points[k] = iq3_entry(lists, values, k, inverse, scale, &found.is_on_grid[k]);
    float sum_xl, sum_l2;
    iq3_sums(values, found.points, &sum_xl, &sum_l2);
    if (sum_l2 > 0.0f && sum_xl * sum_xl > best_score * sum_l2) {
      found.scale = sum_xl / sum_l2;
      best_score = found.scale * sum_xl;
      *best = found;
    }
  }
}

/* Groups that were off the grid are searched once more, with the scale that was found. */
static void iq3_refine(const iq3_type *type, const amn_iq_lists *lists, iq3_values *values,
                       iq3_found *best) {
  int n_on_grid = 0, ignored;
  for (int k = 0; k < IQ3_GROUPS; k++) n_on_grid += best->is_on_grid[k];
  if (n_on_grid == IQ3_GROUPS || !(best->scale > 0.0f)) return;
  for (int k = 0; k < IQ3_GROUPS; k++) {
    if (type->keeps_on_grid && best->is_on_grid[k]) continue;
    best->points[k] = iq3_entry(lists, values, k, 1.0f / best->scale, best->scale, &ignored);
  }
  float sum_xl, sum_l2;
  iq3_sums(values, best->points, &sum_xl, &sum_l2);
  if (sum_l2 > 0.0f) best->scale = sum_xl / sum_l2;
}

/* Turns the sign that costs least, so that the number of negative ones is even. */
static void iq3_pair_signs(float *x, const float *values, const float *weights, uint8_t *signs) {
  int n_negative = 0, least = 0;
  for (int i = 0; i < 8; i++) n_negative += *signs >> i & 1;
  if (n_negative % 2 == 0) return;
  for (int i = 1; i < 8; i++)
    if (weights[i] * values[i] * values[i] < weights[least] * values[least] * values[least])
      least = i;
  x[least] = -x[least];
  *signs ^= (uint8_t)(1 << least);
}

static void iq3_prepare(const iq3_type *type, const float *src, const float *importance,
                        float sigma2, iq3_values *values) {
  for (int i = 0; i < 32; i++) {
    const float square = src[i] * src[i];
    values->weights[i] = importance ? importance[i] * sqrtf(sigma2 + square) : square;
    values->roots[i] = sqrtf(values->weights[i]);
    values->x[i] = src[i] >= 0.0f ? src[i] : -src[i];
  }
  values->is_lost = 0;
  for (int k = 0; k < 4; k++) {
    values->signs[k] = 0;
    for (int i = 0; i < 8; i++)
      if (!(src[8 * k + i] >= 0.0f)) values->signs[k] |= (uint8_t)(1 << i);
    if (type->pairs_signs)
      iq3_pair_signs(values->x + 8 * k, src + 8 * k, values->weights + 8 * k, &values->signs[k]);
  }
}

/* Scale, a NaN where ggml would end, and points of 32 values; 0 if they are taken for zeros. */
static int iq3_find(const iq3_type *type, const float *src, const float *importance, float sigma2,
                    iq3_values *values, iq3_found *found) {
  const amn_iq_lists *lists = amn_iq_lists_of(type->lists);
  iq3_prepare(type, src, importance, sigma2, values);
  float max = values->x[0];
  for (int i = 1; i < 32; i++) max = values->x[i] > max ? values->x[i] : max;
  found->scale = 0.0f;
  if (max < type->smallest) return 0;
  iq3_search(type, lists, values, max, found);
  iq3_refine(type, lists, values, found);
  if (found->scale < 0.0f) {
    found->scale = -found->scale;
    for (int k = 0; k < 4; k++) values->signs[k] = (uint8_t)~values->signs[k];
  }
  if (values->is_lost || !(found->scale >= 0.0f)) found->scale = amn_f32_from_bits(AMN_F32_NAN);
  return 1;
}

static uint32_t iq3_index(const amn_iq_lists *lists, uint32_t point) {
  return amn_iq_index(lists->places[point]);
}

static float iq3_sigma2(const float *src) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += src[i] * src[i];
  return 2.0f * sum / 256.0f;
}

/* The largest of eight scales, or a NaN if there is one. */
static float iq3_largest(const float *scales) {
  float largest = 0.0f;
  for (int b = 0; b < 8; b++) {
    if (isnan(scales[b])) return scales[b];
    largest = scales[b] > largest ? scales[b] : largest;
  }
  return largest;
}

/* Codes of scales: levels 1, 3 to 31 times d. */
static uint32_t iq3_scale_code(float scale, float inverse) {
  return (uint32_t)clamp_int(nearest_int(0.5f * (inverse * scale - 1.0f)), 0, 15);
}

static void iq3_xxs_block(const float *src, block_iq3_xxs *block, const float *importance) {
  static const iq3_type type = {AMN_IQ_LISTS_IQ3_XXS, 15, 1e-8f, 1, 1};
  const amn_iq_lists *lists = amn_iq_lists_of(type.lists);
  const float sigma2 = iq3_sigma2(src);
  float scales[8];
  uint32_t words[8] = {0};
  memset(block, 0, sizeof *block);
  for (int b = 0; b < 8; b++) {
    const float *weights = importance ? importance + 32 * b : NULL;
    iq3_values values;
    iq3_found found;
    if (iq3_find(&type, src + 32 * b, weights, sigma2, &values, &found)) {
      for (int k = 0; k < 8; k++) block->qs[8 * b + k] = (uint8_t)iq3_index(lists, found.points[k]);
      for (int k = 0; k < 4; k++) words[b] |= (uint32_t)(values.signs[k] & 127) << 7 * k;
    }
    scales[b] = found.scale;
  }
  const float largest = iq3_largest(scales);
  if (largest == 0.0f) {
    memset(block, 0, sizeof *block);
    return;
  }
  const float d = largest / 31.0f;
  amn_store_u16(block->d, amn_f32_to_f16(amn_f32_bits(d * 1.0125f)));
  for (int b = 0; b < 8; b++)
    amn_store_u32(block->qs + 64 + 4 * b, words[b] | iq3_scale_code(scales[b], 1.0f / d) << 28);
}

/* 32 values that are all zero take no place among indices and signs: what comes after them moves
 * up. That is ggml's, and what is decoded then is not what went in. */
static void iq3_s_block(const float *src, block_iq3_s *block, const float *importance) {
  static const iq3_type type = {AMN_IQ_LISTS_IQ3_S, 9, FLT_TRUE_MIN, 0, 0};
  const amn_iq_lists *lists = amn_iq_lists_of(type.lists);
  const float sigma2 = iq3_sigma2(src);
  float scales[8];
  uint8_t *qs = block->qs, *signs = block->signs;
  memset(block, 0, sizeof *block);
  for (int b = 0; b < 8; b++) {
    const float *weights = importance ? importance + 32 * b : NULL;
    iq3_values values;
    iq3_found found;
    if (iq3_find(&type, src + 32 * b, weights, sigma2, &values, &found)) {
      for (int k = 0; k < 8; k++) {
        const uint32_t index = iq3_index(lists, found.points[k]);
        *qs++ = (uint8_t)index;
        block->qh[b] |= (uint8_t)(index >> 8 << k);
      }
      for (int k = 0; k < 4; k++) *signs++ = values.signs[k];
    }
    scales[b] = found.scale;
  }
  const float largest = iq3_largest(scales);
  if (largest == 0.0f) return;
  const float d = largest / 31.0f;
  amn_store_u16(block->d, amn_f32_to_f16(amn_f32_bits(d * 1.033f)));
  for (int b = 0; b < 8; b++)
    block->scales[b / 2] |= (uint8_t)(iq3_scale_code(scales[b], 1.0f / d) << b % 2 * 4);
}

void encode_iq3_xxs_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                           const float *importance) {
  block_iq3_xxs *block = (block_iq3_xxs *)dst;
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, block++)
      iq3_xxs_block(src, block, importance ? importance + i : NULL);
}

void encode_iq3_s_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *importance) {
  block_iq3_s *block = (block_iq3_s *)dst;
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, block++)
      iq3_s_block(src, block, importance ? importance + i : NULL);
}
