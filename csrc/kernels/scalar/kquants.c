/* The K types: 256 elements, whose sub-blocks of 16 or 32 have scales, and some mins, of a few
 * bits.
 *
 * Canonical: dequantize_row_* of ggml-quants.c. Each formula is evaluated as it is there,
 * in float32, left to right. */
#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static float half_at(const uint8_t *p) {
  return amn_f16_to_f32(amn_load_u16(p));
}

/* (d * scale) * q - dmin * min; sub-blocks of 16. Every 32 bytes of qs hold 128 elements: the
 * lowest two bits of each the first 32, the next two the next 32. */
void dequant_q2_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q2_k *block = (const block_q2_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d), dmin = half_at(block->dmin);
    for (int i = 0; i < 256; i++) {
      const int q = block->qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
      const float scale = d * (float)(block->scales[i / 16] & 15);
      const float min = dmin * (float)(block->scales[i / 16] >> 4);
      dst[i] = scale * (float)q - min;
    }
  }
}

/* Sixteen scales of 6 bits: the lower four in the nibbles of 8 bytes, the upper two in the pairs of
 * the 4 bytes after them. */
static int q3_k_scale(const uint8_t *scales, int i) {
  const int low = scales[i % 8] >> (i / 8 * 4) & 15;
  const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
  return low | high << 4;
}

/* (d * (scale - 32)) * (q - 4); sub-blocks of 16. The lower two bits of q lie as in Q2_K, the third
 * of element i in bit i / 32 of a byte of hmask. */
void dequant_q3_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q3_k *block = (const block_q3_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 256; i++) {
      const int low = block->qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
      const int high = block->hmask[i % 32] >> (i / 32) & 1;
      const float scale = d * (float)(q3_k_scale(block->scales, i / 16) - 32);
      dst[i] = scale * (float)((low | high << 2) - 4);
    }
  }
}

/* Eight scales and eight mins of 6 bits, in Q4_K and Q5_K. The first four of each are the lower
 * bits of a byte; the upper bits of these bytes are those of the last four, whose lower bits are
 * the nibbles of the last four bytes. */
static int k_scale(const uint8_t *scales, int i) {
  return i < 4 ? scales[i] & 63 : (scales[4 + i] & 15) | scales[i - 4] >> 6 << 4;
}

static int k_min(const uint8_t *scales, int i) {
  return i < 4 ? scales[4 + i] & 63 : scales[4 + i] >> 4 | scales[i] >> 6 << 4;
}

/* (d * scale) * q - dmin * min; sub-blocks of 32. Every 32 bytes of qs hold 64 elements: the lower
 * nibbles the first 32. */
void dequant_q4_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q4_k *block = (const block_q4_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d), dmin = half_at(block->dmin);
    for (int i = 0; i < 256; i++) {
      const int q = block->qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
      const float scale = d * (float)k_scale(block->scales, i / 32);
      const float min = dmin * (float)k_min(block->scales, i / 32);
      dst[i] = scale * (float)q - min;
    }
  }
}

/* As Q4_K; the fifth bit of element i is bit i / 32 of a byte of qh. */
void dequant_q5_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q5_k *block = (const block_q5_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d), dmin = half_at(block->dmin);
    for (int i = 0; i < 256; i++) {
      const int low = block->qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
      const int high = block->qh[i % 32] >> (i / 32) & 1;
      const float scale = d * (float)k_scale(block->scales, i / 32);
      const float min = dmin * (float)k_min(block->scales, i / 32);
      dst[i] = scale * (float)(low | high << 4) - min;
    }
  }
}

/* (d * scale) * (q - 32); sub-blocks of 16. Each 64 bytes of ql hold the lower four bits of 128
 * elements, the lower nibbles those of the first 64; each 32 bytes of qh the upper two, as the bits
 * of Q2_K lie. */
void dequant_q6_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q6_k *block = (const block_q6_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 256; i++) {
      const int low = block->ql[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
      const int high = block->qh[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
      const float scale = d * (float)(int8_t)block->scales[i / 16];
      dst[i] = scale * (float)((low | high << 4) - 32);
    }
  }
}
