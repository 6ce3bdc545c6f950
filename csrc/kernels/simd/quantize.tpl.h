/* Numbers to codes, 32 at a time, in pairs of vectors. A block whose scale is out of bounds is left
 * to the scalar kernel.
 *
 * Needs: pairs.tpl.h, codebook.tpl.h, and V_BOUNDS. Defines: no kernel; codes of numbers,
 * sums of errors. */

/* What a kernel is made for: constants once inlined. */
typedef struct {
  amn_quantize_code code;
  amn_source source;
  int is_divided, has_zeros, is_clamped, is_measured;
} quantize_kind;

/* What a block's values have in common. */
typedef struct {
  wide_f32 by, zero, scale; /* by: what values are multiplied or divided by */
  wide least;               /* of 8-bit floats: from this magnitude on, in u16, codes are normal */
  codebook_bounds bounds;   /* of bfloat16 */
  float_table numbers;      /* what a codebook's places stand for */
} quantize_factors;

typedef struct {
  vec_f32 absolute, squared, power;
  wide_f32 largest;
} quantize_errors;

AMN_FORCE_INLINE int is_f8(amn_quantize_code code) {
  return code == AMN_QUANTIZE_F8_E4M3 || code == AMN_QUANTIZE_F8_E5M2;
}

AMN_FORCE_INLINE int is_fp4(amn_quantize_code code) {
  return code == AMN_QUANTIZE_FP4 || code == AMN_QUANTIZE_FP4_ZEROS;
}

AMN_FORCE_INLINE const amn_codebook4 *codebook_of(amn_quantize_code code) {
  if (code == AMN_QUANTIZE_NF4) return &amn_nf4;
  return is_fp4(code) ? &amn_fp4 : NULL;
}

/* Whether places in a codebook are found among bounds. */
AMN_FORCE_INLINE int is_bounded(quantize_kind kind) {
  return codebook_of(kind.code) != NULL && kind.source == AMN_SOURCE_BF16;
}

AMN_FORCE_INLINE wide_f32 magnitude_f32(wide_f32 a) {
  return wide_from_bits(wide_and(wide_bits(a), wide_set_u32(0x7fffffff)));
}

/* Nearest, ties to even: beside 1.5 * 2^(exponent + 16), float32 counts in bfloat16's units. */
AMN_FORCE_INLINE wide_f32 rounded_to_bf16(wide_f32 a) {
  const wide exponent = wide_and(wide_bits(a), wide_set_u32(0x7f800000));
  const wide_f32 beside =
      wide_from_bits(wide_add_u32(exponent, wide_set_u32((16u << 23) + 0x400000)));
  return wide_sub(wide_add(a, beside), beside);
}

/* The quotient of two bfloat16 by way of 1 / divisor. Of numbers with 8 bits none lies halfway
 * between two others, or within 2^-17 of it, relatively; so neither the way there nor the direction
 * of ties matters. */
AMN_FORCE_INLINE wide_f32 quotient_bf16(wide_f32 value, wide_f32 reciprocal) {
  const wide bits = wide_bits(wide_mul(value, reciprocal));
  return wide_from_bits(
      wide_and(wide_add_u32(bits, wide_set_u32(0x8000)), wide_set_u32(0xffff0000)));
}

AMN_FORCE_INLINE wide_f32 scaled_f32(quantize_kind kind, const quantize_factors *factors,
                                     wide_f32 value) {
  if (!kind.is_divided) return wide_mul(value, factors->by);
  if (kind.source == AMN_SOURCE_BF16) return quotient_bf16(value, factors->by);
  const wide_f32 quotient = wide_div(value, factors->by);
  return kind.source == AMN_SOURCE_F16 ? wide_rounded_to_f16(quotient) : quotient;
}

AMN_FORCE_INLINE pair error_of(pair decoded, pair value) {
  return (pair){magnitude_f32(wide_sub(decoded.even, value.even)),
                magnitude_f32(wide_sub(decoded.odd, value.odd))};
}

