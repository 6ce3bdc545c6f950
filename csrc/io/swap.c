/* Numbers of the other byte order. */
#include "reads.h"

#include <string.h>

static uint16_t turned_u16(uint16_t a) {
  return (uint16_t)(a << 8 | a >> 8);
}

static uint32_t turned_u32(uint32_t a) {
  return (uint32_t)turned_u16((uint16_t)a) << 16 | turned_u16((uint16_t)(a >> 16));
}

static uint64_t turned_u64(uint64_t a) {
  return (uint64_t)turned_u32((uint32_t)a) << 32 | turned_u32((uint32_t)(a >> 32));
}

#define SWAP_EACH(type, turned)           \
  for (; n > 0; n--, number += stride) {  \
    type value;                           \
    memcpy(&value, number, sizeof value); \
    value = turned(value);                \
    memcpy(number, &value, sizeof value); \
  }

static void swap_u16(uint8_t *number, uint64_t n, uint64_t stride) {
  SWAP_EACH(uint16_t, turned_u16)
}

static void swap_u32(uint8_t *number, uint64_t n, uint64_t stride) {
  SWAP_EACH(uint32_t, turned_u32)
}

static void swap_u64(uint8_t *number, uint64_t n, uint64_t stride) {
  SWAP_EACH(uint64_t, turned_u64)
}

#undef SWAP_EACH

void amn_swap(uint8_t *number, uint64_t n, uint64_t stride, uint64_t width) {
  /* With a stride that is known, compilers make vectors of it. */
  if (width == 2 && stride == 2)
    swap_u16(number, n, 2);
  else if (width == 4 && stride == 4)
    swap_u32(number, n, 4);
  else if (width == 8 && stride == 8)
    swap_u64(number, n, 8);
  else if (width == 2)
    swap_u16(number, n, stride);
  else if (width == 4)
    swap_u32(number, n, stride);
  else
    swap_u64(number, n, stride);
}
