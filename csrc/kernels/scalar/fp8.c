/* 8-bit floats times a scale, as the formula reads: float32(code) * scale. */
#include "../levels.h"
#include "numeric.h"

typedef float (*decode_fn)(uint8_t code);

/* Inlined into each kernel below with its `decode`, so that the loop is a plain one. */
AMN_FORCE_INLINE void scaled(decode_fn decode, const uint8_t *src, uint8_t *dst, size_t n,
                             const float *scales, size_t first, size_t block) {
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n;) {
    const float scale = *scales++;
    for (; i < end; i++) amn_store_u32(dst + 4 * i, amn_f32_bits(decode(src[i]) * scale));
    end = n - i > block ? i + block : n;
  }
}

void scaled_f8_e4m3_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                           size_t first, size_t block) {
  scaled(amn_f8_e4m3_to_f32, src, dst, n, scales, first, block);
}

void scaled_f8_e5m2_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                           size_t first, size_t block) {
  scaled(amn_f8_e5m2_to_f32, src, dst, n, scales, first, block);
}

void scaled_f8_e4m3fnuz_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                               size_t first, size_t block) {
  scaled(amn_f8_e4m3fnuz_to_f32, src, dst, n, scales, first, block);
}

void scaled_f8_e5m2fnuz_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                               size_t first, size_t block) {
  scaled(amn_f8_e5m2fnuz_to_f32, src, dst, n, scales, first, block);
}
