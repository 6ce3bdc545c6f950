/* The IQ2 and IQ3 types, and what IQ1 shares with them, with the vector vocabulary of vec_*.h.
 *
 * For a whole block at once, the indices of grid entries are put together, and the signs, and what
 * a scale makes of the few levels of the grid: all products are exact in float32, so each rounds to
 * bfloat16 as it does in scalar/iquants.c. Then, for 32 elements at a time, grid entries are
 * loaded, and the indices they consist of are looked up among those outcomes, as low and as high
 * bytes.
 *
 * The four rows of 8 elements are loaded as 0, 2 | 1, 3, so that zips put them in order.
 *
 * Needs: blocks.tpl.h, kquants.tpl.h. Defines: dequant_* of IQ2 and IQ3. */

/* A sign, or what else there is for each row, in all eight bytes of the row. */
AMN_FORCE_INLINE vec iq_spread_rows(k_out out, const uint8_t *four) {
  return out == TO_BF16 ? v_load_rows_u8_zip1(four) : v_load_rows_u8(four);
}

/* Ones in the bytes that are negative. */
AMN_FORCE_INLINE vec iq_sign_mask(k_out out, const uint8_t *signs) {
  const vec bits = v_set_u64(0x8040201008040201u);
  return v_equal_u8(v_and(iq_spread_rows(out, signs), bits), bits);
}

AMN_FORCE_INLINE vec iq_negate_s8(vec bytes, vec mask) {
  return v_sub_u8(v_xor(bytes, mask), mask);
}

/* Seven signs in each byte, and an eighth that makes their number even. */
AMN_FORCE_INLINE vec iq_even_signs(vec seven) {
  const vec odd = v_load_both_lanes(
      (const uint8_t[16]){0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0});
  const vec folded = v_xor(seven, v_and(v_shr_u16(seven, 4), v_set_u8(7)));
  return v_or(seven, v_lookup16(odd, v_and(folded, v_set_u8(15))));
}

/* The lowest 28 bits of each u32 as four bytes of seven. */
AMN_FORCE_INLINE vec iq_split_28(vec words) {
  const vec a = v_and(words, v_set_u32(0x7f));
  const vec b = v_and(v_shl_u32(words, 1), v_set_u32(0x7f00));
  const vec c = v_and(v_shl_u32(words, 2), v_set_u32(0x7f0000));
  const vec d = v_and(v_shl_u32(words, 3), v_set_u32(0x7f000000));
  return v_or(v_or(a, b), v_or(c, d));
}

AMN_FORCE_INLINE uint32_t iq_index(const uint8_t *indices, int index_bytes, int i) {
  return index_bytes == 1 ? indices[i] : amn_load_u16(indices + 2 * i);
}

/* Four entries of a grid of rows of 8, by indices at + 0 to 3. */
AMN_FORCE_INLINE vec iq_rows_8(k_out out, const uint64_t *grid, const uint8_t *indices,
                               int index_bytes, int at) {
  const uint64_t *const a = grid + iq_index(indices, index_bytes, at);
  const uint64_t *const b = grid + iq_index(indices, index_bytes, at + 1);
  const uint64_t *const c = grid + iq_index(indices, index_bytes, at + 2);
  const uint64_t *const d = grid + iq_index(indices, index_bytes, at + 3);
  return out == TO_BF16 ? v_load_u64x4(a, c, b, d) : v_load_u64x4(a, b, c, d);
}

/* Eight entries of a grid of rows of 4. */
AMN_FORCE_INLINE vec iq_rows_4(k_out out, const uint32_t *grid, const uint8_t *indices,
                               int index_bytes, int at) {
  const uint32_t *rows[8];
  for (int i = 0; i < 8; i++) rows[i] = grid + iq_index(indices, index_bytes, at + i);
  if (out == TO_BF16)
    return v_load_u32x8(rows[0], rows[1], rows[4], rows[5], rows[2], rows[3], rows[6], rows[7]);
  return v_load_u32x8(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]);
}

/* What eight scales make of three levels: byte i of each u32 is the low, or high, byte of level i's
 * outcome. */
typedef struct {
  vec low, high;
} iq_triples;

