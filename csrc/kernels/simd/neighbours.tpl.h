/* The search among the neighbours of a point off a grid (iq_lists.h), eight of them at once: each
 * lane sums one's distance, element by element as the scalar code does.
 *
 * Needs: vec.h alone. Defines: no kernel; the search. */

/* A grid's entries of so many elements and bits, as constants in every use. */
typedef struct {
  int n, bits;
} point_kind;

/* Of the level that is its place, what each element adds to a distance. Where a level has two bits,
 * the upper half repeats the lower one. None is -0. */
typedef struct {
  vec_f32 of[8];
} distance_terms;

/* table[index % 8] */
AMN_FORCE_INLINE vec_f32 look_up_f32(vec_f32 table, vec index) {
  return v_f32_from_bits(v_permute_u32(v_bits_f32(table), index));
}

AMN_FORCE_INLINE vec_f32 term_of_distance(vec_f32 levels, vec_f32 x, vec_f32 weight) {
  const vec_f32 off = v_sub_f32(levels, x);
  return v_mul_f32(v_mul_f32(weight, off), off);
}

/* Of eight points, of which the first n count, n being 8 or less: FLT_MAX for others, and for what
 * overflows. */
AMN_FORCE_INLINE vec_f32 distances_of(point_kind kind, const distance_terms *terms,
                                      const uint16_t *points, int n) {
  static const uint32_t ignored[24] = {0,   0,   0,   0,   0,   0,   0,   0,   ~0u, ~0u, ~0u, ~0u,
                                       ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
  const vec codes = v_load_u16_as_u32((const uint8_t *)points);
  vec_f32 sum = look_up_f32(terms->of[0], codes);
  for (int i = 1; i < kind.n; i++)
    sum = v_add_f32(sum, look_up_f32(terms->of[i], v_shr_u32(codes, i * kind.bits)));
  const vec bits = v_or(v_bits_f32(sum), v_load(ignored + 8 - n));
  return v_min_f32(v_f32_from_bits(bits), v_set_f32(FLT_MAX));
}

/* Which of eight distances are the least one, a bit each. */
AMN_FORCE_INLINE uint32_t places_of(vec_f32 distances, vec_f32 least) {
  return v_signs_u32(v_greater_f32(distances, least)) ^ 255;
}

/* Which of n neighbours is the nearest, the first of equals. *farthest is raised to its distance in
 * all lanes: to FLT_MAX if there is none. Up to 8 or 16 are what most lists have. */
AMN_FORCE_INLINE uint32_t nearest_of(point_kind kind, const distance_terms *terms,
                                     const uint16_t *points, int n, vec_f32 *farthest) {
  const vec_f32 a = distances_of(kind, terms, points, n < 8 ? n : 8);
  if (n <= 8) {
    const vec_f32 nearest = v_least_f32(a);
    *farthest = v_max_f32(*farthest, nearest);
    return points[amn_lowest_bit(places_of(a, nearest))];
  }
  const vec_f32 b = distances_of(kind, terms, points + 8, n < 16 ? n - 8 : 8);
  vec_f32 least = v_min_f32(b, a);
  if (n <= 16) {
    const vec_f32 nearest = v_least_f32(least);
    *farthest = v_max_f32(*farthest, nearest);
    return points[amn_lowest_bit(places_of(a, nearest) | places_of(b, nearest) << 8)];
  }
  static const uint32_t places[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const vec first = v_sub_u32(v_zero(), v_load(places)); /* negative: the largest comes first */
  vec at = v_select(v_greater_f32(a, b), v_sub_u32(first, v_set_u32(8)), first);
  for (int done = 16; done < n; done += 8) {
    const vec_f32 next = distances_of(kind, terms, points + done, n - done < 8 ? n - done : 8);
    const vec is_nearer = v_greater_f32(least, next);
    at = v_select(is_nearer, v_sub_u32(first, v_set_u32((uint32_t)done)), at);
    least = v_min_f32(next, least);
  }
  const vec_f32 nearest = v_least_f32(least);
  *farthest = v_max_f32(*farthest, nearest);
  const vec is_farther = v_greater_f32(least, nearest);
  return points[0u - v_largest_s32(v_select(is_farther, v_set_u32(0x80000000), at))];
}
