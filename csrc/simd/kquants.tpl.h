/* The K types, with the vector vocabulary of vec_*.h. Needs blocks.tpl.h.
 *
 * Scales and mins are widened for a whole block at once. Their products are exact in float32: 11
 * bits of d, at most 8 of scale, 6 of q. So it is only the subtraction of the min that rounds, and
 * the order of the factors does not matter but for the signs of zeros, which a product in float32
 * keeps. Half floats are too small for any result to overflow bfloat16. */

typedef enum { TO_F32, TO_BF16 } k_out;

/* Sub-block i times scale[i], less min[i]. */
typedef struct {
  float scale[16], min[16];
} k_scales;

/* What a factor of every element is to be multiplied by, for bytes_to_bf16. */
AMN_FORCE_INLINE float k_unit(k_out out) {
  return out == TO_BF16 ? TWO_TO_MINUS_24 : 1.0f;
}

/* 32 signed bytes in sub-blocks of 16, whose scales are those two. */
AMN_FORCE_INLINE void k_store_16(k_out out, vec bytes, const float *scale, uint8_t *dst) {
  if (out == TO_BF16) {
    bytes_to_bf16(bytes, v_load_f32_lanes(scale), dst);
    return;
  }
  for (int i = 0; i < 4; i++) {
    const vec_f32 q = v_f32_from_s32(v_s32_from_s8(bytes, i));
    v_store_f32(dst + 32 * i, v_mul_f32(q, v_set_f32(scale[i / 2])));
  }
}

AMN_FORCE_INLINE void k_store_16_min(k_out out, vec bytes, const float *scale, const float *min,
                                     uint8_t *dst) {
  if (out == TO_BF16) {
    bytes_to_bf16_plus(bytes, v_load_f32_lanes(scale), v_load_f32_lanes(min), dst);
    return;
  }
  for (int i = 0; i < 4; i++) {
    const vec_f32 q = v_f32_from_s32(v_s32_from_s8(bytes, i));
    const vec_f32 product = v_mul_f32(q, v_set_f32(scale[i / 2]));
    v_store_f32(dst + 32 * i, v_add_f32(product, v_set_f32(min[i / 2])));
  }
}

/* ---- Q2_K ---- */

AMN_FORCE_INLINE void q2_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q2_k *block = (const block_q2_k *)src;
  const vec_f32 d = v_mul_f32(v_load_f16_all(block->d), v_set_f32(k_unit(out)));
  const vec_f32 minus_dmin = v_mul_f32(v_load_f16_all(block->dmin), v_set_f32(-1.0f));
  k_scales k;
  for (int i = 0; i < 2; i++) {
    const vec packed = v_load_u8_as_u32(block->scales + 8 * i);
    const vec_f32 scale = v_f32_from_s32(v_and(packed, v_set_u32(15)));
    v_store_f32(k.scale + 8 * i, v_mul_f32(d, scale));
    v_store_f32(k.min + 8 * i, v_mul_f32(minus_dmin, v_f32_from_s32(v_shr_u32(packed, 4))));
  }
  const size_t stride = out == TO_BF16 ? 64 : 128;
  for (int half = 0; half < 2; half++) {
    vec qs = v_load(block->qs + 32 * half);
    for (int i = 4 * half; i < 4 * half + 4; i++, qs = v_shr_u16(qs, 2))
      k_store_16_min(out, v_and(qs, v_set_u8(3)), k.scale + 2 * i, k.min + 2 * i,
                     dst + stride * (size_t)i);
  }
}

/* ---- Q3_K ---- */

AMN_FORCE_INLINE void q3_k_scales(const block_q3_k *block, float unit, float *scale) {
  const uint32_t nibbles = 0x0f0f0f0f, pairs = 0x30303030;
  const uint32_t a = amn_load_u32(block->scales), b = amn_load_u32(block->scales + 4);
  const uint32_t high = amn_load_u32(block->scales + 8);
  const uint32_t bytes[4] = {
      (a & nibbles) | (high << 4 & pairs), (b & nibbles) | (high << 2 & pairs),
      (a >> 4 & nibbles) | (high & pairs), (b >> 4 & nibbles) | (high >> 2 & pairs)};
  const vec_f32 d = v_mul_f32(v_load_f16_all(block->d), v_set_f32(unit));
  for (int i = 0; i < 2; i++) {
    const vec six_bits = v_load_u8_as_u32((const uint8_t *)(bytes + 2 * i));
    const vec_f32 value = v_sub_f32(v_f32_from_s32(six_bits), v_set_f32(32.0f));
    v_store_f32(scale + 8 * i, v_mul_f32(d, value));
  }
}

AMN_FORCE_INLINE void q3_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q3_k *block = (const block_q3_k *)src;
  float scale[16];
  q3_k_scales(block, k_unit(out), scale);
  const size_t stride = out == TO_BF16 ? 64 : 128;
  vec thirds = v_load(block->hmask);
  for (int half = 0; half < 2; half++) {
    vec qs = v_load(block->qs + 32 * half);
    for (int i = 4 * half; i < 4 * half + 4; i++) {
      const vec third = v_shl_u16(v_and(thirds, v_set_u8(1)), 2);
      const vec q = v_or(v_and(qs, v_set_u8(3)), third);
      k_store_16(out, v_sub_u8(q, v_set_u8(4)), scale + 2 * i, dst + stride * (size_t)i);
      qs = v_shr_u16(qs, 2);
      thirds = v_shr_u16(thirds, 1);
    }
  }
}

