/* Groups of numbers times a regular Hadamard matrix.
 *
 * Canonical: `_rotate_weight` of comfy-kitchen's tensor/int8_utils.py. torch leaves the order of
 * sums to its BLAS; this is the order that MKL has for four groups and more. */
#include "../levels.h"

#define RESULTS 16 /* at a time; a group of 4 has fewer */

/* Adds some numbers to the results from `row` on. */
static void add_to_sums(const float *numbers, float norm, size_t begin, size_t end, size_t step,
                        size_t row, size_t n, float *sums) {
  for (size_t k = begin; k < end; k += step)
    for (size_t i = 0; i < n; i++)
      sums[i] += numbers[k] * (amn_is_turned(row + i, k) ? -norm : norm);
}

static void rotate_results(const float *numbers, size_t group, size_t row, size_t n, float *dst) {
  const float norm = amn_rotation_norm(group);
  const int is_paired = group == 4;
  const size_t panel = is_paired ? 1 : AMN_ROTATION_PANEL(group);
  for (size_t begin = 0; begin < (is_paired ? 2 : group); begin += panel) {
    const size_t end = is_paired || group - begin < panel ? group : begin + panel;
    float sums[RESULTS] = {0};
    add_to_sums(numbers, norm, begin, end, is_paired ? 2 : 1, row, n, sums);
    for (size_t i = 0; i < n; i++) dst[row + i] = begin == 0 ? sums[i] : dst[row + i] + sums[i];
  }
}

void rotate_scalar(const float *src, float *dst, size_t n_groups, size_t group) {
  const size_t n = group < RESULTS ? group : RESULTS;
  for (; n_groups != 0; n_groups--, src += group, dst += group)
    for (size_t row = 0; row < group; row += n) rotate_results(src, group, row, n, dst);
}
