/* 8-bit floats times a scale, with the vector vocabulary of vec_*.h.
 *
 * A bfloat16 is put together from bytes, without arithmetic on numbers. With n bits of mantissa
 * and e the exponent field, a code other than a special one is worth
 *
 *     value(index) * 2^(e-1)   index = code & 0x7f less (e-1) << n, for e >= 1
 *     value(index)             index = code & 0x7f, for e = 0
 *
 * where value(index) = index * unit, unit = the smallest subnormal; index < 2^(n+1) <= 16. Rounding
 * a normal float32 product, and then a normal bfloat16, depends on the mantissas alone, so
 *
 *     bf16(value * scale) = bf16(value(index) * scale) + ((e-1) << 7)   as integers,
 *
 * a look-up among 16 outcomes per scale and an addition; a rounding that carries into the exponent
 * is in the table already. That holds while every product is normal and none overflows:
 *
 *     |scale| * unit >= 2^-126, and |scale| * 2^16 (above every value) <= 2^126,
 *
 * for the smallest unit, 2^-17 of E5M2FNUZ, |scale| >= 2^-109, and |scale| < 2^110: exponent fields
 * of 18 to 236. Other scales (zero, subnormal, infinite, NaN) go by way of float32 products.
 *
 * Needs: convert.tpl.h. Defines: scaled_*, scaled_bf16_*. */

#define F8_SCALE_EXPONENT_MIN 18
#define F8_SCALE_EXPONENT_MAX 236

typedef enum { F8_FN, F8_IEEE, F8_FNUZ } f8_specials;

/* A compile-time constant in every use. */
typedef struct {
  int n_mantissa;
  float unit;
  f8_specials specials;
} f8_format;

#define F8_E4M3 ((f8_format){3, 0x1p-9f, F8_FN})
#define F8_E5M2 ((f8_format){2, 0x1p-16f, F8_IEEE})
#define F8_E4M3FNUZ ((f8_format){3, 0x1p-10f, F8_FNUZ})
#define F8_E5M2FNUZ ((f8_format){2, 0x1p-17f, F8_FNUZ})

/* The 16 outcomes, as their low and high bytes. */
typedef struct {
  vec low, high;
} f8_table;

/* bf16(index * unit * scale). unit * scale is exact: a power of two times a scale, normal within
 * the bounds above. */
AMN_FORCE_INLINE vec f8_outcomes(f8_format format, float scale) {
  const vec_f32 step = v_set_f32(format.unit * scale);
  vec_f32 a, b;
  v_iota_f32(&a, &b);
  return v_pack_iota_u32(round_to_bf16(v_mul_f32(a, step)), round_to_bf16(v_mul_f32(b, step)));
}

AMN_FORCE_INLINE f8_table f8_make_table(f8_format format, float scale) {
  f8_table table;
  v_split_table(f8_outcomes(format, scale), &table.low, &table.high);
  return table;
}

/* The same for a positive power of two, as all MX scales are: the outcomes for a scale of 1 with
 * another exponent, except 0. */
AMN_FORCE_INLINE f8_table f8_make_table_pow2(f8_format format, uint32_t exponent) {
  const vec ones = f8_outcomes(format, 1.0f);
  const vec shift = v_set_u16((uint16_t)((exponent - 127) << 7));
  const vec is_zero = v_equal_u16(ones, v_zero());
  f8_table table;
  v_split_table(v_add_u16(ones, v_and_not(is_zero, shift)), &table.low, &table.high);
  return table;
}

AMN_FORCE_INLINE vec f8_special_mask(f8_format format, vec codes, vec magnitude) {
  if (format.specials == F8_FN) return v_equal_u8(magnitude, v_set_u8(0x7f));
  if (format.specials == F8_IEEE) return v_greater_s8(magnitude, v_set_u8(0x7b));
  return v_equal_u8(codes, v_set_u8(0x80));
}

