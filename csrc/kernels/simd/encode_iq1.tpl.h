/* The way to IQ1_S and IQ1_M. Eight blocks of 32 or 16 values are lanes: each is sorted by counting
 * what comes before, then all its splits into codes 0, 1 and 2 are tried, one after another. The
 * entries of what is off the grid are searched block by block.
 *
 * Needs: search.tpl.h, neighbours.tpl.h. Defines: encode_* of IQ1_S and IQ1_M. */

#define IQ1_ELEMENTS_MAX 32

static const point_kind iq1_kind = {8, 2};

/* What codes stand for, plus and less 1/8, twice. */
static const float iq1_levels[2][8] = {
    {-0.875f, 0.125f, 1.125f, 0.0f, -0.875f, 0.125f, 1.125f, 0.0f},
    {-1.125f, -0.125f, 0.875f, 0.0f, -1.125f, -0.125f, 0.875f, 0.0f}};

/* Eight blocks of n values; of each value those of all blocks, then those of the next one. */
typedef struct {
  float x[IQ1_ELEMENTS_MAX][8], weights[IQ1_ELEMENTS_MAX][8];
  uint32_t ranks[IQ1_ELEMENTS_MAX][8]; /* places in ascending order */
  vec is_zero;                         /* whether a block is taken for zeros */
} iq1_values;

/* What is found of each block. */
typedef struct {
  vec_f32 scale;
  vec which; /* 1 where an eighth is taken away: bit 1 of the first eight, bit 0 of others */
  uint32_t points[4][8];
} iq1_found;

/* ---- values in ascending order ---- */

AMN_FORCE_INLINE void iq1_load(int n, const float *src, const float *importance, float sigma2,
                               float smallest, iq1_values *values) {
  vec_f32 x[IQ1_ELEMENTS_MAX], given[IQ1_ELEMENTS_MAX], largest = v_set_f32(0.0f);
  load_runs(src, (size_t)n, n, x);
  if (importance) load_runs(importance, (size_t)n, n, given);
  for (int i = 0; i < n; i++) {
    const vec_f32 square = v_mul_f32(x[i], x[i]);
    vec_f32 weight = square;
    if (importance) {
      const vec_f32 root = v_sqrt_f32(v_add_f32(v_set_f32(sigma2), square));
      weight = v_add_f32(v_mul_f32(given[i], root), v_set_f32(0.0f));
    }
    v_store_f32(values->x[i], x[i]);
    v_store_f32(values->weights[i], weight);
    largest = v_max_f32(largest, magnitude_f32(x[i]));
  }
  values->is_zero = v_greater_f32(v_set_f32(smallest), largest);
}

/* Equal values stay in order. */
AMN_FORCE_INLINE void iq1_rank(int n, iq1_values *values) {
  for (int i = 0; i < n; i++) {
    const vec_f32 x = v_load_f32(values->x[i]);
    vec rank = v_set_u32((uint32_t)i);
    for (int j = 0; j < i; j++) {
      const vec is_before = v_greater_f32(v_load_f32(values->x[j]), x); /* -1 */
      rank = v_add_u32(rank, is_before);
      v_store(values->ranks[j], v_sub_u32(v_load(values->ranks[j]), is_before));
    }
    v_store(values->ranks[i], rank);
  }
}

/* Sums of all that come before a place. */
AMN_FORCE_INLINE void iq1_add_up(int n, float sums[][8]) {
  vec_f32 sum = v_set_f32(0.0f);
  for (int j = 0; j <= n; j++) {
    const vec_f32 next = v_load_f32(sums[j]);
    sum = v_add_f32(sum, next);
    v_store_f32(sums[j], sum);
  }
}

/* ---- splits ---- */

/* The best split of each block: its places, and which levels, in 8 bits each; all ones if there is
 * none. */
typedef struct {
  vec_f32 score, scale;
  vec split;
} iq1_best;

AMN_FORCE_INLINE iq1_best iq1_no_best(void) {
  return (iq1_best){v_set_f32(-FLT_MAX), v_set_f32(0.0f), v_set_u32(~0u)};
}

AMN_FORCE_INLINE vec iq1_is_better(const iq1_best *best, vec_f32 sum_xl, vec_f32 sum_l2) {
  return v_and(v_greater_f32(sum_l2, v_set_f32(0.0f)),
               v_greater_f32(v_mul_f32(sum_xl, sum_xl), v_mul_f32(best->score, sum_l2)));
}

