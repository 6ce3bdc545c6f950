/* Numbers to float32 and float32 to the outputs, with the vector vocabulary of vec_*.h.
 *
 * Each kernel is a body for a group of 16 elements; what is left over goes through the same body in
 * a padded block.
 *
 * Needs: vec.h alone. Defines: widen_*, narrow_*; loops over groups of 16. */

#define GROUP 16

typedef uint64_t (*block_fn)(const uint8_t *src, uint8_t *dst);

/* Both bodies are inlined here with a constant `body`, item sizes included. Padding is zeros, which
 * every kernel turns into zeros: it adds nothing to the count. */
AMN_FORCE_INLINE uint64_t for_blocks(block_fn body, size_t src_bytes, size_t dst_bytes,
                                     const uint8_t *src, uint8_t *dst, size_t n) {
  uint64_t n_overflow = 0;
  const size_t rest = n % GROUP;
  for (size_t i = 0; i < n - rest; i += GROUP)
    n_overflow += body(src + i * src_bytes, dst + i * dst_bytes);
  if (rest) {
    uint8_t padded_src[GROUP * 8] = {0}, padded_dst[GROUP * 4];
    memcpy(padded_src, src + (n - rest) * src_bytes, rest * src_bytes);
    n_overflow += body(padded_src, padded_dst);
    memcpy(dst + (n - rest) * dst_bytes, padded_dst, rest * dst_bytes);
  }
  v_end();
  return n_overflow;
}

/* ---- widen ---- */

static uint64_t count_f64_overflow(const uint8_t *src, const uint8_t *dst) {
  uint64_t n_overflow = 0;
  for (int i = 0; i < GROUP; i++) {
    const int was_finite = (amn_load_u32(src + 8 * i + 4) & 0x7ff00000u) != 0x7ff00000u;
    n_overflow += was_finite && (amn_load_u32(dst + 4 * i) & 0x7fffffffu) == 0x7f800000u;
  }
  return n_overflow;
}

AMN_FORCE_INLINE uint64_t widen_block_f64(const uint8_t *src, uint8_t *dst) {
  vec infinite = v_zero();
  for (int i = 0; i < 2; i++) {
    const vec_f32 values = v_load_f64_as_f32(src + 64 * i);
    const vec magnitude = v_and(v_bits_f32(values), v_set_u32(0x7fffffff));
    infinite = v_or(infinite, v_equal_u32(magnitude, v_set_u32(0x7f800000)));
    v_store_f32(dst + 32 * i, values);
  }
  return v_any(infinite) ? count_f64_overflow(src, dst) : 0;
}

AMN_FORCE_INLINE uint64_t widen_block_f32(const uint8_t *src, uint8_t *dst) {
  for (int i = 0; i < 2; i++) v_store(dst + 32 * i, v_load(src + 32 * i));
  return 0;
}

AMN_FORCE_INLINE uint64_t widen_block_f16(const uint8_t *src, uint8_t *dst) {
  for (int i = 0; i < 2; i++) v_store_f32(dst + 32 * i, v_load_f16_as_f32(src + 16 * i));
  return 0;
}

AMN_FORCE_INLINE uint64_t widen_block_bf16(const uint8_t *src, uint8_t *dst) {
  for (int i = 0; i < 2; i++) v_store(dst + 32 * i, v_shl_u32(v_load_u16_as_u32(src + 16 * i), 16));
  return 0;
}

/* The code is the exponent field. The ends of the scale, 0 (2^-127, subnormal) and 0xff (NaN), both
 * want the highest mantissa bit besides. */
AMN_FORCE_INLINE uint64_t widen_block_f8_e8m0(const uint8_t *src, uint8_t *dst) {
  for (int i = 0; i < 2; i++) {
    const vec code = v_load_u8_as_u32(src + 8 * i);
    const vec at_end = v_or(v_equal_u32(code, v_zero()), v_equal_u32(code, v_set_u32(0xff)));
    v_store(dst + 32 * i, v_or(v_shl_u32(code, 23), v_and(at_end, v_set_u32(0x00400000))));
  }
  return 0;
}

/* ---- narrow ---- */

/* The upper half of a float32, rounded: half a unit less one is added, and the lowest kept bit. */
AMN_FORCE_INLINE vec round_to_bf16(vec_f32 values) {
  const vec bits = v_bits_f32(values);
  const vec odd = v_and(v_shr_u32(bits, 16), v_set_u32(1));
  return v_shr_u32(v_add_u32(v_add_u32(bits, v_set_u32(0x7fff)), odd), 16);
}

