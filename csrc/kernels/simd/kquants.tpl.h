/* The K types, with the vector vocabulary of vec_*.h.
 *
 * Scales and mins are widened for a whole block at once. Their products are exact in float32: 11
 * bits of d, at most 8 of scale, 6 of q. So it is only the subtraction of the min that rounds, and
 * the order of the factors does not matter except for the signs of zeros, which a product in
 * float32 keeps. Half floats are too small for any result to overflow bfloat16.
 *
 * Needs: blocks.tpl.h, legacy.tpl.h, k_scales.tpl.h. Defines: dequant_* of Q2_K to Q6_K. */

typedef enum { TO_F32, TO_BF16 } k_out;

/* What a factor of every element is to be multiplied by, for bytes_to_bf16. */
AMN_FORCE_INLINE float k_unit(k_out out) {
  return out == TO_BF16 ? BYTE_UNIT : 1.0f;
}

/* Where the bytes come from: for bfloat16 as a zip wants them. */
AMN_FORCE_INLINE vec k_load(k_out out, const uint8_t *p) {
  return out == TO_BF16 ? v_load_u8_zip1(p) : v_load(p);
}

/* 32 signed bytes, loaded so, in sub-blocks of 16, whose scales are those two. */
AMN_FORCE_INLINE void k_store_16(k_out out, vec bytes, const float *scale, uint8_t *dst) {
  if (out == TO_BF16)
    zip1_halves_to_bf16(bytes, scale, dst);
  else
    halves_to_f32(bytes, scale, (float *)dst);
}

/* ---- Q2_K ---- */

/* Sixteen scales and mins; the mins are negated. */
AMN_FORCE_INLINE void q2_k_scales(const block_q2_k *block, vec_f32 scale[2], vec_f32 min[2]) {
  const vec_f32 d = v_load_f16_all(block->d);
  const vec_f32 minus_dmin = v_mul_f32(v_load_f16_all(block->dmin), v_set_f32(-1.0f));
  for (int i = 0; i < 2; i++) {
    const vec packed = v_load_u8_as_u32(block->scales + 8 * i);
    scale[i] = v_mul_f32(d, v_f32_from_s32(v_and(packed, v_set_u32(15))));
    min[i] = v_mul_f32(minus_dmin, v_f32_from_s32(v_shr_u32(packed, 4)));
  }
}

AMN_FORCE_INLINE void q2_k_f32(const uint8_t *src, float *dst) {
  const block_q2_k *block = (const block_q2_k *)src;
  vec_f32 scales[2], mins[2];
  float scale[16], min[16];
  q2_k_scales(block, scales, mins);
  for (int i = 0; i < 2; i++) {
    v_store_f32(scale + 8 * i, scales[i]);
    v_store_f32(min + 8 * i, mins[i]);
  }
  for (int half = 0; half < 2; half++) {
    vec qs = v_load(block->qs + 32 * half);
    for (int i = 4 * half; i < 4 * half + 4; i++, qs = v_shr_u16(qs, 2)) {
      const vec bytes = v_and(qs, v_set_u8(3));
      for (int k = 0; k < 4; k++, dst += 8) {
        const int at = 2 * i + k / 2;
        const vec_f32 product =
            v_mul_f32(v_f32_from_s32(v_s32_from_s8(bytes, k)), v_set_f32(scale[at]));
        v_store_f32(dst, v_add_f32(product, v_set_f32(min[at])));
      }
    }
  }
}

/* Four outcomes for each sub-block, two sub-blocks in a table of 16 bytes: the low bytes of the
 * first, of the second, then the high bytes. */
