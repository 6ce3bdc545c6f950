/* The way to the GGUF types of 32 elements and a scale.
 *
 * Canonical: quantize_* of ggml-quants.c, in float32 and in its order of operations: a number is
 * multiplied by a rounded reciprocal. Where that is infinite, codes are the low bytes of what x86
 * makes of infinities, which are 0. By the importance of columns, scales are searched for. */
#include <math.h>

#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"
#include "search.h"

static void store_half(uint8_t *p, float value) {
  amn_store_u16(p, amn_f32_to_f16(amn_f32_bits(value)));
}

static float reciprocal(float d) {
  return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Four bits each: 16 codes in the low nibbles, 16 in the high ones. */
static void store_nibbles(const uint8_t *codes, uint8_t *qs) {
  for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((codes[i] & 15) | codes[16 + i] << 4);
}

static void store_fifth_bits(const uint8_t *codes, uint8_t *qh) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; i++) bits |= (uint32_t)(codes[i] >> 4 & 1) << i;
  amn_store_u32(qh, bits);
}

/* The mean square of a row, summed in order: only importance asks for it. */
static float mean_square(const float *row, size_t n, const float *weights) {
  float sum = 0.0f;
  for (size_t i = 0; i < n && weights != NULL; i++) sum += row[i] * row[i];
  return sum / (float)(int64_t)n;
}

static void by_importance(const float *x, const float *importance, float square, float *weights) {
  for (int i = 0; i < 32; i++) weights[i] = importance[i] * sqrtf(square + x[i] * x[i]);
}

/* ---- x = d * (code - half) ---- */

/* The codes of x / d, which is from -half to half: half + 0.5 is added, the rest cut off. */
static float symmetric_plain(const float *x, int half, uint8_t *codes) {
  const float d = extreme_of(32, x) / -(float)half, inverse = reciprocal(d);
  for (int i = 0; i < 32; i++) {
    const uint8_t code = (uint8_t)amn_f32_to_s32(x[i] * inverse + ((float)half + 0.5f));
    codes[i] = code < 2 * half ? code : (uint8_t)(2 * half - 1);
  }
  return d;
}

static float symmetric(const float *x, const float *importance, float square, int half,
                       uint8_t *codes) {
  if (importance == NULL) return symmetric_plain(x, half, codes);
  float weights[32];
  by_importance(x, importance, square, weights);
  return search_symmetric(32, half, x, weights, codes);
}

void encode_q4_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  block_q4_0 *block = (block_q4_0 *)dst;
  for (; rows > 0; rows--) {
    const float square = mean_square(src, cols, weights);
    for (size_t at = 0; at < cols; at += 32, src += 32, block++) {
      uint8_t codes[32];
      store_half(block->d, symmetric(src, weights ? weights + at : NULL, square, 8, codes));
      store_nibbles(codes, block->qs);
    }
  }
}

void encode_q5_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  block_q5_0 *block = (block_q5_0 *)dst;
  for (; rows > 0; rows--) {
    const float square = mean_square(src, cols, weights);
    for (size_t at = 0; at < cols; at += 32, src += 32, block++) {
      uint8_t codes[32];
      store_half(block->d, symmetric(src, weights ? weights + at : NULL, square, 16, codes));
      store_nibbles(codes, block->qs);
      store_fifth_bits(codes, block->qh);
    }
  }
}

/* ---- x = d * code + m ---- */

/* The codes 0 to `largest` of (x - m) / d. */
static float affine_plain(const float *x, int largest, uint8_t *codes, float *m) {
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float d = (high - low) / (float)largest, inverse = reciprocal(d);
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)amn_f32_to_s32((x[i] - low) * inverse + 0.5f);
  *m = low;
  return d;
}

static float affine(const float *x, const float *importance, float square, int largest,
                    uint8_t *codes, float *m) {
  static const affine_tries tries = {-0.9f, 0.05f, 37, 0};
  if (importance == NULL) return affine_plain(x, largest, codes, m);
  float weights[32], min;
  by_importance(x, importance, square, weights);
  const float d = search_affine(32, largest, x, weights, &tries, codes, &min);
  *m = -min;
  return d;
}

void encode_q4_1_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  block_q4_1 *block = (block_q4_1 *)dst;
  for (; rows > 0; rows--) {
    const float square = mean_square(src, cols, weights);
    for (size_t at = 0; at < cols; at += 32, src += 32, block++) {
      uint8_t codes[32];
      float m;
      store_half(block->d, affine(src, weights ? weights + at : NULL, square, 15, codes, &m));
      store_half(block->m, m);
      store_nibbles(codes, block->qs);
    }
  }
}

void encode_q5_1_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  block_q5_1 *block = (block_q5_1 *)dst;
  for (; rows > 0; rows--) {
    const float square = mean_square(src, cols, weights);
    for (size_t at = 0; at < cols; at += 32, src += 32, block++) {
      uint8_t codes[32];
      float m;
      store_half(block->d, affine(src, weights ? weights + at : NULL, square, 31, codes, &m));
      store_half(block->m, m);
      store_nibbles(codes, block->qs);
      store_fifth_bits(codes, block->qh);
    }
  }
}

/* ---- x = d * code ---- */

/* The codes of x / d, rounded with ties away from 0. */
void encode_q8_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  (void)weights;
  block_q8_0 *block = (block_q8_0 *)dst;
  for (size_t n = rows * cols / 32; n > 0; n--, block++, src += 32) {
    const float d = fabsf(extreme_of(32, src)) / 127.0f, inverse = reciprocal(d);
    store_half(block->d, d);
    for (int i = 0; i < 32; i++) block->qs[i] = (uint8_t)amn_f32_rounded_to_s32(src[i] * inverse);
  }
}
