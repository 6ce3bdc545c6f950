/* The way to the K types: the searches of search.tpl.h in lanes of sub-blocks or super-blocks, then
 * the codes of one sub-block after another.
 *
 * Needs: kquants.tpl.h, search.tpl.h. Defines: encode_* of Q2_K to Q6_K. */

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

/* make_qp_quants: nine scales about the one that gives the largest the level `largest`, then the
 * codes one by one. Codes wrap around below 0. */
AMN_FORCE_INLINE vec_f32 search_positive_lanes(int n, int largest, const vec_f32 *x,
                                               const vec_f32 *weight, vec *codes) {
  const vec_f32 zero = v_set_f32(0.0f), one = v_set_f32(1.0f);
  const vec most_code = v_set_u32((uint32_t)largest), byte = v_set_u32(255);
  vec_f32 most = zero;
  for (int i = 0; i < n; i++) most = v_max_f32(most, x[i]);
  const vec is_zero = v_greater_f32(v_set_f32(SEARCH_NONE), most);
  vec_f32 inverse = v_div_f32(v_set_f32((float)largest), most), best = zero;
  vec_f32 scale = v_div_f32(one, inverse);
  for (int i = 0; i < n; i++) {
    const vec level = v_and(nearest_s32(v_mul_f32(inverse, x[i])), byte);
    const vec_f32 off = v_sub_f32(x[i], v_mul_f32(scale, v_f32_from_s32(level)));
    best = v_add_f32(best, v_mul_f32(v_mul_f32(weight[i], off), off));
  }
  for (int k = -4; k <= 4; k++) {
    if (k == 0) continue;
    const vec_f32 trial = v_div_f32(v_set_f32(0.1f * (float)k + (float)largest), most);
    vec_f32 error = zero;
    scale = v_div_f32(one, trial);
    for (int i = 0; i < n; i++) {
      const vec level = v_min_s32(nearest_s32(v_mul_f32(trial, x[i])), most_code);
      const vec_f32 off = v_sub_f32(x[i], v_mul_f32(scale, v_f32_from_s32(level)));
      error = v_add_f32(error, v_mul_f32(v_mul_f32(weight[i], off), off));
    }
    const vec is_better = v_greater_f32(best, error);
    best = choose_f32(is_better, error, best);
    inverse = choose_f32(is_better, trial, inverse);
  }
  vec_f32 sum_xl = zero, sum_l2 = zero, weighed[16];
  for (int i = 0; i < n; i++) {
    const vec level = v_min_s32(nearest_s32(v_mul_f32(inverse, x[i])), most_code);
    const vec_f32 l = v_f32_from_s32(level);
    weighed[i] = v_mul_f32(weight[i], x[i]);
    codes[i] = v_and(level, byte);
    sum_xl = v_add_f32(sum_xl, v_mul_f32(weighed[i], l));
    sum_l2 = v_add_f32(sum_l2, v_mul_f32(v_mul_f32(weight[i], l), l));
  }
  for (int pass = 0; pass < 5; pass++) {
    vec changed = v_zero();
    for (int i = 0; i < n; i++) {
      const vec_f32 old = v_f32_from_s32(codes[i]);
      vec_f32 xl = v_sub_f32(sum_xl, v_mul_f32(weighed[i], old));
      vec_f32 l2 = v_sub_f32(sum_l2, v_mul_f32(v_mul_f32(weight[i], old), old));
      const vec may = v_and(v_greater_f32(xl, zero), v_greater_f32(l2, zero));
      const vec level = v_min_s32(nearest_s32(v_div_f32(v_mul_f32(x[i], l2), xl)), most_code);
      const vec_f32 l = v_f32_from_s32(level);
      xl = v_add_f32(xl, v_mul_f32(weighed[i], l));
      l2 = v_add_f32(l2, v_mul_f32(v_mul_f32(weight[i], l), l));
      const vec gains = v_greater_f32(v_mul_f32(v_mul_f32(xl, xl), sum_l2),
                                      v_mul_f32(v_mul_f32(sum_xl, sum_xl), l2));
      const vec is_better = v_and_not(v_equal_u32(level, codes[i]), v_and(may, gains));
      codes[i] = v_select(is_better, v_and(level, byte), codes[i]);
      sum_xl = choose_f32(is_better, xl, sum_xl);
      sum_l2 = choose_f32(is_better, l2, sum_l2);
      changed = v_or(changed, is_better);
    }
    if (!v_any(changed)) break;
  }
  for (int i = 0; i < n; i++) codes[i] = v_and_not(is_zero, codes[i]);
  const vec is_none = v_or(is_zero, v_xor(v_greater_f32(sum_l2, zero), v_set_u8(255)));
  return v_f32_from_bits(v_and_not(is_none, v_bits_f32(v_div_f32(sum_xl, sum_l2))));
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

static void V_NAME(encode_q4_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  const k_type type = Q4_K_TYPE;
  if (weights != NULL)
    BY_IMPORTANCE(V_NAME(q4_k_by_importance), encode_q4_k_scalar, sizeof(block_q4_k));
  else
    k_encode(&type, src, dst, rows * cols / SUPER);
  v_end();
}

static void V_NAME(encode_q5_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
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
AMN_FORCE_INLINE float extreme_of_16(const float *scales) {
  float extreme = 0.0f;
  for (int i = 0; i < 16; i++)
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
  const float extreme = extreme_of_16(scales);
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

static void V_NAME(encode_q6_k)(const float *src, uint8_t *dst, size_t rows, size_t cols,
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
