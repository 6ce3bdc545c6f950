/* Vectors of as many floats as the level has registers for: what wide_8.h and wide_16.h provide
 * beside vec.h, of which a level includes one (V_WIDE). They define WIDE_LANES, 8 or 16,
 * WIDE_PARTS, and the types, and include this header before the functions.
 *
 *   wide_f32     WIDE_LANES floats
 *   wide         as many bytes, of integers
 *   wide_line    32 u16
 *   nibble_table 16 u16 for each of two lanes
 *   float_table  16 floats
 *
 * Of 32 bytes, each of WIDE_PARTS parts has the even ones and the odd ones in a wide_f32 each.
 * Bytes are in order, or in that of v_load_u8_zip1. */

typedef enum { IN_ORDER, IN_ZIP1 } byte_order;
typedef wide (*wide_words_fn)(wide_f32 even, wide_f32 odd);

AMN_FORCE_INLINE wide_f32 wide_set(float a);
AMN_FORCE_INLINE wide_f32 wide_all(vec_f32 a); /* whose elements are all the same */
AMN_FORCE_INLINE wide_f32 wide_add(wide_f32 a, wide_f32 b);
AMN_FORCE_INLINE wide_f32 wide_sub(wide_f32 a, wide_f32 b);
AMN_FORCE_INLINE wide_f32 wide_mul(wide_f32 a, wide_f32 b);
AMN_FORCE_INLINE wide_f32 wide_load(const float *src);
AMN_FORCE_INLINE void wide_store(float *dst, wide_f32 a);

/* Bytes WIDE_LANES * i and so on, in order; the even or odd ones of a part, those of s8 times 2^24.
 */
AMN_FORCE_INLINE wide_f32 wide_f32_of_s8(vec bytes, int i);
AMN_FORCE_INLINE wide_f32 wide_f32_of_u8(vec bytes, int i);
AMN_FORCE_INLINE wide_f32 wide_even_s8(vec bytes, byte_order order, int part);
AMN_FORCE_INLINE wide_f32 wide_odd_s8(vec bytes, byte_order order, int part);
AMN_FORCE_INLINE wide_f32 wide_even_u8(vec bytes, int part); /* of bytes in order */
AMN_FORCE_INLINE wide_f32 wide_odd_u8(vec bytes, int part);

/* A factor for each 16 of 32 elements: as those at i are wanted, as a part in zip1's order is. */
AMN_FORCE_INLINE wide_f32 wide_half(const float two[2], int i);
AMN_FORCE_INLINE wide_f32 wide_halves(const float two[2], int part);

/* Words of even and odd elements by turns, rounded; to where the part's elements belong. */
AMN_FORCE_INLINE wide wide_bf16(wide_f32 even, wide_f32 odd);
AMN_FORCE_INLINE wide wide_f16(wide_f32 even, wide_f32 odd);
AMN_FORCE_INLINE void wide_store_words(uint8_t *dst, byte_order order, int part, wide words);

/* 32 words, as they lie in a cache line: 16 and 16; of all parts of bytes in order. To memory, and
 * past the caches to a line of it. */
AMN_FORCE_INLINE wide_line line_of_halves(vec low, vec high);
AMN_FORCE_INLINE wide_line line_of_words(const wide parts[WIDE_PARTS]);
AMN_FORCE_INLINE void store_line(uint8_t *dst, wide_line line);
AMN_FORCE_INLINE void stream_line(uint8_t *dst, wide_line line);

/* ---- numbers to codes ----
 *
 * What the encoders take, as vec.h has it under the same names. Masks have elements of all ones or
 * all zeros. Of 32 elements each part has WIDE_LANES pairs, the first part the first of them. */

AMN_FORCE_INLINE wide wide_load_words(const uint8_t *src);
AMN_FORCE_INLINE wide_f32 wide_load_f16(const uint8_t *src); /* as f32 */
AMN_FORCE_INLINE wide wide_set_u16(uint16_t a);
AMN_FORCE_INLINE wide wide_set_u32(uint32_t a);

AMN_FORCE_INLINE wide_f32 wide_div(wide_f32 a, wide_f32 b);
AMN_FORCE_INLINE wide_f32 wide_min(wide_f32 a, wide_f32 b); /* b of a NaN or two zeros */
AMN_FORCE_INLINE wide_f32 wide_max(wide_f32 a, wide_f32 b); /* likewise */
AMN_FORCE_INLINE wide wide_bits(wide_f32 a);
AMN_FORCE_INLINE wide_f32 wide_from_bits(wide a);
AMN_FORCE_INLINE wide_f32 wide_f32_of_s32(wide a);
AMN_FORCE_INLINE wide wide_s32(wide_f32 a); /* rounded; none may be beyond s32 */
AMN_FORCE_INLINE wide_f32 wide_rounded_to_f16(wide_f32 a);

