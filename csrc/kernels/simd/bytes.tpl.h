/* 32 bytes to floats: times a scale, and maybe plus a minimum.
 *
 * On the way to bfloat16 each byte becomes the top one of an s32, so `scale` must be BYTE_UNIT
 * times the block's. Two scales are those of the first 16 bytes and of the others.
 *
 * Needs: words.tpl.h, wide.h. Defines: no kernel. */

#define BYTE_UNIT 0x1p-24f

#define DENSE_BYTES(bits)                                       \
  AMN_FORCE_INLINE vec dense_bytes_##bits(const uint8_t *src) { \
    return bytes_of_dense_##bits(load_dense(src, bits));        \
  }
EACH_DENSE(DENSE_BYTES)
#undef DENSE_BYTES

/* 16 bytes of nibbles as 32 bytes: the low ones, then the high ones. */
AMN_FORCE_INLINE vec low_high_nibbles(const uint8_t *qs) {
  const vec bytes = v_load_both_lanes(qs);
  return v_and(v_shr_u32_lanes(bytes, 0, 4), v_set_u8(15));
}

AMN_FORCE_INLINE void bytes_to_f32(vec bytes, vec_f32 scale, float *dst) {
  for (int i = 0; i < 32 / WIDE_LANES; i++)
    wide_store(dst + WIDE_LANES * i, wide_mul(wide_f32_of_s8(bytes, i), wide_all(scale)));
}

AMN_FORCE_INLINE void bytes_to_f32_plus(vec bytes, vec_f32 scale, vec_f32 min, float *dst) {
  for (int i = 0; i < 32 / WIDE_LANES; i++) {
    const wide_f32 product = wide_mul(wide_f32_of_s8(bytes, i), wide_all(scale));
    wide_store(dst + WIDE_LANES * i, wide_add(product, wide_all(min)));
  }
}

AMN_FORCE_INLINE void halves_to_f32(vec bytes, const float scales[2], float *dst) {
  for (int i = 0; i < 32 / WIDE_LANES; i++)
    wide_store(dst + WIDE_LANES * i, wide_mul(wide_f32_of_s8(bytes, i), wide_half(scales, i)));
}

AMN_FORCE_INLINE void bytes_to_bf16(vec bytes, vec_f32 scale, uint8_t *dst) {
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide_f32 even = wide_mul(wide_even_s8(bytes, IN_ORDER, i), wide_all(scale));
    const wide_f32 odd = wide_mul(wide_odd_s8(bytes, IN_ORDER, i), wide_all(scale));
    wide_store_words(dst, IN_ORDER, i, wide_bf16(even, odd));
  }
}

AMN_FORCE_INLINE void bytes_plus(vec bytes, byte_order order, vec_f32 scale, vec_f32 min,
                                 uint8_t *dst) {
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide_f32 even = wide_mul(wide_even_s8(bytes, order, i), wide_all(scale));
    const wide_f32 odd = wide_mul(wide_odd_s8(bytes, order, i), wide_all(scale));
    wide_store_words(dst, order, i,
                     wide_bf16(wide_add(even, wide_all(min)), wide_add(odd, wide_all(min))));
  }
}

AMN_FORCE_INLINE void bytes_to_bf16_plus(vec bytes, vec_f32 scale, vec_f32 min, uint8_t *dst) {
  bytes_plus(bytes, IN_ORDER, scale, min, dst);
}

/* The same of bytes in the order of v_load_u8_zip1. */
AMN_FORCE_INLINE void zip1_to_bf16_plus(vec bytes, vec_f32 scale, vec_f32 min, uint8_t *dst) {
  bytes_plus(bytes, IN_ZIP1, scale, min, dst);
}

AMN_FORCE_INLINE void zip1_halves_to_bf16(vec bytes, const float scales[2], uint8_t *dst) {
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide_f32 scale = wide_halves(scales, i);
    const wide_f32 even = wide_mul(wide_even_s8(bytes, IN_ZIP1, i), scale);
    const wide_f32 odd = wide_mul(wide_odd_s8(bytes, IN_ZIP1, i), scale);
    wide_store_words(dst, IN_ZIP1, i, wide_bf16(even, odd));
  }
}
