/* The vector vocabulary (vec.h) in AVX2 and F16C. Include inside the target region. */

#define V_LEVEL "avx2"
#define V_NAME(kernel) kernel##_avx2
#define V_LETTER(avx2, ...) avx2
#define V_SUPPORTED amn_cpu_has_avx2_f16c
#define V_OF_NO_ROW(kernel) V_NAME(kernel)
#define V_STREAM V_NAME(stream)
#define V_STREAM_END V_NAME(stream_end)
#define V_WIDE "wide_8.h"
#define V_BOUNDS "bounds_8.tpl.h"
#define V_EACH_SOURCE(F, ...) F(F32, __VA_ARGS__) F(F16, __VA_ARGS__) F(BF16, __VA_ARGS__)
#define V_OTHER_SOURCES(kernel) kernel##_scalar /* of which there are none */

#include "vec_x86.h"

AMN_FORCE_INLINE vec v_select(vec mask, vec a, vec b) {
  return _mm256_blendv_epi8(b, a, mask);
}

AMN_FORCE_INLINE vec v_even_odd_u8(vec a, vec b) {
  return _mm256_blendv_epi8(a, b, _mm256_set1_epi16((short)0xff00));
}

AMN_FORCE_INLINE vec_f32 v_lookup16_f32(vec_f32 low, vec_f32 high, vec index) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                          _mm256_permutevar8x32_ps(high, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

AMN_FORCE_INLINE vec v_load_some_u32(const uint8_t *p, int n) {
  const vec wanted =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_maskload_epi32((const int *)p, wanted);
}
