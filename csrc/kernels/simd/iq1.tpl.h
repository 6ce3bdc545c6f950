/* The IQ1 types: levels -1, 0 and 1, and a delta of 1/8 or -1/8.
 *
 * Needs: kquants.tpl.h, iquants.tpl.h. Defines: dequant_* of IQ1_S, IQ1_M. */

/* What scales make of the three levels less and plus 1/8. */
AMN_FORCE_INLINE iq_triples iq1_make_triples(vec_f32 scale, vec_f32 delta) {
  return iq_make_triples(scale, v_add_f32(v_set_f32(amn_iq1_levels[0]), delta),
                         v_add_f32(v_set_f32(amn_iq1_levels[1]), delta),
                         v_add_f32(v_set_f32(amn_iq1_levels[2]), delta));
}

/* Eight times a level, in each u32. */
AMN_FORCE_INLINE vec iq1_levels_times_8(void) {
  return v_set_u32((uint32_t)(uint8_t)(8 * amn_iq1_levels[0]) |
                   (uint32_t)(uint8_t)(8 * amn_iq1_levels[1]) << 8 |
                   (uint32_t)(uint8_t)(8 * amn_iq1_levels[2]) << 16);
}

/* d * (2 * scale + 1) */
AMN_FORCE_INLINE vec_f32 iq1_scale(vec_f32 d, vec scale) {
  return v_mul_f32(d, v_f32_from_s32(v_add_u32(v_shl_u32(scale, 1), v_set_u32(1))));
}

AMN_FORCE_INLINE void iq1_s_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq1_s *block = (const block_iq1_s *)src;
  uint8_t indices[64];
  for (int i = 0; i < 2; i++) {
    /* Each u16 of qh four times, its triples of bits moved to bits 9 to 11, then to 8 to 10. */
    const vec times = v_set_u64(512 | 64ull << 16 | 8ull << 32 | 1ull << 48);
    const vec high = v_shr_u16(v_mul_u16(v_load_u16_times4(block->qh + 8 * i), times), 1);
    const vec low = v_load_u8_as_u16(block->qs + 16 * i);
    v_store(indices + 32 * i, v_or(low, v_and(high, v_set_u16(0x700))));
  }
  const vec rest = v_load_u16_as_u32(block->qh);
  const vec_f32 d = v_load_f16_all(block->d);
  const vec_f32 scale = iq1_scale(d, v_and(v_shr_u32(rest, 12), v_set_u32(7)));
  const vec negative = v_shl_u32(v_shr_u32(rest, 15), 31);
  const vec_f32 delta = v_f32_from_bits(v_xor(negative, v_bits_f32(v_set_f32(0.125f))));
  if (out == TO_BF16) {
    const iq_triples triples = iq1_make_triples(scale, delta);
    uint8_t lows[32], highs[32];
    v_store(lows, triples.low);
    v_store(highs, triples.high);
    for (int i = 0; i < 8; i++) {
      const vec rows = iq_rows_8(out, amn_iq1_s_grid, indices, 2, 4 * i);
      const vec low = v_lookup16(v_load_u32_all(lows + 4 * i), rows);
      const vec high = v_lookup16(v_load_u32_all(highs + 4 * i), rows);
      iq_store_zip1(low, high, dst + 64 * i);
    }
    return;
  }
  float eighths[8], deltas[8];
  v_store_f32(eighths, v_mul_f32(scale, v_set_f32(0.125f)));
  v_store_f32(deltas, delta);
  for (int i = 0; i < 8; i++) {
    const vec rows = iq_rows_8(out, amn_iq1_s_grid, indices, 2, 4 * i);
    const vec one = v_set_u8(deltas[i] < 0 ? 0xff : 1);
    const vec bytes = v_add_u8(v_lookup16(iq1_levels_times_8(), rows), one);
    bytes_to_f32(bytes, v_set_f32(eighths[i]), (float *)dst + 32 * i);
  }
}

AMN_FORCE_INLINE void iq1_m_half(const uint8_t *src, uint8_t half[2]) {
  const block_iq1_m *block = (const block_iq1_m *)src;
  half[0] = (uint8_t)(block->scales[1] >> 4 | (block->scales[3] & 0xf0));
  half[1] = (uint8_t)(block->scales[5] >> 4 | (block->scales[7] & 0xf0));
}

