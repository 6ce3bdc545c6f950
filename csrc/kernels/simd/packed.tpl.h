/* Integers packed into words, as GPTQ, EXL2 and AWQ store them.
 *
 * Codes lie [in, out], results [out, in]. A packing brings the codes of 8 out features and 32
 * columns together, a byte each; what comes after that is the same for all: where all columns of
 * those have one group, a row's values are looked up, of at most 4 bits, or computed; where each
 * has its own, columns are computed and transposed.
 *
 * Needs: words.tpl.h, wide.h. Defines: packed_*, packed_16_*, zeros_*. */

#define UNIT AMN_TILE_UNIT_COLS /* fill whole words for any bits */

/* What 8 out features and some columns have in common. */
typedef struct {
  const float *zeros, *scales; /* of the group; where columns have their own, of entry 0 */
  const uint16_t *group_of;    /* and where that begins among the entries */
  nibble_table tables[8];
} unit_factors;

/* Codes of 8 out features and UNIT columns to values. */
typedef void (*unit_fn)(const vec codes[8], const unit_factors *factors, uint8_t *dst,
                        size_t dst_stride);

/* ---- rows of one group ---- */

/* Outcomes of codes 0 to 15. */
AMN_FORCE_INLINE nibble_table outcomes_of(words_fn words_of, float zero, float scale) {
  static const float even[8] = {0, 2, 4, 6, 8, 10, 12, 14}, odd[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  const vec_f32 minus = v_set_f32(zero), times = v_set_f32(scale);
  return table_of_words(words_of(v_mul_f32(v_sub_f32(v_load_f32(even), minus), times),
                                 v_mul_f32(v_sub_f32(v_load_f32(odd), minus), times)));
}

static void V_NAME(tables_of_8)(amn_out out, unit_factors *factors) {
  for (int k = 0; k < 8; k++)
    factors->tables[k] = out == AMN_OUT_F16
                             ? outcomes_of(f16_words, factors->zeros[k], factors->scales[k])
                             : outcomes_of(bf16_words, factors->zeros[k], factors->scales[k]);
  v_end();
}

/* Differences of integers this small are exact in float32. */
AMN_FORCE_INLINE wide_f32 wide_value(wide_f32 code, float zero, float scale) {
  return wide_mul(wide_sub(code, wide_set(zero)), wide_set(scale));
}

AMN_FORCE_INLINE wide_line line_of_values(wide_words_fn words_of, vec bytes, float zero,
                                          float scale) {
  wide parts[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++)
    parts[i] = words_of(wide_value(wide_even_u8(bytes, i), zero, scale),
                        wide_value(wide_odd_u8(bytes, i), zero, scale));
  return line_of_words(parts);
}

/* How the lines of a unit leave: next rows are fetched, since they are far apart, where no hardware
 * expects the next access; or they go past the caches. */
#define UNIT_OF_LINES(name, LINE)                                                         \
  static void V_NAME(name)(const vec codes[8], const unit_factors *factors, uint8_t *dst, \
                           size_t dst_stride) {                                           \
    for (size_t k = 0; k < 8; k++) v_prefetch(dst + (8 + k) * dst_stride);                \
    for (size_t k = 0; k < 8; k++) store_line(dst + k * dst_stride, LINE);                \
    v_end();                                                                              \
  }                                                                                       \
  static void V_NAME(name##_streamed)(const vec codes[8], const unit_factors *factors,    \
                                      uint8_t *dst, size_t dst_stride) {                  \
    for (size_t k = 0; k < 8; k++) stream_line(dst + k * dst_stride, LINE);               \
    v_end();                                                                              \
  }
UNIT_OF_LINES(unit_by_tables, line_of_nibbles(factors->tables[k], codes[k]))
UNIT_OF_LINES(unit_bf16, line_of_values(wide_bf16, codes[k], factors->zeros[k], factors->scales[k]))
UNIT_OF_LINES(unit_f16, line_of_values(wide_f16, codes[k], factors->zeros[k], factors->scales[k]))
#undef UNIT_OF_LINES

static void V_NAME(unit_f32)(const vec codes[8], const unit_factors *factors, uint8_t *dst,
                             size_t dst_stride) {
  for (size_t k = 0; k < 8; k++) {
    float *to = (float *)(dst + k * dst_stride);
    v_prefetch(dst + (8 + k) * dst_stride);
    v_prefetch(dst + (8 + k) * dst_stride + 64);
    for (int i = 0; i < UNIT / WIDE_LANES; i++)
      wide_store(to + WIDE_LANES * i,
                 wide_value(wide_f32_of_u8(codes[k], i), factors->zeros[k], factors->scales[k]));
  }
  v_end();
}

/* ---- columns of a group each ---- */

/* Codes of 8 out features and UNIT columns, column by column, to values. */
typedef void (*columns_fn)(const float codes[UNIT][8], const unit_factors *factors, uint8_t *dst,
                           size_t dst_stride);

AMN_FORCE_INLINE vec_f32 column_of(const float codes[UNIT][8], const unit_factors *factors, int i) {
  const size_t group = factors->group_of[i];
  return v_mul_f32(v_sub_f32(v_load_f32(codes[i]), v_load_f32(factors->zeros + group)),
                   v_load_f32(factors->scales + group));
}

/* Compilers do not unroll all such loops by themselves, and then shift by variables. */
#define EIGHT_TIMES(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

AMN_FORCE_INLINE void eight_columns(const float codes[UNIT][8], const unit_factors *factors, int i,
                                    vec rows[8]) {
#define COLUMN(k) rows[k] = v_bits_f32(column_of(codes, factors, i + (k)));
  EIGHT_TIMES(COLUMN)
#undef COLUMN
  v_transpose_u32(rows);
}

/* Two columns at a time, which lie side by side in the u32 of a row. */
AMN_FORCE_INLINE void sixteen_columns(words_fn words_of, const float codes[UNIT][8],
                                      const unit_factors *factors, int i, vec rows[8]) {
#define PAIR(k)                                              \
  rows[k] = words_of(column_of(codes, factors, i + 2 * (k)), \
                     column_of(codes, factors, i + 2 * (k) + 1));
  EIGHT_TIMES(PAIR)
#undef PAIR
  v_transpose_u32(rows);
}

static void V_NAME(columns_f32)(const float codes[UNIT][8], const unit_factors *factors,
                                uint8_t *dst, size_t dst_stride) {
  for (size_t k = 0; k < 8; k++) {
    v_prefetch(dst + (8 + k) * dst_stride);
    v_prefetch(dst + (8 + k) * dst_stride + 64);
  }
  for (int i = 0; i < UNIT; i += 8) {
    vec rows[8];
    eight_columns(codes, factors, i, rows);
    for (size_t k = 0; k < 8; k++) v_store(dst + k * dst_stride + 4 * (size_t)i, rows[k]);
  }
  v_end();
}

#define COLUMNS_OF_LINES(name, words_of)                                                          \
  static void V_NAME(name)(const float codes[UNIT][8], const unit_factors *factors, uint8_t *dst, \
                           size_t dst_stride) {                                                   \
    vec low[8], high[8];                                                                          \
    for (size_t k = 0; k < 8; k++) v_prefetch(dst + (8 + k) * dst_stride);                        \
    sixteen_columns(words_of, codes, factors, 0, low);                                            \
    sixteen_columns(words_of, codes, factors, 16, high);                                          \
    for (size_t k = 0; k < 8; k++)                                                                \
      store_line(dst + k * dst_stride, line_of_halves(low[k], high[k]));                          \
    v_end();                                                                                      \
  }                                                                                               \
  static void V_NAME(name##_streamed)(const float codes[UNIT][8], const unit_factors *factors,    \
                                      uint8_t *dst, size_t dst_stride) {                          \
    vec low[8], high[8];                                                                          \
    sixteen_columns(words_of, codes, factors, 0, low);                                            \
    sixteen_columns(words_of, codes, factors, 16, high);                                          \
    for (size_t k = 0; k < 8; k++)                                                                \
      stream_line(dst + k * dst_stride, line_of_halves(low[k], high[k]));                         \
    v_end();                                                                                      \
  }
COLUMNS_OF_LINES(columns_bf16, bf16_words)
COLUMNS_OF_LINES(columns_f16, f16_words)
#undef COLUMNS_OF_LINES

/* ---- tiles ---- */

/* What makes values of a tile: units, where its columns are in runs of one group, maybe by tables,
 * or columns. */
typedef struct {
  unit_fn unit;
  columns_fn columns;
  amn_out out;
  int is_by_tables;
  size_t item;
} tile_way;

static tile_way V_NAME(way_of)(int bits, const amn_tile *tile, amn_out out) {
  tile_way way = {V_NAME(unit_f32), V_NAME(columns_f32), out, 0, 4};
  if (out == AMN_OUT_F32) return way;
  way.item = 2;
  way.is_by_tables = bits <= 4 && tile->run;
  if (out == AMN_OUT_F16) {
    way.unit = tile->is_streamed ? V_NAME(unit_f16_streamed) : V_NAME(unit_f16);
    way.columns = tile->is_streamed ? V_NAME(columns_f16_streamed) : V_NAME(columns_f16);
  } else {
    way.unit = tile->is_streamed ? V_NAME(unit_bf16_streamed) : V_NAME(unit_bf16);
    way.columns = tile->is_streamed ? V_NAME(columns_bf16_streamed) : V_NAME(columns_bf16);
  }
  if (way.is_by_tables)
    way.unit = tile->is_streamed ? V_NAME(unit_by_tables_streamed) : V_NAME(unit_by_tables);
  return way;
}

/* Of the columns from `col` on, at which a group begins. Returns where the next one does. */
static size_t V_NAME(factors_of_run)(const tile_way *way, const amn_tile *tile,
                                     const amn_tile_groups *groups, size_t row, size_t col,
                                     unit_factors *factors) {
  const size_t entry = row + col / tile->run * AMN_TILE_ROWS;
  factors->zeros = groups->zeros + entry;
  factors->scales = groups->scales + entry;
  if (way->is_by_tables) V_NAME(tables_of_8)(way->out, factors);
  return tile->cols - col < tile->run ? tile->cols : col + tile->run;
}

/* Codes of 8 out features and UNIT columns, of which the words begin at `at` and are `stride` bytes
 * apart: a row's as bytes, a column's as floats. */
typedef void (*row_codes_fn)(const uint8_t *at, size_t stride, vec codes[8]);
typedef void (*column_codes_fn)(const uint8_t *at, size_t stride, float codes[UNIT][8]);

AMN_FORCE_INLINE void eight_rows(row_codes_fn codes_of, const tile_way *way, const amn_tile *tile,
                                 const amn_tile_groups *groups, size_t row, const uint8_t *at,
                                 size_t stride, size_t unit_bytes, uint8_t *dst,
                                 size_t dst_stride) {
  unit_factors factors;
  for (size_t col = 0; col < tile->cols;) {
    const size_t end = V_NAME(factors_of_run)(way, tile, groups, row, col, &factors);
    for (; col < end; col += UNIT, at += unit_bytes) {
      vec codes[8];
      codes_of(at, stride, codes);
      way->unit(codes, &factors, dst + way->item * col, dst_stride);
    }
  }
}

AMN_FORCE_INLINE void eight_rows_of_columns(column_codes_fn codes_of, const tile_way *way,
                                            const amn_tile *tile, const amn_tile_groups *groups,
                                            size_t row, const uint8_t *at, size_t stride,
                                            size_t unit_bytes, uint8_t *dst, size_t dst_stride) {
  unit_factors factors = {.zeros = groups->zeros + row, .scales = groups->scales + row};
  for (size_t col = 0; col < tile->cols; col += UNIT, at += unit_bytes) {
    float codes[UNIT][8];
    factors.group_of = tile->group_of + col;
    codes_of(at, stride, codes);
    way->columns(codes, &factors, dst + way->item * col, dst_stride);
  }
}

/* ---- gptq and planes ---- */

/* Of UNIT columns there are as many lines of words as a code has bits. */
AMN_FORCE_INLINE void transposed_words(int bits, vec (*bytes_of)(const uint8_t *src),
                                       const uint8_t *words, size_t line_bytes, vec codes[8]) {
  _Alignas(32) uint8_t rows[8][32];
  vec lines[8];
#define LINE(k) lines[k] = (k) < bits ? v_load(words + (k) * line_bytes) : v_zero();
  EIGHT_TIMES(LINE)
#undef LINE
  if (bits <= 4) {
    v_transpose_lanes_u32(lines);
    for (int k = 0; k < 4; k++) v_store_lanes(rows[k], rows[k + 4], lines[k]);
  } else {
    v_transpose_u32(lines);
    for (int k = 0; k < 8; k++) v_store(rows[k], lines[k]);
  }
  for (int k = 0; k < 8; k++) codes[k] = bytes_of(rows[k]);
}

/* The same of 5 bits and more: lines as load_dense reads them, four of them twice. What is stored
 * need not be read again in another place, for which it would have to wait. */
AMN_FORCE_INLINE void transposed_dense(int bits, vec (*bytes_of)(vec dense), const uint8_t *words,
                                       size_t line_bytes, vec codes[8]) {
#define LINE(k) codes[k] = v_load(words + (size_t)((k) < 4 ? (k) : bits - 8 + (k)) * line_bytes);
  EIGHT_TIMES(LINE)
#undef LINE
  v_transpose_u32(codes);
  for (int k = 0; k < 8; k++) codes[k] = bytes_of(codes[k]);
}

AMN_FORCE_INLINE vec whole_bytes(vec dense) {
  return dense;
}

/* Planes of 32 codes: their lowest bits come first. */
AMN_FORCE_INLINE vec planar_bytes_3(const uint8_t *src) {
  return v_or(dense_bytes_2(src), v_shl_u16(dense_bytes_1(src + 8), 2));
}
AMN_FORCE_INLINE vec planar_bytes_5(const uint8_t *src) {
  return v_or(v_load_nibbles_as_u8_x32(src), v_shl_u16(dense_bytes_1(src + 16), 4));
}
AMN_FORCE_INLINE vec planar_bytes_6(const uint8_t *src) {
  return v_or(v_load_nibbles_as_u8_x32(src), v_shl_u16(dense_bytes_2(src + 16), 4));
}
AMN_FORCE_INLINE vec planar_bytes_7(const uint8_t *src) {
  return v_or(planar_bytes_6(src), v_shl_u16(dense_bytes_1(src + 24), 6));
}

/* Those of column i, as s32. */
AMN_FORCE_INLINE vec dense_code(int bits, const uint8_t *words, size_t line_bytes, int i) {
  const int bit = i * bits, shift = bit % 32;
  const uint8_t *line = words + (size_t)(bit / 32) * line_bytes;
  vec code = v_shr_u32(v_load(line), shift);
  if (shift + bits > 32) code = v_or(code, v_shl_u32(v_load(line + line_bytes), 32 - shift));
  return shift + bits == 32 ? code : v_and(code, v_set_u32((1u << bits) - 1));
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

typedef vec (*code_fn)(int bits, const uint8_t *words, size_t line_bytes, int i);

AMN_FORCE_INLINE void column_codes(code_fn code_of, int bits, const uint8_t *words,
                                   size_t line_bytes, float codes[UNIT][8]) {
#define COLUMN(k) v_store_f32(codes[k], v_f32_from_s32(code_of(bits, words, line_bytes, k)));
#define FOUR_COLUMNS(k) COLUMN(k) COLUMN(8 + k) COLUMN(16 + k) COLUMN(24 + k)
  EIGHT_TIMES(FOUR_COLUMNS)
#undef FOUR_COLUMNS
#undef COLUMN
}

/* Lines of words are far apart, where no hardware expects the next access. */
AMN_FORCE_INLINE void fetch_lines(const uint8_t *words, size_t line_bytes, size_t n_lines) {
  for (size_t i = 0; i < n_lines; i++) v_prefetch(words + i * line_bytes);
}

#define TRANSPOSED(name, bits, transposed, bytes_of, code_of)                                \
  AMN_FORCE_INLINE void name##_rows(const uint8_t *words, size_t stride, vec codes[8]) {     \
    transposed(bits, bytes_of, words, stride, codes);                                        \
  }                                                                                          \
  AMN_FORCE_INLINE void name##_columns(const uint8_t *words, size_t stride,                  \
                                       float codes[UNIT][8]) {                               \
    column_codes(code_of, bits, words, stride, codes);                                       \
  }                                                                                          \
  static void V_NAME(tile_##name)(const amn_tile *tile, const amn_tile_groups *groups,       \
                                  amn_out out, uint8_t *dst, size_t dst_stride) {            \
    const tile_way way = V_NAME(way_of)(bits, tile, out);                                    \
    const size_t line_bytes = 4 * tile->stride, unit_bytes = bits * line_bytes;              \
    const uint8_t *words = tile->words + tile->col / UNIT * unit_bytes + 4 * tile->row;      \
    for (size_t row = 0; row < tile->rows; row += 8, words += 32, dst += 8 * dst_stride) {   \
      if (row % 16 == 0) fetch_lines(words + 64, line_bytes, tile->cols / UNIT * bits);      \
      if (tile->run)                                                                         \
        eight_rows(name##_rows, &way, tile, groups, row, words, line_bytes, unit_bytes, dst, \
                   dst_stride);                                                              \
      else                                                                                   \
        eight_rows_of_columns(name##_columns, &way, tile, groups, row, words, line_bytes,    \
                              unit_bytes, dst, dst_stride);                                  \
    }                                                                                        \
  }
