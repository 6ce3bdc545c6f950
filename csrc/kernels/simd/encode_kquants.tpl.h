/* The way to the K types: the searches of search.tpl.h in lanes of sub-blocks or super-blocks, then
 * the codes of one sub-block after another.
 *
 * Needs: k_scales.tpl.h, search.tpl.h. Defines: encode_* of Q2_K to Q6_K. */

#define SUPER 256 /* elements of a super-block */

/* A half float, as which it is returned too. */
AMN_FORCE_INLINE float store_half_of(uint8_t *p, float value) {
  uint8_t bytes[32];
  float read[8];
  v_store(bytes, v_f16_from_f32(v_set_f32(value), v_set_f32(value)));
  memcpy(p, bytes, 2);
  v_store_f32(read, v_load_f16_all(p));
  return read[0];
}

AMN_FORCE_INLINE vec_f32 negated_f32(vec_f32 a) {
  return v_f32_from_bits(v_xor(v_bits_f32(a), v_set_u32(0x80000000u)));
}

/* Eight u32 below 256 as bytes. */
AMN_FORCE_INLINE uint64_t bytes_of_u32(vec a) {
  uint64_t bytes[4];
  const vec words = v_pack_u32(a, a);
  v_store(bytes, v_pack_u16(words, words));
  return bytes[0];
}

/* 32 bytes: the codes 0 to largest of (x - min) / scale. */
AMN_FORCE_INLINE vec affine_codes(const float *x, int largest, float scale, float min) {
  vec codes[4];
  for (int i = 0; i < 4; i++) {
    const vec_f32 q = v_div_f32(v_sub_f32(v_load_f32(x + 8 * i), v_set_f32(min)), v_set_f32(scale));
    codes[i] = v_min_s32(v_max_s32(nearest_s32(q), v_zero()), v_set_u32((uint32_t)largest));
  }
  return v_pack_u16(v_pack_u32(codes[0], codes[1]), v_pack_u32(codes[2], codes[3]));
}

/* ---- Q4_K and Q5_K ---- */

/* Codes of 6 bits in 12 bytes, as k_scales_8 reads them. */
AMN_FORCE_INLINE void k_pack_8(uint64_t scales, uint64_t mins, uint8_t *dst) {
  const uint32_t scale = (uint32_t)(scales >> 32), min = (uint32_t)(mins >> 32);
  const uint32_t nibbles = 0x0f0f0f0f, tops = 0xc0c0c0c0;
  amn_store_u32(dst, (uint32_t)scales | (scale << 2 & tops));
  amn_store_u32(dst + 4, (uint32_t)mins | (min << 2 & tops));
  amn_store_u32(dst + 8, (scale & nibbles) | (min << 4 & ~nibbles));
}

AMN_FORCE_INLINE void q4_k_codes(const float *x, const k_scales *k, uint8_t *qs) {
  for (int i = 0; i < 8; i += 2, x += 64, qs += 32) {
    const vec low = affine_codes(x, 15, k->scale[i], k->min[i]);
    const vec high = affine_codes(x + 32, 15, k->scale[i + 1], k->min[i + 1]);
    v_store(qs, v_or(low, v_shl_u16(high, 4)));
  }
}

AMN_FORCE_INLINE void q5_k_codes(const float *x, const k_scales *k, uint8_t *qh, uint8_t *qs) {
  const vec one = v_set_u8(1), nibbles = v_set_u8(15);
  vec fifths = v_zero();
  for (int i = 0; i < 8; i += 2, x += 64, qs += 32) {
    const vec low = affine_codes(x, 31, k->scale[i], k->min[i]);
    const vec high = affine_codes(x + 32, 31, k->scale[i + 1], k->min[i + 1]);
    const vec tops =
        v_or(v_and(v_shr_u16(low, 4), one), v_shl_u16(v_and(v_shr_u16(high, 4), one), 1));
    fifths = v_or(fifths, v_shl_u16(tops, i));
    v_store(qs, v_or(v_and(low, nibbles), v_shl_u16(v_and(high, nibbles), 4)));
  }
  v_store(qh, fifths);
}

/* The way of either; 8 sub-blocks are lanes. */
typedef struct {
  int largest;
  size_t bytes;
  affine_plan plan;
  amn_encode_fn scalar;
} k_type;

#define Q4_K_TYPE ((k_type){15, sizeof(block_q4_k), {-1.0f, 0.1f, 21, 0}, encode_q4_k_scalar})
#define Q5_K_TYPE ((k_type){31, sizeof(block_q5_k), {-0.5f, 0.1f, 16, 0}, encode_q5_k_scalar})

