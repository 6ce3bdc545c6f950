/* The way to IQ3_XXS and IQ3_S. Of 32 values, whose eight groups of four are lanes, all scales that
 * are tried give their points first; then each group is searched with one scale after another; then
 * scales are lanes, and their sums are taken value by value.
 *
 * Needs: search.tpl.h, neighbours.tpl.h. Defines: encode_* of IQ3_XXS and IQ3_S. */

#define IQ3_TRIES_MAX 32

static const point_kind iq3_kind = {4, 3};

/* A type, as a constant in every use. */
typedef struct {
  amn_iq_lists_id lists;
  int n_tries;       /* to either side of the scale that gives the largest value the last level */
  float smallest;    /* maximum of values that are not all taken for 0 */
  int pairs_signs;   /* whether the negative ones of eight values must be even in number */
  int keeps_on_grid; /* whether a group that was on the grid stays what it is at the end */
} iq3_encoding;

#define IQ3_XXS_ENCODING ((iq3_encoding){AMN_IQ_LISTS_IQ3_XXS, 15, 1e-8f, 1, 1})
#define IQ3_S_ENCODING ((iq3_encoding){AMN_IQ_LISTS_IQ3_S, 9, FLT_TRUE_MIN, 0, 0})

typedef struct {
  float x[32], weights[32], roots[32], products[32]; /* of weights and x */
  vec_f32 turned[4];                                 /* value i of groups 0, 2, 4, 6, 1, 3, 5, 7 */
  uint32_t signs;
  vec_f32 farthest;
} iq3_values;

typedef struct {
  float inverse[IQ3_TRIES_MAX], scale[IQ3_TRIES_MAX];
  float sum_xl[IQ3_TRIES_MAX], sum_l2[IQ3_TRIES_MAX];
  uint32_t points[IQ3_TRIES_MAX][8];  /* of each group, as they are turned */
  uint32_t entries[8][IQ3_TRIES_MAX]; /* of each group */
} iq3_tries;

/* The lane of a group that is turned. */
AMN_FORCE_INLINE int iq3_lane(int group) {
  return group / 2 + group % 2 * 4;
}

AMN_FORCE_INLINE vec_f32 iq3_levels(void) {
  static const float levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  return v_load_f32(levels);
}

/* ---- values ---- */

/* Turns the sign that costs least of each eight values with an odd number of negative ones. */
AMN_FORCE_INLINE void iq3_pair(iq3_values *values) {
  const uint32_t odd = 0x6996; /* bit i: whether i has an odd number of bits */
  for (int k = 0; k < 4; k++) {
    const uint32_t signs = values->signs >> 8 * k & 255, half = signs ^ signs >> 4;
    if (!(odd >> (half & 15) & 1)) continue;
    float costs[8];
    const vec_f32 x = v_load_f32(values->x + 8 * k);
    v_store_f32(costs, v_mul_f32(v_mul_f32(v_load_f32(values->weights + 8 * k), x), x));
    int least = 0;
    for (int i = 1; i < 8; i++) least = costs[i] < costs[least] ? i : least;
    values->x[8 * k + least] = -values->x[8 * k + least];
    values->signs ^= 1u << (8 * k + least);
  }
}

/* Returns the largest value. */
AMN_FORCE_INLINE float iq3_load(iq3_encoding type, const float *src, const float *importance,
                                float sigma2, iq3_values *values) {
  vec negative[4], rows[4];
  for (int i = 0; i < 4; i++) {
    const vec_f32 x = v_load_f32(src + 8 * i), square = v_mul_f32(x, x);
    vec_f32 weight = square;
    if (importance)
      weight = v_mul_f32(v_load_f32(importance + 8 * i),
                         v_sqrt_f32(v_add_f32(v_set_f32(sigma2), square)));
    negative[i] = v_greater_f32(v_set_f32(0.0f), x);
    v_store_f32(values->x + 8 * i, magnitude_f32(x));
    v_store_f32(values->weights + 8 * i, weight);
    v_store_f32(values->roots + 8 * i, v_add_f32(v_sqrt_f32(weight), v_set_f32(0.0f)));
  }
  values->signs = v_signs_u8(v_pack_s32(negative[0], negative[1], negative[2], negative[3]));
  if (type.pairs_signs) iq3_pair(values);
  for (int i = 0; i < 4; i++) {
    const vec_f32 x = v_load_f32(values->x + 8 * i);
    v_store_f32(values->products + 8 * i, v_mul_f32(v_load_f32(values->weights + 8 * i), x));
    rows[i] = v_bits_f32(x);
  }
  const vec largest = v_max_s32(v_max_s32(rows[0], rows[1]), v_max_s32(rows[2], rows[3]));
  v_transpose_lanes_u32(rows);
  for (int i = 0; i < 4; i++) values->turned[i] = v_f32_from_bits(rows[i]);
  values->farthest = v_set_f32(0.0f);
  return amn_f32_from_bits(v_largest_s32(largest));
}

