/* The vector vocabulary: what a level's vec_*.h provides, and all that the templates know of
 * vectors.
 *
 * A vec_*.h defines, inside its target region, V_LEVEL, V_NAME, V_LETTER, V_SUPPORTED, V_OF_NO_ROW
 * and V_STREAM (level_table.h says what they are), V_WIDE (wide.h does) and the types below; it
 * includes this header; then it defines every function declared here. One that is missing or has
 * other parameters fails to compile. For number_encoders.h it also defines
 *
 *   V_BOUNDS                 what finds places of bfloat16 in a codebook: bounds_8.tpl.h or
 *                            bounds_16.tpl.h
 *   V_EACH_SOURCE(F, ...)    F(source, ...) of each source that its encoders take
 *   V_OTHER_SOURCES(kernel)  what takes the others
 *
 * The types are
 *
 *   vec      32 bytes: u8x32, u16x16, u32x8, u64x4, or their signed kinds, as each function takes
 *            it
 *   vec_f32  f32x8
 *
 * Element 0 is at the lowest address. A *lane* is one half: bytes 0 to 15, the lower, or 16 to 31,
 * the upper. "Within lanes" means twice the same, once for each half. Where nothing is said of the
 * order, element i of the result is made of elements i.
 *
 * Pointers may have any alignment, and no more is read than the elements that are named. Integers
 * are little-endian and wrap around. Masks have elements of all ones or all zeros. `int` parameters
 * are constants once inlined. What is called undefined may be anything, but does not trap.
 *
 * Float operations round once, to nearest even, under the IEEE default mode that the driver sets:
 * subnormals count, and a product is never fused with a sum. A NaN gives a NaN, of any payload. */

#if defined(__GNUC__)
#pragma GCC diagnostic error "-Wunused-function" /* also of one that no template uses */
#endif

/* Leaves vector code, where the compiler does not see to it: before each kernel returns. */
AMN_FORCE_INLINE void v_end(void);

/* ---- loads and stores ---- */

AMN_FORCE_INLINE vec v_load(const void *p);
AMN_FORCE_INLINE void v_store(void *p, vec a);
AMN_FORCE_INLINE vec_f32 v_load_f32(const void *p);
AMN_FORCE_INLINE void v_store_f32(void *p, vec_f32 a);

/* The lower lane at a, the upper one at b; the same 16 bytes as both. */
AMN_FORCE_INLINE vec v_load_lanes(const uint8_t *a, const uint8_t *b);
AMN_FORCE_INLINE void v_store_lanes(uint8_t *a, uint8_t *b, vec words);
AMN_FORCE_INLINE vec v_load_both_lanes(const uint8_t *p);

/* 32 bytes in the order from which one zip of bytes, or two (of bytes, then of u16), low before
 * high, bring elements in order: in groups of 8 bytes 0, 2 | 1, 3; in groups of 4 0, 2, 4, 6 | 1,
 * 3, 5, 7. */
