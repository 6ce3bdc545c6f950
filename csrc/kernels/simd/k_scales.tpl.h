/* The scales and mins of 6 bits of Q4_K and Q5_K.
 *
 * Needs: wide.h alone. Defines: no kernel; k_scales. */

/* Sub-block i times scale[i], less min[i]. */
typedef struct {
  float scale[16], min[16];
} k_scales;

/* The 12 bytes of scales, d and dmin, which stand alike in both. */
AMN_FORCE_INLINE void k_scales_8(const uint8_t *src, float unit, k_scales *k) {
  const uint32_t low_six = 0x3f3f3f3f, nibbles = 0x0f0f0f0f, pairs = 0x30303030;
  const uint32_t a = amn_load_u32(src + 4), b = amn_load_u32(src + 8), c = amn_load_u32(src + 12);
  const uint32_t scales[2] = {a & low_six, (c & nibbles) | (a >> 2 & pairs)};
  const uint32_t mins[2] = {b & low_six, (c >> 4 & nibbles) | (b >> 2 & pairs)};
  const vec_f32 d = v_mul_f32(v_load_f16_all(src), v_set_f32(unit));
  const vec_f32 minus_dmin = v_mul_f32(v_load_f16_all(src + 2), v_set_f32(-1.0f));
  const vec_f32 scale = v_f32_from_s32(v_load_u8_as_u32((const uint8_t *)scales));
  const vec_f32 min = v_f32_from_s32(v_load_u8_as_u32((const uint8_t *)mins));
  v_store_f32(k->scale, v_mul_f32(d, scale));
  v_store_f32(k->min, v_mul_f32(minus_dmin, min));
}
