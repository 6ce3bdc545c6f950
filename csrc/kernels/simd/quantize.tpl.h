/* Numbers to codes, in pairs of vectors. A block whose scale is out of bounds is left to the scalar
 * kernel.
 *
 * Needs: pairs.tpl.h, codebook.tpl.h. Defines: quantize_* but of E2M1; sums of errors. */

/* What a kernel is made for: constants once inlined. */
typedef struct {
  amn_quantize_code code;
  amn_source source;
  int is_divided, has_zeros, is_clamped, is_measured;
} quantize_kind;

/* What a run's values have in common. */
typedef struct {
  vec_f32 by, zero, scale; /* by: what values are multiplied or divided by */
  vec least;               /* of 8-bit floats: from this magnitude on, in u16, codes are normal */
  codebook_bounds bounds;  /* of bfloat16 */
  vec_f32 low, high;       /* what a codebook's places stand for */
} quantize_factors;

typedef struct {
  vec_f32 absolute, squared, power, largest;
} quantize_errors;

AMN_FORCE_INLINE int is_f8(amn_quantize_code code) {
  return code == AMN_QUANTIZE_F8_E4M3 || code == AMN_QUANTIZE_F8_E5M2;
}

AMN_FORCE_INLINE const amn_codebook4 *codebook_of(amn_quantize_code code) {
  if (code == AMN_QUANTIZE_NF4) return &amn_nf4;
  return code == AMN_QUANTIZE_FP4 || code == AMN_QUANTIZE_FP4_ZEROS ? &amn_fp4 : NULL;
}

/* Whether places in a codebook are found among bounds. */
AMN_FORCE_INLINE int is_bounded(quantize_kind kind) {
  return codebook_of(kind.code) != NULL && kind.source == AMN_SOURCE_BF16;
}

AMN_FORCE_INLINE vec_f32 magnitude_f32(vec_f32 a) {
  return v_f32_from_bits(v_and(v_bits_f32(a), v_set_u32(0x7fffffff)));
}

/* Nearest, ties to even: beside 1.5 * 2^(exponent + 16), float32 counts in bfloat16's units. */
AMN_FORCE_INLINE vec_f32 rounded_to_bf16(vec_f32 a) {
  const vec exponent = v_and(v_bits_f32(a), v_set_u32(0x7f800000));
  const vec_f32 beside = v_f32_from_bits(v_add_u32(exponent, v_set_u32((16u << 23) + 0x400000)));
  return v_sub_f32(v_add_f32(a, beside), beside);
}

/* The quotient of two bfloat16 by way of 1 / divisor. Of numbers with 8 bits none lies halfway
 * between two others, or within 2^-17 of it, relatively; so neither the way there nor the direction
 * of ties matters. */
AMN_FORCE_INLINE vec_f32 quotient_bf16(vec_f32 value, vec_f32 reciprocal) {
  const vec bits = v_bits_f32(v_mul_f32(value, reciprocal));
  return v_f32_from_bits(v_and(v_add_u32(bits, v_set_u32(0x8000)), v_set_u32(0xffff0000)));
}

AMN_FORCE_INLINE vec_f32 scaled_f32(quantize_kind kind, const quantize_factors *factors,
                                    vec_f32 value) {
  if (!kind.is_divided) return v_mul_f32(value, factors->by);
  if (kind.source == AMN_SOURCE_BF16) return quotient_bf16(value, factors->by);
  const vec_f32 quotient = v_div_f32(value, factors->by);
  return kind.source == AMN_SOURCE_F16 ? v_rounded_to_f16(quotient) : quotient;
}

/* Of 32 numbers, the sum of four in each lane. */
AMN_FORCE_INLINE vec_f32 sum_of_pairs(pair low, pair high) {
  return v_add_f32(v_add_f32(low.even, low.odd), v_add_f32(high.even, high.odd));
}

AMN_FORCE_INLINE pair squares_of(pair a) {
  return (pair){v_mul_f32(a.even, a.even), v_mul_f32(a.odd, a.odd)};
}