/* ---- points and entries ---- */

AMN_FORCE_INLINE vec iq3_codes(vec_f32 x, vec_f32 inverse, uint32_t largest) {
  const vec_f32 level = v_sub_f32(v_mul_f32(inverse, x), v_set_f32(1.0f));
  const vec code = nearest_s32(v_mul_f32(v_set_f32(0.5f), level));
  return v_max_s32(v_zero(), v_min_s32(code, v_set_u32(largest)));
}

AMN_FORCE_INLINE vec iq3_points(const iq3_values *values, float inverse) {
  vec points = v_zero();
  for (int i = 0; i < 4; i++)
    points = v_or(points, v_shl_u32(iq3_codes(values->turned[i], v_set_f32(inverse), 7), 3 * i));
  return points;
}

/* A group, each of its values and roots in all lanes. */
typedef struct {
  vec_f32 x[4], roots[4];
} iq3_group;

AMN_FORCE_INLINE iq3_group iq3_group_of(const iq3_values *values, int k) {
  iq3_group group;
  for (int i = 0; i < 4; i++) {
    group.x[i] = v_set_f32(values->x[4 * k + i]);
    group.roots[i] = v_set_f32(values->roots[4 * k + i]);
  }
  return group;
}

AMN_FORCE_INLINE uint32_t iq3_entry(const amn_iq_lists *lists, const iq3_group *group,
                                    uint32_t point, float scale, vec_f32 *farthest) {
  const uint32_t place = lists->places[point];
  const int n = (int)amn_iq_n_neighbours(place);
  if (n == 0) return point;
  const vec_f32 levels = v_mul_f32(v_set_f32(scale), iq3_levels());
  distance_terms terms;
  for (int i = 0; i < 4; i++) terms.of[i] = term_of_distance(levels, group->x[i], group->roots[i]);
  return nearest_of(iq3_kind, &terms, lists->neighbours + amn_iq_start(place), n, farthest);
}

/* ---- the search ---- */

/* Of eight scales that were tried. */
AMN_FORCE_INLINE void iq3_sum(const iq3_values *values, iq3_tries *tries, int first) {
  vec_f32 sum_xl = v_set_f32(0.0f), sum_l2 = v_set_f32(0.0f);
  const vec_f32 levels = iq3_levels();
  for (int i = 0; i < 32; i++) {
    const vec codes = v_shr_u32(v_load(tries->entries[i / 4] + first), i % 4 * 3);
    const vec_f32 level = look_up_f32(levels, codes);
    const vec_f32 weighted = v_mul_f32(v_set_f32(values->weights[i]), level);
    sum_xl = v_add_f32(sum_xl, v_mul_f32(v_set_f32(values->products[i]), level));
    sum_l2 = v_add_f32(sum_l2, v_mul_f32(weighted, level));
  }
  v_store_f32(tries->sum_xl + first, sum_xl);
  v_store_f32(tries->sum_l2 + first, sum_l2);
}