/* All that follows once d, dmin and the 12 bytes are at dst; redo says for which sub-blocks that
 * was for nothing. */
AMN_FORCE_INLINE void k_finish(const k_type *type, const float *x, const float *weights,
                               const affine_found *found, uint8_t *dst) {
  k_scales k;
  k_scales_8(dst, 1.0f, &k);
  const vec is_zero = v_equal_u32(v_shl_u32(v_load(k.scale), 1), v_zero());
  if (v_any(v_or(found->is_wild, v_and_not(found->is_flat, is_zero))))
    type->scalar(x, dst, 1, SUPER, weights);
  else if (type->largest == 15)
    q4_k_codes(x, &k, dst + 16);
  else
    q5_k_codes(x, &k, dst + 16, dst + 48);
}

/* Codes up to 63 of what is at most `most`. */
AMN_FORCE_INLINE uint64_t k_codes_63(vec_f32 values, float most) {
  const float inverse = most > 0.0f ? 63.0f / most : 0.0f;
  const vec codes = v_and(nearest_s32(v_mul_f32(v_set_f32(inverse), values)), v_set_u32(255));
  return bytes_of_u32(v_min_s32(codes, v_set_u32(63)));
}

/* The largest of those above 0, or 0. */
AMN_FORCE_INLINE float largest_above_0(vec_f32 values) {
  return amn_f32_from_bits(v_largest_s32(v_bits_f32(v_max_f32(values, v_set_f32(0.0f)))));
}

AMN_FORCE_INLINE void k_store(const k_type *type, const float *x, const affine_found *found,
                              uint8_t *dst) {
  const vec_f32 mins = negated_f32(found->low);
  const float scale = largest_above_0(found->scale), min = largest_above_0(mins);
  store_half_of(dst, scale / 63.0f);
  store_half_of(dst + 2, min / 63.0f);
  k_pack_8(k_codes_63(found->scale, scale), k_codes_63(mins, min), dst + 4);
  k_finish(type, x, NULL, found, dst);
}

/* Weights: the root mean square of a sub-block, and the magnitude. */
AMN_FORCE_INLINE void k_load_lanes(const float *x, search_lanes *lanes) {
  load_runs(x, 32, 32, lanes->x);
  vec_f32 squares = v_set_f32(0.0f);
  for (int i = 0; i < 32; i++) squares = v_add_f32(squares, v_mul_f32(lanes->x[i], lanes->x[i]));
  const vec_f32 mean = v_sqrt_f32(v_mul_f32(squares, v_set_f32(1.0f / 32.0f)));
  for (int i = 0; i < 32; i++) lanes->weight[i] = v_add_f32(mean, magnitude_f32(lanes->x[i]));
}

/* Two super-blocks at a time; a last one alone is its own second. */
AMN_FORCE_INLINE void k_encode(const k_type *type, const float *src, uint8_t *dst, size_t n) {
  for (size_t at = 0; at < n; at += 2) {
    search_lanes lanes[2];
    affine_found found[2];
    const size_t both[2] = {at, at + 1 < n ? at + 1 : at};
    for (int g = 0; g < 2; g++) k_load_lanes(src + both[g] * SUPER, &lanes[g]);
    search_affine_lanes(32, type->largest, &type->plan, lanes, found);
    for (int g = 0; g < 2; g++)
      k_store(type, src + both[g] * SUPER, &found[g], dst + both[g] * type->bytes);
  }
}

/* ---- by importance: eight super-blocks at a time ---- */

#define SUPERS 8

/* What is known of each sub-block of eight super-blocks, and how much their elements weigh in all;
 * of Q4_K and Q5_K there are eight. */
typedef struct {
  float scale[SUPERS][16], min[SUPERS][16], sum[SUPERS][16];
} k_numbers;

/* factor * the sum of squares / 256, of eight super-blocks. */
AMN_FORCE_INLINE void k_squares(const float *x, float factor, float *squares) {
  vec_f32 sum = v_set_f32(0.0f);
  for (int at = 0; at < SUPER; at += 8) {
    vec_f32 some[8];
    load_runs(x + at, SUPER, 8, some);
    for (int i = 0; i < 8; i++) sum = v_add_f32(sum, v_mul_f32(some[i], some[i]));
  }
  sum = v_mul_f32(v_mul_f32(v_set_f32(factor), sum), v_set_f32(1.0f / SUPER));
  v_store_f32(squares, sum);
}

