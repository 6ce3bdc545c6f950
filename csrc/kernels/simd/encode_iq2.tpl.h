/* The way to IQ2_XXS, IQ2_XS and IQ2_S. Eight runs of 32 or 16 values are lanes, of which all
 * scales that are tried give their points first; then each row of eight values is searched with one
 * scale after another; then runs are lanes again, and the sums of each scale are taken value by
 * value.
 *
 * Needs: search.tpl.h, neighbours.tpl.h. Defines: encode_* of IQ2_XXS, IQ2_XS and IQ2_S. */

#define IQ2_ROWS_MAX 4
#define IQ2_TRIES_MAX 19
#define IQ2_OFF_GRID 0x10000u /* beside a point: it is the neighbour of one that was asked for */

static const point_kind iq2_kind = {8, 2};

/* A type, as a constant in every use. */
typedef struct {
  amn_iq_lists_id lists;
  int n_rows;          /* of eight values, in a run */
  int n_tries;         /* to either side of the scale that gives the largest value the last level */
  float smallest;      /* maximum of values that are not all taken for 0 */
  int pairs_signs;     /* whether the negative ones of eight values must be even in number */
  int starts_searched; /* whether a search finds the scale to begin with; then all rows end anew */
} iq2_encoding;

#define IQ2_XXS_ENCODING ((iq2_encoding){AMN_IQ_LISTS_IQ2_XXS, 4, 6, SEARCH_NONE, 1, 1})
#define IQ2_XS_ENCODING ((iq2_encoding){AMN_IQ_LISTS_IQ2_XS, 2, 9, SEARCH_NONE, 1, 0})
#define IQ2_S_ENCODING ((iq2_encoding){AMN_IQ_LISTS_IQ2_S, 2, 9, 1e-8f, 0, 0})

/* Eight runs: as they lie, and value i of each in the lanes of number i. */
typedef struct {
  float x[8 * SEARCH_LANES_MAX], roots[8 * SEARCH_LANES_MAX];
  search_lanes lanes;
  vec_f32 products[SEARCH_LANES_MAX]; /* of weights and x */
  uint8_t signs[8 * IQ2_ROWS_MAX];
  vec_f32 farthest;
} iq2_values;

/* The points of each row, which become entries of the grid; a lane for each run. */
typedef struct {
  float scale[IQ2_TRIES_MAX][8];
  uint32_t points[IQ2_ROWS_MAX][IQ2_TRIES_MAX][8];
} iq2_tries;

typedef struct {
  vec_f32 scale;
  vec points[IQ2_ROWS_MAX];
} iq2_choice;

/* What is stored of eight runs, of which some may be all zero. */
typedef struct {
  float scale[8];
  uint16_t indices[8 * IQ2_ROWS_MAX];
  uint8_t signs[8 * IQ2_ROWS_MAX];
} iq2_found;

AMN_FORCE_INLINE vec_f32 iq2_levels(void) {
  static const float levels[8] = {1, 3, 5, 5, 1, 3, 5, 5};
  return v_load_f32(levels);
}

/* ---- values ---- */

/* How much each of 256 values weighs, by importance or without; `factor` is of their mean square.
 */
AMN_FORCE_INLINE void iq2_weigh(float factor, const float *src, const float *importance,
                                float *weights) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += src[i] * src[i];
  const float spread = factor * sum / 256.0f;
  const vec_f32 whole = v_set_f32(spread), quarter = v_set_f32(0.25f * spread);
  for (int i = 0; i < 256; i += 8) {
    const vec_f32 x = v_load_f32(src + i), square = v_mul_f32(x, x);
    vec_f32 weight = v_add_f32(quarter, square);
    if (importance)
      weight = v_mul_f32(v_load_f32(importance + i), v_sqrt_f32(v_add_f32(whole, square)));
    v_store_f32(weights + i, weight);
  }
}

/* Which of eight values has its sign turned, a bit, so that the number of signs is even: the one
 * that costs least. */
AMN_FORCE_INLINE uint32_t iq2_turned(vec_f32 x, vec_f32 weight, uint32_t signs) {
  const uint32_t odd = 0x6996; /* bit i: whether i has an odd number of bits */
  const vec_f32 costs = v_mul_f32(v_mul_f32(weight, x), x);
  const uint32_t is_odd = odd >> ((signs ^ signs >> 4) & 15) & 1;
  return is_odd << amn_lowest_bit(places_of(costs, v_least_f32(costs)) | 128);
}

