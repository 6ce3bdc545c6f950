/* What the GGUF templates share.
 *
 * Every type here is an integer of 8 bits or fewer times a scale, and maybe plus a minimum. So all
 * that a type needs for float32 is to put 32 signed bytes together.
 *
 * For bfloat16 there are two ways. Where a scale has at most 16 outcomes, those are computed,
 * rounded and looked up by nibble, a lane of 16 bytes for each of two blocks. Else the 32 bytes are
 * multiplied and rounded. Neither looks for overflow or NaN: a half float times 128 can only be
 * infinite or NaN if the half is, and blocks with such a scale, or a scale out of other bounds, go
 * by way of float32.
 *
 * Needs: convert.tpl.h, bytes.tpl.h. Defines: no kernel; BLOCK_TYPE, and loops over blocks and
 * pairs of them. */

/* ---- loops ---- */

#define RUN_MAX 64

AMN_FORCE_INLINE int half_is_finite(const uint8_t *p) {
  return (amn_load_u16(p) & 0x7c00) != 0x7c00;
}

typedef int (*plain_fn)(const uint8_t *block);
typedef void (*body_fn)(const uint8_t *src, uint8_t *dst);
typedef void (*pair_fn)(const uint8_t *a, const uint8_t *b, uint8_t *dst_a, uint8_t *dst_b);

/* A type, as a constant in every use: the facts of its row, its kernel to float32, and whether a
 * block may go the direct way. */
typedef struct {
  size_t elements, bytes;
  amn_block_fn dequant;
  plain_fn is_plain;
} block_type;

#define BLOCK_TYPE(name, is_plain) \
  ((block_type){AMN_ELEMENTS_##name, sizeof(block_##name), V_NAME(dequant_##name), is_plain})

static uint64_t block_by_f32(amn_block_fn dequant, size_t elements, const uint8_t *src,
                             uint8_t *dst) {
  _Alignas(64) float values[AMN_BLOCK_ELEMENTS_MAX];
  dequant(src, values, 1);
  return V_NAME(narrow_bf16)((const uint8_t *)values, dst, elements);
}

/* How many blocks from src on may go the direct way, one after another. */
AMN_FORCE_INLINE size_t plain_run(block_type type, const uint8_t *src, size_t n) {
  size_t i = 0;
  while (i < n && type.is_plain(src + i * type.bytes)) i++;
  return i;
}

/* Runs that may go the direct way have a loop of their own: with a call in it, the constants would
 * not stay in registers. */
AMN_FORCE_INLINE uint64_t each_run(block_type type, body_fn body, pair_fn pair, const uint8_t *src,
                                   uint8_t *dst, size_t n) {
  const size_t dst_bytes = 2 * type.elements;
  uint64_t n_overflow = 0;
  while (n > 0) {
    size_t run = plain_run(type, src, n < RUN_MAX ? n : RUN_MAX);
    if (run == 0) {
      n_overflow += block_by_f32(type.dequant, type.elements, src, dst);
      run = 1;
    } else if (pair != NULL) {
      size_t i = 0;
      for (; i + 2 <= run; i += 2)
        pair(src + i * type.bytes, src + (i + 1) * type.bytes, dst + i * dst_bytes,
             dst + (i + 1) * dst_bytes);
      if (i < run) /* a last one alone is its own second */
        pair(src + i * type.bytes, src + i * type.bytes, dst + i * dst_bytes, dst + i * dst_bytes);
    } else {
      for (size_t i = 0; i < run; i++) body(src + i * type.bytes, dst + i * dst_bytes);
    }
    src += run * type.bytes;
    dst += run * dst_bytes;
    n -= run;
  }
  v_end();
  return n_overflow;
}

AMN_FORCE_INLINE uint64_t each_block(block_type type, body_fn body, const uint8_t *src,
                                     uint8_t *dst, size_t n) {
  return each_run(type, body, NULL, src, dst, n);
}

/* Two blocks at a time. */
AMN_FORCE_INLINE uint64_t each_pair(block_type type, pair_fn pair, const uint8_t *src, uint8_t *dst,
                                    size_t n) {
  return each_run(type, NULL, pair, src, dst, n);
}