AMN_FORCE_INLINE wide wide_and(wide a, wide b);
AMN_FORCE_INLINE wide wide_and_not(wide not_a, wide b); /* b without the bits of the first */
AMN_FORCE_INLINE wide wide_select(wide mask, wide a, wide b);
AMN_FORCE_INLINE int wide_any(wide a); /* whether any bit is one */
AMN_FORCE_INLINE wide wide_add_u16(wide a, wide b);
AMN_FORCE_INLINE wide wide_sub_u16(wide a, wide b);
AMN_FORCE_INLINE wide wide_sub_sat_u16(wide a, wide b); /* 0 where b is larger */
AMN_FORCE_INLINE wide wide_min_u16(wide a, wide b);
AMN_FORCE_INLINE wide wide_shr_u16(wide a, int n);
AMN_FORCE_INLINE wide wide_add_u32(wide a, wide b);
AMN_FORCE_INLINE wide wide_max_s32(wide a, wide b);
AMN_FORCE_INLINE wide wide_shr_u32(wide a, int n);
AMN_FORCE_INLINE wide wide_shl_u32(wide a, int n);
AMN_FORCE_INLINE wide wide_equal_u16(wide a, wide b);
AMN_FORCE_INLINE wide wide_equal_u32(wide a, wide b);
AMN_FORCE_INLINE wide wide_greater(wide_f32 a, wide_f32 b);
AMN_FORCE_INLINE wide wide_add_greater(wide counts, wide_f32 a, wide_f32 b); /* one more in u32 */

/* Even elements of a, odd ones of b; the even, or odd, u32 of a, then those of b. */
AMN_FORCE_INLINE wide wide_even_odd_u16(wide a, wide b);
AMN_FORCE_INLINE wide wide_even_u32(wide a, wide b);
AMN_FORCE_INLINE wide wide_odd_u32(wide a, wide b);

/* One of 8 floats for each u32: table[index % 8]; one of 16, by the lowest four bits. */
AMN_FORCE_INLINE wide_f32 wide_lookup8(const float table[8], wide index);
AMN_FORCE_INLINE float_table table_of_floats(const float entries[16], float scale);
AMN_FORCE_INLINE wide_f32 wide_lookup16(float_table table, wide index);

/* Words below 256 to bytes; those below 128 with the signs of others. */
AMN_FORCE_INLINE vec wide_pack(const wide words[WIDE_PARTS]);
AMN_FORCE_INLINE vec wide_pack_signs(const wide words[WIDE_PARTS], const wide signs[WIDE_PARTS]);

/* Of pairs, those of the first 16 elements, or of the others; 8 floats, and zeros after them; to 8,
 * each the larger one of what is there twice. */
AMN_FORCE_INLINE vec_f32 wide_eight(const wide_f32 pairs[WIDE_PARTS], int i);
AMN_FORCE_INLINE wide_f32 wide_of_eight(vec_f32 a);
AMN_FORCE_INLINE vec_f32 wide_larger(wide_f32 a);

/* ---- codes of some bits ---- */

/* 32 codes of so many bits, one after another, as bytes: of what load_dense reads. */
#define DENSE_BYTES(bits) AMN_FORCE_INLINE vec bytes_of_dense_##bits(vec codes);
#define EACH_DENSE(F) F(1) F(2) F(3) F(5) F(6) F(7)
EACH_DENSE(DENSE_BYTES)
#undef DENSE_BYTES

/* 16 of those codes in each lane. DENSE_AT is the byte where they begin, or the last eight of them
 * do. */
AMN_FORCE_INLINE vec load_dense(const uint8_t *src, int bits) {
  if (bits == 1) return v_load_u32_all(src);
  if (bits == 2) return v_load_u64_all(src);
  if (bits == 3) return v_lower_lanes(v_load_u64_all(src), v_load_u64_all(src + 4));
  return v_load_lanes(src, src + 4 * bits - 16);
}
#define DENSE_SKIPPED(b) ((b) < 3 ? 0 : (b) == 3 ? 4 : 4 * (b) - 16)
#define DENSE_AT(b, lane, half) ((b) * (2 * (lane) + (half)) - (lane) * DENSE_SKIPPED(b))

/* ---- tables ---- */

/* 16 words for both lanes; for one and the other. */
AMN_FORCE_INLINE nibble_table table_of_words(vec words);
AMN_FORCE_INLINE nibble_table table_of_two(vec a, vec b);

/* bfloat16 of (q - 8) * d, of q * d + m and of IQ4's level q times 2^24 times the scale, whose
 * lanes have an element each; of E2M1, whose words for codes 0 to 7 are in each lane: the others
 * have the other sign, but 8 is 0. */
AMN_FORCE_INLINE nibble_table q4_0_table(vec_f32 d);
AMN_FORCE_INLINE nibble_table q4_1_table(vec_f32 d, vec_f32 m);
AMN_FORCE_INLINE nibble_table iq4_table(vec_f32 scale);
AMN_FORCE_INLINE nibble_table fp4_table(vec words);

/* The words of 32 indices; of a table whose lanes are not the same, the upper lane takes the upper
 * lane's. */
AMN_FORCE_INLINE wide_line line_of_nibbles(nibble_table table, vec index);
AMN_FORCE_INLINE void store_nibbles(nibble_table table, vec index, uint8_t *dst);

/* Two times 16 bytes of nibbles, for each lane: 16 elements in the low ones, then 16 in the high
 * ones. */
AMN_FORCE_INLINE void store_low_high_nibbles(nibble_table table, vec bytes, uint8_t *dst_a,
                                             uint8_t *dst_b);

/* 32 bytes, whose low nibbles are 32 elements of the lower lane, and the high ones of the other. */
AMN_FORCE_INLINE void store_rows_of_nibbles(nibble_table table, const uint8_t *bytes,
                                            uint8_t *dst_a, uint8_t *dst_b);

/* 64 nibbles, high ones first: 32 by one table, whose lanes are the same, and 32 by another. */
AMN_FORCE_INLINE void store_64_nibbles(nibble_table a, nibble_table b, const uint8_t *src,
                                       uint8_t *dst);
