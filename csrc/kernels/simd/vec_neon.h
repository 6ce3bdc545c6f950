/* The vector vocabulary (vec.h) in NEON, which every aarch64 has: a vector is two registers. */

#define V_LEVEL "neon"
#define V_NAME(kernel) kernel##_neon
#define V_LETTER(avx2, avx512, neon) neon
#define V_SUPPORTED NULL
#define V_OF_NO_ROW(kernel) V_NAME(kernel)
#define V_STREAM NULL
#define V_STREAM_END NULL
#define V_WIDE "wide_8.h"
#define V_BOUNDS "bounds_8.tpl.h"
#define V_EACH_SOURCE(F, ...) F(F32, __VA_ARGS__) F(F16, __VA_ARGS__) F(BF16, __VA_ARGS__)
#define V_OTHER_SOURCES(kernel) kernel##_scalar /* of which there are none */

typedef struct {
  uint8x16_t lower, upper;
} vec;
typedef struct {
  float32x4_t lower, upper;
} vec_f32;

#include "vec.h"

/* The lower or upper lane of a vector as another type of elements, and a vector of two such. */
#define LOWER(type, a) vreinterpretq_##type##_u8((a).lower)
#define UPPER(type, a) vreinterpretq_##type##_u8((a).upper)
#define BYTES(type, a) vreinterpretq_u8_##type(a)

AMN_FORCE_INLINE vec vec_of(uint8x16_t lower, uint8x16_t upper) {
  const vec both = {lower, upper};
  return both;
}
AMN_FORCE_INLINE vec_f32 vec_f32_of(float32x4_t lower, float32x4_t upper) {
  const vec_f32 both = {lower, upper};
  return both;
}

/* What one instruction does, in both lanes: of bytes, of other elements, of f32, and with a mask as
 * the result. */
#define OF_BYTES(name, op)                                     \
  AMN_FORCE_INLINE vec name(vec a, vec b) {                    \
    return vec_of(op(a.lower, b.lower), op(a.upper, b.upper)); \
  }
#define OF_TWO(name, op, type, to)                                \
  AMN_FORCE_INLINE vec name(vec a, vec b) {                       \
    return vec_of(BYTES(to, op(LOWER(type, a), LOWER(type, b))),  \
                  BYTES(to, op(UPPER(type, a), UPPER(type, b)))); \
  }
#define OF_F32(name, op)                                           \
  AMN_FORCE_INLINE vec_f32 name(vec_f32 a, vec_f32 b) {            \
    return vec_f32_of(op(a.lower, b.lower), op(a.upper, b.upper)); \
  }
#define SHIFT(name, op, type, count, sign)                         \
  AMN_FORCE_INLINE vec name(vec a, int n) {                        \
    return vec_of(BYTES(type, op(LOWER(type, a), count(sign n))),  \
                  BYTES(type, op(UPPER(type, a), count(sign n)))); \
  }

AMN_FORCE_INLINE void v_end(void) {}

AMN_FORCE_INLINE vec v_load(const void *p) {
  return vec_of(vld1q_u8((const uint8_t *)p), vld1q_u8((const uint8_t *)p + 16));
}
AMN_FORCE_INLINE void v_store(void *p, vec a) {
  vst1q_u8((uint8_t *)p, a.lower);
  vst1q_u8((uint8_t *)p + 16, a.upper);
}
AMN_FORCE_INLINE vec_f32 v_f32_from_bits(vec a) {
  return vec_f32_of(LOWER(f32, a), UPPER(f32, a));
}
AMN_FORCE_INLINE vec v_bits_f32(vec_f32 a) {
  return vec_of(BYTES(f32, a.lower), BYTES(f32, a.upper));
}
AMN_FORCE_INLINE vec_f32 v_load_f32(const void *p) {
  return v_f32_from_bits(v_load(p));
}
AMN_FORCE_INLINE void v_store_f32(void *p, vec_f32 a) {
  v_store(p, v_bits_f32(a));
}
AMN_FORCE_INLINE vec v_load_lanes(const uint8_t *a, const uint8_t *b) {
  return vec_of(vld1q_u8(a), vld1q_u8(b));
}
AMN_FORCE_INLINE void v_store_lanes(uint8_t *a, uint8_t *b, vec words) {
  vst1q_u8(a, words.lower);
  vst1q_u8(b, words.upper);
}
AMN_FORCE_INLINE vec v_load_both_lanes(const uint8_t *p) {
  const uint8x16_t lane = vld1q_u8(p);
  return vec_of(lane, lane);
}

/* The compiler may use the one instruction for it that passes the caches, stnp; no program can ask
 * for it, and no kernel streams. */
