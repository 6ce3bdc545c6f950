/* The vector vocabulary (vec.h) in AVX-512 of F, VL, BW, DQ and VBMI. Include inside the target
 * region. Vectors are as wide as in AVX2: what is gained are instructions. */

#define V_LEVEL "avx512"
#define V_NAME(kernel) kernel##_avx512
#define V_LETTER(avx2, avx512, ...) avx512
#define V_SUPPORTED amn_cpu_has_avx512
#define V_OF_NO_ROW(kernel) kernel##_avx2
#define V_STREAM V_NAME(stream)
#define V_STREAM_END V_NAME(stream_end)
#define V_WIDE "wide_16.h"
#define V_BOUNDS "bounds_16.tpl.h"
#define V_EACH_SOURCE(F, ...) F(BF16, __VA_ARGS__)
#define V_OTHER_SOURCES(kernel) kernel##_avx2

#include "vec_x86.h"

AMN_FORCE_INLINE vec v_select(vec mask, vec a, vec b) {
  return _mm256_ternarylogic_epi32(mask, a, b, 0xca);
}
AMN_FORCE_INLINE vec v_even_odd_u8(vec a, vec b) {
  return _mm256_mask_blend_epi8(0xaaaaaaaa, a, b);
}
AMN_FORCE_INLINE vec_f32 v_lookup16_f32(vec_f32 low, vec_f32 high, vec index) {
  return _mm256_permutex2var_ps(low, index, high);
}
AMN_FORCE_INLINE vec v_load_some_u32(const uint8_t *p, int n) {
  return _mm256_maskz_loadu_epi32((__mmask8)((1 << n) - 1), p);
}
