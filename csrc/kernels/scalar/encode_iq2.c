/* Numbers to IQ2_XXS, IQ2_XS and IQ2_S: magnitudes in rows of eight, each an entry of a grid, whose
 * levels 1, 3 and 5 times the scale of two or four rows come near them.
 *
 * A few scales are tried. Each gives every row the nearest point, or, if that is not on the grid,
 * that one of its neighbours which loses least; the scale that fits these best is kept if it beats
 * the others.
 *
 * Canonical: quantize_row_iq2_xxs_impl, quantize_row_iq2_xs_impl, quantize_row_iq2_s_impl of
 * ggml-quants.c. All sums are float32, in the order of the elements, each product from left to
 * right. Where numbers are so large that sums are infinite, ggml may find no neighbour or no scale,
 * and aborts: here the block's d is then a NaN, which the driver refuses. */
#include <float.h>

#include "../blocks.h"
#include "../iq_lists.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

#define ROWS_MAX 4
#define N_MAX (8 * ROWS_MAX)

/* What the types differ in. */
typedef struct {
  amn_iq_lists_id grid;
  int n_rows;   /* that share a scale */
  int tries;    /* on each side */
  float margin; /* what is smaller counts as zero */
  int is_even;  /* whether the number of signs is, of each row */
  int is_first_searched;
} kind;

static const kind iq2_xxs = {AMN_IQ_LISTS_IQ2_XXS, 4, 6, SEARCH_EPSILON, 1, 1};
static const kind iq2_xs = {AMN_IQ_LISTS_IQ2_XS, 2, 9, SEARCH_EPSILON, 1, 0};
static const kind iq2_s = {AMN_IQ_LISTS_IQ2_S, 2, 9, 1e-8f, 0, 0};

typedef struct {
  float x[N_MAX]; /* magnitudes; less than 0 where a sign is not kept */
  float weights[N_MAX], roots[N_MAX];
} values;

/* What is stored of some rows. */
typedef struct {
  float scale;
  uint16_t points[ROWS_MAX];
  uint8_t signs[ROWS_MAX], is_neighbour[ROWS_MAX];
} choice;

/* ---- magnitudes and signs ---- */

/* The value that matters least loses its sign, so that their number is even. */
static int least_of_row(const float *x, const float *weights) {
  int least = 0;
  for (int i = 1; i < 8; i++)
    if (weights[i] * x[i] * x[i] < weights[least] * x[least] * x[least]) least = i;
  return least;
}

static uint8_t take_signs(const kind *of, const float *src, const float *weights, float *x) {
  int signs = 0, n_signs = 0;
  for (int i = 0; i < 8; i++) {
    const int is_negative = !(src[i] >= 0.0f);
    x[i] = is_negative ? -src[i] : src[i];
    signs |= is_negative << i;
    n_signs += is_negative;
  }
  if (of->is_even && n_signs % 2 == 1) {
    const int least = least_of_row(src, weights);
    x[least] = -x[least];
    signs ^= 1 << least;
  }
  return (uint8_t)signs;
}

/* ---- one scale ---- */

/* The levels nearest to eight values. */
static uint32_t nearest_point(const float *x, float inverse) {
  uint32_t point = 0;
  for (int i = 0; i < 8; i++) {
    const int level = clamp_int(nearest_int(0.5f * (inverse * x[i] - 1.0f)), 0, 2);
    point |= (uint32_t)level << 2 * i;
  }
  return point;
}

static float level_at(uint32_t point, int i) {
  return (float)(2 * (point >> 2 * i & 3) + 1);
}

static float distance(uint32_t point, const float *x, const float *roots, float scale) {
  float sum = 0.0f;
  for (int i = 0; i < 8; i++) {
    const float off = scale * level_at(point, i) - x[i];
    sum += roots[i] * off * off;
  }
  return sum;
}

/* The entry of the grid for a row: 0 if there is none. */
static int choose_entry(const amn_iq_lists *lists, const values *of, int row, float inverse,
                        float scale, choice *chosen) {
  const float *x = of->x + 8 * row, *roots = of->roots + 8 * row;
  const uint32_t nearest = nearest_point(x, inverse), place = lists->places[nearest];
  const uint32_t n = amn_iq_n_neighbours(place);
  const uint16_t *neighbours = lists->neighbours + amn_iq_start(place);
  float least = FLT_MAX;
  chosen->points[row] = (uint16_t)nearest;
  chosen->is_neighbour[row] = n > 0;
  for (uint32_t i = 0; i < n; i++) {
    const float apart = distance(neighbours[i], x, roots, scale);
    if (!(apart < least)) continue;
    least = apart;
    chosen->points[row] = neighbours[i];
  }
  return n == 0 || least < FLT_MAX;
}