TRANSPOSED(gptq2, 2, transposed_words, dense_bytes_2, dense_code)
TRANSPOSED(gptq3, 3, transposed_words, dense_bytes_3, dense_code)
TRANSPOSED(gptq4, 4, transposed_words, v_load_nibbles_as_u8_x32, dense_code)
TRANSPOSED(gptq8, 8, transposed_dense, whole_bytes, dense_code)
TRANSPOSED(exl5, 5, transposed_dense, bytes_of_dense_5, dense_code)
TRANSPOSED(exl6, 6, transposed_dense, bytes_of_dense_6, dense_code)
TRANSPOSED(gptqp3, 3, transposed_words, planar_bytes_3, planar_code)
TRANSPOSED(gptqp5, 5, transposed_words, planar_bytes_5, planar_code)
TRANSPOSED(gptqp6, 6, transposed_words, planar_bytes_6, planar_code)
TRANSPOSED(gptqp7, 7, transposed_words, planar_bytes_7, planar_code)
#undef TRANSPOSED

/* ---- awq: 32 out features at once, as 16 bytes of words have them ---- */

/* Sixteen words of bytes of 8 out features each, four by four: a[i] has columns i and i + 8, b[i]
 * those 4 further. Of word k, bytes 0 and 1 of all columns to the lanes of bytes[k][0], 2 and 3 to
 * those of bytes[k][1]. */
