/* The largest magnitudes and the ranges of blocks.
 *
 * Needs: pairs.tpl.h. Defines: amax_*, range_* of each source. */

/* Of numbers of 16 bits: their magnitudes are in the order of their bits. */
AMN_FORCE_INLINE uint32_t largest_u16(const uint8_t *src, size_t n) {
  const vec magnitude = v_set_u16(0x7fff);
  vec most = v_zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) most = v_max_u16(most, v_and(v_load(src + 2 * i), magnitude));
  uint32_t largest = v_largest_u16(most);
  for (; i < n; i++) {
    const uint32_t bits = amn_load_u16(src + 2 * i) & 0x7fffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

static uint32_t largest_bf16(const uint8_t *src, size_t n) {
  return largest_u16(src, n) << 16;
}

static uint32_t largest_f16(const uint8_t *src, size_t n) {
  float values[8];
  v_store_f32(values, v_f32_from_f16(v_set_u16((uint16_t)largest_u16(src, n))));
  return amn_f32_bits(values[0]);
}

static uint32_t largest_f32(const uint8_t *src, size_t n) {
  const vec magnitude = v_set_u32(0x7fffffff);
  vec most = v_zero();
  size_t i = 0;
  for (; i + 8 <= n; i += 8) most = v_max_s32(most, v_and(v_load(src + 4 * i), magnitude));
  uint32_t largest = v_largest_s32(most);
  for (; i < n; i++) {
    const uint32_t bits = amn_load_u32(src + 4 * i) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/* Of BF16, the largest positive one has the most bits of all as int16, and the least negative one
 * as uint16. Where none is positive, or none negative, the one nearest to 0 counts: with all bits
 * but the sign inverted, it has the most as int16. */
AMN_FORCE_INLINE uint32_t largest_s16(vec a) {
  return v_largest_u16(v_xor(a, v_set_u16(0x8000))) ^ 0x8000u;
}

AMN_FORCE_INLINE void range_of_bf16(const uint8_t *src, size_t n, float *low, float *high) {
  const vec magnitude = v_set_u16(0x7fff);
  vec most = v_set_u16(0x8000), nearest = most, least = v_zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const vec words = v_load(src + 2 * i);
    most = v_max_s16(most, words);
    least = v_max_u16(least, words);
    nearest = v_max_s16(nearest, v_xor(words, magnitude));
  }
  if (i > 0) {
    const uint32_t above = largest_s16(most), below = v_largest_u16(least);
    const uint32_t near = largest_s16(nearest) ^ 0x7fffu;
    const float highest = amn_f32_from_bits((above < 0x8000 ? above : near) << 16);
    const float lowest = amn_f32_from_bits((below < 0x8000 ? near : below) << 16);
    if (highest > *high) *high = highest;
    if (lowest < *low) *low = lowest;
  }
  for (; i < n; i++) {
    const float value = amn_f32_from_bits((uint32_t)amn_load_u16(src + 2 * i) << 16);
    if (value > *high) *high = value;
    if (value < *low) *low = value;
  }
}

/* Float32 as int32 of the same order, and back. */
AMN_FORCE_INLINE vec ordered_f32(vec_f32 a) {
  const vec bits = v_bits_f32(a);
  const vec is_negative = v_greater_s32(v_zero(), bits);
  return v_xor(bits, v_and(is_negative, v_set_u32(0x7fffffff)));
}

static float from_ordered(uint32_t bits) {
  return amn_f32_from_bits(bits >> 31 ? bits ^ 0x7fffffffu : bits);
}

/* What is left of a block is padded with its first value. */
AMN_FORCE_INLINE void range_of(amn_source source, const uint8_t *src, size_t n, float *low,
                               float *high) {
  const size_t item = source_bytes(source);
  vec_f32 least = v_set_f32(FLT_MAX), most = v_set_f32(-FLT_MAX);
  for (size_t i = 0; i < n; i += 16) {
    uint8_t padded[64];
    const uint8_t *at = src + i * item;
    if (n - i < 16) {
      for (size_t j = 0; j < 16; j++) memcpy(padded + j * item, src, item);
      at = memcpy(padded, at, (n - i) * item);
    }
    const pair values = load_pair(source, at);
    least = v_min_f32(least, v_min_f32(values.even, values.odd));
    most = v_max_f32(most, v_max_f32(values.even, values.odd));
  }
  const float highest = from_ordered(v_largest_s32(ordered_f32(most)));
  const vec all = v_set_u32(0xffffffff);
  const float lowest = from_ordered(~v_largest_s32(v_xor(ordered_f32(least), all)));
  if (highest > *high) *high = highest;
  if (lowest < *low) *low = lowest;
}

#define SOURCE(NAME, name, item_bytes, levels)                                                \
  V_ENCODER void V_NAME(amax_##name)(const uint8_t *src, size_t n, size_t block,              \
                                     uint32_t *maxima) {                                      \
    for (size_t count; n > 0; n -= count, src += count * item_bytes, maxima++) {              \
      count = n < block ? n : block;                                                          \
      const uint32_t found = largest_##name(src, count);                                      \
      if (found > *maxima) *maxima = found;                                                   \
    }                                                                                         \
    v_end();                                                                                  \
  }                                                                                           \
  V_ENCODER void V_NAME(range_##name)(const uint8_t *src, size_t n, size_t block, float *low, \
                                      float *high) {                                          \
    for (size_t count; n > 0; n -= count, src += count * item_bytes) {                        \
      count = n < block ? n : block;                                                          \
      if (AMN_SOURCE_##NAME == AMN_SOURCE_BF16)                                               \
        range_of_bf16(src, count, low++, high++);                                             \
      else                                                                                    \
        range_of(AMN_SOURCE_##NAME, src, count, low++, high++);                               \
    }                                                                                         \
    v_end();                                                                                  \
  }
#include "../kernels.def"
