/* Bfloat16 to places in a codebook, where a vector has 8 floats, and 16 words.
 *
 * Products with one factor are in the order of the numbers. So for each midpoint there is a last
 * bfloat16 whose product is not above it, and a block's numbers are compared with 15 of those, as
 * 16-bit integers that are in the order of the numbers.
 *
 * Needs: codebook.tpl.h. Defines: no kernel; places of bfloat16. */

/* Those of midpoints 3, 7 and 11, everywhere; of 4k, in u16 2k of either lane; of 4k + 1 and
 * 4k + 2, in 2k and 2k + 1. */
typedef struct {
  vec quarters[3], firsts, others, step;
} codebook_bounds;

/* 16 bfloat16 as integers of their order. */
AMN_FORCE_INLINE vec ordered_bf16(vec words) {
  return v_xor(words, v_shr_u16(v_greater_s16(v_zero(), words), 1));
}

/* Of 8 midpoints, in the upper half of each u32. The magnitude of a quotient that is a little too
 * small, cut to a bfloat16, is the last one whose product is within the midpoint's, or the one
 * before. Below 0 the next one counts, which is not within; the order is that of all bits turned.
 */
AMN_FORCE_INLINE vec last_not_above(const amn_codebook4 *book, int from, float by) {
  const vec_f32 quotients = v_mul_f32(v_load_f32(book->reduced + from), v_set_f32(1 / by));
  const vec near = v_and(v_bits_f32(quotients), v_set_u32(0xffff0000));
  const vec next = v_add_u32(near, v_set_u32(0x10000));
  const vec_f32 product = v_mul_f32(v_f32_from_bits(next), v_set_f32(by));
  const vec is_beyond = v_greater_f32(product, v_load_f32(book->within + from));
  const vec last = v_add_u32(next, is_beyond); /* of which the lower half is lost */
  const vec signs = v_load(book->signs + from);
  return v_and(v_xor(v_sub_u16(last, signs), signs), v_load(book->kept + from));
}

AMN_FORCE_INLINE codebook_bounds bounds_of(const amn_codebook4 *book, float by) {
  const vec even = last_not_above(book, 0, by), odd = last_not_above(book, 8, by);
  const vec words = v_even_odd_u16(v_shr_u32(even, 16), odd);
  const vec lower = v_lower_lane(words);
  const vec quarters[3] = {v_lookup16(lower, v_set_u16(0x0302)),
                           v_lookup16(lower, v_set_u16(0x0706)),
                           v_lookup16(lower, v_set_u16(0x0b0a))};
  return (codebook_bounds){
      {quarters[0], quarters[1], quarters[2]}, lower, v_upper_lane(words), v_set_u16(book->step)};
}

/* Of 16 bfloat16, in the low bytes of u16; what the high ones have is of no use. A midpoint at 0
 * has its bound as all others. */
AMN_FORCE_INLINE vec bounded_places(const codebook_bounds *bounds, int has_middle_0, vec words) {
  (void)has_middle_0;
  const vec number = ordered_bf16(words);
  const vec a = v_greater_s16(number, bounds->quarters[0]);
  const vec b = v_greater_s16(number, bounds->quarters[1]);
  const vec c = v_greater_s16(number, bounds->quarters[2]);
  const vec quarter = v_mul_u16(v_add_u16(v_add_u16(a, b), c), bounds->step);
  const vec at = v_add_u16(quarter, v_set_u16(0x0100)), beside = v_add_u16(at, v_set_u16(0x0202));
  const vec d = v_greater_s16(number, v_lookup16(bounds->firsts, at));
  const vec e = v_greater_s16(number, v_lookup16(bounds->others, at));
  const vec f = v_greater_s16(number, v_lookup16(bounds->others, beside));
  return v_sub_u16(at, v_add_u16(v_add_u16(d, e), f));
}
