/* Codes relative to the largest magnitude of their block.
 *
 * Codes are taken 32 at a time; fewer are padded. To 16 bits, neither kernel looks for overflow or
 * NaN: runs of blocks whose absmax is within bounds have a loop of their own, without a call in it,
 * and any other block goes by way of float32.
 *
 * Needs: convert.tpl.h, blocks.tpl.h. Defines: absmax_*, absmax_16_*. */

/* The exponent fields of a plain absmax. */
typedef struct {
  uint32_t least, most;
} absmax_bounds;

/* A kernel straight to 16 bits, as a constant in every use. */
typedef void (*absmax_plain_fn)(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                                const float *absmax, size_t first, size_t block);

AMN_FORCE_INLINE size_t absmax_plain_blocks(absmax_bounds bounds, const float *absmax, size_t n) {
  const vec magnitude = v_set_u32(0x7fffffff);
  const vec below = v_set_u32((bounds.least << 23) - 1), above = v_set_u32((bounds.most + 1) << 23);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const vec bits = v_and(v_load(absmax + i), magnitude);
    if (!v_all(v_and(v_greater_s32(bits, below), v_greater_s32(above, bits)))) break;
  }
  for (; i < n; i++) {
    const uint32_t exponent = amn_f32_bits(absmax[i]) >> 23 & 0xff;
    if (exponent < bounds.least || exponent > bounds.most) break;
  }
  return i;
}

/* One block. */
static uint64_t absmax_by_f32(amn_absmax_fn to_f32, amn_narrow_fn narrow, size_t bits,
                              const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                              const float *absmax) {
  uint8_t values[4 * 512];
  uint64_t n_overflow = 0;
  for (size_t done = 0, count; done < n; done += count) {
    count = n - done < 512 ? n - done : 512;
    to_f32(src + done * bits / 8, values, count, codebook, absmax, count, count);
    n_overflow += narrow(values, dst + 2 * done, count);
  }
  return n_overflow;
}

AMN_FORCE_INLINE uint64_t absmax_16(absmax_plain_fn plain, amn_absmax_fn to_f32,
                                    amn_narrow_fn narrow, size_t bits, absmax_bounds bounds,
                                    const uint8_t *src, uint8_t *dst, size_t n,
                                    const float *codebook, const float *absmax, size_t first,
                                    size_t block) {
  uint64_t n_overflow = 0;
  size_t n_blocks = n > first ? (n - first - 1) / block + 2 : 1;
  for (size_t count, taken; n > 0; n -= count, n_blocks -= taken) {
    const size_t n_plain = absmax_plain_blocks(bounds, absmax, n_blocks);
    taken = n_plain > 0 ? n_plain : 1;
    count = taken < n_blocks ? first + (taken - 1) * block : n;
    if (n_plain > 0)
      plain(src, dst, count, codebook, absmax, first, block);
    else
      n_overflow += absmax_by_f32(to_f32, narrow, bits, src, dst, count, codebook, absmax);
    src += count * bits / 8;
    dst += 2 * count;
    absmax += taken;
    first = block;
  }
  v_end();
  return n_overflow;
}

/* ---- CODEBOOK4: 16 outcomes for each absmax, looked up by nibble ----
 *
 * Blocks of 32 codes and more, high nibble first, are bitsandbytes'. Those of 16, or low nibble
 * first, are NVFP4 and MXFP4; they are taken a half of 32 codes at a time, each with a table of its
 * own in a lane of its own. */

/* 16 bytes as 32 codes, in order. */
typedef vec (*nibbles_fn)(const uint8_t *src);

AMN_FORCE_INLINE vec nibbles_high_first(const uint8_t *src) {
  return v_load_nibbles_high_first(src);
}

AMN_FORCE_INLINE vec nibbles_low_first(const uint8_t *src) {
  return v_load_nibbles_as_u8_x32(src);
}

/* Which absmax the next 16 codes have; `left` and `block` count in such halves. */
typedef struct {
  const float *absmax;
  size_t left, block;
} codebook4_halves_at;

AMN_FORCE_INLINE codebook4_halves_at codebook4_first_half(const float *absmax, size_t first,
                                                          size_t block) {
  return (codebook4_halves_at){absmax, first / 16, block / 16};
}

AMN_FORCE_INLINE const float *codebook4_next_half(codebook4_halves_at *at) {
  if (at->left == 0) {
    at->absmax++;
    at->left = at->block;
  }
  at->left--;
  return at->absmax;
}

