/* What the vocabulary (vec.h) is in AVX2 and in AVX-512 alike: vectors of 32 bytes, for either
 * encoding of the instructions. vec_avx2.h and vec_avx512.h have the rest. */

typedef __m256i vec;
typedef __m256 vec_f32;

#include "vec.h"

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
AMN_FORCE_INLINE int v_all(vec mask) {
  return _mm256_movemask_epi8(mask) == -1;
}
AMN_FORCE_INLINE int v_any(vec mask) {
  return !_mm256_testz_si256(mask, mask);
}

AMN_FORCE_INLINE uint32_t v_signs_u8(vec a) {
  return (uint32_t)_mm256_movemask_epi8(a);
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

AMN_FORCE_INLINE vec v_lookup16(vec table, vec index) {
  return _mm256_shuffle_epi8(table, index);
}

AMN_FORCE_INLINE void v_split_table(vec words, vec *low, vec *high) {
  const vec bytes =
      _mm256_shuffle_epi8(words, _mm256_setr_epi32(0x06040200, 0x0e0c0a08, 0x07050301, 0x0f0d0b09,
                                                   0x06040200, 0x0e0c0a08, 0x07050301, 0x0f0d0b09));
  *low = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(2, 0, 2, 0));
  *high = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 3, 1));
}

AMN_FORCE_INLINE vec v_pack_lanes_u16(vec low, vec high) {
  return _mm256_packus_epi16(low, high);
}

AMN_FORCE_INLINE vec v_pack_u32(vec low, vec high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
}

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
AMN_FORCE_INLINE vec v_unordered_f32(vec_f32 a, vec_f32 b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}
AMN_FORCE_INLINE vec v_greater_s32(vec a, vec b) {
  return _mm256_cmpgt_epi32(a, b);
}
AMN_FORCE_INLINE vec v_greater_s16(vec a, vec b) {
  return _mm256_cmpgt_epi16(a, b);
}

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
AMN_FORCE_INLINE vec v_f16_from_f32(vec_f32 low, vec_f32 high) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
}

AMN_FORCE_INLINE vec v_f16_pairs_from_f32(vec_f32 even, vec_f32 odd) {
  const __m128i a = _mm256_cvtps_ph(even, _MM_FROUND_TO_NEAREST_INT);
  const __m128i b = _mm256_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT);
  return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
}

