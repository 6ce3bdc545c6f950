/* The GGUF types of one or two bits and a scale.
 *
 * Canonical: dequantize_row_* of ggml-quants.c. Each formula is evaluated as it is there,
 * in float32. */
#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static float half_at(const uint8_t *p) {
  return amn_f16_to_f32(amn_load_u16(p));
}

/* Bytes of base-3 digits, each a fraction of 256 rounded up: its first digit is the carry of 3
 * times the byte, and multiplying by a power of 3 modulo 256 brings a later digit to the front. All
 * first digits come first, then all second ones. */
static float *ternary_digits(const uint8_t *bytes, int n_bytes, int n_digits, float d, float *dst) {
  unsigned int power = 1;
  for (int digit = 0; digit < n_digits; digit++, power *= 3)
    for (int i = 0; i < n_bytes; i++) {
      const unsigned int front = bytes[i] * power & 0xff;
      *dst++ = (float)((int)(front * 3 >> 8) - 1) * d;
    }
  return dst;
}

/* (digit - 1) * d; 160 elements in five digits of 32 bytes, 80 in 16 bytes, 16 in four of 4 */
void dequant_tq1_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_tq1_0 *block = (const block_tq1_0 *)src;
  for (; n > 0; n--, block++) {
    const float d = half_at(block->d);
    dst = ternary_digits(block->qs, 32, 5, d, dst);
    dst = ternary_digits(block->qs + 32, 16, 5, d, dst);
    dst = ternary_digits(block->qh, 4, 4, d, dst);
  }
}

/* (q - 1) * d; 32 bytes hold 128 elements, their lowest two bits the first 32 */
void dequant_tq2_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_tq2_0 *block = (const block_tq2_0 *)src;
  for (; n > 0; n--, block++) {
    const float d = half_at(block->d);
    for (int i = 0; i < 256; i++) {
      const int q = block->qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      *dst++ = (float)(q - 1) * d;
    }
  }
}

/* d for a bit that is set, else -d */
void dequant_q1_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q1_0 *block = (const block_q1_0 *)src;
  for (; n > 0; n--, block++) {
    const float d = half_at(block->d);
    for (int i = 0; i < 128; i++) *dst++ = block->qs[i / 8] >> (i % 8) & 1 ? d : -d;
  }
}

/* (q - 1) * d */
void dequant_q2_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q2_0 *block = (const block_q2_0 *)src;
  for (; n > 0; n--, block++) {
    const float d = half_at(block->d);
    for (int i = 0; i < 64; i++) *dst++ = (float)((block->qs[i / 4] >> (i % 4 * 2) & 3) - 1) * d;
  }
}