AMN_FORCE_INLINE pair error_of(pair decoded, pair value) {
  return (pair){magnitude_f32(v_sub_f32(decoded.even, value.even)),
                magnitude_f32(v_sub_f32(decoded.odd, value.odd))};
}

/* Of 32 values, what their codes stand for against them. */
AMN_FORCE_INLINE void measure(quantize_errors *errors, const pair *decoded, const pair *values) {
  const pair low = error_of(decoded[0], values[0]), high = error_of(decoded[1], values[1]);
  vec_f32 most = v_max_f32(low.even, errors->largest); /* passes over NaNs */
  most = v_max_f32(low.odd, most);
  most = v_max_f32(high.even, most);
  errors->largest = v_max_f32(high.odd, most);
  errors->absolute = v_add_f32(errors->absolute, sum_of_pairs(low, high));
  errors->squared = v_add_f32(errors->squared, sum_of_pairs(squares_of(low), squares_of(high)));
  errors->power =
      v_add_f32(errors->power, sum_of_pairs(squares_of(values[0]), squares_of(values[1])));
}

/* ---- 8-bit floats ---- */

AMN_FORCE_INLINE int f8_mantissa(quantize_kind kind) {
  return kind.code == AMN_QUANTIZE_F8_E5M2 ? 2 : 3;
}

/* The exponent field that float32 has for normal codes of the least exponent. */
AMN_FORCE_INLINE uint32_t f8_least_exponent(quantize_kind kind) {
  return kind.code == AMN_QUANTIZE_F8_E5M2 ? 113 : 121;
}

AMN_FORCE_INLINE float f8_largest(quantize_kind kind) {
  return kind.code == AMN_QUANTIZE_F8_E5M2 ? 57344.0f : 448.0f;
}

AMN_FORCE_INLINE vec_f32 clamped_f8(quantize_kind kind, vec_f32 magnitude) {
  return kind.is_clamped ? v_min_f32(magnitude, v_set_f32(f8_largest(kind))) : magnitude;
}

/* The number that a magnitude rounds to. Beside 2^(exponent + 23 - mantissa), float32 counts in
 * units of 2^(exponent - mantissa), as the codes of that exponent do; the least exponent's unit is
 * that of subnormal codes as well. */
AMN_FORCE_INLINE vec_f32 f8_number(quantize_kind kind, vec_f32 magnitude) {
  const vec exponent = v_and(v_bits_f32(magnitude), v_set_u32(0x7f800000));
  const vec least = v_set_u32(f8_least_exponent(kind) << 23);
  const vec beside = v_set_u32((uint32_t)(23 - f8_mantissa(kind)) << 23);
  const vec_f32 units = v_f32_from_bits(v_add_u32(v_max_s32(exponent, least), beside));
  return v_sub_f32(v_add_f32(magnitude, units), units);
}

/* 16 codes in u16, without signs, and the numbers that they stand for. */
AMN_FORCE_INLINE vec f8_codes(quantize_kind kind, const quantize_factors *factors, pair values,
                              pair *numbers) {
  const int shift = 23 - f8_mantissa(kind);
  const vec_f32 rebase = v_f32_from_bits(v_set_u32((128 - f8_least_exponent(kind)) << 23));
  numbers->even = f8_number(kind, clamped_f8(kind, scaled_f32(kind, factors, values.even)));
  numbers->odd = f8_number(kind, clamped_f8(kind, scaled_f32(kind, factors, values.odd)));
  const vec even = v_bits_f32(v_mul_f32(numbers->even, rebase));
  const vec odd = v_bits_f32(v_mul_f32(numbers->odd, rebase));
  return v_even_odd_u16(v_shr_u32(even, shift), v_shr_u32(odd, shift - 16));
}

/* Half a unit less one, and one more if the kept part is odd: what rounds to nearest even once the
 * lower bits are gone. `shift` counts those. */
