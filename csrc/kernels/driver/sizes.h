/* What all drivers share: sizes that cannot overflow, and how large the items of the tables are.
 *
 * A driver checks sizes and loops, once for all kernels of its kind. Most kernels decode into a
 * float32 scratch that stays in the first-level cache, and a `narrow` kernel makes the output of
 * it: types and outputs add up instead of multiplying. */
#ifndef AMN_DRIVER_SIZES_H
#define AMN_DRIVER_SIZES_H

#include "../levels.h"

#define SCRATCH 1024 /* float32 elements decoded before they are narrowed: 4 KiB */

static const unsigned char float_bytes[] = {
#define WIDEN(family, NAME, name, item_bytes, levels) item_bytes,
#include "../kernels.def"
};

static const unsigned char out_bytes[] = {
#define NARROW(NAME, name, item_bytes, levels) item_bytes,
#include "../kernels.def"
};

static inline uint64_t min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* a * b or a + b into *result, false if 64 bits cannot hold it. Sizes come from file headers. */
static inline int multiply(uint64_t a, uint64_t b, uint64_t *result) {
  *result = a * b;
  return b == 0 || a <= UINT64_MAX / b;
}

static inline int add(uint64_t a, uint64_t b, uint64_t *result) {
  *result = a + b;
  return *result >= a;
}

/* The blocks that `n` rows, columns or codes (not 0) from `phase` on touch. */
static inline int blocks_touched(uint64_t n, uint64_t phase, uint64_t block, uint64_t *count) {
  uint64_t end;
  if (!add(n, phase, &end)) return 0;
  *count = (end - 1) / block + 1;
  return 1;
}

/* Whether an id is that of a tensor's dtype, not only of a scale's. */
static inline int is_convertible(int dtype) {
  switch (dtype) {
#define IS_CONVERTIBLE_convert 1
#define IS_CONVERTIBLE_scale 0
#define WIDEN(family, NAME, name, item_bytes, levels) \
  case AMN_FLOAT_##NAME:                              \
    return IS_CONVERTIBLE_##family;
#include "../kernels.def"
    default:
      return 0;
  }
}

#endif /* AMN_DRIVER_SIZES_H */
