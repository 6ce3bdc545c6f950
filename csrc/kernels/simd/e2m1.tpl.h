/* Numbers to codes of E2M1, as quantize.tpl.h takes others.
 *
 * Needs: pairs.tpl.h, quantize.tpl.h. Defines: quantize_e2m1*, e2m1_numbers. */

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

/* 8 codes in u32, of which the lower 16 bits count, plus `e2m1_excess`; and their magnitudes. */
typedef struct {
  vec codes;
  vec_f32 numbers;
} e2m1_coded;

AMN_FORCE_INLINE uint16_t e2m1_excess(e2m1_kind kind) {
  return e2m1_is_even(kind.ties) ? 2 * (127 + E2M1_UNITS) : 0;
}

/* To even: a code is how many units there are of the exponent e of the magnitude, or of the least
 * one's, 0, plus 2 e. */
AMN_FORCE_INLINE e2m1_coded e2m1_to_even(vec_f32 magnitude) {
  const vec exponent = v_and(v_bits_f32(magnitude), v_set_u32(0x7f800000));
  const vec units =
      v_add_u32(v_max_s32(exponent, v_set_u32(127u << 23)), v_set_u32((uint32_t)E2M1_UNITS << 23));
  const vec_f32 counted = v_add_f32(magnitude, v_f32_from_bits(units));
  const vec bits = v_bits_f32(counted);
  return (e2m1_coded){v_add_u32(bits, v_shr_u32(bits, 22)),
                      v_sub_f32(counted, v_f32_from_bits(units))};
}