AMN_FORCE_INLINE iq_triples iq_make_triples(vec_f32 scale, vec_f32 level_0, vec_f32 level_1,
                                            vec_f32 level_2) {
  const vec even = bf16_words(v_mul_f32(scale, level_0), v_mul_f32(scale, level_2));
  const vec odd = v_shr_u32(bf16_in_upper(v_mul_f32(scale, level_1)), 16);
  iq_triples triples;
  triples.low = v_even_odd_u8(even, v_shl_u16(odd, 8));
  triples.high = v_even_odd_u8(v_shr_u16(even, 8), odd);
  return triples;
}

AMN_FORCE_INLINE void iq_store_zip1(vec low, vec high, uint8_t *dst) {
  v_store(dst, v_zip_low_u8(low, high));
  v_store(dst + 32, v_zip_high_u8(low, high));
}

/* ---- IQ2 ---- */

typedef struct {
  const uint64_t *grid;
  const uint8_t *indices;
  int index_bytes;      /* constant in every use, as is: */
  int scales_per_32;    /* 1 or 2 */
  const uint8_t *signs; /* a byte for each row */
} iq2_parts;

AMN_FORCE_INLINE iq_triples iq2_make_triples(vec_f32 scale) {
  return iq_make_triples(scale, v_set_f32(amn_iq2_levels[0]), v_set_f32(amn_iq2_levels[1]),
                         v_set_f32(amn_iq2_levels[2]));
}

AMN_FORCE_INLINE void iq2_store_bf16(iq2_parts parts, vec_f32 scale_a, vec_f32 scale_b,
                                     uint8_t *dst) {
  uint8_t low[64], high[64];
  for (int i = 0; i < parts.scales_per_32; i++) {
    const iq_triples triples = iq2_make_triples(i ? scale_b : scale_a);
    v_store(low + 32 * i, triples.low);
    v_store(high + 32 * i, triples.high);
  }
  for (int i = 0; i < 8; i++, dst += 64) {
    vec rows = iq_rows_8(TO_BF16, parts.grid, parts.indices, parts.index_bytes, 4 * i);
    vec low_table, high_table;
    if (parts.scales_per_32 == 1) {
      low_table = v_load_u32_all(low + 4 * i);
      high_table = v_load_u32_all(high + 4 * i);
    } else {
      rows = v_or(rows, v_set_u64x4(0, 0x0404040404040404u, 0, 0x0404040404040404u));
      low_table = v_load_u64_all(low + 8 * i);
      high_table = v_load_u64_all(high + 8 * i);
    }
    const vec sign = v_and(iq_sign_mask(TO_BF16, parts.signs + 4 * i), v_set_u8(0x80));
    iq_store_zip1(v_lookup16(low_table, rows), v_xor(v_lookup16(high_table, rows), sign), dst);
  }
}

AMN_FORCE_INLINE void iq2_store_f32(iq2_parts parts, vec_f32 scale_a, vec_f32 scale_b,
                                    uint8_t *dst) {
  const vec levels = v_set_u32((uint32_t)amn_iq2_levels[0] | (uint32_t)amn_iq2_levels[1] << 8 |
                               (uint32_t)amn_iq2_levels[2] << 16);
  float scale[16];
  v_store_f32(scale, scale_a);
  v_store_f32(scale + 8, scale_b);
  for (int i = 0; i < 8; i++, dst += 128) {
    const vec rows = iq_rows_8(TO_F32, parts.grid, parts.indices, parts.index_bytes, 4 * i);
    const vec mask = iq_sign_mask(TO_F32, parts.signs + 4 * i);
    const vec bytes = iq_negate_s8(v_lookup16(levels, rows), mask);
    if (parts.scales_per_32 == 1)
      bytes_to_f32(bytes, v_set_f32(scale[i]), (float *)dst);
    else
      k_store_16(TO_F32, bytes, scale + 2 * i, dst);
  }
}

AMN_FORCE_INLINE void iq2_store(k_out out, iq2_parts parts, vec_f32 scale_a, vec_f32 scale_b,
                                uint8_t *dst) {
  if (out == TO_BF16)
    iq2_store_bf16(parts, scale_a, scale_b, dst);
  else
    iq2_store_f32(parts, scale_a, scale_b, dst);
}

/* d * (0.5 + scale) * factor */
AMN_FORCE_INLINE vec_f32 iq_scale(const uint8_t *d, vec scale, float factor) {
  const vec_f32 sum = v_add_f32(v_set_f32(0.5f), v_f32_from_s32(scale));
  return v_mul_f32(v_mul_f32(v_load_f16_all(d), sum), v_set_f32(factor));
}