AMN_FORCE_INLINE void transpose_bytes(vec a[4], vec b[4], vec bytes[4][2]) {
  v_transpose_lanes_u32(a);
  v_transpose_lanes_u32(b);
  for (int k = 0; k < 4; k++) {
    const vec first = v_transpose_lanes_u8(a[k]), second = v_transpose_lanes_u8(b[k]);
    bytes[k][0] = v_swap_middle_u64(v_zip_low_u32(first, second));
    bytes[k][1] = v_swap_middle_u64(v_zip_high_u32(first, second));
  }
}

/* Rows h and h + 4, h + 1 and h + 5 of each word. */
AMN_FORCE_INLINE void store_awq_rows(vec a[4], vec b[4], size_t h, uint8_t *dst, size_t stride) {
  vec bytes[4][2];
  transpose_bytes(a, b, bytes);
  for (size_t k = 0; k < 4; k++) {
    uint8_t *rows = dst + (8 * k + h) * stride;
    v_store_lanes(rows, rows + 4 * stride, bytes[k][0]);
    v_store_lanes(rows + stride, rows + 5 * stride, bytes[k][1]);
  }
}

/* Of 32 columns of four words each to 16 bytes of 32 rows, two columns to a byte. A word's bytes
 * have out features 0, 4, 1 and 5 in their low nibbles, 2, 6, 3 and 7 in the high ones. */
