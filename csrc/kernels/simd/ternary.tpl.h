/* The GGUF types of one or two bits and a scale.
 *
 * Needs: blocks.tpl.h, legacy.tpl.h. Defines: dequant_* of TQ1_0, TQ2_0, Q1_0, Q2_0. */

#define TQ1_0_TYPE BLOCK_TYPE(tq1_0, tq1_0_is_plain)
#define TQ2_0_TYPE BLOCK_TYPE(tq2_0, tq2_0_is_plain)
#define Q1_0_TYPE BLOCK_TYPE(q1_0, half_is_finite)
#define Q2_0_TYPE BLOCK_TYPE(q2_0, half_is_finite)

AMN_FORCE_INLINE int tq1_0_is_plain(const uint8_t *src) {
  return half_is_finite(((const block_tq1_0 *)src)->d);
}

AMN_FORCE_INLINE int tq2_0_is_plain(const uint8_t *src) {
  return half_is_finite(((const block_tq2_0 *)src)->d);
}

/* The outcomes -d, 0 * d, d, 2 * d for indices 0 to 3, and for 0, 4, 8 and 12. */
AMN_FORCE_INLINE nibble_table ternary_table(const uint8_t *d) {
  static const float even[8] = {-1, 1, 0, 0, 1, 0, 2, 0}, odd[8] = {0, 2};
  const vec_f32 scale = v_load_f16_all(d);
  return table_of_words(
      bf16_words(v_mul_f32(v_load_f32(even), scale), v_mul_f32(v_load_f32(odd), scale)));
}

/* ---- TQ1_0: base-3 digits ---- */

/* The first digit of each byte: 3 * byte >> 8. */
AMN_FORCE_INLINE vec first_digit(vec bytes) {
  const vec is_signed = v_xor(bytes, v_set_u8(0x80));
  const vec one = v_greater_s8(is_signed, v_set_u8(85 ^ 0x80));
  const vec two = v_greater_s8(is_signed, v_set_u8(170 ^ 0x80));
  return v_sub_u8(v_sub_u8(v_zero(), one), two);
}

AMN_FORCE_INLINE vec times_3(vec bytes) {
  return v_add_u8(v_add_u8(bytes, bytes), bytes);
}

/* Digits n and n + 1 of the 16 bytes at p are those in front of its lanes, n growing by 2 with each
 * times_9. */
AMN_FORCE_INLINE vec tq1_0_lanes(const uint8_t *p) {
  const vec bytes = v_load_both_lanes(p);
  return v_select_lanes(bytes, times_3(bytes));
}

/* The 4 bytes at p times 1, 3, 9 and 27, in both lanes. */
AMN_FORCE_INLINE vec tq1_0_rest(const uint8_t *p) {
  const vec bytes = v_load_u32_all(p), by_3 = times_3(bytes);
  const vec by_9 = times_3(by_3), by_27 = times_3(by_9);
  const vec first = v_zip_low_u32(bytes, by_3), second = v_zip_low_u32(by_9, by_27);
  return v_zip_low_u64(first, second);
}

/* Block i of 8 with 32 digits, in order: 5 of the first 32 bytes, 2 and 2 of the next 16, then the
 * fifth of those and four of the last 4. */
typedef struct {
  vec first, next, last;
} tq1_0_state;

AMN_FORCE_INLINE tq1_0_state tq1_0_start(const block_tq1_0 *block) {
  tq1_0_state state;
  state.first = v_load(block->qs);
  state.next = tq1_0_lanes(block->qs + 32);
  state.last = tq1_0_rest(block->qh);
  return state;
}

AMN_FORCE_INLINE vec tq1_0_digits(tq1_0_state *state, int i) {
  vec bytes;
  if (i < 5) {
    bytes = state->first;
    state->first = times_3(bytes);
  } else if (i < 7) {
    bytes = state->next;
    state->next = times_3(times_3(bytes));
  } else {
    bytes = v_select_lanes(state->next, state->last);
  }
  return first_digit(bytes);
}

static void V_NAME(dequant_tq1_0)(const uint8_t *src, float *dst, size_t n) {
  const block_tq1_0 *block = (const block_tq1_0 *)src;
  for (; n > 0; n--, block++) {
    tq1_0_state state = tq1_0_start(block);
    const vec_f32 d = v_load_f16_all(block->d);
    for (int i = 0; i < 8; i++, dst += 32)
      bytes_to_f32(v_sub_u8(tq1_0_digits(&state, i), v_set_u8(1)), d, dst);
  }
  v_end();
}

AMN_FORCE_INLINE void tq1_0_body(const uint8_t *src, uint8_t *dst) {
  const block_tq1_0 *block = (const block_tq1_0 *)src;
  const nibble_table table = ternary_table(block->d);
  tq1_0_state state = tq1_0_start(block);
  for (int i = 0; i < 8; i++, dst += 64) store_nibbles(table, tq1_0_digits(&state, i), dst);
}

