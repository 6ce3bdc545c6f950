/* Codes of 4 bits that AutoAWQ lays out for one kernel, put in order: a row after the other, of
 * each byte the low nibble first. In both layouts a pair of columns is in nibbles n and n + 4 of a
 * word. */
#include "amn_platform.h"
#include "reads.h"

/* The four pairs of eight columns, in nibbles n and n + 4 of words `step` apart. */
AMN_FORCE_INLINE uint32_t eight_columns(const uint8_t *words, size_t step, unsigned n) {
  uint32_t ordered = 0;
  for (unsigned pair = 0; pair < 4; pair++) {
    const uint32_t word = amn_load_u32(words + pair * step * 4) >> (4 * n);
    ordered |= ((word & 15) | (word >> 12 & 0xf0)) << (8 * pair);
  }
  return ordered;
}

/* Four rows of 64 columns take turns, 8 words each; of each half of them, word p has pairs p. */
void amn_order_gemv_fast(const uint8_t *src, uint64_t rows, uint64_t cols, uint8_t *dst) {
  for (uint64_t row = 0; row < rows; row++)
    for (uint64_t col = 0; col < cols; col += 8) {
      const uint64_t word = col / 64 * 32 + row % 4 * 8 + col % 64 / 32 * 4;
      const uint8_t *words = src + (row / 4 * (cols / 2) + word) * 4;
      amn_store_u32(dst + (row * cols + col) / 2, eight_columns(words, 1, col % 32 / 8));
    }
}

/* A line is 16 columns of all rows; 64 rows of it are 128 words, as the registers of tensor cores
 * want them: for each of 8 rows and each of 4 pairs of columns, a word for each 16 rows. It has
 * that pair, the one 8 columns on, and both of them 8 rows on. */
void amn_order_marlin(const uint8_t *src, uint64_t rows, uint64_t cols, uint8_t *dst) {
  for (uint64_t row = 0; row < rows; row++)
    for (uint64_t col = 0; col < cols; col += 8) {
      const uint64_t word = row / 64 * 128 + row % 8 * 16 + row % 64 / 16;
      const uint8_t *words = src + (col / 16 * (rows * 2) + word) * 4;
      const unsigned n = (unsigned)(row % 16 / 8 * 2 + col % 16 / 8);
      amn_store_u32(dst + (row * cols + col) / 2, eight_columns(words, 4, n));
    }
}
