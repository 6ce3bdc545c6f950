/* Numbers to dense integers: 32 at a time, as pairs.tpl.h loads them, and 32 * bits / 8 bytes of
 * codes.
 *
 * Needs: pairs.tpl.h, quantize.tpl.h. Defines: pack_*. */

/* What a kernel is made for: constants once inlined. */
typedef struct {
  int bits;
  amn_source source;
  int is_half, is_measured;
} pack_kind;

/* What a block's values have in common. */
typedef struct {
  wide_f32 bias, scale, zero, least, most, stored_scale, stored_bias;
} pack_factors;

/* Bytes of fewer bits, to twice as many in half as many elements, three times: then 8 codes lie
 * together in each u64. */
AMN_FORCE_INLINE vec pack_join(vec codes, int bits) {
  const uint64_t eight = ((uint64_t)1 << bits) - 1, sixteen = ((uint64_t)1 << 2 * bits) - 1;
  const uint64_t half = ((uint64_t)1 << 4 * bits) - 1;
  const vec two = v_or(v_and(codes, v_set_u16((uint16_t)eight)),
                       v_and(v_shr_u16(codes, 8 - bits), v_set_u16((uint16_t)(eight << bits))));
  const vec four =
      v_or(v_and(two, v_set_u32((uint32_t)sixteen)),
           v_and(v_shr_u32(two, 16 - 2 * bits), v_set_u32((uint32_t)(sixteen << 2 * bits))));
  const vec upper = v_shr_u64_by_turns(four, 32 - 4 * bits, 32 - 4 * bits);
  return v_or(v_and(four, v_set_u64(half)), v_and(upper, v_set_u64(half << 4 * bits)));
}

/* The first `bits` bytes of both u64 of each lane, one after the other. */
AMN_FORCE_INLINE vec pack_close(vec joined, int bits) {
  uint8_t index[16];
  for (int i = 0; i < 16; i++)
    index[i] = (uint8_t)(i < bits ? i : i < 2 * bits ? 8 + i - bits : 0x80);
  return v_lookup16(joined, v_load_both_lanes(index));
}

/* 32 codes to 4 * bits bytes; with `room`, 12 more may be written. */
AMN_FORCE_INLINE void pack_store(vec codes, int bits, int room, uint8_t *dst) {
  uint8_t made[32];
  if (bits == 8) {
    v_store(dst, codes);
    return;
  }
  const vec closed = pack_close(pack_join(codes, bits), bits);
  if (room) {
    v_store_lanes(dst, dst + 2 * bits, closed);
  } else {
    v_store(made, closed);
    memcpy(dst, made, 2 * (size_t)bits);
    memcpy(dst + 2 * bits, made + 16, 2 * (size_t)bits);
  }
}

AMN_FORCE_INLINE wide pack_code(pack_kind kind, const pack_factors *factors, wide_f32 value,
                                wide_f32 *decoded) {
  const wide_f32 taken = kind.is_half ? wide_rounded_to_f16(value) : value;
  wide_f32 scaled = wide_div(wide_sub(taken, factors->bias), factors->scale);
  if (kind.is_half) scaled = wide_rounded_to_f16(scaled);
  scaled = wide_min(wide_max(scaled, factors->least), factors->most);
  const wide whole = wide_s32(scaled);
  if (kind.is_measured) {
    const wide_f32 product = wide_mul(wide_f32_of_s32(whole), factors->stored_scale);
    *decoded = wide_add(product, factors->stored_bias);
  }
  return wide_add_u32(whole, wide_s32(factors->zero));
}

