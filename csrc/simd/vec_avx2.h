/* The vector vocabulary of the templates, in AVX2 and F16C. Include inside the target region.
 *
 * The logical vector is 32 bytes: u8x32, u16x16, u32x8, f32x8. zip_low and zip_high interleave
 * within 128-bit lanes; load_u8_zip1 and load_u8_zip2 permute at the load, so that one or two
 * zips later the elements stand in order again. */

/* The name of this level's own version of a kernel, as kernels.def and its Y expect it. */
#define V_NAME(kernel) kernel##_avx2

typedef __m256i vec;
typedef __m256 vec_f32;

/* MSVC does not end AVX code by itself; GCC and Clang do. */
AMN_FORCE_INLINE void v_end(void) {
#if defined(_MSC_VER) && !defined(__clang__)
  _mm256_zeroupper();
#endif
}

AMN_FORCE_INLINE vec v_load(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}
AMN_FORCE_INLINE void v_store(void *p, vec a) {
  _mm256_storeu_si256((__m256i *)p, a);
}
AMN_FORCE_INLINE vec_f32 v_load_f32(const void *p) {
  return _mm256_loadu_ps((const float *)p);
}
AMN_FORCE_INLINE void v_store_f32(void *p, vec_f32 a) {
  _mm256_storeu_ps((float *)p, a);
}

AMN_FORCE_INLINE vec v_load_u8_zip1(const uint8_t *p) {
  return _mm256_permute4x64_epi64(v_load(p), _MM_SHUFFLE(3, 1, 2, 0));
}

AMN_FORCE_INLINE vec v_load_u8_zip2(const uint8_t *p) {
  return _mm256_permutevar8x32_epi32(v_load(p), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

AMN_FORCE_INLINE vec v_zero(void) {
  return _mm256_setzero_si256();
}
AMN_FORCE_INLINE vec v_set_u8(uint8_t a) {
  return _mm256_set1_epi8((char)a);
}
AMN_FORCE_INLINE vec v_set_u16(uint16_t a) {
  return _mm256_set1_epi16((short)a);
}
AMN_FORCE_INLINE vec v_set_u32(uint32_t a) {
  return _mm256_set1_epi32((int)a);
}
AMN_FORCE_INLINE vec_f32 v_set_f32(float a) {
  return _mm256_set1_ps(a);
}

AMN_FORCE_INLINE vec v_and(vec a, vec b) {
  return _mm256_and_si256(a, b);
}
AMN_FORCE_INLINE vec v_or(vec a, vec b) {
  return _mm256_or_si256(a, b);
}
AMN_FORCE_INLINE vec v_and_not(vec not_a, vec b) {
  return _mm256_andnot_si256(not_a, b);
}
AMN_FORCE_INLINE vec v_xor(vec a, vec b) {
  return _mm256_xor_si256(a, b);
}
AMN_FORCE_INLINE vec v_sub_u8(vec a, vec b) {
  return _mm256_sub_epi8(a, b);
}
AMN_FORCE_INLINE vec v_sub_sat_u8(vec a, vec b) {
  return _mm256_subs_epu8(a, b);
}
AMN_FORCE_INLINE vec v_add_u16(vec a, vec b) {
  return _mm256_add_epi16(a, b);
}
AMN_FORCE_INLINE vec v_add_u32(vec a, vec b) {
  return _mm256_add_epi32(a, b);
}
AMN_FORCE_INLINE vec v_shr_u16(vec a, int n) {
  return _mm256_srli_epi16(a, n);
}
AMN_FORCE_INLINE vec v_shr_u32(vec a, int n) {
  return _mm256_srli_epi32(a, n);
}
AMN_FORCE_INLINE vec v_shl_u32(vec a, int n) {
  return _mm256_slli_epi32(a, n);
}

AMN_FORCE_INLINE vec v_equal_u8(vec a, vec b) {
  return _mm256_cmpeq_epi8(a, b);
}
AMN_FORCE_INLINE vec v_equal_u16(vec a, vec b) {
  return _mm256_cmpeq_epi16(a, b);
}
AMN_FORCE_INLINE vec v_equal_u32(vec a, vec b) {
  return _mm256_cmpeq_epi32(a, b);
}
AMN_FORCE_INLINE vec v_greater_s8(vec a, vec b) {
  return _mm256_cmpgt_epi8(a, b);
}
/* mask ? a : b, for masks of whole bytes of ones or zeros. */
AMN_FORCE_INLINE vec v_select(vec mask, vec a, vec b) {
  return _mm256_blendv_epi8(b, a, mask);
}
AMN_FORCE_INLINE int v_any(vec mask) {
  return !_mm256_testz_si256(mask, mask);
}

AMN_FORCE_INLINE vec v_zip_low_u8(vec a, vec b) {
  return _mm256_unpacklo_epi8(a, b);
}
AMN_FORCE_INLINE vec v_zip_high_u8(vec a, vec b) {
  return _mm256_unpackhi_epi8(a, b);
}
AMN_FORCE_INLINE vec v_zip_low_u16(vec a, vec b) {
  return _mm256_unpacklo_epi16(a, b);
}
AMN_FORCE_INLINE vec v_zip_high_u16(vec a, vec b) {
  return _mm256_unpackhi_epi16(a, b);
}

/* table[index], index in 0..15; the table stands in both halves of its vector. */
AMN_FORCE_INLINE vec v_lookup16(vec table, vec index) {
  return _mm256_shuffle_epi8(table, index);
}

/* Sixteen u16 to the tables of their low and of their high bytes. */
AMN_FORCE_INLINE void v_split_table(vec words, vec *low, vec *high) {
  const vec bytes = _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xff)),
                                        _mm256_srli_epi16(words, 8));
  *low = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(2, 0, 2, 0));
  *high = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 3, 1));
}