/* Bit i of a number as the sign of number i. */
AMN_FORCE_INLINE vec iq2_signs(uint32_t bits) {
  static const uint32_t counts[8] = {31, 30, 29, 28, 27, 26, 25, 24};
  return v_and(v_shl_u32_each(v_set_u32(bits), v_load(counts)), v_set_u32(0x80000000u));
}

/* 0 if a weight is infinite or a NaN. */
AMN_FORCE_INLINE int iq2_load(iq2_encoding type, const float *src, const float *weights,
                              iq2_values *values) {
  const int n = 8 * type.n_rows;
  vec is_finite = v_set_u8(255);
  for (int k = 0; k < n; k++) {
    const vec_f32 x = v_load_f32(src + 8 * k), weight = v_load_f32(weights + 8 * k);
    uint32_t signs = v_signs_u32(v_greater_f32(v_set_f32(0.0f), x)), turned = 0;
    if (type.pairs_signs) turned = iq2_turned(x, weight, signs);
    values->signs[k] = (uint8_t)(signs ^ turned);
    v_store(values->x + 8 * k, v_or(iq2_signs(turned), v_bits_f32(magnitude_f32(x))));
    v_store_f32(values->roots + 8 * k, v_add_f32(v_sqrt_f32(weight), v_set_f32(0.0f)));
    is_finite = v_and(is_finite, v_greater_f32(v_set_f32(FLT_MAX), magnitude_f32(weight)));
  }
  load_runs(values->x, (size_t)n, n, values->lanes.x);
  load_runs(weights, (size_t)n, n, values->lanes.weight);
  for (int i = 0; i < n; i++)
    values->products[i] = v_mul_f32(values->lanes.weight[i], values->lanes.x[i]);
  values->farthest = v_set_f32(0.0f);
  return v_all(is_finite);
}

/* The scales to begin with, 0 where all values count as that, and what the middle one of the tries
 * makes the uppermost level. */
AMN_FORCE_INLINE vec_f32 iq2_first(iq2_encoding type, const iq2_values *values, vec_f32 *most) {
  const int n = 8 * type.n_rows;
  const vec_f32 zero = v_set_f32(0.0f), *x = values->lanes.x;
  *most = x[0];
  for (int i = 1; i < n; i++) *most = v_max_f32(*most, x[i]);
  vec is_zero = v_greater_f32(v_set_f32(type.smallest), *most);
  vec_f32 scale = v_div_f32(*most, v_set_f32(5.0f));
  if (type.starts_searched) {
    vec codes[SEARCH_LANES_MAX];
    scale = search_positive_lanes(n, 4, x, values->lanes.weight, codes);
    *most = v_mul_f32(scale, v_set_f32(3.0f));
    const vec counts = v_or(v_greater_f32(*most, zero), v_is_nan_f32(*most));
    is_zero = v_or(is_zero, v_xor(counts, v_set_u8(255)));
  }
  return v_f32_from_bits(v_and_not(is_zero, v_bits_f32(scale)));
}

/* ---- points and entries ---- */

AMN_FORCE_INLINE vec iq2_codes(vec_f32 x, vec_f32 inverse, uint32_t largest) {
  const vec_f32 level = v_sub_f32(v_mul_f32(inverse, x), v_set_f32(1.0f));
  const vec code = nearest_s32(v_mul_f32(v_set_f32(0.5f), level));
  return v_max_s32(v_zero(), v_min_s32(code, v_set_u32(largest)));
}

AMN_FORCE_INLINE vec iq2_points(const iq2_values *values, int row, vec_f32 inverse) {
  vec points = v_zero();
  for (int i = 0; i < 8; i++)
    points = v_or(points, v_shl_u32(iq2_codes(values->lanes.x[8 * row + i], inverse, 2), 2 * i));
  return points;
}

/* A row, each of its values and roots in all lanes. */
typedef struct {
  vec_f32 x[8], roots[8];
} iq2_row;

AMN_FORCE_INLINE iq2_row iq2_row_of(const iq2_values *values, int k) {
  iq2_row row;
  for (int i = 0; i < 8; i++) {
    row.x[i] = v_set_f32(values->x[8 * k + i]);
    row.roots[i] = v_set_f32(values->roots[8 * k + i]);
  }
  return row;
}

