/* Number formats to float32 and back, one element at a time, as their definitions read.
 *
 * For the scalar kernels only: the SIMD side shares no arithmetic with this file, or neither could
 * be checked against the other. */
#ifndef AMN_NUMERIC_H
#define AMN_NUMERIC_H

#include "amn_platform.h"

#define AMN_F32_SIGN 0x80000000u
#define AMN_F32_INF 0x7f800000u
#define AMN_F32_NAN 0x7fc00000u
#define AMN_F16_INF 0x7c00u
#define AMN_F16_NAN 0x7e00u
#define AMN_BF16_INF 0x7f80u
#define AMN_BF16_NAN 0x7fc0u

/* An 8-bit float without its special codes: sign, then 7 - n_mantissa bits of exponent, then the
 * mantissa. Put where a float32 has its sign, exponent and mantissa, subnormals included, it is too
 * small by the difference of the biases: by a power of two, so that the product is exact. */
static inline float amn_f8_finite_to_f32(uint8_t code, int n_mantissa, int bias) {
  uint32_t sign = (uint32_t)(code & 0x80u) << 24;
  uint32_t magnitude = (uint32_t)(code & 0x7fu) << (23 - n_mantissa);
  return amn_f32_from_bits(sign | magnitude) *
         amn_f32_from_bits((uint32_t)(127 + 127 - bias) << 23);
}

/* OCP E4M3 ("FN"): bias 7, no infinities, S.1111.111 is NaN. */
static inline float amn_f8_e4m3_to_f32(uint8_t code) {
  float value = amn_f8_finite_to_f32(code, 3, 7);
  return (code & 0x7f) == 0x7f ? amn_f32_from_bits(AMN_F32_NAN) : value;
}

/* OCP E5M2: bias 15, infinities and NaNs as in IEEE 754. */
static inline float amn_f8_e5m2_to_f32(uint8_t code) {
  uint32_t bits = amn_f32_bits(amn_f8_finite_to_f32(code, 2, 15));
  uint32_t infinity = (bits & AMN_F32_SIGN) | AMN_F32_INF;
  uint32_t magnitude = code & 0x7f;
  bits = magnitude == 0x7c ? infinity : bits;
  return amn_f32_from_bits(magnitude > 0x7c ? AMN_F32_NAN : bits);
}

/* E4M3FNUZ: bias 8, no infinities, no negative zero: its code is the only NaN. */
static inline float amn_f8_e4m3fnuz_to_f32(uint8_t code) {
  float value = amn_f8_finite_to_f32(code, 3, 8);
  return code == 0x80 ? amn_f32_from_bits(AMN_F32_NAN) : value;
}

/* E5M2FNUZ: the same with bias 16 and two bits of mantissa. */
static inline float amn_f8_e5m2fnuz_to_f32(uint8_t code) {
  float value = amn_f8_finite_to_f32(code, 2, 16);
  return code == 0x80 ? amn_f32_from_bits(AMN_F32_NAN) : value;
}

/* OCP MX scale: 2^(code - 127), 0xFF is NaN. Code 0 is the subnormal float32 2^-127. */
static inline float amn_f8_e8m0_to_f32(uint8_t code) {
  uint32_t bits = (uint32_t)code << 23;
  bits = code == 0 ? 0x00400000u : bits;
  return amn_f32_from_bits(code == 0xff ? AMN_F32_NAN : bits);
}

static inline float amn_bf16_to_f32(uint16_t half) {
  return amn_f32_from_bits((uint32_t)half << 16);
}

static inline float amn_f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t magnitude = half & 0x7fffu;
  uint32_t normal = (magnitude << 13) + (112u << 23);
  uint32_t special = (magnitude << 13) | AMN_F32_INF;
  uint32_t subnormal = amn_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
  uint32_t bits = magnitude < 0x0400 ? subnormal : normal;
  return amn_f32_from_bits(sign | (magnitude >= AMN_F16_INF ? special : bits));
}

/* Nearest, ties to even: adding half a unit less one, and one more if the kept part is odd, carries
 * exactly when the dropped part asks for it. The largest finite values carry into infinity. */
static inline uint16_t amn_f32_to_bf16(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & ~AMN_F32_SIGN) > AMN_F32_INF ? AMN_BF16_NAN : rounded);
}

/* Below 2^-14 a half counts units of 2^-24, as a float32 between 0.5 and 1 does: adding 0.5 rounds
 * to that unit, and what is then above the bits of 0.5 is the count. From 65520 up is infinite. */
static inline uint16_t amn_f32_to_f16(uint32_t bits) {
  uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t magnitude = bits & ~AMN_F32_SIGN;
  uint32_t rebased = magnitude - (112u << 23);
  uint32_t normal = (rebased + 0x0fffu + (rebased >> 13 & 1)) >> 13;
  uint32_t subnormal = amn_f32_bits(amn_f32_from_bits(magnitude) + 0.5f) - amn_f32_bits(0.5f);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? AMN_F16_INF : half;
  return (uint16_t)(magnitude > AMN_F32_INF ? AMN_F16_NAN : sign | half);
}

/* Cut off towards 0; what int32 cannot hold becomes its least number, as x86 has it. */
static inline int32_t amn_f32_to_s32(float value) {
  return value > -0x1p31f && value < 0x1p31f ? (int32_t)value : INT32_MIN;
}

/* The nearest, ties away from 0. */
static inline int32_t amn_f32_rounded_to_s32(float value) {
  const int32_t whole = amn_f32_to_s32(value);
  if (whole == INT32_MIN) return whole;
  const float rest = value - (float)whole;
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static inline uint32_t amn_f32_canonical(uint32_t bits) {
  return (bits & ~AMN_F32_SIGN) > AMN_F32_INF ? AMN_F32_NAN : bits;
}

#endif /* AMN_NUMERIC_H */
