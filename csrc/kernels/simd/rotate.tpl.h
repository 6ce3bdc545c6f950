/* Groups of numbers times a regular Hadamard matrix: each lane is a result, its sums in order.
 *
 * A row of the matrix is one of H64's in each block of 64 columns, or that with all signs turned.
 * Of two blocks that are added in order, the sums of both cases serve two results each.
 *
 * Defines: rotate. */

#define ROTATE_BLOCK 64

/* H16 times the norm; and that with all signs turned. */
typedef struct {
  float of[2][16 * 16];
} rotate_factors;

/* Adds 16 numbers times rows of H16 to each of n times 16 sums; takes them from those number
 * `turned`. */
AMN_FORCE_INLINE void rotate_add_16(vec_f32 *sums, int n, int turned, const float *numbers,
                                    const float *h16) {
  AMN_KEEP_LOOP
  for (size_t k = 0; k < 16; k++, h16 += 16) {
    const vec_f32 number = v_set_f32(numbers[k]);
    vec_f32 terms[2];
    for (int w = 0; w < 2; w++) terms[w] = v_mul_f32(number, v_load_f32(h16 + w * 8));
    for (int i = 0; i < 2 * n; i++) {
      const vec_f32 term = terms[i % 2];
      sums[i] = i / 2 == turned ? v_sub_f32(sums[i], term) : v_add_f32(sums[i], term);
    }
  }
}

/* Adds a block of numbers times H64 to 64 sums, which may be where they go. Not in a loop: of one
 * GCC makes a memcpy, and then leaves the sums in memory. */
static void V_NAME(rotate_add_block)(const float *from, const float *numbers, const float *h16,
                                     float *to) {
  vec_f32 sums[ROTATE_BLOCK / 8];
#define EACH_SUM(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define LOAD(i) sums[i] = v_load_f32(from + (i) * 8);
#define STORE(i) v_store_f32(to + (i) * 8, sums[i]);
  EACH_SUM(LOAD)
  rotate_add_16(sums, 4, 3, numbers, h16);
  rotate_add_16(sums, 4, 2, numbers + 16, h16);
  rotate_add_16(sums, 4, 1, numbers + 32, h16);
  rotate_add_16(sums, 4, 0, numbers + 48, h16);
  EACH_SUM(STORE)
#undef STORE
#undef LOAD
#undef EACH_SUM
}

AMN_FORCE_INLINE void rotate_16(const float *numbers, const rotate_factors *h, float *dst) {
  vec_f32 sums[2];
  for (int i = 0; i < 2; i++) sums[i] = v_set_f32(0);
  rotate_add_16(sums, 1, 1, numbers, h->of[0]);
  for (int i = 0; i < 2; i++) v_store_f32(dst + i * 8, sums[i]);
}

/* Two blocks in order: where both have the same sign, and where the second has the other one. */
AMN_FORCE_INLINE void rotate_half(const float *numbers, const rotate_factors *h, float *same,
                                  float *other) {
  float first[ROTATE_BLOCK] = {0};
  V_NAME(rotate_add_block)(first, numbers, h->of[0], first);
  V_NAME(rotate_add_block)(first, numbers + ROTATE_BLOCK, h->of[0], same);
  V_NAME(rotate_add_block)(first, numbers + ROTATE_BLOCK, h->of[1], other);
}

AMN_FORCE_INLINE void rotate_256(const float *numbers, const rotate_factors *h, float *dst) {
  float same[2][ROTATE_BLOCK], other[2][ROTATE_BLOCK];
  for (size_t half = 0; half < 2; half++)
    rotate_half(numbers + 128 * half, h, same[half], other[half]);
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
AMN_FORCE_INLINE void rotate_row(const float *numbers, const rotate_factors *h, size_t row,
                                 size_t group, float *dst) {
  const size_t panel = AMN_ROTATION_PANEL(group);
  float sums[ROTATE_BLOCK];
  for (size_t k = 0; k < group; k += ROTATE_BLOCK) {
    const float *h16 = h->of[amn_is_turned(row, k / ROTATE_BLOCK)];
    if (k % panel == 0) memset(sums, 0, sizeof sums);
    V_NAME(rotate_add_block)(sums, numbers + k, h16, sums);
    if ((k + ROTATE_BLOCK) % panel && k + ROTATE_BLOCK < group) continue;
    for (size_t i = 0; i < ROTATE_BLOCK; i += 8) {
      const vec_f32 sum = v_load_f32(sums + i);
      v_store_f32(dst + i, k < panel ? sum : v_add_f32(v_load_f32(dst + i), sum));
    }
  }
}

V_ENCODER void V_NAME(rotate)(const float *src, float *dst, size_t n_groups, size_t group) {
  const float norm = amn_rotation_norm(group);
  rotate_factors h;
  if (group < 16) {
    rotate_scalar(src, dst, n_groups, group);
    return;
  }
  for (size_t i = 0; i < 16 * 16; i++) {
    h.of[0][i] = amn_is_turned(i / 16, i % 16) ? -norm : norm;
    h.of[1][i] = -h.of[0][i];
  }
  for (; n_groups != 0; n_groups--, src += group, dst += group) {
    if (group == 16)
      rotate_16(src, &h, dst);
    else if (group == 256)
      rotate_256(src, &h, dst);
    else
      for (size_t row = 0; row < group / ROTATE_BLOCK; row++)
        rotate_row(src, &h, row, group, dst + row * ROTATE_BLOCK);
  }
  v_end();
}