AMN_FORCE_INLINE wide_f32 sum_of_squares(pair a) {
  return wide_add(wide_mul(a.even, a.even), wide_mul(a.odd, a.odd));
}

/* The sums of pairs, of which 32 values are one group, or each 16 are one. */
AMN_FORCE_INLINE vec_f32 with_groups(vec_f32 so_far, const wide_f32 sums[WIDE_PARTS],
                                     int n_groups) {
  const vec_f32 first = wide_eight(sums, 0), second = wide_eight(sums, 1);
  if (n_groups == 1) return v_add_f32(so_far, v_add_f32(first, second));
  return v_add_f32(v_add_f32(so_far, first), second);
}

/* Of 32 values, what their codes stand for against them. */
AMN_FORCE_INLINE void measure(quantize_errors *errors, const pair *decoded, const pair *values,
                              int n_groups) {
  wide_f32 absolute[WIDE_PARTS], squared[WIDE_PARTS], power[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) {
    const pair error = error_of(decoded[i], values[i]);
    errors->largest = wide_max(error.even, errors->largest); /* passes over NaNs */
    errors->largest = wide_max(error.odd, errors->largest);
    absolute[i] = wide_add(error.even, error.odd);
    squared[i] = sum_of_squares(error);
    power[i] = sum_of_squares(values[i]);
  }
  errors->absolute = with_groups(errors->absolute, absolute, n_groups);
  errors->squared = with_groups(errors->squared, squared, n_groups);
  errors->power = with_groups(errors->power, power, n_groups);
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

AMN_FORCE_INLINE wide_f32 clamped_f8(quantize_kind kind, wide_f32 magnitude) {
  return kind.is_clamped ? wide_min(magnitude, wide_set(f8_largest(kind))) : magnitude;
}

/* The number that a magnitude rounds to. Beside 2^(exponent + 23 - mantissa), float32 counts in
 * units of 2^(exponent - mantissa), as the codes of that exponent do; the least exponent's unit is
 * that of subnormal codes as well. */
AMN_FORCE_INLINE wide_f32 f8_number(quantize_kind kind, wide_f32 magnitude) {
  const wide exponent = wide_and(wide_bits(magnitude), wide_set_u32(0x7f800000));
  const wide least = wide_set_u32(f8_least_exponent(kind) << 23);
  const wide beside = wide_set_u32((uint32_t)(23 - f8_mantissa(kind)) << 23);
  const wide_f32 units = wide_from_bits(wide_add_u32(wide_max_s32(exponent, least), beside));
  return wide_sub(wide_add(magnitude, units), units);
}

/* Codes in u16, without signs, and the numbers that they stand for. */
AMN_FORCE_INLINE wide f8_codes(quantize_kind kind, const quantize_factors *factors, pair values,
                               pair *numbers) {
  const int shift = 23 - f8_mantissa(kind);
  const wide_f32 rebase = wide_from_bits(wide_set_u32((128 - f8_least_exponent(kind)) << 23));
  numbers->even = f8_number(kind, clamped_f8(kind, scaled_f32(kind, factors, values.even)));
  numbers->odd = f8_number(kind, clamped_f8(kind, scaled_f32(kind, factors, values.odd)));
  const wide even = wide_bits(wide_mul(numbers->even, rebase));
  const wide odd = wide_bits(wide_mul(numbers->odd, rebase));
  return wide_even_odd_u16(wide_shr_u32(even, shift), wide_shr_u32(odd, shift - 16));
}

/* Half a unit less one, and one more if the kept part is odd: what rounds to nearest even once the
 * lower bits are gone. `shift` counts those. */
AMN_FORCE_INLINE wide f8_rounded_u32(wide bits, int shift) {
  const wide odd = wide_and(wide_shr_u32(bits, shift), wide_set_u32(1));
  return wide_add_u32(wide_add_u32(bits, wide_set_u32((1u << (shift - 1)) - 1)), odd);
}

AMN_FORCE_INLINE wide f8_rounded_u16(wide words, int shift) {
  const wide odd = wide_and(wide_shr_u16(words, shift), wide_set_u16(1));
  return wide_add_u16(wide_add_u16(words, wide_set_u16((uint16_t)((1u << (shift - 1)) - 1))), odd);
}

/* Scaled values, rounded in u16 but for the bits that fall away. A quotient is a bfloat16, which
 * is rounded as such; of a product all bits count. */
AMN_FORCE_INLINE wide f8_rounded_words(quantize_kind kind, const quantize_factors *factors,
                                       pair values) {
  const int shift = 23 - f8_mantissa(kind);
  if (kind.is_divided) {
    const pair bits = {wide_mul(values.even, factors->by), wide_mul(values.odd, factors->by)};
    const wide half = wide_set_u32(0x8000), even = wide_add_u32(wide_bits(bits.even), half);
    wide words = wide_even_odd_u16(wide_shr_u32(even, 16), wide_add_u32(wide_bits(bits.odd), half));
    if (kind.is_clamped)
      words = wide_min_u16(words, wide_set_u16((uint16_t)(amn_f32_bits(f8_largest(kind)) >> 16)));
    return f8_rounded_u16(words, shift - 16);
  }
  const wide_f32 even = clamped_f8(kind, wide_mul(values.even, factors->by));
  const wide_f32 odd = clamped_f8(kind, wide_mul(values.odd, factors->by));
  return wide_even_odd_u16(wide_shr_u32(f8_rounded_u32(wide_bits(even), shift), 16),
                           f8_rounded_u32(wide_bits(odd), shift));
}

/* The same as f8_codes, if all codes are normal: then they count as bfloat16 does. */
AMN_FORCE_INLINE wide f8_normal_codes(quantize_kind kind, const quantize_factors *factors,
                                      pair values, pair *numbers) {
  const int shift = 7 - f8_mantissa(kind);
  const wide words = f8_rounded_words(kind, factors, values);
  *numbers = pair_of_bf16(wide_and(words, wide_set_u16((uint16_t)(0xffffu << shift))));
  const uint16_t bias = (uint16_t)((f8_least_exponent(kind) - 1) << 7);
  return wide_shr_u16(wide_sub_u16(words, wide_set_u16(bias)), shift);
}

/* Values as u16 with their signs, and their magnitudes. */
AMN_FORCE_INLINE wide load_magnitudes(amn_source source, const uint8_t *src, pair *values) {
  if (source == AMN_SOURCE_BF16) {
    const wide words = wide_load_words(src);
    *values = pair_of_bf16(wide_and(words, wide_set_u16(0x7fff)));
    return words;
  }
  *values = load_pair(source, src);
  const wide signs =
      wide_even_odd_u16(wide_shr_u32(wide_bits(values->even), 16), wide_bits(values->odd));
  values->even = magnitude_f32(values->even);
  values->odd = magnitude_f32(values->odd);
  return signs;
}

/* 32 values, and what their codes stand for. */
typedef struct {
  pair values[WIDE_PARTS], numbers[WIDE_PARTS];
} measured_32;

/* From this bfloat16 on, in u16, a magnitude is no less than the least normal code, scaled: one
 * more than the product with the scale, rounded down, is above it. */
AMN_FORCE_INLINE wide f8_least(quantize_kind kind, float scale) {
  const float least = amn_f32_from_bits(f8_least_exponent(kind) << 23) * scale;
  return wide_set_u16((uint16_t)((amn_f32_bits(least) >> 16) + 2));
}

/* Whether 32 values have normal codes, which are quicker to come by. Only of bfloat16 it is asked.
 */
AMN_FORCE_INLINE int f8_are_normal(quantize_kind kind, const quantize_factors *factors,
                                   const uint8_t *src) {
  if (kind.source != AMN_SOURCE_BF16) return 0;
  wide least = wide_set_u16(0x7fff);
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide words = wide_load_words(part_of(kind.source, src, i));
    least = wide_min_u16(least, wide_and(words, wide_set_u16(0x7fff)));
  }
  return !wide_any(wide_sub_sat_u16(factors->least, least));
}

