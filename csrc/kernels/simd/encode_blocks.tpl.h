/* What the encoders of GGUF's simple types share: eight blocks at a time, what is known of each in
 * a lane of its own. Which of two equal numbers comes first matters only for signs, and those are
 * looked for apart.
 *
 * Needs: quantize.tpl.h. Defines: measure; loops over blocks, folds, reciprocals. */

#define LANES 8 /* blocks at a time */

typedef vec_f32 (*fold_fn)(vec_f32 a, vec_f32 b);

AMN_FORCE_INLINE vec_f32 larger_f32(vec_f32 a, vec_f32 b) {
  return v_max_f32(a, b);
}

AMN_FORCE_INLINE vec_f32 smaller_f32(vec_f32 a, vec_f32 b) {
  return v_min_f32(a, b);
}

AMN_FORCE_INLINE vec_f32 larger_magnitude(vec_f32 a, vec_f32 b) {
  return v_max_f32(magnitude_f32(a), magnitude_f32(b));
}

/* The first number of each of two rows and the second one, then the next two, lane by lane. */
AMN_FORCE_INLINE vec_f32 fold_pairs(fold_fn fold, vec_f32 a, vec_f32 b) {
  const vec low = v_zip_low_u32(v_bits_f32(a), v_bits_f32(b));
  const vec high = v_zip_high_u32(v_bits_f32(a), v_bits_f32(b));
  return fold(v_f32_from_bits(low), v_f32_from_bits(high));
}

AMN_FORCE_INLINE vec_f32 fold_fours(fold_fn fold, vec_f32 ab, vec_f32 cd) {
  const vec low = v_zip_low_u64(v_bits_f32(ab), v_bits_f32(cd));
  const vec high = v_zip_high_u64(v_bits_f32(ab), v_bits_f32(cd));
  return fold(v_f32_from_bits(low), v_f32_from_bits(high));
}

/* Of eight blocks of n elements, each in a lane. */
AMN_FORCE_INLINE vec_f32 fold_blocks(fold_fn fold, const float *src, int n) {
  vec_f32 rows[LANES];
  for (int i = 0; i < LANES; i++, src += n) {
    rows[i] = fold(v_load_f32(src), v_load_f32(src + 8));
    for (int at = 16; at < n; at += 8) rows[i] = fold(rows[i], v_load_f32(src + at));
  }
  for (int i = 0; i < 4; i++) rows[i] = fold_pairs(fold, rows[2 * i], rows[2 * i + 1]);
  const vec abcd = v_bits_f32(fold_fours(fold, rows[0], rows[1]));
  const vec efgh = v_bits_f32(fold_fours(fold, rows[2], rows[3]));
  return fold(v_f32_from_bits(v_lower_lanes(abcd, efgh)),
              v_f32_from_bits(v_upper_lanes(abcd, efgh)));
}

/* 1 / d, or 0 for 0. */
AMN_FORCE_INLINE vec_f32 reciprocal_f32(vec_f32 d) {
  const vec is_zero = v_equal_u32(v_shl_u32(v_bits_f32(d), 1), v_zero());
  return v_f32_from_bits(v_and_not(is_zero, v_bits_f32(v_div_f32(v_set_f32(1.0f), d))));
}

/* Where a number is infinite or a NaN. */
AMN_FORCE_INLINE vec is_not_finite(vec_f32 a) {
  return v_greater_s32(v_bits_f32(magnitude_f32(a)), v_set_u32(0x7f7fffff));
}

AMN_FORCE_INLINE int any_not_finite(vec_f32 a) {
  return v_any(is_not_finite(a));
}

/* To half floats, one into each block: at first, first + step, ... */
AMN_FORCE_INLINE void store_halves(vec_f32 values, uint8_t *first, size_t step) {
  uint16_t halves[2 * LANES];
  v_store(halves, v_f16_from_f32(values, values));
  for (int i = 0; i < LANES; i++) amn_store_u16(first + (size_t)i * step, halves[i]);
}

/* A few blocks, or none if there is one whose numbers are too large or small for vectors. */
typedef int (*group_fn)(const float *src, uint8_t *dst);

/* A type, as a constant in every use. */
typedef struct {
  size_t elements, bytes, blocks; /* blocks: of a group */
  amn_encode_fn scalar;
  group_fn group;
} encoded_type;

#define ENCODED_TYPE(name, blocks)                                                           \
  ((encoded_type){AMN_ELEMENTS_##name, sizeof(block_##name), blocks, encode_##name##_scalar, \
                  V_NAME(group_##name)})

/* n blocks, of which no importance is known. */
AMN_FORCE_INLINE void encode_groups(encoded_type type, const float *src, uint8_t *dst, size_t n) {
  for (; n >= type.blocks; n -= type.blocks) {
    if (!type.group(src, dst)) type.scalar(src, dst, type.blocks, type.elements, NULL);
    src += type.blocks * type.elements;
    dst += type.blocks * type.bytes;
  }
  type.scalar(src, dst, n, type.elements, NULL);
  v_end();
}

/* A vector is a number for each lane. */
V_ENCODER void V_NAME(measure)(const float *values, const float *decoded, size_t n,
                               amn_loss_lanes *lanes) {
  vec_f32 absolute = v_set_f32(0), squared = absolute, power = absolute;
  vec_f32 largest = v_load_f32(lanes->largest);
  for (size_t i = 0; i < n; i += AMN_LOSS_LANES) {
    const vec_f32 value = v_load_f32(values + i);
    const vec_f32 error = magnitude_f32(v_sub_f32(value, v_load_f32(decoded + i)));
    absolute = v_add_f32(absolute, error);
    squared = v_add_f32(squared, v_mul_f32(error, error));
    power = v_add_f32(power, v_mul_f32(value, value));
    largest = v_max_f32(error, largest);
  }
  v_store_f32(lanes->largest, largest);
  v_add_to_f64(lanes->absolute, absolute);
  v_add_to_f64(lanes->squared, squared);
  v_add_to_f64(lanes->power, power);
  v_end();
}
