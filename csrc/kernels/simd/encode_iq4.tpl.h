/* The way to IQ4_NL and IQ4_XS: blocks of 32 are lanes, eight at a time.
 *
 * All tries but the first have inverses between 120 and 134 parts of the extreme, and midpoints
 * that follow each other are farther apart than that: a number's levels in all of them are two at
 * most, side by side. So what either adds to the sums is computed once, and a try chooses.
 *
 * Needs: encode_legacy.tpl.h, encode_kquants.tpl.h. Defines: encode_* of IQ4_NL, IQ4_XS. */

#define IQ4_SIDE 7 /* tries to each side */
#define IQ4_TRIES (2 * IQ4_SIDE + 1)
#define IQ4_AT_ONCE 3 /* divides the tries: what one waits for, the others do */

/* A search for a level goes from the uppermost bit of its code down. Where the codes so far are n
 * less than the largest, what follows is at -n % 8. */
typedef struct {
  float middles[4][8], below[8], above[8]; /* the last two: levels, of codes but the last bit */
} iq4_tables;

AMN_FORCE_INLINE iq4_tables iq4_tables_made(void) {
  iq4_tables tables = {{{0}}, {0}, {0}};
  for (int step = 0; step < 4; step++)
    for (int n = 0; n < 1 << step; n++) {
      const int8_t *above = amn_iq4_levels + 16 - (16 >> step) * n - (8 >> step);
      tables.middles[step][-n & 7] = 0.5f * (float)(above[-1] + above[0]);
      tables.below[-n & 7] = (float)above[-1]; /* those of the last step stay */
      tables.above[-n & 7] = (float)above[0];
    }
  return tables;
}

/* Three steps of the search, as -n; where the fourth one goes down. Of a NaN none does. */
AMN_FORCE_INLINE vec iq4_place(const iq4_tables *tables, vec_f32 x, vec *is_below) {
  vec place = v_greater_f32(v_set_f32(tables->middles[0][0]), x);
  for (int step = 1; step < 3; step++) {
    const vec_f32 middle = v_lookup8_f32(v_load_f32(tables->middles[step]), place);
    place = v_add_u32(v_add_u32(place, place), v_greater_f32(middle, x));
  }
  *is_below = v_greater_f32(v_lookup8_f32(v_load_f32(tables->middles[3]), place), x);
  return place;
}

/* The nearest level: of two, the upper one. */
AMN_FORCE_INLINE vec_f32 iq4_level(const iq4_tables *tables, vec_f32 x) {
  vec is_below;
  const vec place = iq4_place(tables, x, &is_below);
  return choose_f32(is_below, v_lookup8_f32(v_load_f32(tables->below), place),
                    v_lookup8_f32(v_load_f32(tables->above), place));
}

/* 32 bytes: the codes of those levels. */
AMN_FORCE_INLINE vec iq4_codes(const iq4_tables *tables, const float *x, float inverse) {
  vec codes[4];
  for (int i = 0; i < 4; i++) {
    vec is_below;
    const vec_f32 scaled = v_mul_f32(v_set_f32(inverse), v_load_f32(x + 8 * i));
    const vec place = iq4_place(tables, scaled, &is_below);
    codes[i] = v_add_u32(v_add_u32(place, place), v_add_u32(is_below, v_set_u32(15)));
  }
  return v_pack_s32(codes[0], codes[1], codes[2], codes[3]);
}

/* ---- the search for a scale ---- */

typedef struct {
  vec_f32 xl, l2;
} iq4_sums;

/* What a number that is taken for a level adds to the sums. */
AMN_FORCE_INLINE iq4_sums iq4_terms(vec_f32 x, vec_f32 weight, vec_f32 level) {
  const vec_f32 weighed = v_mul_f32(weight, level);
  return (iq4_sums){v_mul_f32(weighed, x), v_mul_f32(weighed, level)};
}

/* A number of each block, and what it adds on either side of the midpoint that it may pass. */
typedef struct {
  vec_f32 x, middle;
  iq4_sums below, above;
} iq4_number;

