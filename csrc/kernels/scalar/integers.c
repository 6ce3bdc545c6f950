/* Integers of a row, less a zero point, times a scale, plus a bias.
 *
 * Canonical: `_dequantize` of compressed-tensors' quantization/lifecycle/forward_helpers.py, and
 * `unpack_from_int32` of its compressors/pack_quantized/helpers.py, which before 0.18 had padded
 * words; MLX's `dequantize`. */
#include "../levels.h"

/* Code `index`, of `bits` bits; `codes` of them to a word where they are padded. */
AMN_FORCE_INLINE int dense_value(const uint8_t *src, size_t index, unsigned bits, unsigned codes) {
  const size_t at = index / 8 * bits + index % 8 * bits / 8;
  const unsigned shift = (unsigned)(index % 8) * bits % 8;
  unsigned value = src[at] >> shift;
  (void)codes;
  if (shift + bits > 8) value |= (unsigned)src[at + 1] << (8 - shift);
  return (int)(value & ((1u << bits) - 1));
}

AMN_FORCE_INLINE int signed_value(const uint8_t *src, size_t index, unsigned bits, unsigned codes) {
  const int value = dense_value(src, index, bits, codes), half = 1 << (bits - 1);
  return (value ^ half) - half;
}

AMN_FORCE_INLINE int padded_value(const uint8_t *src, size_t index, unsigned bits, unsigned codes) {
  const uint32_t word = amn_load_u32(src + index / codes * 4);
  return (int)(word >> (index % codes * bits) & ((1u << bits) - 1));
}

#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16)                         \
  void integers_##name##_scalar(const uint8_t *src, size_t at, float *dst, size_t n,            \
                                amn_affine affine, size_t first, size_t block) {                \
    size_t end = first < n ? first : n;                                                         \
    for (size_t i = 0, k = 0; i < n; k++) {                                                     \
      const float zero = affine.zeros[k], scale = affine.scales[k], bias = affine.biases[k];    \
      for (; i < end; i++) {                                                                    \
        const float product = ((float)layout##_value(src, at + i, bits, codes) - zero) * scale; \
        dst[i] = product + bias;                                                                \
      }                                                                                         \
      end = n - i > block ? i + block : n;                                                      \
    }                                                                                           \
  }
#include "../kernels.def"
