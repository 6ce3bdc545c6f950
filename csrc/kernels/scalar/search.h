/* The searches by which ggml chooses scales: each tries a few, and keeps the one that loses least.
 *
 * Canonical: make_qx_quants, make_qkx2_quants, make_qkx3_quants, make_q3_quants and make_qp_quants
 * of ggml-quants.c. All sums are float32, taken in the order of the elements, each product from
 * left to right. n is at most 32. The codes are those of the scale that is returned; where a search
 * finds nothing but zeros, they are 0, whatever 0 means.
 *
 * Static inline, and each used by some of the types only. The SIMD side shares none of it. */
#ifndef AMN_SEARCH_H
#define AMN_SEARCH_H

#include <math.h>

#include "amn_platform.h"

#define SEARCH_ELEMENTS_MAX 32
#define SEARCH_EPSILON 1e-15f /* what is smaller counts as zero */

/* To the nearest, ties to even, below 2^22. From there on it is what the mantissa of the sum
 * happens to hold, which becomes codes in ggml too; 0 for a NaN. */
static inline int nearest_int(float value) {
  return (int)(amn_f32_bits(value + 12582912.0f) & 0x007fffffu) - 0x00400000;
}

static inline int clamp_int(int value, int low, int high) {
  const int below = value < high ? value : high;
  return below > low ? below : low;
}

