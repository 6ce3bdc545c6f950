/* Rotations of groups of columns, of numbers and of integers with a scale for each row. */
#include "sizes.h"

#define AT_ONCE AMN_ROTATION_LARGEST /* numbers that are rotated at a time */

/* Whether rows of `cols` numbers are whole groups. */
static int is_group(uint64_t group, uint64_t cols) {
  for (uint64_t power = 4; power <= AMN_ROTATION_LARGEST; power *= 4)
    if (power == group) return cols % group == 0;
  return 0;
}

amn_status amn_rotate(int level, amn_bytes src, amn_buffer dst, uint64_t group) {
  const amn_level *table = amn_level_at(level);
  const uint64_t n = src.n_bytes / sizeof(float);
  if (table == NULL) return AMN_BAD_LEVEL;
  if (!is_group(group, n)) return AMN_BAD_GROUP;
  if (src.n_bytes % sizeof(float)) return AMN_SHORT_SRC;
  if (dst.n_bytes < src.n_bytes) return AMN_SHORT_DST;
  if ((uintptr_t)src.data % sizeof(float) || (uintptr_t)dst.data % sizeof(float))
    return AMN_BAD_ALIGNMENT;
  const uint64_t fp_mode = amn_fp_mode_enter();
  table->rotate((const float *)src.data, (float *)dst.data, (size_t)(n / group), (size_t)group);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}

static uint64_t rotate_row(const amn_level *level, const amn_rotation *how, int out,
                           const uint8_t *codes, float scale, uint8_t *dst) {
  _Alignas(64) float values[AT_ONCE], rotated[AT_ONCE];
  const float zero = 0, bias = -0.0f;
  const amn_affine affine = {&zero, &scale, &bias};
  const size_t group = (size_t)how->group;
  uint64_t n_overflow = 0;
  for (uint64_t col = 0; col < how->cols; col += AT_ONCE) {
    const size_t n = (size_t)min_u64(how->cols - col, AT_ONCE);
    level->integers[AMN_INTEGERS_INT8](codes + col, 0, values, n, affine, n, n);
    level->rotate(values, rotated, n / group, group);
    n_overflow += level->narrow[out]((const uint8_t *)rotated, dst + col * out_bytes[out], n);
  }
  return n_overflow;
}

amn_status amn_dequantize_rotated(int level, int out, const amn_rotation *how, amn_buffer dst,
                                  uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  uint64_t n;
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  if (!is_group(how->group, how->cols)) return AMN_BAD_GROUP;
  if (!multiply(how->rows, how->cols, &n) || !multiply(n, out_bytes[out], &n)) return AMN_BAD_SIZE;
  if (n > dst.n_bytes) return AMN_SHORT_DST;
  if (n / out_bytes[out] > how->codes.n_bytes) return AMN_SHORT_SRC;
  if (how->rows > how->scales.n_bytes / sizeof(float)) return AMN_SHORT_SCALES;
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (uint64_t row = 0; row < how->rows; row++) {
    const float scale = amn_f32_from_bits(amn_load_u32(how->scales.data + row * sizeof(float)));
    *n_overflow += rotate_row(table, how, out, how->codes.data + row * how->cols, scale,
                              dst.data + row * how->cols * out_bytes[out]);
  }
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