AMN_FORCE_INLINE void v_stream(void *p, vec a) {
  v_store(p, a);
}
AMN_FORCE_INLINE void v_stream_end(void) {}

AMN_FORCE_INLINE void v_prefetch(const void *p) {
  AMN_PREFETCH(p);
}

/* ---- constants ---- */

AMN_FORCE_INLINE vec v_set_u8(uint8_t a) {
  return vec_of(vdupq_n_u8(a), vdupq_n_u8(a));
}
AMN_FORCE_INLINE vec v_zero(void) {
  return v_set_u8(0);
}
AMN_FORCE_INLINE vec v_set_u16_lanes(uint16_t a, uint16_t b) {
  return vec_of(BYTES(u16, vdupq_n_u16(a)), BYTES(u16, vdupq_n_u16(b)));
}
AMN_FORCE_INLINE vec v_set_u16(uint16_t a) {
  return v_set_u16_lanes(a, a);
}
AMN_FORCE_INLINE vec v_set_u32(uint32_t a) {
  const uint8x16_t lane = BYTES(u32, vdupq_n_u32(a));
  return vec_of(lane, lane);
}
AMN_FORCE_INLINE vec v_set_u64(uint64_t a) {
  const uint8x16_t lane = BYTES(u64, vdupq_n_u64(a));
  return vec_of(lane, lane);
}
AMN_FORCE_INLINE vec v_set_u64x4(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return vec_of(BYTES(u64, vcombine_u64(vcreate_u64(a), vcreate_u64(b))),
                BYTES(u64, vcombine_u64(vcreate_u64(c), vcreate_u64(d))));
}
AMN_FORCE_INLINE vec_f32 v_set_f32(float a) {
  return vec_f32_of(vdupq_n_f32(a), vdupq_n_f32(a));
}

AMN_FORCE_INLINE void v_iota_f32(vec_f32 *a, vec_f32 *b) {
  static const float iota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  *a = v_load_f32(iota);
  *b = v_load_f32(iota + 8);
}

/* ---- bits and masks ---- */

OF_BYTES(v_and, vandq_u8)
OF_BYTES(v_or, vorrq_u8)
OF_BYTES(v_xor, veorq_u8)
AMN_FORCE_INLINE vec v_and_not(vec not_a, vec b) {
  return vec_of(vbicq_u8(b.lower, not_a.lower), vbicq_u8(b.upper, not_a.upper));
}
AMN_FORCE_INLINE vec v_select(vec mask, vec a, vec b) {
  return vec_of(vbslq_u8(mask.lower, a.lower, b.lower), vbslq_u8(mask.upper, a.upper, b.upper));
}
AMN_FORCE_INLINE int v_all(vec mask) {
  return vminvq_u32(vreinterpretq_u32_u8(vandq_u8(mask.lower, mask.upper))) == 0xffffffff;
}
AMN_FORCE_INLINE int v_any(vec mask) {
  return vmaxvq_u32(vreinterpretq_u32_u8(vorrq_u8(mask.lower, mask.upper))) != 0;
}

AMN_FORCE_INLINE uint32_t signs_of_u32(uint8x16_t a) {
  static const uint32_t bits[4] = {1, 2, 4, 8};
  const int32x4_t signs = vshrq_n_s32(vreinterpretq_s32_u8(a), 31);
  return vaddvq_u32(vandq_u32(vreinterpretq_u32_s32(signs), vld1q_u32(bits)));
}
AMN_FORCE_INLINE uint32_t v_signs_u32(vec a) {
  return signs_of_u32(a.lower) | signs_of_u32(a.upper) << 4;
}
AMN_FORCE_INLINE uint32_t v_signs_u8(vec a) {
  static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bit = vld1q_u8(bits);
  const uint8x16_t lower = vandq_u8(BYTES(s8, vshrq_n_s8(LOWER(s8, a), 7)), bit);
  const uint8x16_t upper = vandq_u8(BYTES(s8, vshrq_n_s8(UPPER(s8, a), 7)), bit);
  const uint8x16_t fours = vpaddq_u8(vpaddq_u8(lower, upper), vpaddq_u8(lower, upper));
  return vgetq_lane_u32(vreinterpretq_u32_u8(vpaddq_u8(fours, fours)), 0);
}
AMN_FORCE_INLINE vec v_select_lanes(vec a, vec b) {
  return vec_of(a.lower, b.upper);
}
AMN_FORCE_INLINE vec v_even_odd_u8(vec a, vec b) {
  return v_select(v_set_u16(0x00ff), a, b);
}
AMN_FORCE_INLINE vec v_even_odd_u16(vec a, vec b) {
  return v_select(v_set_u32(0x0000ffff), a, b);
}

