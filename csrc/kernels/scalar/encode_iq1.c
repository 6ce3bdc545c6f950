/* The way to IQ1_S and IQ1_M: levels -1, 0 and 1, all plus or all less 1/8, times a scale; each 8
 * of them are an entry of a grid.
 *
 * Canonical: quantize_iq1_s and quantize_iq1_m of ggml-quants.c, in float32 and in its order of
 * operations. A point is the eight codes of a group (iq_lists.h), those of -1, 0 and 1 being 0, 1
 * and 2.
 *
 * Where all distances overflow, ggml looks through the whole grid, by mistake with values that lie
 * elsewhere, even past its input, and mostly ends the process: here the block's d is a NaN then,
 * which the driver refuses, as it is where ggml ends for want of a scale. */
#include <float.h>
#include <math.h>

#include "../blocks.h"
#include "../iq_lists.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

#define IQ1_ELEMENTS_MAX 32 /* that share a scale */

/* What the three codes stand for, plus and less 1/8. */
static const float iq1_levels[2][3] = {{-0.875f, 0.125f, 1.125f}, {-1.125f, -0.125f, 0.875f}};

/* Values in ascending order, equal ones as they stand, are cut into codes 0, 1 and 2 at two places.
 * `which` says which levels they stand for: 0 and 1 as iq1_levels has them for IQ1_S, 2 * that of
 * the first eight + that of the second eight for IQ1_M. */
typedef struct {
  float scale;
  int first, second, which;
} iq1_split;