/* Eight sub-blocks of n; returns the sums of what they weigh. */
AMN_FORCE_INLINE vec_f32 load_by_importance(int n, const float *x, const float *importance,
                                            float square, search_lanes *lanes) {
  vec_f32 sum = v_set_f32(0.0f);
  load_runs(x, (size_t)n, n, lanes->x);
  load_runs(importance, (size_t)n, n, lanes->weight);
  for (int i = 0; i < n; i++) {
    const vec_f32 power = v_add_f32(v_set_f32(square), v_mul_f32(lanes->x[i], lanes->x[i]));
    lanes->weight[i] = v_mul_f32(lanes->weight[i], v_sqrt_f32(power));
    sum = v_add_f32(sum, lanes->weight[i]);
  }
  return sum;
}

/* Number i of each super-block in the lanes of out[i]. */
AMN_FORCE_INLINE void k_across(const float numbers[SUPERS][16], int n, vec_f32 *out) {
  load_runs(numbers[0], 16, n, out);
}

/* Codes, a vector for each sub-block, to bytes by super-block. */
AMN_FORCE_INLINE void k_codes_of(const vec *codes, int n, uint8_t out[SUPERS][16]) {
  for (int i = 0; i < n; i++) {
    const uint64_t bytes = bytes_of_u32(codes[i]);
    for (int s = 0; s < SUPERS; s++) out[s][i] = (uint8_t)(bytes >> (8 * s));
  }
}

/* Scales and mins of n sub-blocks of each super-block, as codes and two factors. */
typedef struct {
  uint8_t scale[SUPERS][16], min[SUPERS][16];
  float d[SUPERS], dmin[SUPERS];
} k_factors;

AMN_FORCE_INLINE void k_factor(int n, int largest, const k_numbers *numbers, k_factors *out) {
  vec_f32 x[16], weight[16];
  vec codes[16];
  k_across(numbers->sum, n, weight);
  k_across(numbers->scale, n, x);
  v_store_f32(out->d, search_positive_lanes(n, largest, x, weight, codes));
  k_codes_of(codes, n, out->scale);
  k_across(numbers->min, n, x);
  v_store_f32(out->dmin, search_positive_lanes(n, largest, x, weight, codes));
  k_codes_of(codes, n, out->min);
}

static const affine_plan PLAN_BY_IMPORTANCE = {-0.9f, 0.05f, 37, 0};

AMN_FORCE_INLINE uint64_t bytes_at_most(const uint8_t *bytes, uint8_t most) {
  uint64_t out = 0;
  for (int i = 7; i >= 0; i--) out = out << 8 | (bytes[i] < most ? bytes[i] : most);
  return out;
}

/* Eight super-blocks, whose columns have their importance at weights[s]. */
AMN_FORCE_INLINE void k_encode_by_importance(const k_type *type, const float *x,
                                             const float *const *weights, uint8_t *dst) {
  k_numbers numbers;
  k_factors factors;
  affine_found found[SUPERS];
  float squares[SUPERS];
  k_squares(x, 2.0f, squares);
  for (int s = 0; s < SUPERS; s += 2) {
    search_lanes lanes[2];
    for (int g = 0; g < 2; g++) {
      const vec_f32 sums =
          load_by_importance(32, x + (s + g) * SUPER, weights[s + g], squares[s + g], &lanes[g]);
      v_store_f32(numbers.sum[s + g], sums);
    }
    search_affine_lanes(32, type->largest, &PLAN_BY_IMPORTANCE, lanes, found + s);
    for (int g = 0; g < 2; g++) {
      v_store_f32(numbers.scale[s + g], found[s + g].scale);
      v_store_f32(numbers.min[s + g], negated_f32(found[s + g].low));
    }
  }
  k_factor(8, 63, &numbers, &factors);
  for (int s = 0; s < SUPERS; s++, x += SUPER, dst += type->bytes) {
    const uint8_t most = type->largest == 31 ? 63 : 255; /* Q4_K lets codes be more */
    store_half_of(dst, factors.d[s]);
    store_half_of(dst + 2, factors.dmin[s]);
    k_pack_8(bytes_at_most(factors.scale[s], most), bytes_at_most(factors.min[s], most), dst + 4);
    k_finish(type, x, weights[s], &found[s], dst);
  }
}

/* Calls for groups of eight super-blocks of all rows; the scalar code has what is left. */
#define BY_IMPORTANCE(group, scalar, bytes)                                                    \
  do {                                                                                         \
    const size_t n = rows * cols / SUPER, in_row = cols / SUPER;                               \
    size_t at = 0;                                                                             \
    for (; at + SUPERS <= n; at += SUPERS) {                                                   \
      const float *importance[SUPERS];                                                         \
      for (size_t s = 0; s < SUPERS; s++) importance[s] = weights + (at + s) % in_row * SUPER; \
      group(src + at * SUPER, importance, dst + at * (bytes));                                 \
    }                                                                                          \
    for (; at < n; at++)                                                                       \
      scalar(src + at * SUPER, dst + at * (bytes), 1, SUPER, weights + at % in_row * SUPER);   \
  } while (0)