AMN_FORCE_INLINE void iq3_try(iq3_encoding type, const amn_iq_lists *lists, float max,
                              iq3_values *values, iq3_tries *tries) {
  const int n = 2 * type.n_tries + 1, n_whole = (n + 7) / 8 * 8;
  for (int t = 0; t < n_whole; t++) {
    tries->inverse[t] = (15.0f + (float)(t - type.n_tries) * 0.2f) / max;
    tries->scale[t] = 1.0f / tries->inverse[t];
    v_store(tries->points[t], iq3_points(values, tries->inverse[t]));
  }
  for (int k = 0; k < 8; k++) {
    const iq3_group group = iq3_group_of(values, k);
    vec_f32 farthest = values->farthest;
    for (int t = 0; t < n; t++)
      tries->entries[k][t] =
          iq3_entry(lists, &group, tries->points[t][iq3_lane(k)], tries->scale[t], &farthest);
    for (int t = n; t < n_whole; t++) tries->entries[k][t] = 0;
    values->farthest = farthest;
  }
  for (int t = 0; t < n_whole; t += 8) iq3_sum(values, tries, t);
}

/* The entries of the best scale, and itself. */
AMN_FORCE_INLINE float iq3_choose(iq3_encoding type, float max, const iq3_tries *tries,
                                  uint32_t entries[8], int is_on_grid[8]) {
  float scale = max / 15.0f, best = 0.0f;
  int which = -1;
  for (int t = 0; t < 2 * type.n_tries + 1; t++) {
    const float xl = tries->sum_xl[t], l2 = tries->sum_l2[t];
    if (l2 > 0.0f && xl * xl > best * l2) {
      scale = xl / l2;
      best = scale * xl;
      which = t;
    }
  }
  for (int k = 0; k < 8; k++) {
    entries[k] = which < 0 ? 0 : tries->entries[k][which];
    is_on_grid[k] =
        which < 0 ? type.keeps_on_grid : tries->points[which][iq3_lane(k)] == entries[k];
  }
  return scale;
}

/* Groups that were off the grid once more, with the scale that was found. */
AMN_FORCE_INLINE float iq3_refine(iq3_encoding type, const amn_iq_lists *lists, float scale,
                                  iq3_values *values, uint32_t entries[8],
                                  const int is_on_grid[8]) {
  uint32_t points[8];
  int n_on_grid = 0;
  for (int k = 0; k < 8; k++) n_on_grid += is_on_grid[k];
  if (n_on_grid == 8 || !(scale > 0.0f)) return scale;
  v_store(points, iq3_points(values, 1.0f / scale));
  for (int k = 0; k < 8; k++) {
    if (type.keeps_on_grid && is_on_grid[k]) continue;
    const iq3_group group = iq3_group_of(values, k);
    entries[k] = iq3_entry(lists, &group, points[iq3_lane(k)], scale, &values->farthest);
  }
  float sum_xl = 0.0f, sum_l2 = 0.0f;
  for (int i = 0; i < 32; i++) {
    const float level = (float)(2 * (entries[i / 4] >> i % 4 * 3 & 7) + 1);
    sum_xl += values->products[i] * level;
    sum_l2 += values->weights[i] * level * level;
  }
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : scale;
}

/* What is stored of 32 values. */
typedef struct {
  float scale;
  int is_zero;
  uint16_t indices[8];
  uint32_t signs;
} iq3_found;

/* 0 if that is nothing that can be stored. */
AMN_FORCE_INLINE int iq3_find(iq3_encoding type, const float *src, const float *importance,
                              float sigma2, iq3_found *found) {
  const amn_iq_lists *lists = amn_iq_lists_of(type.lists);
  iq3_values values;
  iq3_tries tries;
  uint32_t entries[8];
  int is_on_grid[8];
  const float max = iq3_load(type, src, importance, sigma2, &values);
  memset(found, 0, sizeof *found);
  found->is_zero = max < type.smallest;
  if (found->is_zero) return 1;
  iq3_try(type, lists, max, &values, &tries);
  float scale = iq3_choose(type, max, &tries, entries, is_on_grid);
  scale = iq3_refine(type, lists, scale, &values, entries, is_on_grid);
  found->scale = scale < 0.0f ? -scale : scale;
  found->signs = scale < 0.0f ? ~values.signs : values.signs;
  for (int k = 0; k < 8; k++) found->indices[k] = (uint16_t)amn_iq_index(lists->places[entries[k]]);
  float farthest[8];
  v_store_f32(farthest, values.farthest);
  return farthest[0] < FLT_MAX && found->scale >= 0.0f;
}

/* ---- blocks ---- */