/* ---- Q4_K and Q5_K ---- */

/* The 12 bytes of scales, d and dmin, which stand alike in both. */
AMN_FORCE_INLINE void k_scales_8(const uint8_t *src, float unit, k_scales *k) {
  const uint32_t low_six = 0x3f3f3f3f, nibbles = 0x0f0f0f0f, pairs = 0x30303030;
  const uint32_t a = amn_load_u32(src + 4), b = amn_load_u32(src + 8), c = amn_load_u32(src + 12);
  const uint32_t scales[2] = {a & low_six, (c & nibbles) | (a >> 2 & pairs)};
  const uint32_t mins[2] = {b & low_six, (c >> 4 & nibbles) | (b >> 2 & pairs)};
  const vec_f32 d = v_mul_f32(v_load_f16_all(src), v_set_f32(unit));
  const vec_f32 minus_dmin = v_mul_f32(v_load_f16_all(src + 2), v_set_f32(-1.0f));
  const vec_f32 scale = v_f32_from_s32(v_load_u8_as_u32((const uint8_t *)scales));
  const vec_f32 min = v_f32_from_s32(v_load_u8_as_u32((const uint8_t *)mins));
  v_store_f32(k->scale, v_mul_f32(d, scale));
  v_store_f32(k->min, v_mul_f32(minus_dmin, min));
}

/* 32 indices as v_load_u8_zip1 has them. */
AMN_FORCE_INLINE void store_zip1(nibble_table table, vec index, uint8_t *dst) {
  const vec low = v_lookup16(table.low, index), high = v_lookup16(table.high, index);
  v_store(dst, v_zip_low_u8(low, high));
  v_store(dst + 32, v_zip_high_u8(low, high));
}

/* The 16 outcomes of a sub-block. */
AMN_FORCE_INLINE nibble_table q4_k_table(const k_scales *k, int i) {
  const vec_f32 scale = v_set_f32(k->scale[i]), min = v_set_f32(k->min[i]);
  vec_f32 a, b;
  v_iota_f32(&a, &b);
  nibble_table table;
  v_split_table(v_pack_iota_u32(round_to_bf16(v_add_f32(v_mul_f32(a, scale), min)),
                                round_to_bf16(v_add_f32(v_mul_f32(b, scale), min))),
                &table.low, &table.high);
  return table;
}

AMN_FORCE_INLINE void q4_k_bf16(const uint8_t *src, uint8_t *dst) {
  const block_q4_k *block = (const block_q4_k *)src;
  k_scales k;
  k_scales_8(src, 1.0f, &k);
  for (int i = 0; i < 8; i += 2, dst += 128) {
    const vec qs = v_load_u8_zip1(block->qs + 16 * i), mask = v_set_u8(15);
    store_zip1(q4_k_table(&k, i), v_and(qs, mask), dst);
    store_zip1(q4_k_table(&k, i + 1), v_and(v_shr_u16(qs, 4), mask), dst + 64);
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
    bytes_to_bf16_plus(q, scale, min, dst + 64 * i);
  else
    bytes_to_f32_plus(q, scale, min, (float *)dst + 32 * i);
}

AMN_FORCE_INLINE void q5_k_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_q5_k *block = (const block_q5_k *)src;
  k_scales k;
  k_scales_8(src, k_unit(out), &k);
  vec fifths = v_load(block->qh);
  for (int i = 0; i < 8; i += 2) {
    const vec qs = v_load(block->qs + 16 * i);
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
    const vec a = v_load(block->ql + 64 * half), b = v_load(block->ql + 64 * half + 32);
    const vec high = v_load(block->qh + 32 * half);
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
  for (; n > 0; n--, src += sizeof(block_q2_k), dst += 256) q2_k_block(TO_F32, src, (uint8_t *)dst);
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

AMN_FORCE_INLINE void q2_k_bf16(const uint8_t *src, uint8_t *dst) {
  q2_k_block(TO_BF16, src, dst);
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
  const block_type type = {256, sizeof(block_q2_k), V_NAME(dequant_q2_k), q2_k_is_finite};
  return each_block(type, q2_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q3_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = {256, sizeof(block_q3_k), V_NAME(dequant_q3_k), q3_k_is_finite};
  return each_block(type, q3_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q4_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = {256, sizeof(block_q4_k), V_NAME(dequant_q4_k), q4_k_is_finite};
  return each_block(type, q4_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q5_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = {256, sizeof(block_q5_k), V_NAME(dequant_q5_k), q4_k_is_finite};
  return each_block(type, q5_k_bf16, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q6_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = {256, sizeof(block_q6_k), V_NAME(dequant_q6_k), q6_k_is_finite};
  return each_block(type, q6_k_bf16, src, dst, n);
}
