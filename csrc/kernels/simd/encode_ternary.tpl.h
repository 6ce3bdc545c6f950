/* The way to the GGUF types of one or two bits and a scale.
 *
 * Needs: encode_blocks.tpl.h, search.tpl.h. Defines: encode_* of Q1_0, Q2_0, TQ1_0 and TQ2_0. */

/* ---- Q1_0 ---- */

/* The sums of the magnitudes of eight blocks, each in order. */
AMN_FORCE_INLINE vec_f32 sums_of_magnitudes(const float *src) {
  vec_f32 sums = v_set_f32(0);
  for (int at = 0; at < 128; at += 8) {
    vec_f32 x[LANES];
    load_runs(src + at, 128, 8, x);
    for (int i = 0; i < LANES; i++) sums = v_add_f32(sums, magnitude_f32(x[i]));
  }
  return sums;
}

/* A bit for each of 32 numbers: whether it is not below 0. */
AMN_FORCE_INLINE uint32_t not_below_0(const float *x) {
  vec below[4];
  for (int i = 0; i < 4; i++) below[i] = v_greater_f32(v_set_f32(0), v_load_f32(x + 8 * i));
  return ~v_signs_u8(v_pack_s32(below[0], below[1], below[2], below[3]));
}

static int V_NAME(group_q1_0)(const float *src, uint8_t *dst) {
  block_q1_0 *block = (block_q1_0 *)dst;
  const vec_f32 mean = v_mul_f32(sums_of_magnitudes(src), v_set_f32(1.0f / 128.0f));
  store_halves(mean, block->d, sizeof *block);
  for (int i = 0; i < LANES; i++, src += 128)
    for (int k = 0; k < 4; k++) amn_store_u32(block[i].qs + 4 * k, not_below_0(src + 32 * k));
  return 1;
}

V_ENCODER void V_NAME(encode_q1_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(q1_0, LANES), src, dst, rows * cols / 128);
}

/* ---- digits 0, 1 and 2 ---- */

/* Of eight numbers from -1 to 1, rounded with ties away from 0: in s32, from -1 on. */
AMN_FORCE_INLINE vec ternary_s32(vec_f32 a) {
  const vec_f32 half = v_set_f32(0x1.fffffep-2f); /* just below */
  const vec above = v_greater_f32(a, half);
  const vec below = v_greater_f32(v_sub_f32(v_set_f32(0), half), a);
  return v_sub_u32(below, above);
}

/* Of 32 numbers, once they are multiplied, as bytes. */
AMN_FORCE_INLINE vec ternary_digits_32(const float *x, vec_f32 by) {
  vec digits[4];
  for (int i = 0; i < 4; i++) digits[i] = ternary_s32(v_mul_f32(v_load_f32(x + 8 * i), by));
  return v_add_u8(v_pack_s32(digits[0], digits[1], digits[2], digits[3]), v_set_u8(1));
}

/* ---- Q2_0 ---- */

/* The lowest two bits of 32 bytes, four to a byte: in the lowest bytes of u32. */
AMN_FORCE_INLINE vec fours_of_pairs(vec digits) {
  const vec pairs = v_and(v_or(digits, v_shr_u16(digits, 6)), v_set_u16(15));
  return v_and(v_or(pairs, v_shr_u32(pairs, 12)), v_set_u32(255));
}

AMN_FORCE_INLINE vec fours_of_64(const float *x, float by) {
  const vec low = fours_of_pairs(ternary_digits_32(x, v_set_f32(by)));
  return v_pack_u32(low, fours_of_pairs(ternary_digits_32(x + 32, v_set_f32(by))));
}

static int V_NAME(group_q2_0)(const float *src, uint8_t *dst) {
  block_q2_0 *block = (block_q2_0 *)dst;
  const vec_f32 d = fold_blocks(larger_magnitude, src, 64), inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i += 2, src += 128) {
    const vec a = fours_of_64(src, inverses[i]), b = fours_of_64(src + 64, inverses[i + 1]);
    v_store_lanes(block[i].qs, block[i + 1].qs, v_pack_u16(a, b));
  }
  return 1;
}