static void iq1_sort(int n, const float *x, int *order) {
  for (int i = 0; i < n; i++) {
    int at = i;
    for (; at > 0 && x[i] < x[order[at - 1]]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
}

static void iq1_weigh(int n, const float *x, const float *importance, float sigma2,
                      float *weights) {
  for (int i = 0; i < n; i++)
    weights[i] = importance ? importance[i] * sqrtf(sigma2 + x[i] * x[i]) : x[i] * x[i];
}

static float iq1_sigma2(const float *src) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += src[i] * src[i];
  return 2.0f * sum / 256.0f;
}

static float iq1_largest(int n, const float *x) {
  float largest = fabsf(x[0]);
  for (int i = 1; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
  return largest;
}

/* Takes a split if it is better than the best so far. */
static void iq1_try(iq1_split split, float sum_xl, float sum_l2, iq1_split *best, float *score) {
  if (!(sum_l2 > 0.0f && sum_xl * sum_xl > *score * sum_l2)) return;
  split.scale = sum_xl / sum_l2;
  *score = split.scale * sum_xl;
  *best = split;
}

/* The codes of a split as points of groups of eight; a negative scale turns them around. */
static void iq1_take(int n, const int *order, iq1_split *split, uint32_t *points) {
  const int is_negative = split->scale < 0.0f;
  for (int k = 0; k < n / 8; k++) points[k] = 0;
  for (int j = 0; j < n; j++) {
    const int i = order[j], code = (j >= split->first) + (j >= split->second);
    points[i / 8] |= (uint32_t)(is_negative ? 2 - code : code) << 2 * (i % 8);
  }
  if (is_negative) split->scale = -split->scale;
}

/* Replaces a point off the grid by the nearest of its neighbours; 0 if there is none. */
static int iq1_entry(const amn_iq_lists *lists, uint32_t *point, const float *x,
                     const float *weights, float scale, const float *levels) {
  const uint32_t place = lists->places[*point], n = amn_iq_n_neighbours(place);
  const uint16_t *neighbours = lists->neighbours + amn_iq_start(place);
  float least = FLT_MAX;
  for (uint32_t j = 0; j < n; j++) {
    float distance = 0.0f;
    for (int i = 0; i < 8; i++) {
      const float off = scale * levels[neighbours[j] >> 2 * i & 3] - x[i];
      distance += weights[i] * off * off;
    }
    if (distance < least) {
      least = distance;
      *point = neighbours[j];
    }
  }
  return n == 0 || least < FLT_MAX;
}

/* The entries of a split, and the scale that fits them best if they are not what it asked for; a
 * NaN where ggml would end. */
static void iq1_place(int n, const float *x, const float *weights, const float *const *levels,
                      uint32_t *points, uint16_t *indices, float *scale) {
  const amn_iq_lists *lists = amn_iq_lists_of(AMN_IQ_LISTS_IQ1);
  int n_moved = 0, n_lost = 0;
  for (int k = 0; k < n / 8; k++) {
    const uint32_t wanted = points[k];
    n_lost += !iq1_entry(lists, &points[k], x + 8 * k, weights + 8 * k, *scale, levels[k]);
    n_moved += points[k] != wanted;
    indices[k] = (uint16_t)amn_iq_index(lists->places[points[k]]);
  }
  float sum_xl = 0.0f, sum_l2 = 0.0f;
  for (int i = 0; i < n; i++) {
    const float level = levels[i / 8][points[i / 8] >> 2 * (i % 8) & 3];
    sum_xl += weights[i] * level * x[i];
    sum_l2 += weights[i] * level * level;
  }
  if (n_moved > 0 && sum_xl > 0.0f && sum_l2 > 0.0f) *scale = sum_xl / sum_l2;
  if (n_lost > 0 || !(*scale >= 0.0f)) *scale = amn_f32_from_bits(AMN_F32_NAN);
}

/* The largest of some scales, or a NaN if there is one. */
static float iq1_largest_scale(int n, const float *scales) {
  float largest = 0.0f;
  for (int b = 0; b < n; b++) {
    if (isnan(scales[b])) return scales[b];
    largest = scales[b] > largest ? scales[b] : largest;
  }
  return largest;
}

/* Codes of scales: levels 1, 3 to 15 times d. */
static uint32_t iq1_scale_code(float scale, float inverse) {
  return (uint32_t)clamp_int(nearest_int(0.5f * (inverse * scale - 1.0f)), 0, 7);
}

/* ---- IQ1_S ---- */

/* What a split sums up to: values of codes 0, 1 and 2, and their weights. */
static void iq1_s_try(iq1_split split, const float *sum_x, const float *sum_w, iq1_split *best,
                      float *score) {
  const float *level = iq1_levels[split.which];
  const float x0 = sum_x[split.first], x1 = sum_x[split.second] - x0;
  const float w0 = sum_w[split.first], w1 = sum_w[split.second] - w0;
  const float x2 = sum_x[32] - sum_x[split.second], w2 = sum_w[32] - sum_w[split.second];
  const float sum_xl = x0 * level[0] + x1 * level[1] + x2 * level[2];
  const float sum_l2 =
      w0 * level[0] * level[0] + w1 * level[1] * level[1] + w2 * level[2] * level[2];
  iq1_try(split, sum_xl, sum_l2, best, score);
}

/* 0 if no split is better than none. */
static int iq1_s_search(const float *x, const float *weights, const int *order, iq1_split *best) {
  float sum_x[33] = {0}, sum_w[33] = {0}, score = -FLT_MAX;
  for (int j = 0; j < 32; j++) {
    sum_x[j + 1] = sum_x[j] + weights[order[j]] * x[order[j]];
    sum_w[j + 1] = sum_w[j] + weights[order[j]];
  }
  best->which = -1;
  for (int first = 0; first <= 32; first++)
    for (int second = first; second <= 32; second++)
      for (int which = 0; which < 2; which++)
        iq1_s_try((iq1_split){0.0f, first, second, which}, sum_x, sum_w, best, &score);
  return best->which >= 0;
}

/* Indices and levels of 32 values; returns their scale. */
static float iq1_s_find(const float *x, const float *importance, float sigma2, uint16_t *indices,
                        int *which) {
  float weights[32];
  int order[32];
  iq1_split split;
  uint32_t points[4];
  *which = 0;
  if (iq1_largest(32, x) < 1e-12f) return 0.0f;
  iq1_weigh(32, x, importance, sigma2, weights);
  iq1_sort(32, x, order);
  if (!iq1_s_search(x, weights, order, &split)) return 0.0f;
  if (split.scale < 0.0f) split.which = 1 - split.which;
  iq1_take(32, order, &split, points);
  const float *level = iq1_levels[split.which], *const levels[4] = {level, level, level, level};
  iq1_place(32, x, weights, levels, points, indices, &split.scale);
  *which = split.which;
  return split.scale;
}

static void iq1_s_block(const float *src, block_iq1_s *block, const float *importance) {
  const float sigma2 = iq1_sigma2(src);
  float scales[8];
  int which[8];
  memset(block, 0, sizeof *block);
  for (int b = 0; b < 8; b++) {
    uint16_t indices[4] = {0};
    uint32_t high = 0;
    scales[b] = iq1_s_find(src + 32 * b, importance + 32 * b, sigma2, indices, &which[b]);
    for (int k = 0; k < 4; k++) {
      block->qs[4 * b + k] = (uint8_t)indices[k];
      high |= (uint32_t)indices[k] >> 8 << 3 * k;
    }
    amn_store_u16(block->qh + 2 * b, (uint16_t)high);
  }
  const float largest = iq1_largest_scale(8, scales);
  if (largest == 0.0f) return;
  const float d = largest / 15.0f;
  amn_store_u16(block->d, amn_f32_to_f16(amn_f32_bits(d * 1.125f)));
  for (int b = 0; b < 8; b++) {
    const uint32_t code = iq1_scale_code(scales[b], 1.0f / d) | (uint32_t)which[b] << 3;
    block->qh[2 * b + 1] |= (uint8_t)(code << 4);
  }
}

void encode_iq1_s_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *importance) {
  block_iq1_s *block = (block_iq1_s *)dst;
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, block++)
      iq1_s_block(src, block, importance + i);
}

