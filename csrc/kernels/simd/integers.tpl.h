/* Integers of a row, less a zero point, times a scale: 32 at a time, and what is left padded. */

typedef vec (*integers_load_fn)(const uint8_t *src);

/* 32 codes as bytes, stored plus `offset`. */
AMN_FORCE_INLINE vec integers_bytes(const uint8_t *src) {
  return v_load(src);
}

AMN_FORCE_INLINE void integers_store(integers_load_fn load, int offset, vec_f32 zero, vec_f32 scale,
                                     const uint8_t *src, float *dst) {
  const vec codes = v_sub_u8(load(src), v_set_u8((uint8_t)offset));
  for (int i = 0; i < 4; i++) {
    const vec_f32 values = v_f32_from_s32(v_s32_from_s8(codes, i));
    v_store_f32(dst + 8 * i, v_mul_f32(v_sub_f32(values, zero), scale));
  }
}

AMN_FORCE_INLINE void integers_run(integers_load_fn load, int bits, int offset, const uint8_t *src,
                                   float *dst, size_t n, float zero, float scale) {
  const vec_f32 zeros = v_set_f32(zero), scales = v_set_f32(scale);
  const size_t rest = n % 32, whole = n - rest, bytes = whole * (size_t)bits / 8;
  for (size_t i = 0; i < whole; i += 32)
    integers_store(load, offset, zeros, scales, src + i * (size_t)bits / 8, dst + i);
  if (rest) {
    uint8_t codes[32] = {0};
    float values[32];
    memcpy(codes, src + bytes, (rest * (size_t)bits + 7) / 8);
    integers_store(load, offset, zeros, scales, codes, values);
    memcpy(dst + whole, values, rest * sizeof(float));
  }
}

/* Blocks that do not begin with a byte are left to the scalar kernel. */
#define INTEGERS_KERNEL(name, load, bits, offset)                                            \
  static void V_NAME(integers_##name)(const uint8_t *src, float *dst, size_t n,              \
                                      const float *zeros, const float *scales, size_t first, \
                                      size_t block) {                                        \
    if ((first % (8 / bits) && first < n) || block % (8 / bits)) {                           \
      integers_##name##_scalar(src, dst, n, zeros, scales, first, block);                    \
      return;                                                                                \
    }                                                                                        \
    for (size_t run = first; n > 0; run = block) {                                           \
      if (run > n) run = n;                                                                  \
      integers_run(load, bits, offset, src, dst, run, *zeros++, *scales++);                  \
      src += run * bits / 8;                                                                 \
      dst += run;                                                                            \
      n -= run;                                                                              \
    }                                                                                        \
    v_end();                                                                                 \
  }

INTEGERS_KERNEL(int8, integers_bytes, 8, 0)
INTEGERS_KERNEL(packed4, v_load_nibbles_as_u8_x32, 4, 8)
INTEGERS_KERNEL(packed8, integers_bytes, 8, 128)

#undef INTEGERS_KERNEL
