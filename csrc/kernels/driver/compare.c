/* Compares two arrays, block by block. */
#include <float.h>
#include <math.h>

#include "sources.h"

#define BLOCK_PAIRS 4096

/* A block as float32. */
typedef struct {
  _Alignas(64) float a[BLOCK_PAIRS], b[BLOCK_PAIRS];
} pairs;

typedef struct {
  const amn_level *level;
  amn_source a, b;
  amn_comparison *found;
} comparing;

/* As they are decoded: those that were no float32 have one NaN. */
static void widen(const comparing *job, amn_source source, const uint8_t *src, size_t n,
                  float *values) {
  if (source == AMN_SOURCE_F32) {
    memcpy(values, src, n * sizeof *values);
    return;
  }
  job->level->widen[sources[source].widen](src, (uint8_t *)values, n);
  job->level->narrow[AMN_OUT_F32]((const uint8_t *)values, (uint8_t *)values, n);
}

/* Where float32 lie already, or in `room`; of NaNs the levels' sums say nothing. */
static const uint8_t *as_float32(const comparing *job, amn_source source, const uint8_t *src,
                                 size_t n, float *room) {
  if (source == AMN_SOURCE_F32) return src;
  job->level->widen[sources[source].widen](src, (uint8_t *)room, n);
  return (const uint8_t *)room;
}