OF_BYTES(v_equal_u8, vceqq_u8)
OF_TWO(v_equal_u16, vceqq_u16, u16, u16)
OF_TWO(v_equal_u32, vceqq_u32, u32, u32)
AMN_FORCE_INLINE vec v_greater_s8(vec a, vec b) {
  return vec_of(vcgtq_s8(LOWER(s8, a), LOWER(s8, b)), vcgtq_s8(UPPER(s8, a), UPPER(s8, b)));
}
OF_TWO(v_greater_s16, vcgtq_s16, s16, u16)
OF_TWO(v_greater_s32, vcgtq_s32, s32, u32)
AMN_FORCE_INLINE vec v_greater_f32(vec_f32 a, vec_f32 b) {
  return vec_of(BYTES(u32, vcgtq_f32(a.lower, b.lower)), BYTES(u32, vcgtq_f32(a.upper, b.upper)));
}
AMN_FORCE_INLINE vec v_unordered_f32(vec_f32 a, vec_f32 b) {
  const uint32x4_t lower = vandq_u32(vceqq_f32(a.lower, a.lower), vceqq_f32(b.lower, b.lower));
  const uint32x4_t upper = vandq_u32(vceqq_f32(a.upper, a.upper), vceqq_f32(b.upper, b.upper));
  return vec_of(BYTES(u32, vmvnq_u32(lower)), BYTES(u32, vmvnq_u32(upper)));
}
AMN_FORCE_INLINE vec v_is_nan_f32(vec_f32 a) {
  return vec_of(BYTES(u32, vmvnq_u32(vceqq_f32(a.lower, a.lower))),
                BYTES(u32, vmvnq_u32(vceqq_f32(a.upper, a.upper))));
}

/* ---- integers ---- */

OF_BYTES(v_add_u8, vaddq_u8)
OF_TWO(v_add_u16, vaddq_u16, u16, u16)
OF_TWO(v_add_u32, vaddq_u32, u32, u32)
OF_BYTES(v_sub_u8, vsubq_u8)
OF_TWO(v_sub_u16, vsubq_u16, u16, u16)
OF_TWO(v_sub_u32, vsubq_u32, u32, u32)
OF_BYTES(v_sub_sat_u8, vqsubq_u8)
OF_TWO(v_sub_sat_u16, vqsubq_u16, u16, u16)
OF_BYTES(v_min_u8, vminq_u8)
OF_TWO(v_min_u16, vminq_u16, u16, u16)
OF_TWO(v_max_u16, vmaxq_u16, u16, u16)
OF_TWO(v_max_s16, vmaxq_s16, s16, s16)
OF_TWO(v_max_s32, vmaxq_s32, s32, s32)
OF_TWO(v_min_s32, vminq_s32, s32, s32)
AMN_FORCE_INLINE uint16_t v_largest_u16(vec a) {
  return vmaxvq_u16(vmaxq_u16(LOWER(u16, a), UPPER(u16, a)));
}
AMN_FORCE_INLINE uint32_t v_largest_s32(vec a) {
  return (uint32_t)vmaxvq_s32(vmaxq_s32(LOWER(s32, a), UPPER(s32, a)));
}
OF_TWO(v_mul_u16, vmulq_u16, u16, u16)
OF_TWO(v_mul_u32, vmulq_u32, u32, u32)
AMN_FORCE_INLINE uint16x8_t mul_high_u16(uint16x8_t a, uint16x8_t b) {
  const uint32x4_t low = vmull_u16(vget_low_u16(a), vget_low_u16(b));
  const uint32x4_t high = vmull_high_u16(a, b);
  return vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}
OF_TWO(v_mul_high_u16, mul_high_u16, u16, u16)

/* vshlq takes counts in a register, of which negative ones shift to the right; of constants the
 * compiler makes immediate shifts. */