static void V_NAME(q4_k_by_importance)(const float *x, const float *const *weights, uint8_t *dst) {
  const k_type type = Q4_K_TYPE;
  k_encode_by_importance(&type, x, weights, dst);
}

static void V_NAME(q5_k_by_importance)(const float *x, const float *const *weights, uint8_t *dst) {
  const k_type type = Q5_K_TYPE;
  k_encode_by_importance(&type, x, weights, dst);
}

V_ENCODER void V_NAME(encode_q4_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  const k_type type = Q4_K_TYPE;
  if (weights != NULL)
    BY_IMPORTANCE(V_NAME(q4_k_by_importance), encode_q4_k_scalar, sizeof(block_q4_k));
  else
    k_encode(&type, src, dst, rows * cols / SUPER);
  v_end();
}

V_ENCODER void V_NAME(encode_q5_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  const k_type type = Q5_K_TYPE;
  if (weights != NULL)
    BY_IMPORTANCE(V_NAME(q5_k_by_importance), encode_q5_k_scalar, sizeof(block_q5_k));
  else
    k_encode(&type, src, dst, rows * cols / SUPER);
  v_end();
}

/* ---- Q6_K and Q3_K: scales without mins ---- */

/* 16 bytes: the codes low to high of (x + min) / scale, less low. */
AMN_FORCE_INLINE void settle_16(const float *x, float scale, float min, int low, int high,
                                uint8_t *codes) {
  vec found[2];
  uint8_t bytes[32];
  for (int i = 0; i < 2; i++) {
    const vec_f32 moved = v_add_f32(v_load_f32(x + 8 * i), v_set_f32(min));
    const vec level = nearest_s32(v_div_f32(moved, v_set_f32(scale)));
    const vec below = v_min_s32(level, v_set_u32((uint32_t)high));
    found[i] = v_sub_u32(v_max_s32(below, v_set_u32((uint32_t)low)), v_set_u32((uint32_t)low));
  }
  const vec words = v_pack_u32(found[0], found[1]);
  v_store(bytes, v_pack_u16(words, words));
  memcpy(codes, bytes, 16);
}

/* 0 is what a sub-block of zeros has; any other that has lost its scale keeps the search's codes,
 * which only the scalar code knows: then this returns 0. */
AMN_FORCE_INLINE int settle_or_0(const float *x, float scale, int is_zero, int low, int high,
                                 uint8_t *codes) {
  if (scale != 0.0f)
    settle_16(x, scale, 0.0f, low, high, codes);
  else
    memset(codes, 0, 16);
  return scale != 0.0f || is_zero;
}

AMN_FORCE_INLINE float magnitude_of(float a) {
  return amn_f32_from_bits(amn_f32_bits(a) & 0x7fffffffu);
}

/* The first of the largest magnitudes. */
AMN_FORCE_INLINE float extreme_of_floats(int n, const float *scales) {
  float extreme = 0.0f;
  for (int i = 0; i < n; i++)
    if (magnitude_of(scales[i]) > magnitude_of(extreme)) extreme = scales[i];
  return extreme;
}

AMN_FORCE_INLINE void q6_k_pack(const uint8_t *codes, block_q6_k *block) {
  const vec nibbles = v_set_u8(15), pairs = v_set_u8(3);
  for (int half = 0; half < 2; half++, codes += 128) {
    vec q[4], tops = v_zero();
    for (int i = 0; i < 4; i++) {
      q[i] = v_load(codes + 32 * i);
      tops = v_or(tops, v_shl_u16(v_and(v_shr_u16(q[i], 4), pairs), 2 * i));
    }
    for (int i = 0; i < 2; i++)
      v_store(block->ql + 64 * half + 32 * i,
              v_or(v_and(q[i], nibbles), v_shl_u16(v_and(q[i + 2], nibbles), 4)));
    v_store(block->qh + 32 * half, tops);
  }
}

