/* Rows of which only those items are stored that a bit of a mask stands for; the others are zero.
 */
#include <string.h>

#include "amn_platform.h"
#include "reads.h"

static unsigned ones(unsigned byte) {
  byte -= byte >> 1 & 0x55;
  byte = (byte & 0x33) + (byte >> 2 & 0x33);
  return (byte + (byte >> 4)) & 0xf;
}

/* Eight bits of a mask from bit `at` on; those behind bit `end` are 0. */
static unsigned eight_bits(const uint8_t *mask, uint64_t at, uint64_t end) {
  const unsigned shift = (unsigned)(at % 8);
  unsigned bits = mask[at / 8] >> shift;
  if (shift && at / 8 + 1 < (end + 7) / 8) bits |= (unsigned)mask[at / 8 + 1] << (8 - shift);
  if (end - at < 8) bits &= (1u << (end - at)) - 1;
  return bits & 0xff;
}

uint64_t amn_count_bits(const uint8_t *mask, uint64_t first, uint64_t n) {
  uint64_t count = 0;
  for (uint64_t at = first; at < first + n; at += 8) count += ones(eight_bits(mask, at, first + n));
  return count;
}

/* A row whose values are as many as the mask has ones. Where eight more of them are there, each is
 * loaded and blotted out if it is not its turn, for a mask cannot be foreseen. */
AMN_FORCE_INLINE void expand_row(const uint8_t *mask, uint64_t first, uint64_t n,
                                 const uint8_t *values, uint64_t n_values, uint8_t *dst,
                                 size_t item) {
  uint64_t taken = 0;
  for (uint64_t at = 0; at < n; at += 8) {
    const unsigned bits = eight_bits(mask, first + at, first + n);
    const size_t here = n - at < 8 ? (size_t)(n - at) : 8;
    const int is_inside = taken + 8 <= n_values;
    for (size_t i = 0; i < here; i++) {
      const uint64_t bit = bits >> i & 1;
      uint64_t value = 0;
      if (is_inside || bit) memcpy(&value, values + taken * item, item);
      value &= 0 - bit;
      memcpy(dst + (at + i) * item, &value, item);
      taken += bit;
    }
  }
}

static void expand_of(const uint8_t *mask, uint64_t first, uint64_t n, const uint8_t *values,
                      uint64_t n_values, uint8_t *dst, uint64_t item) {
  switch (item) {
    case 1:
      expand_row(mask, first, n, values, n_values, dst, 1);
      break;
    case 2:
      expand_row(mask, first, n, values, n_values, dst, 2);
      break;
    case 4:
      expand_row(mask, first, n, values, n_values, dst, 4);
      break;
    default:
      expand_row(mask, first, n, values, n_values, dst, 8);
  }
}

uint64_t amn_expand_rows(const uint8_t *mask, uint64_t first, uint64_t cols, const uint8_t *values,
                         const uint64_t *ends, uint64_t item, uint64_t rows, uint8_t *dst) {
  uint64_t start = 0;
  for (uint64_t row = 0; row < rows; row++, mask += (first + cols + 7) / 8) {
    const uint64_t n_values = ends[row] - start;
    if (amn_count_bits(mask, first, cols) != n_values) return row;
    expand_of(mask, first, cols, values + start * item, n_values, dst + row * cols * item, item);
    start = ends[row];
  }
  return rows;
}
