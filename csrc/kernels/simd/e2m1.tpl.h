/* Numbers to codes of E2M1, as quantize.tpl.h takes others.
 *
 * Needs: pairs.tpl.h, quantize.tpl.h. Defines: no kernel; codes of E2M1, e2m1_numbers. */

/* Where ties go. DOWN has negative zeros, FIRST has none; SIGNED, where ties go to even, and AWAY
 * have those of negative values. */
typedef enum { E2M1_TO_EVEN, E2M1_TO_SIGNED, E2M1_TO_DOWN, E2M1_TO_FIRST, E2M1_TO_AWAY } e2m1_ties;

AMN_FORCE_INLINE int e2m1_is_even(e2m1_ties ties) {
  return ties == E2M1_TO_EVEN || ties == E2M1_TO_SIGNED;
}

/* What a kernel is made for: constants once inlined. */
typedef struct {
  amn_source source;
  e2m1_ties ties;
  int is_divided, is_measured;
} e2m1_kind;

#define E2M1_UNITS 22 /* beside 2^(exponent + 22), float32 counts in halves of 2^exponent */

/* Codes in u32, of which the lower 16 bits count, plus `e2m1_excess`; and their magnitudes. */
typedef struct {
  wide codes;
  wide_f32 numbers;
} e2m1_coded;

AMN_FORCE_INLINE uint16_t e2m1_excess(e2m1_kind kind) {
  return e2m1_is_even(kind.ties) ? 2 * (127 + E2M1_UNITS) : 0;
}

/* To even: a code is how many units there are of the exponent e of the magnitude, or of the least
 * one's, 0, plus 2 e. */
AMN_FORCE_INLINE e2m1_coded e2m1_to_even(wide_f32 magnitude) {
  const wide exponent = wide_and(wide_bits(magnitude), wide_set_u32(0x7f800000));
  const wide units = wide_add_u32(wide_max_s32(exponent, wide_set_u32(127u << 23)),
                                  wide_set_u32((uint32_t)E2M1_UNITS << 23));
  const wide_f32 counted = wide_add(magnitude, wide_from_bits(units));
  const wide bits = wide_bits(counted);
  return (e2m1_coded){wide_add_u32(bits, wide_shr_u32(bits, 22)),
                      wide_sub(counted, wide_from_bits(units))};
}