AMN_FORCE_INLINE void iq1_try(iq1_best *best, vec_f32 sum_xl, vec_f32 sum_l2, uint32_t split) {
  const vec is_better = iq1_is_better(best, sum_xl, sum_l2);
  const vec_f32 scale = v_div_f32(sum_xl, sum_l2);
  best->score = choose_f32(is_better, v_mul_f32(scale, sum_xl), best->score);
  best->scale = choose_f32(is_better, scale, best->scale);
  best->split = v_select(is_better, v_set_u32(split), best->split);
}

/* What IQ1_S sums up: [0] with an eighth more, [1] with an eighth less. */
typedef struct {
  float x[33][8], w[33][8];                   /* before a place */
  float above_x[2][33][8], above_w[2][33][8]; /* from it on, times their level */
} iq1_s_sums;

AMN_FORCE_INLINE void iq1_s_add_up(const iq1_values *values, iq1_s_sums *sums) {
  memset(sums->x[0], 0, sizeof sums->x[0]);
  memset(sums->w[0], 0, sizeof sums->w[0]);
  for (int i = 0; i < 32; i++) {
    float products[8];
    v_store_f32(products, v_mul_f32(v_load_f32(values->weights[i]), v_load_f32(values->x[i])));
    for (int b = 0; b < 8; b++) {
      const uint32_t rank = values->ranks[i][b] + 1;
      sums->x[rank][b] = products[b];
      sums->w[rank][b] = values->weights[i][b];
    }
  }
  iq1_add_up(32, sums->x);
  iq1_add_up(32, sums->w);
  const vec_f32 all_x = v_load_f32(sums->x[32]), all_w = v_load_f32(sums->w[32]);
  for (int j = 0; j <= 32; j++)
    for (int which = 0; which < 2; which++) {
      const vec_f32 level = v_set_f32(iq1_levels[which][2]);
      const vec_f32 x = v_sub_f32(all_x, v_load_f32(sums->x[j]));
      const vec_f32 w = v_sub_f32(all_w, v_load_f32(sums->w[j]));
      v_store_f32(sums->above_x[which][j], v_mul_f32(x, level));
      v_store_f32(sums->above_w[which][j], v_mul_f32(v_mul_f32(w, level), level));
    }
}

/* Levels of code 1 differ in sign only. */
AMN_FORCE_INLINE iq1_best iq1_s_search(const iq1_s_sums *sums) {
  iq1_best best = iq1_no_best();
  const vec_f32 eighth = v_set_f32(0.125f), more = v_set_f32(-0.875f), less = v_set_f32(-1.125f);
  for (uint32_t first = 0; first <= 32; first++) {
    const vec_f32 x0 = v_load_f32(sums->x[first]), w0 = v_load_f32(sums->w[first]);
    const vec_f32 x_more = v_mul_f32(x0, more), w_more = v_mul_f32(v_mul_f32(w0, more), more);
    const vec_f32 x_less = v_mul_f32(x0, less), w_less = v_mul_f32(v_mul_f32(w0, less), less);
    for (uint32_t second = first; second <= 32; second++) {
      const vec_f32 x1 = v_mul_f32(v_sub_f32(v_load_f32(sums->x[second]), x0), eighth);
      const vec_f32 w1 =
          v_mul_f32(v_mul_f32(v_sub_f32(v_load_f32(sums->w[second]), w0), eighth), eighth);
      const vec_f32 xl_more =
          v_add_f32(v_add_f32(x_more, x1), v_load_f32(sums->above_x[0][second]));
      const vec_f32 l2_more =
          v_add_f32(v_add_f32(w_more, w1), v_load_f32(sums->above_w[0][second]));
      const vec_f32 xl_less =
          v_add_f32(v_sub_f32(x_less, x1), v_load_f32(sums->above_x[1][second]));
      const vec_f32 l2_less =
          v_add_f32(v_add_f32(w_less, w1), v_load_f32(sums->above_w[1][second]));
      if (!v_any(
              v_or(iq1_is_better(&best, xl_more, l2_more), iq1_is_better(&best, xl_less, l2_less))))
        continue;
      iq1_try(&best, xl_more, l2_more, first | second << 8);
      iq1_try(&best, xl_less, l2_less, first | second << 8 | 1 << 16);
    }
  }
  return best;
}

/* What IQ1_M sums up of each eight values: before a place, and from parts of it. */
typedef struct {
  float x[17][8], w[17][8];
} iq1_m_sums;

