/* W4A8 and W6A8: levels of rotated rows that stand for INT8, with a scale for each 16 of a row.
 *
 * Canonical: `_quantize_rotated_w4a8_int8_weight` of comfy-kitchen's backends/eager/w4a8_int8.py.
 * Sums of 16 are torch's: the second half is added to the first, then these eight in order. The
 * loops are plain: compilers make vectors of them, unless they unroll them first. So the same code
 * is compiled twice on x86-64, once for AVX2; both copies are compared with comfy-kitchen. */
#include <math.h>

#include "levels.h"

#define SIZE AMN_W4A8_SIZE
#define LEAST 1e-8f /* of scales, and of what is divided by */
#define LARGEST 127.0f

typedef struct {
  const float *numbers; /* ascending, in fours: what is behind `last` is infinite */
  int count, last;
} codebook;

static inline float at_least(float number, float least) {
  return number < least ? least : number;
}

static inline float clamped(float number, float largest) {
  return number < -largest ? -largest : number > largest ? largest : number;
}

/* To nearest even, of what is less than 2^22: adding 1.5 * 2^23 leaves no place for a fraction. */
static inline float to_whole(float number) {
  return (number + 0x1.8p23f) - 0x1.8p23f;
}

AMN_FORCE_INLINE float largest_of(const float *values) {
  float largest = 0;
  for (int i = 0; i < SIZE; i++) largest = at_least(fabsf(values[i]), largest);
  return largest;
}

AMN_FORCE_INLINE float sum_of(const float *values) {
  float sum = 0;
  for (int i = 0; i < SIZE / 2; i++) sum += values[i] + values[i + SIZE / 2];
  return sum;
}

/* For each value, the place of the nearest number of a codebook; the lower one of a tie. */
AMN_FORCE_INLINE void find_nearest(const float *values, codebook book, int *places) {
  for (int i = 0; i < SIZE; i++) places[i] = 0;
  for (int n = 0; n < book.count; n += 4) {
    const float *four = book.numbers + n;
    AMN_KEEP_LOOP
    for (int i = 0; i < SIZE; i++)
      places[i] += (four[0] < values[i]) + (four[1] < values[i]) + (four[2] < values[i]) +
                   (four[3] < values[i]);
  }
  AMN_KEEP_LOOP
  for (int i = 0; i < SIZE; i++) {
    const int below = places[i] > 0 ? places[i] - 1 : 0;
    const int above = places[i] < book.last ? places[i] : book.last;
    const float to_below = fabsf(values[i] - book.numbers[below]);
    places[i] = fabsf(values[i] - book.numbers[above]) < to_below ? above : below;
  }
}

/* The level of each value over a scale. Levels of 6 bits are whole numbers. */
AMN_FORCE_INLINE void assign(const float *values, float scale, codebook book, float *levels) {
  const float largest = book.numbers[book.last];
  int places[SIZE];
  AMN_KEEP_LOOP
  for (int i = 0; i < SIZE; i++) levels[i] = values[i] / scale;
  if (book.count != AMN_W4A8_LEVELS) {
    AMN_KEEP_LOOP
    for (int i = 0; i < SIZE; i++) levels[i] = to_whole(clamped(levels[i], largest));
    return;
  }
  find_nearest(levels, book, places);
  AMN_KEEP_LOOP
  for (int i = 0; i < SIZE; i++) levels[i] = book.numbers[places[i]];
}

/* The scale of 16 values by least squares, in two rounds. Returns the largest magnitude that their
 * levels stand for. */
AMN_FORCE_INLINE float fit_group(const float *values, codebook book, float *scale) {
  const float steps = book.count == AMN_W4A8_LEVELS ? 1 : book.numbers[book.last];
  float levels[SIZE], products[SIZE], squares[SIZE];
  float fitted = at_least(largest_of(values) / steps, LEAST);
  assign(values, fitted, book, levels);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < SIZE; i++) {
      products[i] = values[i] * levels[i];
      squares[i] = levels[i] * levels[i];
    }
    fitted = at_least(sum_of(products) / at_least(sum_of(squares), LEAST), LEAST);
    assign(values, fitted, book, levels);
  }
  *scale = fitted;
  return largest_of(levels) * fitted;
}

AMN_FORCE_INLINE void fit_rows(const float *values, size_t rows, size_t groups, codebook book,
                               float *scales, float *channels) {
  for (size_t row = 0; row < rows; row++) {
    float largest = 0;
    for (size_t group = 0; group < groups; group++, values += SIZE)
      largest = at_least(fit_group(values, book, scales++), largest);
    channels[row] = at_least(largest / LARGEST, LEAST);
  }
}