/* Special codes among the words: `mask` and `magnitude` widened to words. */
AMN_FORCE_INLINE vec f8_patch_words(f8_format format, vec words, vec mask, vec magnitude) {
  vec special = v_set_u16(0x7fc0);
  if (format.specials == F8_IEEE) {
    const vec infinity = v_or(v_and(words, v_set_u16(0x8000)), v_set_u16(0x7f80));
    special = v_select(v_equal_u16(magnitude, v_set_u16(0x7c)), infinity, special);
  }
  return v_select(mask, special, words);
}

/* 32 codes, loaded for one zip or two, to the bfloat16 words of two zips. */
AMN_FORCE_INLINE void f8_words(f8_format format, f8_table table, vec codes, vec *first,
                               vec *second) {
  const int n = format.n_mantissa;
  const vec magnitude = v_and(codes, v_set_u8(0x7f));
  const vec sign = v_xor(codes, magnitude);
  const vec exponent = v_sub_sat_u8(v_and(codes, v_set_u8((uint8_t)(0x7f & (0x7f << n)))),
                                    v_set_u8((uint8_t)(1 << n)));
  const vec index = v_sub_u8(magnitude, exponent);
  const vec low = v_lookup16(table.low, index);
  const vec high = v_xor(v_lookup16(table.high, index), sign);
  /* The exponent is at bit n of its byte, bit 8 + n of its word, and belongs at bit 7. */
  const vec exponent_first = v_shr_u16(v_zip_low_u8(v_zero(), exponent), 1 + n);
  const vec exponent_second = v_shr_u16(v_zip_high_u8(v_zero(), exponent), 1 + n);
  *first = v_add_u16(v_zip_low_u8(low, high), exponent_first);
  *second = v_add_u16(v_zip_high_u8(low, high), exponent_second);
  const vec special = f8_special_mask(format, codes, magnitude);
  if (v_any(special)) {
    *first = f8_patch_words(format, *first, v_zip_low_u8(special, special),
                            v_zip_low_u8(magnitude, v_zero()));
    *second = f8_patch_words(format, *second, v_zip_high_u8(special, special),
                             v_zip_high_u8(magnitude, v_zero()));
  }
}

AMN_FORCE_INLINE void f8_block_bf16(f8_format format, f8_table table, const uint8_t *src,
                                    uint8_t *dst) {
  vec first, second;
  f8_words(format, table, v_load_u8_zip1(src), &first, &second);
  v_store(dst, first);
  v_store(dst + 32, second);
}

/* 32 codes to the float32 of their values, which bfloat16 holds exactly: `table` is for scale 1. */
AMN_FORCE_INLINE void f8_values(f8_format format, f8_table table, const uint8_t *src,
                                vec_f32 values[4]) {
  vec first, second;
  f8_words(format, table, v_load_u8_zip2(src), &first, &second);
  values[0] = v_f32_from_bits(v_zip_low_u16(v_zero(), first));
  values[1] = v_f32_from_bits(v_zip_high_u16(v_zero(), first));
  values[2] = v_f32_from_bits(v_zip_low_u16(v_zero(), second));
  values[3] = v_f32_from_bits(v_zip_high_u16(v_zero(), second));
}

AMN_FORCE_INLINE void f8_block_f32(f8_format format, f8_table ones, const uint8_t *src,
                                   uint8_t *dst, vec_f32 scale) {
  vec_f32 values[4];
  f8_values(format, ones, src, values);
  for (int i = 0; i < 4; i++) v_store_f32(dst + 32 * i, v_mul_f32(values[i], scale));
}

/* One scale for each code. */
AMN_FORCE_INLINE void f8_block_f32_each(f8_format format, f8_table ones, const uint8_t *src,
                                        uint8_t *dst, const float *scales) {
  vec_f32 values[4];
  f8_values(format, ones, src, values);
  for (int i = 0; i < 4; i++)
    v_store_f32(dst + 32 * i, v_mul_f32(values[i], v_load_f32(scales + 8 * i)));
}

/* n codes with one scale. What is left after whole blocks of 32 is covered by a last block that
 * overlaps the one before, or, when there is none, by a padded copy. */
