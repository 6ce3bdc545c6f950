/* Integers of a row, less a zero point, times a scale, plus a bias: 32 at a time, and what is left
 * padded.
 *
 * Codes become bytes first. To 16 bits, those of 4 bits and fewer have at most 16 outcomes for each
 * group, which are computed, rounded and looked up; others are computed one by one.
 *
 * Needs: bytes.tpl.h. Defines: integers_*, integers_16_*, padded_places_*. */

/* 32 codes as bytes; as floats, those of two's complement as they are. */
typedef vec (*integers_bytes_fn)(const uint8_t *src);
typedef wide_f32 (*integers_floats_fn)(vec bytes, int i);

AMN_FORCE_INLINE vec integers_bytes(const uint8_t *src) {
  return v_load(src);
}

AMN_FORCE_INLINE vec integers_signed_nibbles(const uint8_t *src) {
  const vec sign = v_set_u8(8);
  return v_sub_u8(v_xor(v_load_nibbles_as_u8_x32(src), sign), sign);
}

AMN_FORCE_INLINE void integers_store(wide_f32 codes, wide_f32 zero, wide_f32 scale, wide_f32 bias,
                                     float *dst) {
  wide_store(dst, wide_add(wide_mul(wide_sub(codes, zero), scale), bias));
}

AMN_FORCE_INLINE void integers_32(integers_floats_fn floats, vec bytes, wide_f32 zero,
                                  wide_f32 scale, wide_f32 bias, float *dst) {
  for (int k = 0; k < 32 / WIDE_LANES; k++)
    integers_store(floats(bytes, k), zero, scale, bias, dst + WIDE_LANES * k);
}

AMN_FORCE_INLINE void integers_run(integers_bytes_fn bytes_of, integers_floats_fn floats, int bits,
                                   const uint8_t *src, float *dst, size_t n, amn_affine affine) {
  const wide_f32 zero = wide_set(*affine.zeros), scale = wide_set(*affine.scales);
  const wide_f32 bias = wide_set(*affine.biases);
  const size_t rest = n % 32, whole = n - rest;
  for (size_t i = 0; i < whole; i += 32)
    integers_32(floats, bytes_of(src + i / 8 * (size_t)bits), zero, scale, bias, dst + i);
  if (rest) {
    uint8_t padded[32] = {0};
    float values[32];
    memcpy(padded, src + whole / 8 * (size_t)bits, (rest * (size_t)bits + 7) / 8);
    integers_32(floats, bytes_of(padded), zero, scale, bias, values);
    memcpy(dst + whole, values, rest * sizeof(float));
  }
}

/* n codes, a multiple of 32, of blocks of one. */
AMN_FORCE_INLINE void integers_singles(integers_bytes_fn bytes_of, integers_floats_fn floats,
                                       int bits, const uint8_t *src, float *dst, size_t n,
                                       amn_affine affine) {
  for (size_t i = 0; i < n; i += 32) {
    const vec bytes = bytes_of(src + i / 8 * (size_t)bits);
    for (int k = 0; k < 32 / WIDE_LANES; k++) {
      const size_t at = i + WIDE_LANES * (size_t)k;
      integers_store(floats(bytes, k), wide_load(affine.zeros + at), wide_load(affine.scales + at),
                     wide_load(affine.biases + at), dst + at);
    }
  }
}

/* Blocks that do not begin with a byte are left to the scalar kernel. */
#define INTEGERS_KERNEL(name, bytes_of, floats, bits, codes, bytes)                           \
  static void V_NAME(integers_##name)(const uint8_t *src, size_t at, float *dst, size_t n,    \
                                      amn_affine affine, size_t first, size_t block) {        \
    if (block == 1 && at % codes == 0) {                                                      \
      const size_t whole = n - n % 32;                                                        \
      integers_singles(bytes_of, floats, bits, src + at / codes * bytes, dst, whole, affine); \
      v_end();                                                                                \
      affine.zeros += whole, affine.scales += whole, affine.biases += whole;                  \
      integers_##name##_scalar(src, at + whole, dst + whole, n - whole, affine, 1, 1);        \
      return;                                                                                 \
    }                                                                                         \
    for (size_t run = first; n > 0; run = block) {                                            \
      if (run > n) run = n;                                                                   \
      if (at % codes) {                                                                       \
        v_end();                                                                              \
        integers_##name##_scalar(src, at, dst, run, affine, run, run);                        \
      } else {                                                                                \
        integers_run(bytes_of, floats, bits, src + at / codes * bytes, dst, run, affine);     \
      }                                                                                       \
      affine.zeros++, affine.scales++, affine.biases++;                                       \
      at += run;                                                                              \
      dst += run;                                                                             \
      n -= run;                                                                               \
    }                                                                                         \
    v_end();                                                                                  \
  }

