/* The way to the GGUF types of 32 elements and a scale.
 *
 * Needs: encode_blocks.tpl.h. Defines: encode_* of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0. */

/* 32 numbers that are not below 0, cut off, as bytes. */
AMN_FORCE_INLINE vec cut_to_u8(const vec_f32 values[4]) {
  return v_pack_s32(v_s32_cut_f32(values[0]), v_s32_cut_f32(values[1]), v_s32_cut_f32(values[2]),
                    v_s32_cut_f32(values[3]));
}

/* Two blocks of codes below 16: 16 in low nibbles, 16 in high ones. */
AMN_FORCE_INLINE void store_nibbles_of(vec a, vec b, uint8_t *qs_a, uint8_t *qs_b) {
  const vec high = v_shl_u16(v_upper_lanes(a, b), 4);
  v_store_lanes(qs_a, qs_b, v_or(v_lower_lanes(a, b), high));
}

/* The same of codes below 32, whose fifth bits are apart. */
AMN_FORCE_INLINE void store_nibbles_and_bits(vec a, vec b, uint8_t *qs_a, uint8_t *qs_b,
                                             uint8_t *qh_a, uint8_t *qh_b) {
  const vec nibbles = v_set_u8(15);
  amn_store_u32(qh_a, v_signs_u8(v_shl_u16(a, 3)));
  amn_store_u32(qh_b, v_signs_u8(v_shl_u16(b, 3)));
  store_nibbles_of(v_and(a, nibbles), v_and(b, nibbles), qs_a, qs_b);
}

/* ---- x = d * (code - half) ---- */

/* The first of the largest magnitude of eight blocks, with their signs. */
AMN_FORCE_INLINE vec_f32 extremes_of(const float *src) {
  const vec_f32 high = fold_blocks(larger_f32, src, 32), low = fold_blocks(smaller_f32, src, 32);
  const vec_f32 below = v_sub_f32(v_set_f32(0), low);
  const vec is_high = v_greater_f32(high, below);
  vec_f32 extremes = v_f32_from_bits(v_select(is_high, v_bits_f32(high), v_bits_f32(low)));
  extremes = v_add_f32(extremes, v_set_f32(0)); /* no -0 */
  const vec is_both =
      v_and(v_equal_u32(v_bits_f32(high), v_bits_f32(below)), v_greater_f32(high, v_set_f32(0)));
  if (v_any(is_both)) {
    float each[LANES], most[LANES];
    v_store_f32(each, extremes);
    v_store_f32(most, high);
    for (int i = 0; i < LANES; i++, src += 32)
      for (int k = 0; each[i] == -most[i] && k < 32 && src[k] != each[i]; k++)
        if (src[k] == most[i]) each[i] = most[i];
    extremes = v_load_f32(each);
  }
  return extremes;
}

/* A block's 32 codes: of x / d + half + 0.5 the rest is cut off. */
AMN_FORCE_INLINE vec symmetric_codes(const float *x, float inverse, int half) {
  const vec_f32 by = v_set_f32(inverse), plus = v_set_f32((float)half + 0.5f);
  vec_f32 values[4];
  for (int i = 0; i < 4; i++) values[i] = v_add_f32(v_mul_f32(v_load_f32(x + 8 * i), by), plus);
  return v_min_u8(cut_to_u8(values), v_set_u8((uint8_t)(2 * half - 1)));
}

