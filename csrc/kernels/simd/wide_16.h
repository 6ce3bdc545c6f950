/* What wide.h declares, in AVX-512's vectors of 64 bytes: half the instructions, and stores of
 * whole cache lines. */

#define WIDE_LANES 16
#define WIDE_PARTS 1

typedef __m512 wide_f32, float_table;
typedef __m512i wide, wide_line;

/* The lower lane's 16 words, then the upper lane's. */
typedef __m512i nibble_table;

#include "wide.h"

AMN_FORCE_INLINE wide_f32 wide_set(float a) {
  return _mm512_set1_ps(a);
}
AMN_FORCE_INLINE wide_f32 wide_all(vec_f32 a) {
  return _mm512_broadcastss_ps(_mm256_castps256_ps128(a));
}
AMN_FORCE_INLINE wide_f32 wide_add(wide_f32 a, wide_f32 b) {
  return _mm512_add_ps(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_sub(wide_f32 a, wide_f32 b) {
  return _mm512_sub_ps(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_mul(wide_f32 a, wide_f32 b) {
  return _mm512_mul_ps(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_load(const float *src) {
  return _mm512_loadu_ps(src);
}
AMN_FORCE_INLINE void wide_store(float *dst, wide_f32 a) {
  _mm512_storeu_ps(dst, a);
}

AMN_FORCE_INLINE wide_f32 wide_f32_of_s8(vec bytes, int i) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(i ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes)));
}

AMN_FORCE_INLINE wide_f32 wide_f32_of_u8(vec bytes, int i) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(i ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes)));
}

/* Where the even and the odd elements lie, each four times. */
typedef struct {
  uint8_t even[64], odd[64];
} wide_places;

static const wide_places V_NAME(places)[2] = {
    {{0,  0,  0,  0,  2,  2,  2,  2,  4,  4,  4,  4,  6,  6,  6,  6,  8,  8,  8,  8,  10, 10,
      10, 10, 12, 12, 12, 12, 14, 14, 14, 14, 16, 16, 16, 16, 18, 18, 18, 18, 20, 20, 20, 20,
      22, 22, 22, 22, 24, 24, 24, 24, 26, 26, 26, 26, 28, 28, 28, 28, 30, 30, 30, 30},
     {1,  1,  1,  1,  3,  3,  3,  3,  5,  5,  5,  5,  7,  7,  7,  7,  9,  9,  9,  9,  11, 11,
      11, 11, 13, 13, 13, 13, 15, 15, 15, 15, 17, 17, 17, 17, 19, 19, 19, 19, 21, 21, 21, 21,
      23, 23, 23, 23, 25, 25, 25, 25, 27, 27, 27, 27, 29, 29, 29, 29, 31, 31, 31, 31}},
    {{0,  0,  0,  0,  2,  2,  2,  2,  4,  4,  4,  4,  6,  6,  6,  6,  16, 16, 16, 16, 18, 18,
      18, 18, 20, 20, 20, 20, 22, 22, 22, 22, 8,  8,  8,  8,  10, 10, 10, 10, 12, 12, 12, 12,
      14, 14, 14, 14, 24, 24, 24, 24, 26, 26, 26, 26, 28, 28, 28, 28, 30, 30, 30, 30},
     {1,  1,  1,  1,  3,  3,  3,  3,  5,  5,  5,  5,  7,  7,  7,  7,  17, 17, 17, 17, 19, 19,
      19, 19, 21, 21, 21, 21, 23, 23, 23, 23, 9,  9,  9,  9,  11, 11, 11, 11, 13, 13, 13, 13,
      15, 15, 15, 15, 25, 25, 25, 25, 27, 27, 27, 27, 29, 29, 29, 29, 31, 31, 31, 31}},
};

/* Bytes to one place of each u32, over or under zeros. */
AMN_FORCE_INLINE wide_f32 wide_spread(__mmask64 mask, const uint8_t places[64], vec bytes) {
  return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(mask, _mm512_loadu_si512(places),
                                                          _mm512_castsi256_si512(bytes)));
}
#define TOPS 0x8888888888888888u
#define BOTTOMS 0x1111111111111111u

