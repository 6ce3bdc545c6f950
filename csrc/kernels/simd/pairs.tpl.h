/* Numbers of any source as float32, those at even places in one vector and those at odd ones in
 * another, so that two bytes of codes or two lanes of errors come together without a shuffle.
 *
 * Needs: wide.h alone. Defines: no kernel; load_pair of each source. */

/* PAIR_VALUES values, even and odd ones; WIDE_PARTS of them are 32. */
typedef struct {
  wide_f32 even, odd;
} pair;

#define PAIR_VALUES (2 * WIDE_LANES)

AMN_FORCE_INLINE pair pair_of(wide_f32 low, wide_f32 high) {
  const wide a = wide_bits(low), b = wide_bits(high);
  return (pair){wide_from_bits(wide_even_u32(a, b)), wide_from_bits(wide_odd_u32(a, b))};
}

AMN_FORCE_INLINE pair pair_of_bf16(wide words) {
  return (pair){wide_from_bits(wide_shl_u32(words, 16)),
                wide_from_bits(wide_and(words, wide_set_u32(0xffff0000)))};
}

AMN_FORCE_INLINE size_t source_bytes(amn_source source) {
  return source == AMN_SOURCE_F32 ? 4 : 2;
}

AMN_FORCE_INLINE pair load_pair(amn_source source, const uint8_t *src) {
  const uint8_t *upper = src + WIDE_LANES * source_bytes(source);
  if (source == AMN_SOURCE_F32)
    return pair_of(wide_load((const float *)src), wide_load((const float *)upper));
  if (source == AMN_SOURCE_F16) return pair_of(wide_load_f16(src), wide_load_f16(upper));
  return pair_of_bf16(wide_load_words(src));
}

/* Part i of 32 values. */
AMN_FORCE_INLINE const uint8_t *part_of(amn_source source, const uint8_t *src, int i) {
  return src + (size_t)i * PAIR_VALUES * source_bytes(source);
}