AMN_FORCE_INLINE vec v_load_lanes(const uint8_t *a, const uint8_t *b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                 _mm_loadu_si128((const __m128i *)b), 1);
}
AMN_FORCE_INLINE vec v_load_both_lanes(const uint8_t *p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
AMN_FORCE_INLINE void v_store_lanes(uint8_t *a, uint8_t *b, vec words) {
  _mm_storeu_si128((__m128i *)a, _mm256_castsi256_si128(words));
  _mm_storeu_si128((__m128i *)b, _mm256_extracti128_si256(words, 1));
}
AMN_FORCE_INLINE vec v_load_u32_all(const uint8_t *p) {
  return _mm256_set1_epi32((int)amn_load_u32(p));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_all(const uint8_t *p) {
  return _mm256_cvtph_ps(_mm_set1_epi16((short)amn_load_u16(p)));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_lanes(const uint8_t *a, const uint8_t *b) {
  const __m128i halves = _mm_insert_epi16(_mm_cvtsi32_si128(amn_load_u16(a)), amn_load_u16(b), 1);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_cvtph_ps(halves)),
                                  _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}
AMN_FORCE_INLINE void v_load_two_f16_lanes(const uint8_t *a, const uint8_t *b, vec_f32 *first,
                                           vec_f32 *second) {
  const __m128i halves =
      _mm_insert_epi32(_mm_cvtsi32_si128((int)amn_load_u32(a)), (int)amn_load_u32(b), 1);
  const __m256 values = _mm256_castps128_ps256(_mm_cvtph_ps(halves));
  *first = _mm256_permutevar8x32_ps(values, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
  *second = _mm256_permutevar8x32_ps(values, _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3));
}

AMN_FORCE_INLINE vec_f32 v_add_f32(vec_f32 a, vec_f32 b) {
  return _mm256_add_ps(a, b);
}
AMN_FORCE_INLINE vec_f32 v_f32_from_s32(vec a) {
  return _mm256_cvtepi32_ps(a);
}
AMN_FORCE_INLINE vec v_add_u8(vec a, vec b) {
  return _mm256_add_epi8(a, b);
}
AMN_FORCE_INLINE vec v_sub_sat_u16(vec a, vec b) {
  return _mm256_subs_epu16(a, b);
}
AMN_FORCE_INLINE vec v_mul_u16(vec a, vec b) {
  return _mm256_mullo_epi16(a, b);
}
AMN_FORCE_INLINE vec v_mul_high_u16(vec a, vec b) {
  return _mm256_mulhi_epu16(a, b);
}
AMN_FORCE_INLINE vec v_mul_u32(vec a, vec b) {
  return _mm256_mullo_epi32(a, b);
}
AMN_FORCE_INLINE vec v_shl_u16(vec a, int n) {
  return _mm256_slli_epi16(a, n);
}
AMN_FORCE_INLINE vec v_even_odd_u16(vec a, vec b) {
  return _mm256_blend_epi16(a, b, 0xaa);
}
AMN_FORCE_INLINE vec v_spread_even_s8(vec a, int upper) {
  const int at = upper ? 8 : 0;
  const __m256i index = _mm256_set1_epi32((int)0x00808080);
  const __m256i which = _mm256_setr_epi32(at, at + 2, at + 4, at + 6, at, at + 2, at + 4, at + 6);
  return _mm256_shuffle_epi8(a, _mm256_or_si256(index, _mm256_slli_epi32(which, 24)));
}
AMN_FORCE_INLINE vec v_spread_odd_s8(vec a, int upper) {
  const int at = upper ? 9 : 1;
  const __m256i index = _mm256_set1_epi32((int)0x00808080);
  const __m256i which = _mm256_setr_epi32(at, at + 2, at + 4, at + 6, at, at + 2, at + 4, at + 6);
  return _mm256_shuffle_epi8(a, _mm256_or_si256(index, _mm256_slli_epi32(which, 24)));
}
AMN_FORCE_INLINE vec v_s32_from_s8(vec a, int part) {
  __m128i half = part < 2 ? _mm256_castsi256_si128(a) : _mm256_extracti128_si256(a, 1);
  return _mm256_cvtepi8_epi32(part & 1 ? _mm_srli_si128(half, 8) : half);
}
AMN_FORCE_INLINE vec v_shr_u32_lanes(vec a, int low, int high) {
  return _mm256_srlv_epi32(a, _mm256_setr_epi32(low, low, low, low, high, high, high, high));
}
AMN_FORCE_INLINE vec v_load_u64_twice(const uint8_t *p) {
  return _mm256_permute4x64_epi64(v_load_both_lanes(p), _MM_SHUFFLE(1, 1, 0, 0));
}
AMN_FORCE_INLINE vec v_shr_u64_by_turns(vec a, int even, int odd) {
  return _mm256_srlv_epi64(a, _mm256_setr_epi64x(even, odd, even, odd));
}
AMN_FORCE_INLINE vec v_set_u16_lanes(uint16_t a, uint16_t b) {
  return _mm256_set_m128i(_mm_set1_epi16((short)b), _mm_set1_epi16((short)a));
}
AMN_FORCE_INLINE vec_f32 v_f32_all(vec_f32 a, int i) {
  return _mm256_permutevar8x32_ps(a, _mm256_set1_epi32(i));
}
AMN_FORCE_INLINE vec_f32 v_f32_lanes(vec_f32 a, int i) {
  return _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(i, i, i, i, i + 1, i + 1, i + 1, i + 1));
}
AMN_FORCE_INLINE vec v_select_lanes(vec a, vec b) {
  return _mm256_blend_epi32(a, b, 0xf0);
}
AMN_FORCE_INLINE vec v_zip_low_u32(vec a, vec b) {
  return _mm256_unpacklo_epi32(a, b);
}
AMN_FORCE_INLINE vec v_zip_low_u64(vec a, vec b) {
  return _mm256_unpacklo_epi64(a, b);
}
AMN_FORCE_INLINE vec v_nibbles_twice(const uint8_t *p) {
  const __m256i index = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4,
                                         5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m128i low = _mm_loadl_epi64((const __m128i *)p);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(low, 4), _mm_set1_epi8(15));
  const __m256i both = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(low, high));
  const __m256i to_high = _mm256_set1_epi32(0x08080000);
  return _mm256_shuffle_epi8(both, _mm256_or_si256(index, to_high));
}