static void level_sums(const values *of, int n_rows, const choice *chosen, float *sum_xq,
                       float *sum_q2) {
  *sum_xq = *sum_q2 = 0.0f;
  for (int i = 0; i < 8 * n_rows; i++) {
    const float level = level_at(chosen->points[i / 8], i % 8);
    *sum_xq += of->weights[i] * of->x[i] * level;
    *sum_q2 += of->weights[i] * level * level;
  }
}

/* ---- the search ---- */

/* Tries scales about the one that gives `most` the uppermost level. */
static int search_scales(const kind *of, const amn_iq_lists *lists, const values *from, float most,
                         choice *best) {
  float most_gained = 0.0f;
  for (int i = -of->tries; i <= of->tries; i++) {
    const float inverse = (5.0f + (float)i * 0.1f) / most;
    choice trial = *best;
    for (int row = 0; row < of->n_rows; row++)
      if (!choose_entry(lists, from, row, inverse, 1.0f / inverse, &trial)) return 0;
    float sum_xq, sum_q2;
    level_sums(from, of->n_rows, &trial, &sum_xq, &sum_q2);
    if (!(sum_q2 > 0.0f && sum_xq * sum_xq > most_gained * sum_q2)) continue;
    *best = trial;
    best->scale = sum_xq / sum_q2;
    most_gained = best->scale * sum_xq;
  }
  return 1;
}

/* Rows of neighbours, or all, once more with the scale that was found. */
static int choose_again(const kind *of, const amn_iq_lists *lists, const values *from,
                        choice *best) {
  int n_again = 0;
  if (!(best->scale > 0.0f)) return 1;
  for (int row = 0; row < of->n_rows; row++) {
    if (!best->is_neighbour[row] && !of->is_first_searched) continue;
    n_again++;
    if (!choose_entry(lists, from, row, 1.0f / best->scale, best->scale, best)) return 0;
  }
  float sum_xq, sum_q2;
  level_sums(from, of->n_rows, best, &sum_xq, &sum_q2);
  if (n_again > 0 && sum_q2 > 0.0f) best->scale = sum_xq / sum_q2;
  return 1;
}

/* The scale to begin with, and what it makes of the uppermost level; 0 where all values are. */
static float first_scale(const kind *of, const values *from, float *most) {
  const int n = 8 * of->n_rows;
  *most = from->x[0];
  for (int i = 1; i < n; i++) *most = *most > from->x[i] ? *most : from->x[i];
  if (*most < of->margin) return 0.0f;
  if (!of->is_first_searched) return *most / 5.0f;
  uint8_t codes[N_MAX];
  const float scale = search_positive(n, 4, from->x, from->weights, codes);
  *most = scale * 3.0f;
  return *most <= 0.0f ? 0.0f : scale;
}

/* Returns 0 where ggml would abort. */
static int encode_rows(const kind *of, const amn_iq_lists *lists, const float *src,
                       const float *weights, choice *to) {
  values from;
  uint8_t signs[ROWS_MAX];
  float most;
  for (int i = 0; i < 8 * of->n_rows; i++) {
    from.weights[i] = weights[i];
    from.roots[i] = sqrtf(weights[i]);
  }
  for (int row = 0; row < of->n_rows; row++)
    signs[row] = take_signs(of, src + 8 * row, weights + 8 * row, from.x + 8 * row);
  memset(to, 0, sizeof *to);
  to->scale = first_scale(of, &from, &most);
  if (to->scale == 0.0f) return 1;
  memcpy(to->signs, signs, sizeof signs);
  if (!search_scales(of, lists, &from, most, to) || !choose_again(of, lists, &from, to)) return 0;
  if (to->scale < 0.0f) {
    to->scale = -to->scale;
    for (int row = 0; row < of->n_rows; row++) to->signs[row] = (uint8_t)~to->signs[row];
  }
  return to->scale >= 0.0f;
}

static float sum_of_squares(const float *x) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += x[i] * x[i];
  return sum;
}

/* All rows of 256 values; returns the largest scale, or a NaN where ggml would abort. */
static float encode_block(const kind *of, const amn_iq_lists *lists, const float *src,
                          const float *weights, choice *to) {
  const int n = 8 * of->n_rows;
  float most = 0.0f;
  for (int i = 0; i < 256 / n; i++) {
    if (!encode_rows(of, lists, src + n * i, weights + n * i, to + i))
      return amn_f32_from_bits(AMN_F32_NAN);
    most = most > to[i].scale ? most : to[i].scale;
  }
  return most;
}