AMN_FORCE_INLINE vec f8_rounded_u32(vec bits, int shift) {
  const vec odd = v_and(v_shr_u32(bits, shift), v_set_u32(1));
  return v_add_u32(v_add_u32(bits, v_set_u32((1u << (shift - 1)) - 1)), odd);
}

AMN_FORCE_INLINE vec f8_rounded_u16(vec words, int shift) {
  const vec odd = v_and(v_shr_u16(words, shift), v_set_u16(1));
  return v_add_u16(v_add_u16(words, v_set_u16((uint16_t)((1u << (shift - 1)) - 1))), odd);
}

/* 16 scaled values, rounded in u16 but for the bits that fall away. A quotient is a bfloat16, which
 * is rounded as such; of a product all bits count. */
AMN_FORCE_INLINE vec f8_rounded_words(quantize_kind kind, const quantize_factors *factors,
                                      pair values) {
  const int shift = 23 - f8_mantissa(kind);
  if (kind.is_divided) {
    const pair bits = {v_mul_f32(values.even, factors->by), v_mul_f32(values.odd, factors->by)};
    const vec half = v_set_u32(0x8000), even = v_add_u32(v_bits_f32(bits.even), half);
    vec words = v_even_odd_u16(v_shr_u32(even, 16), v_add_u32(v_bits_f32(bits.odd), half));
    if (kind.is_clamped)
      words = v_min_u16(words, v_set_u16((uint16_t)(amn_f32_bits(f8_largest(kind)) >> 16)));
    return f8_rounded_u16(words, shift - 16);
  }
  const vec_f32 even = clamped_f8(kind, v_mul_f32(values.even, factors->by));
  const vec_f32 odd = clamped_f8(kind, v_mul_f32(values.odd, factors->by));
  return v_even_odd_u16(v_shr_u32(f8_rounded_u32(v_bits_f32(even), shift), 16),
                        f8_rounded_u32(v_bits_f32(odd), shift));
}

/* The same as f8_codes, if all codes are normal: then they count as bfloat16 does. */
AMN_FORCE_INLINE vec f8_normal_codes(quantize_kind kind, const quantize_factors *factors,
                                     pair values, pair *numbers) {
  const int shift = 7 - f8_mantissa(kind);
  const vec words = f8_rounded_words(kind, factors, values);
  *numbers = pair_of_bf16(v_and(words, v_set_u16((uint16_t)(0xffffu << shift))));
  const uint16_t bias = (uint16_t)((f8_least_exponent(kind) - 1) << 7);
  return v_shr_u16(v_sub_u16(words, v_set_u16(bias)), shift);
}

/* 16 values as u16 with their signs, and their magnitudes. */
AMN_FORCE_INLINE vec load_magnitudes(amn_source source, const uint8_t *src, pair *values) {
  if (source == AMN_SOURCE_BF16) {
    const vec words = v_load(src);
    *values = pair_of_bf16(v_and(words, v_set_u16(0x7fff)));
    return words;
  }
  *values = load_pair(source, src);
  const vec signs =
      v_even_odd_u16(v_shr_u32(v_bits_f32(values->even), 16), v_bits_f32(values->odd));
  values->even = magnitude_f32(values->even);
  values->odd = magnitude_f32(values->odd);
  return signs;
}

/* Values, and what their codes stand for. */
typedef struct {
  pair values[2], numbers[2];
} measured_32;

/* From this bfloat16 on, in u16, a magnitude is no less than the least normal code, scaled: one
 * more than the product with the scale, rounded down, is above it. */
AMN_FORCE_INLINE vec f8_least(quantize_kind kind, float scale) {
  const float least = amn_f32_from_bits(f8_least_exponent(kind) << 23) * scale;
  return v_set_u16((uint16_t)((amn_f32_bits(least) >> 16) + 2));
}

/* Whether 32 values have normal codes, which are quicker to come by. Only of bfloat16 it is asked.
 */
