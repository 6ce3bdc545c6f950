/* The way to the GGUF types of one or two bits and a scale.
 *
 * Canonical: quantize_* of ggml-quants.c, in float32 and in its order of operations: a number is
 * multiplied by a rounded reciprocal. Where that is infinite, ggml's codes are what x86 makes of
 * infinities. */
#include <math.h>

#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static void store_half(uint8_t *p, float value) {
  amn_store_u16(p, amn_f32_to_f16(amn_f32_bits(value)));
}

static float amax_of(const float *x, int n) {
  float amax = 0.0f;
  for (int i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
  return amax;
}

static float reciprocal(float d) {
  return d != 0.0f ? 1.0f / d : 0.0f;
}

/* d = the mean magnitude, summed in order; a bit that is set for what is not below 0 */
void encode_q1_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  (void)weights;
  block_q1_0 *block = (block_q1_0 *)dst;
  for (size_t n = rows * cols / 128; n > 0; n--, block++, src += 128) {
    float sum = 0.0f;
    memset(block->qs, 0, sizeof block->qs);
    for (int i = 0; i < 128; i++) {
      sum += fabsf(src[i]);
      if (src[i] >= 0.0f) block->qs[i / 8] |= (uint8_t)(1 << i % 8);
    }
    store_half(block->d, sum / 128.0f);
  }
}

/* d = the largest magnitude; x / d rounded, ties away from 0, plus 1: never 3, but 0 where 1 / d is
 * infinite */
void encode_q2_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  (void)weights;
  block_q2_0 *block = (block_q2_0 *)dst;
  for (size_t n = rows * cols / 64; n > 0; n--, block++, src += 64) {
    const float d = amax_of(src, 64), inverse = reciprocal(d);
    store_half(block->d, d);
    memset(block->qs, 0, sizeof block->qs);
    for (int i = 0; i < 64; i++) {
      const int32_t level = amn_f32_rounded_to_s32(src[i] * inverse);
      if (level >= 0) block->qs[i / 4] |= (uint8_t)((level + 1) << i % 4 * 2);
    }
  }
}

/* The digits 0, 1, 2 of x / d, rounded with ties away from 0; 1 where 1 / d is infinite: ggml
 * rounds to 64 bits there, and keeps the lower 32. */
static unsigned int ternary_digit(float x, float inverse) {
  const float level = x * inverse;
  return fabsf(level) <= 2.0f ? (unsigned int)(amn_f32_rounded_to_s32(level) + 1) : 1;
}

/* Base-3 digits, the first of all bytes before all second ones, as a fraction of 256 rounded up.
 * Bytes have five digits; the fifth is 0 if there are but four. */
static const float *ternary_bytes(const float *x, float inverse, uint8_t *bytes, int n_bytes,
                                  int n_digits) {
  for (int i = 0; i < n_bytes; i++) {
    unsigned int number = 0;
    for (int digit = 0; digit < 5; digit++) {
      number *= 3;
      if (digit < n_digits) number += ternary_digit(x[digit * n_bytes + i], inverse);
    }
    bytes[i] = (uint8_t)((number * 256 + 242) / 243);
  }
  return x + n_bytes * n_digits;
}

/* d = the largest magnitude; 160 elements in five digits of 32 bytes, 80 in 16 bytes, 16 in four
 * of 4 */
void encode_tq1_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *weights) {
  (void)weights;
  block_tq1_0 *block = (block_tq1_0 *)dst;
  for (size_t n = rows * cols / 256; n > 0; n--, block++) {
    const float d = amax_of(src, 256), inverse = reciprocal(d);
    store_half(block->d, d);
    src = ternary_bytes(src, inverse, block->qs, 32, 5);
    src = ternary_bytes(src, inverse, block->qs + 32, 16, 5);
    src = ternary_bytes(src, inverse, block->qh, 4, 4);
  }
}

/* d = the largest magnitude; 32 bytes hold 128 elements, their lowest two bits the first 32 */
void encode_tq2_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                         const float *weights) {
  (void)weights;
  block_tq2_0 *block = (block_tq2_0 *)dst;
  for (size_t n = rows * cols / 256; n > 0; n--, block++, src += 256) {
    const float d = amax_of(src, 256), inverse = reciprocal(d);
    store_half(block->d, d);
    memset(block->qs, 0, sizeof block->qs);
    for (int i = 0; i < 256; i++)
      block->qs[i / 128 * 32 + i % 32] |=
          (uint8_t)(ternary_digit(src[i], inverse) << i % 128 / 32 * 2);
  }
}