/* Sixteen scales that are nibbles, the low ones first. */
AMN_FORCE_INLINE void iq2_nibble_scales(const uint8_t *d, const uint8_t *scales, vec_f32 *a,
                                        vec_f32 *b) {
  const vec nibbles = v_load_nibbles_as_u8(scales);
  *a = iq_scale(d, v_s32_from_s8(nibbles, 0), 0.25f);
  *b = iq_scale(d, v_s32_from_s8(nibbles, 1), 0.25f);
}

AMN_FORCE_INLINE void iq2_xxs_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq2_xxs *block = (const block_iq2_xxs *)src;
  const vec a = v_load(block->qs), b = v_load(block->qs + 32);
  const vec rest = v_odd_u32(a, b);
  uint8_t signs[32], indices[32];
  v_store(signs, iq_even_signs(iq_split_28(rest)));
  v_store(indices, v_even_u32(a, b));
  const iq2_parts parts = {amn_iq2_xxs_grid, indices, 1, 1, signs};
  const vec_f32 scale = iq_scale(block->d, v_shr_u32(rest, 28), 0.25f);
  iq2_store(out, parts, scale, scale, dst);
}

AMN_FORCE_INLINE void iq2_xs_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq2_xs *block = (const block_iq2_xs *)src;
  const vec a = v_load(block->qs), b = v_load(block->qs + 32);
  uint8_t signs[32], indices[64];
  v_store(signs, iq_even_signs(v_pack_u16(v_shr_u16(a, 9), v_shr_u16(b, 9))));
  v_store(indices, v_and(a, v_set_u16(511)));
  v_store(indices + 32, v_and(b, v_set_u16(511)));
  const iq2_parts parts = {amn_iq2_xs_grid, indices, 2, 2, signs};
  vec_f32 scale_a, scale_b;
  iq2_nibble_scales(block->d, block->scales, &scale_a, &scale_b);
  iq2_store(out, parts, scale_a, scale_b, dst);
}

AMN_FORCE_INLINE void iq2_s_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq2_s *block = (const block_iq2_s *)src;
  uint8_t indices[64];
  for (int i = 0; i < 2; i++) {
    /* Each byte of qh four times, its pairs of bits moved to bits 8 and 9. */
    const vec times = v_set_u64(256 | 64ull << 16 | 16ull << 32 | 4ull << 48);
    const vec high = v_mul_u16(v_load_u8_as_u16_times4(block->qh + 4 * i), times);
    const vec low = v_load_u8_as_u16(block->qs + 16 * i);
    v_store(indices + 32 * i, v_or(low, v_and(high, v_set_u16(0x300))));
  }
  const iq2_parts parts = {amn_iq2_s_grid, indices, 2, 2, block->qs + 32};
  vec_f32 scale_a, scale_b;
  iq2_nibble_scales(block->d, block->scales, &scale_a, &scale_b);
  iq2_store(out, parts, scale_a, scale_b, dst);
}

/* ---- IQ3 ---- */

typedef struct {
  const uint32_t *grid;
  const int8_t *levels;
  const uint8_t *indices;
  int index_bytes; /* constant in every use */
  const uint8_t *signs;
} iq3_parts;

/* The outcomes of one scale: low bytes in 0 to 7 of each lane, high bytes in 8 to 15. */
AMN_FORCE_INLINE vec iq3_table(vec_f32 levels, float scale) {
  return v_split_upper_u16(bf16_in_upper(v_mul_f32(levels, v_set_f32(scale))));
}

AMN_FORCE_INLINE void iq3_store(k_out out, iq3_parts parts, vec_f32 scales, uint8_t *dst) {
  float scale[8];
  v_store_f32(scale, scales);
  const vec_f32 levels = v_f32_from_s32(v_load_s8_as_s32((const uint8_t *)parts.levels));
  const vec levels_s8 = v_load_u64_all((const uint8_t *)parts.levels);
  for (int i = 0; i < 8; i++) {
    const vec rows = iq_rows_4(out, parts.grid, parts.indices, parts.index_bytes, 8 * i);
    const vec mask = iq_sign_mask(out, parts.signs + 4 * i);
    if (out == TO_BF16) {
      const vec table = iq3_table(levels, scale[i]);
      const vec high = v_lookup16(table, v_or(rows, v_set_u8(8)));
      iq_store_zip1(v_lookup16(table, rows), v_xor(high, v_and(mask, v_set_u8(0x80))),
                    dst + 64 * i);
    } else {
      const vec bytes = iq_negate_s8(v_lookup16(levels_s8, rows), mask);
      bytes_to_f32(bytes, v_set_f32(scale[i]), (float *)dst + 32 * i);
    }
  }
}