AMN_FORCE_INLINE uint32_t iq2_entry(const amn_iq_lists *lists, const iq2_row *row, uint32_t point,
                                    float scale, vec_f32 *farthest) {
  const uint32_t place = lists->places[point];
  const int n = (int)amn_iq_n_neighbours(place);
  if (n == 0) return point;
  const vec_f32 levels = v_mul_f32(v_set_f32(scale), iq2_levels());
  distance_terms terms;
  for (int i = 0; i < 8; i++) terms.of[i] = term_of_distance(levels, row->x[i], row->roots[i]);
  const uint16_t *neighbours = lists->neighbours + amn_iq_start(place);
  return nearest_of(iq2_kind, &terms, neighbours, n, farthest) | IQ2_OFF_GRID;
}

/* ---- the search ---- */

AMN_FORCE_INLINE vec_f32 iq2_inverse(iq2_encoding type, int t, vec_f32 most) {
  return v_div_f32(v_set_f32(5.0f + (float)(t - type.n_tries) * 0.1f), most);
}

/* Entries of all tries, of the runs that `which` has bits for. */
AMN_FORCE_INLINE void iq2_try(iq2_encoding type, const amn_iq_lists *lists, uint32_t which,
                              vec_f32 most, iq2_values *values, iq2_tries *tries) {
  const int n = 2 * type.n_tries + 1;
  for (int t = 0; t < n; t++) {
    const vec_f32 inverse = iq2_inverse(type, t, most);
    v_store_f32(tries->scale[t], v_div_f32(v_set_f32(1.0f), inverse));
    for (int r = 0; r < type.n_rows; r++)
      v_store(tries->points[r][t], iq2_points(values, r, inverse));
  }
  for (int b = 0; b < 8; b++) {
    if (!(which >> b & 1)) continue;
    for (int r = 0; r < type.n_rows; r++) {
      const iq2_row row = iq2_row_of(values, type.n_rows * b + r);
      vec_f32 farthest = values->farthest;
      for (int t = 0; t < n; t++) {
        uint32_t *point = &tries->points[r][t][b];
        *point = iq2_entry(lists, &row, *point, tries->scale[t][b], &farthest);
      }
      values->farthest = farthest;
    }
  }
}

typedef struct {
  vec_f32 xl, l2;
} iq2_sums;

AMN_FORCE_INLINE iq2_sums iq2_sum(iq2_encoding type, const iq2_values *values, const vec *points) {
  const vec_f32 levels = iq2_levels();
  iq2_sums sums = {v_set_f32(0.0f), v_set_f32(0.0f)};
  for (int i = 0; i < 8 * type.n_rows; i++) {
    const vec_f32 level = look_up_f32(levels, v_shr_u32(points[i / 8], i % 8 * 2));
    const vec_f32 weighted = v_mul_f32(values->lanes.weight[i], level);
    sums.xl = v_add_f32(sums.xl, v_mul_f32(values->products[i], level));
    sums.l2 = v_add_f32(sums.l2, v_mul_f32(weighted, level));
  }
  return sums;
}

/* The scale that fits best, with its entries; the one to begin with if none gains. */
AMN_FORCE_INLINE void iq2_choose(iq2_encoding type, const iq2_values *values,
                                 const iq2_tries *tries, iq2_choice *best) {
  const vec_f32 zero = v_set_f32(0.0f);
  vec_f32 gained = zero;
  for (int r = 0; r < type.n_rows; r++) best->points[r] = v_zero();
  for (int t = 0; t < 2 * type.n_tries + 1; t++) {
    vec points[IQ2_ROWS_MAX];
    for (int r = 0; r < type.n_rows; r++) points[r] = v_load(tries->points[r][t]);
    const iq2_sums sums = iq2_sum(type, values, points);
    const vec gains = v_greater_f32(v_mul_f32(sums.xl, sums.xl), v_mul_f32(gained, sums.l2));
    const vec is_better = v_and(gains, v_greater_f32(sums.l2, zero));
    if (!v_any(is_better)) continue;
    best->scale = choose_f32(is_better, v_div_f32(sums.xl, sums.l2), best->scale);
    gained = choose_f32(is_better, v_mul_f32(best->scale, sums.xl), gained);
    for (int r = 0; r < type.n_rows; r++)
      best->points[r] = v_select(is_better, points[r], best->points[r]);
  }
}

