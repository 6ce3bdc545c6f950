/* Groups of numbers times a regular Hadamard matrix: each lane is a result, its sums in order.
 *
 * Results differ by the sign of a whole block of 64 numbers or not at all: a row of the matrix is
 * one of H64, of which all signs are turned or none. Of two blocks that are added in order, the
 * sums of both cases serve two results each.
 *
 * Defines: rotate. */

#define ROTATE_BLOCK 64
#define ROTATE_VECTORS (ROTATE_BLOCK / 8)

#define H4(i, j) ((uint32_t)(((i) ^ (j)) == 3) << 31)
#define H16(i, j) (H4((i) / 4, (j) / 4) ^ H4((i) % 4, (j) % 4))
#define H16_ROW(i)                                                                              \
  {H16(i, 0), H16(i, 1), H16(i, 2),  H16(i, 3),  H16(i, 4),  H16(i, 5),  H16(i, 6),  H16(i, 7), \
   H16(i, 8), H16(i, 9), H16(i, 10), H16(i, 11), H16(i, 12), H16(i, 13), H16(i, 14), H16(i, 15)}

/* The signs of H16. */
static const uint32_t V_NAME(rotate_signs)[16][16] = {
    H16_ROW(0),  H16_ROW(1),  H16_ROW(2),  H16_ROW(3), H16_ROW(4),  H16_ROW(5),
    H16_ROW(6),  H16_ROW(7),  H16_ROW(8),  H16_ROW(9), H16_ROW(10), H16_ROW(11),
    H16_ROW(12), H16_ROW(13), H16_ROW(14), H16_ROW(15)};

#undef H16_ROW
#undef H16
#undef H4

AMN_FORCE_INLINE vec_f32 rotate_turned(vec_f32 value, const uint32_t *signs) {
  return v_f32_from_bits(v_xor(v_bits_f32(value), v_load(signs)));
}

/* Adds 16 numbers of a block, with the signs of H16, to so many vectors of 16 results; those of the
 * vectors `turned` says, with the opposite ones. */
AMN_FORCE_INLINE void rotate_add_16(vec_f32 *sums, int n, int turned, const float *numbers) {
  AMN_KEEP_LOOP
  for (size_t k = 0; k < 16; k++) {
    const vec_f32 number = v_set_f32(numbers[k]);
    const vec_f32 low = rotate_turned(number, V_NAME(rotate_signs)[k]);
    const vec_f32 high = rotate_turned(number, V_NAME(rotate_signs)[k] + 8);
    for (int i = 0; i < n; i++) {
      sums[2 * i] = i == turned ? v_sub_f32(sums[2 * i], low) : v_add_f32(sums[2 * i], low);
      sums[2 * i + 1] =
          i == turned ? v_sub_f32(sums[2 * i + 1], high) : v_add_f32(sums[2 * i + 1], high);
    }
  }
}

/* Adds a block of numbers to 64 sums, which may be where they go. */
AMN_FORCE_INLINE void rotate_add_block(const float *from, const float *numbers, float *to) {
  vec_f32 sums[ROTATE_VECTORS];
  for (int i = 0; i < ROTATE_VECTORS; i++) sums[i] = v_load_f32(from + 8 * i);
  rotate_add_16(sums, 4, 3, numbers);
  rotate_add_16(sums, 4, 2, numbers + 16);
  rotate_add_16(sums, 4, 1, numbers + 32);
  rotate_add_16(sums, 4, 0, numbers + 48);
  for (int i = 0; i < ROTATE_VECTORS; i++) v_store_f32(to + 8 * i, sums[i]);
}

AMN_FORCE_INLINE void rotate_16(const float *numbers, float *dst) {
  vec_f32 sums[2] = {v_set_f32(0), v_set_f32(0)};
  rotate_add_16(sums, 1, 1, numbers);
  v_store_f32(dst, sums[0]);
  v_store_f32(dst + 8, sums[1]);
}

/* Two blocks in order: where both have the same sign, and where the second has the other one. */
AMN_FORCE_INLINE void rotate_half(const float *numbers, const float *negated, float *same,
                                  float *other) {
  float first[ROTATE_BLOCK] = {0};
  rotate_add_block(first, numbers, first);
  rotate_add_block(first, numbers + ROTATE_BLOCK, same);
  rotate_add_block(first, negated + ROTATE_BLOCK, other);
}

static void V_NAME(rotate_256)(const float *numbers, const float *negated, float *dst) {
  float same[2][ROTATE_BLOCK], other[2][ROTATE_BLOCK];
  for (size_t half = 0; half < 2; half++)
    rotate_half(numbers + 128 * half, negated + 128 * half, same[half], other[half]);
  for (size_t i = 0; i < ROTATE_BLOCK; i += 8) {
    const vec_f32 same_0 = v_load_f32(same[0] + i), other_0 = v_load_f32(other[0] + i);
    const vec_f32 same_1 = v_load_f32(same[1] + i), other_1 = v_load_f32(other[1] + i);
    v_store_f32(dst + i, v_add_f32(same_0, other_1));
    v_store_f32(dst + i + 64, v_sub_f32(same_0, other_1));
    v_store_f32(dst + i + 128, v_add_f32(same_1, other_0));
    v_store_f32(dst + i + 192, v_sub_f32(same_1, other_0));
  }
}

/* The 64 results of a row of blocks. */
static void V_NAME(rotate_row)(const float *numbers, const float *negated, size_t row, size_t group,
                               float *dst) {
  const size_t panel = AMN_ROTATION_PANEL(group);
  float sums[ROTATE_BLOCK];
  for (size_t k = 0; k < group; k += ROTATE_BLOCK) {
    const float *signed_ones = amn_is_turned(row, k / ROTATE_BLOCK) ? negated : numbers;
    if (k % panel == 0) memset(sums, 0, sizeof sums);
    rotate_add_block(sums, signed_ones + k, sums);
    if ((k + ROTATE_BLOCK) % panel && k + ROTATE_BLOCK < group) continue;
    for (size_t i = 0; i < ROTATE_BLOCK; i += 8) {
      const vec_f32 sum = v_load_f32(sums + i);
      v_store_f32(dst + i, k < panel ? sum : v_add_f32(v_load_f32(dst + i), sum));
    }
  }
}

V_ENCODER void V_NAME(rotate)(const float *src, float *dst, size_t n_groups, size_t group) {
  float numbers[AMN_ROTATION_LARGEST], negated[AMN_ROTATION_LARGEST];
  const vec_f32 norm = v_set_f32(amn_rotation_norm(group));
  if (group < 16) {
    rotate_scalar(src, dst, n_groups, group);
    return;
  }
  for (; n_groups != 0; n_groups--, src += group, dst += group) {
    for (size_t k = 0; k < group; k += 8) {
      const vec_f32 eight = v_mul_f32(v_load_f32(src + k), norm);
      v_store_f32(numbers + k, eight);
      v_store_f32(negated + k, v_sub_f32(v_set_f32(-0.0f), eight));
    }
    if (group == 16)
      rotate_16(numbers, dst);
    else if (group == 256)
      V_NAME(rotate_256)(numbers, negated, dst);
    else
      for (size_t row = 0; row < group / ROTATE_BLOCK; row++)
        V_NAME(rotate_row)(numbers, negated, row, group, dst + row * ROTATE_BLOCK);
  }
  v_end();
}