AMN_FORCE_INLINE void iq1_m_add_up(const iq1_values *values, iq1_m_sums halves[2]) {
  memset(halves, 0, 2 * sizeof halves[0]);
  for (int i = 0; i < 16; i++) {
    float products[8];
    v_store_f32(products, v_mul_f32(v_load_f32(values->weights[i]), v_load_f32(values->x[i])));
    for (int b = 0; b < 8; b++) {
      const uint32_t rank = values->ranks[i][b] + 1;
      halves[i / 8].x[rank][b] = products[b];
      halves[i / 8].w[rank][b] = values->weights[i][b];
    }
  }
  for (int h = 0; h < 2; h++) {
    iq1_add_up(16, halves[h].x);
    iq1_add_up(16, halves[h].w);
  }
}

/* Of eight values, with an eighth more and less. */
typedef struct {
  vec_f32 x_more, x_less, w_more, w_less;
} iq1_m_side;

AMN_FORCE_INLINE iq1_m_side iq1_m_whole(const iq1_m_sums *half) {
  const vec_f32 x = v_load_f32(half->x[16]), w = v_load_f32(half->w[16]);
  const vec_f32 more = v_set_f32(1.125f), less = v_set_f32(0.875f);
  return (iq1_m_side){v_mul_f32(x, more), v_mul_f32(x, less), v_mul_f32(v_mul_f32(w, more), more),
                      v_mul_f32(v_mul_f32(w, less), less)};
}

/* What the first place adds: squares of levels 0 and 1 differ by 0.75 and 1.25. */
AMN_FORCE_INLINE iq1_m_side iq1_m_first(const iq1_m_sums *half, const iq1_m_side *whole,
                                        uint32_t first) {
  const vec_f32 w = v_load_f32(half->w[first]);
  iq1_m_side side = *whole;
  side.w_more = v_add_f32(side.w_more, v_mul_f32(w, v_set_f32(0.75f)));
  side.w_less = v_add_f32(side.w_less, v_mul_f32(w, v_set_f32(1.25f)));
  return side;
}

/* And the second one: those of levels 1 and 2. */
AMN_FORCE_INLINE iq1_m_side iq1_m_second(const iq1_m_sums *half, const iq1_m_side *side,
                                         vec_f32 first_x, uint32_t second) {
  const vec_f32 x = v_add_f32(first_x, v_load_f32(half->x[second]));
  const vec_f32 w = v_load_f32(half->w[second]);
  return (iq1_m_side){v_sub_f32(side->x_more, x), v_sub_f32(side->x_less, x),
                      v_add_f32(side->w_more, v_mul_f32(w, v_set_f32(-1.25f))),
                      v_add_f32(side->w_less, v_mul_f32(w, v_set_f32(-0.75f)))};
}

AMN_FORCE_INLINE void iq1_m_try(const iq1_m_side sides[2], iq1_best *best, uint32_t split) {
  const iq1_m_side *a = &sides[0], *b = &sides[1];
  const vec_f32 xl[4] = {v_add_f32(a->x_more, b->x_more), v_add_f32(a->x_more, b->x_less),
                         v_add_f32(a->x_less, b->x_more), v_add_f32(a->x_less, b->x_less)};
  const vec_f32 l2[4] = {v_add_f32(a->w_more, b->w_more), v_add_f32(a->w_more, b->w_less),
                         v_add_f32(a->w_less, b->w_more), v_add_f32(a->w_less, b->w_less)};
  vec is_better = v_zero();
  for (int k = 0; k < 4; k++) is_better = v_or(is_better, iq1_is_better(best, xl[k], l2[k]));
  if (!v_any(is_better)) return;
  for (uint32_t k = 0; k < 4; k++) iq1_try(best, xl[k], l2[k], split | k << 16);
}

AMN_FORCE_INLINE iq1_best iq1_m_search(const iq1_m_sums halves[2]) {
  iq1_best best = iq1_no_best();
  const iq1_m_side whole[2] = {iq1_m_whole(&halves[0]), iq1_m_whole(&halves[1])};
  for (uint32_t first = 0; first <= 16; first++) {
    const iq1_m_side sides[2] = {iq1_m_first(&halves[0], &whole[0], first),
                                 iq1_m_first(&halves[1], &whole[1], first)};
    const vec_f32 x[2] = {v_load_f32(halves[0].x[first]), v_load_f32(halves[1].x[first])};
    for (uint32_t second = first; second <= 16; second++) {
      const iq1_m_side both[2] = {iq1_m_second(&halves[0], &sides[0], x[0], second),
                                  iq1_m_second(&halves[1], &sides[1], x[1], second)};
      iq1_m_try(both, &best, first | second << 8);
    }
  }
  return best;
}