/* Infinities and NaNs are rare: one test finds the blocks that have any, and this mends them. */
static uint64_t finish_special(const uint8_t *src, uint8_t *dst, uint16_t infinity, uint16_t nan) {
  uint64_t n_overflow = 0;
  for (int i = 0; i < GROUP; i++) {
    const uint32_t magnitude = amn_load_u32(src + 4 * i) & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
      amn_store_u16(dst + 2 * i, nan);
    else if (magnitude < 0x7f800000u)
      n_overflow += (amn_load_u16(dst + 2 * i) & 0x7fff) == infinity;
  }
  return n_overflow;
}

/* Special is what is not below the last float32 that rounds to a finite bfloat16. */
AMN_FORCE_INLINE uint64_t narrow_block_bf16(const uint8_t *src, uint8_t *dst) {
  const vec_f32 low = v_load_f32(src), high = v_load_f32(src + 32);
  const vec abs_mask = v_set_u32(0x7fffffff), last_finite = v_set_u32(0x7f7f7fff);
  const vec special = v_or(v_greater_s32(v_and(v_bits_f32(low), abs_mask), last_finite),
                           v_greater_s32(v_and(v_bits_f32(high), abs_mask), last_finite));
  v_store(dst, v_pack_u32(round_to_bf16(low), round_to_bf16(high)));
  return v_any(special) ? finish_special(src, dst, 0x7f80, 0x7fc0) : 0;
}

AMN_FORCE_INLINE uint64_t narrow_block_f16(const uint8_t *src, uint8_t *dst) {
  const vec halves = v_f16_from_f32(v_load_f32(src), v_load_f32(src + 32));
  const vec magnitude = v_and(halves, v_set_u16(0x7fff));
  v_store(dst, halves);
  return v_any(v_greater_s16(magnitude, v_set_u16(0x7bff)))
             ? finish_special(src, dst, 0x7c00, 0x7e00)
             : 0;
}

AMN_FORCE_INLINE uint64_t narrow_block_f32(const uint8_t *src, uint8_t *dst) {
  for (int i = 0; i < 2; i++) {
    const vec_f32 values = v_load_f32(src + 32 * i);
    const vec nan = v_set_u32(0x7fc00000);
    v_store(dst + 32 * i, v_select(v_is_nan_f32(values), nan, v_bits_f32(values)));
  }
  return 0;
}

/* ---- the kernels ---- */

static uint64_t V_NAME(widen_f64)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(widen_block_f64, 8, 4, src, dst, n);
}

static uint64_t V_NAME(widen_f32)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(widen_block_f32, 4, 4, src, dst, n);
}

static uint64_t V_NAME(widen_f16)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(widen_block_f16, 2, 4, src, dst, n);
}

static uint64_t V_NAME(widen_bf16)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(widen_block_bf16, 2, 4, src, dst, n);
}

static uint64_t V_NAME(widen_f8_e8m0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(widen_block_f8_e8m0, 1, 4, src, dst, n);
}

static uint64_t V_NAME(narrow_bf16)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(narrow_block_bf16, 4, 2, src, dst, n);
}

static uint64_t V_NAME(narrow_f16)(const uint8_t *src, uint8_t *dst, size_t n) {
  return for_blocks(narrow_block_f16, 4, 2, src, dst, n);
}

/* In place, there is something to write only where there is a NaN. */
static void canonicalise_f32(uint8_t *values, size_t n) {
  const size_t rest = n % (2 * GROUP);
  for (size_t i = 0; i < n - rest; i += 2 * GROUP) {
    uint8_t *at = values + 4 * i;
    const vec nan = v_or(v_unordered_f32(v_load_f32(at), v_load_f32(at + 32)),
                         v_unordered_f32(v_load_f32(at + 64), v_load_f32(at + 96)));
    if (v_any(nan)) for_blocks(narrow_block_f32, 4, 4, at, at, 2 * GROUP);
  }
  if (rest) {
    uint8_t *at = values + 4 * (n - rest);
    for_blocks(narrow_block_f32, 4, 4, at, at, rest);
  }
  v_end();
}

static uint64_t V_NAME(narrow_f32)(const uint8_t *src, uint8_t *dst, size_t n) {
  if (src == dst) {
    canonicalise_f32(dst, n);
    return 0;
  }
  return for_blocks(narrow_block_f32, 4, 4, src, dst, n);
}
