/* Sixteen float32 as words, rounded, and words as tables of bytes.
 *
 * Needs: vec.h alone. Defines: no kernel. */

/* float32 whose upper halves are the bfloat16. */
AMN_FORCE_INLINE vec bf16_in_upper(vec_f32 values) {
  const vec bits = v_bits_f32(values);
  const vec odd = v_and(v_shr_u32(bits, 16), v_set_u32(1));
  return v_add_u32(v_add_u32(bits, v_set_u32(0x7fff)), odd);
}

/* Sixteen rounded words at once: one more where the lower half, less one if the upper one is even,
 * has its highest bit. */
AMN_FORCE_INLINE vec bf16_words(vec_f32 even, vec_f32 odd) {
  const vec even_bits = v_bits_f32(even), odd_bits = v_bits_f32(odd);
  const vec upper = v_even_odd_u16(v_shr_u32(even_bits, 16), odd_bits);
  const vec lower = v_even_odd_u16(even_bits, v_shl_u32(odd_bits, 16));
  const vec above_tie = v_sub_sat_u16(lower, v_and_not(upper, v_set_u16(1)));
  return v_add_u16(upper, v_shr_u16(above_tie, 15));
}

/* The same for half floats; and either of them, as a constant in every use. */
AMN_FORCE_INLINE vec f16_words(vec_f32 even, vec_f32 odd) {
  return v_f16_pairs_from_f32(even, odd);
}
typedef vec (*words_fn)(vec_f32 even, vec_f32 odd);

/* 16 words by their low and their high bytes, for each lane. */
typedef struct {
  vec low, high;
} byte_table;

/* Four outcomes, and the bytes of the eight lanes' bfloat16: byte k of each u32 is outcome k's. */
AMN_FORCE_INLINE void split_quads(const vec_f32 outcomes[4], vec *low, vec *high) {
  const vec even = bf16_words(outcomes[0], outcomes[2]), odd = bf16_words(outcomes[1], outcomes[3]);
  *low = v_even_odd_u8(even, v_shl_u16(odd, 8));
  *high = v_even_odd_u8(v_shr_u16(even, 8), odd);
}
