/* Codes that AutoAWQ and Marlin lay out for one kernel, put in order: a row after the other, of
 * each byte the low nibble first. */
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

/* The same in bytes n and n + 2. */
AMN_FORCE_INLINE uint64_t eight_bytes(const uint8_t *words, size_t step, unsigned n) {
  uint64_t ordered = 0;
  for (unsigned pair = 0; pair < 4; pair++) {
    const uint32_t word = amn_load_u32(words + pair * step * 4) >> (8 * n);
    ordered |= (uint64_t)((word & 0xff) | (word >> 8 & 0xff00)) << (16 * pair);
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

/* A line is 16 columns of all rows; 64 rows of it are as many words, as the registers of tensor
 * cores want them. Rows are told by three numbers: `lane` of 8, `turn` of 4 and `block` of 2. For
 * each lane and each of 4 pairs of columns there are words for each turn, with that pair and the
 * one 8 columns on: of both blocks, or in 8 bits one for each. */
AMN_FORCE_INLINE uint64_t eight_of_marlin(const uint8_t *src, unsigned bits, uint64_t rows,
                                          uint64_t row, uint64_t col, unsigned lane, unsigned turn,
                                          unsigned block) {
  const uint64_t top = col / 16 * rows + row / 64 * 64;
  const unsigned half = (unsigned)(col % 16 / 8);
  if (bits == 4) return eight_columns(src + (top * 2 + lane * 16 + turn) * 4, 4, block * 2 + half);
  return eight_bytes(src + (top * 4 + lane * 32 + turn * 2 + block) * 4, 8, half);
}

void amn_order_marlin(const uint8_t *src, unsigned bits, uint64_t rows, uint64_t cols,
                      uint8_t *dst) {
  for (uint64_t row = 0; row < rows; row++) {
    const unsigned lane = row % 8, turn = row % 64 / 16, block = row % 16 / 8;
    for (uint64_t col = 0; col < cols; col += 8) {
      const uint64_t eight = eight_of_marlin(src, bits, rows, row, col, lane, turn, block);
      if (bits == 4)
        amn_store_u32(dst + (row * cols + col) / 2, (uint32_t)eight);
      else
        amn_store_u64(dst + row * cols + col, eight);
    }
  }
}

/* Which two of each of four quads of columns are stored: an item of 16 bits, of a line of 32
 * columns, in the order of CUTLASS, which takes rows apart and turns squares of two by two. */
AMN_FORCE_INLINE uint32_t four_quads(const uint8_t *meta, uint64_t rows, uint64_t row,
                                     uint64_t col) {
  const uint64_t place = row % 64 / 8 * 4 + row % 4 / 2 * 32 + row % 2 * 2 + col % 32 / 16;
  const uint64_t item = col / 32 * (rows * 2) + (row / 64 * 64 + place) * 2 + row % 8 / 4;
  return amn_load_u16(meta + item * 2);
}

uint64_t amn_order_marlin_24(const uint8_t *src, const uint8_t *meta, unsigned bits, uint64_t rows,
                             uint64_t cols, uint8_t *dst) {
  const uint32_t mask = (1U << bits) - 1, zero = 1U << (bits - 1);
  const uint32_t zeros = bits == 4 ? 0x8888 : 0x80808080;
  for (uint64_t row = 0; row < rows; row++) {
    const unsigned lane = row % 64 / 8, turn = row % 4, block = row % 8 / 4;
    for (uint64_t col = 0; col < cols; col += 16) {
      uint64_t codes = eight_of_marlin(src, bits, rows, row, col / 2, lane, turn, block);
      uint32_t which = four_quads(meta, rows, row, col);
      for (unsigned quad = 0; quad < 4; quad++, which >>= 4) {
        const unsigned first = which & 3, second = which >> 2 & 3;
        const uint64_t at = row * cols + col + 4 * quad;
        if (first >= second) return at;
        const uint32_t left = ((uint32_t)codes & mask) ^ zero;
        const uint32_t right = ((uint32_t)(codes >> bits) & mask) ^ zero;
        const uint32_t values = zeros ^ (left << (bits * first)) ^ (right << (bits * second));
        codes >>= 2 * bits;
        if (bits == 4)
          amn_store_u16(dst + at / 2, (uint16_t)values);
        else
          amn_store_u32(dst + at, values);
      }
    }
  }
  return rows * cols;
}