AMN_FORCE_INLINE iq4_number iq4_number_of(const iq4_tables *tables, vec_f32 x, vec_f32 weight,
                                          const vec_f32 inverses[IQ4_TRIES]) {
  const vec_f32 a = iq4_level(tables, v_mul_f32(inverses[0], x));
  const vec_f32 b = iq4_level(tables, v_mul_f32(inverses[IQ4_TRIES - 1], x));
  const vec_f32 below = v_min_f32(a, b), above = v_max_f32(a, b);
  const vec_f32 middle = v_mul_f32(v_set_f32(0.5f), v_add_f32(below, above));
  return (iq4_number){x, middle, iq4_terms(x, weight, below), iq4_terms(x, weight, above)};
}

AMN_FORCE_INLINE void iq4_try(const iq4_number numbers[32], const vec_f32 *inverses,
                              iq4_sums *sums) {
  for (int t = 0; t < IQ4_AT_ONCE; t++) sums[t].xl = sums[t].l2 = v_set_f32(0.0f);
  for (int i = 0; i < 32; i++) {
    const iq4_number *number = &numbers[i];
    for (int t = 0; t < IQ4_AT_ONCE; t++) {
      const vec is_below = v_greater_f32(number->middle, v_mul_f32(inverses[t], number->x));
      const vec_f32 xl = choose_f32(is_below, number->below.xl, number->above.xl);
      const vec_f32 l2 = choose_f32(is_below, number->below.l2, number->above.l2);
      sums[t].xl = v_add_f32(sums[t].xl, xl);
      sums[t].l2 = v_add_f32(sums[t].l2, l2);
    }
  }
}

/* The extreme's level is the last one in the first try, and the first one about the others. */
AMN_FORCE_INLINE vec_f32 iq4_scales(const iq4_tables *tables, const search_lanes *lanes) {
  const vec_f32 zero = v_set_f32(0.0f), one = v_set_f32(1.0f);
  const vec_f32 extreme = extreme_lanes(32, lanes->x);
  const float lowest = (float)amn_iq4_levels[0];
  const vec_f32 first = v_div_f32(one, v_div_f32(extreme, v_set_f32(-lowest)));
  vec_f32 inverses[IQ4_TRIES];
  iq4_sums plain = {zero, zero}, sums[IQ4_TRIES];
  iq4_number numbers[32];
  for (int k = 0; k < IQ4_TRIES; k++)
    inverses[k] = v_div_f32(v_set_f32((float)(k - IQ4_SIDE) + lowest), extreme);
  for (int i = 0; i < 32; i++) {
    const vec_f32 x = lanes->x[i], weight = lanes->weight[i];
    const iq4_sums terms = iq4_terms(x, weight, iq4_level(tables, v_mul_f32(first, x)));
    plain.xl = v_add_f32(plain.xl, terms.xl);
    plain.l2 = v_add_f32(plain.l2, terms.l2);
    numbers[i] = iq4_number_of(tables, x, weight, inverses);
  }
  for (int k = 0; k < IQ4_TRIES; k += IQ4_AT_ONCE) iq4_try(numbers, inverses + k, sums + k);
  vec_f32 scale = choose_f32(v_greater_f32(plain.l2, zero), v_div_f32(plain.xl, plain.l2), zero);
  vec_f32 best = v_mul_f32(scale, plain.xl);
  for (int k = 0; k < IQ4_TRIES; k++) {
    const vec_f32 xl = sums[k].xl, l2 = sums[k].l2;
    const vec is_more = v_greater_f32(v_mul_f32(xl, xl), v_mul_f32(best, l2));
    const vec is_better = v_and(is_more, v_greater_f32(l2, zero));
    scale = choose_f32(is_better, v_div_f32(xl, l2), scale);
    best = choose_f32(is_better, v_mul_f32(scale, xl), best);
  }
  const vec is_zero = v_greater_f32(v_set_f32(SEARCH_NONE), magnitude_f32(extreme));
  return v_f32_from_bits(v_and_not(is_zero, v_bits_f32(scale)));
}

