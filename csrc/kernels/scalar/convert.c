/* Number formats to float32, and float32 to the outputs. */
#include "../levels.h"
#include "numeric.h"

static int is_finite(uint32_t bits) {
  return (bits & AMN_F32_INF) != AMN_F32_INF;
}

uint64_t widen_f64_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  uint64_t n_overflow = 0;
  for (size_t i = 0; i < n; i++) {
    double value;
    memcpy(&value, src + 8 * i, sizeof value);
    const uint32_t bits = amn_f32_bits((float)value);
    n_overflow += value >= -DBL_MAX && value <= DBL_MAX && !is_finite(bits);
    amn_store_u32(dst + 4 * i, bits);
  }
  return n_overflow;
}

uint64_t widen_f32_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  memcpy(dst, src, 4 * n);
  return 0;
}

uint64_t widen_f16_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  for (size_t i = 0; i < n; i++)
    amn_store_u32(dst + 4 * i, amn_f32_bits(amn_f16_to_f32(amn_load_u16(src + 2 * i))));
  return 0;
}

uint64_t widen_bf16_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  for (size_t i = 0; i < n; i++)
    amn_store_u32(dst + 4 * i, amn_f32_bits(amn_bf16_to_f32(amn_load_u16(src + 2 * i))));
  return 0;
}

uint64_t widen_f8_e8m0_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  for (size_t i = 0; i < n; i++)
    amn_store_u32(dst + 4 * i, amn_f32_bits(amn_f8_e8m0_to_f32(src[i])));
  return 0;
}

uint64_t narrow_bf16_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  uint32_t n_overflow = 0; /* as wide as the elements, or the loop is not vectorised */
  for (size_t i = 0; i < n; i++) {
    const uint32_t bits = amn_load_u32(src + 4 * i);
    const uint16_t rounded = amn_f32_to_bf16(bits);
    n_overflow += is_finite(bits) && (rounded & 0x7fff) == AMN_BF16_INF;
    amn_store_u16(dst + 2 * i, rounded);
  }
  return n_overflow;
}

uint64_t narrow_f16_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  uint32_t n_overflow = 0; /* as wide as the elements, or the loop is not vectorised */
  for (size_t i = 0; i < n; i++) {
    const uint32_t bits = amn_load_u32(src + 4 * i);
    const uint16_t rounded = amn_f32_to_f16(bits);
    n_overflow += is_finite(bits) && (rounded & 0x7fff) == AMN_F16_INF;
    amn_store_u16(dst + 2 * i, rounded);
  }
  return n_overflow;
}

uint64_t narrow_f32_scalar(const uint8_t *src, uint8_t *dst, size_t n) {
  for (size_t i = 0; i < n; i++)
    amn_store_u32(dst + 4 * i, amn_f32_canonical(amn_load_u32(src + 4 * i)));
  return 0;
}