V_ENCODER void V_NAME(encode_q2_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(q2_0, LANES), src, dst, rows * cols / 64);
}

/* ---- TQ1_0, TQ2_0 ---- */

/* The scale of 256 numbers, to p, and what they are multiplied by: infinite if it is too small. */
AMN_FORCE_INLINE float ternary_scale(const float *x, uint8_t *p) {
  vec_f32 most = v_set_f32(0);
  for (int i = 0; i < 256; i += 8) most = v_max_f32(magnitude_f32(v_load_f32(x + i)), most);
  const float d = amn_f32_from_bits(v_largest_s32(v_bits_f32(most)));
  uint16_t halves[16];
  v_store(halves, v_f16_from_f32(v_set_f32(d), v_set_f32(d)));
  amn_store_u16(p, halves[0]);
  return d > 0.0f ? 1.0f / d : 0.0f;
}

/* Digits behind those of a number in base 3. */
AMN_FORCE_INLINE vec behind(vec number, vec digits) {
  return v_add_u8(v_add_u8(v_add_u8(number, number), number), digits);
}

/* Numbers up to 242 as fractions of 256, rounded up: 8631 / 2^21 is as good as 1 / 243. */
AMN_FORCE_INLINE vec fraction_of_243(vec numbers) {
  const vec by = v_set_u16(8631), up = v_set_u16(242);
  const vec even = v_mul_high_u16(v_or(v_shl_u16(numbers, 8), up), by);
  const vec odd = v_mul_high_u16(v_or(v_and(numbers, v_set_u16(0xff00)), up), by);
  return v_or(v_shr_u16(even, 5), v_shl_u16(v_shr_u16(odd, 5), 8));
}

/* The last 96 numbers: five digits of 16 bytes, then four of 4 bytes, each in the four bytes of a
 * u32 of the upper lane. */
AMN_FORCE_INLINE vec last_of_tq1_0(const float *x, vec_f32 by) {
  const vec a = ternary_digits_32(x, by), b = ternary_digits_32(x + 32, by);
  const vec c = ternary_digits_32(x + 64, by);
  vec number = v_select_lanes(a, v_permute_u32(c, v_set_u32(4)));
  number = behind(number, v_select_lanes(v_upper_lane(a), v_permute_u32(c, v_set_u32(5))));
  number = behind(number, v_select_lanes(b, v_permute_u32(c, v_set_u32(6))));
  number = behind(number, v_select_lanes(v_upper_lane(b), v_permute_u32(c, v_set_u32(7))));
  return behind(number, v_select_lanes(c, v_zero()));
}

static int V_NAME(group_tq1_0)(const float *src, uint8_t *dst) {
  block_tq1_0 *block = (block_tq1_0 *)dst;
  const float inverse = ternary_scale(src, block->d);
  if (inverse > FLT_MAX) return 0;
  const vec_f32 by = v_set_f32(inverse);
  vec number = ternary_digits_32(src, by);
  for (int i = 1; i < 5; i++) number = behind(number, ternary_digits_32(src + 32 * i, by));
  v_store(block->qs, fraction_of_243(number));
  uint8_t last[32];
  v_store(last, fraction_of_243(last_of_tq1_0(src + 160, by)));
  memcpy(dst + 32, last, 20); /* the rest of qs, and qh */
  return 1;
}

V_ENCODER void V_NAME(encode_tq1_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(tq1_0, 1), src, dst, rows * cols / 256);
}

static int V_NAME(group_tq2_0)(const float *src, uint8_t *dst) {
  block_tq2_0 *block = (block_tq2_0 *)dst;
  const float inverse = ternary_scale(src, block->d);
  if (inverse > FLT_MAX) return 0;
  const vec_f32 by = v_set_f32(inverse);
  for (int at = 0; at < 64; at += 32, src += 128) {
    vec bytes = ternary_digits_32(src, by);
    for (int i = 1; i < 4; i++)
      bytes = v_or(bytes, v_shl_u16(ternary_digits_32(src + 32 * i, by), 2 * i));
    v_store(block->qs + at, bytes);
  }
  return 1;
}

V_ENCODER void V_NAME(encode_tq2_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(tq2_0, 1), src, dst, rows * cols / 256);
}