SHIFT(v_shr_u16, vshlq_u16, u16, vdupq_n_s16, (int16_t)-)
SHIFT(v_shl_u16, vshlq_u16, u16, vdupq_n_s16, (int16_t))
SHIFT(v_shr_u32, vshlq_u32, u32, vdupq_n_s32, -)
SHIFT(v_shl_u32, vshlq_u32, u32, vdupq_n_s32, )
AMN_FORCE_INLINE vec v_shr_u32_lanes(vec a, int low, int high) {
  return vec_of(BYTES(u32, vshlq_u32(LOWER(u32, a), vdupq_n_s32(-low))),
                BYTES(u32, vshlq_u32(UPPER(u32, a), vdupq_n_s32(-high))));
}
AMN_FORCE_INLINE vec v_shl_u32_each(vec a, vec counts) {
  return vec_of(BYTES(u32, vshlq_u32(LOWER(u32, a), LOWER(s32, counts))),
                BYTES(u32, vshlq_u32(UPPER(u32, a), UPPER(s32, counts))));
}
AMN_FORCE_INLINE vec v_shr_u32_each(vec a, vec counts) {
  return v_shl_u32_each(a, v_sub_u32(v_zero(), counts));
}
AMN_FORCE_INLINE vec v_shr_u32_each2(vec a) {
  static const int32_t counts[8] = {0, -2, -4, -6, -8, -10, -12, -14};
  return v_shl_u32_each(a, v_load(counts));
}
AMN_FORCE_INLINE vec v_shr_u32_each4(vec a) {
  static const int32_t counts[8] = {0, -4, -8, -12, -16, -20, -24, -28};
  return v_shl_u32_each(a, v_load(counts));
}
AMN_FORCE_INLINE vec v_shr_u64_by_turns(vec a, int even, int odd) {
  const int64x2_t counts = vcombine_s64(vdup_n_s64(-even), vdup_n_s64(-odd));
  return vec_of(BYTES(u64, vshlq_u64(LOWER(u64, a), counts)),
                BYTES(u64, vshlq_u64(UPPER(u64, a), counts)));
}

/* ---- floats ---- */

OF_F32(v_add_f32, vaddq_f32)
OF_F32(v_sub_f32, vsubq_f32)
OF_F32(v_mul_f32, vmulq_f32)
OF_F32(v_div_f32, vdivq_f32)
/* fmin and fmax have other rules for NaNs and zeros. */
AMN_FORCE_INLINE float32x4_t min_f32(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
AMN_FORCE_INLINE float32x4_t max_f32(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
OF_F32(v_min_f32, min_f32)
OF_F32(v_max_f32, max_f32)
AMN_FORCE_INLINE vec_f32 v_sqrt_f32(vec_f32 a) {
  return vec_f32_of(vsqrtq_f32(a.lower), vsqrtq_f32(a.upper));
}
AMN_FORCE_INLINE vec_f32 v_least_f32(vec_f32 a) {
  float32x4_t least = min_f32(a.lower, a.upper);
  least = min_f32(least, vextq_f32(least, least, 2));
  least = min_f32(least, vrev64q_f32(least));
  return vec_f32_of(least, least);
}
AMN_FORCE_INLINE vec_f32 v_f32_from_s32(vec a) {
  return vec_f32_of(vcvtq_f32_s32(LOWER(s32, a)), vcvtq_f32_s32(UPPER(s32, a)));
}
AMN_FORCE_INLINE vec v_s32_from_f32(vec_f32 a) {
  return vec_of(BYTES(s32, vcvtnq_s32_f32(a.lower)), BYTES(s32, vcvtnq_s32_f32(a.upper)));
}
AMN_FORCE_INLINE vec v_s32_cut_f32(vec_f32 a) {
  return vec_of(BYTES(s32, vcvtq_s32_f32(a.lower)), BYTES(s32, vcvtq_s32_f32(a.upper)));
}
AMN_FORCE_INLINE float32x4_t rounded_to_f16(float32x4_t a) {
  return vcvt_f32_f16(vcvt_f16_f32(a));
}
AMN_FORCE_INLINE vec_f32 v_rounded_to_f16(vec_f32 a) {
  return vec_f32_of(rounded_to_f16(a.lower), rounded_to_f16(a.upper));
}
AMN_FORCE_INLINE void add_to_f64(double *p, float32x4_t a) {
  vst1q_f64(p, vaddq_f64(vld1q_f64(p), vcvt_f64_f32(vget_low_f32(a))));
  vst1q_f64(p + 2, vaddq_f64(vld1q_f64(p + 2), vcvt_high_f64_f32(a)));
}
AMN_FORCE_INLINE void v_add_to_f64(double *p, vec_f32 a) {
  add_to_f64(p, a.lower);
  add_to_f64(p + 4, a.upper);
}

AMN_FORCE_INLINE vec_f32 f32_from_f16(uint16x8_t halves) {
  const float16x8_t values = vreinterpretq_f16_u16(halves);
  return vec_f32_of(vcvt_f32_f16(vget_low_f16(values)), vcvt_high_f32_f16(values));
}
AMN_FORCE_INLINE vec_f32 v_f32_from_f16(vec halves) {
  return f32_from_f16(LOWER(u16, halves));
}
AMN_FORCE_INLINE uint16x8_t f16_from_f32(vec_f32 a) {
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.lower), a.upper));
}
AMN_FORCE_INLINE vec v_f16_from_f32(vec_f32 low, vec_f32 high) {
  return vec_of(BYTES(u16, f16_from_f32(low)), BYTES(u16, f16_from_f32(high)));
}
AMN_FORCE_INLINE vec v_f16_pairs_from_f32(vec_f32 even, vec_f32 odd) {
  const uint16x8_t a = f16_from_f32(even), b = f16_from_f32(odd);
  return vec_of(BYTES(u16, vzip1q_u16(a, b)), BYTES(u16, vzip2q_u16(a, b)));
}