AMN_FORCE_INLINE void f8_store_32(quantize_kind kind, int are_normal,
                                  const quantize_factors *factors, const uint8_t *src,
                                  uint8_t *codes, measured_32 *of) {
  wide made[WIDE_PARTS], signs[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) {
    pair *values = &of->values[i], *numbers = &of->numbers[i];
    signs[i] = load_magnitudes(kind.source, part_of(kind.source, src, i), values);
    made[i] = are_normal ? f8_normal_codes(kind, factors, *values, numbers)
                         : f8_codes(kind, factors, *values, numbers);
  }
  v_store(codes, wide_pack_signs(made, signs));
}

/* ---- integers ---- */

AMN_FORCE_INLINE wide whole_codes(quantize_kind kind, const quantize_factors *factors,
                                  wide_f32 value, wide_f32 *number) {
  const int is_int4 = kind.code == AMN_QUANTIZE_INT4;
  const int is_127ths = kind.code == AMN_QUANTIZE_INT8_ABSMAX;
  wide_f32 scaled = scaled_f32(kind, factors, is_127ths ? wide_rounded_to_f16(value) : value);
  if (kind.has_zeros) {
    scaled = wide_add(scaled, factors->zero);
    if (kind.source == AMN_SOURCE_BF16) scaled = rounded_to_bf16(scaled);
    if (kind.source == AMN_SOURCE_F16) scaled = wide_rounded_to_f16(scaled);
  }
  scaled = wide_min(scaled, wide_set(is_int4 ? 7 : 127));
  if (kind.is_clamped) scaled = wide_max(scaled, wide_set(is_int4 ? -8 : is_127ths ? -127 : -128));
  const wide whole = wide_s32(scaled);
  *number = wide_f32_of_s32(whole);
  if (kind.has_zeros) *number = wide_sub(*number, factors->zero);
  return is_int4 ? wide_add_u32(whole, wide_set_u32(8)) : whole;
}