/* Two vectors of u32 below 65536 to one of u16, in order. */
AMN_FORCE_INLINE vec v_pack_u32(vec low, vec high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
}

/* 0 to 15 as float32, in the order in which v_pack_iota_u32 makes them consecutive. */
AMN_FORCE_INLINE void v_iota_f32(vec_f32 *a, vec_f32 *b) {
  *a = _mm256_setr_ps(0, 1, 2, 3, 8, 9, 10, 11);
  *b = _mm256_setr_ps(4, 5, 6, 7, 12, 13, 14, 15);
}
AMN_FORCE_INLINE vec v_pack_iota_u32(vec a, vec b) {
  return _mm256_packus_epi32(a, b);
}

AMN_FORCE_INLINE vec_f32 v_mul_f32(vec_f32 a, vec_f32 b) {
  return _mm256_mul_ps(a, b);
}
AMN_FORCE_INLINE vec v_bits_f32(vec_f32 a) {
  return _mm256_castps_si256(a);
}
AMN_FORCE_INLINE vec_f32 v_f32_from_bits(vec a) {
  return _mm256_castsi256_ps(a);
}
AMN_FORCE_INLINE vec v_is_nan_f32(vec_f32 a) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
AMN_FORCE_INLINE vec v_greater_s32(vec a, vec b) {
  return _mm256_cmpgt_epi32(a, b);
}
AMN_FORCE_INLINE vec v_greater_s16(vec a, vec b) {
  return _mm256_cmpgt_epi16(a, b);
}

/* Eight numbers of another width at p. The hardware conversions keep subnormals. */
AMN_FORCE_INLINE vec v_load_u16_as_u32(const uint8_t *p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
AMN_FORCE_INLINE vec v_load_u8_as_u32(const uint8_t *p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_as_f32(const uint8_t *p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
AMN_FORCE_INLINE vec_f32 v_load_f64_as_f32(const uint8_t *p) {
  const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)p));
  const __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)(p + 32)));
  return _mm256_set_m128(high, low);
}
/* Sixteen float32 rounded to nearest even, as half floats. */
AMN_FORCE_INLINE vec v_f16_from_f32(vec_f32 low, vec_f32 high) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
}
