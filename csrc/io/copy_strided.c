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

/* ---- many small dimensions ---- */

#define MOST_PLACES 256

/* Where the items of the innermost dimensions are: what takes many loops of a few turns is one. */
typedef struct {
  struct {
    uint64_t src, dst;
  } each[MOST_PLACES];
  uint64_t n, item;
} places;

/* How many of the innermost dimensions have no more items than there are places. */
static int count_small(const amn_dim *dims, int n_dims) {
  uint64_t items = 1;
  int n = 0;
  while (n < n_dims && dims[n_dims - 1 - n].n <= MOST_PLACES / items)
    items *= dims[n_dims - 1 - n++].n;
  return n;
}

static void list_places(const amn_dim *dims, int n_dims, places *of, uint64_t src, uint64_t dst) {
  if (n_dims == 0) {
    of->each[of->n].src = src;
    of->each[of->n++].dst = dst;
    return;
  }
  for (uint64_t i = 0; i < dims[0].n; i++)
    list_places(dims + 1, n_dims - 1, of, src + i * dims[0].src_step, dst + i * dims[0].dst_step);
}

#define COPY_PLACES(bytes)                                         \
  for (uint64_t i = 0; i < of->n; i++)                             \
    memcpy(dst + of->each[i].dst, src + of->each[i].src, (bytes)); \
  break

static void copy_places(const places *of, const uint8_t *src, uint8_t *dst) {
  switch (of->item) {
    case 1:
      COPY_PLACES(1);
    case 2:
      COPY_PLACES(2);
    case 4:
      COPY_PLACES(4);
    case 8:
      COPY_PLACES(8);
    case 16:
      COPY_PLACES(16);
    default:
      break;
  }
}

#undef COPY_PLACES

static void copy_around(const amn_dim *dims, int n_dims, const places *of, const uint8_t *src,
                        uint8_t *dst) {
  if (n_dims == 0) {
    copy_places(of, src, dst);
    return;
  }
  for (uint64_t i = 0; i < dims[0].n; i++)
    copy_around(dims + 1, n_dims - 1, of, src + i * dims[0].src_step, dst + i * dims[0].dst_step);
}

/* ---- all of them ---- */

static int is_transposition(const amn_dim *dims, uint64_t item) {
  return dims[1].src_step == item && dims[0].dst_step == item;
}

/* How many of the innermost dimensions are copied by a list of places: 0 where one line or one
 * transposition is the faster way. */
static int count_listed(const amn_dim *dims, int n_dims, uint64_t item) {
  const int n = count_small(dims, n_dims);
  if (n_dims < 3 || n < 2) return 0;
  const int turns = square_side((size_t)item) > 0 && is_transposition(dims + n_dims - 2, item);
  return n == 2 && turns ? 0 : n;
}

void amn_copy_strided(const amn_dim *dims, int n_dims, uint64_t item, const uint8_t *src,
                      uint8_t *dst) {
  const int n_listed = count_listed(dims, n_dims, item);
  if (n_dims == 1) {
    copy_line(dims[0], item, src, dst);
  } else if (n_dims == 2 && is_transposition(dims, item)) {
    const transposition of = {src, dst, (size_t)dims[0].src_step, (size_t)dims[1].dst_step,
                              (size_t)item};
    turn(&of, (size_t)dims[0].n, (size_t)dims[1].n);
  } else if (n_listed > 0) {
    const int n_outer = n_dims - n_listed;
    places of;
    of.n = 0;
    of.item = item;
    list_places(dims + n_outer, n_listed, &of, 0, 0);
    copy_around(dims, n_outer, &of, src, dst);
  } else {
    for (uint64_t i = 0; i < dims[0].n; i++)
      amn_copy_strided(dims + 1, n_dims - 1, item, src + i * dims[0].src_step,
                       dst + i * dims[0].dst_step);
  }
}