AMN_FORCE_INLINE void f8_run_f32(f8_format format, f8_table ones, const uint8_t *src, uint8_t *dst,
                                 size_t n, float scale) {
  const vec_f32 scale_f32x8 = v_set_f32(scale);
  if (n < 32) {
    uint8_t codes[32] = {0}, values[128];
    memcpy(codes, src, n);
    f8_block_f32(format, ones, codes, values, scale_f32x8);
    memcpy(dst, values, 4 * n);
    return;
  }
  for (size_t i = 0; i + 32 <= n; i += 32)
    f8_block_f32(format, ones, src + i, dst + 4 * i, scale_f32x8);
  if (n % 32) f8_block_f32(format, ones, src + n - 32, dst + 4 * (n - 32), scale_f32x8);
}

AMN_FORCE_INLINE void f8_run_f32_each(f8_format format, f8_table ones, const uint8_t *src,
                                      uint8_t *dst, size_t n, const float *scales) {
  if (n < 32) {
    uint8_t codes[32] = {0}, values[128];
    float padded[32] = {0};
    memcpy(codes, src, n);
    memcpy(padded, scales, 4 * n);
    f8_block_f32_each(format, ones, codes, values, padded);
    memcpy(dst, values, 4 * n);
    return;
  }
  for (size_t i = 0; i + 32 <= n; i += 32)
    f8_block_f32_each(format, ones, src + i, dst + 4 * i, scales + i);
  if (n % 32) f8_block_f32_each(format, ones, src + n - 32, dst + 4 * (n - 32), scales + n - 32);
}

AMN_FORCE_INLINE void f8_scaled(f8_format format, const uint8_t *src, uint8_t *dst, size_t n,
                                const float *scales, size_t first, size_t block) {
  const f8_table ones = f8_make_table(format, 1.0f);
  if (block == 1) {
    f8_run_f32_each(format, ones, src, dst, n, scales);
  } else {
    for (size_t run = first; n > 0; run = block) {
      if (run > n) run = n;
      f8_run_f32(format, ones, src, dst, run, *scales++);
      src += run;
      dst += 4 * run;
      n -= run;
      /* MX, apart, for the sake of a loop whose constants stay in registers. */
      for (; block == 32 && n >= 32; n -= 32, src += 32, dst += 128)
        f8_block_f32(format, ones, src, dst, v_set_f32(*scales++));
    }
  }
  v_end();
}

AMN_FORCE_INLINE void f8_run_bf16(f8_format format, f8_table table, const uint8_t *src,
                                  uint8_t *dst, size_t n) {
  if (n < 32) {
    uint8_t codes[32] = {0}, words[64];
    memcpy(codes, src, n);
    f8_block_bf16(format, table, codes, words);
    memcpy(dst, words, 2 * n);
    return;
  }
  for (size_t i = 0; i + 32 <= n; i += 32) f8_block_bf16(format, table, src + i, dst + 2 * i);
  if (n % 32) f8_block_bf16(format, table, src + n - 32, dst + 2 * (n - 32));
}

AMN_FORCE_INLINE int f8_in_bounds(uint32_t scale_bits) {
  const uint32_t exponent = scale_bits >> 23 & 0xff;
  return exponent >= F8_SCALE_EXPONENT_MIN && exponent <= F8_SCALE_EXPONENT_MAX;
}

AMN_FORCE_INLINE int f8_is_pow2(uint32_t scale_bits) {
  return (scale_bits & 0x807fffffu) == 0;
}

/* MX: a power of two for every 32 codes. Returns how many blocks it did before another scale. Apart
 * from the general loop for the sake of one whose constants stay in registers. */
AMN_FORCE_INLINE size_t f8_mx_bf16(f8_format format, const uint8_t *src, uint8_t *dst,
                                   size_t n_blocks, const float *scales) {
  size_t i = 0;
  for (; i < n_blocks; i++) {
    const uint32_t bits = amn_f32_bits(scales[i]);
    if (!f8_is_pow2(bits) || !f8_in_bounds(bits)) break;
    f8_block_bf16(format, f8_make_table_pow2(format, bits >> 23), src + 32 * i, dst + 64 * i);
  }
  return i;
}

