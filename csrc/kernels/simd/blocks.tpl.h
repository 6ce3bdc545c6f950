/* What the GGUF templates share.
 *
 * Every type here is an integer of 8 bits or fewer times a scale, and maybe plus a minimum. So all
 * that a type needs for float32 is to put 32 signed bytes together.
 *
 * For bfloat16 there are two ways. Where a scale has at most 16 outcomes, those are computed,
 * rounded and looked up by nibble, a lane of 16 bytes for each of two blocks. Else the 32 bytes are
 * multiplied and rounded. Neither looks for overflow or NaN: a half float times 128 can only be
 * infinite or NaN if the half is, and blocks with such a scale, or a scale out of other bounds, go
 * by way of float32.
 *
 * Needs: convert.tpl.h. Defines: no kernel; BLOCK_TYPE, and loops over blocks and pairs of them. */

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

/* Sixteen rounded words at once: one more where the lower half, less one if the upper one is even,
 * has its highest bit. */
AMN_FORCE_INLINE vec bf16_words(vec_f32 even, vec_f32 odd) {
  const vec even_bits = v_bits_f32(even), odd_bits = v_bits_f32(odd);
  const vec upper = v_even_odd_u16(v_shr_u32(even_bits, 16), odd_bits);
  const vec lower = v_even_odd_u16(even_bits, v_shl_u32(odd_bits, 16));
  const vec above_tie = v_sub_sat_u16(lower, v_and_not(upper, v_set_u16(1)));
  return v_add_u16(upper, v_shr_u16(above_tie, 15));
}

/* The same for half floats; and either of them, as a constant in every use. */
AMN_FORCE_INLINE vec f16_words(vec_f32 even, vec_f32 odd) {
  return v_f16_pairs_from_f32(even, odd);
}
typedef vec (*words_fn)(vec_f32 even, vec_f32 odd);

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

#define RUN_MAX 64

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

#define BLOCK_TYPE(name, is_plain) \
  ((block_type){AMN_ELEMENTS_##name, sizeof(block_##name), V_NAME(dequant_##name), is_plain})

static uint64_t block_by_f32(amn_block_fn dequant, size_t elements, const uint8_t *src,
                             uint8_t *dst) {
  _Alignas(64) float values[AMN_BLOCK_ELEMENTS_MAX];
  dequant(src, values, 1);
  return V_NAME(narrow_bf16)((const uint8_t *)values, dst, elements);
}

/* How many blocks from src on may go the direct way, one after another. */
AMN_FORCE_INLINE size_t plain_run(block_type type, const uint8_t *src, size_t n) {
  size_t i = 0;
  while (i < n && type.is_plain(src + i * type.bytes)) i++;
  return i;
}

/* Runs that may go the direct way have a loop of their own: with a call in it, the constants would
 * not stay in registers. */
AMN_FORCE_INLINE uint64_t each_run(block_type type, body_fn body, pair_fn pair, const uint8_t *src,
                                   uint8_t *dst, size_t n) {
  const size_t dst_bytes = 2 * type.elements;
  uint64_t n_overflow = 0;
  while (n > 0) {
    size_t run = plain_run(type, src, n < RUN_MAX ? n : RUN_MAX);
    if (run == 0) {
      n_overflow += block_by_f32(type.dequant, type.elements, src, dst);
      run = 1;
    } else if (pair != NULL) {
      size_t i = 0;
      for (; i + 2 <= run; i += 2)
        pair(src + i * type.bytes, src + (i + 1) * type.bytes, dst + i * dst_bytes,
             dst + (i + 1) * dst_bytes);
      if (i < run) /* a last one alone is its own second */
        pair(src + i * type.bytes, src + i * type.bytes, dst + i * dst_bytes, dst + i * dst_bytes);
    } else {
      for (size_t i = 0; i < run; i++) body(src + i * type.bytes, dst + i * dst_bytes);
    }
    src += run * type.bytes;
    dst += run * dst_bytes;
    n -= run;
  }
  v_end();
  return n_overflow;
}

AMN_FORCE_INLINE uint64_t each_block(block_type type, body_fn body, const uint8_t *src,
                                     uint8_t *dst, size_t n) {
  return each_run(type, body, NULL, src, dst, n);
}

/* Two blocks at a time. */
AMN_FORCE_INLINE uint64_t each_pair(block_type type, pair_fn pair, const uint8_t *src, uint8_t *dst,
                                    size_t n) {
  return each_run(type, NULL, pair, src, dst, n);
}