static const float V_NAME(e2m1_numbers)[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

AMN_FORCE_INLINE vec_f32 e2m1_numbers_of(vec codes) {
  return v_lookup8_f32(v_load_f32(V_NAME(e2m1_numbers)), codes);
}

/* Ties down or up: from 1 on, a code is what is left of the exponent and one bit of the mantissa,
 * less those of 1/2, once half a unit is added to the bits, or less than that; below, that is no
 * more than how many midpoints there are below, or up to there. */
AMN_FORCE_INLINE e2m1_coded e2m1_down_or_up(vec_f32 magnitude, int is_up) {
  const float quarter = is_up ? 0x1.fffffep-3f : 0.25f, three = is_up ? 0x1.7ffffep-1f : 0.75f;
  const uint32_t half = is_up ? 0x200000 : 0x1fffff;
  const vec rounded = v_add_u32(v_bits_f32(magnitude), v_set_u32(half));
  const vec above = v_add_u32(v_shr_u32(rounded, 22), v_set_u32(0u - 252u));
  const vec first = v_shr_u32(v_greater_f32(magnitude, v_set_f32(quarter)), 31);
  const vec second = v_shr_u32(v_greater_f32(magnitude, v_set_f32(three)), 31);
  const vec codes = v_max_s32(above, v_add_u32(first, second));
  return (e2m1_coded){codes, e2m1_numbers_of(codes)};
}

/* What is far beyond 6 is as far from several numbers, in float32: the first of them counts. Only
 * quotients are so far, which the source has rounded. */
AMN_FORCE_INLINE e2m1_coded e2m1_of_huge(e2m1_kind kind, vec_f32 magnitude, e2m1_coded usual) {
  const vec is_huge = v_greater_f32(magnitude, v_set_f32(0x1p24f));
  if (!v_any(is_huge)) return usual;
  if (kind.source == AMN_SOURCE_BF16) magnitude = rounded_to_bf16(magnitude);
  const vec_f32 least = v_sub_f32(magnitude, v_set_f32(6));
  vec place = v_zero();
  for (int i = 0; i < 7; i++) {
    const vec_f32 distance = v_sub_f32(magnitude, v_set_f32(V_NAME(e2m1_numbers)[i]));
    place = v_add_u32(place, v_shr_u32(v_greater_f32(distance, least), 31));
  }
  const vec codes = v_select(is_huge, place, usual.codes);
  return (e2m1_coded){codes, e2m1_numbers_of(codes)};
}

AMN_FORCE_INLINE e2m1_coded e2m1_code_of(e2m1_kind kind, vec_f32 scaled) {
  const vec_f32 magnitude = v_min_f32(magnitude_f32(scaled), v_set_f32(6)); /* 6 for a NaN */
  if (e2m1_is_even(kind.ties)) return e2m1_to_even(magnitude);
  const e2m1_coded made = e2m1_down_or_up(magnitude, kind.ties == E2M1_TO_AWAY);
  const int is_first = kind.ties == E2M1_TO_FIRST && kind.is_divided;
  return is_first ? e2m1_of_huge(kind, magnitude_f32(scaled), made) : made;
}

/* The bit of the sign. Of numbers not below `least`, nor above -least, nothing is left once they
 * are rounded to the source's dtype: with ties to even they get none, and with ties down all do. */
AMN_FORCE_INLINE vec e2m1_sign(e2m1_kind kind, vec_f32 least, vec_f32 scaled, vec codes) {
  const vec bit = v_set_u32(8), negative = v_and(v_shr_u32(v_bits_f32(scaled), 28), bit);
  if (kind.ties == E2M1_TO_EVEN) return v_and(v_greater_f32(least, scaled), bit);
  if (kind.ties == E2M1_TO_DOWN) {
    const vec_f32 most = v_sub_f32(v_set_f32(0), least);
    return v_and_not(v_greater_f32(scaled, most), bit);
  }
  if (kind.ties == E2M1_TO_AWAY || kind.ties == E2M1_TO_SIGNED) return negative;
  return v_and_not(v_equal_u32(codes, v_zero()), negative);
}

AMN_FORCE_INLINE vec e2m1_codes(e2m1_kind kind, vec_f32 by, vec_f32 least, vec_f32 value,
                                vec_f32 *number) {
  const vec_f32 scaled = kind.is_divided ? v_div_f32(value, by) : v_mul_f32(value, by);
  const e2m1_coded made = e2m1_code_of(kind, scaled);
  *number = made.numbers;
  return v_add_u32(made.codes, e2m1_sign(kind, least, scaled, made.codes));
}

/* Of 16 values, their magnitudes and what their codes stand for but for the sign. */
typedef struct {
  pair decoded, values;
} e2m1_measured;

/* 16 codes of a block, in u16. */
AMN_FORCE_INLINE vec e2m1_codes_16(e2m1_kind kind, const amn_quantize_run *run, size_t block,
                                   vec_f32 least, const uint8_t *src, e2m1_measured *of) {
  const vec_f32 scale = v_set_f32(run->scales[block]);
  const vec_f32 by = kind.is_divided ? scale : v_set_f32(run->forward[block]);
  const pair values = load_pair(kind.source, src);
  pair numbers;
  const vec even = e2m1_codes(kind, by, least, values.even, &numbers.even);
  const vec odd = e2m1_codes(kind, by, least, values.odd, &numbers.odd);
  const vec codes = v_even_odd_u16(even, v_shl_u32(odd, 16));
  of->decoded = (pair){v_mul_f32(numbers.even, scale), v_mul_f32(numbers.odd, scale)};
  of->values = (pair){magnitude_f32(values.even), magnitude_f32(values.odd)};
  return v_add_u16(codes, v_set_u16((uint16_t)(0u - e2m1_excess(kind))));
}

/* A block of 32 is one group of errors; blocks of 16 are a group each. */
AMN_FORCE_INLINE void e2m1_measure_32(quantize_errors *errors, const e2m1_measured *of,
                                      int blocks) {
  const pair none = {v_set_f32(0), v_set_f32(0)};
  const pair decoded[4] = {of[0].decoded, blocks == 1 ? of[1].decoded : none, of[1].decoded, none};
  const pair values[4] = {of[0].values, blocks == 1 ? of[1].values : none, of[1].values, none};
  measure(errors, decoded, values);
  if (blocks == 2) measure(errors, decoded + 2, values + 2);
}

/* The largest of the numbers below 0 that the dtype of products has as 0. */
AMN_FORCE_INLINE float e2m1_least(amn_source rounded) {
  if (rounded == AMN_SOURCE_F16) return -0x1p-25f;
  return rounded == AMN_SOURCE_BF16 ? -0x1p-134f : 0;
}

/* Whole blocks of 16 or 32, so that runs of errors end with 32 values. */
AMN_FORCE_INLINE void e2m1_whole(e2m1_kind kind, const uint8_t *src, uint8_t *codes, size_t n,
                                 const amn_quantize_run *run, amn_loss_lanes *lanes) {
  const vec_f32 least = v_set_f32(e2m1_least(run->rounded));
  const size_t item = source_bytes(kind.source), upper = run->block == 16, step = 1 + upper;
  quantize_errors errors;
  e2m1_measured of[2];
  size_t at = 0, block = 0;
  if (kind.is_measured) errors = load_errors(lanes);
  for (; at + 32 <= n; at += 32, block += step) {
    const uint8_t *from = src + at * item;
    const vec low = e2m1_codes_16(kind, run, block, least, from, &of[0]);
    const vec high = e2m1_codes_16(kind, run, block + upper, least, from + 16 * item, &of[1]);
    v_store(codes + at, v_pack_u16(low, high));
    if (kind.is_measured) e2m1_measure_32(&errors, of, upper ? 2 : 1);
    if (kind.is_measured && (lanes->n += 32) >= AMN_LOSS_RUN) end_run(lanes, &errors);
  }
  if (at < n) {
    uint8_t made[32];
    const vec low = e2m1_codes_16(kind, run, block, least, src + at * item, &of[0]);
    v_store(made, v_pack_u16(low, v_zero()));
    memcpy(codes + at, made, 16);
    of[1] = (e2m1_measured){{v_set_f32(0), v_set_f32(0)}, {v_set_f32(0), v_set_f32(0)}};
    if (kind.is_measured) e2m1_measure_32(&errors, of, 1);
    if (kind.is_measured) lanes->n += 16;
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

#define E2M1_KIND(name, source, ties, is_divided)                                                  \
  static void name##_##source##_##is_divided(const uint8_t *src, uint8_t *codes,                   \
                                             const amn_quantize_run *run, amn_loss_lanes *lanes) { \
    const e2m1_kind plain = {AMN_SOURCE_##source, ties, is_divided, 0},                            \
                    measured = {AMN_SOURCE_##source, ties, is_divided, 1};                         \
    if (lanes == NULL)                                                                             \
      e2m1_row(plain, quantize_##name##_scalar, src, codes, run, lanes);                           \
    else                                                                                           \
      e2m1_row(measured, quantize_##name##_scalar, src, codes, run, lanes);                        \
  }
#define E2M1_KINDS(name, ties)                                                                 \
  E2M1_KIND(name, F32, ties, 0)                                                                \
  E2M1_KIND(name, F16, ties, 0)                                                                \
  E2M1_KIND(name, BF16, ties, 0)                                                               \
  E2M1_KIND(name, F32, ties, 1)                                                                \
  E2M1_KIND(name, F16, ties, 1)                                                                \
  E2M1_KIND(name, BF16, ties, 1)                                                               \
  V_ENCODER void V_NAME(quantize_##name)(const uint8_t *src, uint8_t *codes,                   \
                                         const amn_quantize_run *run, amn_loss_lanes *lanes) { \
    static const amn_quantize_fn kinds[2][AMN_N_SOURCES] = {                                   \
        {[AMN_SOURCE_F32] = name##_F32_0,                                                      \
         [AMN_SOURCE_F16] = name##_F16_0,                                                      \
         [AMN_SOURCE_BF16] = name##_BF16_0},                                                   \
        {[AMN_SOURCE_F32] = name##_F32_1,                                                      \
         [AMN_SOURCE_F16] = name##_F16_1,                                                      \
         [AMN_SOURCE_BF16] = name##_BF16_1},                                                   \
    };                                                                                         \
    kinds[run->is_divided != 0][run->source](src, codes, run, lanes);                          \
  }
E2M1_KINDS(e2m1, E2M1_TO_EVEN)
E2M1_KINDS(e2m1_signed, E2M1_TO_SIGNED)
E2M1_KINDS(e2m1_down, E2M1_TO_DOWN)
E2M1_KINDS(e2m1_first, E2M1_TO_FIRST)
E2M1_KINDS(e2m1_away, E2M1_TO_AWAY)
#undef E2M1_KINDS
#undef E2M1_KIND
#undef E2M1_UNITS
