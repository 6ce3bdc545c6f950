/* Bfloat16 to places in a codebook, where a vector has 16 floats: by the only midpoint that is as
 * near as a number's step. Bounds for each block (bounds_8.tpl.h) take longer there than its
 * numbers.
 *
 * Needs: pairs.tpl.h. Defines: no kernel; places of bfloat16. */

typedef struct {
  const amn_codebook4 *book;
  wide_f32 by, steps;
} codebook_bounds;

AMN_FORCE_INLINE codebook_bounds bounds_of(const amn_codebook4 *book, float by) {
  return (codebook_bounds){book, wide_set(by), wide_set(by * AMN_CODEBOOK_STEPS)};
}

/* Rounding moves no step by as much as midpoints are away from where steps begin. Beyond the first
 * and the last step, as numbers are with a given largest magnitude, there are no midpoints. */
AMN_FORCE_INLINE wide bounded_place(const codebook_bounds *bounds, int has_middle_0,
                                    wide_f32 value) {
  const wide_f32 at = wide_max(wide_mul(value, bounds->steps), wide_set(-16));
  const wide step = wide_floor_s32(wide_min(at, wide_set(15)));
  const wide_f32 scaled = wide_mul(value, bounds->by);
  const wide_f32 middle = wide_lookup32(bounds->book->middles, step);
  wide place = wide_add_greater(wide_lookup64_u8(bounds->book->before, step), scaled, middle);
  if (has_middle_0) place = wide_add_greater(place, scaled, wide_set(0));
  return place;
}

/* In the low bytes of u16. */
AMN_FORCE_INLINE wide bounded_places(const codebook_bounds *bounds, int has_middle_0, wide words) {
  const pair values = pair_of_bf16(words);
  const wide even = bounded_place(bounds, has_middle_0, values.even);
  const wide odd = bounded_place(bounds, has_middle_0, values.odd);
  return wide_even_odd_u16(even, wide_shl_u32(odd, 16));
}
