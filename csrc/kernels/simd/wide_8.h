/* What wide.h declares, in the vectors of vec.h. */

#define WIDE_LANES 8
#define WIDE_PARTS 2

typedef vec_f32 wide_f32;
typedef vec wide;
typedef byte_table nibble_table;
typedef struct {
  vec_f32 low, high;
} float_table;
typedef struct {
  vec low, high;
} wide_line;

#include "wide.h"

AMN_FORCE_INLINE wide_f32 wide_set(float a) {
  return v_set_f32(a);
}
AMN_FORCE_INLINE wide_f32 wide_all(vec_f32 a) {
  return a;
}
AMN_FORCE_INLINE wide_f32 wide_add(wide_f32 a, wide_f32 b) {
  return v_add_f32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_sub(wide_f32 a, wide_f32 b) {
  return v_sub_f32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_mul(wide_f32 a, wide_f32 b) {
  return v_mul_f32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_load(const float *src) {
  return v_load_f32(src);
}
AMN_FORCE_INLINE void wide_store(float *dst, wide_f32 a) {
  v_store_f32(dst, a);
}

AMN_FORCE_INLINE wide_f32 wide_f32_of_s8(vec bytes, int i) {
  return v_f32_from_s32(v_s32_from_s8(bytes, i));
}

AMN_FORCE_INLINE wide_f32 wide_f32_of_u8(vec bytes, int i) {
  return v_f32_from_s32(v_and(v_s32_from_s8(bytes, i), v_set_u32(255)));
}

/* A part is eight bytes of each lane, in either order. */
AMN_FORCE_INLINE wide_f32 wide_even_s8(vec bytes, byte_order order, int part) {
  (void)order;
  return v_f32_from_s32(v_spread_even_s8(bytes, part));
}
AMN_FORCE_INLINE wide_f32 wide_odd_s8(vec bytes, byte_order order, int part) {
  (void)order;
  return v_f32_from_s32(v_spread_odd_s8(bytes, part));
}
AMN_FORCE_INLINE vec words_of_u8(vec bytes, int part) {
  return part ? v_zip_high_u8(bytes, v_zero()) : v_zip_low_u8(bytes, v_zero());
}
AMN_FORCE_INLINE wide_f32 wide_even_u8(vec bytes, int part) {
  return v_f32_from_s32(v_and(words_of_u8(bytes, part), v_set_u32(0xffff)));
}
AMN_FORCE_INLINE wide_f32 wide_odd_u8(vec bytes, int part) {
  return v_f32_from_s32(v_shr_u32(words_of_u8(bytes, part), 16));
}

AMN_FORCE_INLINE wide_f32 wide_half(const float two[2], int i) {
  return v_set_f32(two[i / 2]);
}
AMN_FORCE_INLINE wide_f32 wide_halves(const float two[2], int part) {
  return v_set_f32(two[part]);
}

AMN_FORCE_INLINE wide wide_bf16(wide_f32 even, wide_f32 odd) {
  return bf16_words(even, odd);
}
AMN_FORCE_INLINE wide wide_f16(wide_f32 even, wide_f32 odd) {
  return f16_words(even, odd);
}
AMN_FORCE_INLINE void wide_store_words(uint8_t *dst, byte_order order, int part, wide words) {
  if (order == IN_ZIP1)
    v_store(dst + 32 * part, words);
  else
    v_store_lanes(dst + 16 * part, dst + 32 + 16 * part, words);
}

AMN_FORCE_INLINE wide_line line_of_halves(vec low, vec high) {
  return (wide_line){low, high};
}
AMN_FORCE_INLINE wide_line line_of_words(const wide parts[WIDE_PARTS]) {
  return (wide_line){v_lower_lanes(parts[0], parts[1]), v_upper_lanes(parts[0], parts[1])};
}
AMN_FORCE_INLINE void store_line(uint8_t *dst, wide_line line) {
  v_store(dst, line.low);
  v_store(dst + 32, line.high);
}
AMN_FORCE_INLINE void stream_line(uint8_t *dst, wide_line line) {
  v_stream(dst, line.low);
  v_stream(dst + 32, line.high);
}

/* ---- numbers to codes ---- */

AMN_FORCE_INLINE wide wide_load_words(const uint8_t *src) {
  return v_load(src);
}
AMN_FORCE_INLINE wide_f32 wide_load_f16(const uint8_t *src) {
  return v_load_f16_as_f32(src);
}
AMN_FORCE_INLINE wide wide_set_u16(uint16_t a) {
  return v_set_u16(a);
}
AMN_FORCE_INLINE wide wide_set_u32(uint32_t a) {
  return v_set_u32(a);
}
AMN_FORCE_INLINE wide_f32 wide_div(wide_f32 a, wide_f32 b) {
  return v_div_f32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_min(wide_f32 a, wide_f32 b) {
  return v_min_f32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_max(wide_f32 a, wide_f32 b) {
  return v_max_f32(a, b);
}
AMN_FORCE_INLINE wide wide_bits(wide_f32 a) {
  return v_bits_f32(a);
}
AMN_FORCE_INLINE wide_f32 wide_from_bits(wide a) {
  return v_f32_from_bits(a);
}
AMN_FORCE_INLINE wide_f32 wide_f32_of_s32(wide a) {
  return v_f32_from_s32(a);
}
AMN_FORCE_INLINE wide wide_s32(wide_f32 a) {
  return v_s32_from_f32(a);
}
AMN_FORCE_INLINE wide_f32 wide_rounded_to_f16(wide_f32 a) {
  return v_rounded_to_f16(a);
}
AMN_FORCE_INLINE wide wide_and(wide a, wide b) {
  return v_and(a, b);
}
AMN_FORCE_INLINE wide wide_and_not(wide not_a, wide b) {
  return v_and_not(not_a, b);
}
AMN_FORCE_INLINE wide wide_select(wide mask, wide a, wide b) {
  return v_select(mask, a, b);
}
AMN_FORCE_INLINE int wide_any(wide a) {
  return v_any(a);
}
AMN_FORCE_INLINE wide wide_add_u16(wide a, wide b) {
  return v_add_u16(a, b);
}
AMN_FORCE_INLINE wide wide_sub_u16(wide a, wide b) {
  return v_sub_u16(a, b);
}
AMN_FORCE_INLINE wide wide_sub_sat_u16(wide a, wide b) {
  return v_sub_sat_u16(a, b);
}
AMN_FORCE_INLINE wide wide_min_u16(wide a, wide b) {
  return v_min_u16(a, b);
}
AMN_FORCE_INLINE wide wide_shr_u16(wide a, int n) {
  return v_shr_u16(a, n);
}
AMN_FORCE_INLINE wide wide_add_u32(wide a, wide b) {
  return v_add_u32(a, b);
}
AMN_FORCE_INLINE wide wide_max_s32(wide a, wide b) {
  return v_max_s32(a, b);
}
AMN_FORCE_INLINE wide wide_shr_u32(wide a, int n) {
  return v_shr_u32(a, n);
}
AMN_FORCE_INLINE wide wide_shl_u32(wide a, int n) {
  return v_shl_u32(a, n);
}
AMN_FORCE_INLINE wide wide_equal_u16(wide a, wide b) {
  return v_equal_u16(a, b);
}
AMN_FORCE_INLINE wide wide_equal_u32(wide a, wide b) {
  return v_equal_u32(a, b);
}
AMN_FORCE_INLINE wide wide_greater(wide_f32 a, wide_f32 b) {
  return v_greater_f32(a, b);
}
AMN_FORCE_INLINE wide wide_add_greater(wide counts, wide_f32 a, wide_f32 b) {
  return v_sub_u32(counts, v_greater_f32(a, b));
}
AMN_FORCE_INLINE wide wide_even_odd_u16(wide a, wide b) {
  return v_even_odd_u16(a, b);
}
AMN_FORCE_INLINE wide wide_even_u32(wide a, wide b) {
  return v_even_u32(a, b);
}
AMN_FORCE_INLINE wide wide_odd_u32(wide a, wide b) {
  return v_odd_u32(a, b);
}
AMN_FORCE_INLINE wide_f32 wide_lookup8(const float table[8], wide index) {
  return v_lookup8_f32(v_load_f32(table), index);
}
AMN_FORCE_INLINE float_table table_of_floats(const float entries[16], float scale) {
  const vec_f32 by = v_set_f32(scale);
  return (float_table){v_mul_f32(v_load_f32(entries), by), v_mul_f32(v_load_f32(entries + 8), by)};
}
AMN_FORCE_INLINE wide_f32 wide_lookup16(float_table table, wide index) {
  return v_lookup16_f32(table.low, table.high, index);
}
AMN_FORCE_INLINE vec wide_pack(const wide words[WIDE_PARTS]) {
  return v_pack_u16(words[0], words[1]);
}
AMN_FORCE_INLINE vec wide_pack_signs(const wide words[WIDE_PARTS], const wide signs[WIDE_PARTS]) {
  return v_pack_u16_signs(words[0], words[1], signs[0], signs[1]);
}
AMN_FORCE_INLINE vec_f32 wide_eight(const wide_f32 pairs[WIDE_PARTS], int i) {
  return pairs[i];
}
AMN_FORCE_INLINE wide_f32 wide_of_eight(vec_f32 a) {
  return a;
}
AMN_FORCE_INLINE vec_f32 wide_larger(wide_f32 a) {
  return a;
}

/* ---- codes of some bits ---- */

/* Which two bytes of its lane hold each code, for the first eight of both lanes, and for the
 * others; and what moves its highest bit to the top of those. */
typedef struct {
  uint8_t pair[2][32];
  uint16_t times[16];
} dense_places;

#define PAIR(b, lane, half, j) \
  DENSE_AT(b, lane, half) + (b) * (j) / 8, DENSE_AT(b, lane, half) + (b) * (j) / 8 + 1
#define PAIRS(b, lane, half)                                                                      \
  PAIR(b, lane, half, 0), PAIR(b, lane, half, 1), PAIR(b, lane, half, 2), PAIR(b, lane, half, 3), \
      PAIR(b, lane, half, 4), PAIR(b, lane, half, 5), PAIR(b, lane, half, 6),                     \
      PAIR(b, lane, half, 7)
#define TIMES(b, j) 1u << (16 - (b) - (b) * (j) % 8)
#define ALL_TIMES(b)                                                                         \
  TIMES(b, 0), TIMES(b, 1), TIMES(b, 2), TIMES(b, 3), TIMES(b, 4), TIMES(b, 5), TIMES(b, 6), \
      TIMES(b, 7)

#define DENSE_BYTES(b)                                                            \
  static const dense_places V_NAME(dense_places_##b) = {                          \
      {{PAIRS(b, 0, 0), PAIRS(b, 1, 0)}, {PAIRS(b, 0, 1), PAIRS(b, 1, 1)}},       \
      {ALL_TIMES(b), ALL_TIMES(b)}};                                              \
  AMN_FORCE_INLINE vec bytes_of_dense_##b(vec codes) {                            \
    const dense_places *at = &V_NAME(dense_places_##b);                           \
    const vec times = v_load(at->times);                                          \
    const vec first = v_mul_u16(v_lookup16(codes, v_load(at->pair[0])), times);   \
    const vec second = v_mul_u16(v_lookup16(codes, v_load(at->pair[1])), times);  \
    return v_pack_lanes_u16(v_shr_u16(first, 16 - b), v_shr_u16(second, 16 - b)); \
  }
EACH_DENSE(DENSE_BYTES)

#undef DENSE_BYTES
#undef ALL_TIMES
#undef TIMES
#undef PAIRS
#undef PAIR

/* ---- tables ---- */

AMN_FORCE_INLINE nibble_table table_of_words(vec words) {
  nibble_table table;
  v_split_table(words, &table.low, &table.high);
  return table;
}

AMN_FORCE_INLINE nibble_table table_of_two(vec a, vec b) {
  const vec mask = v_set_u16(0xff);
  return (nibble_table){v_pack_u16(v_and(a, mask), v_and(b, mask)),
                        v_pack_u16(v_shr_u16(a, 8), v_shr_u16(b, 8))};
}

/* The outcomes are those of 1 to 8, with their signs, and 0 with d's. Those of 1 to 8 are words 0
 * to 7 of each lane: byte 2 * (k - 1) is the lower byte of the outcome of k; index 0x80 looks up 0.
 */
AMN_FORCE_INLINE nibble_table q4_0_table(vec_f32 d) {
  static const float odd[8] = {1, 3, 5, 7, 1, 3, 5, 7}, even[8] = {2, 4, 6, 8, 2, 4, 6, 8};
  static const uint8_t low[16] = {14, 12, 10, 8, 6, 4, 2, 0, 0x80, 0, 2, 4, 6, 8, 10, 12};
  static const uint8_t high[16] = {15, 13, 11, 9, 7, 5, 3, 1, 1, 1, 3, 5, 7, 9, 11, 13};
  static const uint8_t kept[16] = {255, 255, 255, 255, 255, 255, 255, 255,
                                   128, 255, 255, 255, 255, 255, 255, 255};
  static const uint8_t sign[16] = {128, 128, 128, 128, 128, 128, 128, 128};
  const vec words = bf16_words(v_mul_f32(v_load_f32(odd), d), v_mul_f32(v_load_f32(even), d));
  const vec signless = v_and(v_lookup16(words, v_load_both_lanes(high)), v_load_both_lanes(kept));
  nibble_table table;
  table.low = v_lookup16(words, v_load_both_lanes(low));
  table.high = v_xor(signless, v_load_both_lanes(sign));
  return table;
}

AMN_FORCE_INLINE vec_f32 q4_1_outcomes(const float q[8], vec_f32 d, vec_f32 m) {
  return v_add_f32(v_mul_f32(v_load_f32(q), d), m);
}

/* The integers stand so that interleaving words and then bytes puts them in order. */
AMN_FORCE_INLINE nibble_table q4_1_table(vec_f32 d, vec_f32 m) {
  static const float q[4][8] = {{0, 4, 8, 12, 0, 4, 8, 12},
                                {2, 6, 10, 14, 2, 6, 10, 14},
                                {1, 5, 9, 13, 1, 5, 9, 13},
                                {3, 7, 11, 15, 3, 7, 11, 15}};
  const vec even = bf16_words(q4_1_outcomes(q[0], d, m), q4_1_outcomes(q[1], d, m));
  const vec odd = bf16_words(q4_1_outcomes(q[2], d, m), q4_1_outcomes(q[3], d, m));
  nibble_table table;
  table.low = v_even_odd_u8(even, v_shl_u16(odd, 8));
  table.high = v_even_odd_u8(v_shr_u16(even, 8), odd);
  return table;
}

/* The outcomes of the scale in each lane; `scale` is 2^-24 of it. The levels are taken in the order
 * in which interleaving words and then bytes puts them right. */
AMN_FORCE_INLINE nibble_table iq4_table(vec_f32 scale) {
  const vec levels = v_load_both_lanes((const uint8_t *)amn_iq4_levels);
  vec_f32 outcomes[4];
  for (int i = 0; i < 4; i++)
    outcomes[i] = v_mul_f32(v_f32_from_s32(v_spread_every_fourth_s8(levels, i)), scale);
  nibble_table table;
  split_quads(outcomes, &table.low, &table.high);
  return table;
}

/* The words of the values of codes 0 to 7 in each lane: the others but 8 have the other sign. */
AMN_FORCE_INLINE nibble_table fp4_table(vec words) {
  static const uint8_t low[16] = {0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14};
  static const uint8_t sign[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128};
  const vec low_index = v_load_both_lanes(low);
  const vec high_index = v_or(low_index, v_set_u8(1));
  nibble_table table;
  table.low = v_lookup16(words, low_index);
  table.high = v_xor(v_lookup16(words, high_index), v_load_both_lanes(sign));
  return table;
}

AMN_FORCE_INLINE void store_lanes_of_nibbles(nibble_table table, vec index, uint8_t *dst_a,
                                             uint8_t *dst_b) {
  const vec low = v_lookup16(table.low, index), high = v_lookup16(table.high, index);
  v_store_lanes(dst_a, dst_b, v_zip_low_u8(low, high));
  v_store_lanes(dst_a + 16, dst_b + 16, v_zip_high_u8(low, high));
}

AMN_FORCE_INLINE wide_line line_of_nibbles(nibble_table table, vec index) {
  const vec low = v_lookup16(table.low, index), high = v_lookup16(table.high, index);
  const vec parts[2] = {v_zip_low_u8(low, high), v_zip_high_u8(low, high)};
  return line_of_words(parts);
}

AMN_FORCE_INLINE void store_nibbles(nibble_table table, vec index, uint8_t *dst) {
  store_lanes_of_nibbles(table, index, dst, dst + 32);
}

AMN_FORCE_INLINE void store_low_high_nibbles(nibble_table table, vec bytes, uint8_t *dst_a,
                                             uint8_t *dst_b) {
  const vec mask = v_set_u8(15);
  store_lanes_of_nibbles(table, v_and(bytes, mask), dst_a, dst_b);
  store_lanes_of_nibbles(table, v_and(v_shr_u16(bytes, 4), mask), dst_a + 32, dst_b + 32);
}

AMN_FORCE_INLINE void store_rows_of_nibbles(nibble_table table, const uint8_t *bytes,
                                            uint8_t *dst_a, uint8_t *dst_b) {
  for (int i = 0; i < 2; i++) {
    const vec both = v_load_both_lanes(bytes + 16 * i);
    const vec index = v_and(v_shr_u32_lanes(both, 0, 4), v_set_u8(15));
    store_lanes_of_nibbles(table, index, dst_a + 32 * i, dst_b + 32 * i);
  }
}

AMN_FORCE_INLINE void store_zipped_nibbles(nibble_table table, vec index, uint8_t *dst) {
  const vec low = v_lookup16(table.low, index), high = v_lookup16(table.high, index);
  v_store(dst, v_zip_low_u8(low, high));
  v_store(dst + 32, v_zip_high_u8(low, high));
}

AMN_FORCE_INLINE void store_64_nibbles(nibble_table a, nibble_table b, const uint8_t *src,
                                       uint8_t *dst) {
  const vec bytes = v_load_u8_zip2(src), mask = v_set_u8(15);
  const vec high = v_and(v_shr_u16(bytes, 4), mask), low = v_and(bytes, mask);
  store_zipped_nibbles(a, v_zip_low_u8(high, low), dst);
  store_zipped_nibbles(b, v_zip_high_u8(high, low), dst + 64);
}