/* The absmax of a second half, which may be missing: the first one's then. */
AMN_FORCE_INLINE const float *codebook4_second_half(codebook4_halves_at *at, size_t n,
                                                    const float *a) {
  return n > 16 ? codebook4_next_half(at) : a;
}

AMN_FORCE_INLINE int codebook4_is_halves(size_t first, size_t block) {
  return first % 16 == 0 && block % 16 == 0;
}

AMN_FORCE_INLINE void codebook4_store_half_f32(const float *codebook, float absmax, vec index,
                                               int half, uint8_t *dst) {
  const vec_f32 scale = v_set_f32(absmax);
  const vec_f32 low = v_mul_f32(v_load_f32(codebook), scale);
  const vec_f32 high = v_mul_f32(v_load_f32(codebook + 8), scale);
  for (int i = 0; i < 2; i++)
    v_store_f32(dst + 32 * i, v_lookup16_f32(low, high, v_s32_from_s8(index, 2 * half + i)));
}

AMN_FORCE_INLINE void codebook4_halves_f32(nibbles_fn nibbles, const uint8_t *src, uint8_t *dst,
                                           size_t n, const float *codebook, const float *absmax,
                                           size_t first, size_t block) {
  codebook4_halves_at at = codebook4_first_half(absmax, first, block);
  for (; n >= 32; n -= 32, src += 16, dst += 128) {
    const vec index = nibbles(src);
    codebook4_store_half_f32(codebook, *codebook4_next_half(&at), index, 0, dst);
    codebook4_store_half_f32(codebook, *codebook4_next_half(&at), index, 1, dst + 64);
  }
  if (n > 0) {
    uint8_t codes[16] = {0}, values[128];
    memcpy(codes, src, (n + 1) / 2);
    const float *a = codebook4_next_half(&at), *b = codebook4_second_half(&at, n, a);
    const vec index = nibbles(codes);
    codebook4_store_half_f32(codebook, *a, index, 0, values);
    codebook4_store_half_f32(codebook, *b, index, 1, values + 64);
    memcpy(dst, values, 4 * n);
  }
  v_end();
}

static void V_NAME(absmax_codebook4_low)(const uint8_t *src, uint8_t *dst, size_t n,
                                         const float *codebook, const float *absmax, size_t first,
                                         size_t block) {
  if (codebook4_is_halves(first, block))
    codebook4_halves_f32(nibbles_low_first, src, dst, n, codebook, absmax, first, block);
  else
    absmax_codebook4_low_scalar(src, dst, n, codebook, absmax, first, block);
}

AMN_FORCE_INLINE void codebook4_store_f32(vec_f32 low, vec_f32 high, const uint8_t *src,
                                          uint8_t *dst) {
  const vec index = v_load_nibbles_high_first(src);
  for (int i = 0; i < 4; i++)
    v_store_f32(dst + 32 * i, v_lookup16_f32(low, high, v_s32_from_s8(index, i)));
}

static void V_NAME(absmax_codebook4)(const uint8_t *src, uint8_t *dst, size_t n,
                                     const float *codebook, const float *absmax, size_t first,
                                     size_t block) {
  if ((first % 32 && first < n) || block % 32) {
    if (codebook4_is_halves(first, block))
      codebook4_halves_f32(nibbles_high_first, src, dst, n, codebook, absmax, first, block);
    else
      absmax_codebook4_scalar(src, dst, n, codebook, absmax, first, block);
    return;
  }
  for (size_t run = first; n > 0; run = block) {
    if (run > n) run = n;
    const vec_f32 scale = v_set_f32(*absmax++);
    const vec_f32 low = v_mul_f32(v_load_f32(codebook), scale);
    const vec_f32 high = v_mul_f32(v_load_f32(codebook + 8), scale);
    for (size_t i = 0; i + 32 <= run; i += 32)
      codebook4_store_f32(low, high, src + i / 2, dst + 4 * i);
    if (run % 32) {
      uint8_t codes[16] = {0}, values[128];
      const size_t at = run - run % 32;
      memcpy(codes, src + at / 2, (run % 32 + 1) / 2);
      codebook4_store_f32(low, high, codes, values);
      memcpy(dst + 4 * at, values, 4 * (run % 32));
    }
    src += run / 2;
    dst += 4 * run;
    n -= run;
  }
  v_end();
}