/* ---- loads that widen or repeat ---- */

AMN_FORCE_INLINE vec v_swap_middle_u64(vec a) {
  return vec_of(BYTES(u64, vzip1q_u64(LOWER(u64, a), UPPER(u64, a))),
                BYTES(u64, vzip2q_u64(LOWER(u64, a), UPPER(u64, a))));
}
AMN_FORCE_INLINE vec v_load_u8_zip1(const uint8_t *p) {
  return v_swap_middle_u64(v_load(p));
}
AMN_FORCE_INLINE vec v_load_u8_zip2(const uint8_t *p) {
  const vec a = v_load(p);
  return vec_of(BYTES(u32, vuzp1q_u32(LOWER(u32, a), UPPER(u32, a))),
                BYTES(u32, vuzp2q_u32(LOWER(u32, a), UPPER(u32, a))));
}

AMN_FORCE_INLINE vec u32_from_u16(uint16x8_t a) {
  return vec_of(BYTES(u32, vmovl_u16(vget_low_u16(a))), BYTES(u32, vmovl_high_u16(a)));
}
AMN_FORCE_INLINE vec u16_from_u8(uint8x16_t a) {
  return vec_of(BYTES(u16, vmovl_u8(vget_low_u8(a))), BYTES(u16, vmovl_high_u8(a)));
}
AMN_FORCE_INLINE vec s32_from_s8(int8x8_t a) {
  const int16x8_t words = vmovl_s8(a);
  return vec_of(BYTES(s32, vmovl_s16(vget_low_s16(words))), BYTES(s32, vmovl_high_s16(words)));
}
AMN_FORCE_INLINE vec v_load_u8_as_u32(const uint8_t *p) {
  return u32_from_u16(vmovl_u8(vld1_u8(p)));
}
AMN_FORCE_INLINE vec v_load_s8_as_s32(const uint8_t *p) {
  return s32_from_s8(vreinterpret_s8_u8(vld1_u8(p)));
}
AMN_FORCE_INLINE vec v_load_u16_as_u32(const uint8_t *p) {
  return u32_from_u16(vreinterpretq_u16_u8(vld1q_u8(p)));
}
AMN_FORCE_INLINE vec v_load_u8_as_u16(const uint8_t *p) {
  return u16_from_u8(vld1q_u8(p));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_as_f32(const uint8_t *p) {
  return f32_from_f16(vreinterpretq_u16_u8(vld1q_u8(p)));
}
AMN_FORCE_INLINE float32x4_t load_f64_as_f32(const uint8_t *p) {
  const float64x2_t low = vreinterpretq_f64_u8(vld1q_u8(p));
  const float64x2_t high = vreinterpretq_f64_u8(vld1q_u8(p + 16));
  return vcvt_high_f32_f64(vcvt_f32_f64(low), high);
}
AMN_FORCE_INLINE vec_f32 v_load_f64_as_f32(const uint8_t *p) {
  return vec_f32_of(load_f64_as_f32(p), load_f64_as_f32(p + 32));
}
AMN_FORCE_INLINE vec v_load_some_u32(const uint8_t *p, int n) {
  uint32_t words[8] = {0};
  memcpy(words, p, (size_t)n * 4);
  return v_load(words);
}

AMN_FORCE_INLINE vec v_load_u32_all(const uint8_t *p) {
  return v_set_u32(amn_load_u32(p));
}
AMN_FORCE_INLINE vec v_load_u64_all(const uint8_t *p) {
  uint64_t value;
  memcpy(&value, p, sizeof value);
  return v_set_u64(value);
}
AMN_FORCE_INLINE float32x4_t load_f16_lane(const uint8_t *p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(amn_load_u16(p))));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_lanes(const uint8_t *a, const uint8_t *b) {
  return vec_f32_of(load_f16_lane(a), load_f16_lane(b));
}
AMN_FORCE_INLINE vec_f32 v_load_f16_all(const uint8_t *p) {
  const float32x4_t lane = load_f16_lane(p);
  return vec_f32_of(lane, lane);
}
AMN_FORCE_INLINE void v_load_two_f16_lanes(const uint8_t *a, const uint8_t *b, vec_f32 *first,
                                           vec_f32 *second) {
  *first = v_load_f16_lanes(a, b);
  *second = v_load_f16_lanes(a + 2, b + 2);
}
AMN_FORCE_INLINE vec_f32 v_load_f32_lanes(const float *a) {
  return vec_f32_of(vld1q_dup_f32(a), vld1q_dup_f32(a + 1));
}