/* ---- weights ---- */

/* Number k of each of eight blocks in the lanes of out[k]. */
AMN_FORCE_INLINE void iq4_load(const float *const blocks[LANES], int n, vec_f32 *out) {
  for (int at = 0; at < n; at += 8) {
    vec rows[LANES];
    for (int i = 0; i < LANES; i++) rows[i] = v_load(blocks[i] + at);
    v_transpose_u32(rows);
    for (int i = 0; i < LANES; i++) out[at + i] = v_f32_from_bits(rows[i]);
  }
}

AMN_FORCE_INLINE vec_f32 add_squares(int n, const vec_f32 *x, vec_f32 sum) {
  for (int i = 0; i < n; i++) sum = v_add_f32(sum, v_mul_f32(x[i], x[i]));
  return sum;
}

AMN_FORCE_INLINE void iq4_weigh(search_lanes *lanes) {
  for (int i = 0; i < 32; i++) lanes->weight[i] = v_mul_f32(lanes->x[i], lanes->x[i]);
}

/* `spread` is twice the mean square around the numbers; weights are importance first. */
AMN_FORCE_INLINE void iq4_weigh_by(vec_f32 spread, search_lanes *lanes) {
  for (int i = 0; i < 32; i++) {
    const vec_f32 square = v_mul_f32(lanes->x[i], lanes->x[i]);
    lanes->weight[i] = v_mul_f32(lanes->weight[i], v_sqrt_f32(v_add_f32(spread, square)));
  }
}

/* ---- IQ4_NL ---- */

/* Where eight blocks are, from `first` on; those that are not there are the last. */
typedef struct {
  const float *x[LANES], *importance[LANES];
} iq4_blocks;

AMN_FORCE_INLINE iq4_blocks iq4_blocks_at(size_t size, const float *src, const float *weights,
                                          size_t first, size_t n, size_t in_row) {
  iq4_blocks blocks;
  for (size_t i = 0; i < LANES; i++) {
    const size_t at = first + i < n ? first + i : n - 1;
    blocks.x[i] = src + at * size;
    blocks.importance[i] = weights == NULL ? NULL : weights + at % in_row * size;
  }
  return blocks;
}

/* The first n of eight blocks; by the scalar code where the search found no number. */
AMN_FORCE_INLINE void iq4_nl_store(const iq4_tables *tables, const iq4_blocks *blocks, size_t n,
                                   vec_f32 scale, block_iq4_nl *dst) {
  uint16_t d[2 * LANES];
  float inverses[LANES];
  const uint32_t is_odd = v_signs_u32(is_not_finite(scale));
  v_store(d, v_f16_from_f32(scale, scale));
  v_store_f32(inverses, reciprocal_f32(scale));
  for (size_t i = 0; i < n; i++) {
    amn_store_u16(dst[i].d, d[i]);
    store_nibbles_alone(iq4_codes(tables, blocks->x[i], inverses[i]), dst[i].qs);
    if (is_odd >> i & 1) encode_iq4_nl_scalar(blocks->x[i], dst[i].d, 1, 32, blocks->importance[i]);
  }
}

V_ENCODER void V_NAME(encode_iq4_nl)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                     const float *weights) {
  const iq4_tables tables = iq4_tables_made();
  const size_t in_row = cols / 32, n = rows * in_row;
  for (size_t at = 0; at < n; at += LANES) {
    const iq4_blocks blocks = iq4_blocks_at(32, src, weights, at, n, in_row);
    search_lanes lanes;
    iq4_load(blocks.x, 32, lanes.x);
    if (weights == NULL) {
      iq4_weigh(&lanes);
    } else {
      const vec_f32 sum = add_squares(32, lanes.x, v_set_f32(0.0f));
      iq4_load(blocks.importance, 32, lanes.weight);
      iq4_weigh_by(v_mul_f32(sum, v_set_f32(2.0f / 32.0f)), &lanes);
    }
    iq4_nl_store(&tables, &blocks, n - at < LANES ? n - at : LANES, iq4_scales(&tables, &lanes),
                 (block_iq4_nl *)dst + at);
  }
  v_end();
}

