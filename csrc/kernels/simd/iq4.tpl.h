/* The IQ4 types: a codebook of 16 values times a scale.
 *
 * Needs: blocks.tpl.h, kquants.tpl.h. Defines: dequant_* of IQ4_NL, IQ4_XS. */

AMN_FORCE_INLINE void iq4_store_f32(const uint8_t *qs, vec_f32 scale, float *dst) {
  const vec levels = v_load_both_lanes((const uint8_t *)amn_iq4_levels);
  bytes_to_f32(v_lookup16(levels, low_high_nibbles(qs)), scale, dst);
}

AMN_FORCE_INLINE void iq4_nl_pair(const uint8_t *a, const uint8_t *b, uint8_t *dst_a,
                                  uint8_t *dst_b) {
  const vec_f32 scale = v_mul_f32(v_load_f16_lanes(a, b), v_set_f32(BYTE_UNIT));
  store_low_high_nibbles(iq4_table(scale), v_load_lanes(a + 2, b + 2), dst_a, dst_b);
}

AMN_FORCE_INLINE void iq4_xs_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq4_xs *block = (const block_iq4_xs *)src;
  const uint32_t low = amn_load_u32(block->scales_l), high = amn_load_u16(block->scales_h);
  const vec six_bits = v_or(v_and(v_shr_u32_each4(v_set_u32(low)), v_set_u32(15)),
                            v_shl_u32(v_and(v_shr_u32_each2(v_set_u32(high)), v_set_u32(3)), 4));
  const vec_f32 d = v_mul_f32(v_load_f16_all(block->d), v_set_f32(k_unit(out)));
  float scale[8];
  v_store_f32(scale, v_mul_f32(d, v_sub_f32(v_f32_from_s32(six_bits), v_set_f32(32.0f))));
  for (int i = 0; i < 8 && out == TO_F32; i++)
    iq4_store_f32(block->qs + 16 * i, v_set_f32(scale[i]), (float *)dst + 32 * i);
  for (int i = 0; i < 8 && out == TO_BF16; i += 2, dst += 128)
    store_low_high_nibbles(iq4_table(v_load_f32_lanes(scale + i)), v_load(block->qs + 16 * i), dst,
                           dst + 64);
}

static void V_NAME(dequant_iq4_nl)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq4_nl), dst += 32)
    iq4_store_f32(src + 2, v_load_f16_all(src), dst);
  v_end();
}

static uint64_t V_NAME(dequant_bf16_iq4_nl)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq4_nl, half_is_finite);
  return each_pair(type, iq4_nl_pair, src, dst, n);
}

static void V_NAME(dequant_iq4_xs)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq4_xs), dst += 256)
    iq4_xs_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq4_xs_bf16(const uint8_t *src, uint8_t *dst) {
  iq4_xs_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq4_xs)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq4_xs, half_is_finite);
  return each_block(type, iq4_xs_bf16, src, dst, n);
}
