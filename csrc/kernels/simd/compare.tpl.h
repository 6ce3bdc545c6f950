/* How two arrays differ: a group of pairs at a time, in two vectors of lanes.
 *
 * Needs: quantize.tpl.h. Defines: compare of each source. */

AMN_FORCE_INLINE vec_f32 load_eight(amn_source source, const uint8_t *src) {
  if (source == AMN_SOURCE_F32) return v_f32_from_bits(v_load(src));
  if (source == AMN_SOURCE_F16) return v_load_f16_as_f32(src);
  return v_f32_from_bits(v_shl_u32(v_load_u16_as_u32(src), 16));
}

/* Of float32 a run takes two passes, for one has no registers left; halves are widened once. */
AMN_FORCE_INLINE void compare_errors(amn_source source, const uint8_t *a, const uint8_t *b,
                                     size_t n, vec_f32 sums[][2], vec *n_equal, vec_f32 *largest) {
  const size_t eight = 8 * source_bytes(source);
  for (size_t i = 0; i < n; i += AMN_COMPARE_GROUP)
    for (int half = 0; half < 2; half++, a += eight, b += eight) {
      const vec_f32 x = load_eight(source, a), y = load_eight(source, b);
      const vec_f32 error = magnitude_f32(v_sub_f32(x, y));
      sums[AMN_COMPARE_ABSOLUTE][half] = v_add_f32(sums[AMN_COMPARE_ABSOLUTE][half], error);
      sums[AMN_COMPARE_ERROR][half] =
          v_add_f32(sums[AMN_COMPARE_ERROR][half], v_mul_f32(error, error));
      *n_equal = v_sub_u32(*n_equal, v_equal_u32(v_bits_f32(x), v_bits_f32(y)));
      *largest = v_max_f32(error, *largest);
    }
}

AMN_FORCE_INLINE void compare_powers(amn_source source, const uint8_t *a, const uint8_t *b,
                                     size_t n, vec_f32 sums[][2]) {
  const size_t eight = 8 * source_bytes(source);
  for (size_t i = 0; i < n; i += AMN_COMPARE_GROUP)
    for (int half = 0; half < 2; half++, a += eight, b += eight) {
      const vec_f32 x = load_eight(source, a), y = load_eight(source, b);
      sums[AMN_COMPARE_A][half] = v_add_f32(sums[AMN_COMPARE_A][half], v_mul_f32(x, x));
      sums[AMN_COMPARE_B][half] = v_add_f32(sums[AMN_COMPARE_B][half], v_mul_f32(y, y));
      sums[AMN_COMPARE_PRODUCT][half] = v_add_f32(sums[AMN_COMPARE_PRODUCT][half], v_mul_f32(x, y));
    }
}

AMN_FORCE_INLINE void compare_runs(amn_source source, const uint8_t *a, const uint8_t *b, size_t n,
                                   amn_compare_lanes *lanes) {
  const size_t item_bytes = source_bytes(source);
  vec n_equal = v_load(lanes->n_equal);
  vec_f32 largest = v_load_f32(lanes->largest);
  for (size_t size; n != 0; n -= size, a += size * item_bytes, b += size * item_bytes) {
    size = n < AMN_COMPARE_RUN ? n : AMN_COMPARE_RUN;
    vec_f32 sums[AMN_COMPARE_SUMS][2];
    for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++) sums[sum][0] = sums[sum][1] = v_set_f32(0);
    const size_t step = source == AMN_SOURCE_F32 ? size : AMN_COMPARE_GROUP;
    for (size_t at = 0; at < size * item_bytes; at += step * item_bytes) {
      compare_errors(source, a + at, b + at, step, sums, &n_equal, &largest);
      compare_powers(source, a + at, b + at, step, sums);
    }
    for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++)
      v_add_to_f64(lanes->sums[sum], v_add_f32(sums[sum][0], sums[sum][1]));
  }
  v_store(lanes->n_equal, n_equal);
  v_store_f32(lanes->largest, largest);
  v_end();
}

#define SOURCE(NAME, name, item_bytes, levels)                                        \
  V_ENCODER void V_NAME(compare_##name)(const uint8_t *a, const uint8_t *b, size_t n, \
                                        amn_compare_lanes *lanes) {                   \
    compare_runs(AMN_SOURCE_##NAME, a, b, n, lanes);                                  \
  }
#include "../kernels.def"