AMN_FORCE_INLINE void q2_k_bf16(const uint8_t *src, uint8_t *dst) {
  const block_q2_k *block = (const block_q2_k *)src;
  vec_f32 scale[2], min[2];
  uint8_t tables[128];
  q2_k_scales(block, scale, min);
  for (int i = 0; i < 2; i++) {
    vec_f32 outcomes[4];
    for (int q = 0; q < 4; q++)
      outcomes[q] = v_add_f32(v_mul_f32(v_set_f32((float)q), scale[i]), min[i]);
    vec low, high;
    split_quads(outcomes, &low, &high);
    uint8_t *to = tables + 64 * i;
    v_store_lanes(to, to + 32, v_zip_low_u64(low, high));
    v_store_lanes(to + 16, to + 48, v_zip_high_u64(low, high));
  }
  const vec second = v_set_u64x4(0, 0x0404040404040404u, 0, 0x0404040404040404u);
  for (int half = 0; half < 2; half++) {
    vec qs = v_load_u8_zip1(block->qs + 32 * half);
    for (int i = 4 * half; i < 4 * half + 4; i++, qs = v_shr_u16(qs, 2)) {
      const vec table = v_load_both_lanes(tables + 16 * i);
      const vec index = v_or(v_and(qs, v_set_u8(3)), second);
      const vec low = v_lookup16(table, index);
      const vec high = v_lookup16(table, v_or(index, v_set_u8(8)));
      v_store(dst + 64 * i, v_zip_low_u8(low, high));
      v_store(dst + 64 * i + 32, v_zip_high_u8(low, high));
    }
  }
}

/* ---- Q3_K ---- */

AMN_FORCE_INLINE void q3_k_scales(const block_q3_k *block, vec_f32 scale[2]) {
  const uint32_t nibbles = 0x0f0f0f0f, pairs = 0x30303030;
  const uint32_t a = amn_load_u32(block->scales), b = amn_load_u32(block->scales + 4);
  const uint32_t high = amn_load_u32(block->scales + 8);
  const uint32_t bytes[4] = {
      (a & nibbles) | (high << 4 & pairs), (b & nibbles) | (high << 2 & pairs),
      (a >> 4 & nibbles) | (high & pairs), (b >> 4 & nibbles) | (high >> 2 & pairs)};
  const vec_f32 d = v_load_f16_all(block->d);
  for (int i = 0; i < 2; i++) {
    const vec six_bits = v_load_u8_as_u32((const uint8_t *)(bytes + 2 * i));
    scale[i] = v_mul_f32(d, v_sub_f32(v_f32_from_s32(six_bits), v_set_f32(32.0f)));
  }
}

/* Eight outcomes for each sub-block: those of -4 to 3 times its scale, low bytes and then high
 * ones. The last four are, backwards, the negated first ones less -4, after a zero of the scale's
 * sign. */
AMN_FORCE_INLINE void q3_k_tables(const block_q3_k *block, uint8_t tables[256]) {
  static const uint8_t backwards_low[16] = {128, 3,  2,  1, 128, 7,  6,  5,
                                            128, 11, 10, 9, 128, 15, 14, 13};
  static const uint8_t backwards_high[16] = {3, 3, 2, 1, 7, 7, 6, 5, 11, 11, 10, 9, 15, 15, 14, 13};
  vec_f32 scale[2];
  q3_k_scales(block, scale);
  for (int i = 0; i < 2; i++) {
    vec_f32 outcomes[4];
    for (int q = 0; q < 4; q++) outcomes[q] = v_mul_f32(scale[i], v_set_f32((float)(q - 4)));
    vec low, high;
    split_quads(outcomes, &low, &high);
    const vec low_rest = v_lookup16(low, v_load_both_lanes(backwards_low));
    const vec high_rest =
        v_and(v_xor(v_lookup16(high, v_load_both_lanes(backwards_high)), v_set_u8(0x80)),
              v_set_u32(0xffffff80));
    const vec low_a = v_zip_low_u32(low, low_rest), low_b = v_zip_high_u32(low, low_rest);
    const vec high_a = v_zip_low_u32(high, high_rest), high_b = v_zip_high_u32(high, high_rest);
    uint8_t *to = tables + 128 * i;
    v_store_lanes(to, to + 64, v_zip_low_u64(low_a, high_a));
    v_store_lanes(to + 16, to + 80, v_zip_high_u64(low_a, high_a));
    v_store_lanes(to + 32, to + 96, v_zip_low_u64(low_b, high_b));
    v_store_lanes(to + 48, to + 112, v_zip_high_u64(low_b, high_b));
  }
}