AMN_FORCE_INLINE void awq_32(const uint8_t *words, size_t line_bytes, uint8_t *dst, size_t stride) {
  const vec low = v_set_u8(0x0f), high = v_set_u8(0xf0);
  vec even[8], odd[8];
  for (int i = 0; i < 8; i++) {
    const uint8_t *at = words + (size_t)(2 * i) * line_bytes;
    const vec first = v_load_lanes(at, at + 16 * line_bytes);
    const vec second = v_load_lanes(at + line_bytes, at + 17 * line_bytes);
    even[i] = v_or(v_and(first, low), v_and(v_shl_u16(second, 4), high));
    odd[i] = v_or(v_and(v_shr_u16(first, 4), low), v_and(second, high));
  }
  store_awq_rows(even, even + 4, 0, dst, stride);
  store_awq_rows(odd, odd + 4, 2, dst, stride);
}

/* Of fewer out features, behind which there may be nothing. */
static void V_NAME(awq_some)(const uint8_t *words, size_t line_bytes, size_t n, uint8_t *dst,
                             size_t stride) {
  uint8_t lines[UNIT][16] = {{0}};
  for (size_t i = 0; i < UNIT; i++) memcpy(lines[i], words + i * line_bytes, n / 2);
  awq_32(lines[0], sizeof lines[0], dst, stride);
}

