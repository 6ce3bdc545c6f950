/* Integers packed into words, as GPTQ, EXL2 and AWQ store them.
 *
 * Codes lie [in, out], results [out, in]: 8 out features of a column come out of one vector of
 * words, and 8 vectors of results are transposed in registers. Where all columns of a tile have one
 * group, and so an out feature at most 16 outcomes, only codes are transposed, and looked up.
 *
 * Needs: blocks.tpl.h. Defines: packed_*, packed_16_*, zeros_*. */

#define UNIT AMN_TILE_UNIT_COLS /* fill whole words for any bits */

/* ---- codes of 8 out features ---- */

/* Those of column i of the unit that starts at `words`, as s32. */
typedef vec (*code_fn)(const uint8_t *words, size_t line_bytes, int i);

/* What distinguishes the packings: bits, or in_word = 1 if a word holds one column. */
typedef struct {
  int bits, is_awq;
  code_fn code;
} packing;

AMN_FORCE_INLINE vec gptq_code(int bits, const uint8_t *words, size_t line_bytes, int i) {
  const int bit = i * bits, shift = bit % 32;
  const uint8_t *line = words + (size_t)(bit / 32) * line_bytes;
  vec code = v_shr_u32(v_load(line), shift);
  if (shift + bits > 32) code = v_or(code, v_shl_u32(v_load(line + line_bytes), 32 - shift));
  return shift + bits == 32 ? code : v_and(code, v_set_u32((1u << bits) - 1));
}

