/* Some columns of rows, in any order. */
#include "amn_platform.h"
#include "reads.h"

#include <string.h>

/* Inlined with a constant for the bytes of an item, which are then loaded and stored at once. */
AMN_FORCE_INLINE void take(const uint8_t *src, uint64_t rows, uint64_t cols, size_t item,
                           const uint8_t *order, uint64_t n, uint8_t *dst) {
  for (; rows > 0; rows--, src += cols * item)
    for (uint64_t col = 0; col < n; col++, dst += item)
      memcpy(dst, src + (uint64_t)amn_load_u32(order + 4 * col) * item, item);
}

int amn_take_columns(const uint8_t *src, uint64_t rows, uint64_t cols, uint64_t item,
                     const uint8_t *order, uint64_t n, uint8_t *dst) {
  for (uint64_t col = 0; col < n; col++)
    if (amn_load_u32(order + 4 * col) >= cols) return 0;
  if (item == 2)
    take(src, rows, cols, 2, order, n, dst);
  else
    take(src, rows, cols, 4, order, n, dst);
  return 1;
}