/* The first of those with the largest magnitude, or 0; NaNs are passed over. */
static inline float extreme_of(int n, const float *x) {
  float extreme = 0.0f;
  for (int i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
  return extreme;
}

/* ---- x = scale * (code - half), the codes below 2 * half ---- */

static inline int symmetric_level(int half, float inverse, float x) {
  return clamp_int(nearest_int(inverse * x), -half, half - 1);
}

static inline void symmetric_sums(int n, int half, const float *x, const float *weights,
                                  float inverse, float *sum_xl, float *sum_l2) {
  *sum_xl = *sum_l2 = 0.0f;
  for (int i = 0; i < n; i++) {
    const float level = (float)symmetric_level(half, inverse, x[i]);
    *sum_xl += weights[i] * x[i] * level;
    *sum_l2 += weights[i] * level * level;
  }
}

/* make_qx_quants: 19 scales about the one that gives the extreme the level -half. Each is replaced
 * by what fits its levels best. */
static inline float search_symmetric(int n, int half, const float *x, const float *weights,
                                     uint8_t *codes) {
  const float extreme = extreme_of(n, x);
  if (fabsf(extreme) < SEARCH_EPSILON) {
    memset(codes, 0, (size_t)n);
    return 0.0f;
  }
  float sum_xl, sum_l2, inverse = -(float)half / extreme;
  symmetric_sums(n, half, x, weights, inverse, &sum_xl, &sum_l2);
  float scale = sum_l2 != 0.0f ? sum_xl / sum_l2 : 0.0f;
  float best = scale * sum_xl;
  for (int i = -9; i <= 9; i++) {
    if (i == 0) continue;
    const float trial = -((float)half + 0.1f * (float)i) / extreme;
    symmetric_sums(n, half, x, weights, trial, &sum_xl, &sum_l2);
    if (sum_l2 > 0.0f && sum_xl * sum_xl > best * sum_l2) {
      inverse = trial;
      scale = sum_xl / sum_l2;
      best = scale * sum_xl;
    }
  }
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(half + symmetric_level(half, inverse, x[i]));
  return scale;
}

/* make_q3_quants: levels of the scale that gives the extreme the level -half; then up to five times
 * each level is replaced where that gains, all others being as they are. Weights are x * x. */
static inline float search_descending(int n, int half, const float *x, uint8_t *codes) {
  const float extreme = extreme_of(n, x);
  memset(codes, 0, (size_t)n);
  if (fabsf(extreme) < SEARCH_EPSILON) return 0.0f;
  int levels[SEARCH_ELEMENTS_MAX];
  float sum_xl = 0.0f, sum_l2 = 0.0f;
  for (int i = 0; i < n; i++) {
    const float weight = x[i] * x[i];
    levels[i] = symmetric_level(half, -(float)half / extreme, x[i]);
    sum_xl += weight * x[i] * (float)levels[i];
    sum_l2 += weight * (float)levels[i] * (float)levels[i];
  }
  for (int pass = 0, changed = 1; pass < 5 && changed; pass++) {
    changed = 0;
    for (int i = 0; i < n; i++) {
      const float weight = x[i] * x[i], old = (float)levels[i];
      float xl = sum_xl - weight * x[i] * old;
      float l2 = sum_l2 - weight * old * old;
      if (!(xl > 0.0f)) continue;
      const int level = clamp_int(nearest_int(x[i] * l2 / xl), -half, half - 1);
      if (level == levels[i]) continue;
      xl += weight * x[i] * (float)level;
      l2 += weight * (float)level * (float)level;
      if (l2 > 0.0f && xl * xl * sum_l2 > sum_xl * sum_xl * l2) {
        levels[i] = level;
        sum_xl = xl;
        sum_l2 = l2;
        changed = 1;
      }
    }
  }
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(levels[i] + half);
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : 0.0f;
}

/* ---- x = scale * code - min ---- */

/* Which scales are tried: those of first, first + step, ... more levels than there are. */
typedef struct {
  float first, step;
  int n;
  int is_absolute; /* whether magnitudes of errors are summed, not squares */
} affine_tries;

static inline int affine_code(int largest, float inverse, float x, float low) {
  return clamp_int(nearest_int(inverse * (x - low)), 0, largest);
}

static inline float affine_error(int n, const float *x, const float *weights, const uint8_t *codes,
                                 float scale, float low, int is_absolute) {
  float error = 0.0f;
  for (int i = 0; i < n; i++) {
    const float off = scale * (float)codes[i] + low - x[i];
    error += weights[i] * (is_absolute ? fabsf(off) : off * off);
  }
  return error;
}

/* What fits the codes best, with a low end of at most 0; 0 if nothing can be said. */
static inline int affine_fit(int n, const float *x, const float *weights, const uint8_t *codes,
                             float sum_w, float sum_x, float *scale, float *low) {
  float sum_l = 0.0f, sum_l2 = 0.0f, sum_xl = 0.0f;
  for (int i = 0; i < n; i++) {
    const float code = (float)codes[i];
    sum_l += weights[i] * code;
    sum_l2 += weights[i] * code * code;
    sum_xl += weights[i] * code * x[i];
  }
  const float determinant = sum_w * sum_l2 - sum_l * sum_l;
  if (!(determinant > 0.0f)) return 0;
  *scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
  *low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
  if (*low > 0.0f) {
    *low = 0.0f;
    *scale = sum_xl / sum_l2;
  }
  return 1;
}

/* make_qkx2_quants, and make_qkx3_quants with weights: they differ in nothing. The range from the
 * low end is cut into as many levels as there are, then into a few less and more; the low end is
 * that of the best so far. */
static inline float search_affine(int n, int largest, const float *x, const float *weights,
                                  const affine_tries *tries, uint8_t *codes, float *min) {
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
  for (int i = 1; i < n; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = low > 0.0f ? 0.0f : low;
  memset(codes, 0, (size_t)n);
  *min = -low;
  if (high == low) return 0.0f;

  float inverse = (float)largest / (high - low);
  float scale = 1.0f / inverse;
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)affine_code(largest, inverse, x[i], low);
  float best = affine_error(n, x, weights, codes, scale, low, tries->is_absolute);
  for (int k = 0; k < tries->n; k++) {
    uint8_t trial[SEARCH_ELEMENTS_MAX];
    float new_scale, new_low;
    inverse = (tries->first + tries->step * (float)k + (float)largest) / (high - low);
    for (int i = 0; i < n; i++) trial[i] = (uint8_t)affine_code(largest, inverse, x[i], low);
    if (!affine_fit(n, x, weights, trial, sum_w, sum_x, &new_scale, &new_low)) continue;
    const float error = affine_error(n, x, weights, trial, new_scale, new_low, tries->is_absolute);
    if (error < best) {
      memcpy(codes, trial, (size_t)n);
      best = error;
      scale = new_scale;
      low = new_low;
    }
  }
  *min = -low;
  return scale;
}

/* ---- x = scale * code, none below 0 ---- */

static inline float positive_error(int n, const float *x, const float *weights, float scale,
                                   const int *levels) {
  float error = 0.0f;
  for (int i = 0; i < n; i++) {
    const float off = x[i] - scale * (float)levels[i];
    error += weights[i] * off * off;
  }
  return error;
}

static inline void positive_levels(int n, int largest, const float *x, float inverse, int *levels) {
  for (int i = 0; i < n; i++) {
    const int level = nearest_int(inverse * x[i]);
    levels[i] = level < largest ? level : largest;
  }
}

/* Up to five times each code is replaced where that gains, all others being as they are. */
static inline void positive_descent(int n, int largest, const float *x, const float *weights,
                                    uint8_t *codes, float *sum_xl, float *sum_l2) {
  for (int pass = 0, changed = 1; pass < 5 && changed; pass++) {
    changed = 0;
    for (int i = 0; i < n; i++) {
      const float old = (float)codes[i];
      float xl = *sum_xl - weights[i] * x[i] * old;
      float l2 = *sum_l2 - weights[i] * old * old;
      if (!(xl > 0.0f && l2 > 0.0f)) continue;
      const int nearest = nearest_int(x[i] * l2 / xl);
      const int level = nearest < largest ? nearest : largest;
      if (level == codes[i]) continue;
      xl += weights[i] * x[i] * (float)level;
      l2 += weights[i] * (float)level * (float)level;
      if (xl * xl * *sum_l2 > *sum_xl * *sum_xl * l2) {
        codes[i] = (uint8_t)level;
        *sum_xl = xl;
        *sum_l2 = l2;
        changed = 1;
      }
    }
  }
}

/* make_qp_quants: nine scales about the one that gives the largest the level `largest`, and then
 * the codes one by one. A level below 0, of a scale that a search left negative, wraps around as it
 * becomes a code. */
static inline float search_positive(int n, int largest, const float *x, const float *weights,
                                    uint8_t *codes) {
  float most = 0.0f;
  for (int i = 0; i < n; i++) most = most > x[i] ? most : x[i]; /* NaN only if x[n - 1] is one */
  if (most < SEARCH_EPSILON) {
    memset(codes, 0, (size_t)n);
    return 0.0f;
  }

  int levels[SEARCH_ELEMENTS_MAX];
  float inverse = (float)largest / most;
  for (int i = 0; i < n; i++) levels[i] = (uint8_t)nearest_int(inverse * x[i]);
  float best = positive_error(n, x, weights, 1.0f / inverse, levels);
  for (int i = -4; i <= 4; i++) {
    if (i == 0) continue;
    const float trial = (0.1f * (float)i + (float)largest) / most;
    positive_levels(n, largest, x, trial, levels);
    const float error = positive_error(n, x, weights, 1.0f / trial, levels);
    if (error < best) {
      best = error;
      inverse = trial;
    }
  }
  float sum_xl = 0.0f, sum_l2 = 0.0f;
  positive_levels(n, largest, x, inverse, levels);
  for (int i = 0; i < n; i++) {
    codes[i] = (uint8_t)levels[i];
    sum_xl += weights[i] * x[i] * (float)levels[i];
    sum_l2 += weights[i] * (float)levels[i] * (float)levels[i];
  }
  positive_descent(n, largest, x, weights, codes, &sum_xl, &sum_l2);
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : 0.0f;
}

#endif /* AMN_SEARCH_H */