AMN_FORCE_INLINE void q3_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q3_k *block = (const block_q3_k *)src;
  uint8_t tables[256];
  float scale[16];
  if (out == TO_BF16) {
    q3_k_tables(block, tables);
  } else {
    vec_f32 scales[2];
    q3_k_scales(block, scales);
    v_store_f32(scale, scales[0]);
    v_store_f32(scale + 8, scales[1]);
  }
  vec thirds = v_load(block->hmask);
  for (int half = 0; half < 2; half++) {
    vec qs = v_load(block->qs + 32 * half);
    for (int i = 4 * half; i < 4 * half + 4; i++) {
      const vec third = v_shl_u16(v_and(thirds, v_set_u8(1)), 2);
      const vec q = v_or(v_and(qs, v_set_u8(3)), third);
      if (out == TO_BF16) {
        const vec table = v_load(tables + 32 * i);
        const vec low = v_lookup16(table, q), high = v_lookup16(table, v_or(q, v_set_u8(8)));
        v_store_lanes(dst + 64 * i, dst + 64 * i + 32, v_zip_low_u8(low, high));
        v_store_lanes(dst + 64 * i + 16, dst + 64 * i + 48, v_zip_high_u8(low, high));
      } else {
        k_store_16(TO_F32, v_sub_u8(q, v_set_u8(4)), scale + 2 * i, dst + 128 * i);
      }
      qs = v_shr_u16(qs, 2);
      thirds = v_shr_u16(thirds, 1);
    }
  }
}

/* ---- Q4_K and Q5_K ---- */

/* Two sub-blocks at a time, a lane each. */
AMN_FORCE_INLINE void q4_k_bf16(const uint8_t *src, uint8_t *dst) {
  const block_q4_k *block = (const block_q4_k *)src;
  k_scales k;
  k_scales_8(src, 1.0f, &k);
  for (int i = 0; i < 8; i += 2, dst += 128) {
    const nibble_table table =
        q4_1_table(v_load_f32_lanes(k.scale + i), v_load_f32_lanes(k.min + i));
    store_rows_of_nibbles(table, block->qs + 16 * i, dst, dst + 64);
  }
}

AMN_FORCE_INLINE void q4_k_f32(const uint8_t *src, float *dst) {
  const block_q4_k *block = (const block_q4_k *)src;
  k_scales k;
  k_scales_8(src, 1.0f, &k);
  for (int i = 0; i < 8; i += 2, dst += 64) {
    const vec qs = v_load(block->qs + 16 * i), mask = v_set_u8(15);
    bytes_to_f32_plus(v_and(qs, mask), v_set_f32(k.scale[i]), v_set_f32(k.min[i]), dst);
    bytes_to_f32_plus(v_and(v_shr_u16(qs, 4), mask), v_set_f32(k.scale[i + 1]),
                      v_set_f32(k.min[i + 1]), dst + 32);
  }
}

AMN_FORCE_INLINE void q5_k_store(k_out out, vec low, vec *fifths, const k_scales *k, int i,
                                 uint8_t *dst) {
  const vec fifth = v_shl_u16(v_and(*fifths, v_set_u8(1)), 4);
  const vec q = v_or(v_and(low, v_set_u8(15)), fifth);
  const vec_f32 scale = v_set_f32(k->scale[i]), min = v_set_f32(k->min[i]);
  *fifths = v_shr_u16(*fifths, 1);
  if (out == TO_BF16)
    zip1_to_bf16_plus(q, scale, min, dst + 64 * i);
  else
    bytes_to_f32_plus(q, scale, min, (float *)dst + 32 * i);
}

AMN_FORCE_INLINE void q5_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q5_k *block = (const block_q5_k *)src;
  k_scales k;
  k_scales_8(src, k_unit(out), &k);
  vec fifths = k_load(out, block->qh);
  for (int i = 0; i < 8; i += 2) {
    const vec qs = k_load(out, block->qs + 16 * i);
    q5_k_store(out, qs, &fifths, &k, i, dst);
    q5_k_store(out, v_shr_u16(qs, 4), &fifths, &k, i + 1, dst);
  }
}