/* ---- entries ---- */

/* The points of splits; negative scales turn them around. `mask` is of all bits of `which`. */
AMN_FORCE_INLINE void iq1_take(int n, const iq1_values *values, const iq1_best *best, uint32_t mask,
                               iq1_found *found) {
  const vec is_none = v_or(values->is_zero, v_equal_u32(best->split, v_set_u32(~0u)));
  const vec is_negative = v_greater_f32(v_set_f32(0.0f), best->scale);
  const vec which = v_shr_u32(best->split, 16);
  const vec first = v_sub_u32(v_and(best->split, v_set_u32(255)), v_set_u32(1));
  const vec second = v_sub_u32(v_and(v_shr_u32(best->split, 8), v_set_u32(255)), v_set_u32(1));
  for (int k = 0; k < n / 8; k++) {
    vec point = v_zero();
    for (int i = 0; i < 8; i++) {
      const vec rank = v_load(values->ranks[8 * k + i]);
      const vec above = v_add_u32(v_greater_s32(rank, first), v_greater_s32(rank, second));
      const vec code =
          v_select(is_negative, v_add_u32(v_set_u32(2), above), v_sub_u32(v_zero(), above));
      point = v_or(point, v_shl_u32(code, 2 * i));
    }
    v_store(found->points[k], point);
  }
  const vec turned = v_xor(which, v_and(is_negative, v_set_u32(mask)));
  found->which = v_and_not(is_none, turned);
  found->scale = v_f32_from_bits(v_and_not(is_none, v_bits_f32(magnitude_f32(best->scale))));
}

/* One group of eight values of a block. */
AMN_FORCE_INLINE uint32_t iq1_entry(const amn_iq_lists *lists, const iq1_values *values, int b,
                                    int group, float scale, uint32_t which, uint32_t point,
                                    vec_f32 *farthest) {
  const uint32_t place = lists->places[point], n = amn_iq_n_neighbours(place);
  if (n == 0) return point;
  const vec_f32 levels = v_mul_f32(v_set_f32(scale), v_load_f32(iq1_levels[which]));
  distance_terms terms;
  for (int i = 0; i < 8; i++)
    terms.of[i] = term_of_distance(levels, v_set_f32(values->x[8 * group + i][b]),
                                   v_set_f32(values->weights[8 * group + i][b]));
  return nearest_of(iq1_kind, &terms, lists->neighbours + amn_iq_start(place), (int)n, farthest);
}

/* The level of value i of each block. */
AMN_FORCE_INLINE vec_f32 iq1_level(const iq1_found *found, int n, int i) {
  const vec points = v_load(found->points[i / 8]);
  const vec code = v_and(v_shr_u32(points, i % 8 * 2), v_set_u32(3));
  const uint32_t bit = n == 16 && i < 8 ? 2 : 1;
  const vec is_more = v_equal_u32(v_and(found->which, v_set_u32(bit)), v_zero());
  return v_add_f32(v_f32_from_s32(code),
                   choose_f32(is_more, v_set_f32(-0.875f), v_set_f32(-1.125f)));
}

/* Scales that fit entries best, where those are not what was asked for. */
AMN_FORCE_INLINE void iq1_fit(int n, const iq1_values *values, vec is_moved, iq1_found *found) {
  vec_f32 sum_xl = v_set_f32(0.0f), sum_l2 = v_set_f32(0.0f);
  for (int i = 0; i < n; i++) {
    const vec_f32 level = iq1_level(found, n, i);
    const vec_f32 weighted = v_mul_f32(v_load_f32(values->weights[i]), level);
    sum_xl = v_add_f32(sum_xl, v_mul_f32(weighted, v_load_f32(values->x[i])));
    sum_l2 = v_add_f32(sum_l2, v_mul_f32(weighted, level));
  }
  const vec_f32 zero = v_set_f32(0.0f);
  const vec is_fit = v_and(v_greater_f32(sum_xl, zero), v_greater_f32(sum_l2, zero));
  found->scale = choose_f32(v_and(is_moved, is_fit), v_div_f32(sum_xl, sum_l2), found->scale);
}

