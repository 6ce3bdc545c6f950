/* What words say of a tensor: runs of vectors in which all is finite. Other runs are left to the
 * scalar code, as is what fills no vector.
 *
 * Defines: check. */

#define CHECK_VECTORS 128 /* of a run: counts in bytes end at 255 */

AMN_FORCE_INLINE vec larger_u8(vec a, vec b) {
  return v_add_u8(a, v_sub_sat_u8(b, a));
}

/* Counts to those of u32. */
AMN_FORCE_INLINE vec counts_of_u32(vec counts) {
  return counts;
}
AMN_FORCE_INLINE vec counts_of_u16(vec counts) {
  return v_add_u32(v_and(counts, v_set_u32(0xffff)), v_shr_u32(counts, 16));
}
AMN_FORCE_INLINE vec counts_of_u8(vec counts) {
  return counts_of_u16(v_add_u16(v_and(counts, v_set_u16(0xff)), v_shr_u16(counts, 8)));
}

/* Whole vectors of `bits` to a word. */
#define DEFINE_CHECK(bits, larger)                                                          \
  AMN_FORCE_INLINE void check_u##bits(const uint8_t *src, size_t n, const amn_words *words, \
                                      amn_check *found) {                                   \
    const vec magnitude_bits = v_set_u##bits(UINT##bits##_MAX >> 1);                        \
    const vec infinity = v_set_u##bits((uint##bits##_t)words->infinity);                    \
    const vec other_nan = v_set_u##bits((uint##bits##_t)words->other_nan);                  \
    const vec first = v_set_u##bits((uint##bits##_t)found->first);                          \
    vec largest = v_zero(), differs = largest;                                              \
    for (size_t size; n != 0; src += 32 * size, n -= size) {                                \
      size = n < CHECK_VECTORS ? n : CHECK_VECTORS;                                         \
      vec most = v_zero(), n_zero = most;                                                   \
      for (size_t i = 0; i < size; i++) {                                                   \
        const vec word = v_load(src + 32 * i);                                              \
        vec magnitude = v_and(word, magnitude_bits);                                        \
        if (bits == 8) magnitude = v_or(magnitude, v_equal_u8(word, other_nan));            \
        most = larger(most, magnitude);                                                     \
        n_zero = v_sub_u##bits(n_zero, v_equal_u##bits(magnitude, v_zero()));               \
        differs = v_or(differs, v_xor(word, first));                                        \
      }                                                                                     \
      if (v_any(v_equal_u##bits(larger(most, infinity), most))) {                           \
        check_scalar(src, size * (256 / bits), words, found);                               \
        continue;                                                                           \
      }                                                                                     \
      largest = larger(largest, most);                                                      \
      uint32_t counts[8];                                                                   \
      v_store(counts, counts_of_u##bits(n_zero));                                           \
      for (int i = 0; i < 8; i++) found->n_zero += counts[i];                               \
      found->n += size * (256 / bits);                                                      \
    }                                                                                       \
    uint##bits##_t lanes[256 / bits];                                                       \
    v_store(lanes, largest);                                                                \
    for (int i = 0; i < 256 / bits; i++)                                                    \
      if (lanes[i] > found->largest) found->largest = lanes[i];                             \
    found->differs |= v_any(differs);                                                       \
  }
DEFINE_CHECK(8, larger_u8)
DEFINE_CHECK(16, v_max_u16)
DEFINE_CHECK(32, v_max_s32)
#undef DEFINE_CHECK

V_ENCODER void V_NAME(check)(const uint8_t *src, size_t n, const amn_words *words,
                             amn_check *found) {
  const size_t in_vector = 32 / (size_t)words->n_bytes, n_vectors = n / in_vector;
  if (words->n_bytes == 1)
    check_u8(src, n_vectors, words, found);
  else if (words->n_bytes == 2)
    check_u16(src, n_vectors, words, found);
  else
    check_u32(src, n_vectors, words, found);
  check_scalar(src + 32 * n_vectors, n % in_vector, words, found);
  v_end();
}