AMN_FORCE_INLINE void awq4_rows(const uint8_t *rows, size_t stride, vec codes[8]) {
  for (size_t k = 0; k < 8; k++) codes[k] = v_load_nibbles_as_u8_x32(rows + k * stride);
}

/* The eight values of a word that holds one column's. */
AMN_FORCE_INLINE vec awq4_values(const uint8_t *word) {
  static const uint32_t shifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  return v_and(v_shr_u32_each(v_load_u32_all(word), v_load(shifts)), v_set_u32(15));
}

AMN_FORCE_INLINE void awq4_columns(const uint8_t *words, size_t line_bytes, float codes[UNIT][8]) {
  for (size_t i = 0; i < UNIT; i++)
    v_store_f32(codes[i], v_f32_from_s32(awq4_values(words + i * line_bytes)));
}

static void V_NAME(awq4_by_rows)(const tile_way *way, const amn_tile *tile,
                                 const amn_tile_groups *groups, const uint8_t *words,
                                 size_t line_bytes, uint8_t *dst, size_t dst_stride) {
  uint8_t rows[AMN_TILE_ROWS][AMN_TILE_COLS / 2];
  for (size_t col = 0; col < tile->cols; col += UNIT, words += UNIT * line_bytes)
    if (tile->rows == AMN_TILE_ROWS)
      awq_32(words, line_bytes, rows[0] + col / 2, sizeof rows[0]);
    else
      V_NAME(awq_some)(words, line_bytes, tile->rows, rows[0] + col / 2, sizeof rows[0]);
  for (size_t row = 0; row < tile->rows; row += 8, dst += 8 * dst_stride)
    eight_rows(awq4_rows, way, tile, groups, row, rows[row], sizeof rows[0], UNIT / 2, dst,
               dst_stride);
}