/* A scale outside the bounds: float32 products by the other kernel of this format, then narrowed.
 */
static uint64_t f8_run_bf16_by_f32(amn_scaled_fn scaled, const uint8_t *src, uint8_t *dst, size_t n,
                                   float scale) {
  uint8_t values[4 * 512];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n; done += 512) {
    const size_t count = n - done < 512 ? n - done : 512;
    scaled(src + done, values, count, &scale, count, count);
    n_overflow += V_NAME(narrow_bf16)(values, dst + 2 * done, count);
  }
  return n_overflow;
}

AMN_FORCE_INLINE uint64_t f8_scaled_bf16(f8_format format, amn_scaled_fn scaled, const uint8_t *src,
                                         uint8_t *dst, size_t n, const float *scales, size_t first,
                                         size_t block) {
  uint64_t n_overflow = 0;
  for (size_t run = first; n > 0; run = block) {
    size_t n_blocks = run == 32 && block == 32 ? f8_mx_bf16(format, src, dst, n / 32, scales) : 0;
    if (n_blocks > 0) {
      run = 32 * n_blocks;
      scales += n_blocks;
    } else {
      const float scale = *scales++;
      if (run > n) run = n;
      if (f8_in_bounds(amn_f32_bits(scale)))
        f8_run_bf16(format, f8_make_table(format, scale), src, dst, run);
      else
        n_overflow += f8_run_bf16_by_f32(scaled, src, dst, run, scale);
    }
    src += run;
    dst += 2 * run;
    n -= run;
  }
  v_end();
  return n_overflow;
}

static void V_NAME(scaled_f8_e4m3)(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                                   size_t first, size_t block) {
  f8_scaled(F8_E4M3, src, dst, n, scales, first, block);
}

static uint64_t V_NAME(scaled_bf16_f8_e4m3)(const uint8_t *src, uint8_t *dst, size_t n,
                                            const float *scales, size_t first, size_t block) {
  return f8_scaled_bf16(F8_E4M3, V_NAME(scaled_f8_e4m3), src, dst, n, scales, first, block);
}

static void V_NAME(scaled_f8_e5m2)(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                                   size_t first, size_t block) {
  f8_scaled(F8_E5M2, src, dst, n, scales, first, block);
}

static uint64_t V_NAME(scaled_bf16_f8_e5m2)(const uint8_t *src, uint8_t *dst, size_t n,
                                            const float *scales, size_t first, size_t block) {
  return f8_scaled_bf16(F8_E5M2, V_NAME(scaled_f8_e5m2), src, dst, n, scales, first, block);
}

static void V_NAME(scaled_f8_e4m3fnuz)(const uint8_t *src, uint8_t *dst, size_t n,
                                       const float *scales, size_t first, size_t block) {
  f8_scaled(F8_E4M3FNUZ, src, dst, n, scales, first, block);
}

static uint64_t V_NAME(scaled_bf16_f8_e4m3fnuz)(const uint8_t *src, uint8_t *dst, size_t n,
                                                const float *scales, size_t first, size_t block) {
  return f8_scaled_bf16(F8_E4M3FNUZ, V_NAME(scaled_f8_e4m3fnuz), src, dst, n, scales, first, block);
}

static void V_NAME(scaled_f8_e5m2fnuz)(const uint8_t *src, uint8_t *dst, size_t n,
                                       const float *scales, size_t first, size_t block) {
  f8_scaled(F8_E5M2FNUZ, src, dst, n, scales, first, block);
}

static uint64_t V_NAME(scaled_bf16_f8_e5m2fnuz)(const uint8_t *src, uint8_t *dst, size_t n,
                                                const float *scales, size_t first, size_t block) {
  return f8_scaled_bf16(F8_E5M2FNUZ, V_NAME(scaled_f8_e5m2fnuz), src, dst, n, scales, first, block);
}