/* The codes of scales, and how they are used; 0 if the scalar code must do it. */
AMN_FORCE_INLINE int q6_k_finish(const float *x, const float *scales, const uint32_t *is_zero,
                                 block_q6_k *block) {
  const float extreme = extreme_of_floats(16, scales);
  if (magnitude_of(extreme) < SEARCH_NONE) {
    memset(block, 0, sizeof *block);
    return 1;
  }
  const float inverse = -128.0f / extreme;
  const float d = store_half_of(block->d, 1.0f / inverse);
  uint32_t scale_codes[16];
  uint8_t codes[SUPER];
  for (int i = 0; i < 16; i += 8) {
    const vec level = nearest_s32(v_mul_f32(v_set_f32(inverse), v_load_f32(scales + i)));
    v_store(scale_codes + i, v_min_s32(level, v_set_u32(127)));
  }
  int is_done = 1;
  for (int i = 0; i < 16; i++) {
    const int8_t code = (int8_t)scale_codes[i];
    block->scales[i] = (uint8_t)code;
    is_done &= settle_or_0(x + 16 * i, d * (float)code, is_zero[i] != 0, -32, 31, codes + 16 * i);
  }
  q6_k_pack(codes, block);
  return is_done;
}

V_ENCODER void V_NAME(encode_q6_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  const size_t n = rows * cols / SUPER, in_row = cols / SUPER;
  for (size_t at = 0; at < n; at++, src += SUPER, dst += sizeof(block_q6_k)) {
    const float *importance = weights == NULL ? NULL : weights + at % in_row * SUPER;
    float scales[16];
    uint32_t is_zero[16];
    for (int i = 0; i < 16; i += 8) {
      search_lanes lanes;
      load_runs(src + 16 * i, 16, 16, lanes.x);
      if (importance != NULL) load_runs(importance + 16 * i, 16, 16, lanes.weight);
      for (int k = 0; k < 16 && importance == NULL; k++)
        lanes.weight[k] = v_mul_f32(lanes.x[k], lanes.x[k]);
      const symmetric_found found = search_symmetric_lanes(16, 32, &lanes);
      v_store_f32(scales + i, found.scale);
      v_store(is_zero + i, found.is_zero);
    }
    if (!q6_k_finish(src, scales, is_zero, (block_q6_k *)dst))
      encode_q6_k_scalar(src, dst, 1, SUPER, importance);
  }
  v_end();
}

/* ---- Q3_K ---- */

#define DESCENTS 4 /* groups of eight sub-blocks: what one waits for, the others do */

/* The way of one group; levels are whole numbers. */
typedef struct {
  vec_f32 x[16], weight[16], weighed[16], levels[16], sum_xl, sum_l2;
  vec is_zero;
} descent;

/* Levels -4 to 3 of the extreme. */
AMN_FORCE_INLINE void descent_begin(const float *x, descent *way) {
  load_runs(x, 16, 16, way->x);
  const vec_f32 extreme = extreme_lanes(16, way->x);
  const vec_f32 inverse = v_div_f32(v_set_f32(-4.0f), extreme);
  way->sum_xl = way->sum_l2 = v_set_f32(0.0f);
  way->is_zero = v_greater_f32(v_set_f32(SEARCH_NONE), magnitude_f32(extreme));
  for (int i = 0; i < 16; i++) {
    const vec_f32 level = nearest_level(v_mul_f32(inverse, way->x[i]), -4.0f, 3.0f);
    way->weight[i] = v_mul_f32(way->x[i], way->x[i]);
    way->weighed[i] = v_mul_f32(way->weight[i], way->x[i]);
    way->levels[i] = level;
    way->sum_xl = v_add_f32(way->sum_xl, v_mul_f32(way->weighed[i], level));
    way->sum_l2 = v_add_f32(way->sum_l2, v_mul_f32(v_mul_f32(way->weight[i], level), level));
  }
}

/* Level i is replaced where that gains; returns where. */
AMN_FORCE_INLINE vec descent_step(int i, descent *way) {
  const vec_f32 zero = v_set_f32(0.0f), old = way->levels[i], weight = way->weight[i];
  vec_f32 xl = v_sub_f32(way->sum_xl, v_mul_f32(way->weighed[i], old));
  vec_f32 l2 = v_sub_f32(way->sum_l2, v_mul_f32(v_mul_f32(weight, old), old));
  const vec may = v_greater_f32(xl, zero);
  const vec nearest = nearest_s32(v_div_f32(v_mul_f32(way->x[i], l2), xl));
  const vec within = v_max_s32(v_min_s32(nearest, v_set_u32(3)), v_set_u32(0u - 4u));
  const vec differs = v_and_not(v_equal_u32(within, v_s32_from_f32(old)), may);
  if (!v_any(differs)) return v_zero(); /* most steps of the later passes */
  const vec_f32 level = v_f32_from_s32(within);
  xl = v_add_f32(xl, v_mul_f32(way->weighed[i], level));
  l2 = v_add_f32(l2, v_mul_f32(v_mul_f32(weight, level), level));
  const vec gains = v_greater_f32(v_mul_f32(v_mul_f32(xl, xl), way->sum_l2),
                                  v_mul_f32(v_mul_f32(way->sum_xl, way->sum_xl), l2));
  const vec is_better = v_and(v_and(differs, gains), v_greater_f32(l2, zero));
  way->levels[i] = choose_f32(is_better, level, old);
  way->sum_xl = choose_f32(is_better, xl, way->sum_xl);
  way->sum_l2 = choose_f32(is_better, l2, way->sum_l2);
  return is_better;
}