/* Codes by one scale; returns the sum of squared errors, in units of INT8. */
AMN_FORCE_INLINE float code_group(const float *values, codebook book, float scale, uint8_t *codes) {
  float grid[AMN_W6A8_LEVELS + 1], squares[SIZE];
  int places[SIZE];
  AMN_KEEP_LOOP
  for (int n = 0; n < book.count; n++)
    grid[n] = to_whole(clamped(book.numbers[n] * scale, LARGEST));
  if (book.last + 1 < book.count) grid[book.last + 1] = INFINITY;
  find_nearest(values, (codebook){grid, book.count, book.last}, places);
  AMN_KEEP_LOOP
  for (int i = 0; i < SIZE; i++) {
    const float error = grid[places[i]] - values[i];
    squares[i] = error * error;
    codes[i] = (uint8_t)places[i];
  }
  return sum_of(squares);
}

AMN_FORCE_INLINE void code_rows(const float *values, size_t rows, size_t groups, codebook book,
                                const float *scales, size_t n_choices, const float *channels,
                                uint8_t *codes, uint8_t *chosen) {
  for (size_t row = 0; row < rows; row++)
    for (size_t group = 0; group < groups; group++, values += SIZE, scales++, codes += SIZE) {
      float targets[SIZE];
      uint8_t tried[SIZE];
      for (int i = 0; i < SIZE; i++) targets[i] = values[i] / channels[row];
      float least = code_group(targets, book, *scales, codes);
      *chosen = 0;
      for (size_t n = 1; n < n_choices; n++) {
        const float error = code_group(targets, book, scales[n * rows * groups], tried);
        if (!(error < least)) continue;
        least = error;
        *chosen = (uint8_t)n;
        memcpy(codes, tried, SIZE);
      }
      chosen++;
    }
}

typedef void (*fit_fn)(const float *values, size_t rows, size_t groups, codebook book,
                       float *scales, float *channels);
typedef void (*code_fn)(const float *values, size_t rows, size_t groups, codebook book,
                        const float *scales, size_t n_choices, const float *channels,
                        uint8_t *codes, uint8_t *chosen);

#define DEFINE_COPY(level)                                                                      \
  static void fit_rows_##level(const float *values, size_t rows, size_t groups, codebook book,  \
                               float *scales, float *channels) {                                \
    fit_rows(values, rows, groups, book, scales, channels);                                     \
  }                                                                                             \
  static void code_rows_##level(const float *values, size_t rows, size_t groups, codebook book, \
                                const float *scales, size_t n_choices, const float *channels,   \
                                uint8_t *codes, uint8_t *chosen) {                              \
    code_rows(values, rows, groups, book, scales, n_choices, channels, codes, chosen);          \
  }

DEFINE_COPY(scalar)
#if defined(AMN_ARCH_X86_64)
AMN_TARGET_BEGIN("avx2")
DEFINE_COPY(avx2)
AMN_TARGET_END
#else
#define fit_rows_avx2 fit_rows_scalar
#define code_rows_avx2 code_rows_scalar
#endif

/* Copies the numbers of a codebook and fills up a group of four, of rows that are whole groups. */
static amn_status read_codebook(const float *numbers, size_t count, size_t cols, float *room,
                                codebook *book) {
  if (cols % SIZE) return AMN_BAD_GROUP;
  if (count != AMN_W4A8_LEVELS && count != AMN_W6A8_LEVELS) return AMN_BAD_CODEBOOK;
  memcpy(room, numbers, count * sizeof(float));
  *book = (codebook){room, (int)(count + 3) / 4 * 4, (int)count - 1};
  for (; count % 4; count++) room[count] = INFINITY;
  return AMN_OK;
}

amn_status amn_w4a8_fit(int level, const float *values, size_t rows, size_t cols,
                        const float *numbers, size_t count, float *scales, float *channels) {
  const amn_level *table = amn_level_at(level);
  float room[AMN_W6A8_LEVELS + 1];
  codebook book;
  if (table == NULL) return AMN_BAD_LEVEL;
  const amn_status status = read_codebook(numbers, count, cols, room, &book);
  if (status != AMN_OK) return status;
  const fit_fn fit = table == &amn_level_scalar ? fit_rows_scalar : fit_rows_avx2;
  const uint64_t fp_mode = amn_fp_mode_enter();
  fit(values, rows, cols / SIZE, book, scales, channels);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}

amn_status amn_w4a8_code(int level, const float *values, size_t rows, size_t cols,
                         const float *numbers, size_t count, const float *scales, size_t n_choices,
                         const float *channels, uint8_t *codes, uint8_t *chosen) {
  const amn_level *table = amn_level_at(level);
  float room[AMN_W6A8_LEVELS + 1];
  codebook book;
  if (table == NULL) return AMN_BAD_LEVEL;
  const amn_status status = read_codebook(numbers, count, cols, room, &book);
  if (status != AMN_OK) return status;
  const code_fn code = table == &amn_level_scalar ? code_rows_scalar : code_rows_avx2;
  const uint64_t fp_mode = amn_fp_mode_enter();
  code(values, rows, cols / SIZE, book, scales, n_choices, channels, codes, chosen);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