/* Rows of neighbours, or all, once more with the scale that was found. */
AMN_FORCE_INLINE void iq2_refine(iq2_encoding type, const amn_iq_lists *lists, vec is_run,
                                 iq2_values *values, iq2_choice *best) {
  const vec_f32 zero = v_set_f32(0.0f), inverse = v_div_f32(v_set_f32(1.0f), best->scale);
  const vec may = v_and(is_run, v_greater_f32(best->scale, zero));
  vec is_any = v_zero();
  float scale[8];
  v_store_f32(scale, best->scale);
  for (int r = 0; r < type.n_rows; r++) {
    uint32_t points[8];
    const vec is_off = v_greater_s32(best->points[r], v_set_u32(IQ2_OFF_GRID - 1));
    const vec again = type.starts_searched ? may : v_and(may, is_off);
    const uint32_t which = v_signs_u32(again);
    v_store(points, v_select(again, iq2_points(values, r, inverse), best->points[r]));
    for (int b = 0; b < 8; b++) {
      if (!(which >> b & 1)) continue;
      const iq2_row row = iq2_row_of(values, type.n_rows * b + r);
      points[b] = iq2_entry(lists, &row, points[b], scale[b], &values->farthest);
    }
    best->points[r] = v_load(points);
    is_any = v_or(is_any, again);
  }
  const iq2_sums sums = iq2_sum(type, values, best->points);
  const vec is_fit = v_and(is_any, v_greater_f32(sums.l2, zero));
  best->scale = choose_f32(is_fit, v_div_f32(sums.xl, sums.l2), best->scale);
}

/* Of the runs that count; 0 if a scale is a NaN or -0. */
AMN_FORCE_INLINE int iq2_keep(iq2_encoding type, const amn_iq_lists *lists, vec is_run,
                              const iq2_values *values, const iq2_choice *best, iq2_found *found) {
  const vec negative_zero = v_equal_u32(v_bits_f32(best->scale), v_set_u32(0x80000000u));
  const vec is_bad = v_or(v_is_nan_f32(best->scale), negative_zero);
  const uint32_t which = v_signs_u32(is_run);
  const uint32_t negative = v_signs_u32(v_greater_f32(v_set_f32(0.0f), best->scale));
  v_store(found->scale, v_and(is_run, v_bits_f32(magnitude_f32(best->scale))));
  for (int r = 0; r < type.n_rows; r++) {
    uint32_t points[8];
    v_store(points, v_and(best->points[r], v_set_u32(IQ2_OFF_GRID - 1)));
    for (int b = 0; b < 8; b++) {
      const int k = type.n_rows * b + r;
      const uint32_t signs = values->signs[k] ^ (0u - (negative >> b & 1));
      const uint32_t point = which >> b & 1 ? points[b] : 0;
      found->indices[k] = (uint16_t)amn_iq_index(lists->places[point]);
      found->signs[k] = (uint8_t)(which >> b & 1 ? signs : 0);
    }
  }
  return !v_any(v_and(is_run, is_bad));
}

/* Eight runs; 0 if that is left to the scalar code. */
AMN_FORCE_INLINE int iq2_find(iq2_encoding type, const float *src, const float *weights,
                              iq2_found *found) {
  const amn_iq_lists *lists = amn_iq_lists_of(type.lists);
  iq2_values values;
  iq2_tries tries;
  iq2_choice best;
  vec_f32 most;
  float farthest[8];
  if (!iq2_load(type, src, weights, &values)) return 0;
  best.scale = iq2_first(type, &values, &most);
  const vec is_zero = v_equal_u32(v_shl_u32(v_bits_f32(best.scale), 1), v_zero());
  const vec is_run = v_xor(is_zero, v_set_u8(255));
  iq2_try(type, lists, v_signs_u32(is_run), most, &values, &tries);
  iq2_choose(type, &values, &tries, &best);
  iq2_refine(type, lists, is_run, &values, &best);
  v_store_f32(farthest, values.farthest);
  return iq2_keep(type, lists, is_run, &values, &best, found) && farthest[0] < FLT_MAX;
}

/* ---- blocks ---- */

/* d times factor, and the codes of n scales, of which the largest is 31 times d; 0 if all are 0. */
AMN_FORCE_INLINE int iq2_scales(int n, const iq2_found *found, float factor, uint8_t *half,
                                uint32_t codes[2][8]) {
  vec largest = v_load(found[0].scale);
  if (n == 2) largest = v_max_s32(largest, v_load(found[1].scale));
  const float d = amn_f32_from_bits(v_largest_s32(largest)) / 31.0f;
  uint16_t halves[16];
  v_store(halves, v_f16_from_f32(v_set_f32(d * factor), v_set_f32(0.0f)));
  amn_store_u16(half, halves[0]);
  for (int g = 0; g < n; g++)
    v_store(codes[g], iq2_codes(v_load_f32(found[g].scale), v_set_f32(1.0f / d), 15));
  return v_largest_s32(largest) != 0;
}

