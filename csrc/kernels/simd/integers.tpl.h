/* Integers of a row, less a zero point, times a scale, plus a bias: 32 at a time, and what is left
 * padded. */

/* 32 codes as they are kept, and eight of them as int32. */
typedef vec (*integers_load_fn)(const uint8_t *src);
typedef vec (*integers_eight_fn)(vec codes, int i);

/* Where 32 codes of some bits lie in as many words: in a word from a bit on, and in the next. */
typedef struct {
  uint32_t word[32], right[32], next[32], left[32];
} integers_places;

#define EIGHT(F, b, j) \
  F(b, j), F(b, j + 1), F(b, j + 2), F(b, j + 3), F(b, j + 4), F(b, j + 5), F(b, j + 6), F(b, j + 7)
#define ALL(F, b) {EIGHT(F, b, 0), EIGHT(F, b, 8), EIGHT(F, b, 16), EIGHT(F, b, 24)}
#define WORD(b, j) ((b) * (j) / 32)
#define RIGHT(b, j) ((b) * (j) % 32)
#define NEXT(b, j) (WORD(b, j) + 1)
#define LEFT(b, j) (32 - RIGHT(b, j))

#define INTEGERS_DENSE(bits)                                                                       \
  static const integers_places V_NAME(integers_places_##bits) = {                                  \
      ALL(WORD, bits), ALL(RIGHT, bits), ALL(NEXT, bits), ALL(LEFT, bits)};                        \
  AMN_FORCE_INLINE vec integers_load_##bits(const uint8_t *src) {                                  \
    return v_load_some_u32(src, bits);                                                             \
  }                                                                                                \
  AMN_FORCE_INLINE vec integers_eight_##bits(vec codes, int i) {                                   \
    const integers_places *at = &V_NAME(integers_places_##bits);                                   \
    const vec low =                                                                                \
        v_shr_u32_each(v_permute_u32(codes, v_load(at->word + 8 * i)), v_load(at->right + 8 * i)); \
    const vec high =                                                                               \
        v_shl_u32_each(v_permute_u32(codes, v_load(at->next + 8 * i)), v_load(at->left + 8 * i));  \
    return v_and(v_or(low, high), v_set_u32((1u << bits) - 1));                                    \
  }

INTEGERS_DENSE(1)
INTEGERS_DENSE(2)
INTEGERS_DENSE(3)
INTEGERS_DENSE(5)
INTEGERS_DENSE(6)
INTEGERS_DENSE(7)

#undef INTEGERS_DENSE
#undef LEFT
#undef NEXT
#undef RIGHT
#undef WORD
#undef ALL
#undef EIGHT

AMN_FORCE_INLINE vec integers_bytes(const uint8_t *src) {
  return v_load(src);
}

AMN_FORCE_INLINE vec integers_signed_nibbles(const uint8_t *src) {
  const vec sign = v_set_u8(8);
  return v_sub_u8(v_xor(v_load_nibbles_as_u8_x32(src), sign), sign);
}

AMN_FORCE_INLINE vec integers_eight_bytes(vec codes, int i) {
  return v_and(v_s32_from_s8(codes, i), v_set_u32(255));
}

AMN_FORCE_INLINE void integers_store(vec codes, vec_f32 zero, vec_f32 scale, vec_f32 bias,
                                     float *dst) {
  const vec_f32 values = v_sub_f32(v_f32_from_s32(codes), zero);
  v_store_f32(dst, v_add_f32(v_mul_f32(values, scale), bias));
}