AMN_FORCE_INLINE vec v_load_u64_twice(const uint8_t *p) {
  const uint64x2_t both = vreinterpretq_u64_u8(vld1q_u8(p));
  return vec_of(BYTES(u64, vdupq_laneq_u64(both, 0)), BYTES(u64, vdupq_laneq_u64(both, 1)));
}
/* Bytes of four, or eight, everywhere. */
AMN_FORCE_INLINE vec repeated(vec all, const uint8_t index[32]) {
  const vec at = v_load(index);
  return vec_of(vqtbl1q_u8(all.lower, at.lower), vqtbl1q_u8(all.lower, at.upper));
}
AMN_FORCE_INLINE vec v_load_u8_as_u16_times4(const uint8_t *p) {
  static const uint8_t index[32] = {0, 16, 0, 16, 0, 16, 0, 16, 1, 16, 1, 16, 1, 16, 1, 16,
                                    2, 16, 2, 16, 2, 16, 2, 16, 3, 16, 3, 16, 3, 16, 3, 16};
  return repeated(v_load_u32_all(p), index);
}
AMN_FORCE_INLINE vec v_load_u8_as_u16_times8(const uint8_t *p) {
  return v_set_u16_lanes(p[0], p[1]);
}
AMN_FORCE_INLINE vec v_load_u16_times4(const uint8_t *p) {
  static const uint8_t index[32] = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3,
                                    4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7};
  return repeated(v_load_u64_all(p), index);
}
AMN_FORCE_INLINE vec v_load_rows_u8(const uint8_t *four) {
  static const uint8_t index[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                    2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  return repeated(v_load_u32_all(four), index);
}
AMN_FORCE_INLINE vec v_load_rows_u8_zip1(const uint8_t *four) {
  static const uint8_t index[32] = {0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2,
                                    1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3};
  return repeated(v_load_u32_all(four), index);
}

AMN_FORCE_INLINE uint8x16_t two_u64(const uint64_t *a, const uint64_t *b) {
  return BYTES(u64, vcombine_u64(vld1_u64(a), vld1_u64(b)));
}
AMN_FORCE_INLINE vec v_load_u64x4(const uint64_t *a, const uint64_t *b, const uint64_t *c,
                                  const uint64_t *d) {
  return vec_of(two_u64(a, b), two_u64(c, d));
}
AMN_FORCE_INLINE uint8x16_t four_u32(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                     const uint32_t *d) {
  uint32x4_t words = vld1q_dup_u32(a);
  words = vld1q_lane_u32(b, words, 1);
  words = vld1q_lane_u32(c, words, 2);
  return BYTES(u32, vld1q_lane_u32(d, words, 3));
}
AMN_FORCE_INLINE vec v_load_u32x8(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                  const uint32_t *d, const uint32_t *e, const uint32_t *f,
                                  const uint32_t *g, const uint32_t *h) {
  return vec_of(four_u32(a, b, c, d), four_u32(e, f, g, h));
}

AMN_FORCE_INLINE vec v_load_nibbles_as_u8_x32(const uint8_t *p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15)), high = vshrq_n_u8(bytes, 4);
  return vec_of(vzip1q_u8(low, high), vzip2q_u8(low, high));
}
AMN_FORCE_INLINE vec v_load_nibbles_high_first(const uint8_t *p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15)), high = vshrq_n_u8(bytes, 4);
  return vec_of(vzip1q_u8(high, low), vzip2q_u8(high, low));
}
AMN_FORCE_INLINE vec v_load_nibbles_as_u8(const uint8_t *p) {
  const uint8x8_t bytes = vld1_u8(p);
  const uint8x8_t low = vand_u8(bytes, vdup_n_u8(15)), high = vshr_n_u8(bytes, 4);
  const uint8x16_t lane = vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
  return vec_of(lane, lane);
}
AMN_FORCE_INLINE vec v_nibbles_twice(const uint8_t *p) {
  const uint8x8_t bytes = vld1_u8(p), high = vshr_n_u8(bytes, 4);
  const uint8x16_t pairs = vcombine_u8(vzip1_u8(bytes, high), vzip2_u8(bytes, high));
  return vec_of(vzip1q_u8(pairs, pairs), vzip2q_u8(pairs, pairs));
}

