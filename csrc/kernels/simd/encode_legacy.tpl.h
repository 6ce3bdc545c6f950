/* The way to the GGUF types of 32 elements and a scale.
 *
 * By the importance of columns, the searches of search.tpl.h take a block a lane, of up to eight
 * rows together.
 *
 * Needs: encode_blocks.tpl.h, search.tpl.h. Defines: encode_* of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.
 */

/* 32 numbers that are not below 0, cut off, as bytes. */
AMN_FORCE_INLINE vec cut_to_u8(const vec_f32 values[4]) {
  return v_pack_s32(v_s32_cut_f32(values[0]), v_s32_cut_f32(values[1]), v_s32_cut_f32(values[2]),
                    v_s32_cut_f32(values[3]));
}

/* Two blocks of codes below 16: 16 in low nibbles, 16 in high ones. */
AMN_FORCE_INLINE void store_nibbles_of(vec a, vec b, uint8_t *qs_a, uint8_t *qs_b) {
  const vec high = v_shl_u16(v_upper_lanes(a, b), 4);
  v_store_lanes(qs_a, qs_b, v_or(v_lower_lanes(a, b), high));
}

/* One block of codes below 32, whose fifth bits do not count. */
AMN_FORCE_INLINE void store_nibbles_alone(vec codes, uint8_t *qs) {
  uint8_t both[32];
  const vec nibbles = v_and(codes, v_set_u8(15));
  v_store(both, v_or(nibbles, v_shl_u16(v_upper_lane(nibbles), 4)));
  memcpy(qs, both, 16);
}

/* The same of codes below 32, whose fifth bits are apart. */
AMN_FORCE_INLINE void store_nibbles_and_bits(vec a, vec b, uint8_t *qs_a, uint8_t *qs_b,
                                             uint8_t *qh_a, uint8_t *qh_b) {
  const vec nibbles = v_set_u8(15);
  amn_store_u32(qh_a, v_signs_u8(v_shl_u16(a, 3)));
  amn_store_u32(qh_b, v_signs_u8(v_shl_u16(b, 3)));
  store_nibbles_of(v_and(a, nibbles), v_and(b, nibbles), qs_a, qs_b);
}

/* ---- by importance ---- */

/* Some rows, and the mean square of each. */
typedef struct {
  const float *src, *weights;
  size_t cols, n; /* n: rows, up to eight */
  float squares[LANES];
} weighed_rows;

/* The sums are in the order of the columns, a row a lane; rows that are not there are the last. */
AMN_FORCE_INLINE weighed_rows weighed_rows_of(const float *src, size_t n, size_t cols,
                                              const float *weights) {
  weighed_rows rows = {src, weights, cols, n < LANES ? n : LANES, {0}};
  vec_f32 sums = v_set_f32(0);
  for (size_t at = 0; at < cols; at += 8) {
    vec x[LANES];
    for (size_t i = 0; i < LANES; i++)
      x[i] = v_load(src + (i < rows.n ? i : rows.n - 1) * cols + at);
    v_transpose_u32(x);
    for (int i = 0; i < LANES; i++) {
      const vec_f32 value = v_f32_from_bits(x[i]);
      sums = v_add_f32(sums, v_mul_f32(value, value));
    }
  }
  v_store_f32(rows.squares, v_div_f32(sums, v_set_f32((float)(int64_t)cols)));
  return rows;
}

AMN_FORCE_INLINE size_t weighed_blocks(const weighed_rows *rows) {
  return rows->n * (rows->cols / 32);
}