/* Codes in u16, and the numbers that they stand for. */
AMN_FORCE_INLINE wide int_codes(quantize_kind kind, const quantize_factors *factors, pair values,
                                pair *numbers) {
  const wide even = whole_codes(kind, factors, values.even, &numbers->even);
  const wide odd = whole_codes(kind, factors, values.odd, &numbers->odd);
  return wide_and(wide_even_odd_u16(even, wide_shl_u32(odd, 16)), wide_set_u16(0xff));
}

/* ---- codebooks ---- */

/* Places among the sorted entries, in the low bytes of u16: of bfloat16 by their bounds. */
AMN_FORCE_INLINE wide bounded_codes(quantize_kind kind, const quantize_factors *factors,
                                    wide words) {
  const wide places = bounded_places(&factors->bounds, is_fp4(kind.code), words);
  if (kind.code != AMN_QUANTIZE_FP4_ZEROS) return places;
  return wide_sub_u16(places, wide_equal_u16(words, wide_set_u16(0x8000)));
}

AMN_FORCE_INLINE wide searched_code(quantize_kind kind, wide_f32 scaled) {
  const wide place = codebook_places(codebook_of(kind.code), scaled);
  if (kind.code != AMN_QUANTIZE_FP4_ZEROS) return place;
  const wide is_minus_zero = wide_equal_u32(wide_bits(scaled), wide_set_u32(0x80000000));
  return wide_add_u32(place, wide_shr_u32(is_minus_zero, 31));
}