/* ---- IQ4_XS: eight blocks with scales of 6 bits ---- */

/* The scale with the largest magnitude becomes -32. */
AMN_FORCE_INLINE void iq4_xs_store(const iq4_tables *tables, const float *x, vec_f32 scales,
                                   block_iq4_xs *block) {
  float found[8], inverses[8];
  uint32_t stored[8], low = 0, high = 0;
  v_store_f32(found, scales);
  const float d = -extreme_of_floats(8, found) / 32.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  const vec code = nearest_s32(v_mul_f32(v_set_f32(inverse), scales));
  const vec kept = v_max_s32(v_min_s32(code, v_set_u32(31)), v_set_u32(0u - 32u));
  store_half_of(block->d, d);
  v_store(stored, v_add_u32(kept, v_set_u32(32)));
  v_store_f32(inverses, reciprocal_f32(v_mul_f32(v_set_f32(d), v_f32_from_s32(kept))));
  for (int i = 0; i < 8; i++) {
    low |= (stored[i] & 15) << 4 * i;
    high |= stored[i] >> 4 << 2 * i;
  }
  amn_store_u32(block->scales_l, low);
  amn_store_u16(block->scales_h, (uint16_t)high);
  for (int i = 0; i < 8; i += 2)
    store_nibbles_of(iq4_codes(tables, x + 32 * i, inverses[i]),
                     iq4_codes(tables, x + 32 * i + 32, inverses[i + 1]), block->qs + 16 * i,
                     block->qs + 16 * i + 16);
}

AMN_FORCE_INLINE void iq4_xs_encode(const iq4_tables *tables, const float *x,
                                    const float *importance, float spread, block_iq4_xs *block) {
  search_lanes lanes;
  load_runs(x, 32, 32, lanes.x);
  if (importance == NULL) {
    iq4_weigh(&lanes);
  } else {
    load_runs(importance, 32, 32, lanes.weight);
    iq4_weigh_by(v_set_f32(spread), &lanes);
  }
  const vec_f32 scales = iq4_scales(tables, &lanes);
  if (any_not_finite(scales))
    encode_iq4_xs_scalar(x, block->d, 1, SUPER, importance);
  else
    iq4_xs_store(tables, x, scales, block);
}

/* Of eight super-blocks: twice their mean squares. */
AMN_FORCE_INLINE void iq4_xs_spreads(const float *const blocks[LANES], float *spreads) {
  vec_f32 sum = v_set_f32(0.0f);
  for (int at = 0; at < SUPER; at += 32) {
    const float *parts[LANES];
    vec_f32 x[32];
    for (int i = 0; i < LANES; i++) parts[i] = blocks[i] + at;
    iq4_load(parts, 32, x);
    sum = add_squares(32, x, sum);
  }
  v_store_f32(spreads, v_mul_f32(sum, v_set_f32(2.0f / SUPER)));
}

V_ENCODER void V_NAME(encode_iq4_xs)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                     const float *weights) {
  const iq4_tables tables = iq4_tables_made();
  const size_t in_row = cols / SUPER, n = rows * in_row;
  for (size_t at = 0; at < n; at += LANES) {
    const iq4_blocks blocks = iq4_blocks_at(SUPER, src, weights, at, n, in_row);
    float spreads[LANES] = {0};
    if (weights != NULL) iq4_xs_spreads(blocks.x, spreads);
    for (size_t i = 0; i < LANES && at + i < n; i++)
      iq4_xs_encode(&tables, blocks.x[i], blocks.importance[i], spreads[i],
                    (block_iq4_xs *)dst + at + i);
  }
  v_end();
}