/* No product of the codebook with a plain absmax reaches 2^127, or 2^15 for half floats. */
AMN_FORCE_INLINE absmax_bounds codebook4_bounds(const float *codebook, amn_out out) {
  const uint32_t end = out == AMN_OUT_F16 ? 15 : 127;
  uint32_t largest = 0;
  for (int i = 0; i < 16; i++) {
    const uint32_t exponent = amn_f32_bits(codebook[i]) >> 23 & 0xff;
    if (exponent > largest) largest = exponent;
  }
  if (largest == 255) return (absmax_bounds){1, 0}; /* none */
  return (absmax_bounds){0, largest < end - 2 ? 254 : 252 + end - largest};
}

/* Entries 0, 2, 4, … and 1, 3, 5, … of a codebook. */
typedef struct {
  vec_f32 even, odd;
} codebook4_halves;

AMN_FORCE_INLINE codebook4_halves codebook4_split(const float *codebook) {
  float even[8], odd[8];
  for (int i = 0; i < 8; i++) {
    even[i] = codebook[2 * i];
    odd[i] = codebook[2 * i + 1];
  }
  return (codebook4_halves){v_load_f32(even), v_load_f32(odd)};
}

AMN_FORCE_INLINE nibble_table codebook4_table(words_fn words_of, codebook4_halves codebook,
                                              float absmax) {
  const vec_f32 scale = v_set_f32(absmax);
  return table_of_words(words_of(v_mul_f32(codebook.even, scale), v_mul_f32(codebook.odd, scale)));
}

/* The tables of one half of 32 codes after the other; absmax counts in such halves. */
typedef struct {
  codebook4_halves codebook;
  nibble_table table;
  const float *absmax;
  size_t left, block;
} codebook4_tables;

/* A new table keeps the stores waiting, so that the lines they want are asked for ahead. */
AMN_FORCE_INLINE nibble_table codebook4_next(words_fn words_of, codebook4_tables *tables,
                                             const uint8_t *dst) {
  if (tables->left == 0) {
    v_prefetch(dst + 1024);
    v_prefetch(dst + 1088);
    tables->table = codebook4_table(words_of, tables->codebook, *tables->absmax++);
    tables->left = tables->block;
  }
  tables->left--;
  return tables->table;
}

AMN_FORCE_INLINE void codebook4_words(words_fn words_of, const uint8_t *src, uint8_t *dst, size_t n,
                                      const float *codebook, const float *absmax, size_t first,
                                      size_t block) {
  codebook4_tables tables = {.codebook = codebook4_split(codebook), .block = block / 32};
  tables.table = codebook4_table(words_of, tables.codebook, *absmax);
  tables.absmax = absmax + 1;
  tables.left = first / 32;
  for (; n >= 64; n -= 64, src += 32, dst += 128) {
    const nibble_table a = codebook4_next(words_of, &tables, dst),
                       b = codebook4_next(words_of, &tables, dst);
    store_64_nibbles(a, b, src, dst);
  }
  if (n > 0) {
    uint8_t codes[32] = {0}, values[128];
    const nibble_table a = codebook4_next(words_of, &tables, dst);
    const nibble_table b = n > 32 ? codebook4_next(words_of, &tables, dst) : a;
    memcpy(codes, src, (n + 1) / 2);
    store_64_nibbles(a, b, codes, values);
    memcpy(dst, values, 2 * n);
  }
}

AMN_FORCE_INLINE vec codebook4_products(words_fn words_of, codebook4_halves codebook,
                                        const float *absmax) {
  const vec_f32 scale = v_set_f32(*absmax);
  return words_of(v_mul_f32(codebook.even, scale), v_mul_f32(codebook.odd, scale));
}

/* 32 codes, with a table for each half of them. */
AMN_FORCE_INLINE void codebook4_store_halves(words_fn words_of, codebook4_halves codebook,
                                             const float *absmax_a, const float *absmax_b,
                                             vec index, uint8_t *dst) {
  const vec a = codebook4_products(words_of, codebook, absmax_a);
  const vec b = absmax_a == absmax_b ? a : codebook4_products(words_of, codebook, absmax_b);
  store_nibbles(table_of_two(a, b), index, dst);
}