AMN_FORCE_INLINE int f8_are_normal(quantize_kind kind, const quantize_factors *factors,
                                   const uint8_t *src) {
  if (kind.source != AMN_SOURCE_BF16) return 0;
  const vec magnitude = v_set_u16(0x7fff);
  const vec least = v_min_u16(v_and(v_load(src), magnitude), v_and(v_load(src + 32), magnitude));
  return !v_any(v_sub_sat_u16(factors->least, least));
}

AMN_FORCE_INLINE void f8_store_32(quantize_kind kind, int are_normal,
                                  const quantize_factors *factors, const uint8_t *src,
                                  uint8_t *codes, measured_32 *of) {
  const vec a = load_magnitudes(kind.source, src, &of->values[0]);
  const vec b = load_magnitudes(kind.source, src + 16 * source_bytes(kind.source), &of->values[1]);
  vec low, high;
  if (are_normal) {
    low = f8_normal_codes(kind, factors, of->values[0], &of->numbers[0]);
    high = f8_normal_codes(kind, factors, of->values[1], &of->numbers[1]);
  } else {
    low = f8_codes(kind, factors, of->values[0], &of->numbers[0]);
    high = f8_codes(kind, factors, of->values[1], &of->numbers[1]);
  }
  v_store(codes, v_pack_u16_signs(low, high, a, b));
}

/* ---- integers ---- */

AMN_FORCE_INLINE vec whole_codes(quantize_kind kind, const quantize_factors *factors, vec_f32 value,
                                 vec_f32 *number) {
  const int is_int4 = kind.code == AMN_QUANTIZE_INT4;
  const int is_127ths = kind.code == AMN_QUANTIZE_INT8_ABSMAX;
  vec_f32 scaled = scaled_f32(kind, factors, is_127ths ? v_rounded_to_f16(value) : value);
  if (kind.has_zeros) {
    scaled = v_add_f32(scaled, factors->zero);
    if (kind.source == AMN_SOURCE_BF16) scaled = rounded_to_bf16(scaled);
    if (kind.source == AMN_SOURCE_F16) scaled = v_rounded_to_f16(scaled);
  }
  scaled = v_min_f32(scaled, v_set_f32(is_int4 ? 7 : 127));
  if (kind.is_clamped) scaled = v_max_f32(scaled, v_set_f32(is_int4 ? -8 : -128));
  const vec whole = v_s32_from_f32(scaled);
  *number = v_f32_from_s32(whole);
  if (kind.has_zeros) *number = v_sub_f32(*number, factors->zero);
  return is_int4 ? v_add_u32(whole, v_set_u32(8)) : whole;
}

/* 16 codes in u16, and the numbers that they stand for. */
AMN_FORCE_INLINE vec int_codes(quantize_kind kind, const quantize_factors *factors, pair values,
                               pair *numbers) {
  const vec even = whole_codes(kind, factors, values.even, &numbers->even);
  const vec odd = whole_codes(kind, factors, values.odd, &numbers->odd);
  return v_and(v_even_odd_u16(even, v_shl_u32(odd, 16)), v_set_u16(0xff));
}

/* ---- codebooks ---- */

AMN_FORCE_INLINE vec codebook_code(quantize_kind kind, const quantize_factors *factors,
                                   vec_f32 value, vec_f32 *number) {
  const vec_f32 scaled = v_mul_f32(value, factors->by);
  const vec place = codebook_places(codebook_of(kind.code), scaled, number);
  if (kind.code != AMN_QUANTIZE_FP4_ZEROS) return place;
  const vec is_minus_zero = v_equal_u32(v_bits_f32(scaled), v_set_u32(0x80000000));
  return v_add_u32(place, v_shr_u32(is_minus_zero, 31));
}

AMN_FORCE_INLINE vec codebook_codes(quantize_kind kind, const quantize_factors *factors,
                                    pair values, pair *numbers) {
  const vec even = codebook_code(kind, factors, values.even, &numbers->even);
  const vec odd = codebook_code(kind, factors, values.odd, &numbers->odd);
  return v_even_odd_u16(even, v_shl_u32(odd, 16));
}

