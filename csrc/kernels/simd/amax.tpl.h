/* The largest magnitudes and the ranges of blocks.
 *
 * Needs: pairs.tpl.h. Defines: amax_*, range_* of each source. */

/* Of numbers of 16 bits: their magnitudes are in the order of their bits. */
AMN_FORCE_INLINE vec magnitudes_u16(const uint8_t *src) {
  return v_and(v_load(src), v_set_u16(0x7fff));
}

AMN_FORCE_INLINE uint32_t largest_u16(const uint8_t *src, size_t n) {
  vec even = v_zero(), odd = v_zero();
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    even = v_max_u16(even, magnitudes_u16(src + 2 * i));
    odd = v_max_u16(odd, magnitudes_u16(src + 2 * i + 32));
  }
  if (i + 16 <= n) {
    even = v_max_u16(even, magnitudes_u16(src + 2 * i));
    i += 16;
  }
  uint32_t largest = v_largest_u16(v_max_u16(even, odd));
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

/* Of short blocks, finding the largest of 16 words takes longer than what comes before. So FOLDED
 * of them are taken at once, whose words zips bring together. */
#define FOLDED 8

AMN_FORCE_INLINE int is_folded(size_t block) {
  return block == 16 || block == 32 || block == 64;
}

AMN_FORCE_INLINE vec fold_u16(vec a, vec b) {
  return v_max_u16(v_zip_low_u16(a, b), v_zip_high_u16(a, b));
}
AMN_FORCE_INLINE vec fold_u32(vec a, vec b) {
  return v_max_u16(v_zip_low_u32(a, b), v_zip_high_u32(a, b));
}

/* The largest magnitudes of FOLDED blocks, in the lower lane. */
AMN_FORCE_INLINE vec largest_of_blocks(const uint8_t *src, size_t block) {
  vec most[FOLDED];
  for (int i = 0; i < FOLDED; i++, src += 2 * block) {
    most[i] = magnitudes_u16(src);
    for (size_t at = 16; at < block; at += 16)
      most[i] = v_max_u16(most[i], magnitudes_u16(src + 2 * at));
  }
  const vec low = fold_u32(fold_u16(most[0], most[1]), fold_u16(most[2], most[3]));
  const vec high = fold_u32(fold_u16(most[4], most[5]), fold_u16(most[6], most[7]));
  const vec all = v_max_u16(v_zip_low_u64(low, high), v_zip_high_u64(low, high));
  return v_max_u16(all, v_upper_lane(all));
}

AMN_FORCE_INLINE vec f32_bits_of(amn_source source, vec halves) {
  if (source == AMN_SOURCE_F16) return v_bits_f32(v_f32_from_f16(halves));
  uint8_t words[32];
  v_store(words, halves);
  return v_shl_u32(v_load_u16_as_u32(words), 16);
}

/* As many blocks as are folded; returns how many those are. */
AMN_FORCE_INLINE size_t fold_blocks_u16(amn_source source, const uint8_t *src, size_t n,
                                        size_t block, uint32_t *maxima) {
  const size_t n_folded = n / block / FOLDED * FOLDED;
  for (size_t i = 0; i < n_folded; i += FOLDED) {
    const vec found = f32_bits_of(source, largest_of_blocks(src + 2 * i * block, block));
    v_store(maxima + i, v_max_s32(v_load(maxima + i), found));
  }
  return n_folded;
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
    if (item_bytes == 2 && is_folded(block)) {                                                \
      const size_t done = fold_blocks_u16(AMN_SOURCE_##NAME, src, n, block, maxima);          \
      src += done * block * item_bytes, n -= done * block, maxima += done;                    \
    }                                                                                         \
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

#undef FOLDED