static uint64_t V_NAME(dequant_bf16_tq1_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(TQ1_0_TYPE, tq1_0_body, src, dst, n);
}

/* ---- TQ2_0: 2 bits, 32 bytes for 128 elements ---- */

static void V_NAME(dequant_tq2_0)(const uint8_t *src, float *dst, size_t n) {
  const block_tq2_0 *block = (const block_tq2_0 *)src;
  for (; n > 0; n--, block++) {
    const vec_f32 d = v_load_f16_all(block->d);
    for (int half = 0; half < 2; half++) {
      const vec bytes = v_load(block->qs + 32 * half);
      for (int i = 0; i < 4; i++, dst += 32) {
        const vec q = v_and(v_shr_u16(bytes, 2 * i), v_set_u8(3));
        bytes_to_f32(v_sub_u8(q, v_set_u8(1)), d, dst);
      }
    }
  }
  v_end();
}

AMN_FORCE_INLINE void tq2_0_body(const uint8_t *src, uint8_t *dst) {
  const block_tq2_0 *block = (const block_tq2_0 *)src;
  const nibble_table table = ternary_table(block->d);
  for (int half = 0; half < 2; half++) {
    const vec bytes = v_load(block->qs + 32 * half);
    for (int i = 0; i < 4; i++, dst += 64)
      store_nibbles(table, v_and(v_shr_u16(bytes, 2 * i), v_set_u8(3)), dst);
  }
}

static uint64_t V_NAME(dequant_bf16_tq2_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(TQ2_0_TYPE, tq2_0_body, src, dst, n);
}

/* ---- Q1_0: a bit ---- */

static void V_NAME(dequant_q1_0)(const uint8_t *src, float *dst, size_t n) {
  const block_q1_0 *block = (const block_q1_0 *)src;
  for (; n > 0; n--, block++) {
    const vec_f32 d = v_load_f16_all(block->d);
    for (int i = 0; i < 4; i++, dst += 32) {
      const vec minus_one = v_xor(bits_to_bytes(block->qs + 4 * i), v_set_u8(255));
      bytes_to_f32(v_or(minus_one, v_set_u8(1)), d, dst);
    }
  }
  v_end();
}

/* A multiplication brings each bit to its word's sign. */
AMN_FORCE_INLINE void q1_0_body(const uint8_t *src, uint8_t *dst) {
  static const uint16_t to_sign[16] = {32768, 16384, 8192, 4096, 2048, 1024, 512, 256,
                                       128,   64,    32,   16,   8,    4,    2,   1};
  const block_q1_0 *block = (const block_q1_0 *)src;
  const vec_f32 d = v_load_f16_all(block->d);
  const vec minus_d = v_xor(bf16_words(d, d), v_set_u16(0x8000));
  for (int i = 0; i < 8; i++) {
    const vec bits = v_mul_u16(v_set_u16(amn_load_u16(block->qs + 2 * i)), v_load(to_sign));
    v_store(dst + 32 * i, v_xor(minus_d, v_and(bits, v_set_u16(0x8000))));
  }
}

static uint64_t V_NAME(dequant_bf16_q1_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q1_0_TYPE, q1_0_body, src, dst, n);
}

/* ---- Q2_0: 2 bits, a byte for 4 elements ---- */

/* 32 elements of 8 bytes, the first four in bits 0-1, 2-3, 4-5 and 6-7 of the first one: each
 * byte's nibbles twice, and of those the lower or the upper two bits. */
AMN_FORCE_INLINE vec q2_0_indices(vec nibbles_twice) {
  return v_and(nibbles_twice, v_set_u16(0x0c03));
}

static void V_NAME(dequant_q2_0)(const uint8_t *src, float *dst, size_t n) {
  static const uint8_t value[16] = {255, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0};
  const block_q2_0 *block = (const block_q2_0 *)src;
  const vec values = v_load_both_lanes(value);
  for (; n > 0; n--, block++, dst += 64) {
    const vec_f32 d = v_load_f16_all(block->d);
    for (int i = 0; i < 2; i++)
      bytes_to_f32(v_lookup16(values, q2_0_indices(v_nibbles_twice(block->qs + 8 * i))), d,
                   dst + 32 * i);
  }
  v_end();
}

AMN_FORCE_INLINE void q2_0_body(const uint8_t *src, uint8_t *dst) {
  const block_q2_0 *block = (const block_q2_0 *)src;
  const nibble_table table = ternary_table(block->d);
  for (int i = 0; i < 2; i++, dst += 64)
    store_nibbles(table, q2_0_indices(v_nibbles_twice(block->qs + 8 * i)), dst);
}

static uint64_t V_NAME(dequant_bf16_q2_0)(const uint8_t *src, uint8_t *dst, size_t n) {
  return each_block(Q2_0_TYPE, q2_0_body, src, dst, n);
}