/* Blocks of the rows, from `first` on, in lanes; those that are not there are the last. */
AMN_FORCE_INLINE void load_weighed(const weighed_rows *rows, size_t first, search_lanes *lanes) {
  const size_t in_row = rows->cols / 32, last = weighed_blocks(rows) - 1;
  for (int at = 0; at < 32; at += 8) {
    vec x[LANES], weight[LANES];
    for (size_t i = 0; i < LANES; i++) {
      const size_t block = first + i < last ? first + i : last;
      const vec_f32 value = v_load_f32(rows->src + 32 * block + at);
      const vec_f32 importance = v_load_f32(rows->weights + block % in_row * 32 + at);
      const vec_f32 square = v_set_f32(rows->squares[block / in_row]);
      const vec_f32 root = v_sqrt_f32(v_add_f32(square, v_mul_f32(value, value)));
      x[i] = v_bits_f32(value);
      weight[i] = v_bits_f32(v_mul_f32(importance, root));
    }
    v_transpose_u32(x);
    v_transpose_u32(weight);
    for (int i = 0; i < LANES; i++) {
      lanes->x[at + i] = v_f32_from_bits(x[i]);
      lanes->weight[at + i] = v_f32_from_bits(weight[i]);
    }
  }
}

/* 32 levels from low to high as codes from 0 on. */
AMN_FORCE_INLINE vec codes_of_levels(const vec_f32 levels[4], int low) {
  vec codes[4];
  for (int i = 0; i < 4; i++) codes[i] = v_s32_cut_f32(v_sub_f32(levels[i], v_set_f32((float)low)));
  return v_pack_s32(codes[0], codes[1], codes[2], codes[3]);
}

/* ---- x = d * (code - half) ---- */

/* The first of the largest magnitude of eight blocks, with their signs. */
AMN_FORCE_INLINE vec_f32 extremes_of(const float *src) {
  const vec_f32 high = fold_blocks(larger_f32, src, 32), low = fold_blocks(smaller_f32, src, 32);
  const vec_f32 below = v_sub_f32(v_set_f32(0), low);
  const vec is_high = v_greater_f32(high, below);
  vec_f32 extremes = v_f32_from_bits(v_select(is_high, v_bits_f32(high), v_bits_f32(low)));
  extremes = v_add_f32(extremes, v_set_f32(0)); /* no -0 */
  const vec is_both =
      v_and(v_equal_u32(v_bits_f32(high), v_bits_f32(below)), v_greater_f32(high, v_set_f32(0)));
  if (v_any(is_both)) {
    float each[LANES], most[LANES];
    v_store_f32(each, extremes);
    v_store_f32(most, high);
    for (int i = 0; i < LANES; i++, src += 32)
      for (int k = 0; each[i] == -most[i] && k < 32 && src[k] != each[i]; k++)
        if (src[k] == most[i]) each[i] = most[i];
    extremes = v_load_f32(each);
  }
  return extremes;
}

/* A block's 32 codes: of x / d + half + 0.5 the rest is cut off. */
AMN_FORCE_INLINE vec symmetric_codes(const float *x, float inverse, int half) {
  const vec_f32 by = v_set_f32(inverse), plus = v_set_f32((float)half + 0.5f);
  vec_f32 values[4];
  for (int i = 0; i < 4; i++) values[i] = v_add_f32(v_mul_f32(v_load_f32(x + 8 * i), by), plus);
  return v_min_u8(cut_to_u8(values), v_set_u8((uint8_t)(2 * half - 1)));
}