/* ---- Q6_K ---- */

AMN_FORCE_INLINE void q6_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q6_k *block = (const block_q6_k *)src;
  const vec_f32 d = v_mul_f32(v_load_f16_all(block->d), v_set_f32(k_unit(out)));
  float scale[16];
  for (int i = 0; i < 2; i++) {
    const vec_f32 value = v_f32_from_s32(v_load_s8_as_s32(block->scales + 8 * i));
    v_store_f32(scale + 8 * i, v_mul_f32(d, value));
  }
  const size_t stride = out == TO_BF16 ? 64 : 128;
  const vec nibbles = v_set_u8(15), pairs = v_set_u8(0x30), bias = v_set_u8(32);
  for (int half = 0; half < 2; half++, dst += 4 * stride) {
    const vec a = k_load(out, block->ql + 64 * half);
    const vec b = k_load(out, block->ql + 64 * half + 32);
    const vec high = k_load(out, block->qh + 32 * half);
    const vec q[4] = {
        v_or(v_and(a, nibbles), v_and(v_shl_u16(high, 4), pairs)),
        v_or(v_and(b, nibbles), v_and(v_shl_u16(high, 2), pairs)),
        v_or(v_and(v_shr_u16(a, 4), nibbles), v_and(high, pairs)),
        v_or(v_and(v_shr_u16(b, 4), nibbles), v_and(v_shr_u16(high, 2), pairs)),
    };
    for (int i = 0; i < 4; i++)
      k_store_16(out, v_sub_u8(q[i], bias), scale + 8 * half + 2 * i, dst + stride * (size_t)i);
  }
}

/* ---- the kernels ---- */

AMN_FORCE_INLINE int q2_k_is_finite(const uint8_t *src) {
  const block_q2_k *block = (const block_q2_k *)src;
  return half_is_finite(block->d) && half_is_finite(block->dmin);
}

AMN_FORCE_INLINE int q3_k_is_finite(const uint8_t *src) {
  return half_is_finite(((const block_q3_k *)src)->d);
}

/* Q4_K and Q5_K */
AMN_FORCE_INLINE int q4_k_is_finite(const uint8_t *src) {
  const block_q4_k *block = (const block_q4_k *)src;
  return half_is_finite(block->d) && half_is_finite(block->dmin);
}

AMN_FORCE_INLINE int q6_k_is_finite(const uint8_t *src) {
  return half_is_finite(((const block_q6_k *)src)->d);
}

static void V_NAME(dequant_q2_k)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_q2_k), dst += 256) q2_k_f32(src, dst);
  v_end();
}

static void V_NAME(dequant_q3_k)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_q3_k), dst += 256) q3_k_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

static void V_NAME(dequant_q4_k)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_q4_k), dst += 256) q4_k_f32(src, dst);
  v_end();
}

static void V_NAME(dequant_q5_k)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_q5_k), dst += 256) q5_k_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

static void V_NAME(dequant_q6_k)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_q6_k), dst += 256) q6_k_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void q3_k_bf16(const uint8_t *src, uint8_t *dst) {
  q3_k_block(TO_BF16, src, dst);
}

AMN_FORCE_INLINE void q5_k_bf16(const uint8_t *src, uint8_t *dst) {
  q5_k_block(TO_BF16, src, dst);
}

AMN_FORCE_INLINE void q6_k_bf16(const uint8_t *src, uint8_t *dst) {
  q6_k_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_q2_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(q2_k, q2_k_is_finite);
  return each_block(type, q2_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q3_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(q3_k, q3_k_is_finite);
  return each_block(type, q3_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q4_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(q4_k, q4_k_is_finite);
  return each_block(type, q4_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q5_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(q5_k, q4_k_is_finite);
  return each_block(type, q5_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q6_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(q6_k, q6_k_is_finite);
  return each_block(type, q6_k_bf16, src, dst, n);
}