/* ---- order and width ---- */

OF_BYTES(v_zip_low_u8, vzip1q_u8)
OF_BYTES(v_zip_high_u8, vzip2q_u8)
OF_TWO(v_zip_low_u16, vzip1q_u16, u16, u16)
OF_TWO(v_zip_high_u16, vzip2q_u16, u16, u16)
OF_TWO(v_zip_low_u32, vzip1q_u32, u32, u32)
OF_TWO(v_zip_high_u32, vzip2q_u32, u32, u32)
OF_TWO(v_zip_low_u64, vzip1q_u64, u64, u64)
OF_TWO(v_zip_high_u64, vzip2q_u64, u64, u64)

AMN_FORCE_INLINE vec v_even_u32(vec a, vec b) {
  return vec_of(BYTES(u32, vuzp1q_u32(LOWER(u32, a), UPPER(u32, a))),
                BYTES(u32, vuzp1q_u32(LOWER(u32, b), UPPER(u32, b))));
}
AMN_FORCE_INLINE vec v_odd_u32(vec a, vec b) {
  return vec_of(BYTES(u32, vuzp2q_u32(LOWER(u32, a), UPPER(u32, a))),
                BYTES(u32, vuzp2q_u32(LOWER(u32, b), UPPER(u32, b))));
}
AMN_FORCE_INLINE vec v_pack_u32(vec low, vec high) {
  return vec_of(BYTES(u16, vuzp1q_u16(LOWER(u16, low), UPPER(u16, low))),
                BYTES(u16, vuzp1q_u16(LOWER(u16, high), UPPER(u16, high))));
}
AMN_FORCE_INLINE vec v_pack_u16(vec low, vec high) {
  return vec_of(vuzp1q_u8(low.lower, low.upper), vuzp1q_u8(high.lower, high.upper));
}
AMN_FORCE_INLINE vec v_pack_lanes_u16(vec low, vec high) {
  return vec_of(vuzp1q_u8(low.lower, high.lower), vuzp1q_u8(low.upper, high.upper));
}
AMN_FORCE_INLINE vec v_pack_iota_u32(vec a, vec b) {
  return v_pack_u32(a, b);
}
AMN_FORCE_INLINE vec v_pack_s32(vec a, vec b, vec c, vec d) {
  return v_pack_u16(v_pack_u32(a, b), v_pack_u32(c, d));
}
AMN_FORCE_INLINE vec v_pack_u16_signs(vec low, vec high, vec signs_low, vec signs_high) {
  const vec signs = vec_of(vuzp2q_u8(signs_low.lower, signs_low.upper),
                           vuzp2q_u8(signs_high.lower, signs_high.upper));
  return v_select(v_set_u8(0x80), signs, v_pack_u16(low, high));
}

/* Bytes at any places of both lanes. */
AMN_FORCE_INLINE vec permute_u8(vec a, vec index) {
  const uint8x16x2_t both = {{a.lower, a.upper}};
  return vec_of(vqtbl2q_u8(both, index.lower), vqtbl2q_u8(both, index.upper));
}
/* The places of the bytes of u32 `index`, which are below 64. */
AMN_FORCE_INLINE vec places_u32(vec index) {
  return v_add_u32(v_mul_u32(index, v_set_u32(0x04040404)), v_set_u32(0x03020100));
}
AMN_FORCE_INLINE vec v_permute_u32(vec a, vec index) {
  return permute_u8(a, places_u32(v_and(index, v_set_u32(7))));
}
AMN_FORCE_INLINE vec v_s32_from_s8(vec a, int part) {
  const int8x16_t half = vreinterpretq_s8_u8(part < 2 ? a.lower : a.upper);
  return s32_from_s8(part & 1 ? vget_high_s8(half) : vget_low_s8(half));
}
AMN_FORCE_INLINE vec v_u16_from_u8(vec a, int part) {
  return u16_from_u8(part ? a.upper : a.lower);
}

/* 0xf0 is beyond the table, whatever is added, and gives 0. */
AMN_FORCE_INLINE vec spread_s8(vec a, const uint8_t index[16], int first) {
  return v_lookup16(a, v_add_u32(v_load_both_lanes(index), v_set_u32((uint32_t)first << 24)));
}
static const uint8_t every_second[16] = {240, 240, 240, 0, 240, 240, 240, 2,
                                         240, 240, 240, 4, 240, 240, 240, 6};