static int V_NAME(group_q4_0)(const float *src, uint8_t *dst) {
  block_q4_0 *block = (block_q4_0 *)dst;
  const vec_f32 d = v_mul_f32(extremes_of(src), v_set_f32(-1.0f / 8.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i += 2, src += 64)
    store_nibbles_of(symmetric_codes(src, inverses[i], 8),
                     symmetric_codes(src + 32, inverses[i + 1], 8), block[i].qs, block[i + 1].qs);
  return 1;
}

static int V_NAME(group_q5_0)(const float *src, uint8_t *dst) {
  block_q5_0 *block = (block_q5_0 *)dst;
  const vec_f32 d = v_mul_f32(extremes_of(src), v_set_f32(-1.0f / 16.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i += 2, src += 64)
    store_nibbles_and_bits(symmetric_codes(src, inverses[i], 16),
                           symmetric_codes(src + 32, inverses[i + 1], 16), block[i].qs,
                           block[i + 1].qs, block[i].qh, block[i + 1].qh);
  return 1;
}

AMN_FORCE_INLINE vec searched_symmetric_codes(const float *x, float inverse, int half) {
  vec_f32 levels[4];
  for (int i = 0; i < 4; i++) {
    const vec_f32 value = v_mul_f32(v_set_f32(inverse), v_load_f32(x + 8 * i));
    levels[i] = nearest_level(value, (float)-half, (float)(half - 1));
  }
  return codes_of_levels(levels, -half);
}

/* A block of Q4_0 or Q5_0, whose qs are at the end. */
AMN_FORCE_INLINE void store_symmetric(int half, uint8_t *block, uint16_t d, vec codes) {
  amn_store_u16(block, d);
  if (half == 16) amn_store_u32(block + 2, v_signs_u8(v_shl_u16(codes, 3)));
  store_nibbles_alone(codes, block + (half == 16 ? 6 : 2));
}

AMN_FORCE_INLINE void encode_symmetric(int half, size_t bytes, const weighed_rows *rows,
                                       uint8_t *dst) {
  const size_t n = weighed_blocks(rows);
  for (size_t first = 0; first < n; first += LANES) {
    search_lanes lanes;
    uint16_t d[2 * LANES];
    float inverses[LANES];
    uint32_t is_zero[LANES];
    load_weighed(rows, first, &lanes);
    const symmetric_found found = search_symmetric_lanes(32, half, &lanes);
    v_store(d, v_f16_from_f32(found.scale, found.scale));
    v_store_f32(inverses, found.inverse);
    v_store(is_zero, found.is_zero);
    for (size_t i = 0; i < LANES && first + i < n; i++) {
      const float *x = rows->src + 32 * (first + i);
      const vec codes = searched_symmetric_codes(x, inverses[i], half);
      store_symmetric(half, dst + bytes * (first + i), d[i],
                      v_and_not(v_set_u32(is_zero[i]), codes));
    }
  }
}

AMN_FORCE_INLINE void encode_symmetric_rows(int half, size_t bytes, const float *src, uint8_t *dst,
                                            size_t n, size_t cols, const float *weights) {
  for (size_t row = 0; row < n; row += LANES) {
    const weighed_rows rows = weighed_rows_of(src + row * cols, n - row, cols, weights);
    encode_symmetric(half, bytes, &rows, dst + row * (cols / 32) * bytes);
  }
  v_end();
}

V_ENCODER void V_NAME(encode_q4_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    encode_symmetric_rows(8, sizeof(block_q4_0), src, dst, rows, cols, weights);
  else
    encode_groups(ENCODED_TYPE(q4_0, LANES), src, dst, rows * cols / 32);
}

V_ENCODER void V_NAME(encode_q5_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    encode_symmetric_rows(16, sizeof(block_q5_0), src, dst, rows, cols, weights);
  else
    encode_groups(ENCODED_TYPE(q5_0, LANES), src, dst, rows * cols / 32);
}

/* ---- x = d * code + m ---- */

/* The least numbers of eight blocks; of zeros the first one. */
AMN_FORCE_INLINE vec_f32 least_of(const float *src) {
  const vec_f32 least = fold_blocks(smaller_f32, src, 32);
  const vec is_zero = v_equal_u32(v_shl_u32(v_bits_f32(least), 1), v_zero());
  if (!v_any(is_zero)) return least;
  float each[LANES];
  v_store_f32(each, least);
  for (int i = 0; i < LANES; i++, src += 32) {
    int k = 0;
    while (each[i] == 0.0f && src[k] != 0.0f) k++;
    if (each[i] == 0.0f) each[i] = src[k];
  }
  return v_load_f32(each);
}

/* What eight blocks have of their own. */
typedef struct {
  float low[LANES], inverse[LANES];
} affine_group;

/* Their scales and least numbers, for codes up to `largest`; d is followed by m. */
AMN_FORCE_INLINE int affine_ends(const float *src, float largest, uint8_t *d, size_t step,
                                 affine_group *group) {
  const vec_f32 low = least_of(src), high = fold_blocks(larger_f32, src, 32);
  const vec_f32 range = v_add_f32(v_sub_f32(high, low), v_set_f32(0)); /* no -0 */
  const vec_f32 scale = v_div_f32(range, v_set_f32(largest));
  const vec_f32 inverse = reciprocal_f32(scale);
  if (any_not_finite(scale) || any_not_finite(inverse)) return 0;
  v_store_f32(group->low, low);
  v_store_f32(group->inverse, inverse);
  store_halves(scale, d, step);
  store_halves(low, d + 2, step);
  return 1;
}

AMN_FORCE_INLINE vec affine_codes_32(const float *x, const affine_group *group, int i) {
  const vec_f32 low = v_set_f32(group->low[i]), by = v_set_f32(group->inverse[i]);
  const vec_f32 half = v_set_f32(0.5f);
  vec_f32 values[4];
  for (int k = 0; k < 4; k++) {
    const vec_f32 above = v_sub_f32(v_load_f32(x + 32 * i + 8 * k), low);
    values[k] = v_add_f32(v_mul_f32(above, by), half);
  }
  return cut_to_u8(values);
}

static int V_NAME(group_q4_1)(const float *src, uint8_t *dst) {
  block_q4_1 *block = (block_q4_1 *)dst;
  affine_group group;
  if (!affine_ends(src, 15.0f, block->d, sizeof *block, &group)) return 0;
  for (int i = 0; i < LANES; i += 2)
    store_nibbles_of(affine_codes_32(src, &group, i), affine_codes_32(src, &group, i + 1),
                     block[i].qs, block[i + 1].qs);
  return 1;
}

static int V_NAME(group_q5_1)(const float *src, uint8_t *dst) {
  block_q5_1 *block = (block_q5_1 *)dst;
  affine_group group;
  if (!affine_ends(src, 31.0f, block->d, sizeof *block, &group)) return 0;
  for (int i = 0; i < LANES; i += 2)
    store_nibbles_and_bits(affine_codes_32(src, &group, i), affine_codes_32(src, &group, i + 1),
                           block[i].qs, block[i + 1].qs, block[i].qh, block[i + 1].qh);
  return 1;
}

AMN_FORCE_INLINE vec searched_affine_codes(const float *x, float from, float inverse, int largest) {
  vec_f32 levels[4];
  for (int i = 0; i < 4; i++)
    levels[i] = affine_level(largest, v_load_f32(x + 8 * i), v_set_f32(from), v_set_f32(inverse));
  return codes_of_levels(levels, 0);
}

/* A block of Q4_1 or Q5_1, whose qs are at the end. */
AMN_FORCE_INLINE void store_affine(int largest, uint8_t *block, uint16_t d, uint16_t m, vec codes) {
  amn_store_u16(block, d);
  amn_store_u16(block + 2, m);
  if (largest == 31) amn_store_u32(block + 4, v_signs_u8(v_shl_u16(codes, 3)));
  store_nibbles_alone(codes, block + (largest == 31 ? 8 : 4));
}

/* Those found for eight blocks; which rows have one that is wild. */
AMN_FORCE_INLINE uint32_t store_found_affine(int largest, size_t bytes, const weighed_rows *rows,
                                             size_t first, const affine_found *found,
                                             uint8_t *dst) {
  uint16_t halves[2 * LANES];
  float inverses[LANES], from[LANES];
  uint32_t is_flat[LANES], is_wild[LANES], wild_rows = 0;
  v_store(halves, v_f16_from_f32(found->scale, found->low));
  v_store_f32(inverses, found->inverse);
  v_store_f32(from, found->from);
  v_store(is_flat, found->is_flat);
  v_store(is_wild, found->is_wild);
  for (size_t i = 0; i < LANES && first + i < weighed_blocks(rows); i++) {
    const float *x = rows->src + 32 * (first + i);
    const vec codes = searched_affine_codes(x, from[i], inverses[i], largest);
    store_affine(largest, dst + bytes * (first + i), halves[i], halves[LANES + i],
                 v_and_not(v_set_u32(is_flat[i]), codes));
    if (is_wild[i]) wild_rows |= 1u << (first + i) / (rows->cols / 32);
  }
  return wild_rows;
}

AMN_FORCE_INLINE void encode_affine(int largest, size_t bytes, amn_encode_fn scalar,
                                    const weighed_rows *rows, uint8_t *dst) {
  static const affine_plan plan = {-0.9f, 0.05f, 37, 0};
  uint32_t wild_rows = 0;
  for (size_t first = 0; first < weighed_blocks(rows); first += 2 * LANES) {
    search_lanes lanes[2];
    affine_found found[2];
    for (int g = 0; g < 2; g++) load_weighed(rows, first + (size_t)g * LANES, &lanes[g]);
    search_affine_lanes(32, largest, &plan, lanes, found);
    for (int g = 0; g < 2; g++)
      wild_rows |=
          store_found_affine(largest, bytes, rows, first + (size_t)g * LANES, &found[g], dst);
  }
  const size_t row_bytes = rows->cols / 32 * bytes;
  for (size_t row = 0; row < rows->n; row++)
    if (wild_rows >> row & 1)
      scalar(rows->src + row * rows->cols, dst + row * row_bytes, 1, rows->cols, rows->weights);
}

AMN_FORCE_INLINE void encode_affine_rows(int largest, size_t bytes, amn_encode_fn scalar,
                                         const float *src, uint8_t *dst, size_t n, size_t cols,
                                         const float *weights) {
  for (size_t row = 0; row < n; row += LANES) {
    const weighed_rows rows = weighed_rows_of(src + row * cols, n - row, cols, weights);
    encode_affine(largest, bytes, scalar, &rows, dst + row * (cols / 32) * bytes);
  }
  v_end();
}

V_ENCODER void V_NAME(encode_q4_1)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    encode_affine_rows(15, sizeof(block_q4_1), encode_q4_1_scalar, src, dst, rows, cols, weights);
  else
    encode_groups(ENCODED_TYPE(q4_1, LANES), src, dst, rows * cols / 32);
}

V_ENCODER void V_NAME(encode_q5_1)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  if (weights != NULL)
    encode_affine_rows(31, sizeof(block_q5_1), encode_q5_1_scalar, src, dst, rows, cols, weights);
  else
    encode_groups(ENCODED_TYPE(q5_1, LANES), src, dst, rows * cols / 32);
}

