/* Roundings between the operations of a decoder, as some libraries have them that compute in a
 * 16-bit dtype. By the kernels that make outputs and widen what is stored, so that they are native
 * where those are. */
#ifndef AMN_DRIVER_ROUNDING_H
#define AMN_DRIVER_ROUNDING_H

#include "sizes.h"

/* What widens numbers of an output dtype again. */
static const unsigned char float_of_out[] = {
#define NARROW(NAME, name, item_bytes, levels) AMN_FLOAT_##NAME,
#include "../kernels.def"
};

static inline int is_finite_f32(float value) {
  return (amn_f32_bits(value) & 0x7f800000u) != 0x7f800000u;
}

/* At most SCRATCH numbers, rounded to a dtype; returns how many finite ones became infinite. */
static inline uint64_t round_values(const amn_level *level, int dtype, float *values, size_t n) {
  uint8_t rounded[4 * SCRATCH];
  const uint64_t n_overflow = level->narrow[dtype]((const uint8_t *)values, rounded, n);
  level->widen[float_of_out[dtype]](rounded, (uint8_t *)values, n);
  return n_overflow;
}

/* The same of numbers that blocks of codes share: `count` codes, the first of them `into` its
 * block. Returns how many codes have a finite one that became infinite. */
static inline uint64_t round_blocks(const amn_level *level, int dtype, float *shared, size_t n,
                                    uint64_t into, uint64_t block, uint64_t count) {
  float exact[SCRATCH];
  memcpy(exact, shared, n * sizeof(float));
  if (round_values(level, dtype, shared, n) == 0) return 0;
  uint64_t n_codes = 0;
  for (size_t k = 0; k < n; k++) {
    const uint64_t begin = k == 0 ? 0 : k * block - into;
    const uint64_t end = k + 1 == n ? count : (k + 1) * block - into;
    if (is_finite_f32(exact[k]) && !is_finite_f32(shared[k])) n_codes += end - begin;
  }
  return n_codes;
}

#endif /* AMN_DRIVER_ROUNDING_H */