/* make_q3_quants: up to five passes; one that changes nothing is the last. */
AMN_FORCE_INLINE void search_descending_lanes(const float *const x[DESCENTS],
                                              vec_f32 scales[DESCENTS], vec is_zero[DESCENTS]) {
  descent ways[DESCENTS];
  for (int g = 0; g < DESCENTS; g++) descent_begin(x[g], &ways[g]);
  for (int pass = 0; pass < 5; pass++) {
    vec changed = v_zero();
    for (int i = 0; i < 16; i++)
      for (int g = 0; g < DESCENTS; g++) changed = v_or(changed, descent_step(i, &ways[g]));
    if (!v_any(changed)) break;
  }
  for (int g = 0; g < DESCENTS; g++) {
    const vec is_some = v_greater_f32(ways[g].sum_l2, v_set_f32(0.0f));
    const vec bits = v_bits_f32(v_div_f32(ways[g].sum_xl, ways[g].sum_l2));
    is_zero[g] = ways[g].is_zero;
    scales[g] = v_f32_from_bits(v_and_not(is_zero[g], v_and(is_some, bits)));
  }
}

/* In the order that dequant_q3_k_scalar reads. */
AMN_FORCE_INLINE void q3_k_pack_scales(const uint8_t *codes, uint8_t *dst) {
  for (int i = 0; i < 8; i++) dst[i] = (uint8_t)((codes[i] & 15) | (codes[i + 8] & 15) << 4);
  for (int i = 0; i < 4; i++)
    dst[8 + i] = (uint8_t)(codes[i] >> 4 | codes[i + 4] >> 4 << 2 | codes[i + 8] >> 4 << 4 |
                           codes[i + 12] >> 4 << 6);
}

/* Two bits of each code, four to a byte, those of elements 32 apart. */
AMN_FORCE_INLINE void pack_pairs_of(const uint8_t *codes, uint8_t *dst) {
  for (int half = 0; half < 2; half++, codes += 128, dst += 32) {
    vec q = v_zero();
    for (int i = 0; i < 4; i++)
      q = v_or(q, v_shl_u16(v_and(v_load(codes + 32 * i), v_set_u8(3)), 2 * i));
    v_store(dst, q);
  }
}

/* 0 if the scalar code must do it. */
AMN_FORCE_INLINE int q3_k_finish(const float *x, const uint8_t *scale_codes, float found,
                                 const uint32_t *is_zero, block_q3_k *block) {
  uint8_t codes[SUPER];
  const float d = store_half_of(block->d, found);
  int is_done = 1;
  q3_k_pack_scales(scale_codes, block->scales);
  for (int i = 0; i < 16; i++) {
    const float scale = d * (float)(scale_codes[i] - 32);
    is_done &= settle_or_0(x + 16 * i, scale, is_zero[i] != 0, -4, 3, codes + 16 * i);
  }
  vec thirds = v_zero();
  for (int i = 0; i < 8; i++)
    thirds = v_or(thirds, v_shl_u16(v_and(v_shr_u16(v_load(codes + 32 * i), 2), v_set_u8(1)), i));
  v_store(block->hmask, thirds);
  pack_pairs_of(codes, block->qs);
  return is_done;
}

AMN_FORCE_INLINE void q3_k_store(const float *x, const float *scales, const uint32_t *is_zero,
                                 uint8_t *dst) {
  uint32_t levels[16];
  uint8_t scale_codes[16] = {0};
  const float extreme = extreme_of_floats(16, scales);
  const float inverse = -32.0f / extreme;
  for (int i = 0; i < 16; i += 8)
    v_store(levels + i, nearest_s32(v_mul_f32(v_set_f32(inverse), v_load_f32(scales + i))));
  for (int i = 0; i < 16 && extreme != 0.0f; i++) {
    const int8_t level = (int8_t)levels[i];
    scale_codes[i] = (uint8_t)((level < -32 ? -32 : level > 31 ? 31 : level) + 32);
  }
  const float found = extreme != 0.0f ? 1.0f / inverse : 0.0f;
  if (!q3_k_finish(x, scale_codes, found, is_zero, (block_q3_k *)dst))
    encode_q3_k_scalar(x, dst, 1, SUPER, NULL);
}