/* Replaces points by those on the grid, of blocks with none by the first; 0 if that fails. */
AMN_FORCE_INLINE int iq1_place(int n, const iq1_values *values, const iq1_best *best,
                               iq1_found *found) {
  const amn_iq_lists *lists = amn_iq_lists_of(AMN_IQ_LISTS_IQ1);
  uint32_t which[8], none[8], moved[8] = {0};
  float scale[8], far[8];
  vec_f32 farthest = v_set_f32(0.0f);
  v_store(which, found->which);
  v_store(none, v_or(values->is_zero, v_equal_u32(best->split, v_set_u32(~0u))));
  v_store_f32(scale, found->scale);
  for (int b = 0; b < 8; b++)
    for (int k = 0; k < n / 8; k++) {
      const uint32_t wanted = none[b] ? lists->grid[0] : found->points[k][b];
      const uint32_t less = which[b] >> (n == 16 && k == 0) & 1;
      found->points[k][b] = iq1_entry(lists, values, b, k, scale[b], less, wanted, &farthest);
      moved[b] |= found->points[k][b] ^ wanted;
    }
  const vec stays = v_equal_u32(v_load(moved), v_zero());
  iq1_fit(n, values, v_xor(stays, v_set_u8(255)), found);
  v_store_f32(far, farthest);
  return far[0] < FLT_MAX && !v_any(v_is_nan_f32(found->scale));
}

AMN_FORCE_INLINE uint32_t iq1_index(const amn_iq_lists *lists, const iq1_found *found, int b,
                                    int group) {
  return amn_iq_index(lists->places[found->points[group][b]]);
}

/* ---- blocks ---- */

AMN_FORCE_INLINE float iq1_sigma2(const float *src) {
  float sum = 0.0f;
  for (int i = 0; i < 256; i++) sum += src[i] * src[i];
  return 2.0f * sum / 256.0f;
}

/* Of scales from 0 on. */
AMN_FORCE_INLINE float iq1_largest(vec_f32 scales) {
  return amn_f32_from_bits(v_largest_s32(v_bits_f32(scales)));
}

AMN_FORCE_INLINE void iq1_scale_codes(vec_f32 scales, float d, uint32_t codes[8]) {
  const vec_f32 level = v_sub_f32(v_mul_f32(v_set_f32(1.0f / d), scales), v_set_f32(1.0f));
  const vec code = nearest_s32(v_mul_f32(v_set_f32(0.5f), level));
  v_store(codes, v_max_s32(v_zero(), v_min_s32(code, v_set_u32(7))));
}

AMN_FORCE_INLINE uint32_t iq1_half(float d) {
  uint16_t halves[16];
  v_store(halves, v_f16_from_f32(v_set_f32(d), v_set_f32(d)));
  return halves[0];
}

static int V_NAME(block_iq1_s)(const float *src, uint8_t *dst, const float *importance) {
  const amn_iq_lists *lists = amn_iq_lists_of(AMN_IQ_LISTS_IQ1);
  block_iq1_s *block = (block_iq1_s *)dst;
  iq1_values values;
  iq1_s_sums sums;
  iq1_found found;
  iq1_load(32, src, importance, iq1_sigma2(src), 1e-12f, &values);
  iq1_rank(32, &values);
  iq1_s_add_up(&values, &sums);
  const iq1_best best = iq1_s_search(&sums);
  iq1_take(32, &values, &best, 1, &found);
  if (!iq1_place(32, &values, &best, &found)) return 0;

  const float largest = iq1_largest(found.scale), d = largest / 15.0f;
  uint32_t codes[8] = {0}, which[8] = {0};
  if (largest != 0.0f) {
    iq1_scale_codes(found.scale, d, codes);
    v_store(which, found.which);
  }
  amn_store_u16(block->d, (uint16_t)iq1_half(d * 1.125f));
  for (int b = 0; b < 8; b++) {
    uint32_t high = (codes[b] | which[b] << 3) << 12;
    for (int k = 0; k < 4; k++) {
      const uint32_t index = iq1_index(lists, &found, b, k);
      block->qs[4 * b + k] = (uint8_t)index;
      high |= index >> 8 << 3 * k;
    }
    amn_store_u16(block->qh + 2 * b, (uint16_t)high);
  }
  return 1;
}