AMN_FORCE_INLINE void iq3_xxs_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq3_xxs *block = (const block_iq3_xxs *)src;
  const vec rest = v_load(block->qs + 64);
  uint8_t signs[32];
  v_store(signs, iq_even_signs(iq_split_28(rest)));
  const iq3_parts parts = {amn_iq3_xxs_grid, amn_iq3_xxs_levels, block->qs, 1, signs};
  iq3_store(out, parts, iq_scale(block->d, v_shr_u32(rest, 28), 0.5f), dst);
}

AMN_FORCE_INLINE void iq3_s_block(k_out out, const uint8_t *src, uint8_t *dst) {
  const block_iq3_s *block = (const block_iq3_s *)src;
  uint8_t indices[128];
  for (int i = 0; i < 4; i++) {
    /* Each byte of qh eight times, its bits moved to bit 8. */
    const vec times = v_set_u64x4(
        256 | 128ull << 16 | 64ull << 32 | 32ull << 48, 16 | 8ull << 16 | 4ull << 32 | 2ull << 48,
        256 | 128ull << 16 | 64ull << 32 | 32ull << 48, 16 | 8ull << 16 | 4ull << 32 | 2ull << 48);
    const vec high = v_mul_u16(v_load_u8_as_u16_times8(block->qh + 2 * i), times);
    const vec low = v_load_u8_as_u16(block->qs + 16 * i);
    v_store(indices + 32 * i, v_or(low, v_and(high, v_set_u16(0x100))));
  }
  const iq3_parts parts = {amn_iq3_s_grid, amn_iq3_s_levels, indices, 2, block->signs};
  uint8_t nibbles[8];
  for (int i = 0; i < 4; i++) {
    nibbles[2 * i] = block->scales[i] & 15;
    nibbles[2 * i + 1] = block->scales[i] >> 4;
  }
  const vec factor = v_add_u32(v_shl_u32(v_load_u8_as_u32(nibbles), 1), v_set_u32(1));
  iq3_store(out, parts, v_mul_f32(v_load_f16_all(block->d), v_f32_from_s32(factor)), dst);
}

/* ---- the kernels ---- */

static void V_NAME(dequant_iq2_xxs)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq2_xxs), dst += 256)
    iq2_xxs_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq2_xxs_bf16(const uint8_t *src, uint8_t *dst) {
  iq2_xxs_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq2_xxs)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq2_xxs, half_is_finite);
  return each_block(type, iq2_xxs_bf16, src, dst, n);
}

static void V_NAME(dequant_iq2_xs)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq2_xs), dst += 256)
    iq2_xs_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq2_xs_bf16(const uint8_t *src, uint8_t *dst) {
  iq2_xs_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq2_xs)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq2_xs, half_is_finite);
  return each_block(type, iq2_xs_bf16, src, dst, n);
}

static void V_NAME(dequant_iq2_s)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq2_s), dst += 256)
    iq2_s_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq2_s_bf16(const uint8_t *src, uint8_t *dst) {
  iq2_s_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq2_s)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq2_s, half_is_finite);
  return each_block(type, iq2_s_bf16, src, dst, n);
}

static void V_NAME(dequant_iq3_xxs)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq3_xxs), dst += 256)
    iq3_xxs_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq3_xxs_bf16(const uint8_t *src, uint8_t *dst) {
  iq3_xxs_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq3_xxs)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq3_xxs, half_is_finite);
  return each_block(type, iq3_xxs_bf16, src, dst, n);
}

static void V_NAME(dequant_iq3_s)(const uint8_t *src, float *dst, size_t n) {
  for (; n > 0; n--, src += sizeof(block_iq3_s), dst += 256)
    iq3_s_block(TO_F32, src, (uint8_t *)dst);
  v_end();
}

AMN_FORCE_INLINE void iq3_s_bf16(const uint8_t *src, uint8_t *dst) {
  iq3_s_block(TO_BF16, src, dst);
}

static uint64_t V_NAME(dequant_bf16_iq3_s)(const uint8_t *src, uint8_t *dst, size_t n) {
  const block_type type = BLOCK_TYPE(iq3_s, half_is_finite);
  return each_block(type, iq3_s_bf16, src, dst, n);
}
