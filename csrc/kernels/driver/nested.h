/* The largest magnitudes of blocks, and how bitsandbytes encodes them themselves. */
#ifndef AMN_DRIVER_NESTED_H
#define AMN_DRIVER_NESTED_H

#include <stddef.h>
#include <stdint.h>

#define NEST 256 /* blocks whose largest magnitudes share one of their own */

/* What bitsandbytes divides by, and stores, at the least. */
static inline float not_below_least(float absmax) {
  return absmax < 1e-38f ? 1e-38f : absmax;
}

/* n numbers, less their mean, to codes and one float32 for every NEST of them; they become what
 * these are decoded to. */
void nest(float *absmax, size_t n, float mean, uint8_t *codes, uint8_t *largest);

#endif /* AMN_DRIVER_NESTED_H */