static const float V_NAME(e2m1_numbers)[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

AMN_FORCE_INLINE wide_f32 e2m1_numbers_of(wide codes) {
  return wide_lookup8(V_NAME(e2m1_numbers), codes);
}

/* Ties down or up: from 1 on, a code is what is left of the exponent and one bit of the mantissa,
 * less those of 1/2, once half a unit is added to the bits, or less than that; below, that is no
 * more than how many midpoints there are below, or up to there. */
AMN_FORCE_INLINE e2m1_coded e2m1_down_or_up(wide_f32 magnitude, int is_up) {
  const float quarter = is_up ? 0x1.fffffep-3f : 0.25f, three = is_up ? 0x1.7ffffep-1f : 0.75f;
  const uint32_t half = is_up ? 0x200000 : 0x1fffff;
  const wide rounded = wide_add_u32(wide_bits(magnitude), wide_set_u32(half));
  const wide above = wide_add_u32(wide_shr_u32(rounded, 22), wide_set_u32(0u - 252u));
  const wide first = wide_add_greater(wide_set_u32(0), magnitude, wide_set(quarter));
  const wide codes = wide_max_s32(above, wide_add_greater(first, magnitude, wide_set(three)));
  return (e2m1_coded){codes, e2m1_numbers_of(codes)};
}

/* What is far beyond 6 is as far from several numbers, in float32: the first of them counts. Only
 * quotients are so far, which the source has rounded. */
AMN_FORCE_INLINE e2m1_coded e2m1_of_huge(e2m1_kind kind, wide_f32 magnitude, e2m1_coded usual) {
  const wide is_huge = wide_greater(magnitude, wide_set(0x1p24f));
  if (!wide_any(is_huge)) return usual;
  if (kind.source == AMN_SOURCE_BF16) magnitude = rounded_to_bf16(magnitude);
  const wide_f32 least = wide_sub(magnitude, wide_set(6));
  wide place = wide_set_u32(0);
  for (int i = 0; i < 7; i++) {
    const wide_f32 distance = wide_sub(magnitude, wide_set(V_NAME(e2m1_numbers)[i]));
    place = wide_add_greater(place, distance, least);
  }
  const wide codes = wide_select(is_huge, place, usual.codes);
  return (e2m1_coded){codes, e2m1_numbers_of(codes)};
}

AMN_FORCE_INLINE e2m1_coded e2m1_code_of(e2m1_kind kind, wide_f32 scaled) {
  const wide_f32 magnitude = wide_min(magnitude_f32(scaled), wide_set(6)); /* 6 for a NaN */
  if (e2m1_is_even(kind.ties)) return e2m1_to_even(magnitude);
  const e2m1_coded made = e2m1_down_or_up(magnitude, kind.ties == E2M1_TO_AWAY);
  const int is_first = kind.ties == E2M1_TO_FIRST && kind.is_divided;
  return is_first ? e2m1_of_huge(kind, magnitude_f32(scaled), made) : made;
}

/* The bit of the sign. Of numbers not below `least`, nor above -least, nothing is left once they
 * are rounded to the source's dtype: with ties to even they get none, and with ties down all do. */
AMN_FORCE_INLINE wide e2m1_sign(e2m1_kind kind, wide_f32 least, wide_f32 scaled, wide codes) {
  const wide bit = wide_set_u32(8), negative = wide_and(wide_shr_u32(wide_bits(scaled), 28), bit);
  if (kind.ties == E2M1_TO_EVEN) return wide_and(wide_greater(least, scaled), bit);
  if (kind.ties == E2M1_TO_DOWN) {
    const wide_f32 most = wide_sub(wide_set(0), least);
    return wide_and_not(wide_greater(scaled, most), bit);
  }
  if (kind.ties == E2M1_TO_AWAY || kind.ties == E2M1_TO_SIGNED) return negative;
  return wide_and_not(wide_equal_u32(codes, wide_set_u32(0)), negative);
}

AMN_FORCE_INLINE wide e2m1_codes(e2m1_kind kind, wide_f32 by, wide_f32 least, wide_f32 value,
                                 wide_f32 *number) {
  const wide_f32 scaled = kind.is_divided ? wide_div(value, by) : wide_mul(value, by);
  const e2m1_coded made = e2m1_code_of(kind, scaled);
  *number = made.numbers;
  return wide_add_u32(made.codes, e2m1_sign(kind, least, scaled, made.codes));
}

/* 32 codes, of two blocks of 16 or one of 32, whose scales and factors are given; and their errors.
 * A block of 32 is one group of errors; blocks of 16 are a group each. */
AMN_FORCE_INLINE void e2m1_32(e2m1_kind kind, const float scales[2], const float forward[2],
                              wide_f32 least, int n_blocks, const uint8_t *src, uint8_t *codes,
                              quantize_errors *errors) {
  pair values[WIDE_PARTS], decoded[WIDE_PARTS];
  wide made[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) {
    const wide_f32 scale = wide_halves(scales, i);
    const wide_f32 by = kind.is_divided ? scale : wide_halves(forward, i);
    const pair taken = load_pair(kind.source, part_of(kind.source, src, i));
    pair numbers;
    const wide even = e2m1_codes(kind, by, least, taken.even, &numbers.even);
    const wide odd = e2m1_codes(kind, by, least, taken.odd, &numbers.odd);
    const wide excess = wide_set_u16((uint16_t)(0u - e2m1_excess(kind)));
    made[i] = wide_add_u16(wide_even_odd_u16(even, wide_shl_u32(odd, 16)), excess);
    decoded[i] = (pair){wide_mul(numbers.even, scale), wide_mul(numbers.odd, scale)};
    values[i] = (pair){magnitude_f32(taken.even), magnitude_f32(taken.odd)};
  }
  v_store(codes, wide_pack(made));
  if (kind.is_measured) measure(errors, decoded, values, n_blocks);
}

/* The largest of the numbers below 0 that the dtype of products has as 0. */
AMN_FORCE_INLINE float e2m1_least(amn_source rounded) {
  if (rounded == AMN_SOURCE_F16) return -0x1p-25f;
  return rounded == AMN_SOURCE_BF16 ? -0x1p-134f : 0;
}

/* Whole blocks of 16 or 32, so that runs of errors end with 32 values. A last block of 16 has as
 * many zeros times 0 beside it, which have no error. */
AMN_FORCE_INLINE void e2m1_whole(e2m1_kind kind, const uint8_t *src, uint8_t *codes, size_t n,
                                 const amn_quantize_run *run, amn_loss_lanes *lanes) {
  const wide_f32 least = wide_set(e2m1_least(run->rounded));
  const size_t item = source_bytes(kind.source);
  const int is_16 = run->block == 16;
  const float *scales = run->scales, *forward = run->forward;
  uint8_t padded[32 * 4] = {0}, made[32];
  quantize_errors errors;
  if (kind.is_measured) errors = load_errors(lanes);
  for (size_t at = 0; at < n; at += 32, scales += 1 + is_16, forward += 1 + is_16) {
    const int is_whole = n - at >= 32;
    const float two_scales[2] = {scales[0], is_whole ? scales[is_16] : 0};
    const float two_factors[2] = {forward[0], is_whole ? forward[is_16] : 0};
    if (!is_whole) memcpy(padded, src + at * item, 16 * item);
    e2m1_32(kind, two_scales, two_factors, least, 1 + is_16, is_whole ? src + at * item : padded,
            is_whole ? codes + at : made, &errors);
    if (!is_whole) memcpy(codes + at, made, 16);
    if (kind.is_measured && (lanes->n += is_whole ? 32 : 16) >= AMN_LOSS_RUN)
      end_run(lanes, &errors);
  }
  if (kind.is_measured) store_errors(lanes, &errors);
}

AMN_FORCE_INLINE void e2m1_row(e2m1_kind kind, amn_quantize_fn scalar, const uint8_t *src,
                               uint8_t *codes, const amn_quantize_run *run, amn_loss_lanes *lanes) {
  const size_t whole = run->block == 16 || run->block == 32 ? run->n / run->block * run->block : 0;
  if (whole > 0) e2m1_whole(kind, src, codes, whole, run, lanes);
  v_end();
  if (whole == run->n) return;
  amn_quantize_run rest = *run;
  rest.n -= whole;
  rest.forward += whole / run->block;
  rest.scales += whole / run->block;
  scalar(src + whole * source_bytes(kind.source), codes + whole, &rest, lanes);
}

#undef E2M1_UNITS
