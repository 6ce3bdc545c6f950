/* How two arrays differ: sums that no library defines, in the order that levels.h says. */
#include <math.h>

#include "../levels.h"
#include "numeric.h"

AMN_FORCE_INLINE float value_at(amn_source source, const uint8_t *src, size_t i) {
  if (source == AMN_SOURCE_F32) return amn_f32_from_bits(amn_load_u32(src + 4 * i));
  const uint16_t half = amn_load_u16(src + 2 * i);
  return source == AMN_SOURCE_F16 ? amn_f16_to_f32(half) : amn_bf16_to_f32(half);
}

AMN_FORCE_INLINE void compare_run(amn_source source, const uint8_t *a, const uint8_t *b,
                                  size_t begin, size_t end, amn_compare_lanes *lanes) {
  float sums[AMN_COMPARE_SUMS][AMN_COMPARE_GROUP] = {{0}};
  for (size_t i = begin; i < end; i++) {
    const size_t lane = i % AMN_COMPARE_GROUP, of_8 = i % AMN_COMPARE_LANES;
    const float x = value_at(source, a, i), y = value_at(source, b, i), error = fabsf(x - y);
    sums[AMN_COMPARE_ABSOLUTE][lane] += error;
    sums[AMN_COMPARE_ERROR][lane] += error * error;
    sums[AMN_COMPARE_A][lane] += x * x;
    sums[AMN_COMPARE_B][lane] += y * y;
    sums[AMN_COMPARE_PRODUCT][lane] += x * y;
    lanes->n_equal[of_8] += amn_f32_bits(x) == amn_f32_bits(y);
    if (error > lanes->largest[of_8]) lanes->largest[of_8] = error;
  }
  for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++)
    for (int lane = 0; lane < AMN_COMPARE_LANES; lane++)
      lanes->sums[sum][lane] += sums[sum][lane] + sums[sum][lane + AMN_COMPARE_LANES];
}

#define SOURCE(NAME, name, item_bytes, levels)                               \
  void compare_##name##_scalar(const uint8_t *a, const uint8_t *b, size_t n, \
                               amn_compare_lanes *lanes) {                   \
    for (size_t at = 0, end; at < n; at = end) {                             \
      end = n - at < AMN_COMPARE_RUN ? n : at + AMN_COMPARE_RUN;             \
      compare_run(AMN_SOURCE_##NAME, a, b, at, end, lanes);                  \
    }                                                                        \
  }
#include "../kernels.def"
