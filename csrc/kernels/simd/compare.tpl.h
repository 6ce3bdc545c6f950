/* How two arrays differ: a group of pairs at a time, in two vectors of lanes.
 *
 * Needs: quantize.tpl.h. Defines: compare of each source. */

AMN_FORCE_INLINE vec_f32 load_eight(amn_source source, const uint8_t *src) {
  if (source == AMN_SOURCE_F32) return v_f32_from_bits(v_load(src));
  if (source == AMN_SOURCE_F16) return v_load_f16_as_f32(src);
  return v_f32_from_bits(v_shl_u32(v_load_u16_as_u32(src), 16));
}

AMN_FORCE_INLINE void compare_eight(vec_f32 x, vec_f32 y, vec_f32 *sums, vec *n_equal,
                                    vec_f32 *largest) {
  const vec_f32 error = magnitude_f32(v_sub_f32(x, y));
  sums[AMN_COMPARE_ABSOLUTE] = v_add_f32(sums[AMN_COMPARE_ABSOLUTE], error);
  sums[AMN_COMPARE_ERROR] = v_add_f32(sums[AMN_COMPARE_ERROR], v_mul_f32(error, error));
  sums[AMN_COMPARE_A] = v_add_f32(sums[AMN_COMPARE_A], v_mul_f32(x, x));
  sums[AMN_COMPARE_B] = v_add_f32(sums[AMN_COMPARE_B], v_mul_f32(y, y));
  sums[AMN_COMPARE_PRODUCT] = v_add_f32(sums[AMN_COMPARE_PRODUCT], v_mul_f32(x, y));
  *n_equal = v_sub_u32(*n_equal, v_equal_u32(v_bits_f32(x), v_bits_f32(y)));
  *largest = v_max_f32(error, *largest);
}

AMN_FORCE_INLINE void compare_runs(amn_source source, const uint8_t *a, const uint8_t *b, size_t n,
                                   amn_compare_lanes *lanes) {
  const size_t eight = 8 * source_bytes(source);
  const vec_f32 zeros = v_set_f32(0);
  vec n_equal = v_load(lanes->n_equal);
  vec_f32 largest = v_load_f32(lanes->largest);
  for (size_t size; n != 0; n -= size) {
    size = n < AMN_COMPARE_RUN ? n : AMN_COMPARE_RUN;
    vec_f32 low[AMN_COMPARE_SUMS] = {zeros, zeros, zeros, zeros, zeros};
    vec_f32 high[AMN_COMPARE_SUMS] = {zeros, zeros, zeros, zeros, zeros};
    for (size_t i = 0; i < size; i += AMN_COMPARE_GROUP, a += 2 * eight, b += 2 * eight) {
      compare_eight(load_eight(source, a), load_eight(source, b), low, &n_equal, &largest);
      compare_eight(load_eight(source, a + eight), load_eight(source, b + eight), high, &n_equal,
                    &largest);
    }
    for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++)
      v_add_to_f64(lanes->sums[sum], v_add_f32(low[sum], high[sum]));
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
