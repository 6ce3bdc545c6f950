/* The way to the GGUF types of 4-bit floats: E2M1 with ties down and no negative zero.
 *
 * Needs: encode_blocks.tpl.h, e2m1.tpl.h. Defines: encode_* of MXFP4 and NVFP4. */

#define FP4_KIND ((e2m1_kind){AMN_SOURCE_F32, E2M1_TO_FIRST, 0, 0})

/* 8 codes, in u32. */
AMN_FORCE_INLINE vec fp4_codes(vec_f32 scaled) {
  const vec codes = e2m1_code_of(FP4_KIND, scaled).codes;
  return v_or(codes, e2m1_sign(FP4_KIND, v_set_f32(0), scaled, codes));
}

/* Whether any magnitude is above 0, but not above that. */
AMN_FORCE_INLINE int any_below(vec_f32 magnitudes, float bound) {
  const vec is_above_0 = v_greater_s32(v_bits_f32(magnitudes), v_zero());
  return v_any(v_and(is_above_0, v_greater_f32(v_set_f32(bound), magnitudes)));
}

/* ---- MXFP4 ---- */

/* The exponent fields of floor(log2) of normal magnitudes. The logarithm of the last numbers below
 * 2^k rounds up to k: of 2^i * ln(2) of them, if i bits follow the highest one of the logarithm's
 * whole part. So many more carry into the exponent. */
AMN_FORCE_INLINE vec log2_fields(vec_f32 magnitudes) {
  const vec bits = v_bits_f32(magnitudes);
  const vec floor = v_add_u32(v_shr_u32(bits, 23), v_set_u32(0u - 127u));
  const vec whole = v_xor(floor, v_greater_s32(v_zero(), floor)); /* of -x it is x - 1 */
  const vec power = v_and(v_bits_f32(v_f32_from_s32(whole)), v_set_u32(0x7f800000));
  const vec last = v_s32_cut_f32(v_mul_f32(v_f32_from_bits(power), v_set_f32(0.6931472f)));
  return v_shr_u32(v_add_u32(bits, last), 23);
}

AMN_FORCE_INLINE vec mxfp4_codes(const float *x, vec_f32 by) {
  vec codes[4];
  for (int i = 0; i < 4; i++) codes[i] = fp4_codes(v_mul_f32(v_load_f32(x + 8 * i), by));
  return v_pack_s32(codes[0], codes[1], codes[2], codes[3]);
}

static int V_NAME(group_mxfp4)(const float *src, uint8_t *dst) {
  block_mxfp4 *block = (block_mxfp4 *)dst;
  const vec_f32 amax = fold_blocks(larger_magnitude, src, 32);
  if (any_below(amax, 0x1p-120f)) return 0; /* near where exponents wrap around */
  const vec fields = log2_fields(amax);
  const vec is_zero = v_equal_u32(v_bits_f32(amax), v_zero());
  const vec e = v_and_not(is_zero, v_add_u32(fields, v_set_u32(0u - 2u)));
  const vec by = v_shl_u32(v_sub_u32(v_set_u32(254), v_max_s32(e, v_set_u32(1))), 23);
  uint32_t exponents[LANES];
  float inverses[LANES];
  v_store(exponents, e);
  v_store_f32(inverses, v_f32_from_bits(by));
  for (int i = 0; i < LANES; i += 2, src += 64) {
    block[i].e = (uint8_t)exponents[i];
    block[i + 1].e = (uint8_t)exponents[i + 1];
    store_nibbles_of(mxfp4_codes(src, v_set_f32(inverses[i])),
                     mxfp4_codes(src + 32, v_set_f32(inverses[i + 1])), block[i].qs,
                     block[i + 1].qs);
  }
  return 1;
}

V_ENCODER void V_NAME(encode_mxfp4)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(mxfp4, LANES), src, dst, rows * cols / 32);
}

/* ---- NVFP4 ---- */

/* UE4M3 of numbers not below 0: nearest, ties up; 7 for subnormal ones above that, 0x7e for normal
 * ones that become 256. */
AMN_FORCE_INLINE vec ue4m3_codes(vec_f32 a) {
  const vec_f32 units = v_add_f32(v_mul_f32(a, v_set_f32(512.0f)), v_set_f32(0.5f));
  const vec_f32 few = v_min_f32(units, v_set_f32(7.0f));
  const vec rounded = v_shr_u32(v_add_u32(v_bits_f32(a), v_set_u32(0x80000)), 20);
  const vec normal = v_sub_u32(rounded, v_set_u32(120u << 3));
  const vec codes = v_select(v_greater_s32(v_set_u32(0x78), normal), normal, v_set_u32(0x7e));
  return v_select(v_greater_f32(v_set_f32(0x1p-6f), a), v_s32_cut_f32(few), codes);
}

/* What the codes stand for; infinity for 0, by which all quotients are 0. */
AMN_FORCE_INLINE vec_f32 ue4m3_divisors(vec codes) {
  const vec normal = v_add_u32(v_shl_u32(codes, 20), v_set_u32(120u << 23));
  const vec few = v_bits_f32(v_mul_f32(v_f32_from_s32(codes), v_set_f32(0x1p-9f)));
  const vec values = v_select(v_greater_s32(v_set_u32(8), codes), few, normal);
  const vec is_zero = v_equal_u32(codes, v_zero());
  return v_f32_from_bits(v_select(is_zero, v_set_u32(0x7f800000), values));
}

/* 16 elements as 8 bytes, in u32: the first 8 in the low nibbles. No midpoint times d lies between
 * a float32 and the quotient that rounds to the midpoint, so that quotients tell. */
AMN_FORCE_INLINE vec nvfp4_bytes(const float *x, float d) {
  const vec low = fp4_codes(v_div_f32(v_load_f32(x), v_set_f32(d)));
  const vec high = fp4_codes(v_div_f32(v_load_f32(x + 8), v_set_f32(d)));
  return v_or(low, v_shl_u32(high, 4));
}

/* Two blocks: eight times 16 elements. */
static int V_NAME(group_nvfp4)(const float *src, uint8_t *dst) {
  block_nvfp4 *block = (block_nvfp4 *)dst;
  const vec_f32 amax = fold_blocks(larger_magnitude, src, 16);
  if (v_any(v_greater_f32(amax, v_set_f32(0x1p24f)))) return 0; /* as far from several numbers */
  const vec codes = ue4m3_codes(v_div_f32(amax, v_set_f32(6.0f)));
  uint32_t scales[LANES];
  float d[LANES];
  v_store(scales, codes);
  v_store_f32(d, ue4m3_divisors(codes));
  for (int i = 0; i < 2; i++, src += 64) {
    vec bytes[4];
    for (int k = 0; k < 4; k++) {
      block[i].d[k] = (uint8_t)scales[4 * i + k];
      bytes[k] = nvfp4_bytes(src + 16 * k, d[4 * i + k]);
    }
    v_store(block[i].qs,
            v_pack_u16(v_pack_u32(bytes[0], bytes[1]), v_pack_u32(bytes[2], bytes[3])));
  }
  return 1;
}

V_ENCODER void V_NAME(encode_nvfp4)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                                    const float *weights) {
  (void)weights;
  encode_groups(ENCODED_TYPE(nvfp4, 2), src, dst, rows * cols / 64);
}
