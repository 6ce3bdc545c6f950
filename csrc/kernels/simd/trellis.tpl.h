/* EXL3: 8 codes of a tile at a time, then transforms of 8 columns at a time.
 *
 * Of a column of tiles, values lie [in, out], so that in features are transformed by whole vectors;
 * then they are turned, and out features are. Each number meets its partners in the scalar order.
 *
 * Defines: trellis_*. */

#define TRELLIS_GROUPS (AMN_TRELLIS_CODES / 8) /* of codes */
#define TRELLIS_AHEAD 2                        /* bytes before the stream: the last of it */

/* Where a group's states are: bytes of the stream from its first code on, and shifts. */
typedef struct {
  vec bytes, shifts;
} trellis_states;

AMN_FORCE_INLINE trellis_states trellis_states_of(int bits) {
  uint8_t bytes[32];
  uint32_t shifts[8];
  for (int i = 0; i < 8; i++) {
    const int end = (i + 1) * bits;
    for (int j = 0; j < 4; j++) bytes[4 * i + j] = (uint8_t)(end / 8 + 3 - j);
    shifts[i] = (uint32_t)(16 - end % 8);
  }
  return (trellis_states){v_load(bytes), v_load(shifts)};
}

/* A tile's stream in order of its bits, between the bytes that are before and after it. */
typedef uint8_t trellis_stream[TRELLIS_AHEAD + AMN_TRELLIS_CODES + 16];