/* ---- x = d * code ---- */

/* Rounded, with ties away from 0: just below a half is added, so that what is just below a half
 * does not become 1. */
AMN_FORCE_INLINE vec rounded_away_s32(vec_f32 a) {
  const vec sign = v_and(v_bits_f32(a), v_set_u32(0x80000000));
  const vec half = v_or(sign, v_set_u32(0x3effffff));
  return v_s32_cut_f32(v_add_f32(a, v_f32_from_bits(half)));
}

static int V_NAME(group_q8_0)(const float *src, uint8_t *dst) {
  block_q8_0 *block = (block_q8_0 *)dst;
  const vec_f32 d = v_div_f32(fold_blocks(larger_magnitude, src, 32), v_set_f32(127.0f));
  const vec_f32 inverse = reciprocal_f32(d);
  float inverses[LANES];
  if (any_not_finite(inverse)) return 0;
  v_store_f32(inverses, inverse);
  store_halves(d, block->d, sizeof *block);
  for (int i = 0; i < LANES; i++, src += 32) {
    const vec_f32 by = v_set_f32(inverses[i]);
    vec codes[4];
    for (int k = 0; k < 4; k++) codes[k] = rounded_away_s32(v_mul_f32(v_load_f32(src + 8 * k), by));
    v_store(block[i].qs, v_pack_s32(codes[0], codes[1], codes[2], codes[3]));
  }
  return 1;
}

V_ENCODER void V_NAME(encode_q8_0)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                   const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(q8_0, LANES), src, dst, rows * cols / 32);
}