static void V_NAME(tile_awq4)(const amn_tile *tile, const amn_tile_groups *groups, amn_out out,
                              uint8_t *dst, size_t dst_stride) {
  const tile_way way = V_NAME(way_of)(4, tile, out);
  const size_t line_bytes = 4 * tile->stride;
  const uint8_t *words = tile->words + tile->col * line_bytes + tile->row / 2;
  if (tile->row % 128 == 0) fetch_lines(words + 64, line_bytes, tile->cols);
  if (tile->run) {
    V_NAME(awq4_by_rows)(&way, tile, groups, words, line_bytes, dst, dst_stride);
    return;
  }
  for (size_t row = 0; row < tile->rows; row += 8, words += 4, dst += 8 * dst_stride)
    eight_rows_of_columns(awq4_columns, &way, tile, groups, row, words, line_bytes,
                          UNIT * line_bytes, dst, dst_stride);
}

/* ---- zero points ---- */

/* Eight values of a line of words, which start at a whole byte. */
AMN_FORCE_INLINE vec zeros_of_8(int bits, int is_awq, const uint8_t *at) {
  static const uint32_t shifts[5][8] = {
      [2] = {0, 2, 4, 6, 8, 10, 12, 14},
      [3] = {0, 3, 6, 9, 12, 15, 18, 21},
      [4] = {0, 4, 8, 12, 16, 20, 24, 28},
  };
  if (is_awq) return awq4_values(at);
  if (bits == 8) return v_load_u8_as_u32(at);
  uint32_t packed = 0;
  memcpy(&packed, at, (size_t)bits);
  return v_shr_u32_each(v_set_u32(packed), v_load(shifts[bits]));
}