AMN_FORCE_INLINE void pack_32(pack_kind kind, const pack_factors *factors, quantize_errors *errors,
                              const uint8_t *src, int room, uint8_t *dst) {
  pair values[WIDE_PARTS], decoded[WIDE_PARTS];
  wide codes[WIDE_PARTS];
  for (int i = 0; i < WIDE_PARTS; i++) {
    values[i] = load_pair(kind.source, part_of(kind.source, src, i));
    const wide even = pack_code(kind, factors, values[i].even, &decoded[i].even);
    const wide odd = pack_code(kind, factors, values[i].odd, &decoded[i].odd);
    codes[i] = wide_even_odd_u16(even, wide_shl_u32(odd, 16));
  }
  pack_store(wide_pack(codes), kind.bits, room, dst);
  if (kind.is_measured) measure(errors, decoded, values, 1);
}

AMN_FORCE_INLINE pack_factors pack_factors_of(const amn_pack_run *run, int bits, size_t i) {
  const float zero = run->zeros[i], most = (float)((1 << bits) - 1);
  return (pack_factors){
      wide_set(run->biases[i]),
      wide_set(run->scales[i]),
      wide_set(zero),
      wide_set(0 - zero),
      wide_set(most - zero),
      wide_set(run->stored_scales[i]),
      wide_set(run->stored_biases[i]),
  };
}

AMN_FORCE_INLINE void pack_blocks(pack_kind kind, const uint8_t *src, uint8_t *dst,
                                  const amn_pack_run *run, amn_loss_lanes *lanes) {
  const size_t item = source_bytes(kind.source), step = 4 * (size_t)kind.bits;
  quantize_errors errors;
  if (kind.is_measured) errors = load_errors(lanes);
  for (size_t at = 0, i = 0; at < run->n; i++) {
    const pack_factors factors = pack_factors_of(run, kind.bits, i);
    for (const size_t end = at + run->block; at < end; at += 32, dst += step) {
      pack_32(kind, &factors, &errors, src + at * item, run->n - at > 64, dst);
      if (kind.is_measured && (lanes->n += 32) == AMN_LOSS_RUN) end_run(lanes, &errors);
    }
  }
  if (kind.is_measured) store_errors(lanes, &errors);
  v_end();
}

/* A function of its own for each source, and whether errors are measured. Only of 4 bits there are
 * numbers that are rounded to half floats. */
#define PACK_KIND(source, name, bits)                                                        \
  static void name##_##source##_measured(const uint8_t *src, uint8_t *dst,                   \
                                         const amn_pack_run *run, amn_loss_lanes *lanes) {   \
    const int is_half = (bits) == 4 && run->is_half;                                         \
    pack_blocks((pack_kind){bits, AMN_SOURCE_##source, is_half, 1}, src, dst, run, lanes);   \
  }                                                                                          \
  static void name##_##source(const uint8_t *src, uint8_t *dst, const amn_pack_run *run,     \
                              amn_loss_lanes *lanes) {                                       \
    const int is_half = (bits) == 4 && run->is_half;                                         \
    if (lanes != NULL)                                                                       \
      name##_##source##_measured(src, dst, run, lanes);                                      \
    else                                                                                     \
      pack_blocks((pack_kind){bits, AMN_SOURCE_##source, is_half, 0}, src, dst, run, lanes); \
  }

#define PACK_CASE(source, name) \
  case AMN_SOURCE_##source:     \
    return name##_##source;
#define PACK(NAME, name, bits, levels)                                                          \
  V_EACH_SOURCE(PACK_KIND, pack_##name, bits)                                                   \
  static amn_pack_fn pack_##name##_of(const amn_pack_run *run) {                                \
    if (run->is_twice) return pack_##name##_scalar;                                             \
    switch ((int)run->source) {                                                                 \
      V_EACH_SOURCE(PACK_CASE, pack_##name)                                                     \
      default:                                                                                  \
        return V_OTHER_SOURCES(pack_##name);                                                    \
    }                                                                                           \
  }                                                                                             \
  V_ENCODER void V_NAME(pack_##name)(const uint8_t *src, uint8_t *dst, const amn_pack_run *run, \
                                     amn_loss_lanes *lanes) {                                   \
    pack_##name##_of(run)(src, dst, run, lanes);                                                \
  }
#include "../kernels.def"

#undef PACK_CASE
#undef PACK_KIND