AMN_FORCE_INLINE wide_f32 wide_even_s8(vec bytes, byte_order order, int part) {
  (void)part;
  return wide_spread(TOPS, V_NAME(places)[order].even, bytes);
}
AMN_FORCE_INLINE wide_f32 wide_odd_s8(vec bytes, byte_order order, int part) {
  (void)part;
  return wide_spread(TOPS, V_NAME(places)[order].odd, bytes);
}
AMN_FORCE_INLINE wide_f32 wide_even_u8(vec bytes, int part) {
  (void)part;
  return wide_spread(BOTTOMS, V_NAME(places)[IN_ORDER].even, bytes);
}
AMN_FORCE_INLINE wide_f32 wide_odd_u8(vec bytes, int part) {
  (void)part;
  return wide_spread(BOTTOMS, V_NAME(places)[IN_ORDER].odd, bytes);
}

#undef TOPS
#undef BOTTOMS

AMN_FORCE_INLINE wide_f32 wide_half(const float two[2], int i) {
  return _mm512_set1_ps(two[i]);
}
AMN_FORCE_INLINE wide_f32 wide_halves(const float two[2], int part) {
  (void)part;
  return _mm512_insertf32x8(_mm512_set1_ps(two[0]), v_set_f32(two[1]), 1);
}

/* As bf16_words. */
AMN_FORCE_INLINE wide wide_bf16(wide_f32 even, wide_f32 odd) {
  const __m512i even_bits = _mm512_castps_si512(even), odd_bits = _mm512_castps_si512(odd);
  const __m512i upper =
      _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even_bits, 16), odd_bits);
  const __m512i lower =
      _mm512_mask_blend_epi16(0xaaaaaaaa, even_bits, _mm512_slli_epi32(odd_bits, 16));
  const __m512i above_tie =
      _mm512_subs_epu16(lower, _mm512_andnot_si512(upper, _mm512_set1_epi16(1)));
  return _mm512_add_epi16(upper, _mm512_srli_epi16(above_tie, 15));
}
AMN_FORCE_INLINE wide wide_f16(wide_f32 even, wide_f32 odd) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(even, _MM_FROUND_TO_NEAREST_INT));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
AMN_FORCE_INLINE void wide_store_words(uint8_t *dst, byte_order order, int part, wide words) {
  (void)order;
  (void)part;
  _mm512_storeu_si512(dst, words);
}

