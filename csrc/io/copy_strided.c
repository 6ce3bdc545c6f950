/* Copies between two orders of the same items: rows that become columns, and whatever else strides
 * can say. SSE2 is there on every x86-64, so that no level is chosen. */
#include "amn_platform.h"
#include "reads.h"

#include <string.h>

/* ---- one dimension ---- */

#define COPY_ITEMS(bytes)                                          \
  for (uint64_t i = 0; i < of.n; i++)                              \
    memcpy(dst + i * of.dst_step, src + i * of.src_step, (bytes)); \
  break

static void copy_line(amn_dim of, uint64_t item, const uint8_t *src, uint8_t *dst) {
  if (of.src_step == item && of.dst_step == item) {
    memcpy(dst, src, (size_t)(of.n * item));
    return;
  }
  switch (item) { /* of a constant size each is one load and one store */
    case 1:
      COPY_ITEMS(1);
    case 2:
      COPY_ITEMS(2);
    case 4:
      COPY_ITEMS(4);
    case 8:
      COPY_ITEMS(8);
    case 16:
      COPY_ITEMS(16);
    default:
      break;
  }
}

#undef COPY_ITEMS

/* ---- rows into columns ---- */

/* Where items go, and come from: a row of one is a column of the other. */
typedef struct {
  const uint8_t *src;
  uint8_t *dst;
  size_t src_stride, dst_stride, item;
} transposition;

static void turn_items(const transposition *of, size_t row, size_t rows, size_t col, size_t cols) {
  const amn_dim down = {rows, of->src_stride, of->item};
  for (size_t c = col; c < col + cols; c++)
    copy_line(down, of->item, of->src + row * of->src_stride + c * of->item,
              of->dst + c * of->dst_stride + row * of->item);
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

/* How many rows and columns a square has; 0 where items are turned one by one. */
static size_t square_side(size_t item) {
  return item == 2 || item == 4 ? 16 / item : 0;
}

static void turn_square(const transposition *of, size_t row, size_t col) {
  if (of->item == 2)
    turn_square_u16(of, row, col);
  else
    turn_square_u32(of, row, col);
}

#else

static size_t square_side(size_t item) {
  (void)item;
  return 0;
}

static void turn_square(const transposition *of, size_t row, size_t col) {
  (void)of, (void)row, (void)col;
}

#endif

/* Column after column: a row of dst, which has a page of its own, is filled at once. */
static void turn(const transposition *of, size_t rows, size_t cols) {
  const size_t side = square_side(of->item);
  const size_t whole_rows = side ? rows / side * side : 0,
               whole_cols = side ? cols / side * side : 0;
  for (size_t col = 0; col < whole_cols; col += side)
    for (size_t row = 0; row < whole_rows; row += side) turn_square(of, row, col);
  turn_items(of, 0, whole_rows, whole_cols, cols - whole_cols);
  turn_items(of, whole_rows, rows - whole_rows, 0, cols);
}

/* ---- all of them ---- */

void amn_copy_strided(const amn_dim *dims, int n_dims, uint64_t item, const uint8_t *src,
                      uint8_t *dst) {
  if (n_dims == 1) {
    copy_line(dims[0], item, src, dst);
  } else if (n_dims == 2 && dims[1].src_step == item && dims[0].dst_step == item) {
    const transposition of = {src, dst, (size_t)dims[0].src_step, (size_t)dims[1].dst_step,
                              (size_t)item};
    turn(&of, (size_t)dims[0].n, (size_t)dims[1].n);
  } else {
    for (uint64_t i = 0; i < dims[0].n; i++)
      amn_copy_strided(dims + 1, n_dims - 1, item, src + i * dims[0].src_step,
                       dst + i * dims[0].dst_step);
  }
}