AMN_FORCE_INLINE vec v_load_u8_zip1(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u8_zip2(const uint8_t *p);

/* 8 elements of another width; 16 of them for u16. */
AMN_FORCE_INLINE vec v_load_u8_as_u32(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_s8_as_s32(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u16_as_u32(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u8_as_u16(const uint8_t *p);
AMN_FORCE_INLINE vec_f32 v_load_f16_as_f32(const uint8_t *p);
AMN_FORCE_INLINE vec_f32 v_load_f64_as_f32(const uint8_t *p); /* rounded */

/* n u32, and 8 - n zeros after them. */
AMN_FORCE_INLINE vec v_load_some_u32(const uint8_t *p, int n);

/* One element everywhere. */
AMN_FORCE_INLINE vec v_load_u32_all(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u64_all(const uint8_t *p);
AMN_FORCE_INLINE vec_f32 v_load_f16_all(const uint8_t *p); /* as f32 */

/* One element in all of each lane: those at a and b, those at a and a + 1. The last one gives two
 * such vectors, of two half floats at a and two at b. */
AMN_FORCE_INLINE vec_f32 v_load_f16_lanes(const uint8_t *a, const uint8_t *b); /* as f32 */
AMN_FORCE_INLINE vec_f32 v_load_f32_lanes(const float *a);
AMN_FORCE_INLINE void v_load_two_f16_lanes(const uint8_t *a, const uint8_t *b, vec_f32 *first,
                                           vec_f32 *second);

/* Each of a few elements several times, in order: 2 u64; 4 u8 as u16; 2 u8 as u16; 4 u16; 4 u8, and
 * those in zip1's order. */
AMN_FORCE_INLINE vec v_load_u64_twice(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u8_as_u16_times4(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u8_as_u16_times8(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_u16_times4(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_rows_u8(const uint8_t *four);
AMN_FORCE_INLINE vec v_load_rows_u8_zip1(const uint8_t *four);

/* What is at those addresses, in order. */
AMN_FORCE_INLINE vec v_load_u64x4(const uint64_t *a, const uint64_t *b, const uint64_t *c,
                                  const uint64_t *d);
AMN_FORCE_INLINE vec v_load_u32x8(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                  const uint32_t *d, const uint32_t *e, const uint32_t *f,
                                  const uint32_t *g, const uint32_t *h);

/* The nibbles of bytes as bytes, those of byte i at 2i and 2i + 1: of 16 bytes, the low one first
 * or the high one; of 8 bytes, the low one first, in the lower lane, the upper one being undefined.
 */
AMN_FORCE_INLINE vec v_load_nibbles_as_u8_x32(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_nibbles_high_first(const uint8_t *p);
AMN_FORCE_INLINE vec v_load_nibbles_as_u8(const uint8_t *p);

/* Of 8 bytes, four bytes each: its low nibble twice, then its high one twice. The upper four bits
 * over the low nibble are undefined. */
AMN_FORCE_INLINE vec v_nibbles_twice(const uint8_t *p);

/* To 32 aligned bytes of memory, past the caches; v_stream_end puts it before all later stores. */
AMN_FORCE_INLINE void v_stream(void *p, vec a);
AMN_FORCE_INLINE void v_stream_end(void);

/* What is at p will be wanted soon; p may be anything. */
AMN_FORCE_INLINE void v_prefetch(const void *p);

/* ---- constants ---- */

AMN_FORCE_INLINE vec v_zero(void);
AMN_FORCE_INLINE vec v_set_u8(uint8_t a);
AMN_FORCE_INLINE vec v_set_u16(uint16_t a);
AMN_FORCE_INLINE vec v_set_u32(uint32_t a);
AMN_FORCE_INLINE vec v_set_u64(uint64_t a);
AMN_FORCE_INLINE vec_f32 v_set_f32(float a);
AMN_FORCE_INLINE vec v_set_u16_lanes(uint16_t a, uint16_t b); /* a in the lower lane */
AMN_FORCE_INLINE vec v_set_u64x4(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* 0 to 15 as f32, in an order of the level's own: of u32 below 65536 that are made of both, element
 * by element, v_pack_iota_u32 makes u16 in order. */
AMN_FORCE_INLINE void v_iota_f32(vec_f32 *a, vec_f32 *b);
AMN_FORCE_INLINE vec v_pack_iota_u32(vec a, vec b);

/* ---- bits and masks ---- */

AMN_FORCE_INLINE vec v_and(vec a, vec b);
AMN_FORCE_INLINE vec v_or(vec a, vec b);
AMN_FORCE_INLINE vec v_xor(vec a, vec b);
AMN_FORCE_INLINE vec v_and_not(vec not_a, vec b);      /* b without the bits of the first */
AMN_FORCE_INLINE vec v_select(vec mask, vec a, vec b); /* a where the mask has ones */
AMN_FORCE_INLINE int v_all(vec mask);                  /* whether all of it is ones */
AMN_FORCE_INLINE int v_any(vec mask);                  /* whether any bit is one */
AMN_FORCE_INLINE uint32_t v_signs_u32(vec a);          /* bit i: the uppermost one of u32 i */
AMN_FORCE_INLINE uint32_t v_signs_u8(vec a);           /* bit i: the uppermost one of byte i */
AMN_FORCE_INLINE vec v_select_lanes(vec a, vec b);     /* the lower one of a, the upper one of b */
AMN_FORCE_INLINE vec v_even_odd_u8(vec a, vec b);      /* even elements of a, odd ones of b */
AMN_FORCE_INLINE vec v_even_odd_u16(vec a, vec b);

AMN_FORCE_INLINE vec v_equal_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_equal_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_equal_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_greater_s8(vec a, vec b);
AMN_FORCE_INLINE vec v_greater_s16(vec a, vec b);
AMN_FORCE_INLINE vec v_greater_s32(vec a, vec b);
AMN_FORCE_INLINE vec v_greater_f32(vec_f32 a, vec_f32 b);
AMN_FORCE_INLINE vec v_is_nan_f32(vec_f32 a);
AMN_FORCE_INLINE vec v_unordered_f32(vec_f32 a, vec_f32 b); /* where either is a NaN */

/* ---- integers ---- */

AMN_FORCE_INLINE vec v_add_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_add_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_add_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_sub_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_sub_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_sub_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_sub_sat_u8(vec a, vec b); /* 0 where b is larger */
AMN_FORCE_INLINE vec v_sub_sat_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_min_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_min_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_max_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_max_s16(vec a, vec b);
AMN_FORCE_INLINE vec v_max_s32(vec a, vec b);
AMN_FORCE_INLINE vec v_min_s32(vec a, vec b);
AMN_FORCE_INLINE uint16_t v_largest_u16(vec a); /* of all elements */
AMN_FORCE_INLINE uint32_t v_largest_s32(vec a);
AMN_FORCE_INLINE vec v_mul_u16(vec a, vec b);      /* the lower 16 bits */
AMN_FORCE_INLINE vec v_mul_high_u16(vec a, vec b); /* the upper 16 bits */
AMN_FORCE_INLINE vec v_mul_u32(vec a, vec b);      /* the lower 32 bits */

/* Shifts bring in zeros; a count of as many bits as the element has, or more, is undefined. */
AMN_FORCE_INLINE vec v_shr_u16(vec a, int n);
AMN_FORCE_INLINE vec v_shl_u16(vec a, int n);
AMN_FORCE_INLINE vec v_shr_u32(vec a, int n);
AMN_FORCE_INLINE vec v_shl_u32(vec a, int n);
AMN_FORCE_INLINE vec v_shr_u32_lanes(vec a, int low, int high);    /* a count for each lane */
AMN_FORCE_INLINE vec v_shr_u32_each(vec a, vec counts);            /* u32 i by counts[i] */
AMN_FORCE_INLINE vec v_shl_u32_each(vec a, vec counts);            /* the same; 32 gives 0 */
AMN_FORCE_INLINE vec v_shr_u32_each2(vec a);                       /* u32 i by 2i */
AMN_FORCE_INLINE vec v_shr_u32_each4(vec a);                       /* u32 i by 4i */
AMN_FORCE_INLINE vec v_shr_u64_by_turns(vec a, int even, int odd); /* u64 0 and 2; 1 and 3 */

/* ---- floats ---- */

AMN_FORCE_INLINE vec_f32 v_add_f32(vec_f32 a, vec_f32 b);
AMN_FORCE_INLINE vec_f32 v_sub_f32(vec_f32 a, vec_f32 b);
AMN_FORCE_INLINE vec_f32 v_mul_f32(vec_f32 a, vec_f32 b);
AMN_FORCE_INLINE vec_f32 v_div_f32(vec_f32 a, vec_f32 b);
AMN_FORCE_INLINE vec_f32 v_min_f32(vec_f32 a, vec_f32 b); /* b of a NaN or two zeros */
AMN_FORCE_INLINE vec_f32 v_max_f32(vec_f32 a, vec_f32 b); /* likewise */
AMN_FORCE_INLINE vec_f32 v_sqrt_f32(vec_f32 a);
AMN_FORCE_INLINE vec_f32 v_least_f32(vec_f32 a); /* of all elements, everywhere; no NaN */
AMN_FORCE_INLINE vec v_bits_f32(vec_f32 a);
AMN_FORCE_INLINE vec_f32 v_f32_from_bits(vec a);
AMN_FORCE_INLINE vec_f32 v_f32_from_s32(vec a);
AMN_FORCE_INLINE vec v_s32_from_f32(vec_f32 a);           /* rounded; none may be beyond s32 */
AMN_FORCE_INLINE vec v_s32_cut_f32(vec_f32 a);            /* towards 0; likewise */
AMN_FORCE_INLINE vec_f32 v_rounded_to_f16(vec_f32 a);     /* as f32 */
AMN_FORCE_INLINE void v_add_to_f64(double *p, vec_f32 a); /* to the 8 that are there */
AMN_FORCE_INLINE vec_f32 v_f32_from_f16(vec halves);      /* those in the lower lane */

/* 16 half floats, rounded: those of `low`, then of `high`; or one of each by turns. */
AMN_FORCE_INLINE vec v_f16_from_f32(vec_f32 low, vec_f32 high);
AMN_FORCE_INLINE vec v_f16_pairs_from_f32(vec_f32 even, vec_f32 odd);

/* Element i everywhere, i < 4; i in the lower lane and i + 1 in the upper one, i < 7. */
AMN_FORCE_INLINE vec_f32 v_f32_all(vec_f32 a, int i);
AMN_FORCE_INLINE vec_f32 v_f32_lanes(vec_f32 a, int i);

/* ---- order and width ---- */

/* Within lanes: the elements of the lower, or upper, half of a and of b by turns, those of a first.
 */
AMN_FORCE_INLINE vec v_zip_low_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_high_u8(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_low_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_high_u16(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_low_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_high_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_low_u64(vec a, vec b);
AMN_FORCE_INLINE vec v_zip_high_u64(vec a, vec b);

/* The even, or odd, u32 of a, then those of b. */
AMN_FORCE_INLINE vec v_even_u32(vec a, vec b);
AMN_FORCE_INLINE vec v_odd_u32(vec a, vec b);

/* Two vectors to one of half the width, in order; elements that do not fit are undefined. */
AMN_FORCE_INLINE vec v_pack_u32(vec low, vec high);
AMN_FORCE_INLINE vec v_pack_u16(vec low, vec high);
AMN_FORCE_INLINE vec v_pack_lanes_u16(vec low, vec high); /* within lanes */

/* Four vectors of s32 from -128 to 127, to bytes in order. */
AMN_FORCE_INLINE vec v_pack_s32(vec a, vec b, vec c, vec d);

/* v_pack_u16 with the uppermost bit of each byte from that of the signs' element. */
AMN_FORCE_INLINE vec v_pack_u16_signs(vec low, vec high, vec signs_low, vec signs_high);

/* 8 of 32 bytes, from 8 * part on; 16 of them, from 16 * part on. */
AMN_FORCE_INLINE vec v_permute_u32(vec a, vec index); /* u32 i is a's index[i] % 8 */
AMN_FORCE_INLINE vec v_s32_from_s8(vec a, int part);
AMN_FORCE_INLINE vec v_u16_from_u8(vec a, int part);

/* Within lanes, a byte to the top of each u32 i, over zeros: byte 2i, or 2i + 1, of the lower half
 * or, with `upper` 1, of the upper one; byte 4i + first. */
AMN_FORCE_INLINE vec v_spread_even_s8(vec a, int upper);
AMN_FORCE_INLINE vec v_spread_odd_s8(vec a, int upper);
AMN_FORCE_INLINE vec v_spread_every_fourth_s8(vec a, int first);

/* Four rows of u32, transposed within each lane; eight rows, transposed; within lanes four rows of
 * four bytes, transposed. */
AMN_FORCE_INLINE void v_transpose_lanes_u32(vec rows[4]);
AMN_FORCE_INLINE void v_transpose_u32(vec rows[8]);
AMN_FORCE_INLINE vec v_transpose_lanes_u8(vec a);

/* u64 0, 2, 1, 3. */
AMN_FORCE_INLINE vec v_swap_middle_u64(vec a);

/* One lane as both. */
AMN_FORCE_INLINE vec v_lower_lane(vec a);
AMN_FORCE_INLINE vec v_upper_lane(vec a);

/* The lower, or upper, lane of a, then that of b. */
AMN_FORCE_INLINE vec v_lower_lanes(vec a, vec b);
AMN_FORCE_INLINE vec v_upper_lanes(vec a, vec b);

/* ---- tables ---- */

/* Within lanes: table[index] for each byte; 0 for the index 0x80; any other from 16 on is
 * undefined. */
AMN_FORCE_INLINE vec v_lookup16(vec table, vec index);

/* The low bytes of 16 u16, and their high bytes, in both lanes. */
AMN_FORCE_INLINE void v_split_table(vec words, vec *low, vec *high);

/* Within both lanes: of the upper u16 of eight u32, the low bytes in 0 to 7, the high ones in 8
 * to 15. */
AMN_FORCE_INLINE vec v_split_upper_u16(vec a);

/* One of 8 f32 for each u32: table[index % 8]. */
AMN_FORCE_INLINE vec_f32 v_lookup8_f32(vec_f32 table, vec index);

/* One of 16 f32, of which low has the first 8, for the lowest four bits of each u32. */
AMN_FORCE_INLINE vec_f32 v_lookup16_f32(vec_f32 low, vec_f32 high, vec index);
