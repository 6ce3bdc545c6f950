/* The way to the GGUF types of 32 elements and a scale.
 *
 * Canonical: quantize_* of ggml-quants.c, in float32 and in its order of operations. */
#include <math.h>

#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

/* The first of the largest magnitudes, with its sign. */
static float signed_largest(const float *values, int n) {
  float amax = 0.0f, largest = 0.0f;
  for (int i = 0; i < n; i++) {
    if (amax < fabsf(values[i])) {
      amax = fabsf(values[i]);
      largest = values[i];
    }
  }
  return largest;
}

static void store_half(uint8_t *p, float value) {
  amn_store_u16(p, amn_f32_to_f16(amn_f32_bits(value)));
}

/* d = the largest / -8, codes of x / d + 8.5, cut off */
void encode_q4_0_scalar(const float *src, uint8_t *dst, size_t rows, size_t cols,
                        const float *weights) {
  (void)weights;
  block_q4_0 *block = (block_q4_0 *)dst;
  for (size_t n = rows * cols / 32; n > 0; n--, block++, src += 32) {
    const float d = signed_largest(src, 32) / -8.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    store_half(block->d, d);
    for (int i = 0; i < 16; i++) {
      const int low = (int)(int8_t)(src[i] * inverse + 8.5f);
      const int high = (int)(int8_t)(src[16 + i] * inverse + 8.5f);
      block->qs[i] = (uint8_t)((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
    }
  }
}