AMN_FORCE_INLINE float iq3_sigma2(const float *src) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += src[i] * src[i];
  return 2.0f * sum / 256.0f;
}

/* d, and the codes of eight scales, of which the largest is 31 times d; 0 if all are 0. */
AMN_FORCE_INLINE int iq3_scales(const iq3_found *found, float fudge, uint8_t *half,
                                uint32_t codes[8]) {
  float scales[8], largest = 0.0f;
  for (int b = 0; b < 8; b++) {
    scales[b] = found[b].scale;
    largest = scales[b] > largest ? scales[b] : largest;
  }
  if (largest == 0.0f) return 0;
  const float d = largest / 31.0f;
  uint16_t halves[16];
  v_store(halves, v_f16_from_f32(v_set_f32(d * fudge), v_set_f32(0.0f)));
  amn_store_u16(half, halves[0]);
  v_store(codes, iq3_codes(v_load_f32(scales), v_set_f32(1.0f / d), 15));
  return 1;
}

AMN_FORCE_INLINE int iq3_find_all(iq3_encoding type, const float *src, const float *importance,
                                  iq3_found found[8]) {
  const float sigma2 = importance ? iq3_sigma2(src) : 0.0f;
  for (int b = 0; b < 8; b++)
    if (!iq3_find(type, src + 32 * b, importance ? importance + 32 * b : NULL, sigma2, &found[b]))
      return 0;
  return 1;
}

static int V_NAME(block_iq3_xxs)(const float *src, uint8_t *dst, const float *importance) {
  block_iq3_xxs *block = (block_iq3_xxs *)dst;
  iq3_found found[8];
  uint32_t codes[8];
  if (!iq3_find_all(IQ3_XXS_ENCODING, src, importance, found)) return 0;
  memset(block, 0, sizeof *block);
  if (!iq3_scales(found, 1.0125f, block->d, codes)) return 1;
  for (int b = 0; b < 8; b++) {
    const uint32_t signs = found[b].signs;
    for (int k = 0; k < 8; k++) block->qs[8 * b + k] = (uint8_t)found[b].indices[k];
    amn_store_u32(block->qs + 64 + 4 * b, (signs & 0x7f) | (signs & 0x7f00) >> 1 |
                                              (signs & 0x7f0000) >> 2 | (signs & 0x7f000000) >> 3 |
                                              codes[b] << 28);
  }
  return 1;
}

/* What is all zero takes no place among indices and signs. */
static int V_NAME(block_iq3_s)(const float *src, uint8_t *dst, const float *importance) {
  block_iq3_s *block = (block_iq3_s *)dst;
  iq3_found found[8];
  uint32_t codes[8];
  if (!iq3_find_all(IQ3_S_ENCODING, src, importance, found)) return 0;
  memset(block, 0, sizeof *block);
  uint8_t *qs = block->qs, *signs = block->signs;
  for (int b = 0; b < 8; b++) {
    if (found[b].is_zero) continue;
    uint32_t high = 0;
    for (int k = 0; k < 8; k++) {
      *qs++ = (uint8_t)found[b].indices[k];
      high |= (uint32_t)found[b].indices[k] >> 8 << k;
    }
    block->qh[b] = (uint8_t)high;
    amn_store_u32(signs, found[b].signs);
    signs += 4;
  }
  if (!iq3_scales(found, 1.033f, block->d, codes)) return 1;
  for (int b = 0; b < 4; b++) block->scales[b] = (uint8_t)(codes[2 * b] | codes[2 * b + 1] << 4);
  return 1;
}

V_ENCODER void V_NAME(encode_iq3_xxs)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                      const float *weights) {
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, dst += sizeof(block_iq3_xxs)) {
      const float *importance = weights ? weights + i : NULL;
      if (!V_NAME(block_iq3_xxs)(src, dst, importance))
        encode_iq3_xxs_scalar(src, dst, 1, 256, importance);
    }
  v_end();
}

V_ENCODER void V_NAME(encode_iq3_s)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, dst += sizeof(block_iq3_s)) {
      const float *importance = weights ? weights + i : NULL;
      if (!V_NAME(block_iq3_s)(src, dst, importance))
        encode_iq3_s_scalar(src, dst, 1, 256, importance);
    }
  v_end();
}