/* Sixteen scales of 3 bits, four in each u16. */
AMN_FORCE_INLINE void iq1_m_scales(const uint8_t *src, vec_f32 *a, vec_f32 *b) {
  const block_iq1_m *block = (const block_iq1_m *)src;
  uint8_t half[2];
  iq1_m_half(src, half);
  const vec_f32 d = v_load_f16_all(half);
  /* Each u16 four times, its triples of bits moved to bits 9 to 11. */
  const vec times = v_set_u64(512 | 64ull << 16 | 8ull << 32 | 1ull << 48);
  const vec high = v_mul_u16(v_load_u16_times4(block->scales), times);
  uint8_t scale[32];
  v_store(scale, v_and(v_shr_u16(high, 9), v_set_u16(7)));
  *a = iq1_scale(d, v_load_u16_as_u32(scale));
  *b = iq1_scale(d, v_load_u16_as_u32(scale + 16));
}

/* The outcomes of 4 times 32 elements, 16 bytes each: those of the first scale plus delta, less it,
 * and those of the second. A level less delta is a level plus delta, negated: -1 and 1 change
 * places.
 */
AMN_FORCE_INLINE void iq1_m_tables(vec_f32 scale, uint8_t low[64], uint8_t high[64]) {
  static const uint8_t reversed[16] = {2, 1, 0, 3, 6, 5, 4, 7, 10, 9, 8, 11, 14, 13, 12, 15};
  const iq_triples plus = iq1_make_triples(scale, v_set_f32(0.125f));
  const vec low_less = v_lookup16(plus.low, v_load_both_lanes(reversed));
  const vec high_less = v_xor(v_lookup16(plus.high, v_load_both_lanes(reversed)), v_set_u8(0x80));
  v_store_lanes(low, low + 32, v_zip_low_u32(plus.low, low_less));
  v_store_lanes(low + 16, low + 48, v_zip_high_u32(plus.low, low_less));
  v_store_lanes(high, high + 32, v_zip_low_u32(plus.high, high_less));
  v_store_lanes(high + 16, high + 48, v_zip_high_u32(plus.high, high_less));
}

AMN_FORCE_INLINE void iq1_m_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq1_m *block = (const block_iq1_m *)src;
  uint8_t indices[64], select[32];
  const vec nibbles = v_load_nibbles_as_u8_x32(block->qh);
  for (int i = 0; i < 2; i++) {
    const vec high = v_shl_u16(v_u16_from_u8(nibbles, i), 8);
    const vec low = v_load_u8_as_u16(block->qs + 16 * i);
    v_store(indices + 32 * i, v_or(low, v_and(high, v_set_u16(0x700))));
  }
  vec_f32 scale_a, scale_b;
  iq1_m_scales(src, &scale_a, &scale_b);
  const vec negative = v_and(nibbles, v_set_u8(8));
  if (out == TO_BF16) {
    uint8_t low[128], high[128];
    iq1_m_tables(scale_a, low, high);
    iq1_m_tables(scale_b, low + 64, high + 64);
    v_store(select, v_or(v_shr_u16(negative, 1), v_set_u32(0x08080000)));
    for (int i = 0; i < 8; i++) {
      const vec rows = v_or(iq_rows_8(out, amn_iq1_s_grid, indices, 2, 4 * i),
                            iq_spread_rows(out, select + 4 * i));
      const vec low_table = v_load_both_lanes(low + 16 * i);
      const vec high_table = v_load_both_lanes(high + 16 * i);
      iq_store_zip1(v_lookup16(low_table, rows), v_lookup16(high_table, rows), dst + 64 * i);
    }
    return;
  }
  /* 1 or -1 */
  v_store(select, v_sub_u8(v_set_u8(1), v_shr_u16(negative, 2)));
  float eighths[16];
  v_store_f32(eighths, v_mul_f32(scale_a, v_set_f32(0.125f)));
  v_store_f32(eighths + 8, v_mul_f32(scale_b, v_set_f32(0.125f)));
  for (int i = 0; i < 8; i++) {
    const vec rows = iq_rows_8(out, amn_iq1_s_grid, indices, 2, 4 * i);
    const vec bytes =
        v_add_u8(v_lookup16(iq1_levels_times_8(), rows), iq_spread_rows(out, select + 4 * i));
    k_store_16(TO_F32, bytes, eighths + 2 * i, dst + 128 * i);
  }
}

AMN_FORCE_INLINE int iq1_m_is_finite(const uint8_t *src) {
  uint8_t half[2];
  iq1_m_half(src, half);
  return half_is_finite(half);
}

static void V_NAME(dequant_iq1_s)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq1_s), dst += 256)
    iq1_s_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq1_s_bf16(const uint8_t *src, uint8_t *dst) {
  iq1_s_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq1_s)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq1_s, half_is_finite);
  return each_block(type, iq1_s_bf16, src, dst, n);
}

static void V_NAME(dequant_iq1_m)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq1_m), dst += 256)
    iq1_m_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq1_m_bf16(const uint8_t *src, uint8_t *dst) {
  iq1_m_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq1_m)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq1_m, iq1_m_is_finite);
  return each_block(type, iq1_m_bf16, src, dst, n);
}