static void weigh_with(const float *importance, float spread, const float *x, float *weights) {
  for (int i = 0; i < 256; i++) weights[i] = importance[i] * sqrtf(spread + x[i] * x[i]);
}

static void store_half(uint8_t *dst, float value) {
  amn_store_u16(dst, amn_f32_to_f16(amn_f32_bits(value)));
}

/* The largest scale is 31 halves of d. */
static uint32_t scale_code(float d, float scale) {
  return (uint32_t)clamp_int(nearest_int(0.5f * (1.0f / d * scale - 1.0f)), 0, 15);
}

/* Sixteen of them, the first in the low nibble. */
static void store_scale_codes(float d, const choice *chosen, uint8_t *dst) {
  for (int i = 0; i < 8; i++)
    dst[i] =
        (uint8_t)(scale_code(d, chosen[2 * i].scale) | scale_code(d, chosen[2 * i + 1].scale) << 4);
}

static uint32_t index_of(const amn_iq_lists *lists, const choice *chosen, int row) {
  return amn_iq_index(lists->places[chosen->points[row]]);
}

/* ---- the blocks ---- */

static void encode_iq2_xxs_block(const float *src, const float *importance, block_iq2_xxs *block) {
  const amn_iq_lists *lists = amn_iq_lists_of(iq2_xxs.grid);
  float weights[256];
  choice chosen[8];
  weigh_with(importance, sum_of_squares(src) / 256.0f, src, weights);
  const float most = encode_block(&iq2_xxs, lists, src, weights, chosen), d = most / 31.0f;
  memset(block, 0, sizeof *block);
  store_half(block->d, d);
  if (!(most > 0.0f)) return;
  for (int i = 0; i < 8; i++) {
    uint32_t rest = scale_code(d, chosen[i].scale) << 28;
    for (int row = 0; row < 4; row++) {
      block->qs[8 * i + row] = (uint8_t)index_of(lists, &chosen[i], row);
      rest |= (chosen[i].signs[row] & 127u) << 7 * row;
    }
    amn_store_u32(block->qs + 8 * i + 4, rest);
  }
}

static void encode_iq2_xs_block(const float *src, const float *importance, block_iq2_xs *block) {
  const amn_iq_lists *lists = amn_iq_lists_of(iq2_xs.grid);
  float weights[256];
  choice chosen[16];
  weigh_with(importance, sum_of_squares(src) / 256.0f, src, weights);
  const float most = encode_block(&iq2_xs, lists, src, weights, chosen), d = most / 31.0f;
  memset(block, 0, sizeof *block);
  store_half(block->d, d);
  if (!(most > 0.0f)) return;
  store_scale_codes(d, chosen, block->scales);
  for (int i = 0; i < 32; i++) {
    const uint32_t signs = chosen[i / 2].signs[i % 2] & 127u;
    amn_store_u16(block->qs + 2 * i,
                  (uint16_t)(index_of(lists, &chosen[i / 2], i % 2) | signs << 9));
  }
}

static void encode_iq2_s_block(const float *src, const float *importance, block_iq2_s *block) {
  const amn_iq_lists *lists = amn_iq_lists_of(iq2_s.grid);
  const float spread = 2.0f * sum_of_squares(src) / 256.0f;
  float weights[256];
  choice chosen[16];
  if (importance != NULL)
    weigh_with(importance, spread, src, weights);
  else
    for (int i = 0; i < 256; i++) weights[i] = 0.25f * spread + src[i] * src[i];
  const float most = encode_block(&iq2_s, lists, src, weights, chosen), d = most / 31.0f;
  memset(block, 0, sizeof *block);
  store_half(block->d, d * 0.9875f);
  if (!(most > 0.0f)) return;
  store_scale_codes(d, chosen, block->scales);
  for (int i = 0; i < 32; i++) {
    const uint32_t index = index_of(lists, &chosen[i / 2], i % 2);
    block->qs[i] = (uint8_t)index;
    block->qs[32 + i] = chosen[i / 2].signs[i % 2];
    block->qh[i / 4] |= (uint8_t)(index >> 8 << i % 4 * 2);
  }
}

#define ENCODE_IQ2(name)                                                                \
  void encode_##name##_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols, \
                              const float *weights) {                                   \
    block_##name *block = (block_##name *)dst;                                          \
    for (size_t r = 0; r < rows; r++)                                                   \
      for (size_t c = 0; c < cols; c += 256, src += 256, block++)                       \
        encode_##name##_block(src, weights == NULL ? NULL : weights + c, block);        \
  }
ENCODE_IQ2(iq2_xxs)
ENCODE_IQ2(iq2_xs)
ENCODE_IQ2(iq2_s)
