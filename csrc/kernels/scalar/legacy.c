/* The GGUF types of 32 elements and a scale, their offspring, and Q8_K: ggml's first ones.
 *
 * Canonical: dequantize_row_* of ggml-quants.c. Each formula is evaluated as it is there,
 * in float32: the integer first, then one product, then one sum. */
#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static float half_at(const uint8_t *p) {
  return amn_f16_to_f32(amn_load_u16(p));
}

/* (q - 8) * d */
void dequant_q4_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q4_0 *block = (const block_q4_0 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d);
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)((block->qs[i] & 15) - 8) * d;
      dst[16 + i] = (float)((block->qs[i] >> 4) - 8) * d;
    }
  }
}

/* q * d + m */
void dequant_q4_1_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q4_1 *block = (const block_q4_1 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d), m = half_at(block->m);
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)(block->qs[i] & 15) * d + m;
      dst[16 + i] = (float)(block->qs[i] >> 4) * d + m;
    }
  }
}

/* (q - 16) * d, the fifth bits of q apart */
void dequant_q5_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q5_0 *block = (const block_q5_0 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d);
    const uint32_t fifth = amn_load_u32(block->qh);
    for (int i = 0; i < 16; i++) {
      const int low = (block->qs[i] & 15) | (int)(fifth >> i & 1) << 4;
      const int high = block->qs[i] >> 4 | (int)(fifth >> (16 + i) & 1) << 4;
      dst[i] = (float)(low - 16) * d;
      dst[16 + i] = (float)(high - 16) * d;
    }
  }
}

/* q * d + m, the fifth bits of q apart */
void dequant_q5_1_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q5_1 *block = (const block_q5_1 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d), m = half_at(block->m);
    const uint32_t fifth = amn_load_u32(block->qh);
    for (int i = 0; i < 16; i++) {
      const int low = (block->qs[i] & 15) | (int)(fifth >> i & 1) << 4;
      const int high = block->qs[i] >> 4 | (int)(fifth >> (16 + i) & 1) << 4;
      dst[i] = (float)low * d + m;
      dst[16 + i] = (float)high * d + m;
    }
  }
}

/* q * d */
void dequant_q8_0_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q8_0 *block = (const block_q8_0 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) dst[i] = (float)(int8_t)block->qs[i] * d;
  }
}

/* q * d: the sum is for dot products */
void dequant_q8_1_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q8_1 *block = (const block_q8_1 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) dst[i] = (float)(int8_t)block->qs[i] * d;
  }
}

/* d * q, d a float32 */
void dequant_q8_k_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_q8_k *block = (const block_q8_k *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = amn_f32_from_bits(amn_load_u32(block->d));
    for (int i = 0; i < 256; i++) dst[i] = d * (float)(int8_t)block->qs[i];
  }
}