AMN_FORCE_INLINE vec_f32 v_load_f32_lanes(const float *a) {
  return _mm256_blend_ps(_mm256_broadcast_ss(a), _mm256_broadcast_ss(a + 1), 0xf0);
}
AMN_FORCE_INLINE vec_f32 v_sub_f32(vec_f32 a, vec_f32 b) {
  return _mm256_sub_ps(a, b);
}
AMN_FORCE_INLINE vec v_load_s8_as_s32(const uint8_t *p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
AMN_FORCE_INLINE vec v_set_u64(uint64_t a) {
  return _mm256_set1_epi64x((long long)a);
}
AMN_FORCE_INLINE vec v_set_u64x4(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return _mm256_setr_epi64x((long long)a, (long long)b, (long long)c, (long long)d);
}
/* Broadcasts and blends need no shuffle unit: Zen has two, and these kernels use them heavily. */
AMN_FORCE_INLINE vec v_load_u64x4(const uint64_t *a, const uint64_t *b, const uint64_t *c,
                                  const uint64_t *d) {
  const __m256i low = _mm256_blend_epi32(v_set_u64(*a), v_set_u64(*b), 0x0c);
  const __m256i high = _mm256_blend_epi32(v_set_u64(*c), v_set_u64(*d), 0xc0);
  return _mm256_blend_epi32(low, high, 0xf0);
}
AMN_FORCE_INLINE vec v_load_u32x8(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                  const uint32_t *d, const uint32_t *e, const uint32_t *f,
                                  const uint32_t *g, const uint32_t *h) {
  const __m256i ab = _mm256_blend_epi32(v_set_u32(*a), v_set_u32(*b), 0x02);
  const __m256i cd = _mm256_blend_epi32(v_set_u32(*c), v_set_u32(*d), 0x08);
  const __m256i ef = _mm256_blend_epi32(v_set_u32(*e), v_set_u32(*f), 0x20);
  const __m256i gh = _mm256_blend_epi32(v_set_u32(*g), v_set_u32(*h), 0x80);
  return _mm256_blend_epi32(_mm256_blend_epi32(ab, cd, 0x0c), _mm256_blend_epi32(ef, gh, 0xc0),
                            0xf0);
}
AMN_FORCE_INLINE vec v_load_u64_all(const uint8_t *p) {
  long long value;
  memcpy(&value, p, sizeof value);
  return _mm256_set1_epi64x(value);
}
AMN_FORCE_INLINE vec v_load_rows_u8(const uint8_t *four) {
  return _mm256_shuffle_epi8(
      v_load_u32_all(four),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
}
AMN_FORCE_INLINE vec v_load_rows_u8_zip1(const uint8_t *four) {
  return _mm256_shuffle_epi8(
      v_load_u32_all(four),
      _mm256_setr_epi64x(0, 0x0202020202020202, 0x0101010101010101, 0x0303030303030303));
}
AMN_FORCE_INLINE vec v_even_u32(vec a, vec b) {
  const __m256 even = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(even), _MM_SHUFFLE(3, 1, 2, 0));
}
AMN_FORCE_INLINE vec v_odd_u32(vec a, vec b) {
  const __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(odd), _MM_SHUFFLE(3, 1, 2, 0));
}
AMN_FORCE_INLINE vec v_pack_u16(vec low, vec high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), _MM_SHUFFLE(3, 1, 2, 0));
}
AMN_FORCE_INLINE vec v_pack_s32(vec a, vec b, vec c, vec d) {
  const vec bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
AMN_FORCE_INLINE vec v_pack_u16_signs(vec low, vec high, vec signs_low, vec signs_high) {
  const vec signs = _mm256_packs_epi16(signs_low, signs_high);
  const vec bytes = _mm256_packus_epi16(low, high);
  return _mm256_permute4x64_epi64(
      _mm256_or_si256(bytes, _mm256_and_si256(signs, _mm256_set1_epi8((char)0x80))),
      _MM_SHUFFLE(3, 1, 2, 0));
}
AMN_FORCE_INLINE vec v_load_u8_as_u16(const uint8_t *p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
}
AMN_FORCE_INLINE vec v_load_u8_as_u16_times4(const uint8_t *p) {
  return _mm256_shuffle_epi8(
      v_load_u32_all(p),
      _mm256_setr_epi32((int)0x80008000, (int)0x80008000, (int)0x80018001, (int)0x80018001,
                        (int)0x80028002, (int)0x80028002, (int)0x80038003, (int)0x80038003));
}
AMN_FORCE_INLINE vec v_load_u8_as_u16_times8(const uint8_t *p) {
  return _mm256_set_m128i(_mm_set1_epi16(p[1]), _mm_set1_epi16(p[0]));
}
AMN_FORCE_INLINE vec v_load_u16_times4(const uint8_t *p) {
  return _mm256_shuffle_epi8(v_load_u64_all(p),
                             _mm256_setr_epi32(0x01000100, 0x01000100, 0x03020302, 0x03020302,
                                               0x05040504, 0x05040504, 0x07060706, 0x07060706));
}
AMN_FORCE_INLINE vec v_load_nibbles_as_u8_x32(const uint8_t *p) {
  const vec words = v_load_u8_as_u16(p);
  return _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi16(words, 4)),
                          _mm256_set1_epi8(15));
}
AMN_FORCE_INLINE vec v_load_nibbles_as_u8(const uint8_t *p) {
  const __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
  return _mm256_castsi128_si256(
      _mm_and_si128(_mm_or_si128(words, _mm_slli_epi16(words, 4)), _mm_set1_epi8(15)));
}
AMN_FORCE_INLINE vec v_u16_from_u8(vec a, int part) {
  return _mm256_cvtepu8_epi16(part ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a));
}
AMN_FORCE_INLINE vec v_split_upper_u16(vec a) {
  const vec bytes = _mm256_shuffle_epi8(
      a, _mm256_setr_epi32(0x0e0a0602, 0x0f0b0703, 0, 0, 0x0e0a0602, 0x0f0b0703, 0, 0));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
}
AMN_FORCE_INLINE vec v_shr_u32_each4(vec a) {
  return _mm256_srlv_epi32(a, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}
AMN_FORCE_INLINE vec v_shr_u32_each2(vec a) {
  return _mm256_srlv_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
}
AMN_FORCE_INLINE vec v_shr_u32_each(vec a, vec counts) {
  return _mm256_srlv_epi32(a, counts);
}
AMN_FORCE_INLINE vec v_shl_u32_each(vec a, vec counts) {
  return _mm256_sllv_epi32(a, counts);
}
AMN_FORCE_INLINE vec v_permute_u32(vec a, vec index) {
  return _mm256_permutevar8x32_epi32(a, index);
}
AMN_FORCE_INLINE vec v_zip_high_u64(vec a, vec b) {
  return _mm256_unpackhi_epi64(a, b);
}
AMN_FORCE_INLINE vec v_zip_high_u32(vec a, vec b) {
  return _mm256_unpackhi_epi32(a, b);
}
AMN_FORCE_INLINE vec v_spread_every_fourth_s8(vec a, int first) {
  const __m256i index = _mm256_setr_epi32(0x00808080, 0x04808080, 0x08808080, 0x0c808080,
                                          0x00808080, 0x04808080, 0x08808080, 0x0c808080);
  return _mm256_shuffle_epi8(a, _mm256_add_epi32(index, _mm256_set1_epi32(first << 24)));
}
AMN_FORCE_INLINE vec_f32 v_f32_from_f16(vec halves) {
  return _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
}

AMN_FORCE_INLINE void v_stream(void *p, vec a) {
  _mm256_stream_si256((__m256i *)p, a);
}
AMN_FORCE_INLINE void v_stream_end(void) {
  _mm_sfence();
}

AMN_FORCE_INLINE void v_prefetch(const void *p) {
  _mm_prefetch((const char *)p, _MM_HINT_T0);
}

AMN_FORCE_INLINE vec v_load_nibbles_high_first(const uint8_t *p) {
  const vec words = v_load_u8_as_u16(p);
  return _mm256_and_si256(_mm256_or_si256(_mm256_srli_epi16(words, 4), _mm256_slli_epi16(words, 8)),
                          _mm256_set1_epi8(15));
}
AMN_FORCE_INLINE vec v_greater_f32(vec_f32 a, vec_f32 b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
AMN_FORCE_INLINE vec_f32 v_lookup8_f32(vec_f32 table, vec index) {
  return _mm256_permutevar8x32_ps(table, index);
}

AMN_FORCE_INLINE void v_transpose_lanes_u32(vec rows[4]) {
  const vec ab_low = v_zip_low_u32(rows[0], rows[1]), ab_high = v_zip_high_u32(rows[0], rows[1]);
  const vec cd_low = v_zip_low_u32(rows[2], rows[3]), cd_high = v_zip_high_u32(rows[2], rows[3]);
  rows[0] = v_zip_low_u64(ab_low, cd_low);
  rows[1] = v_zip_high_u64(ab_low, cd_low);
  rows[2] = v_zip_low_u64(ab_high, cd_high);
  rows[3] = v_zip_high_u64(ab_high, cd_high);
}
AMN_FORCE_INLINE void v_transpose_u32(vec rows[8]) {
  v_transpose_lanes_u32(rows);
  v_transpose_lanes_u32(rows + 4);
  for (int i = 0; i < 4; i++) {
    const vec upper = rows[i], lower = rows[i + 4];
    rows[i] = _mm256_permute2x128_si256(upper, lower, 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(upper, lower, 0x31);
  }
}
AMN_FORCE_INLINE vec v_transpose_lanes_u8(vec a) {
  const __m128i index = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(index));
}
AMN_FORCE_INLINE vec v_swap_middle_u64(vec a) {
  return _mm256_permute4x64_epi64(a, _MM_SHUFFLE(3, 1, 2, 0));
}

AMN_FORCE_INLINE vec v_lower_lane(vec a) {
  return _mm256_permute4x64_epi64(a, _MM_SHUFFLE(1, 0, 1, 0));
}
AMN_FORCE_INLINE vec v_upper_lane(vec a) {
  return _mm256_permute4x64_epi64(a, _MM_SHUFFLE(3, 2, 3, 2));
}
AMN_FORCE_INLINE vec v_lower_lanes(vec a, vec b) {
  return _mm256_permute2x128_si256(a, b, 0x20);
}
AMN_FORCE_INLINE vec v_upper_lanes(vec a, vec b) {
  return _mm256_permute2x128_si256(a, b, 0x31);
}
AMN_FORCE_INLINE vec v_sub_u16(vec a, vec b) {
  return _mm256_sub_epi16(a, b);
}
AMN_FORCE_INLINE vec v_sub_u32(vec a, vec b) {
  return _mm256_sub_epi32(a, b);
}
AMN_FORCE_INLINE vec v_min_u8(vec a, vec b) {
  return _mm256_min_epu8(a, b);
}
AMN_FORCE_INLINE vec v_min_u16(vec a, vec b) {
  return _mm256_min_epu16(a, b);
}
AMN_FORCE_INLINE vec v_max_u16(vec a, vec b) {
  return _mm256_max_epu16(a, b);
}
AMN_FORCE_INLINE vec v_max_s16(vec a, vec b) {
  return _mm256_max_epi16(a, b);
}
AMN_FORCE_INLINE vec v_max_s32(vec a, vec b) {
  return _mm256_max_epi32(a, b);
}
AMN_FORCE_INLINE uint16_t v_largest_u16(vec a) {
  const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
  return (uint16_t)~_mm_cvtsi128_si32(least);
}
AMN_FORCE_INLINE uint32_t v_largest_s32(vec a) {
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(1, 0, 3, 2)));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(2, 3, 0, 1)));
  return (uint32_t)_mm_cvtsi128_si32(most);
}
AMN_FORCE_INLINE vec_f32 v_div_f32(vec_f32 a, vec_f32 b) {
  return _mm256_div_ps(a, b);
}
AMN_FORCE_INLINE vec_f32 v_min_f32(vec_f32 a, vec_f32 b) {
  return _mm256_min_ps(a, b);
}
AMN_FORCE_INLINE vec_f32 v_max_f32(vec_f32 a, vec_f32 b) {
  return _mm256_max_ps(a, b);
}
AMN_FORCE_INLINE vec_f32 v_sqrt_f32(vec_f32 a) {
  return _mm256_sqrt_ps(a);
}
AMN_FORCE_INLINE vec v_s32_from_f32(vec_f32 a) {
  return _mm256_cvtps_epi32(a);
}
AMN_FORCE_INLINE vec v_s32_cut_f32(vec_f32 a) {
  return _mm256_cvttps_epi32(a);
}
AMN_FORCE_INLINE vec_f32 v_rounded_to_f16(vec_f32 a) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
AMN_FORCE_INLINE void v_add_to_f64(double *p, vec_f32 a) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
  _mm256_storeu_pd(p, _mm256_add_pd(_mm256_loadu_pd(p), low));
  _mm256_storeu_pd(p + 4, _mm256_add_pd(_mm256_loadu_pd(p + 4), high));
}
AMN_FORCE_INLINE vec v_min_s32(vec a, vec b) {
  return _mm256_min_epi32(a, b);
}
AMN_FORCE_INLINE vec_f32 v_least_f32(vec_f32 a) {
  vec_f32 least = _mm256_min_ps(a, _mm256_permute2f128_ps(a, a, 0x01));
  least = _mm256_min_ps(least, _mm256_permute_ps(least, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm256_min_ps(least, _mm256_permute_ps(least, _MM_SHUFFLE(2, 3, 0, 1)));
}
AMN_FORCE_INLINE uint32_t v_signs_u32(vec a) {
  return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(a));
}
