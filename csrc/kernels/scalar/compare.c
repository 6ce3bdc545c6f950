/* How two arrays differ: sums that no library defines, in the order that levels.h says. */
#include <math.h>

#include "../levels.h"

void compare_scalar(const uint8_t *a, const uint8_t *b, size_t n, amn_compare_lanes *lanes) {
  for (size_t begin = 0; begin < n; begin += AMN_COMPARE_RUN) {
    float sums[AMN_COMPARE_SUMS][AMN_COMPARE_GROUP] = {{0}};
    for (size_t i = begin; i < n && i < begin + AMN_COMPARE_RUN; i++) {
      const size_t lane = i % AMN_COMPARE_GROUP, of_8 = i % AMN_COMPARE_LANES;
      const uint32_t a_bits = amn_load_u32(a + 4 * i), b_bits = amn_load_u32(b + 4 * i);
      const float x = amn_f32_from_bits(a_bits), y = amn_f32_from_bits(b_bits);
      const float error = fabsf(x - y);
      sums[AMN_COMPARE_ERROR][lane] += error * error;
      sums[AMN_COMPARE_A][lane] += x * x;
      sums[AMN_COMPARE_B][lane] += y * y;
      sums[AMN_COMPARE_PRODUCT][lane] += x * y;
      lanes->n_equal[of_8] += a_bits == b_bits;
      if (error > lanes->largest[of_8]) lanes->largest[of_8] = error;
    }
    for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++)
      for (int lane = 0; lane < AMN_COMPARE_LANES; lane++)
        lanes->sums[sum][lane] += sums[sum][lane] + sums[sum][lane + AMN_COMPARE_LANES];
  }
}
