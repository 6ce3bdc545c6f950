/* Bfloat16 to places in a codebook, where a vector has 16 floats: a search by all of them is
 * quicker there than bounds for each block (bounds_8.tpl.h), of which a block has too few numbers.
 *
 * Needs: pairs.tpl.h, codebook.tpl.h. Defines: no kernel; places of bfloat16. */

typedef struct {
  const amn_codebook4 *book;
  wide_f32 by;
} codebook_bounds;

AMN_FORCE_INLINE codebook_bounds bounds_of(const amn_codebook4 *book, float by) {
  return (codebook_bounds){book, wide_set(by)};
}

/* In the low bytes of u16. */
AMN_FORCE_INLINE wide bounded_places(const codebook_bounds *bounds, wide words) {
  const pair values = pair_of_bf16(words);
  const wide even = codebook_places(bounds->book, wide_mul(values.even, bounds->by));
  const wide odd = codebook_places(bounds->book, wide_mul(values.odd, bounds->by));
  return wide_even_odd_u16(even, wide_shl_u32(odd, 16));
}