/* Of 16 bfloat16; the numbers are scaled already. */
AMN_FORCE_INLINE vec bounded_codes(quantize_kind kind, const quantize_factors *factors, vec words,
                                   pair *numbers) {
  vec place = bounded_places(&factors->bounds, words);
  if (kind.code == AMN_QUANTIZE_FP4_ZEROS)
    place = v_sub_u16(place, v_equal_u16(words, v_set_u16(0x8000)));
  numbers->even = v_lookup16_f32(factors->low, factors->high, place);
  numbers->odd = v_lookup16_f32(factors->low, factors->high, v_shr_u32(place, 16));
  return v_and(place, v_set_u16(0xff));
}

/* ---- all of them ---- */

/* 16 codes in u16, not of floats; of a codebook, places among its sorted entries. */
AMN_FORCE_INLINE vec codes_16(quantize_kind kind, const quantize_factors *factors,
                              const uint8_t *src, pair *values, pair *numbers) {
  *values = load_pair(kind.source, src);
  if (is_bounded(kind)) return bounded_codes(kind, factors, v_load(src), numbers);
  return codebook_of(kind.code) == NULL ? int_codes(kind, factors, *values, numbers)
                                        : codebook_codes(kind, factors, *values, numbers);
}

AMN_FORCE_INLINE void store_codes_32(quantize_kind kind, const quantize_factors *factors,
                                     const uint8_t *src, uint8_t *codes, measured_32 *of) {
  const uint8_t *upper = src + 16 * source_bytes(kind.source);
  const vec low = codes_16(kind, factors, src, &of->values[0], &of->numbers[0]);
  const vec high = codes_16(kind, factors, upper, &of->values[1], &of->numbers[1]);
  const vec all = v_pack_u16(low, high);
  if (codebook_of(kind.code) == &amn_fp4)
    v_store(codes, v_lookup16(v_load_both_lanes(amn_fp4.codes), all));
  else
    v_store(codes, all);
}

AMN_FORCE_INLINE pair decoded_of(quantize_kind kind, const quantize_factors *factors,
                                 pair numbers) {
  if (is_bounded(kind)) return numbers;
  pair decoded = {v_mul_f32(numbers.even, factors->scale), v_mul_f32(numbers.odd, factors->scale)};
  if (kind.code == AMN_QUANTIZE_INT8_ABSMAX) {
    const vec_f32 unit = v_set_f32(AMN_ONE_127TH);
    decoded = (pair){v_mul_f32(decoded.even, unit), v_mul_f32(decoded.odd, unit)};
  }
  return decoded;
}

AMN_FORCE_INLINE void quantize_kind_32(quantize_kind kind, int are_normal,
                                       const quantize_factors *factors, quantize_errors *errors,
                                       const uint8_t *src, uint8_t *codes) {
  measured_32 of;
  if (is_f8(kind.code))
    f8_store_32(kind, are_normal, factors, src, codes, &of);
  else
    store_codes_32(kind, factors, src, codes, &of);
  if (!kind.is_measured) return;
  const pair decoded[2] = {decoded_of(kind, factors, of.numbers[0]),
                           decoded_of(kind, factors, of.numbers[1])};
  measure(errors, decoded, of.values);
}

AMN_FORCE_INLINE void quantize_32(quantize_kind kind, const quantize_factors *factors,
                                  quantize_errors *errors, const uint8_t *src, uint8_t *codes) {
  if (is_f8(kind.code) && f8_are_normal(kind, factors, src))
    quantize_kind_32(kind, 1, factors, errors, src, codes);
  else
    quantize_kind_32(kind, 0, factors, errors, src, codes);
}

AMN_FORCE_INLINE quantize_errors load_errors(const amn_loss_lanes *lanes) {
  return (quantize_errors){v_load_f32(lanes->run.absolute), v_load_f32(lanes->run.squared),
                           v_load_f32(lanes->run.power), v_load_f32(lanes->largest)};
}

