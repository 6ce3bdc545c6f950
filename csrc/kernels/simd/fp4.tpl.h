/* The GGUF types of 4-bit floats (E2M1).
 *
 * Needs: blocks.tpl.h. Defines: dequant_* of MXFP4, NVFP4. */

#define MXFP4_TYPE BLOCK_TYPE(mxfp4, mxfp4_is_plain)

/* Twice the value of each code. */
static const uint8_t fp4_twice[16] = {0, 1,   2,   3,   4,   6,   8,   12,
                                      0, 255, 254, 253, 252, 250, 248, 244};

/* ---- MXFP4: a power of two ---- */

/* 2^(e - 128) */
AMN_FORCE_INLINE vec_f32 mxfp4_half_scale(uint8_t e) {
  return v_set_f32(amn_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23));
}

static void V_NAME(dequant_mxfp4)(const uint8_t *src, float *dst, size_t n) {
  const block_mxfp4 *block = (const block_mxfp4 *)src;
  const vec values = v_load_both_lanes(fp4_twice);
  for (; n > 0; n--, block++, dst += 32)
    bytes_to_f32(v_lookup16(values, low_high_nibbles(block->qs)), mxfp4_half_scale(block->e), dst);
  v_end();
}

/* Outcomes between 2^-126 and 2^127. */
AMN_FORCE_INLINE int mxfp4_is_plain(const uint8_t *src) {
  return *src >= 2 && *src <= 250;
}

/* The bfloat16 of the values but 0, as for e = 0, plus the exponent's e << 7. */
AMN_FORCE_INLINE nibble_table mxfp4_table(const uint8_t *a, const uint8_t *b) {
  static const uint16_t words[8] = {0, 0xff80, 0, 64, 128, 192, 256, 320};
  static const uint16_t nonzero[8] = {0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff};
  const vec exponents = v_set_u16_lanes((uint16_t)(*a << 7), (uint16_t)(*b << 7));
  const vec shift = v_and(exponents, v_load_both_lanes((const uint8_t *)nonzero));
  return fp4_table(v_add_u16(v_load_both_lanes((const uint8_t *)words), shift));
}

AMN_FORCE_INLINE void mxfp4_pair(const uint8_t *a, const uint8_t *b, uint8_t *dst_a,
                                 uint8_t *dst_b) {
  store_low_high_nibbles(mxfp4_table(a, b), v_load_lanes(a + 1, b + 1), dst_a, dst_b);
}

static uint64_t V_NAME(dequant_bf16_mxfp4)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_pair(MXFP4_TYPE, mxfp4_pair, src, dst, n);
}

/* ---- NVFP4: an unsigned E4M3 for 16 elements ---- */

#define NVFP4_TYPE BLOCK_TYPE(nvfp4, nvfp4_is_plain)

/* Half of the four scales of a block. Placed where a half float has its exponent and mantissa,
 * subnormals included, a code is too small by 2^(15 - 7). */
AMN_FORCE_INLINE vec_f32 nvfp4_half_scales(const block_nvfp4 *block) {
  const vec codes = v_load_u32_all(block->d);
  const vec is_nan = v_equal_u8(codes, v_set_u8(0x7f));
  const vec magnitude = v_and_not(is_nan, v_and(codes, v_set_u8(0x7f)));
  const vec halves = v_shr_u16(v_zip_low_u8(v_zero(), magnitude), 1);
  return v_mul_f32(v_f32_from_f16(halves), v_set_f32(0x1p7f));
}

/* Two groups of 16 codes, a lane each: 8 in the low nibbles of its 8 bytes, 8 in the high ones. */
AMN_FORCE_INLINE vec nvfp4_nibbles(const uint8_t *qs) {
  return v_and(v_shr_u64_by_turns(v_load_u64_twice(qs), 0, 4), v_set_u8(15));
}

static void V_NAME(dequant_nvfp4)(const uint8_t *src, float *dst, size_t n) {
  const block_nvfp4 *block = (const block_nvfp4 *)src;
  const vec values = v_load_both_lanes(fp4_twice);
  for (; n > 0; n--, block++) {
    const vec_f32 scales = nvfp4_half_scales(block);
    for (int group = 0; group < 4; group += 2, dst += 32) {
      const vec bytes = v_lookup16(values, nvfp4_nibbles(block->qs + 8 * group));
      for (int i = 0; i < 4; i++)
        v_store_f32(dst + 8 * i, v_mul_f32(v_f32_from_s32(v_s32_from_s8(bytes, i)),
                                           v_f32_all(scales, group + i / 2)));
    }
  }
  v_end();
}

/* Products of 4 bits of mantissa and 2 are bfloat16 as they are. */
AMN_FORCE_INLINE nibble_table nvfp4_table(vec_f32 scales) {
  static const float even[8] = {0, 2, 4, 8, 0, 2, 4, 8}, odd[8] = {1, 3, 6, 12, 1, 3, 6, 12};
  const vec even_bits = v_bits_f32(v_mul_f32(v_load_f32(even), scales));
  const vec odd_bits = v_bits_f32(v_mul_f32(v_load_f32(odd), scales));
  return fp4_table(v_even_odd_u16(v_shr_u32(even_bits, 16), odd_bits));
}

AMN_FORCE_INLINE int nvfp4_is_plain(const uint8_t *src) {
  (void)src;
  return 1;
}

AMN_FORCE_INLINE void nvfp4_body(const uint8_t *src, uint8_t *dst) {
  const block_nvfp4 *block = (const block_nvfp4 *)src;
  const vec_f32 scales = nvfp4_half_scales(block);
  for (int group = 0; group < 4; group += 2, dst += 64)
    store_nibbles(nvfp4_table(v_f32_lanes(scales, group)), nvfp4_nibbles(block->qs + 8 * group),
                  dst);
}

static uint64_t V_NAME(dequant_bf16_nvfp4)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(NVFP4_TYPE, nvfp4_body, src, dst, n);
}
