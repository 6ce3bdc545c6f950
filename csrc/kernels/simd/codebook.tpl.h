/* Numbers to their places among the 16 sorted entries of a codebook: how many of the midpoints
 * between them are below the number, scaled.
 *
 * Needs: wide.h alone. Defines: no kernel; places among the entries. */

/* In u32, by a binary search. */
AMN_FORCE_INLINE wide codebook_places(const amn_codebook4 *book, wide_f32 scaled) {
  wide place = wide_add_greater(wide_set_u32(0), scaled, wide_set(book->search[0][0]));
  for (int step = 1; step < 4; step++) {
    const wide_f32 middle = wide_lookup8(book->search[step], place);
    place = wide_add_greater(wide_add_u32(place, place), scaled, middle);
  }
  return place;
}

/* Of products of bfloat16 with such a factor none is subnormal, but where a number is 0. */
AMN_FORCE_INLINE int is_bounding(float by) {
  return by >= 0x1p-16f && by <= 0x1p100f;
}
