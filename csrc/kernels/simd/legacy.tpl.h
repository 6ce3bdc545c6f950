/* The GGUF types of 32 elements and a scale, their offspring, and Q8_K.
 *
 * d is a half float: a product with an integer of 8 bits is exact in float32, normal and far from
 * infinite there and in bfloat16, so that powers of two may be moved between the factors.
 *
 * Needs: blocks.tpl.h. Defines: dequant_* of Q4_0 to Q8_1, Q8_K. */

#define Q4_0_TYPE BLOCK_TYPE(q4_0, half_is_finite)
#define Q4_1_TYPE BLOCK_TYPE(q4_1, two_halves_are_finite)
#define Q5_0_TYPE BLOCK_TYPE(q5_0, half_is_finite)
#define Q5_1_TYPE BLOCK_TYPE(q5_1, two_halves_are_finite)
#define Q8_0_TYPE BLOCK_TYPE(q8_0, half_is_finite)
#define Q8_1_TYPE BLOCK_TYPE(q8_1, half_is_finite)
#define Q8_K_TYPE BLOCK_TYPE(q8_k, q8_k_is_plain)

AMN_FORCE_INLINE int two_halves_are_finite(const uint8_t *p) {
  return half_is_finite(p) && half_is_finite(p + 2);
}

/* ---- Q4_0: (q - 8) * d ---- */

static void V_NAME(dequant_q4_0)(const uint8_t *src, float *dst, size_t n) {
  const block_q4_0 *block = (const block_q4_0 *)src;
  for (; n > 0; n--, block++, dst += 32)
    bytes_to_f32(v_sub_u8(low_high_nibbles(block->qs), v_set_u8(8)), v_load_f16_all(block->d), dst);
  v_end();
}

AMN_FORCE_INLINE void q4_0_pair(const uint8_t *a, const uint8_t *b, uint8_t *dst_a,
                                uint8_t *dst_b) {
  const nibble_table table = q4_0_table(v_load_f16_lanes(a, b));
  store_low_high_nibbles(table, v_load_lanes(a + 2, b + 2), dst_a, dst_b);
}

static uint64_t V_NAME(dequant_bf16_q4_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_pair(Q4_0_TYPE, q4_0_pair, src, dst, n);
}

/* ---- Q4_1: q * d + m ---- */

static void V_NAME(dequant_q4_1)(const uint8_t *src, float *dst, size_t n) {
  const block_q4_1 *block = (const block_q4_1 *)src;
  for (; n > 0; n--, block++, dst += 32)
    bytes_to_f32_plus(low_high_nibbles(block->qs), v_load_f16_all(block->d),
                      v_load_f16_all(block->m), dst);
  v_end();
}

AMN_FORCE_INLINE void q4_1_pair(const uint8_t *a, const uint8_t *b, uint8_t *dst_a,
                                uint8_t *dst_b) {
  vec_f32 d, m;
  v_load_two_f16_lanes(a, b, &d, &m);
  store_low_high_nibbles(q4_1_table(d, m), v_load_lanes(a + 4, b + 4), dst_a, dst_b);
}

static uint64_t V_NAME(dequant_bf16_q4_1)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_pair(Q4_1_TYPE, q4_1_pair, src, dst, n);
}

/* ---- Q5_0: (q - 16) * d; Q5_1: q * d + m ---- */

