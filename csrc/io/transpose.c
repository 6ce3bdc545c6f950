/* Rows that become columns. SSE2 is there on every x86-64, so that no level is chosen. */
#include "amn_platform.h"
#include "reads.h"

#include <string.h>

/* Where items go, and come from: a row of one is a column of the other. */
typedef struct {
  const uint8_t *src;
  uint8_t *dst;
  size_t src_stride, dst_stride, item;
} transposition;

static void turn_items(const transposition *of, size_t row, size_t rows, size_t col, size_t cols) {
  for (size_t c = col; c < col + cols; c++)
    for (size_t r = row; r < row + rows; r++)
      memcpy(of->dst + c * of->dst_stride + r * of->item,
             of->src + r * of->src_stride + c * of->item, of->item);
}

#if defined(AMN_ARCH_X86_64)
#include <emmintrin.h>

static void load_rows(const transposition *of, size_t row, size_t col, __m128i *rows, int n) {
  for (int i = 0; i < n; i++)
    rows[i] = _mm_loadu_si128(
        (const __m128i *)(of->src + (row + (size_t)i) * of->src_stride + col * of->item));
}

static void store_row(const transposition *of, size_t row, size_t col, __m128i items) {
  _mm_storeu_si128((__m128i *)(of->dst + col * of->dst_stride + row * of->item), items);
}

/* 4 rows and columns of 4 bytes. */
static void turn_square_u32(const transposition *of, size_t row, size_t col) {
  __m128i rows[4];
  load_rows(of, row, col, rows, 4);
  const __m128i a = _mm_unpacklo_epi32(rows[0], rows[1]), b = _mm_unpackhi_epi32(rows[0], rows[1]);
  const __m128i c = _mm_unpacklo_epi32(rows[2], rows[3]), d = _mm_unpackhi_epi32(rows[2], rows[3]);
  store_row(of, row, col, _mm_unpacklo_epi64(a, c));
  store_row(of, row, col + 1, _mm_unpackhi_epi64(a, c));
  store_row(of, row, col + 2, _mm_unpacklo_epi64(b, d));
  store_row(of, row, col + 3, _mm_unpackhi_epi64(b, d));
}

/* 8 rows and columns of 2 bytes: pairs of rows, then pairs of pairs. */
static void turn_square_u16(const transposition *of, size_t row, size_t col) {
  __m128i rows[8], pairs[8];
  load_rows(of, row, col, rows, 8);
  for (int i = 0; i < 4; i++) {
    pairs[i] = _mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
    pairs[4 + i] = _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
  }
  for (size_t half = 0; half < 2; half++) {
    const __m128i *of_half = pairs + 4 * half;
    const __m128i a = _mm_unpacklo_epi32(of_half[0], of_half[1]);
    const __m128i b = _mm_unpackhi_epi32(of_half[0], of_half[1]);
    const __m128i c = _mm_unpacklo_epi32(of_half[2], of_half[3]);
    const __m128i d = _mm_unpackhi_epi32(of_half[2], of_half[3]);
    store_row(of, row, col + 4 * half, _mm_unpacklo_epi64(a, c));
    store_row(of, row, col + 4 * half + 1, _mm_unpackhi_epi64(a, c));
    store_row(of, row, col + 4 * half + 2, _mm_unpacklo_epi64(b, d));
    store_row(of, row, col + 4 * half + 3, _mm_unpackhi_epi64(b, d));
  }
}

/* Column after column: a row of dst, which has a page of its own, is filled at once. */
static void turn(const transposition *of, size_t rows, size_t cols) {
  const size_t side = 16 / of->item;
  const size_t whole_rows = rows / side * side, whole_cols = cols / side * side;
  for (size_t col = 0; col < whole_cols; col += side)
    for (size_t row = 0; row < whole_rows; row += side)
      if (of->item == 2)
        turn_square_u16(of, row, col);
      else
        turn_square_u32(of, row, col);
  turn_items(of, 0, whole_rows, whole_cols, cols - whole_cols);
  turn_items(of, whole_rows, rows - whole_rows, 0, cols);
}

#else

static void turn(const transposition *of, size_t rows, size_t cols) {
  turn_items(of, 0, rows, 0, cols);
}

#endif

void amn_transpose(const uint8_t *src, uint64_t rows, uint64_t cols, uint64_t item, uint8_t *dst,
                   uint64_t stride) {
  const transposition of = {src, dst, (size_t)(cols * item), (size_t)stride, (size_t)item};
  turn(&of, (size_t)rows, (size_t)cols);
}