AMN_FORCE_INLINE void store_errors(amn_loss_lanes *lanes, const quantize_errors *errors) {
  v_store_f32(lanes->run.absolute, errors->absolute);
  v_store_f32(lanes->run.squared, errors->squared);
  v_store_f32(lanes->run.power, errors->power);
  v_store_f32(lanes->largest, errors->largest);
}

AMN_FORCE_INLINE void end_run(amn_loss_lanes *lanes, quantize_errors *errors) {
  v_add_to_f64(lanes->absolute, errors->absolute);
  v_add_to_f64(lanes->squared, errors->squared);
  v_add_to_f64(lanes->power, errors->power);
  errors->absolute = errors->squared = errors->power = v_set_f32(0);
  lanes->n = 0;
}

/* At most AMN_LOSS_RUN values of a block. Padding is zeros, which have no error. */
AMN_FORCE_INLINE void quantize_part(quantize_kind kind, const quantize_factors *factors,
                                    const uint8_t *src, uint8_t *codes, size_t n,
                                    quantize_errors *errors) {
  const size_t item = source_bytes(kind.source), whole = n / 32 * 32;
  for (size_t i = 0; i < whole; i += 32)
    quantize_32(kind, factors, errors, src + i * item, codes + i);
  if (whole < n) {
    uint8_t padded[32 * 4] = {0}, made[32];
    memcpy(padded, src + whole * item, (n - whole) * item);
    quantize_32(kind, factors, errors, padded, made);
    memcpy(codes + whole, made, n - whole);
  }
}

/* Whether neither a number nor its reciprocal is subnormal, infinite, or a NaN. */
AMN_FORCE_INLINE int is_usual(float factor) {
  const uint32_t exponent = amn_f32_bits(factor) >> 23;
  return exponent >= 2 && exponent <= 252;
}

/* What values of block `i` are divided or multiplied by. */
AMN_FORCE_INLINE float factor_of(quantize_kind kind, const amn_quantize_run *run, size_t i) {
  const int divides = kind.is_divided && kind.source != AMN_SOURCE_BF16;
  return divides ? run->scales[i] : run->forward[i];
}

/* Of block `i`. */
AMN_FORCE_INLINE quantize_factors factors_of(quantize_kind kind, const amn_quantize_run *run,
                                             size_t i) {
  quantize_factors factors = {.by = v_set_f32(factor_of(kind, run, i)),
                              .zero = v_set_f32(kind.has_zeros ? run->zeros[i] : 0),
                              .scale = v_set_f32(run->scales[i])};
  if (is_f8(kind.code)) factors.least = f8_least(kind, run->scales[i]);
  if (is_bounded(kind)) {
    const amn_codebook4 *book = codebook_of(kind.code);
    factors.bounds = bounds_of(book, run->forward[i]);
    factors.low = v_mul_f32(v_load_f32(book->numbers), factors.scale);
    factors.high = v_mul_f32(v_load_f32(book->numbers + 8), factors.scale);
  }
  return factors;
}

/* Values of blocks with usual scales. */
AMN_FORCE_INLINE void quantize_usual(quantize_kind kind, const uint8_t *src, uint8_t *codes,
                                     const amn_quantize_run *run, amn_loss_lanes *lanes) {
  const size_t item = source_bytes(kind.source);
  quantize_errors errors;
  if (kind.is_measured) errors = load_errors(lanes);
  for (size_t at = 0, i = 0; at < run->n; i++) {
    const size_t end = run->n - at < run->block ? run->n : at + run->block;
    const quantize_factors factors = factors_of(kind, run, i);
    for (size_t n; at < end; at += n) {
      n = end - at < AMN_LOSS_RUN ? end - at : AMN_LOSS_RUN;
      quantize_part(kind, &factors, src + at * item, codes + at, n, &errors);
      if (kind.is_measured && (lanes->n += n) >= AMN_LOSS_RUN) end_run(lanes, &errors);
    }
  }
  if (kind.is_measured) store_errors(lanes, &errors);
}