/* Two super-blocks at a time; a last one alone is its own second. */
AMN_FORCE_INLINE void q3_k_encode(const float *src, uint8_t *dst, size_t n) {
  for (size_t at = 0; at < n; at += 2) {
    const size_t other = at + 1 < n ? 1 : 0;
    const float *x[2] = {src + at * SUPER, src + (at + other) * SUPER};
    const float *halves[DESCENTS] = {x[0], x[0] + 128, x[1], x[1] + 128};
    vec_f32 found[DESCENTS];
    vec zeros[DESCENTS];
    float scales[2][16];
    uint32_t is_zero[2][16];
    search_descending_lanes(halves, found, zeros);
    for (int g = 0; g < DESCENTS; g++) {
      v_store_f32(scales[g / 2] + g % 2 * 8, found[g]);
      v_store(is_zero[g / 2] + g % 2 * 8, zeros[g]);
    }
    for (size_t s = 0; s <= other; s++)
      q3_k_store(x[s], scales[s], is_zero[s], dst + (at + s) * sizeof(block_q3_k));
  }
}

static void V_NAME(q3_k_by_importance)(const float *x, const float *const *weights, uint8_t *dst) {
  k_numbers numbers;
  uint32_t is_zero[SUPERS][16];
  uint8_t scale_codes[SUPERS][16];
  float squares[SUPERS], d[SUPERS];
  int is_wild[SUPERS] = {0}; /* its scales are no numbers for search_symmetric_lanes */
  k_squares(x, 2.0f, squares);
  for (int s = 0; s < SUPERS; s++)
    for (int i = 0; i < 16; i += 8) {
      search_lanes lanes;
      const vec_f32 sums =
          load_by_importance(16, x + s * SUPER + 16 * i, weights[s] + 16 * i, squares[s], &lanes);
      const symmetric_found found = search_symmetric_lanes(16, 4, &lanes);
      v_store_f32(numbers.sum[s] + i, sums);
      v_store_f32(numbers.scale[s] + i, found.scale);
      v_store(is_zero[s] + i, found.is_zero);
      is_wild[s] |= any_not_finite(found.scale);
    }
  search_lanes lanes;
  vec codes[16];
  k_across(numbers.scale, 16, lanes.x);
  k_across(numbers.sum, 16, lanes.weight);
  const symmetric_found found = search_symmetric_lanes(16, 32, &lanes);
  for (int i = 0; i < 16; i++) {
    const vec_f32 level = nearest_level(v_mul_f32(found.inverse, lanes.x[i]), -32.0f, 31.0f);
    const vec code = v_s32_from_f32(v_add_f32(level, v_set_f32(32.0f)));
    codes[i] = v_and_not(found.is_zero, code);
  }
  k_codes_of(codes, 16, scale_codes);
  v_store_f32(d, found.scale);
  for (int s = 0; s < SUPERS; s++, x += SUPER, dst += sizeof(block_q3_k))
    if (is_wild[s] || !q3_k_finish(x, scale_codes[s], d[s], is_zero[s], (block_q3_k *)dst))
      encode_q3_k_scalar(x, dst, 1, SUPER, weights[s]);
}

V_ENCODER void V_NAME(encode_q3_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    BY_IMPORTANCE(V_NAME(q3_k_by_importance), encode_q3_k_scalar, sizeof(block_q3_k));
  else
    q3_k_encode(src, dst, rows * cols / SUPER);
  v_end();
}

/* ---- Q2_K: 16 sub-blocks of scale and min, 4 bits each ---- */

/* For scales, mins, d and dmin as they are stored; by the scalar code where the search's codes
 * count. */
