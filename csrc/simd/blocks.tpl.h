/* What the GGUF templates share. Needs convert.tpl.h.
 *
 * Every type here is an integer of 8 bits or fewer times a scale, and maybe plus a minimum. So all
 * that a type needs for float32 is to put 32 signed bytes together.
 *
 * For bfloat16 there are two ways. Where a scale has at most 16 outcomes, those are computed,
 * rounded and looked up by nibble, a lane of 16 bytes for each of two blocks. Else the 32 bytes are
 * multiplied and rounded. Neither looks for overflow or NaN: a half float times 128 can only be
 * infinite or NaN if the half is, and blocks with such a scale, or a scale out of other bounds, go
 * by way of float32. */

#define TWO_TO_MINUS_24 0x1p-24f

/* ---- 32 signed bytes to float32 ---- */

AMN_FORCE_INLINE void bytes_to_f32(vec bytes, vec_f32 scale, float *dst) {
  for (int i = 0; i < 4; i++)
    v_store_f32(dst + 8 * i, v_mul_f32(v_f32_from_s32(v_s32_from_s8(bytes, i)), scale));
}

AMN_FORCE_INLINE void bytes_to_f32_plus(vec bytes, vec_f32 scale, vec_f32 min, float *dst) {
  for (int i = 0; i < 4; i++) {
    const vec_f32 product = v_mul_f32(v_f32_from_s32(v_s32_from_s8(bytes, i)), scale);
    v_store_f32(dst + 8 * i, v_add_f32(product, min));
  }
}

/* ---- 32 signed bytes to bfloat16 ---- */

/* float32 whose upper halves are the bfloat16. */
AMN_FORCE_INLINE vec bf16_in_upper(vec_f32 values) {
  const vec bits = v_bits_f32(values);
  const vec odd = v_and(v_shr_u32(bits, 16), v_set_u32(1));
  return v_add_u32(v_add_u32(bits, v_set_u32(0x7fff)), odd);
}

AMN_FORCE_INLINE vec bf16_words(vec_f32 even, vec_f32 odd) {
  return v_even_odd_u16(v_shr_u32(bf16_in_upper(even), 16), bf16_in_upper(odd));
}

/* The bytes become the top ones of s32, so `scale` must be 2^-24 of the block's. */
AMN_FORCE_INLINE void bytes_to_bf16(vec bytes, vec_f32 scale, uint8_t *dst) {
  for (int i = 0; i < 2; i++) {
    const vec_f32 even = v_f32_from_s32(v_spread_even_s8(bytes, i));
    const vec_f32 odd = v_f32_from_s32(v_spread_odd_s8(bytes, i));
    v_store_lanes(dst + 16 * i, dst + 32 + 16 * i,
                  bf16_words(v_mul_f32(even, scale), v_mul_f32(odd, scale)));
  }
}

AMN_FORCE_INLINE void bytes_to_bf16_plus(vec bytes, vec_f32 scale, vec_f32 min, uint8_t *dst) {
  for (int i = 0; i < 2; i++) {
    const vec_f32 even = v_f32_from_s32(v_spread_even_s8(bytes, i));
    const vec_f32 odd = v_f32_from_s32(v_spread_odd_s8(bytes, i));
    v_store_lanes(
        dst + 16 * i, dst + 32 + 16 * i,
        bf16_words(v_add_f32(v_mul_f32(even, scale), min), v_add_f32(v_mul_f32(odd, scale), min)));
  }
}

/* ---- tables ---- */

/* The bfloat16 of a nibble, as low and high bytes, for each lane. */
typedef struct {
  vec low, high;
} nibble_table;

/* 16 indices in each lane, and what they stand for: the words of a lane's first 8 elements to
 * dst_a and dst_b, the rest behind them. */
AMN_FORCE_INLINE void store_nibbles(nibble_table table, vec index, uint8_t *dst_a, uint8_t *dst_b) {
  const vec low = v_lookup16(table.low, index), high = v_lookup16(table.high, index);
  v_store_lanes(dst_a, dst_b, v_zip_low_u8(low, high));
  v_store_lanes(dst_a + 16, dst_b + 16, v_zip_high_u8(low, high));
}

/* Two times 16 bytes of nibbles: 16 elements in the low ones, then 16 in the high ones. */
AMN_FORCE_INLINE void store_low_high_nibbles(nibble_table table, vec bytes, uint8_t *dst_a,
                                             uint8_t *dst_b) {
  const vec mask = v_set_u8(15);
  store_nibbles(table, v_and(bytes, mask), dst_a, dst_b);
  store_nibbles(table, v_and(v_shr_u16(bytes, 4), mask), dst_a + 32, dst_b + 32);
}

/* 16 bytes of nibbles as 32 bytes: the low ones, then the high ones. */
AMN_FORCE_INLINE vec low_high_nibbles(const uint8_t *qs) {
  const vec bytes = v_load_both_lanes(qs);
  return v_and(v_shr_u32_lanes(bytes, 0, 4), v_set_u8(15));
}

/* ---- loops ---- */

AMN_FORCE_INLINE int half_is_finite(const uint8_t *p) {
  return (amn_load_u16(p) & 0x7c00) != 0x7c00;
}

typedef int (*plain_fn)(const uint8_t *block);
typedef void (*body_fn)(const uint8_t *src, uint8_t *dst);
typedef void (*pair_fn)(const uint8_t *a, const uint8_t *b, uint8_t *dst_a, uint8_t *dst_b);

/* A type, as a constant in every use: the facts of its row, its kernel to float32, and whether a
 * block may go the direct way. */
typedef struct {
  size_t elements, bytes;
  amn_block_fn dequant;
  plain_fn is_plain;
} block_type;

static uint64_t block_by_f32(amn_block_fn dequant, size_t elements, const uint8_t *src,
                             uint8_t *dst) {
  _Alignas(64) float values[AMN_BLOCK_ELEMENTS_MAX];
  dequant(src, values, 1);
  return V_NAME(narrow_bf16)((const uint8_t *)values, dst, elements);
}

AMN_FORCE_INLINE uint64_t each_block(block_type type, body_fn body, const uint8_t *src,
                                     uint8_t *dst, size_t n) {
  uint64_t n_overflow = 0;
  for (; n > 0; n--, src += type.bytes, dst += 2 * type.elements) {
    if (type.is_plain(src))
      body(src, dst);
    else
      n_overflow += block_by_f32(type.dequant, type.elements, src, dst);
  }
  v_end();
  return n_overflow;
}

/* Two blocks at a time; a last one alone is its own second. */
AMN_FORCE_INLINE uint64_t each_pair(block_type type, pair_fn body, const uint8_t *src, uint8_t *dst,
                                    size_t n) {
  uint64_t n_overflow = 0;
  for (size_t step = 2; n > 0; n -= step) {
    if (n < 2) step = 1;
    const uint8_t *b = src + (step - 1) * type.bytes;
    uint8_t *dst_b = dst + (step - 1) * 2 * type.elements;
    if (type.is_plain(src) && type.is_plain(b)) {
      body(src, b, dst, dst_b);
    } else {
      n_overflow += block_by_f32(type.dequant, type.elements, src, dst);
      if (step == 2) n_overflow += block_by_f32(type.dequant, type.elements, b, dst_b);
    }
    src += step * type.bytes;
    dst += step * 2 * type.elements;
  }
  v_end();
  return n_overflow;
}