/* ---- IQ1_M ---- */

/* Of the values of eight that come before a place in ascending order: both sums, [17] the whole. */
typedef struct {
  float x[17], w[17];
} iq1_m_half;

static void iq1_m_sums(const iq1_m_half *half, const iq1_split *split, const float *level,
                       float *sum_xl, float *sum_l2) {
  const float below = level[0] * level[0] - level[1] * level[1];
  const float above = level[1] * level[1] - level[2] * level[2];
  const int first = split->first, second = split->second;
  *sum_xl = half->x[16] * level[2] - (half->x[first] + half->x[second]);
  *sum_l2 = half->w[16] * level[2] * level[2] + half->w[first] * below + half->w[second] * above;
}

static void iq1_m_try(iq1_split split, const iq1_m_half halves[2], iq1_split *best, float *score) {
  float xl[2], l2[2];
  iq1_m_sums(&halves[0], &split, iq1_levels[split.which / 2], &xl[0], &l2[0]);
  iq1_m_sums(&halves[1], &split, iq1_levels[split.which % 2], &xl[1], &l2[1]);
  iq1_try(split, xl[0] + xl[1], l2[0] + l2[1], best, score);
}

static int iq1_m_search(const float *x, const float *weights, const int *order, iq1_split *best) {
  iq1_m_half halves[2];
  float score = -FLT_MAX;
  memset(halves, 0, sizeof halves);
  for (int j = 0; j < 16; j++) {
    const int i = order[j];
    for (int h = 0; h < 2; h++) {
      halves[h].x[j + 1] = halves[h].x[j];
      halves[h].w[j + 1] = halves[h].w[j];
    }
    halves[i / 8].x[j + 1] += weights[i] * x[i];
    halves[i / 8].w[j + 1] += weights[i];
  }
  best->which = -1;
  for (int first = 0; first <= 16; first++)
    for (int second = first; second <= 16; second++)
      for (int which = 0; which < 4; which++)
        iq1_m_try((iq1_split){0.0f, first, second, which}, halves, best, &score);
  return best->which >= 0;
}