AMN_FORCE_INLINE wide searched_codes(quantize_kind kind, const quantize_factors *factors,
                                     pair values) {
  const wide even = searched_code(kind, wide_mul(values.even, factors->by));
  const wide odd = searched_code(kind, wide_mul(values.odd, factors->by));
  return wide_even_odd_u16(even, wide_shl_u32(odd, 16));
}

/* What their places stand for are values, for the scale is in the table. */
AMN_FORCE_INLINE wide codebook_codes(quantize_kind kind, const quantize_factors *factors,
                                     const uint8_t *src, pair values, pair *numbers) {
  const wide places = is_bounded(kind) ? bounded_codes(kind, factors, wide_load_words(src))
                                       : searched_codes(kind, factors, values);
  numbers->even = wide_lookup16(factors->numbers, places);
  numbers->odd = wide_lookup16(factors->numbers, wide_shr_u32(places, 16));
  return wide_and(places, wide_set_u16(0xff));
}

/* ---- all of them ---- */

AMN_FORCE_INLINE void store_codes_32(quantize_kind kind, const quantize_factors *factors,
                                     const uint8_t *src, uint8_t *codes, measured_32 *of) {
  const amn_codebook4 *book = codebook_of(kind.code);
  wide made[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) {
    const uint8_t *from = part_of(kind.source, src, i);
    pair *numbers = &of->numbers[i];
    const pair values = of->values[i] = load_pair(kind.source, from);
    made[i] = book == NULL ? int_codes(kind, factors, values, numbers)
                           : codebook_codes(kind, factors, from, values, numbers);
  }
  const vec all = wide_pack(made);
  v_store(codes, is_fp4(kind.code) ? v_lookup16(v_load_both_lanes(amn_fp4.codes), all) : all);
}

AMN_FORCE_INLINE pair decoded_of(quantize_kind kind, const quantize_factors *factors,
                                 pair numbers) {
  if (codebook_of(kind.code) != NULL) return numbers;
  pair decoded = {wide_mul(numbers.even, factors->scale), wide_mul(numbers.odd, factors->scale)};
  if (kind.code == AMN_QUANTIZE_INT8_ABSMAX) {
    const wide_f32 unit = wide_set(AMN_ONE_127TH);
    decoded = (pair){wide_mul(decoded.even, unit), wide_mul(decoded.odd, unit)};
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
  pair decoded[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) decoded[i] = decoded_of(kind, factors, of.numbers[i]);
  measure(errors, decoded, of.values, 1);
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
                           v_load_f32(lanes->run.power), wide_of_eight(v_load_f32(lanes->largest))};
}

AMN_FORCE_INLINE void store_errors(amn_loss_lanes *lanes, const quantize_errors *errors) {
  v_store_f32(lanes->run.absolute, errors->absolute);
  v_store_f32(lanes->run.squared, errors->squared);
  v_store_f32(lanes->run.power, errors->power);
  v_store_f32(lanes->largest, wide_larger(errors->largest));
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
  const size_t item = source_bytes(kind.source);
  uint8_t padded[32 * 4], made[32];
  for (size_t i = 0; i < n; i += 32) {
    const int is_whole = n - i >= 32;
    if (!is_whole) {
      memset(padded, 0, sizeof padded);
      memcpy(padded, src + i * item, (n - i) * item);
    }
    quantize_32(kind, factors, errors, is_whole ? src + i * item : padded,
                is_whole ? codes + i : made);
    if (!is_whole) memcpy(codes + i, made, n - i);
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
  quantize_factors factors = {.by = wide_set(factor_of(kind, run, i)),
                              .zero = wide_set(kind.has_zeros ? run->zeros[i] : 0),
                              .scale = wide_set(run->scales[i])};
  if (is_f8(kind.code)) factors.least = f8_least(kind, run->scales[i]);
  const amn_codebook4 *book = codebook_of(kind.code);
  if (book != NULL) factors.numbers = table_of_floats(book->numbers, run->scales[i]);
  if (is_bounded(kind)) factors.bounds = bounds_of(book, run->forward[i]);
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