AMN_FORCE_INLINE void q2_k_finish(const float *x, const float *weights, const affine_found found[2],
                                  block_q2_k *block) {
  float d[8], dmin[8];
  uint32_t is_flat[16], is_wild[16];
  uint8_t codes[SUPER];
  int is_done = 1;
  v_store_f32(d, v_load_f16_all(block->d));
  v_store_f32(dmin, v_load_f16_all(block->dmin));
  for (int g = 0; g < 2; g++) {
    v_store(is_flat + 8 * g, found[g].is_flat);
    v_store(is_wild + 8 * g, found[g].is_wild);
  }
  for (int i = 0; i < 16; i++) {
    const float scale = d[0] * (float)(block->scales[i] & 15);
    const float min = dmin[0] * (float)(block->scales[i] >> 4);
    if (scale != 0.0f)
      settle_16(x + 16 * i, scale, min, 0, 3, codes + 16 * i);
    else
      memset(codes + 16 * i, 0, 16);
    is_done &= (scale != 0.0f || is_flat[i] != 0) && is_wild[i] == 0;
  }
  pack_pairs_of(codes, block->qs);
  if (!is_done) encode_q2_k_scalar(x, (uint8_t *)block, 1, SUPER, weights);
}

/* 15 / most * value, of none if none is above 0. */
AMN_FORCE_INLINE vec q2_k_codes(vec_f32 values, float most) {
  if (!(most > 0.0f)) return v_zero();
  return v_and(nearest_s32(v_mul_f32(v_set_f32(15.0f / most), values)), v_set_u32(255));
}

AMN_FORCE_INLINE void q2_k_encode(const float *x, block_q2_k *block) {
  static const affine_plan plan = {-0.5f, 0.1f, 16, 1};
  search_lanes lanes[2];
  affine_found found[2];
  vec_f32 mins[2];
  for (int g = 0; g < 2; g++) {
    load_runs(x + 128 * g, 16, 16, lanes[g].x);
    for (int i = 0; i < 16; i++) lanes[g].weight[i] = magnitude_f32(lanes[g].x[i]);
  }
  search_affine_lanes(16, 3, &plan, lanes, found);
  for (int g = 0; g < 2; g++) mins[g] = negated_f32(found[g].low);
  const float scale = largest_above_0(v_max_f32(v_max_f32(found[0].scale, v_set_f32(0.0f)),
                                                v_max_f32(found[1].scale, v_set_f32(0.0f))));
  const float min = largest_above_0(
      v_max_f32(v_max_f32(mins[0], v_set_f32(0.0f)), v_max_f32(mins[1], v_set_f32(0.0f))));
  for (int g = 0; g < 2; g++) {
    const uint64_t scales = bytes_of_u32(q2_k_codes(found[g].scale, scale));
    const vec min_codes = v_and(v_shl_u32(q2_k_codes(mins[g], min), 4), v_set_u32(255));
    const uint64_t bytes = scales | bytes_of_u32(min_codes);
    memcpy(block->scales + 8 * g, &bytes, 8);
  }
  store_half_of(block->d, scale / 15.0f);
  store_half_of(block->dmin, min / 15.0f);
  q2_k_finish(x, NULL, found, block);
}

static void V_NAME(q2_k_by_importance)(const float *x, const float *const *weights, uint8_t *dst) {
  k_numbers numbers;
  k_factors factors;
  affine_found found[SUPERS][2];
  float squares[SUPERS];
  k_squares(x, 1.0f, squares);
  for (int s = 0; s < SUPERS; s++) {
    search_lanes lanes[2];
    for (int g = 0; g < 2; g++) {
      const vec_f32 sums = load_by_importance(16, x + s * SUPER + 128 * g, weights[s] + 128 * g,
                                              squares[s], &lanes[g]);
      v_store_f32(numbers.sum[s] + 8 * g, sums);
    }
    search_affine_lanes(16, 3, &PLAN_BY_IMPORTANCE, lanes, found[s]);
    for (int g = 0; g < 2; g++) {
      v_store_f32(numbers.scale[s] + 8 * g, found[s][g].scale);
      v_store_f32(numbers.min[s] + 8 * g, negated_f32(found[s][g].low));
    }
  }
  k_factor(16, 15, &numbers, &factors);
  for (int s = 0; s < SUPERS; s++, x += SUPER, dst += sizeof(block_q2_k)) {
    block_q2_k *block = (block_q2_k *)dst;
    for (int i = 0; i < 16; i++)
      block->scales[i] = (uint8_t)(factors.scale[s][i] | factors.min[s][i] << 4);
    store_half_of(block->d, factors.d[s]);
    store_half_of(block->dmin, factors.dmin[s]);
    q2_k_finish(x, weights[s], found[s], block);
  }
}

V_ENCODER void V_NAME(encode_q2_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    BY_IMPORTANCE(V_NAME(q2_k_by_importance), encode_q2_k_scalar, sizeof(block_q2_k));
  else
    for (size_t n = rows * cols / SUPER; n > 0; n--, src += SUPER, dst += sizeof(block_q2_k))
      q2_k_encode(src, (block_q2_k *)dst);
  v_end();
}
