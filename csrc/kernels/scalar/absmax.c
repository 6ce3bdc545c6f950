/* Codes times a number of their block: the largest magnitude in bitsandbytes, a scale in NVFP4 and
 * MXFP4.
 *
 * Canonical: `_dequantize_4bit_compute` and `int8_vectorwise_dequant` of bitsandbytes'
 * backends/default/ops.py. */
#include "../levels.h"

static void by_codebook(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                        const float *absmax, size_t first, size_t block, size_t high) {
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n;) {
    const float scale = *absmax++;
    for (; i < end; i++) {
      const unsigned int code = i % 2 == high ? src[i / 2] >> 4 : src[i / 2] & 15u;
      amn_store_u32(dst + 4 * i, amn_f32_bits(codebook[code] * scale));
    }
    end = n - i > block ? i + block : n;
  }
}

void absmax_codebook4_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                             const float *absmax, size_t first, size_t block) {
  by_codebook(src, dst, n, codebook, absmax, first, block, 0);
}

void absmax_codebook4_low_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                                 const float *absmax, size_t first, size_t block) {
  by_codebook(src, dst, n, codebook, absmax, first, block, 1);
}

void absmax_int8_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                        const float *absmax, size_t first, size_t block) {
  (void)codebook;
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n;) {
    const float scale = *absmax++;
    for (; i < end; i++)
      amn_store_u32(dst + 4 * i, amn_f32_bits((float)(int8_t)src[i] * scale * AMN_ONE_127TH));
    end = n - i > block ? i + block : n;
  }
}
