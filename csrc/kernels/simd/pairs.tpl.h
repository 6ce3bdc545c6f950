/* Numbers of any source as float32: 16 at a time, those at even places in one vector and those at
 * odd ones in another, so that two bytes of codes or two lanes of errors come together without a
 * shuffle.
 *
 * Needs: vec.h alone. Defines: no kernel; load_pair of each source. */

/* 16 values, even and odd ones. */
typedef struct {
  vec_f32 even, odd;
} pair;

AMN_FORCE_INLINE pair pair_of(vec_f32 low, vec_f32 high) {
  const vec a = v_bits_f32(low), b = v_bits_f32(high);
  return (pair){v_f32_from_bits(v_even_u32(a, b)), v_f32_from_bits(v_odd_u32(a, b))};
}

AMN_FORCE_INLINE pair pair_of_bf16(vec words) {
  return (pair){v_f32_from_bits(v_shl_u32(words, 16)),
                v_f32_from_bits(v_and(words, v_set_u32(0xffff0000)))};
}

AMN_FORCE_INLINE pair load_pair(amn_source source, const uint8_t *src) {
  if (source == AMN_SOURCE_F32) return pair_of(v_load_f32(src), v_load_f32(src + 32));
  if (source == AMN_SOURCE_F16) return pair_of(v_load_f16_as_f32(src), v_load_f16_as_f32(src + 16));
  return pair_of_bf16(v_load(src));
}

AMN_FORCE_INLINE size_t source_bytes(amn_source source) {
  return source == AMN_SOURCE_F32 ? 4 : 2;
}