AMN_FORCE_INLINE void zeros_to_f32(int bits, int is_awq, const uint8_t *words, size_t first,
                                   size_t n, int shift, float *zeros) {
  const vec plus = v_set_u32((uint32_t)shift), mask = v_set_u32((1u << bits) - 1);
  for (size_t i = 0; i < n; i += 8) {
    const vec stored = zeros_of_8(bits, is_awq, words + (first + i) / 8 * (size_t)bits);
    v_store_f32(zeros + i, v_f32_from_s32(v_and(v_add_u32(stored, plus), mask)));
  }
  v_end();
}

/* ---- the kernels ---- */

/* Planes along a line, and values of 5 and 6 bits, are left to the scalar kernel: there are few
 * zero points. */
#define IS_PLANAR_gptq 0
#define IS_PLANAR_planar 1
#define IS_PLANAR_awq 0
#define IS_AWQ_gptq 0
#define IS_AWQ_planar 0
#define IS_AWQ_awq 1

#define PACKED(layout, NAME, name, bits, to_f32, to_16)                                     \
  static void V_NAME(packed_##name)(const amn_tile *tile, const amn_tile_groups *groups,    \
                                    uint8_t *dst, size_t dst_stride) {                      \
    if (tile->rows % 8 || tile->cols % UNIT)                                                \
      packed_##name##_scalar(tile, groups, dst, dst_stride);                                \
    else                                                                                    \
      V_NAME(tile_##name)(tile, groups, AMN_OUT_F32, dst, dst_stride);                      \
  }                                                                                         \
  static void V_NAME(packed_16_##name)(const amn_tile *tile, const amn_tile_groups *groups, \
                                       amn_out out, uint8_t *dst, size_t dst_stride) {      \
    V_NAME(tile_##name)(tile, groups, out, dst, dst_stride);                                \
    if (tile->is_streamed) v_stream_end();                                                  \
  }                                                                                         \
  static void V_NAME(zeros_##name)(const uint8_t *words, size_t first, size_t n, int shift, \
                                   float *zeros) {                                          \
    if (n % 8 || IS_PLANAR_##layout || bits == 5 || bits == 6)                              \
      zeros_##name##_scalar(words, first, n, shift, zeros);                                 \
    else                                                                                    \
      zeros_to_f32(bits, IS_AWQ_##layout, words, first, n, shift, zeros);                   \
  }
#include "../kernels.def"
