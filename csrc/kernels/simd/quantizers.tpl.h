/* Kernels from numbers to codes.
 *
 * Needs: quantize.tpl.h, e2m1.tpl.h. Defines: quantize_*. */

/* One specialisation for each (source, divided, zeros, clamped, measured). */
#define QUANTIZE_KIND(source, name, CODE, kind, is_divided, has_zeros, is_clamped)                \
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

#define QUANTIZE_CASE(source, name, kind) \
  case AMN_SOURCE_##source:               \
    return name##_##source##_##kind##1;
#define QUANTIZE_SOURCES(name, CODE, kind, is_divided, has_zeros)          \
  V_EACH_SOURCE(QUANTIZE_KIND, name, CODE, kind, is_divided, has_zeros, 1) \
  static amn_quantize_fn name##_##kind(const amn_quantize_run *run) {      \
    switch ((int)run->source) {                                            \
      V_EACH_SOURCE(QUANTIZE_CASE, name, kind)                             \
      default:                                                             \
        return V_OTHER_SOURCES(quantize_##name);                           \
    }                                                                      \
  }

/* Of BF16 relative to their own largest magnitude, none comes to lie beyond the codes: a usual
 * scale is at most 2^-8 too small, relatively, so that the largest quotients round to the largest
 * code. Only whole numbers, of which there is one less above 0 than below, are still clamped from
 * above. */
#define QUANTIZE_WITHIN(name, CODE, kind, is_divided)                          \
  QUANTIZE_SOURCES(name, CODE, kind, is_divided, 0)                            \
  QUANTIZE_KIND(BF16, name, CODE, kind, is_divided, 0, 0)                      \
  static amn_quantize_fn name##_##kind##_within(const amn_quantize_run *run) { \
    const int is_within = run->is_within && run->source == AMN_SOURCE_BF16;    \
    return is_within ? name##_BF16_##kind##0 : name##_##kind(run);             \
  }

QUANTIZE_WITHIN(f8_e4m3, AMN_QUANTIZE_F8_E4M3, multiplied, 0)
QUANTIZE_WITHIN(f8_e4m3, AMN_QUANTIZE_F8_E4M3, divided, 1)
QUANTIZE_WITHIN(f8_e5m2, AMN_QUANTIZE_F8_E5M2, multiplied, 0)
QUANTIZE_WITHIN(f8_e5m2, AMN_QUANTIZE_F8_E5M2, divided, 1)
QUANTIZE_WITHIN(int8, AMN_QUANTIZE_INT8, divided, 1)
QUANTIZE_WITHIN(int4, AMN_QUANTIZE_INT4, divided, 1)
QUANTIZE_SOURCES(int4, AMN_QUANTIZE_INT4, shifted, 1, 1) /* by zero points, beyond the codes too */
QUANTIZE_SOURCES(int8_absmax, AMN_QUANTIZE_INT8_ABSMAX, multiplied, 0, 0)
QUANTIZE_SOURCES(nf4, AMN_QUANTIZE_NF4, multiplied, 0, 0)
QUANTIZE_SOURCES(fp4, AMN_QUANTIZE_FP4, multiplied, 0, 0)
QUANTIZE_SOURCES(fp4_zeros, AMN_QUANTIZE_FP4_ZEROS, multiplied, 0, 0)

#define QUANTIZE_BY(name, function)                                                            \
  V_ENCODER void V_NAME(quantize_##name)(const uint8_t *src, uint8_t *codes,                   \
                                         const amn_quantize_run *run, amn_loss_lanes *lanes) { \
    (function)(src, codes, run, lanes);                                                        \
  }
QUANTIZE_BY(f8_e4m3, (run->is_divided ? f8_e4m3_divided_within : f8_e4m3_multiplied_within)(run))
QUANTIZE_BY(f8_e5m2, (run->is_divided ? f8_e5m2_divided_within : f8_e5m2_multiplied_within)(run))
QUANTIZE_BY(int8, int8_divided_within(run))
QUANTIZE_BY(int4, (run->zeros == NULL ? int4_divided_within : int4_shifted)(run))
QUANTIZE_BY(int8_absmax, int8_absmax_multiplied(run))
QUANTIZE_BY(nf4, nf4_multiplied(run))
QUANTIZE_BY(fp4, fp4_multiplied(run))
QUANTIZE_BY(fp4_zeros, fp4_zeros_multiplied(run))

#undef QUANTIZE_WITHIN
#undef QUANTIZE_SOURCES
#undef QUANTIZE_CASE
#undef QUANTIZE_KIND

#define E2M1_KIND(source, name, ties, is_divided)                                                  \
  static void name##_##source##_##is_divided(const uint8_t *src, uint8_t *codes,                   \
                                             const amn_quantize_run *run, amn_loss_lanes *lanes) { \
    const e2m1_kind plain = {AMN_SOURCE_##source, ties, is_divided, 0},                            \
                    measured = {AMN_SOURCE_##source, ties, is_divided, 1};                         \
    if (lanes == NULL)                                                                             \
      e2m1_row(plain, quantize_##name##_scalar, src, codes, run, lanes);                           \
    else                                                                                           \
      e2m1_row(measured, quantize_##name##_scalar, src, codes, run, lanes);                        \
  }
#define E2M1_CASE(source, name) \
  case AMN_SOURCE_##source:     \
    return is_divided ? name##_##source##_1 : name##_##source##_0;
#define E2M1_KINDS(name, ties)                                          \
  V_EACH_SOURCE(E2M1_KIND, name, ties, 0)                               \
  V_EACH_SOURCE(E2M1_KIND, name, ties, 1)                               \
  static amn_quantize_fn name##_of(amn_source source, int is_divided) { \
    switch ((int)source) {                                              \
      V_EACH_SOURCE(E2M1_CASE, name)                                    \
      default:                                                          \
        return V_OTHER_SOURCES(quantize_##name);                        \
    }                                                                   \
  }                                                                     \
  QUANTIZE_BY(name, name##_of(run->source, run->is_divided))
E2M1_KINDS(e2m1, E2M1_TO_EVEN)
E2M1_KINDS(e2m1_signed, E2M1_TO_SIGNED)
E2M1_KINDS(e2m1_down, E2M1_TO_DOWN)
E2M1_KINDS(e2m1_first, E2M1_TO_FIRST)
E2M1_KINDS(e2m1_away, E2M1_TO_AWAY)
#undef E2M1_KINDS
#undef E2M1_CASE
#undef E2M1_KIND
#undef QUANTIZE_BY