/* All ones in byte i if bit i at qh is set. */
AMN_FORCE_INLINE vec bits_to_bytes(const uint8_t *qh) {
  static const uint8_t which[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                    2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const vec bits = v_load_both_lanes(bit);
  return v_equal_u8(v_and(v_lookup16(v_load_u32_all(qh), v_load(which)), bits), bits);
}

AMN_FORCE_INLINE vec q5_0_bytes(const block_q5_0 *block) {
  const vec below_16 = v_and_not(bits_to_bytes(block->qh), v_set_u8(0xf0));
  return v_or(low_high_nibbles(block->qs), below_16);
}

AMN_FORCE_INLINE vec q5_1_bytes(const block_q5_1 *block) {
  const vec fifth = v_and(bits_to_bytes(block->qh), v_set_u8(0x10));
  return v_or(low_high_nibbles(block->qs), fifth);
}

static void V_NAME(dequant_q5_0)(const uint8_t *src, float *dst, size_t n) {
  const block_q5_0 *block = (const block_q5_0 *)src;
  for (; n > 0; n--, block++, dst += 32)
    bytes_to_f32(q5_0_bytes(block), v_load_f16_all(block->d), dst);
  v_end();
}

static void V_NAME(dequant_q5_1)(const uint8_t *src, float *dst, size_t n) {
  const block_q5_1 *block = (const block_q5_1 *)src;
  for (; n > 0; n--, block++, dst += 32)
    bytes_to_f32_plus(q5_1_bytes(block), v_load_f16_all(block->d), v_load_f16_all(block->m), dst);
  v_end();
}

AMN_FORCE_INLINE vec_f32 small_scale(const uint8_t *half) {
  return v_mul_f32(v_load_f16_all(half), v_set_f32(BYTE_UNIT));
}

AMN_FORCE_INLINE void q5_0_body(const uint8_t *src, uint8_t *dst) {
  const block_q5_0 *block = (const block_q5_0 *)src;
  bytes_to_bf16(q5_0_bytes(block), small_scale(block->d), dst);
}

AMN_FORCE_INLINE void q5_1_body(const uint8_t *src, uint8_t *dst) {
  const block_q5_1 *block = (const block_q5_1 *)src;
  bytes_to_bf16_plus(q5_1_bytes(block), small_scale(block->d), v_load_f16_all(block->m), dst);
}

static uint64_t V_NAME(dequant_bf16_q5_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q5_0_TYPE, q5_0_body, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q5_1)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q5_1_TYPE, q5_1_body, src, dst, n);
}

/* ---- Q8_0, Q8_1, Q8_K: q * d ---- */

AMN_FORCE_INLINE void q8_to_f32(const uint8_t *qs, vec_f32 d, float *dst) {
  for (int i = 0; i < 32; i += 8)
    v_store_f32(dst + i, v_mul_f32(v_f32_from_s32(v_load_s8_as_s32(qs + i)), d));
}

static void V_NAME(dequant_q8_0)(const uint8_t *src, float *dst, size_t n) {
  const block_q8_0 *block = (const block_q8_0 *)src;
  for (; n > 0; n--, block++, dst += 32) q8_to_f32(block->qs, v_load_f16_all(block->d), dst);
  v_end();
}

static void V_NAME(dequant_q8_1)(const uint8_t *src, float *dst, size_t n) {
  const block_q8_1 *block = (const block_q8_1 *)src;
  for (; n > 0; n--, block++, dst += 32) q8_to_f32(block->qs, v_load_f16_all(block->d), dst);
  v_end();
}

static void V_NAME(dequant_q8_k)(const uint8_t *src, float *dst, size_t n) {
  const block_q8_k *block = (const block_q8_k *)src;
  for (; n > 0; n--, block++) {
    const vec_f32 d = v_f32_from_bits(v_load_u32_all(block->d));
    for (int i = 0; i < 256; i += 32, dst += 32) q8_to_f32(block->qs + i, d, dst);
  }
  v_end();
}

AMN_FORCE_INLINE void q8_0_body(const uint8_t *src, uint8_t *dst) {
  const block_q8_0 *block = (const block_q8_0 *)src;
  bytes_to_bf16(v_load(block->qs), small_scale(block->d), dst);
}

AMN_FORCE_INLINE void q8_1_body(const uint8_t *src, uint8_t *dst) {
  const block_q8_1 *block = (const block_q8_1 *)src;
  bytes_to_bf16(v_load(block->qs), small_scale(block->d), dst);
}

/* d * 2^-24 must be normal, and d * 128 round to a finite bfloat16. */
AMN_FORCE_INLINE int q8_k_is_plain(const uint8_t *src) {
  const uint32_t exponent = amn_load_u32(src) >> 23 & 0xff;
  return exponent > 24 && exponent < 254 - 8;
}

AMN_FORCE_INLINE void q8_k_body(const uint8_t *src, uint8_t *dst) {
  const block_q8_k *block = (const block_q8_k *)src;
  const vec_f32 d = v_f32_from_bits(v_load_u32_all(block->d));
  const vec_f32 scale = v_mul_f32(d, v_set_f32(BYTE_UNIT));
  for (int i = 0; i < 256; i += 32) bytes_to_bf16(v_load(block->qs + i), scale, dst + 2 * i);
}

static uint64_t V_NAME(dequant_bf16_q8_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q8_0_TYPE, q8_0_body, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q8_1)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q8_1_TYPE, q8_1_body, src, dst, n);
}

static uint64_t V_NAME(dequant_bf16_q8_k)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q8_K_TYPE, q8_k_body, src, dst, n);
}