static const uint8_t every_fourth[16] = {240, 240, 240, 0, 240, 240, 240, 4,
                                         240, 240, 240, 8, 240, 240, 240, 12};
AMN_FORCE_INLINE vec v_spread_even_s8(vec a, int upper) {
  return spread_s8(a, every_second, upper ? 8 : 0);
}
AMN_FORCE_INLINE vec v_spread_odd_s8(vec a, int upper) {
  return spread_s8(a, every_second, upper ? 9 : 1);
}
AMN_FORCE_INLINE vec v_spread_every_fourth_s8(vec a, int first) {
  return spread_s8(a, every_fourth, first);
}

AMN_FORCE_INLINE void v_transpose_lanes_u32(vec rows[4]) {
  const vec ab_low = v_zip_low_u32(rows[0], rows[1]), ab_high = v_zip_high_u32(rows[0], rows[1]);
  const vec cd_low = v_zip_low_u32(rows[2], rows[3]), cd_high = v_zip_high_u32(rows[2], rows[3]);
  rows[0] = v_zip_low_u64(ab_low, cd_low);
  rows[1] = v_zip_high_u64(ab_low, cd_low);
  rows[2] = v_zip_low_u64(ab_high, cd_high);
  rows[3] = v_zip_high_u64(ab_high, cd_high);
}
AMN_FORCE_INLINE void v_transpose_u32(vec rows[8]) {
  v_transpose_lanes_u32(rows);
  v_transpose_lanes_u32(rows + 4);
  for (int i = 0; i < 4; i++) {
    const vec first = rows[i], second = rows[i + 4];
    rows[i] = vec_of(first.lower, second.lower);
    rows[i + 4] = vec_of(first.upper, second.upper);
  }
}
AMN_FORCE_INLINE vec v_transpose_lanes_u8(vec a) {
  static const uint8_t index[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return v_lookup16(a, v_load_both_lanes(index));
}
AMN_FORCE_INLINE vec v_lower_lane(vec a) {
  return vec_of(a.lower, a.lower);
}
AMN_FORCE_INLINE vec v_upper_lane(vec a) {
  return vec_of(a.upper, a.upper);
}
AMN_FORCE_INLINE vec v_lower_lanes(vec a, vec b) {
  return vec_of(a.lower, b.lower);
}
AMN_FORCE_INLINE vec v_upper_lanes(vec a, vec b) {
  return vec_of(a.upper, b.upper);
}

/* By way of an array, which the compiler makes a dup of an element. */
AMN_FORCE_INLINE float32x4_t f32_all(vec_f32 a, int i) {
  float elements[8];
  v_store_f32(elements, a);
  return vdupq_n_f32(elements[i]);
}
AMN_FORCE_INLINE vec_f32 v_f32_all(vec_f32 a, int i) {
  return vec_f32_of(f32_all(a, i), f32_all(a, i));
}
AMN_FORCE_INLINE vec_f32 v_f32_lanes(vec_f32 a, int i) {
  return vec_f32_of(f32_all(a, i), f32_all(a, i + 1));
}

/* ---- tables ---- */

OF_BYTES(v_lookup16, vqtbl1q_u8)
AMN_FORCE_INLINE void v_split_table(vec words, vec *low, vec *high) {
  *low = v_pack_u16(words, words);
  const uint8x16_t upper = vuzp2q_u8(words.lower, words.upper);
  *high = vec_of(upper, upper);
}
AMN_FORCE_INLINE vec v_split_upper_u16(vec a) {
  const uint16x8_t words = vuzp2q_u16(LOWER(u16, a), UPPER(u16, a));
  const uint8x16_t lane = vcombine_u8(vmovn_u16(words), vshrn_n_u16(words, 8));
  return vec_of(lane, lane);
}
AMN_FORCE_INLINE vec_f32 v_lookup8_f32(vec_f32 table, vec index) {
  return v_f32_from_bits(v_permute_u32(v_bits_f32(table), index));
}
AMN_FORCE_INLINE vec_f32 v_lookup16_f32(vec_f32 low, vec_f32 high, vec index) {
  const vec a = v_bits_f32(low), b = v_bits_f32(high);
  const uint8x16x4_t table = {{a.lower, a.upper, b.lower, b.upper}};
  const vec at = places_u32(v_and(index, v_set_u32(15)));
  return v_f32_from_bits(vec_of(vqtbl4q_u8(table, at.lower), vqtbl4q_u8(table, at.upper)));
}

#undef LOWER
#undef UPPER
#undef BYTES
#undef OF_BYTES
#undef OF_TWO
#undef OF_F32
#undef SHIFT
