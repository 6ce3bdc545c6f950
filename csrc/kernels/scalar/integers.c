/* Integers of a row, less a zero point, times a scale.
 *
 * Canonical: `_dequantize` of compressed-tensors' quantization/lifecycle/forward_helpers.py, and
 * `unpack_from_int32` of its compressors/pack_quantized/helpers.py. */
#include "../levels.h"

typedef int (*value_fn)(const uint8_t *src, size_t index);

static int int8_value(const uint8_t *src, size_t index) {
  return (int8_t)src[index];
}

static int packed4_value(const uint8_t *src, size_t index) {
  return (src[index / 2] >> (index % 2 * 4) & 15) - 8;
}

static int packed8_value(const uint8_t *src, size_t index) {
  return src[index] - 128;
}

/* Inlined into each kernel below with its `value`. */
AMN_FORCE_INLINE void integers(value_fn value, const uint8_t *src, float *dst, size_t n,
                               const float *zeros, const float *scales, size_t first,
                               size_t block) {
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n;) {
    const float zero = *zeros++, scale = *scales++;
    for (; i < end; i++) dst[i] = ((float)value(src, i) - zero) * scale;
    end = n - i > block ? i + block : n;
  }
}

#define INTEGERS(NAME, name, bits, offset, levels)                                            \
  void integers_##name##_scalar(const uint8_t *src, float *dst, size_t n, const float *zeros, \
                                const float *scales, size_t first, size_t block) {            \
    integers(name##_value, src, dst, n, zeros, scales, first, block);                         \
  }
#include "../kernels.def"