AMN_FORCE_INLINE void codebook4_halves_16(words_fn words_of, nibbles_fn nibbles, const uint8_t *src,
                                          uint8_t *dst, size_t n, const float *codebook,
                                          const float *absmax, size_t first, size_t block) {
  const codebook4_halves entries = codebook4_split(codebook);
  codebook4_halves_at at = codebook4_first_half(absmax, first, block);
  for (; n >= 32; n -= 32, src += 16, dst += 64) {
    const float *a = codebook4_next_half(&at), *b = codebook4_next_half(&at);
    codebook4_store_halves(words_of, entries, a, b, nibbles(src), dst);
  }
  if (n > 0) {
    uint8_t codes[16] = {0}, values[64];
    memcpy(codes, src, (n + 1) / 2);
    const float *a = codebook4_next_half(&at), *b = codebook4_second_half(&at, n, a);
    codebook4_store_halves(words_of, entries, a, b, nibbles(codes), values);
    memcpy(dst, values, 2 * n);
  }
}

/* As most are: every half, or every 32 codes, have an absmax of their own from the first on. */
AMN_FORCE_INLINE void codebook4_even_halves_16(words_fn words_of, nibbles_fn nibbles,
                                               const uint8_t *src, uint8_t *dst, size_t n,
                                               const float *codebook, const float *absmax,
                                               size_t block) {
  const codebook4_halves entries = codebook4_split(codebook);
  const size_t per_32 = 32 / block, whole = n / 32;
  for (size_t i = 0; i < whole; i++, src += 16, dst += 64, absmax += per_32)
    codebook4_store_halves(words_of, entries, absmax, absmax + per_32 - 1, nibbles(src), dst);
  if (n % 32)
    codebook4_halves_16(words_of, nibbles, src, dst, n % 32, codebook, absmax, block, block);
}

AMN_FORCE_INLINE void codebook4_any_halves_16(words_fn words_of, nibbles_fn nibbles,
                                              const uint8_t *src, uint8_t *dst, size_t n,
                                              const float *codebook, const float *absmax,
                                              size_t first, size_t block) {
  if (first == 16 && block == 16)
    codebook4_even_halves_16(words_of, nibbles, src, dst, n, codebook, absmax, 16);
  else if (first == 32 && block == 32)
    codebook4_even_halves_16(words_of, nibbles, src, dst, n, codebook, absmax, 32);
  else
    codebook4_halves_16(words_of, nibbles, src, dst, n, codebook, absmax, first, block);
}

AMN_FORCE_INLINE void codebook4_high_16(words_fn words_of, const uint8_t *src, uint8_t *dst,
                                        size_t n, const float *codebook, const float *absmax,
                                        size_t first, size_t block) {
  if (first % 32 == 0 && block % 32 == 0)
    codebook4_words(words_of, src, dst, n, codebook, absmax, first, block);
  else
    codebook4_any_halves_16(words_of, nibbles_high_first, src, dst, n, codebook, absmax, first,
                            block);
}

static void codebook4_bf16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                           const float *absmax, size_t first, size_t block) {
  codebook4_high_16(bf16_words, src, dst, n, codebook, absmax, first, block);
}

static void codebook4_f16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                          const float *absmax, size_t first, size_t block) {
  codebook4_high_16(f16_words, src, dst, n, codebook, absmax, first, block);
}

static void codebook4_low_bf16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                               const float *absmax, size_t first, size_t block) {
  codebook4_any_halves_16(bf16_words, nibbles_low_first, src, dst, n, codebook, absmax, first,
                          block);
}

static void codebook4_low_f16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                              const float *absmax, size_t first, size_t block) {
  codebook4_any_halves_16(f16_words, nibbles_low_first, src, dst, n, codebook, absmax, first,
                          block);
}

static uint64_t V_NAME(absmax_16_codebook4)(const uint8_t *src, amn_out out, uint8_t *dst, size_t n,
                                            const float *codebook, const float *absmax,
                                            size_t first, size_t block) {
  const absmax_bounds bounds = codebook4_bounds(codebook, out);
  if (out == AMN_OUT_F16)
    return absmax_16(codebook4_f16, V_NAME(absmax_codebook4), V_NAME(narrow_f16), 4, bounds, src,
                     dst, n, codebook, absmax, first, block);
  return absmax_16(codebook4_bf16, V_NAME(absmax_codebook4), V_NAME(narrow_bf16), 4, bounds, src,
                   dst, n, codebook, absmax, first, block);
}

static uint64_t V_NAME(absmax_16_codebook4_low)(const uint8_t *src, amn_out out, uint8_t *dst,
                                                size_t n, const float *codebook,
                                                const float *absmax, size_t first, size_t block) {
  const absmax_bounds bounds = codebook4_bounds(codebook, out);
  if (out == AMN_OUT_F16)
    return absmax_16(codebook4_low_f16, V_NAME(absmax_codebook4_low), V_NAME(narrow_f16), 4, bounds,
                     src, dst, n, codebook, absmax, first, block);
  return absmax_16(codebook4_low_bf16, V_NAME(absmax_codebook4_low), V_NAME(narrow_bf16), 4, bounds,
                   src, dst, n, codebook, absmax, first, block);
}