static int V_NAME(group_q4_0)(const float *src, uint8_t *dst) {
  block_q4_0 *block = (block_q4_0 *)dst;
  const vec_f32 d = v_mul_f32(extremes_of(src), v_set_f32(-1.0f / 8.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i += 2, src += 64)
    store_nibbles_of(symmetric_codes(src, inverses[i], 8),
                     symmetric_codes(src + 32, inverses[i + 1], 8), block[i].qs, block[i + 1].qs);
  return 1;
}

static int V_NAME(group_q5_0)(const float *src, uint8_t *dst) {
  block_q5_0 *block = (block_q5_0 *)dst;
  const vec_f32 d = v_mul_f32(extremes_of(src), v_set_f32(-1.0f / 16.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i += 2, src += 64)
    store_nibbles_and_bits(symmetric_codes(src, inverses[i], 16),
                           symmetric_codes(src + 32, inverses[i + 1], 16), block[i].qs,
                           block[i + 1].qs, block[i].qh, block[i + 1].qh);
  return 1;
}

static void V_NAME(encode_q4_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  if (weights != NULL) {
    encode_q4_0_scalar(src, dst, rows, cols, weights);
    return;
  }
  encode_groups(ENCODED_TYPE(q4_0, LANES), src, dst, rows * cols / 32);
}

static void V_NAME(encode_q5_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  if (weights != NULL) {
    encode_q5_0_scalar(src, dst, rows, cols, weights);
    return;
  }
  encode_groups(ENCODED_TYPE(q5_0, LANES), src, dst, rows * cols / 32);
}

/* ---- x = d * code + m ---- */

/* The least numbers of eight blocks; of zeros the first one. */
AMN_FORCE_INLINE vec_f32 least_of(const float *src) {
  const vec_f32 least = fold_blocks(smaller_f32, src, 32);
  const vec is_zero = v_equal_u32(v_shl_u32(v_bits_f32(least), 1), v_zero());
  if (!v_any(is_zero)) return least;
  float each[LANES];
  v_store_f32(each, least);
  for (int i = 0; i < LANES; i++, src += 32) {
    int k = 0;
    while (each[i] == 0.0f && src[k] != 0.0f) k++;
    if (each[i] == 0.0f) each[i] = src[k];
  }
  return v_load_f32(each);
}

/* What eight blocks have of their own. */
typedef struct {
  float low[LANES], inverse[LANES];
} affine_group;

/* Their scales and least numbers, for codes up to `largest`; d is followed by m. */
AMN_FORCE_INLINE int affine_ends(const float *src, float largest, uint8_t *d, size_t step,
                                 affine_group *group) {
  const vec_f32 low = least_of(src), high = fold_blocks(larger_f32, src, 32);
  const vec_f32 range = v_add_f32(v_sub_f32(high, low), v_set_f32(0)); /* no -0 */
  const vec_f32 scale = v_div_f32(range, v_set_f32(largest));
  const vec_f32 inverse = reciprocal_f32(scale);
  if (any_not_finite(scale) || any_not_finite(inverse)) return 0;
  v_store_f32(group->low, low);
  v_store_f32(group->inverse, inverse);
  store_halves(scale, d, step);
  store_halves(low, d + 2, step);
  return 1;
}

AMN_FORCE_INLINE vec affine_codes_32(const float *x, const affine_group *group, int i) {
  const vec_f32 low = v_set_f32(group->low[i]), by = v_set_f32(group->inverse[i]);
  const vec_f32 half = v_set_f32(0.5f);
  vec_f32 values[4];
  for (int k = 0; k < 4; k++) {
    const vec_f32 above = v_sub_f32(v_load_f32(x + 32 * i + 8 * k), low);
    values[k] = v_add_f32(v_mul_f32(above, by), half);
  }
  return cut_to_u8(values);
}

static int V_NAME(group_q4_1)(const float *src, uint8_t *dst) {
  block_q4_1 *block = (block_q4_1 *)dst;
  affine_group group;
  if (!affine_ends(src, 15.0f, block->d, sizeof *block, &group)) return 0;
  for (int i = 0; i < LANES; i += 2)
    store_nibbles_of(affine_codes_32(src, &group, i), affine_codes_32(src, &group, i + 1),
                     block[i].qs, block[i + 1].qs);
  return 1;
}

static int V_NAME(group_q5_1)(const float *src, uint8_t *dst) {
  block_q5_1 *block = (block_q5_1 *)dst;
  affine_group group;
  if (!affine_ends(src, 31.0f, block->d, sizeof *block, &group)) return 0;
  for (int i = 0; i < LANES; i += 2)
    store_nibbles_and_bits(affine_codes_32(src, &group, i), affine_codes_32(src, &group, i + 1),
                           block[i].qs, block[i + 1].qs, block[i].qh, block[i + 1].qh);
  return 1;
}

static void V_NAME(encode_q4_1)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  if (weights != NULL) {
    encode_q4_1_scalar(src, dst, rows, cols, weights);
    return;
  }
  encode_groups(ENCODED_TYPE(q4_1, LANES), src, dst, rows * cols / 32);
}

static void V_NAME(encode_q5_1)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  if (weights != NULL) {
    encode_q5_1_scalar(src, dst, rows, cols, weights);
    return;
  }
  encode_groups(ENCODED_TYPE(q5_1, LANES), src, dst, rows * cols / 32);
}

/* ---- x = d * code ---- */

/* Rounded, with ties away from 0: just below a half is added, so that what is just below a half
 * does not become 1. */
AMN_FORCE_INLINE vec rounded_away_s32(vec_f32 a) {
  const vec sign = v_and(v_bits_f32(a), v_set_u32(0x80000000));
  const vec half = v_or(sign, v_set_u32(0x3effffff));
  return v_s32_cut_f32(v_add_f32(a, v_f32_from_bits(half)));
}

static int V_NAME(group_q8_0)(const float *src, uint8_t *dst) {
  block_q8_0 *block = (block_q8_0 *)dst;
  const vec_f32 d = v_div_f32(fold_blocks(larger_magnitude, src, 32), v_set_f32(127.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i++, src += 32) {
    const vec_f32 by = v_set_f32(inverses[i]);
    vec codes[4];
    for (int k = 0; k < 4; k++) codes[k] = rounded_away_s32(v_mul_f32(v_load_f32(src + 8 * k), by));
    v_store(block[i].qs, v_pack_s32(codes[0], codes[1], codes[2], codes[3]));
  }
  return 1;
}

static void V_NAME(encode_q8_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(q8_0, LANES), src, dst, rows * cols / 32);
}