/* Whether block `i` is for the scalar kernel. The factor may be unusual where the scale is not: the
 * MX formats store an infinite scale as another number, and its reciprocal is 0 even so. */
AMN_FORCE_INLINE int is_unusual(quantize_kind kind, const amn_quantize_run *run, size_t i) {
  if (is_bounded(kind)) return !is_bounding(run->forward[i]);
  if (!is_f8(kind.code) && !kind.is_divided) return 0;
  return !is_usual(run->scales[i]) || !is_usual(factor_of(kind, run, i));
}

/* How many blocks are usual from block `i` on, before the first that is not. */
AMN_FORCE_INLINE size_t count_usual(quantize_kind kind, const amn_quantize_run *run, size_t i,
                                    size_t n_blocks) {
  const size_t first = i;
  while (i < n_blocks && !is_unusual(kind, run, i)) i++;
  return i - first;
}

AMN_FORCE_INLINE void quantize_blocks(quantize_kind kind, amn_quantize_fn scalar,
                                      const uint8_t *src, uint8_t *codes,
                                      const amn_quantize_run *run, amn_loss_lanes *lanes) {
  const size_t item = source_bytes(kind.source), n_blocks = (run->n - 1) / run->block + 1;
  for (size_t i = 0, taken; i < n_blocks; i += taken) {
    const size_t at = i * run->block, n_usual = count_usual(kind, run, i, n_blocks);
    taken = n_usual > 0 ? n_usual : 1;
    amn_quantize_run some = *run;
    some.n = i + taken < n_blocks ? taken * run->block : run->n - at;
    some.forward += i;
    some.scales += i;
    if (kind.has_zeros) some.zeros += i;
    if (n_usual > 0)
      quantize_usual(kind, src + at * item, codes + at, &some, lanes);
    else
      scalar(src + at * item, codes + at, &some, lanes);
  }
  v_end();
}

/* A function of its own for each source, whether it is divided or has zero points, whether values
 * are clamped, and whether they are measured. */
