/* The way to the GGUF types of 4-bit floats (E2M1).
 *
 * Canonical: quantize_* of ggml-quants.c, which takes the codes for twice their value and halves
 * the scale instead. */
#include <math.h>

#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static const float twice_e2m1[8] = {0, 1, 2, 3, 4, 6, 8, 12};

static float amax_of(const float *x, int n) {
  float amax = 0.0f;
  for (int i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
  return amax;
}

/* The first of the nearest numbers, as far as float32 can tell: what is far beyond the largest may
 * be as far from several. */
static unsigned int nearest_e2m1(float x, float d) {
  const float magnitude = fabsf(x);
  unsigned int code = 0;
  float least = magnitude;
  for (unsigned int i = 1; i < 8; i++) {
    const float apart = fabsf(twice_e2m1[i] * d - magnitude);
    if (!(apart < least)) continue;
    least = apart;
    code = i;
  }
  return code != 0 && x < 0.0f ? code | 8 : code;
}

/* The lower half of n elements in the low nibbles of n / 2 bytes. */
static void store_e2m1(const float *x, int n, float d, uint8_t *qs) {
  for (int i = 0; i < n / 2; i++)
    qs[i] = (uint8_t)(nearest_e2m1(x[i], d) | nearest_e2m1(x[n / 2 + i], d) << 4);
}

/* floorf(log2f(x)) of x > 0. Below 2^k the logarithm is from `whole` to whole + 1 away from 0,
 * where float32 counts in units of 2^(i - 23) if `whole` has i bits below its highest. So it rounds
 * up to k for the last 2^i * ln(2) numbers of 24 bits: this is what a correctly rounded log2f does,
 * and glibc's does, on all numbers. */
static int floor_log2(float x) {
  static const uint8_t last[8] = {0, 1, 2, 5, 11, 22, 44, 88};
  const int is_subnormal = x < 0x1p-126f;
  const uint32_t bits = amn_f32_bits(is_subnormal ? x * 0x1p24f : x);
  const int floor = (int)(bits >> 23) - 127 - (is_subnormal ? 24 : 0);
  const int whole = floor >= 0 ? floor : -(floor + 1);
  int i = 0;
  while (whole >> (i + 1)) i++;
  return floor + ((bits & 0x7fffffu) > 0x7fffffu - last[i]);
}

/* 2^(e - 128): E8M0 halved. */
static float half_of_e8m0(uint8_t code) {
  return amn_f32_from_bits(code < 2 ? 0x00200000u << code : (uint32_t)(code - 1) << 23);
}

/* e = floor(log2(the largest magnitude)) - 2, plus the bias; it wraps around for magnitudes below
 * 2^-125, to scales so large that all codes are 0 */
void encode_mxfp4_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *weights) {
  (void)weights;
  block_mxfp4 *block = (block_mxfp4 *)dst;
  for (size_t n = rows * cols / 32; n > 0; n--, block++, src += 32) {
    const float amax = amax_of(src, 32);
    block->e = amax > 0.0f ? (uint8_t)(floor_log2(amax) - 2 + 127) : 0;
    store_e2m1(src, 32, half_of_e8m0(block->e), block->qs);
  }
}

/* To UE4M3, E4M3 without a sign: the nearest, ties up. Subnormal codes end with 7, and what would
 * be 256 or more becomes 448. */
static uint8_t to_ue4m3(float x) {
  const uint32_t bits = amn_f32_bits(x);
  if (x < 0x1p-6f) {
    const int units = (int)(x * 512.0f + 0.5f);
    return (uint8_t)(units < 7 ? units : 7);
  }
  if (x >= 248.0f) return 0x7e;
  return (uint8_t)(((bits + 0x80000u) >> 20) - (120 << 3));
}

/* Four times 16 elements, each with d = the largest magnitude / 6 */
void encode_nvfp4_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *weights) {
  (void)weights;
  block_nvfp4 *block = (block_nvfp4 *)dst;
  for (size_t n = rows * cols / 64; n > 0; n--, block++)
    for (int group = 0; group < 4; group++, src += 16) {
      block->d[group] = to_ue4m3(amax_of(src, 16) / 6.0f);
      store_e2m1(src, 16, amn_f8_finite_to_f32(block->d[group], 3, 7) * 0.5f,
                 block->qs + 8 * group);
    }
}