/* d that fits all entries best, each with the code of its scale: value by value. */
AMN_FORCE_INLINE float iq1_m_fit(const iq1_values values[2], const iq1_found found[2],
                                 uint32_t codes[2][8], float d) {
  float xl[2][16][8], l2[2][16][8], sum_xl = 0.0f, sum_l2 = 0.0f;
  for (int g = 0; g < 2; g++) {
    const vec odd = v_add_u32(v_shl_u32(v_load(codes[g]), 1), v_set_u32(1));
    for (int i = 0; i < 16; i++) {
      const vec_f32 level = v_mul_f32(iq1_level(&found[g], 16, i), v_f32_from_s32(odd));
      const vec_f32 weighted = v_mul_f32(v_load_f32(values[g].weights[i]), level);
      v_store_f32(xl[g][i], v_mul_f32(weighted, v_load_f32(values[g].x[i])));
      v_store_f32(l2[g][i], v_mul_f32(weighted, level));
    }
  }
  for (int b = 0; b < 16; b++)
    for (int i = 0; i < 16; i++) {
      sum_xl += xl[b / 8][i][b % 8];
      sum_l2 += l2[b / 8][i][b % 8];
    }
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : d;
}

AMN_FORCE_INLINE void iq1_m_store(const iq1_found found[2], uint32_t codes[2][8], uint32_t half,
                                  uint32_t which[2][8], block_iq1_m *block) {
  const amn_iq_lists *lists = amn_iq_lists_of(AMN_IQ_LISTS_IQ1);
  uint32_t scales[4] = {half << 12, half >> 4 << 12, half >> 8 << 12, half >> 12 << 12};
  for (int b = 0; b < 16; b++) {
    const uint32_t first = iq1_index(lists, &found[b / 8], b % 8, 0);
    const uint32_t second = iq1_index(lists, &found[b / 8], b % 8, 1);
    const uint32_t bits = which[b / 8][b % 8];
    block->qs[2 * b] = (uint8_t)first;
    block->qs[2 * b + 1] = (uint8_t)second;
    block->qh[b] = (uint8_t)(first >> 8 | second >> 8 << 4 | bits >> 1 << 3 | (bits & 1) << 7);
    scales[b / 4] |= codes[b / 8][b % 8] << 3 * (b % 4);
  }
  for (int i = 0; i < 4; i++) amn_store_u16(block->scales + 2 * i, (uint16_t)scales[i]);
}

static int V_NAME(block_iq1_m)(const float *src, uint8_t *dst, const float *importance) {
  iq1_values values[2];
  iq1_found found[2];
  uint32_t codes[2][8] = {{0}}, which[2][8] = {{0}}, half = 0;
  const float sigma2 = importance ? iq1_sigma2(src) : 0.0f;
  for (int g = 0; g < 2; g++) {
    iq1_m_sums halves[2];
    iq1_load(16, src + 128 * g, importance ? importance + 128 * g : NULL, sigma2, 1e-7f,
             &values[g]);
    iq1_rank(16, &values[g]);
    iq1_m_add_up(&values[g], halves);
    const iq1_best best = iq1_m_search(halves);
    iq1_take(16, &values[g], &best, 3, &found[g]);
    if (!iq1_place(16, &values[g], &best, &found[g])) return 0;
  }
  const float largest = iq1_largest(v_max_f32(found[0].scale, found[1].scale));
  if (largest != 0.0f) {
    float d = largest / 15.0f;
    for (int g = 0; g < 2; g++) {
      iq1_scale_codes(found[g].scale, d, codes[g]);
      v_store(which[g], found[g].which);
    }
    d = iq1_m_fit(values, found, codes, d);
    if (!(d - d == 0.0f)) return 0;
    half = iq1_half(d * 1.1125f);
  }
  iq1_m_store(found, codes, half, which, (block_iq1_m *)dst);
  return 1;
}

V_ENCODER void V_NAME(encode_iq1_s)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, dst += sizeof(block_iq1_s))
      if (!V_NAME(block_iq1_s)(src, dst, weights + i))
        encode_iq1_s_scalar(src, dst, 1, 256, weights + i);
  v_end();
}

V_ENCODER void V_NAME(encode_iq1_m)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  for (; rows > 0; rows--)
    for (size_t i = 0; i < cols; i += 256, src += 256, dst += sizeof(block_iq1_m)) {
      const float *importance = weights ? weights + i : NULL;
      if (!V_NAME(block_iq1_m)(src, dst, importance))
        encode_iq1_m_scalar(src, dst, 1, 256, importance);
    }
  v_end();
}