/* What was found of 16 values. */
typedef struct {
  float scale;
  int which;
  uint16_t indices[2];
  uint32_t points[2];
} iq1_m_found;

static void iq1_m_find(const float *x, const float *weights, iq1_m_found *found) {
  const amn_iq_lists *lists = amn_iq_lists_of(AMN_IQ_LISTS_IQ1);
  int order[16];
  iq1_split split;
  *found = (iq1_m_found){0.0f, 0, {0, 0}, {lists->grid[0], lists->grid[0]}};
  if (iq1_largest(16, x) < 1e-7f) return;
  iq1_sort(16, x, order);
  if (!iq1_m_search(x, weights, order, &split)) return;
  if (split.scale < 0.0f) split.which = 3 - split.which;
  iq1_take(16, order, &split, found->points);
  const float *const levels[2] = {iq1_levels[split.which / 2], iq1_levels[split.which % 2]};
  iq1_place(16, x, weights, levels, found->points, found->indices, &split.scale);
  found->scale = split.scale;
  found->which = split.which;
}

/* d that fits all entries best, each with the code of its scale. */
static float iq1_m_fit(const float *src, const float *weights, const iq1_m_found *found,
                       const uint32_t *codes, float d) {
  float sum_xl = 0.0f, sum_l2 = 0.0f;
  for (int i = 0; i < 256; i++) {
    const iq1_m_found *of = &found[i / 16];
    const float *levels = iq1_levels[i % 16 < 8 ? of->which / 2 : of->which % 2];
    const uint32_t point = of->points[i / 8 % 2];
    const float level = levels[point >> 2 * (i % 8) & 3] * (float)(2 * codes[i / 16] + 1);
    sum_xl += weights[i] * level * src[i];
    sum_l2 += weights[i] * level * level;
  }
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : d;
}

static void iq1_m_block(const float *src, block_iq1_m *block, const float *importance) {
  iq1_m_found found[16];
  float weights[256], of_16[16];
  uint32_t codes[16], scales[4] = {0};
  memset(block, 0, sizeof *block);
  iq1_weigh(256, src, importance, iq1_sigma2(src), weights);
  for (int b = 0; b < 16; b++) {
    iq1_m_find(src + 16 * b, weights + 16 * b, &found[b]);
    const uint16_t *indices = found[b].indices;
    block->qs[2 * b] = (uint8_t)indices[0];
    block->qs[2 * b + 1] = (uint8_t)indices[1];
    block->qh[b] = (uint8_t)(indices[0] >> 8 | indices[1] >> 8 << 4);
    of_16[b] = found[b].scale;
  }
  const float largest = iq1_largest_scale(16, of_16);
  if (largest == 0.0f) return;
  const float d = largest / 15.0f;
  for (int b = 0; b < 16; b++) {
    codes[b] = iq1_scale_code(found[b].scale, 1.0f / d);
    scales[b / 4] |= codes[b] << 3 * (b % 4);
    block->qh[b] |= (uint8_t)(found[b].which / 2 << 3 | found[b].which % 2 << 7);
  }
  const float fitted = d >= 0.0f ? iq1_m_fit(src, weights, found, codes, d) : d;
  const uint32_t half = amn_f32_to_f16(amn_f32_bits(fitted * 1.1125f));
  for (int i = 0; i < 4; i++)
    amn_store_u16(block->scales + 2 * i, (uint16_t)(scales[i] | (half >> 4 * i & 15) << 12));
}

void encode_iq1_m_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *importance) {
  block_iq1_m *block = (block_iq1_m *)dst;
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, block++)
      iq1_m_block(src, block, importance ? importance + i : NULL);
}