/* ---- INT8 ---- */

AMN_FORCE_INLINE void int8_store_f32(wide_f32 scale, const uint8_t *src, uint8_t *dst) {
  const vec codes = v_load(src);
  for (int i = 0; i < 32 / WIDE_LANES; i++) {
    const wide_f32 product = wide_mul(wide_f32_of_s8(codes, i), scale);
    wide_store((float *)dst + WIDE_LANES * i, wide_mul(product, wide_set(AMN_ONE_127TH)));
  }
}

static void V_NAME(absmax_int8)(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                                const float *absmax, size_t first, size_t block) {
  (void)codebook;
  for (size_t run = first; n > 0; run = block) {
    if (run > n) run = n;
    const wide_f32 scale = wide_set(*absmax++);
    for (size_t i = 0; i + 32 <= run; i += 32) int8_store_f32(scale, src + i, dst + 4 * i);
    if (run % 32) {
      uint8_t codes[32] = {0}, values[128];
      const size_t at = run - run % 32;
      memcpy(codes, src + at, run % 32);
      int8_store_f32(scale, codes, values);
      memcpy(dst + 4 * at, values, 4 * (run % 32));
    }
    src += run;
    dst += 4 * run;
    n -= run;
  }
  v_end();
}

/* The codes become the top bytes of s32, so that `scale` is 2^-24 of the absmax: exactly, by the
 * lower bound. By the upper one no product with a code reaches 2^127; a value is at most 128 / 127
 * of its absmax, which for half floats is below 2^15. */
#define INT8_BOUNDS_BF16 ((absmax_bounds){25, 246})
#define INT8_BOUNDS_F16 ((absmax_bounds){25, 141})

AMN_FORCE_INLINE void int8_store_16(wide_words_fn words_of, wide_f32 scale, const uint8_t *src,
                                    uint8_t *dst) {
  const vec codes = v_load(src);
  const wide_f32 unit = wide_set(AMN_ONE_127TH);
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide_f32 even = wide_mul(wide_even_s8(codes, IN_ORDER, i), scale);
    const wide_f32 odd = wide_mul(wide_odd_s8(codes, IN_ORDER, i), scale);
    wide_store_words(dst, IN_ORDER, i, words_of(wide_mul(even, unit), wide_mul(odd, unit)));
  }
}

AMN_FORCE_INLINE void int8_words(wide_words_fn words_of, const uint8_t *src, uint8_t *dst, size_t n,
                                 const float *absmax, size_t first, size_t block) {
  for (size_t run = first; n > 0; run = block) {
    if (run > n) run = n;
    const wide_f32 scale = wide_set(*absmax++ * BYTE_UNIT);
    for (size_t i = 0; i + 32 <= run; i += 32) int8_store_16(words_of, scale, src + i, dst + 2 * i);
    if (run % 32) {
      uint8_t codes[32] = {0}, values[64];
      const size_t at = run - run % 32;
      memcpy(codes, src + at, run % 32);
      int8_store_16(words_of, scale, codes, values);
      memcpy(dst + 2 * at, values, 2 * (run % 32));
    }
    src += run;
    dst += 2 * run;
    n -= run;
  }
}

static void int8_bf16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                      const float *absmax, size_t first, size_t block) {
  (void)codebook;
  int8_words(wide_bf16, src, dst, n, absmax, first, block);
}

static void int8_f16(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                     const float *absmax, size_t first, size_t block) {
  (void)codebook;
  int8_words(wide_f16, src, dst, n, absmax, first, block);
}

static uint64_t V_NAME(absmax_16_int8)(const uint8_t *src, amn_out out, uint8_t *dst, size_t n,
                                       const float *codebook, const float *absmax, size_t first,
                                       size_t block) {
  if (out == AMN_OUT_F16)
    return absmax_16(int8_f16, V_NAME(absmax_int8), V_NAME(narrow_f16), 8, INT8_BOUNDS_F16, src,
                     dst, n, codebook, absmax, first, block);
  return absmax_16(int8_bf16, V_NAME(absmax_int8), V_NAME(narrow_bf16), 8, INT8_BOUNDS_BF16, src,
                   dst, n, codebook, absmax, first, block);
}