INTEGERS_KERNEL(int4, integers_signed_nibbles, wide_f32_of_s8, 4, 2, 1)
INTEGERS_KERNEL(int8, integers_bytes, wide_f32_of_s8, 8, 1, 1)
INTEGERS_KERNEL(packed1, dense_bytes_1, wide_f32_of_u8, 1, 8, 1)
INTEGERS_KERNEL(packed2, dense_bytes_2, wide_f32_of_u8, 2, 4, 1)
INTEGERS_KERNEL(packed3, dense_bytes_3, wide_f32_of_u8, 3, 8, 3)
INTEGERS_KERNEL(packed4, v_load_nibbles_as_u8_x32, wide_f32_of_u8, 4, 2, 1)
INTEGERS_KERNEL(packed5, dense_bytes_5, wide_f32_of_u8, 5, 8, 5)
INTEGERS_KERNEL(packed6, dense_bytes_6, wide_f32_of_u8, 6, 4, 3)
INTEGERS_KERNEL(packed7, dense_bytes_7, wide_f32_of_u8, 7, 8, 7)
INTEGERS_KERNEL(packed8, integers_bytes, wide_f32_of_u8, 8, 1, 1)

#undef INTEGERS_KERNEL

/* ---- padded words ---- */

/* Codes of words that hold so many, made bytes at a time; and the room for those of their words and
 * for whole stores. */
#define PADDED_AT_ONCE 1024
#define PADDED_ROOM (PADDED_AT_ONCE + 160)

/* Of eight words' codes number 8i to 8i + 7: their words, and how far right they are moved. */
typedef struct {
  uint32_t word[80], right[80];
} padded_places;

#define TEN(F, c, b, j)                                                                       \
  F(c, b, j), F(c, b, j + 1), F(c, b, j + 2), F(c, b, j + 3), F(c, b, j + 4), F(c, b, j + 5), \
      F(c, b, j + 6), F(c, b, j + 7), F(c, b, j + 8), F(c, b, j + 9)
#define EIGHTY(F, c, b)                                                    \
  {TEN(F, c, b, 0),  TEN(F, c, b, 10), TEN(F, c, b, 20), TEN(F, c, b, 30), \
   TEN(F, c, b, 40), TEN(F, c, b, 50), TEN(F, c, b, 60), TEN(F, c, b, 70)}
#define WORD(c, b, j) ((j) / (c) % 8)
#define RIGHT(c, b, j) ((j) % (c) * (b))

static const padded_places V_NAME(padded_places_3) = {EIGHTY(WORD, 10, 3), EIGHTY(RIGHT, 10, 3)};
static const padded_places V_NAME(padded_places_5) = {EIGHTY(WORD, 6, 5), EIGHTY(RIGHT, 6, 5)};
static const padded_places V_NAME(padded_places_6) = {EIGHTY(WORD, 5, 6), EIGHTY(RIGHT, 5, 6)};
static const padded_places V_NAME(padded_places_7) = {EIGHTY(WORD, 4, 7), EIGHTY(RIGHT, 4, 7)};

#undef RIGHT
#undef WORD
#undef EIGHTY
#undef TEN

AMN_FORCE_INLINE vec padded_eight(const padded_places *at, uint32_t mask, vec words, size_t i) {
  const vec moved =
      v_shr_u32_each(v_permute_u32(words, v_load(at->word + 8 * i)), v_load(at->right + 8 * i));
  return v_and(moved, v_set_u32(mask));
}

/* n codes from code `at` on, `per_word` to a word, as bytes somewhere in `room`. */
AMN_FORCE_INLINE const uint8_t *padded_bytes(const padded_places *places, int bits, size_t per_word,
                                             const uint8_t *src, size_t at, size_t n,
                                             uint8_t *room) {
  const uint32_t mask = (1u << bits) - 1;
  const size_t first = at / per_word, n_words = (at % per_word + n - 1) / per_word + 1;
  uint8_t *dst = room;
  for (size_t w = 0; w < n_words; w += 8, dst += 8 * per_word) {
    const size_t left = n_words - w;
    const uint8_t *at_word = src + 4 * (first + w);
    const vec words = left < 8 ? v_load_some_u32(at_word, (int)left) : v_load(at_word);
    for (size_t i = 0; i < per_word; i += 2) {
      const vec low = padded_eight(places, mask, words, i);
      const vec high = i + 1 < per_word ? padded_eight(places, mask, words, i + 1) : low;
      const vec pair = v_pack_u32(low, high);
      v_store(dst + 8 * i, v_pack_u16(pair, pair));
    }
  }
  return room + at % per_word;
}