static double sum_of(const double *lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Whether float32 holds the sums, of which that of no errors is 0. */
static int add_lanes(const amn_compare_lanes *lanes, int are_equal, double *sums) {
  int is_held = 1;
  for (int i = 0; i < AMN_COMPARE_SUMS; i++) {
    sums[i] = sum_of(lanes->sums[i]);
    is_held &= (fabs(sums[i]) >= 0x1p-110 && fabs(sums[i]) <= DBL_MAX) ||
               (i <= AMN_COMPARE_ERROR && are_equal);
  }
  return is_held;
}

static int is_finite(float value) {
  return fabsf(value) <= FLT_MAX;
}

/* What float32 cannot hold, and pairs that are in no sum; n fills the lanes. Returns how many pairs
 * are not finite. */
static size_t compare_in_double(const pairs *block, size_t n, amn_compare_lanes *lanes) {
  size_t n_not_finite = 0;
  memset(lanes, 0, sizeof *lanes);
  for (size_t i = 0; i < n; i += AMN_COMPARE_LANES)
    for (int lane = 0; lane < AMN_COMPARE_LANES; lane++) {
      const float a = block->a[i + (size_t)lane], b = block->b[i + (size_t)lane];
      const int is_in = is_finite(a) & is_finite(b);
      const float x = is_in ? a : 0, y = is_in ? b : 0, apart = fabsf(x - y);
      const double error = (double)x - y;
      lanes->sums[AMN_COMPARE_ABSOLUTE][lane] += fabs(error);
      lanes->sums[AMN_COMPARE_ERROR][lane] += error * error;
      lanes->sums[AMN_COMPARE_A][lane] += (double)x * x;
      lanes->sums[AMN_COMPARE_B][lane] += (double)y * y;
      lanes->sums[AMN_COMPARE_PRODUCT][lane] += (double)x * y;
      lanes->n_equal[lane] += amn_f32_bits(a) == amn_f32_bits(b);
      lanes->largest[lane] = apart > lanes->largest[lane] ? apart : lanes->largest[lane];
      n_not_finite += !is_in;
    }
  return n_not_finite;
}

static size_t different_of(const amn_compare_lanes *lanes, size_t n) {
  for (int i = 0; i < AMN_COMPARE_LANES; i++) n -= lanes->n_equal[i];
  return n;
}

static void compare_block(const comparing *job, const uint8_t *a, const uint8_t *b, size_t n,
                          size_t at) {
  amn_comparison *found = job->found;
  double sums[AMN_COMPARE_SUMS];
  amn_compare_lanes lanes;
  pairs block;
  memset(&lanes, 0, sizeof lanes);
  if (job->a == job->b)
    job->level->compare[job->a](a, b, n, &lanes);
  else
    job->level->compare[AMN_SOURCE_F32](as_float32(job, job->a, a, n, block.a),
                                        as_float32(job, job->b, b, n, block.b), n, &lanes);
  if (!add_lanes(&lanes, different_of(&lanes, n) == 0, sums)) {
    widen(job, job->a, a, n, block.a);
    widen(job, job->b, b, n, block.b);
    found->n_not_finite += compare_in_double(&block, n, &lanes);
    add_lanes(&lanes, 0, sums);
  }
  for (int i = 0; i < AMN_COMPARE_SUMS; i++) found->sums[i] += sums[i];
  const size_t n_different = different_of(&lanes, n);
  if (n_different != 0 && found->n_different == 0) found->first_different = at;
  found->n_different += n_different;
  for (int i = 0; i < AMN_COMPARE_LANES; i++)
    if (lanes.largest[i] > found->largest) {
      found->largest = lanes.largest[i];
      found->largest_at = at;
    }
}

/* Whether it is the pair that is looked for: the first that differs, or that is so far apart. */
static int is_place(float a, float b, float largest) {
  if (largest == 0) return amn_f32_bits(a) != amn_f32_bits(b);
  return fabsf(a - b) == largest && is_finite(a) && is_finite(b);
}

/* From the block at `at`, which has such a pair, to the pair. */
static uint64_t place_of(const comparing *job, const uint8_t *a, const uint8_t *b, uint64_t n,
                         uint64_t at, float largest) {
  const size_t a_bytes = sources[job->a].item_bytes, b_bytes = sources[job->b].item_bytes;
  for (float x[256], y[256]; at < n;) {
    const size_t count = (size_t)min_u64(n - at, 256);
    widen(job, job->a, a + at * a_bytes, count, x);
    widen(job, job->b, b + at * b_bytes, count, y);
    for (size_t i = 0; i < count; i++, at++)
      if (is_place(x[i], y[i], largest)) return at;
  }
  return at;
}

static void compare_all(const comparing *job, const uint8_t *a, const uint8_t *b, size_t n) {
  const size_t a_bytes = sources[job->a].item_bytes, b_bytes = sources[job->b].item_bytes;
  const size_t rest = n % AMN_COMPARE_GROUP;
  amn_comparison *found = job->found;
  for (size_t at = 0, count; at < n - rest; at += count) {
    count = (size_t)min_u64(n - rest - at, BLOCK_PAIRS);
    compare_block(job, a + at * a_bytes, b + at * b_bytes, count, at);
  }
  if (rest != 0) { /* and zeros after it */
    uint8_t ends[2][4 * AMN_COMPARE_GROUP] = {{0}};
    memcpy(ends[0], a + (n - rest) * a_bytes, rest * a_bytes);
    memcpy(ends[1], b + (n - rest) * b_bytes, rest * b_bytes);
    compare_block(job, ends[0], ends[1], AMN_COMPARE_GROUP, n - rest);
  }
  if (found->n_different != 0)
    found->first_different = place_of(job, a, b, n, found->first_different, 0);
  if (found->largest != 0)
    found->largest_at = place_of(job, a, b, n, found->largest_at, found->largest);
}

static int is_source(int source) {
  return source >= 0 && source < AMN_N_SOURCES;
}

amn_status amn_compare(int level, int source_a, int source_b, amn_bytes a, amn_bytes b,
                       amn_comparison *found) {
  const comparing job = {amn_level_at(level), (amn_source)source_a, (amn_source)source_b, found};
  memset(found, 0, sizeof *found);
  if (job.level == NULL) return AMN_BAD_LEVEL;
  if (!is_source(source_a) || !is_source(source_b)) return AMN_BAD_DTYPE;
  const uint64_t n = a.n_bytes / sources[source_a].item_bytes;
  if (a.n_bytes % sources[source_a].item_bytes || b.n_bytes % sources[source_b].item_bytes ||
      n != b.n_bytes / sources[source_b].item_bytes)
    return AMN_SHORT_SRC;
  const uint64_t fp_mode = amn_fp_mode_enter();
  compare_all(&job, a.data, b.data, (size_t)n);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