AMN_FORCE_INLINE void integers_run(integers_load_fn load, integers_eight_fn eight, int bits,
                                   const uint8_t *src, float *dst, size_t n, amn_affine affine) {
  const vec_f32 zero = v_set_f32(*affine.zeros), scale = v_set_f32(*affine.scales);
  const vec_f32 bias = v_set_f32(*affine.biases);
  const size_t rest = n % 32, whole = n - rest;
  for (size_t i = 0; i < whole; i += 32) {
    const vec codes = load(src + i / 8 * (size_t)bits);
    for (int k = 0; k < 4; k++) integers_store(eight(codes, k), zero, scale, bias, dst + i + 8 * k);
  }
  if (rest) {
    uint8_t padded[32] = {0};
    float values[32];
    memcpy(padded, src + whole / 8 * (size_t)bits, (rest * (size_t)bits + 7) / 8);
    const vec codes = load(padded);
    for (int k = 0; k < 4; k++) integers_store(eight(codes, k), zero, scale, bias, values + 8 * k);
    memcpy(dst + whole, values, rest * sizeof(float));
  }
}

/* n codes, a multiple of 32, of blocks of one. */
AMN_FORCE_INLINE void integers_singles(integers_load_fn load, integers_eight_fn eight, int bits,
                                       const uint8_t *src, float *dst, size_t n,
                                       amn_affine affine) {
  for (size_t i = 0; i < n; i += 32) {
    const vec codes = load(src + i / 8 * (size_t)bits);
    for (int k = 0; k < 4; k++) {
      const size_t at = i + 8 * (size_t)k;
      integers_store(eight(codes, k), v_load_f32(affine.zeros + at), v_load_f32(affine.scales + at),
                     v_load_f32(affine.biases + at), dst + at);
    }
  }
}

/* Blocks that do not begin with a byte are left to the scalar kernel. */
#define INTEGERS_KERNEL(name, load, eight, bits, codes, bytes)                             \
  static void V_NAME(integers_##name)(const uint8_t *src, size_t at, float *dst, size_t n, \
                                      amn_affine affine, size_t first, size_t block) {     \
    if (block == 1 && at % codes == 0) {                                                   \
      const size_t whole = n - n % 32;                                                     \
      integers_singles(load, eight, bits, src + at / codes * bytes, dst, whole, affine);   \
      v_end();                                                                             \
      affine.zeros += whole, affine.scales += whole, affine.biases += whole;               \
      integers_##name##_scalar(src, at + whole, dst + whole, n - whole, affine, 1, 1);     \
      return;                                                                              \
    }                                                                                      \
    for (size_t run = first; n > 0; run = block) {                                         \
      if (run > n) run = n;                                                                \
      if (at % codes) {                                                                    \
        v_end();                                                                           \
        integers_##name##_scalar(src, at, dst, run, affine, run, run);                     \
      } else {                                                                             \
        integers_run(load, eight, bits, src + at / codes * bytes, dst, run, affine);       \
      }                                                                                    \
      affine.zeros++, affine.scales++, affine.biases++;                                    \
      at += run;                                                                           \
      dst += run;                                                                          \
      n -= run;                                                                            \
    }                                                                                      \
    v_end();                                                                               \
  }

INTEGERS_KERNEL(int4, integers_signed_nibbles, v_s32_from_s8, 4, 2, 1)
INTEGERS_KERNEL(int8, integers_bytes, v_s32_from_s8, 8, 1, 1)
INTEGERS_KERNEL(packed1, integers_load_1, integers_eight_1, 1, 8, 1)
INTEGERS_KERNEL(packed2, integers_load_2, integers_eight_2, 2, 4, 1)
INTEGERS_KERNEL(packed3, integers_load_3, integers_eight_3, 3, 8, 3)
INTEGERS_KERNEL(packed4, v_load_nibbles_as_u8_x32, v_s32_from_s8, 4, 2, 1)
INTEGERS_KERNEL(packed5, integers_load_5, integers_eight_5, 5, 8, 5)
INTEGERS_KERNEL(packed6, integers_load_6, integers_eight_6, 6, 4, 3)
INTEGERS_KERNEL(packed7, integers_load_7, integers_eight_7, 7, 8, 7)
INTEGERS_KERNEL(packed8, integers_bytes, integers_eight_bytes, 8, 1, 1)

#undef INTEGERS_KERNEL