AMN_FORCE_INLINE vec gptq2_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(2, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptq3_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(3, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptq4_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(4, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptq8_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(8, words, line_bytes, i);
}

AMN_FORCE_INLINE vec exl5_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(5, words, line_bytes, i);
}

AMN_FORCE_INLINE vec exl6_code(const uint8_t *words, size_t line_bytes, int i) {
  return gptq_code(6, words, line_bytes, i);
}

/* The same of planes, which are some lines each: the lowest bits of all columns, then the next. */
AMN_FORCE_INLINE vec planar_code(int bits, const uint8_t *words, size_t line_bytes, int i) {
  vec code = v_set_u32(0);
  for (int done = 0, width; done < bits; done += width) {
    width = bits - done >= 4 ? 4 : bits - done >= 2 ? 2 : 1;
    const vec word = v_load(words + (size_t)(done + i * width / 32) * line_bytes);
    const vec part = v_and(v_shr_u32(word, i * width % 32), v_set_u32((1u << width) - 1));
    code = v_or(code, v_shl_u32(part, done));
  }
  return code;
}

AMN_FORCE_INLINE vec gptqp3_code(const uint8_t *words, size_t line_bytes, int i) {
  return planar_code(3, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptqp5_code(const uint8_t *words, size_t line_bytes, int i) {
  return planar_code(5, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptqp6_code(const uint8_t *words, size_t line_bytes, int i) {
  return planar_code(6, words, line_bytes, i);
}

AMN_FORCE_INLINE vec gptqp7_code(const uint8_t *words, size_t line_bytes, int i) {
  return planar_code(7, words, line_bytes, i);
}

/* The eight values of a word that holds one column's. */
AMN_FORCE_INLINE vec awq4_values(const uint8_t *word) {
  static const uint32_t shifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  return v_and(v_shr_u32_each(v_load_u32_all(word), v_load(shifts)), v_set_u32(15));
}

AMN_FORCE_INLINE vec awq4_code(const uint8_t *words, size_t line_bytes, int i) {
  return awq4_values(words + (size_t)i * line_bytes);
}

#define GPTQ2 ((packing){2, 0, gptq2_code})
#define GPTQ3 ((packing){3, 0, gptq3_code})
#define GPTQ4 ((packing){4, 0, gptq4_code})
#define GPTQ8 ((packing){8, 0, gptq8_code})
#define EXL5 ((packing){5, 0, exl5_code})
#define EXL6 ((packing){6, 0, exl6_code})
#define GPTQP3 ((packing){3, 0, gptqp3_code})
#define GPTQP5 ((packing){5, 0, gptqp5_code})
#define GPTQP6 ((packing){6, 0, gptqp6_code})
#define GPTQP7 ((packing){7, 0, gptqp7_code})
#define AWQ4 ((packing){4, 1, awq4_code})

/* The first word of out feature `row` and column `col` of the tile, the latter a multiple of UNIT.
 */
AMN_FORCE_INLINE const uint8_t *words_at(packing p, amn_tile tile, size_t row, size_t col) {
  row += tile.row;
  col += tile.col;
  const size_t word =
      p.is_awq ? col * tile.stride + row / 8 : col / UNIT * (size_t)p.bits * tile.stride + row;
  return tile.words + 4 * word;
}

/* What 8 rows further down need, of dst and of words. Rows are far apart, where no hardware expects
 * the next access. */
AMN_FORCE_INLINE void prefetch_dst(const uint8_t *dst, size_t dst_stride, size_t n_bytes) {
  for (size_t k = 8; k < 16; k++)
    for (size_t i = 0; i < n_bytes; i += 64) v_prefetch(dst + k * dst_stride + i);
}

AMN_FORCE_INLINE void prefetch_words(const uint8_t *words, size_t line_bytes, size_t n_lines) {
  for (size_t i = 0; i < n_lines; i++) v_prefetch(words + i * line_bytes + 64);
}

/* ---- values by arithmetic: 8 out features ---- */

/* Eight out features in a unit of columns. */
typedef struct {
  const uint8_t *words;
  size_t line_bytes;
  const uint16_t *group_of;
  const float *zeros, *scales; /* of entry 0 */
} eight_rows;

AMN_FORCE_INLINE eight_rows eight_rows_at(packing p, amn_tile tile, const amn_tile_groups *groups,
                                          size_t row, size_t col) {
  const eight_rows rows = {words_at(p, tile, row, col), 4 * tile.stride, tile.group_of + col,
                           groups->zeros + row, groups->scales + row};
  return rows;
}

/* Their values in column i. Differences of integers this small are exact in float32. */
AMN_FORCE_INLINE vec_f32 column_of(packing p, eight_rows rows, int i) {
  const size_t group = rows.group_of[i];
  const vec_f32 code = v_f32_from_s32(p.code(rows.words, rows.line_bytes, i));
  return v_mul_f32(v_sub_f32(code, v_load_f32(rows.zeros + group)),
                   v_load_f32(rows.scales + group));
}

/* Compilers do not unroll these loops by themselves, and then shift by variables. */
#define EIGHT_TIMES(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

AMN_FORCE_INLINE void eight_columns_f32(packing p, eight_rows rows, int i, uint8_t *dst,
                                        size_t dst_stride) {
  vec columns[8];
#define COLUMN(k) columns[k] = v_bits_f32(column_of(p, rows, i + (k)));
  EIGHT_TIMES(COLUMN)
#undef COLUMN
  v_transpose_u32(columns);
  for (int k = 0; k < 8; k++) v_store(dst + (size_t)k * dst_stride + 4 * i, columns[k]);
}

AMN_FORCE_INLINE void packed_f32(packing p, amn_tile tile, const amn_tile_groups *groups,
                                 uint8_t *dst, size_t dst_stride) {
  for (size_t row = 0; row < tile.rows; row += 8)
    for (size_t col = 0; col < tile.cols; col += UNIT) {
      const eight_rows rows = eight_rows_at(p, tile, groups, row, col);
      uint8_t *to = dst + row * dst_stride + 4 * col;
      prefetch_dst(to, dst_stride, 4 * UNIT);
      if (row % 16 == 0 && !p.is_awq) prefetch_words(rows.words, rows.line_bytes, (size_t)p.bits);
      eight_columns_f32(p, rows, 0, to, dst_stride);
      eight_columns_f32(p, rows, 8, to, dst_stride);
      eight_columns_f32(p, rows, 16, to, dst_stride);
      eight_columns_f32(p, rows, 24, to, dst_stride);
    }
  v_end();
}

/* How results of 16 bits are rounded, and how they are stored: of whole lines, the two halves one
 * right after the other, since they may go past the caches. */
typedef struct {
  words_fn words_of;
  void (*store)(void *p, vec a);
  void (*store_lanes)(uint8_t *a, uint8_t *b, vec words);
  int is_streamed;
} results;

#define PLAIN(words_of) ((results){words_of, v_store, v_store_lanes, 0})
#define STREAMED(words_of) ((results){words_of, v_stream, v_stream_lanes, 1})

/* Two columns at a time, which lie side by side in the u32 of a row. */
AMN_FORCE_INLINE void sixteen_columns(packing p, words_fn words_of, eight_rows rows, int i,
                                      vec pairs[8]) {
#define PAIR(k) \
  pairs[k] = words_of(column_of(p, rows, i + 2 * (k)), column_of(p, rows, i + 2 * (k) + 1));
  EIGHT_TIMES(PAIR)
#undef PAIR
  v_transpose_u32(pairs);
}

AMN_FORCE_INLINE void by_arithmetic(packing p, results to, amn_tile tile,
                                    const amn_tile_groups *groups, uint8_t *dst,
                                    size_t dst_stride) {
  for (size_t row = 0; row < tile.rows; row += 8)
    for (size_t col = 0; col < tile.cols; col += UNIT) {
      const eight_rows rows = eight_rows_at(p, tile, groups, row, col);
      uint8_t *at = dst + row * dst_stride + 2 * col;
      vec low[8], high[8];
      if (!to.is_streamed) prefetch_dst(at, dst_stride, 2 * UNIT);
      if (row % 16 == 0 && !p.is_awq) prefetch_words(rows.words, rows.line_bytes, (size_t)p.bits);
      sixteen_columns(p, to.words_of, rows, 0, low);
      sixteen_columns(p, to.words_of, rows, 16, high);
      for (size_t k = 0; k < 8; k++, at += dst_stride) {
        to.store(at, low[k]);
        to.store(at + 32, high[k]);
      }
    }
}

/* ---- values by tables: out features k and k + 4, a lane each ---- */

/* Outcomes of codes 0 to 15 of two out features, whose zero points and scales stand 4 apart. */
AMN_FORCE_INLINE byte_table outcomes_of(words_fn words_of, const float *zeros,
                                        const float *scales) {
  static const float even_codes[8] = {0, 2, 4, 6, 8, 10, 12, 14};
  static const float odd_codes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  vec words[2];
  for (int i = 0; i < 2; i++) {
    const vec_f32 zero = v_set_f32(zeros[4 * i]), scale = v_set_f32(scales[4 * i]);
    words[i] = words_of(v_mul_f32(v_sub_f32(v_load_f32(even_codes), zero), scale),
                        v_mul_f32(v_sub_f32(v_load_f32(odd_codes), zero), scale));
  }
  const vec low_byte = v_set_u16(0xff);
  const byte_table table = {
      v_pack_u16(v_and(words[0], low_byte), v_and(words[1], low_byte)),
      v_pack_u16(v_shr_u16(words[0], 8), v_shr_u16(words[1], 8)),
  };
  return table;
}

/* Codes of 8 out features, each in a byte, from `words` on; values to dst. */
typedef void (*lookup_fn)(results to, const uint8_t *words, size_t line_bytes,
                          const byte_table *tables, uint8_t *dst, size_t dst_stride);

/* 32 columns of out features k and k + 4, of which each index has 16. */
AMN_FORCE_INLINE void store_32(results to, const byte_table *tables, int k, vec first, vec second,
                               uint8_t *dst, size_t dst_stride) {
  uint8_t *a = dst + (size_t)k * dst_stride, *b = dst + (size_t)(k + 4) * dst_stride;
  const vec low_1 = v_lookup16(tables[k].low, first), high_1 = v_lookup16(tables[k].high, first);
  const vec low_2 = v_lookup16(tables[k].low, second), high_2 = v_lookup16(tables[k].high, second);
  to.store_lanes(a, b, v_zip_low_u8(low_1, high_1));
  to.store_lanes(a + 16, b + 16, v_zip_high_u8(low_1, high_1));
  to.store_lanes(a + 32, b + 32, v_zip_low_u8(low_2, high_2));
  to.store_lanes(a + 48, b + 48, v_zip_high_u8(low_2, high_2));
}

/* 64 columns in four words. */
AMN_FORCE_INLINE void lookup_gptq2(results to, const uint8_t *words, size_t line_bytes,
                                   const byte_table *tables, uint8_t *dst, size_t dst_stride) {
  const vec mask = v_set_u8(3);
  vec rows[4];
  for (int i = 0; i < 4; i++) rows[i] = v_load(words + (size_t)i * line_bytes);
  v_transpose_lanes_u32(rows);
  for (int k = 0; k < 4; k++) {
    const vec a = v_and(rows[k], mask), b = v_and(v_shr_u16(rows[k], 2), mask);
    const vec c = v_and(v_shr_u16(rows[k], 4), mask), d = v_and(v_shr_u16(rows[k], 6), mask);
    const vec ab_low = v_zip_low_u8(a, b), cd_low = v_zip_low_u8(c, d);
    const vec ab_high = v_zip_high_u8(a, b), cd_high = v_zip_high_u8(c, d);
    store_32(to, tables, k, v_zip_low_u16(ab_low, cd_low), v_zip_high_u16(ab_low, cd_low), dst,
             dst_stride);
    store_32(to, tables, k, v_zip_low_u16(ab_high, cd_high), v_zip_high_u16(ab_high, cd_high),
             dst + 64, dst_stride);
  }
}

/* 32 columns in four words. */
AMN_FORCE_INLINE void lookup_gptq4(results to, const uint8_t *words, size_t line_bytes,
                                   const byte_table *tables, uint8_t *dst, size_t dst_stride) {
  const vec mask = v_set_u8(15);
  vec rows[4];
  for (int i = 0; i < 4; i++) rows[i] = v_load(words + (size_t)i * line_bytes);
  v_transpose_lanes_u32(rows);
  for (int k = 0; k < 4; k++) {
    const vec even = v_and(rows[k], mask), odd = v_and(v_shr_u16(rows[k], 4), mask);
    store_32(to, tables, k, v_zip_low_u8(even, odd), v_zip_high_u8(even, odd), dst, dst_stride);
  }
}

/* The tables of 8 out features in a group of a run. */
AMN_FORCE_INLINE void tables_of_8(words_fn words_of, const amn_tile_groups *groups, size_t group,
                                  size_t row, byte_table tables[4]) {
  const size_t first = group * AMN_TILE_ROWS + row;
  for (size_t k = 0; k < 4; k++)
    tables[k] = outcomes_of(words_of, groups->zeros + first + k, groups->scales + first + k);
}

AMN_FORCE_INLINE size_t end_of_run(amn_tile tile, size_t start) {
  return tile.cols - start < tile.run ? tile.cols : start + tile.run;
}

AMN_FORCE_INLINE void by_tables(packing p, lookup_fn lookup, size_t unit, results to, amn_tile tile,
                                const amn_tile_groups *groups, uint8_t *dst, size_t dst_stride) {
  byte_table tables[4];
  for (size_t row = 0; row < tile.rows; row += 8)
    for (size_t group = 0, col = 0; col < tile.cols; group++) {
      const size_t end = end_of_run(tile, col);
      tables_of_8(to.words_of, groups, group, row, tables);
      for (; col < end; col += unit) {
        const uint8_t *words = words_at(p, tile, row, col);
        uint8_t *at = dst + row * dst_stride + 2 * col;
        if (!to.is_streamed) prefetch_dst(at, dst_stride, 2 * unit);
        if (row % 16 == 0) prefetch_words(words, 4 * tile.stride, 4);
        lookup(to, words, 4 * tile.stride, tables, at, dst_stride);
      }
    }
}

/* ---- awq: 32 out features at once, as 16 bytes of words have them ---- */

/* Sixteen columns of four words each. Of word k, bytes 0 and 1 of all columns to the lanes of
 * bytes[k][at][0], 2 and 3 to those of bytes[k][at][1]. */
AMN_FORCE_INLINE void awq_transpose(const uint8_t *words, size_t line_bytes, size_t at,
                                    vec bytes[4][AMN_TILE_COLS / 16][2]) {
  vec a[4], b[4]; /* columns 0 to 3 and 8 to 11, 4 to 7 and 12 to 15 */
  for (int i = 0; i < 4; i++) {
    const uint8_t *line = words + (size_t)i * line_bytes;
    a[i] = v_load_lanes(line, line + 8 * line_bytes);
    b[i] = v_load_lanes(line + 4 * line_bytes, line + 12 * line_bytes);
  }
  v_transpose_lanes_u32(a);
  v_transpose_lanes_u32(b);
  for (int k = 0; k < 4; k++) {
    const vec first = v_transpose_lanes_u8(a[k]), second = v_transpose_lanes_u8(b[k]);
    bytes[k][at][0] = v_swap_middle_u64(v_zip_low_u32(first, second));
    bytes[k][at][1] = v_swap_middle_u64(v_zip_high_u32(first, second));
  }
}

/* 32 columns of 8 out features, of which each pair has 16. A byte has the nibbles of 0 and 2, the
 * next those of 4 and 6, then 1 and 3, 5 and 7. */
AMN_FORCE_INLINE void lookup_awq4(results to, const vec first[2], const vec second[2],
                                  const byte_table *tables, uint8_t *dst, size_t dst_stride) {
  const vec mask = v_set_u8(15);
  for (int k = 0; k < 2; k++) {
    store_32(to, tables, k, v_and(first[k], mask), v_and(second[k], mask), dst, dst_stride);
    store_32(to, tables, k + 2, v_and(v_shr_u16(first[k], 4), mask),
             v_and(v_shr_u16(second[k], 4), mask), dst, dst_stride);
  }
}

AMN_FORCE_INLINE void awq4_by_tables(results to, amn_tile tile, const amn_tile_groups *groups,
                                     uint8_t *dst, size_t dst_stride) {
  vec bytes[4][AMN_TILE_COLS / 16][2];
  byte_table tables[4];
  for (size_t col = 0; col < tile.cols; col += 16) {
    const uint8_t *words = words_at(AWQ4, tile, 0, col);
    if (tile.row % 128 == 0) prefetch_words(words, 4 * tile.stride, 16);
    awq_transpose(words, 4 * tile.stride, col / 16, bytes);
  }
  for (size_t row = 0; row < AMN_TILE_ROWS; row += 8)
    for (size_t group = 0, col = 0; col < tile.cols; group++) {
      const size_t end = end_of_run(tile, col);
      tables_of_8(to.words_of, groups, group, row, tables);
      for (; col < end; col += 32) {
        uint8_t *at = dst + row * dst_stride + 2 * col;
        if (!to.is_streamed) prefetch_dst(at, dst_stride, 64);
        lookup_awq4(to, bytes[row / 8][col / 16], bytes[row / 8][col / 16 + 1], tables, at,
                    dst_stride);
      }
    }
}

/* ---- zero points ---- */

/* Eight values of a line of words, which start at a whole byte. */
AMN_FORCE_INLINE vec zeros_of_8(packing p, const uint8_t *at) {
  static const uint32_t shifts[5][8] = {
      [2] = {0, 2, 4, 6, 8, 10, 12, 14},
      [3] = {0, 3, 6, 9, 12, 15, 18, 21},
      [4] = {0, 4, 8, 12, 16, 20, 24, 28},
  };
  if (p.is_awq) return awq4_values(at);
  if (p.bits == 8) return v_load_u8_as_u32(at);
  uint32_t packed = 0;
  memcpy(&packed, at, (size_t)p.bits);
  return v_shr_u32_each(v_set_u32(packed), v_load(shifts[p.bits]));
}

AMN_FORCE_INLINE void zeros_to_f32(packing p, const uint8_t *words, size_t first, size_t n,
                                   int shift, float *zeros) {
  const vec plus = v_set_u32((uint32_t)shift), mask = v_set_u32((1u << p.bits) - 1);
  for (size_t i = 0; i < n; i += 8) {
    const vec stored = zeros_of_8(p, words + (first + i) / 8 * (size_t)p.bits);
    v_store_f32(zeros + i, v_f32_from_s32(v_and(v_add_u32(stored, plus), mask)));
  }
  v_end();
}

/* ---- the kernels ---- */

AMN_FORCE_INLINE void rounded_gptq2(results to, amn_tile tile, const amn_tile_groups *groups,
                                    uint8_t *dst, size_t dst_stride) {
  if (tile.run && tile.run % 64 == 0 && tile.cols % 64 == 0)
    by_tables(GPTQ2, lookup_gptq2, 64, to, tile, groups, dst, dst_stride);
  else
    by_arithmetic(GPTQ2, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptq3(results to, amn_tile tile, const amn_tile_groups *groups,
                                    uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQ3, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptq4(results to, amn_tile tile, const amn_tile_groups *groups,
                                    uint8_t *dst, size_t dst_stride) {
  if (tile.run)
    by_tables(GPTQ4, lookup_gptq4, 32, to, tile, groups, dst, dst_stride);
  else
    by_arithmetic(GPTQ4, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptq8(results to, amn_tile tile, const amn_tile_groups *groups,
                                    uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQ8, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_exl5(results to, amn_tile tile, const amn_tile_groups *groups,
                                   uint8_t *dst, size_t dst_stride) {
  by_arithmetic(EXL5, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_exl6(results to, amn_tile tile, const amn_tile_groups *groups,
                                   uint8_t *dst, size_t dst_stride) {
  by_arithmetic(EXL6, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptqp3(results to, amn_tile tile, const amn_tile_groups *groups,
                                     uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQP3, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptqp5(results to, amn_tile tile, const amn_tile_groups *groups,
                                     uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQP5, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptqp6(results to, amn_tile tile, const amn_tile_groups *groups,
                                     uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQP6, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_gptqp7(results to, amn_tile tile, const amn_tile_groups *groups,
                                     uint8_t *dst, size_t dst_stride) {
  by_arithmetic(GPTQP7, to, tile, groups, dst, dst_stride);
}

AMN_FORCE_INLINE void rounded_awq4(results to, amn_tile tile, const amn_tile_groups *groups,
                                   uint8_t *dst, size_t dst_stride) {
  if (tile.run && tile.rows == AMN_TILE_ROWS)
    awq4_by_tables(to, tile, groups, dst, dst_stride);
  else
    by_arithmetic(AWQ4, to, tile, groups, dst, dst_stride);
}

/* Planes along a line, and values of 5 and 6 bits, are left to the scalar kernel: there are few
 * zero points. */
#define IS_PLANAR_gptq 0
#define IS_PLANAR_planar 1
#define IS_PLANAR_awq 0

#define ROUNDED(name, HOW)                                          \
  if (out == AMN_OUT_F16)                                           \
    rounded_##name(HOW(f16_words), *tile, groups, dst, dst_stride); \
  else                                                              \
    rounded_##name(HOW(bf16_words), *tile, groups, dst, dst_stride)

#define PACKED(layout, NAME, name, bits, to_f32, to_16)                                     \
  static void V_NAME(packed_##name)(const amn_tile *tile, const amn_tile_groups *groups,    \
                                    uint8_t *dst, size_t dst_stride) {                      \
    if (tile->rows % 8 || tile->cols % UNIT)                                                \
      packed_##name##_scalar(tile, groups, dst, dst_stride);                                \
    else                                                                                    \
      packed_f32(NAME, *tile, groups, dst, dst_stride);                                     \
  }                                                                                         \
  static void V_NAME(packed_16_##name)(const amn_tile *tile, const amn_tile_groups *groups, \
                                       amn_out out, uint8_t *dst, size_t dst_stride) {      \
    if (tile->is_streamed) {                                                                \
      ROUNDED(name, STREAMED);                                                              \
      v_stream_end();                                                                       \
    } else {                                                                                \
      ROUNDED(name, PLAIN);                                                                 \
    }                                                                                       \
    v_end();                                                                                \
  }                                                                                         \
  static void V_NAME(zeros_##name)(const uint8_t *words, size_t first, size_t n, int shift, \
                                   float *zeros) {                                          \
    if (n % 8 || IS_PLANAR_##layout || bits == 5 || bits == 6)                              \
      zeros_##name##_scalar(words, first, n, shift, zeros);                                 \
    else                                                                                    \
      zeros_to_f32(NAME, words, first, n, shift, zeros);                                    \
  }
#include "../kernels.def"