/* What belongs to the codes from one in the midst of a call on, and how many the first group has
 * left. */
AMN_FORCE_INLINE amn_affine affine_from(amn_affine affine, size_t done, size_t first, size_t block,
                                        size_t *left) {
  const size_t beyond = done < first ? 0 : done - first;
  const size_t group = done < first ? 0 : beyond / block + 1;
  *left = done < first ? first - done : block - beyond % block;
  return (amn_affine){affine.zeros + group, affine.scales + group, affine.biases + group};
}

#define INTEGERS_PADDED(bits, per_word)                                                          \
  static void V_NAME(integers_padded##bits)(const uint8_t *src, size_t at, float *dst, size_t n, \
                                            amn_affine affine, size_t first, size_t block) {     \
    uint8_t room[PADDED_ROOM];                                                                   \
    for (size_t done = 0, count, left; done < n; done += count) {                                \
      count = n - done < PADDED_AT_ONCE ? n - done : PADDED_AT_ONCE;                             \
      const amn_affine of = affine_from(affine, done, first, block, &left);                      \
      const uint8_t *codes = padded_bytes(&V_NAME(padded_places_##bits), bits, per_word, src,    \
                                          at + done, count, room);                               \
      V_NAME(integers_packed8)(codes, 0, dst + done, count, of, left, block);                    \
    }                                                                                            \
  }

INTEGERS_PADDED(3, 10)
INTEGERS_PADDED(5, 6)
INTEGERS_PADDED(6, 5)
INTEGERS_PADDED(7, 4)

#undef INTEGERS_PADDED

/* ---- to 16 bits ---- */

/* A compile-time constant in every use. 32 codes are read as bytes, those of two's complement as
 * they are. */
typedef struct {
  int bits, is_signed;
  integers_bytes_fn bytes_of;
  words_fn words_of;
  wide_words_fn wide_words_of;
} integers_16_kind;

/* A group's numbers everywhere. */
typedef struct {
  vec_f32 zero, scale, bias;
} integers_factors;

AMN_FORCE_INLINE vec_f32 integers_value(const integers_factors *factors, vec_f32 code) {
  return v_add_f32(v_mul_f32(v_sub_f32(code, factors->zero), factors->scale), factors->bias);
}

/* The outcomes of 16 codes. */
AMN_FORCE_INLINE nibble_table integers_table(integers_16_kind kind,
                                             const integers_factors *factors) {
  static const float codes[2][16] = {{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15},
                                     {0, 2, 4, 6, -8, -6, -4, -2, 1, 3, 5, 7, -7, -5, -3, -1}};
  const float *even = codes[kind.is_signed];
  return table_of_words(kind.words_of(integers_value(factors, v_load_f32(even)),
                                      integers_value(factors, v_load_f32(even + 8))));
}

AMN_FORCE_INLINE wide_f32 integers_wide_value(const integers_factors *factors, wide_f32 code) {
  const wide_f32 value = wide_sub(code, wide_all(factors->zero));
  return wide_add(wide_mul(value, wide_all(factors->scale)), wide_all(factors->bias));
}

/* Two's complement counts from -128 on. */
AMN_FORCE_INLINE void integers_store_16(integers_16_kind kind, const integers_factors *factors,
                                        vec bytes, uint8_t *dst) {
  if (kind.is_signed) bytes = v_xor(bytes, v_set_u8(0x80));
  for (int i = 0; i < WIDE_PARTS; i++) {
    wide_f32 even = wide_even_u8(bytes, i), odd = wide_odd_u8(bytes, i);
    if (kind.is_signed) {
      even = wide_sub(even, wide_set(128));
      odd = wide_sub(odd, wide_set(128));
    }
    wide_store_words(
        dst, IN_ORDER, i,
        kind.wide_words_of(integers_wide_value(factors, even), integers_wide_value(factors, odd)));
  }
}

/* n codes of one group. */
AMN_FORCE_INLINE void integers_16_group(integers_16_kind kind, const integers_factors *factors,
                                        const uint8_t *src, uint8_t *dst, size_t n) {
  const size_t bits = (size_t)kind.bits, whole = n - n % 32;
  uint8_t padded[32] = {0}, values[64];
  nibble_table table;
  if (bits <= 4) table = integers_table(kind, factors);
  for (size_t i = 0; i < whole; i += 32) {
    const vec bytes = kind.bytes_of(src + i / 8 * bits);
    if (bits <= 4)
      store_nibbles(table, bytes, dst + 2 * i);
    else
      integers_store_16(kind, factors, bytes, dst + 2 * i);
  }
  if (n == whole) return;
  memcpy(padded, src + whole / 8 * bits, ((n - whole) * bits + 7) / 8);
  if (bits <= 4)
    store_nibbles(table, kind.bytes_of(padded), values);
  else
    integers_store_16(kind, factors, kind.bytes_of(padded), values);
  memcpy(dst + 2 * whole, values, 2 * (n - whole));
}

AMN_FORCE_INLINE void integers_16(integers_16_kind kind, const uint8_t *src, uint8_t *dst, size_t n,
                                  amn_affine affine, size_t first, size_t block) {
  for (size_t run = first; n > 0; run = block) {
    if (run > n) run = n;
    const integers_factors factors = {v_set_f32(*affine.zeros++), v_set_f32(*affine.scales++),
                                      v_set_f32(*affine.biases++)};
    integers_16_group(kind, &factors, src, dst, run);
    src += run / 8 * (size_t)kind.bits;
    dst += 2 * run;
    n -= run;
  }
  v_end();
}

#define INTEGERS_16(name, bits, is_signed, bytes_of)                                               \
  static void V_NAME(integers_16_##name)(const uint8_t *src, size_t at, amn_out out, uint8_t *dst, \
                                         size_t n, amn_affine affine, size_t first,                \
                                         size_t block) {                                           \
    const integers_16_kind f16 = {bits, is_signed, bytes_of, f16_words, wide_f16};                 \
    const integers_16_kind bf16 = {bits, is_signed, bytes_of, bf16_words, wide_bf16};              \
    (void)at; /* 0 */                                                                              \
    if (out == AMN_OUT_F16)                                                                        \
      integers_16(f16, src, dst, n, affine, first, block);                                         \
    else                                                                                           \
      integers_16(bf16, src, dst, n, affine, first, block);                                        \
  }

INTEGERS_16(int4, 4, 1, v_load_nibbles_as_u8_x32)
INTEGERS_16(int8, 8, 1, integers_bytes)
INTEGERS_16(packed1, 1, 0, dense_bytes_1)
INTEGERS_16(packed2, 2, 0, dense_bytes_2)
INTEGERS_16(packed3, 3, 0, dense_bytes_3)
INTEGERS_16(packed4, 4, 0, v_load_nibbles_as_u8_x32)
INTEGERS_16(packed5, 5, 0, dense_bytes_5)
INTEGERS_16(packed6, 6, 0, dense_bytes_6)
INTEGERS_16(packed7, 7, 0, dense_bytes_7)
INTEGERS_16(packed8, 8, 0, integers_bytes)

#undef INTEGERS_16

#define INTEGERS_16_PADDED(bits, per_word)                                                    \
  static void V_NAME(integers_16_padded##bits)(const uint8_t *src, size_t at, amn_out out,    \
                                               uint8_t *dst, size_t n, amn_affine affine,     \
                                               size_t first, size_t block) {                  \
    uint8_t room[PADDED_ROOM];                                                                \
    for (size_t done = 0, count, left; done < n; done += count) {                             \
      count = n - done < PADDED_AT_ONCE ? n - done : PADDED_AT_ONCE;                          \
      const amn_affine of = affine_from(affine, done, first, block, &left);                   \
      const uint8_t *codes = padded_bytes(&V_NAME(padded_places_##bits), bits, per_word, src, \
                                          at + done, count, room);                            \
      V_NAME(integers_16_packed8)(codes, 0, out, dst + 2 * done, count, of, left, block);     \
    }                                                                                         \
  }

INTEGERS_16_PADDED(3, 10)
INTEGERS_16_PADDED(5, 6)
INTEGERS_16_PADDED(6, 5)
INTEGERS_16_PADDED(7, 4)

#undef INTEGERS_16_PADDED