#define QUANTIZE_KIND(name, CODE, source, kind, is_divided, has_zeros, is_clamped)                \
  static void name##_##source##_##kind##_measured##is_clamped(                                    \
      const uint8_t *src, uint8_t *codes, const amn_quantize_run *run, amn_loss_lanes *lanes) {   \
    const quantize_kind made = {CODE, AMN_SOURCE_##source, is_divided, has_zeros, is_clamped, 1}; \
    quantize_blocks(made, quantize_##name##_scalar, src, codes, run, lanes);                      \
  }                                                                                               \
  static void name##_##source##_##kind##is_clamped(                                               \
      const uint8_t *src, uint8_t *codes, const amn_quantize_run *run, amn_loss_lanes *lanes) {   \
    const quantize_kind made = {CODE, AMN_SOURCE_##source, is_divided, has_zeros, is_clamped, 0}; \
    if (lanes != NULL)                                                                            \
      name##_##source##_##kind##_measured##is_clamped(src, codes, run, lanes);                    \
    else                                                                                          \
      quantize_blocks(made, quantize_##name##_scalar, src, codes, run, lanes);                    \
  }

/* Of BF16 relative to their own largest magnitude, none comes to lie beyond the codes: a usual
 * scale is at most 2^-8 too small, relatively, so that the largest quotients round to the largest
 * code. Only whole numbers, of which there is one less above 0 than below, are still clamped from
 * above. */
#define WITHIN AMN_N_SOURCES

#define QUANTIZE_SOURCES(name, CODE, kind, is_divided, has_zeros) \
  QUANTIZE_KIND(name, CODE, F32, kind, is_divided, has_zeros, 1)  \
  QUANTIZE_KIND(name, CODE, F16, kind, is_divided, has_zeros, 1)  \
  QUANTIZE_KIND(name, CODE, BF16, kind, is_divided, has_zeros, 1) \
  QUANTIZE_KIND(name, CODE, BF16, kind, is_divided, has_zeros, 0) \
  static const amn_quantize_fn name##_##kind[WITHIN + 1] = {      \
      [AMN_SOURCE_F32] = name##_F32_##kind##1,                    \
      [AMN_SOURCE_F16] = name##_F16_##kind##1,                    \
      [AMN_SOURCE_BF16] = name##_BF16_##kind##1,                  \
      [WITHIN] = name##_BF16_##kind##0,                           \
  };

QUANTIZE_SOURCES(f8_e4m3, AMN_QUANTIZE_F8_E4M3, multiplied, 0, 0)
QUANTIZE_SOURCES(f8_e4m3, AMN_QUANTIZE_F8_E4M3, divided, 1, 0)
QUANTIZE_SOURCES(f8_e5m2, AMN_QUANTIZE_F8_E5M2, multiplied, 0, 0)
QUANTIZE_SOURCES(f8_e5m2, AMN_QUANTIZE_F8_E5M2, divided, 1, 0)
QUANTIZE_SOURCES(int8, AMN_QUANTIZE_INT8, divided, 1, 0)
QUANTIZE_SOURCES(int4, AMN_QUANTIZE_INT4, divided, 1, 0)
QUANTIZE_SOURCES(int4, AMN_QUANTIZE_INT4, shifted, 1, 1)
QUANTIZE_SOURCES(int8_absmax, AMN_QUANTIZE_INT8_ABSMAX, multiplied, 0, 0)
QUANTIZE_SOURCES(nf4, AMN_QUANTIZE_NF4, multiplied, 0, 0)
QUANTIZE_SOURCES(fp4, AMN_QUANTIZE_FP4, multiplied, 0, 0)
QUANTIZE_SOURCES(fp4_zeros, AMN_QUANTIZE_FP4_ZEROS, multiplied, 0, 0)

/* Which of them a run needs; zero points may bring any value beyond the codes. */
AMN_FORCE_INLINE int quantize_row(const amn_quantize_run *run) {
  const int is_within = run->is_within && run->zeros == NULL && run->source == AMN_SOURCE_BF16;
  return is_within ? WITHIN : (int)run->source;
}

#undef QUANTIZE_SOURCES
#undef QUANTIZE_KIND

V_ENCODER void V_NAME(quantize_f8_e4m3)(const uint8_t *src, uint8_t *codes,
                                        const amn_quantize_run *run, amn_loss_lanes *lanes) {
  (run->is_divided ? f8_e4m3_divided : f8_e4m3_multiplied)[quantize_row(run)](src, codes, run,
                                                                              lanes);
}

V_ENCODER void V_NAME(quantize_f8_e5m2)(const uint8_t *src, uint8_t *codes,
                                        const amn_quantize_run *run, amn_loss_lanes *lanes) {
  (run->is_divided ? f8_e5m2_divided : f8_e5m2_multiplied)[quantize_row(run)](src, codes, run,
                                                                              lanes);
}

V_ENCODER void V_NAME(quantize_int8)(const uint8_t *src, uint8_t *codes,
                                     const amn_quantize_run *run, amn_loss_lanes *lanes) {
  int8_divided[quantize_row(run)](src, codes, run, lanes);
}

V_ENCODER void V_NAME(quantize_int4)(const uint8_t *src, uint8_t *codes,
                                     const amn_quantize_run *run, amn_loss_lanes *lanes) {
  (run->zeros == NULL ? int4_divided : int4_shifted)[quantize_row(run)](src, codes, run, lanes);
}

#define QUANTIZE_MULTIPLIED(name)                                                              \
  V_ENCODER void V_NAME(quantize_##name)(const uint8_t *src, uint8_t *codes,                   \
                                         const amn_quantize_run *run, amn_loss_lanes *lanes) { \
    name##_multiplied[run->source](src, codes, run, lanes);                                    \
  }
QUANTIZE_MULTIPLIED(int8_absmax)
QUANTIZE_MULTIPLIED(nf4)
QUANTIZE_MULTIPLIED(fp4)
QUANTIZE_MULTIPLIED(fp4_zeros)
#undef QUANTIZE_MULTIPLIED
