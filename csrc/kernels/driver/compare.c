/* Compares two arrays of float32, block by block. */
#include <float.h>
#include <math.h>

#include "../levels.h"

#define BLOCK_PAIRS 2048 /* both halves of it stay in the first-level cache */

static float value_at(const uint8_t *values, size_t i) {
  return amn_f32_from_bits(amn_load_u32(values + 4 * i));
}

static int is_finite(float value) {
  return fabsf(value) <= FLT_MAX;
}

/* The levels' sums are of float32, which hold no square of 1e30 and of 1e-30. */
static int is_within_float32(double sum) {
  return fabs(sum) >= 0x1p-100 && fabs(sum) <= DBL_MAX;
}

static double sum_of(const double *lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* The same for each level: what float32 cannot hold, and pairs that are in no sum. */
static void compare_in_double(const uint8_t *a, const uint8_t *b, size_t n,
                              amn_compare_lanes *lanes, amn_comparison *found) {
  memset(lanes->sums, 0, sizeof lanes->sums);
  memset(lanes->largest, 0, sizeof lanes->largest);
  for (size_t i = 0; i < n; i++) {
    const float x = value_at(a, i), y = value_at(b, i);
    const size_t lane = i % AMN_COMPARE_LANES;
    if (!is_finite(x) || !is_finite(y)) {
      found->n_not_finite++;
      continue;
    }
    const double left = x, right = y, error = left - right;
    lanes->sums[AMN_COMPARE_ERROR][lane] += error * error;
    lanes->sums[AMN_COMPARE_A][lane] += left * left;
    lanes->sums[AMN_COMPARE_B][lane] += right * right;
    lanes->sums[AMN_COMPARE_PRODUCT][lane] += left * right;
    if (fabsf(x - y) > lanes->largest[lane]) lanes->largest[lane] = fabsf(x - y);
  }
}

static void compare_block(const amn_level *level, const uint8_t *a, const uint8_t *b, size_t n,
                          size_t at, amn_comparison *found) {
  amn_compare_lanes lanes;
  memset(&lanes, 0, sizeof lanes);
  level->compare(a, b, n, &lanes);
  size_t n_equal = 0;
  for (int lane = 0; lane < AMN_COMPARE_LANES; lane++) n_equal += lanes.n_equal[lane];
  /* a sum of errors that are all 0 is one, too */
  for (int sum = n_equal == n ? AMN_COMPARE_A : 0; sum < AMN_COMPARE_SUMS; sum++)
    if (!is_within_float32(sum_of(lanes.sums[sum]))) {
      compare_in_double(a, b, n, &lanes, found);
      break;
    }
  for (int sum = 0; sum < AMN_COMPARE_SUMS; sum++) found->sums[sum] += sum_of(lanes.sums[sum]);
  if (n_equal < n && found->n_different == 0) found->first_different = at;
  found->n_different += n - n_equal;
  for (int lane = 0; lane < AMN_COMPARE_LANES; lane++)
    if (lanes.largest[lane] > found->largest) {
      found->largest = lanes.largest[lane];
      found->largest_at = at;
    }
}

/* From blocks to pairs, once for all. */
static void find_places(const uint8_t *a, const uint8_t *b, amn_comparison *found) {
  if (found->n_different != 0)
    while (memcmp(a + 4 * found->first_different, b + 4 * found->first_different, 4) == 0)
      found->first_different++;
  if (found->largest == 0) return;
  for (;; found->largest_at++) {
    const float x = value_at(a, found->largest_at), y = value_at(b, found->largest_at);
    if (is_finite(x) && is_finite(y) && fabsf(x - y) == found->largest) return;
  }
}

amn_status amn_compare(int level, amn_bytes a, amn_bytes b, amn_comparison *found) {
  const amn_level *table = amn_level_at(level);
  const size_t n = (size_t)(a.n_bytes / 4), whole = n / AMN_COMPARE_GROUP * AMN_COMPARE_GROUP;
  memset(found, 0, sizeof *found);
  if (table == NULL) return AMN_BAD_LEVEL;
  if (a.n_bytes % 4 || a.n_bytes != b.n_bytes) return AMN_SHORT_SRC;
  if (n == 0) return AMN_OK;
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (size_t at = 0; at < whole; at += BLOCK_PAIRS) {
    const size_t left = whole - at;
    compare_block(table, a.data + 4 * at, b.data + 4 * at, left < BLOCK_PAIRS ? left : BLOCK_PAIRS,
                  at, found);
  }
  if (whole < n) { /* the rest, and zeros after it */
    uint8_t rest[2][4 * AMN_COMPARE_GROUP] = {{0}};
    memcpy(rest[0], a.data + 4 * whole, 4 * (n - whole));
    memcpy(rest[1], b.data + 4 * whole, 4 * (n - whole));
    compare_block(table, rest[0], rest[1], AMN_COMPARE_GROUP, whole, found);
  }
  find_places(a.data, b.data, found);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
