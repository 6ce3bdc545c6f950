/* The largest magnitudes of blocks, encoded: their mean, and codes of 8 bits for what is left.
 *
 * Canonical: `quantize_4bit` with compress_statistics of bitsandbytes' functional.py, and the
 * `quantize_cpu` of its csrc/cpu_ops.cpp behind it; `cascade_sum` of torch's SumKernel.cpp. */
#include "nested.h"
#include "../bnb_tables.h"
#include "../levels.h"

/* ---- the mean ---- */

/* How many additions to a lane, as a power of two, there are before its sum goes a level up. */
static int level_power(uint64_t total) {
  const uint64_t n_rows = total / AMN_SUM_LANES;
  int bits = 0;
  while (bits < 63 && (uint64_t)1 << bits < n_rows) bits++;
  return bits / AMN_SUM_LEVELS > 4 ? bits / AMN_SUM_LEVELS : 4;
}

static void add_lanes(float *sums, const float *values) {
  for (int i = 0; i < AMN_SUM_LANES; i++) sums[i] += values[i];
}

void amn_sum_rows(amn_sum *sum, uint64_t row, uint64_t n_rows, const float *values,
                  uint64_t total) {
  const int power = level_power(total);
  const uint64_t mask = ((uint64_t)1 << power) - 1, end = row + n_rows;
  const uint64_t fp_mode = amn_fp_mode_enter();
  while (row < end) {
    add_lanes(sum->lanes[0], values);
    values += AMN_SUM_LANES;
    row++;
    for (int level = 1; level < AMN_SUM_LEVELS; level++) {
      if ((row & mask << (level - 1) * power) != 0) break;
      add_lanes(sum->lanes[level], sum->lanes[level - 1]);
      memset(sum->lanes[level - 1], 0, sizeof sum->lanes[level - 1]);
    }
  }
  amn_fp_mode_leave(fp_mode);
}

/* Fewer than a vector: 4 lanes of one number each. */
static float sum_of_few(const float *values, size_t n) {
  float sum = n < 4 ? 0 : values[0];
  for (size_t i = n < 4 ? 0 : 4; i < n; i++) sum += values[i];
  for (size_t i = 1; i < 4 && n >= 4; i++) sum += values[i];
  return sum;
}

float amn_sum_end(const amn_sum *sum, const float *values, uint64_t total) {
  const size_t n = (size_t)(total % AMN_SUM_LANES);
  float lanes[AMN_SUM_LANES], result = 0;
  if (total < 8) return sum_of_few(values, n);
  const uint64_t fp_mode = amn_fp_mode_enter();
  memcpy(lanes, sum->lanes[0], sizeof lanes);
  for (int level = 1; level < AMN_SUM_LEVELS; level++) add_lanes(lanes, sum->lanes[level]);
  for (size_t i = 0; i < n / 8 * 8; i++) lanes[i % 8] += values[i];
  for (int i = 8; i < AMN_SUM_LANES; i++) lanes[i % 8] += lanes[i];
  for (size_t i = n / 8 * 8; i < n; i++) result += values[i];
  for (int i = 0; i < 8; i++) result += lanes[i];
  amn_fp_mode_leave(fp_mode);
  return result;
}

/* ---- the codes ---- */

/* The step of a number from -1 to 1. The product and the sum are rounded once, as a fused
 * multiplication does it; of doubles, both are exact. */
static uint32_t step_of(float value) {
  const float half = (value + 1.0f) * 0.5f;
  return (uint32_t)(float)((double)half * 65535.0 + 0.5);
}

/* How many codes begin at that step or before. */
static uint8_t code_at(uint32_t step) {
  uint32_t n = 0;
  for (uint32_t size = 128; size > 0; size /= 2)
    n += amn_dynamic_begins[n + size - 1] <= step ? size : 0;
  return (uint8_t)n;
}

static float clamped(float value) {
  return value < -1.0f ? -1.0f : value > 1.0f ? 1.0f : value;
}

static float largest_of(const float *values, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; i++) {
    const float magnitude = values[i] < 0 ? -values[i] : values[i];
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

void nest(float *absmax, size_t n, float mean, uint8_t *codes, uint8_t *largest) {
  for (size_t start = 0; start < n; start += NEST, largest += sizeof(float)) {
    const size_t end = n - start < NEST ? n : start + NEST;
    for (size_t i = start; i < end; i++) absmax[i] -= mean;
    const float scale = largest_of(absmax + start, end - start), forward = 1.0f / scale;
    for (size_t i = start; i < end; i++) {
      const float value = absmax[i] * forward;
      codes[i] = scale > 0 && value == value ? code_at(step_of(clamped(value))) : 0;
      absmax[i] = amn_dynamic[codes[i]] * scale + mean;
    }
    amn_store_u32(largest, amn_f32_bits(scale));
  }
}

amn_bytes amn_bnb_codebook(int index) {
  static const amn_bytes codebooks[] = {
      {(const uint8_t *)amn_nf4.entries, sizeof amn_nf4.entries},
      {(const uint8_t *)amn_fp4.entries, sizeof amn_fp4.entries},
      {(const uint8_t *)amn_dynamic, sizeof amn_dynamic},
  };
  return codebooks[index];
}
