/* A product of two thin matrices, added to values: what a low-rank adapter does to a weight.
 *
 * Each sum takes its terms in their order, a product and a sum being rounded once (fmaf), as the
 * blocked products of BLAS do for as many terms as fit a panel of theirs. So the same bits come out
 * of any cut into bands, any number of threads and any level. This file alone is compiled with FMA,
 * which a compiler must not use by itself (amn_platform.h). */
#include <math.h>

#include "amn_cpu.h"
#include "amn_once.h"
#include "levels.h"

/* `rows` rows of 3 vectors, whose sums stay in registers; and all rows of a panel. Rows of values
 * lie too far apart for the hardware to fetch them, and the next panel is fetched meanwhile. */
#define DEFINE_TILE(name, vec, lanes, tile_rows, zero, load, store, set1, fma, mul, add)          \
  AMN_FORCE_INLINE void name##_rows(const float *left, size_t inner, const float *panel,          \
                                    float scale, float *values, size_t stride, const int rows) {  \
    vec acc[tile_rows][3];                                                                        \
    for (int i = 0; i < rows; i++)                                                                \
      for (int v = 0; v < 3; v++) {                                                               \
        PREFETCH(values + (size_t)i * stride + v * lanes);                                        \
        acc[i][v] = zero();                                                                       \
      }                                                                                           \
    for (size_t k = 0; k < inner; k++) {                                                          \
      const float *right = panel + k * AMN_PANEL;                                                 \
      const vec a = load(right), b = load(right + lanes), c = load(right + 2 * lanes);            \
      for (int v = 0; v < 3; v++) PREFETCH(right + inner * AMN_PANEL + v * lanes);                \
      for (int i = 0; i < rows; i++) {                                                            \
        const vec one = set1(left[(size_t)i * inner + k]);                                        \
        acc[i][0] = fma(one, a, acc[i][0]);                                                       \
        acc[i][1] = fma(one, b, acc[i][1]);                                                       \
        acc[i][2] = fma(one, c, acc[i][2]);                                                       \
      }                                                                                           \
    }                                                                                             \
    for (int i = 0; i < rows; i++)                                                                \
      for (int v = 0; v < 3; v++) {                                                               \
        float *to = values + (size_t)i * stride + v * lanes;                                      \
        store(to, add(load(to), mul(acc[i][v], set1(scale))));                                    \
      }                                                                                           \
  }                                                                                               \
  static void name(const float *left, size_t rows, size_t inner, const float *panel, float scale, \
                   float *values, size_t stride) {                                                \
    for (size_t col = 0; col < AMN_PANEL; col += 3 * lanes) {                                     \
      size_t i = 0;                                                                               \
      for (; i + tile_rows <= rows; i += tile_rows)                                               \
        name##_rows(left + i * inner, inner, panel + col, scale, values + i * stride + col,       \
                    stride, tile_rows);                                                           \
      for (; i < rows; i++)                                                                       \
        name##_rows(left + i * inner, inner, panel + col, scale, values + i * stride + col,       \
                    stride, 1);                                                                   \
    }                                                                                             \
  }

typedef void (*tile_fn)(const float *left, size_t rows, size_t inner, const float *panel,
                        float scale, float *values, size_t stride);

static void tile_scalar(const float *left, size_t rows, size_t inner, const float *panel,
                        float scale, float *values, size_t stride) {
  for (size_t i = 0; i < rows; i++) {
    float sums[AMN_PANEL] = {0};
    for (size_t k = 0; k < inner; k++)
      for (size_t j = 0; j < AMN_PANEL; j++)
        sums[j] = fmaf(left[i * inner + k], panel[k * AMN_PANEL + j], sums[j]);
    for (size_t j = 0; j < AMN_PANEL; j++) values[i * stride + j] += sums[j] * scale;
  }
}

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h>

#define PREFETCH(at) _mm_prefetch((const char *)(at), _MM_HINT_T0)

AMN_TARGET_BEGIN("avx2,fma")
DEFINE_TILE(tile_avx2, __m256, 8, 4, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps,
            _mm256_set1_ps, _mm256_fmadd_ps, _mm256_mul_ps, _mm256_add_ps)
AMN_TARGET_END

AMN_TARGET_BEGIN("avx512f")
DEFINE_TILE(tile_avx512, __m512, 16, 8, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps,
            _mm512_set1_ps, _mm512_fmadd_ps, _mm512_mul_ps, _mm512_add_ps)
AMN_TARGET_END

static tile_fn tile_at_avx2; /* FMA is no part of that level */
static amn_once tile_once = AMN_ONCE_INIT;

static void find_tile(void) {
  tile_at_avx2 = amn_cpu_has_fma() ? tile_avx2 : tile_scalar;
}

static tile_fn tile_of(const amn_level *level) {
  if (level == &amn_level_avx512) return tile_avx512;
  if (level != &amn_level_avx2) return tile_scalar;
  amn_run_once(&tile_once, find_tile);
  return tile_at_avx2;
}
#else
static tile_fn tile_of(const amn_level *level) {
  (void)level; /* compilers have vectors for the loop, as FMA is in NEON */
  return tile_scalar;
}
#endif

#define ROWS_AT_ONCE 32

/* Columns `first` to `last` of a panel: not all of it. */
static void add_part(tile_fn tile, const float *left, size_t rows, size_t inner, const float *panel,
                     float scale, float *values, size_t stride, size_t first, size_t last) {
  float room[ROWS_AT_ONCE * AMN_PANEL] = {0};
  for (size_t done = 0; done < rows; done += ROWS_AT_ONCE) {
    const size_t count = rows - done < ROWS_AT_ONCE ? rows - done : ROWS_AT_ONCE;
    for (size_t i = 0; i < count; i++)
      memcpy(room + i * AMN_PANEL + first, values + (done + i) * stride, (last - first) * 4);
    tile(left + done * inner, count, inner, panel, scale, room, AMN_PANEL);
    for (size_t i = 0; i < count; i++)
      memcpy(values + (done + i) * stride, room + i * AMN_PANEL + first, (last - first) * 4);
  }
}

amn_status amn_add_product(int level, const float *left, const float *right, float scale,
                           float *values, size_t rows, size_t cols, size_t inner, size_t first) {
  const amn_level *table = amn_level_at(level);
  if (table == NULL) return AMN_BAD_LEVEL;
  const tile_fn tile = tile_of(table);
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (size_t at = first; at < first + cols;) {
    const size_t begin = at / AMN_PANEL * AMN_PANEL, end = begin + AMN_PANEL;
    const size_t last = end < first + cols ? end : first + cols;
    const float *panel = right + begin * inner;
    float *to = values + (at - first);
    if (last - at == AMN_PANEL)
      tile(left, rows, inner, panel, scale, to, cols);
    else
      add_part(tile, left, rows, inner, panel, scale, to, cols, at - begin, last - begin);
    at = last;
  }
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