AMN_FORCE_INLINE wide_line line_of_halves(vec low, vec high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
AMN_FORCE_INLINE wide_line line_of_words(const wide parts[WIDE_PARTS]) {
  return parts[0];
}
AMN_FORCE_INLINE void store_line(uint8_t *dst, wide_line line) {
  _mm512_storeu_si512(dst, line);
}
AMN_FORCE_INLINE void stream_line(uint8_t *dst, wide_line line) {
  _mm512_stream_si512((__m512i *)dst, line);
}

/* Eight floats for each lane. */
AMN_FORCE_INLINE wide_f32 wide_twice(const float eight[8]) {
  return _mm512_broadcast_f32x8(_mm256_loadu_ps(eight));
}

/* ---- numbers to codes ---- */

AMN_FORCE_INLINE wide wide_load_words(const uint8_t *src) {
  return _mm512_loadu_si512(src);
}
AMN_FORCE_INLINE wide_f32 wide_load_f16(const uint8_t *src) {
  return _mm512_cvtph_ps(v_load(src));
}
AMN_FORCE_INLINE wide wide_set_u16(uint16_t a) {
  return _mm512_set1_epi16((short)a);
}
AMN_FORCE_INLINE wide wide_set_u32(uint32_t a) {
  return _mm512_set1_epi32((int)a);
}
AMN_FORCE_INLINE wide_f32 wide_div(wide_f32 a, wide_f32 b) {
  return _mm512_div_ps(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_min(wide_f32 a, wide_f32 b) {
  return _mm512_min_ps(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_max(wide_f32 a, wide_f32 b) {
  return _mm512_max_ps(a, b);
}
AMN_FORCE_INLINE wide wide_bits(wide_f32 a) {
  return _mm512_castps_si512(a);
}
AMN_FORCE_INLINE wide_f32 wide_from_bits(wide a) {
  return _mm512_castsi512_ps(a);
}
AMN_FORCE_INLINE wide_f32 wide_f32_of_s32(wide a) {
  return _mm512_cvtepi32_ps(a);
}
AMN_FORCE_INLINE wide wide_s32(wide_f32 a) {
  return _mm512_cvtps_epi32(a);
}
AMN_FORCE_INLINE wide_f32 wide_rounded_to_f16(wide_f32 a) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
AMN_FORCE_INLINE wide wide_and(wide a, wide b) {
  return _mm512_and_si512(a, b);
}
AMN_FORCE_INLINE wide wide_and_not(wide not_a, wide b) {
  return _mm512_andnot_si512(not_a, b);
}
AMN_FORCE_INLINE wide wide_select(wide mask, wide a, wide b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
AMN_FORCE_INLINE int wide_any(wide a) {
  return _mm512_test_epi32_mask(a, a) != 0;
}
AMN_FORCE_INLINE wide wide_add_u16(wide a, wide b) {
  return _mm512_add_epi16(a, b);
}
AMN_FORCE_INLINE wide wide_sub_u16(wide a, wide b) {
  return _mm512_sub_epi16(a, b);
}
AMN_FORCE_INLINE wide wide_sub_sat_u16(wide a, wide b) {
  return _mm512_subs_epu16(a, b);
}
AMN_FORCE_INLINE wide wide_min_u16(wide a, wide b) {
  return _mm512_min_epu16(a, b);
}
AMN_FORCE_INLINE wide wide_shr_u16(wide a, int n) {
  return _mm512_srli_epi16(a, (unsigned)n);
}
AMN_FORCE_INLINE wide wide_add_u32(wide a, wide b) {
  return _mm512_add_epi32(a, b);
}
AMN_FORCE_INLINE wide wide_max_s32(wide a, wide b) {
  return _mm512_max_epi32(a, b);
}
AMN_FORCE_INLINE wide wide_shr_u32(wide a, int n) {
  return _mm512_srli_epi32(a, (unsigned)n);
}
AMN_FORCE_INLINE wide wide_shl_u32(wide a, int n) {
  return _mm512_slli_epi32(a, (unsigned)n);
}
AMN_FORCE_INLINE wide wide_equal_u16(wide a, wide b) {
  return _mm512_movm_epi16(_mm512_cmpeq_epi16_mask(a, b));
}
AMN_FORCE_INLINE wide wide_equal_u32(wide a, wide b) {
  return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(a, b));
}
AMN_FORCE_INLINE wide wide_greater(wide_f32 a, wide_f32 b) {
  return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ));
}
AMN_FORCE_INLINE wide wide_add_greater(wide counts, wide_f32 a, wide_f32 b) {
  const __mmask16 greater = _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
  return _mm512_mask_add_epi32(counts, greater, counts, _mm512_set1_epi32(1));
}
AMN_FORCE_INLINE wide wide_even_odd_u16(wide a, wide b) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, a, b);
}
AMN_FORCE_INLINE wide wide_even_u32(wide a, wide b) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi32(a, even, b);
}
AMN_FORCE_INLINE wide wide_odd_u32(wide a, wide b) {
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi32(a, odd, b);
}
AMN_FORCE_INLINE wide_f32 wide_lookup8(const float table[8], wide index) {
  return _mm512_permutexvar_ps(index, wide_twice(table));
}
AMN_FORCE_INLINE float_table table_of_floats(const float entries[16], float scale) {
  return wide_mul(wide_load(entries), wide_set(scale));
}
AMN_FORCE_INLINE wide_f32 wide_lookup16(float_table table, wide index) {
  return _mm512_permutexvar_ps(index, table);
}
AMN_FORCE_INLINE vec wide_pack(const wide words[WIDE_PARTS]) {
  return _mm512_cvtepi16_epi8(words[0]);
}
AMN_FORCE_INLINE vec wide_pack_signs(const wide words[WIDE_PARTS], const wide signs[WIDE_PARTS]) {
  const wide sign = _mm512_srli_epi16(signs[0], 8); /* 0xf8: a or (b and c) */
  return _mm512_cvtepi16_epi8(
      _mm512_ternarylogic_epi32(words[0], sign, _mm512_set1_epi16(0x80), 0xf8));
}
AMN_FORCE_INLINE vec_f32 wide_eight(const wide_f32 pairs[WIDE_PARTS], int i) {
  return i ? _mm512_extractf32x8_ps(pairs[0], 1) : _mm512_castps512_ps256(pairs[0]);
}
AMN_FORCE_INLINE wide_f32 wide_of_eight(vec_f32 a) {
  return _mm512_zextps256_ps512(a);
}
AMN_FORCE_INLINE vec_f32 wide_larger(wide_f32 a) {
  return v_max_f32(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

/* What bounds_16.tpl.h takes: the whole numbers below; of 32 floats those of the lowest five bits;
 * of 64 bytes, as u32, those of the lowest six. */
AMN_FORCE_INLINE wide wide_floor_s32(wide_f32 a) {
  return _mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
AMN_FORCE_INLINE wide_f32 wide_lookup32(const float table[32], wide index) {
  return _mm512_permutex2var_ps(wide_load(table), index, wide_load(table + 16));
}
AMN_FORCE_INLINE wide wide_lookup64_u8(const uint8_t table[64], wide index) {
  return _mm512_maskz_permutexvar_epi8(0x1111111111111111u, index, _mm512_loadu_si512(table));
}

/* ---- codes of some bits ---- */

/* Eight codes to a u64, and from there to its bytes. */
#define EIGHT(at) (at), (at) + 1, (at) + 2, (at) + 3, (at) + 4, (at) + 5, (at) + 6, (at) + 7
#define DENSE_BYTES(b)                                                                      \
  AMN_FORCE_INLINE vec bytes_of_dense_##b(vec codes) {                                      \
    static const uint8_t eights[32] = {EIGHT(DENSE_AT(b, 0, 0)), EIGHT(DENSE_AT(b, 0, 1)),  \
                                       EIGHT(DENSE_AT(b, 1, 0)), EIGHT(DENSE_AT(b, 1, 1))}; \
    const vec from = v_set_u64(b * 0x0706050403020100u);                                    \
    const vec bits = _mm256_shuffle_epi8(codes, v_load(eights));                            \
    return v_and(_mm256_multishift_epi64_epi8(from, bits), v_set_u8((1 << b) - 1));         \
  }
EACH_DENSE(DENSE_BYTES)

#undef DENSE_BYTES
#undef EIGHT

/* ---- tables ---- */

AMN_FORCE_INLINE nibble_table table_of_words(vec words) {
  return _mm512_broadcast_i64x4(words);
}

AMN_FORCE_INLINE nibble_table table_of_two(vec a, vec b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* The elements of two lanes, eight times each. */
AMN_FORCE_INLINE wide_f32 wide_lanes(vec_f32 a) {
  const __m512 both = _mm512_castps256_ps512(a);
  return _mm512_shuffle_f32x4(both, both, _MM_SHUFFLE(1, 1, 0, 0));
}

AMN_FORCE_INLINE nibble_table q4_0_table(vec_f32 d) {
  static const float even[8] = {-8, -6, -4, -2, 0, 2, 4, 6}, odd[8] = {-7, -5, -3, -1, 1, 3, 5, 7};
  const wide_f32 scale = wide_lanes(d);
  return wide_bf16(wide_mul(wide_twice(even), scale), wide_mul(wide_twice(odd), scale));
}

AMN_FORCE_INLINE nibble_table q4_1_table(vec_f32 d, vec_f32 m) {
  static const float even[8] = {0, 2, 4, 6, 8, 10, 12, 14}, odd[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  const wide_f32 scale = wide_lanes(d), min = wide_lanes(m);
  return wide_bf16(wide_add(wide_mul(wide_twice(even), scale), min),
                   wide_add(wide_mul(wide_twice(odd), scale), min));
}

AMN_FORCE_INLINE nibble_table iq4_table(vec_f32 scale) {
  const vec levels = v_load_both_lanes((const uint8_t *)amn_iq4_levels);
  const wide_f32 of_lane = wide_lanes(scale);
  return wide_bf16(wide_mul(wide_even_s8(levels, IN_ORDER, 0), of_lane),
                   wide_mul(wide_odd_s8(levels, IN_ORDER, 0), of_lane));
}

AMN_FORCE_INLINE nibble_table fp4_table(vec words) {
  const __m512i both = _mm512_castsi256_si512(words);
  const __m512i twice = _mm512_shuffle_i64x2(both, both, _MM_SHUFFLE(1, 1, 0, 0));
  /* of words 9 to 15 */
  const __m512i signs =
      _mm512_set4_epi32((int)0x80008000, (int)0x80008000, (int)0x80008000, (int)0x80000000);
  return _mm512_mask_xor_epi32(twice, 0xf0f0, twice, signs);
}

/* The upper lane's indices count from 16 on. */
AMN_FORCE_INLINE __m512i wide_upper_lane(void) {
  return _mm512_inserti64x4(_mm512_setzero_si512(), v_set_u16(16), 1);
}

AMN_FORCE_INLINE wide_line line_of_nibbles(nibble_table table, vec index) {
  const __m512i words = _mm512_or_si512(_mm512_cvtepu8_epi16(index), wide_upper_lane());
  return _mm512_permutexvar_epi16(words, table);
}

AMN_FORCE_INLINE void store_nibbles(nibble_table table, vec index, uint8_t *dst) {
  store_line(dst, line_of_nibbles(table, index));
}

AMN_FORCE_INLINE void store_low_high_nibbles(nibble_table table, vec bytes, uint8_t *dst_a,
                                             uint8_t *dst_b) {
  const __m512i words = _mm512_cvtepu8_epi16(bytes), nibbles = _mm512_set1_epi16(15);
  const __m512i low = _mm512_ternarylogic_epi32(words, nibbles, wide_upper_lane(), 0xea);
  const __m512i high = _mm512_or_si512(_mm512_srli_epi16(words, 4), wide_upper_lane());
  const __m512i first = _mm512_permutexvar_epi16(low, table);
  const __m512i second = _mm512_permutexvar_epi16(high, table);
  _mm512_storeu_si512(dst_a, _mm512_shuffle_i64x2(first, second, _MM_SHUFFLE(1, 0, 1, 0)));
  _mm512_storeu_si512(dst_b, _mm512_shuffle_i64x2(first, second, _MM_SHUFFLE(3, 2, 3, 2)));
}

AMN_FORCE_INLINE void store_rows_of_nibbles(nibble_table table, const uint8_t *bytes,
                                            uint8_t *dst_a, uint8_t *dst_b) {
  const __m512i words = _mm512_cvtepu8_epi16(v_load(bytes));
  const __m512i low = _mm512_and_si512(words, _mm512_set1_epi16(15));
  const __m512i high = _mm512_or_si512(_mm512_srli_epi16(words, 4), _mm512_set1_epi16(16));
  _mm512_storeu_si512(dst_a, _mm512_permutexvar_epi16(low, table));
  _mm512_storeu_si512(dst_b, _mm512_permutexvar_epi16(high, table));
}

/* Four nibbles to a u64, as words of whose bits only the lowest four matter: both lanes of the
 * table are the same. */
AMN_FORCE_INLINE void store_32_nibbles(nibble_table table, const uint8_t *src, uint8_t *dst) {
  const __m512i pairs = _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)src));
  const __m512i from = _mm512_set1_epi64(4 | 0 << 16 | 12ll << 32 | 8ll << 48);
  const __m512i words = _mm512_multishift_epi64_epi8(from, pairs);
  _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(words, table));
}

AMN_FORCE_INLINE void store_64_nibbles(nibble_table a, nibble_table b, const uint8_t *src,
                                       uint8_t *dst) {
  store_32_nibbles(a, src, dst);
  store_32_nibbles(b, src + 16, dst + 64);
}