AMN_FORCE_INLINE void iq2_store_scales(uint32_t codes[2][8], uint8_t *dst) {
  for (int i = 0; i < 8; i++)
    dst[i] = (uint8_t)(codes[i / 4][i % 4 * 2] | codes[i / 4][i % 4 * 2 + 1] << 4);
}

static int V_NAME(block_iq2_xxs)(const float *src, uint8_t *dst, const float *importance) {
  block_iq2_xxs *block = (block_iq2_xxs *)dst;
  float weights[256];
  iq2_found found;
  uint32_t codes[2][8];
  iq2_weigh(1.0f, src, importance, weights);
  if (!iq2_find(IQ2_XXS_ENCODING, src, weights, &found)) return 0;
  memset(block, 0, sizeof *block);
  if (!iq2_scales(1, &found, 1.0f, block->d, codes)) return 1;
  for (int b = 0; b < 8; b++) {
    uint32_t rest = codes[0][b] << 28;
    for (int r = 0; r < 4; r++) {
      block->qs[8 * b + r] = (uint8_t)found.indices[4 * b + r];
      rest |= (found.signs[4 * b + r] & 127u) << 7 * r;
    }
    amn_store_u32(block->qs + 8 * b + 4, rest);
  }
  return 1;
}

static int V_NAME(block_iq2_xs)(const float *src, uint8_t *dst, const float *importance) {
  block_iq2_xs *block = (block_iq2_xs *)dst;
  float weights[256];
  iq2_found found[2];
  uint32_t codes[2][8];
  iq2_weigh(1.0f, src, importance, weights);
  for (int g = 0; g < 2; g++)
    if (!iq2_find(IQ2_XS_ENCODING, src + 128 * g, weights + 128 * g, &found[g])) return 0;
  memset(block, 0, sizeof *block);
  if (!iq2_scales(2, found, 1.0f, block->d, codes)) return 1;
  iq2_store_scales(codes, block->scales);
  for (int i = 0; i < 32; i++) {
    const uint32_t signs = found[i / 16].signs[i % 16] & 127u;
    amn_store_u16(block->qs + 2 * i, (uint16_t)(found[i / 16].indices[i % 16] | signs << 9));
  }
  return 1;
}

static int V_NAME(block_iq2_s)(const float *src, uint8_t *dst, const float *importance) {
  block_iq2_s *block = (block_iq2_s *)dst;
  float weights[256];
  iq2_found found[2];
  uint32_t codes[2][8];
  iq2_weigh(2.0f, src, importance, weights);
  for (int g = 0; g < 2; g++)
    if (!iq2_find(IQ2_S_ENCODING, src + 128 * g, weights + 128 * g, &found[g])) return 0;
  memset(block, 0, sizeof *block);
  if (!iq2_scales(2, found, 0.9875f, block->d, codes)) return 1;
  iq2_store_scales(codes, block->scales);
  for (int i = 0; i < 32; i++) {
    const uint32_t index = found[i / 16].indices[i % 16];
    block->qs[i] = (uint8_t)index;
    block->qs[32 + i] = found[i / 16].signs[i % 16];
    block->qh[i / 4] |= (uint8_t)(index >> 8 << i % 4 * 2);
  }
  return 1;
}

#define ENCODE_IQ2(name)                                                                         \
  V_ENCODER void V_NAME(encode_##name)(const float *src, uint8_t *dst, size_t rows, size_t cols, \
                                       const float *weights) {                                   \
    for (; rows > 0; rows--)                                                                     \
      for (size_t i = 0; i < cols; i += 256, src += 256, dst += sizeof(block_##name)) {          \
        const float *importance = weights ? weights + i : NULL;                                  \
        if (!V_NAME(block_##name)(src, dst, importance))                                         \
          encode_##name##_scalar(src, dst, 1, 256, importance);                                  \
      }                                                                                          \
    v_end();                                                                                     \
  }
ENCODE_IQ2(iq2_xxs)
ENCODE_IQ2(iq2_xs)
ENCODE_IQ2(iq2_s)
#undef ENCODE_IQ2