AMN_FORCE_INLINE void trellis_load(const uint8_t *tile, int bits, trellis_stream stream) {
  static const uint8_t reversed[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
  const vec order = v_load_both_lanes(reversed);
  for (int i = 0; i < bits; i++)
    v_store(stream + TRELLIS_AHEAD + 32 * i, v_lookup16(v_load(tile + 32 * i), order));
  memcpy(stream, stream + 32 * bits, TRELLIS_AHEAD);
}

typedef vec_f32 (*trellis_value_fn)(vec states);

/* Of a half float that is normal, at the top of a u32: below its sign, 3 bits of zeros come in. */
AMN_FORCE_INLINE vec_f32 trellis_half(vec halves) {
  const vec sign = v_and(halves, v_set_u32(0x80000000));
  const vec rest = v_shr_u32(v_and(halves, v_set_u32(0x7fff0000)), 3);
  return v_f32_from_bits(v_or(sign, v_add_u32(rest, v_set_u32(112u << 23))));
}

AMN_FORCE_INLINE vec_f32 trellis_sum(vec words) {
  words = v_xor(v_and(words, v_set_u32(0x8fff8fff)), v_set_u32(0x3b603b60));
  return v_rounded_to_f16(v_add_f32(trellis_half(v_shl_u32(words, 16)), trellis_half(words)));
}

AMN_FORCE_INLINE vec_f32 trellis_value_exl3_3inst(vec states) {
  return trellis_sum(v_add_u32(v_mul_u32(states, v_set_u32(89226354)), v_set_u32(64248484)));
}

AMN_FORCE_INLINE vec_f32 trellis_value_exl3_mcg(vec states) {
  return trellis_sum(v_mul_u32(states, v_set_u32(0xcbac1fed)));
}

AMN_FORCE_INLINE vec_f32 trellis_value_exl3_mul1(vec states) {
  const vec words = v_mul_u32(states, v_set_u32(0x83dcd12d)), even = v_set_u32(0x00ff00ff);
  const vec pairs = v_add_u32(v_and(words, even), v_and(v_shr_u32(words, 8), even));
  const vec sums = v_add_u32(v_shr_u32(pairs, 16), v_and(pairs, v_set_u32(0xffff)));
  const vec_f32 number = v_f32_from_s32(v_add_u32(sums, v_set_u32(1024)));
  const vec_f32 scale = v_set_f32(0x1.bb8p-8f), bias = v_set_f32(-0x1.4c4p+3f); /* half floats */
  return v_rounded_to_f16(v_add_f32(v_mul_f32(number, scale), bias));
}

/* A tile to the 16 out features, of `strip`, that its in features have. */
AMN_FORCE_INLINE void trellis_tile(trellis_value_fn value, const uint8_t *tile, int bits,
                                   trellis_states where, float *strip) {
  trellis_stream stream;
  trellis_load(tile, bits, stream);
  for (int quarter = 0; quarter < 4; quarter++) {
    vec rows[8];
    for (int i = 0; i < 8; i++) {
      const uint8_t *codes = stream + (quarter + 4 * i) * bits;
      const vec bytes = v_lookup16(v_load_both_lanes(codes), where.bytes);
      const vec states = v_and(v_shr_u32_each(bytes, where.shifts), v_set_u32(0xffff));
      rows[i] = v_bits_f32(value(states));
    }
    v_transpose_u32(rows);
    for (int i = 0; i < 8; i++) {
      const int in = 2 * quarter + i % 2 + i % 4 / 2 * 8;
      v_store(strip + in * AMN_TRELLIS_TILE + i / 4 * 8, rows[i]);
    }
  }
}

/* Of 8 vectors the sums and differences of neighbours, of pairs, and of fours. */
AMN_FORCE_INLINE void trellis_butterflies(vec_f32 v[8]) {
  for (int width = 1; width < 8; width *= 2)
    for (int i = 0; i < 8; i++) {
      if (i & width) continue;
      const vec_f32 a = v[i], b = v[i + width];
      v[i] = v_add_f32(a, b);
      v[i + width] = v_sub_f32(a, b);
    }
}

/* The transform of 8 columns, whose rows are `stride` numbers apart, in place; then the scales. */
AMN_FORCE_INLINE void trellis_transform(float *values, size_t stride, const float *scales) {
  float turned[AMN_TRELLIS_BLOCK * 8];
  vec_f32 v[8];
  for (size_t i = 0; i < AMN_TRELLIS_BLOCK; i += 8) {
    for (size_t j = 0; j < 8; j++) v[j] = v_load_f32(values + (i + j) * stride);
    trellis_butterflies(v);
    for (size_t j = 0; j < 8; j++) v_store_f32(turned + (i + j) * 8, v[j]);
  }
  for (size_t half = 0; half < AMN_TRELLIS_BLOCK; half += 64)
    for (size_t i = half; i < half + 8; i++) {
      for (size_t j = 0; j < 8; j++) v[j] = v_load_f32(turned + (i + 8 * j) * 8);
      trellis_butterflies(v);
      for (size_t j = 0; j < 8; j++) v_store_f32(turned + (i + 8 * j) * 8, v[j]);
    }
  const vec_f32 norm = v_set_f32(AMN_TRELLIS_NORM);
  for (size_t i = 0; i < 64; i++) {
    const vec_f32 a = v_load_f32(turned + i * 8), b = v_load_f32(turned + (i + 64) * 8);
    const vec_f32 sum = v_mul_f32(v_add_f32(a, b), norm);
    const vec_f32 difference = v_mul_f32(v_sub_f32(a, b), norm);
    v_store_f32(values + i * stride, v_mul_f32(sum, v_set_f32(scales[i])));
    v_store_f32(values + (i + 64) * stride, v_mul_f32(difference, v_set_f32(scales[i + 64])));
  }
}

AMN_FORCE_INLINE void trellis(trellis_value_fn value, const amn_trellis_block *block, float *dst) {
  const trellis_states where = trellis_states_of(block->bits);
  const size_t tile_bytes = (size_t)block->bits * AMN_TRELLIS_CODES / 8;
  float strip[AMN_TRELLIS_BLOCK * AMN_TRELLIS_TILE];
  for (size_t out = 0; out < AMN_TRELLIS_BLOCK; out += AMN_TRELLIS_TILE) {
    const uint8_t *tile = block->tiles + out / AMN_TRELLIS_TILE * tile_bytes;
    for (size_t in = 0; in < AMN_TRELLIS_BLOCK; in += AMN_TRELLIS_TILE, tile += block->stride)
      trellis_tile(value, tile, block->bits, where, strip + in * AMN_TRELLIS_TILE);
    for (size_t part = 0; part < AMN_TRELLIS_TILE; part += 8) {
      trellis_transform(strip + part, AMN_TRELLIS_TILE, block->in_scales);
      for (size_t in = 0; in < AMN_TRELLIS_BLOCK; in += 8) {
        vec rows[8];
        for (size_t i = 0; i < 8; i++) rows[i] = v_load(strip + (in + i) * AMN_TRELLIS_TILE + part);
        v_transpose_u32(rows);
        for (size_t i = 0; i < 8; i++)
          v_store(dst + (out + part + i) * AMN_TRELLIS_BLOCK + in, rows[i]);
      }
    }
  }
  for (size_t in = 0; in < AMN_TRELLIS_BLOCK; in += 8)
    trellis_transform(dst + in, AMN_TRELLIS_BLOCK, block->out_scales);
  v_end();
}

#define TRELLIS(NAME, name, levels)                                                \
  static void V_NAME(trellis_##name)(const amn_trellis_block *block, float *dst) { \
    trellis(trellis_value_##name, block, dst);                                     \
  }
#include "../kernels.def"
