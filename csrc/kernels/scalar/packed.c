/* Integers packed into 32-bit words, as GPTQ, EXL2 and AWQ store them.
 *
 * Canonical: unpack_rows and unpack_cols of GPTQModel's utils/model_dequant.py, planar_unpack_rows
 * of its utils/planar_packing.py; unpack_awq and reverse_awq_order of AutoAWQ's packing_utils.py;
 * shuffle_* and dequant_* of exllamav2's cuda/quant/qdq_*.cuh.
 */
#include "../levels.h"

typedef uint32_t (*value_fn)(const uint8_t *words, size_t stride, size_t index);
typedef uint32_t (*code_fn)(const uint8_t *words, size_t stride, size_t row, size_t col);

/* Value `index` of a row of words that lie `stride` words apart, packed from the lowest bit of the
 * first word on. Values of 3, 5 and 6 bits straddle words. */
AMN_FORCE_INLINE uint32_t gptq_value(const uint8_t *words, size_t stride, size_t index, int bits) {
  const size_t bit = index * (size_t)bits;
  const int shift = (int)(bit % 32);
  const uint8_t *word = words + bit / 32 * stride * 4;
  uint32_t value = amn_load_u32(word) >> shift;
  if (shift + bits > 32) value |= amn_load_u32(word + stride * 4) << (32 - shift);
  return value & ((1u << bits) - 1);
}

static uint32_t gptq2_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 2);
}

static uint32_t gptq3_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 3);
}

static uint32_t gptq4_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 4);
}

static uint32_t gptq8_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 8);
}

static uint32_t exl5_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 5);
}

static uint32_t exl6_value(const uint8_t *words, size_t stride, size_t index) {
  return gptq_value(words, stride, index, 6);
}

/* Eight out features in a word, in nibbles 0, 4, 1, 5, 2, 6, 3, 7 of it. */
static uint32_t awq4_value(const uint8_t *words, size_t stride, size_t index) {
  const size_t in_word = index % 8, nibble = in_word / 2 + in_word % 2 * 4;
  return amn_load_u32(words + index / 8 * stride * 4) >> (4 * nibble) & 15;
}

/* Of every 32 values the lowest bits come first, four or two of each, then two or one of each, then
 * the last: `bits` words in all, of which each holds a part of so many values as it can. */
AMN_FORCE_INLINE uint32_t planar_value(const uint8_t *words, size_t stride, size_t index,
                                       unsigned bits) {
  const size_t at = index % 32;
  const uint8_t *plane = words + index / 32 * bits * stride * 4;
  uint32_t value = 0;
  for (unsigned done = 0, width; done < bits; done += width) {
    width = bits - done >= 4 ? 4 : bits - done >= 2 ? 2 : 1;
    const uint32_t word = amn_load_u32(plane + at * width / 32 * stride * 4);
    value |= (word >> (at * width % 32) & ((1u << width) - 1)) << done;
    plane += width * stride * 4;
  }
  return value;
}

static uint32_t gptqp3_value(const uint8_t *words, size_t stride, size_t index) {
  return planar_value(words, stride, index, 3);
}

static uint32_t gptqp5_value(const uint8_t *words, size_t stride, size_t index) {
  return planar_value(words, stride, index, 5);
}

static uint32_t gptqp6_value(const uint8_t *words, size_t stride, size_t index) {
  return planar_value(words, stride, index, 6);
}

static uint32_t gptqp7_value(const uint8_t *words, size_t stride, size_t index) {
  return planar_value(words, stride, index, 7);
}

/* The code of a row and a column, each layout its own way. */
AMN_FORCE_INLINE uint32_t gptq_code(value_fn value, const uint8_t *words, size_t stride, size_t row,
                                    size_t col) {
  return value(words + row * 4, stride, col);
}

AMN_FORCE_INLINE uint32_t awq_code(value_fn value, const uint8_t *words, size_t stride, size_t row,
                                   size_t col) {
  return value(words + col * stride * 4, 1, row);
}

/* Inlined into each kernel below with what distinguishes it from the others. */
AMN_FORCE_INLINE void packed(code_fn code_of, const amn_tile *tile, const amn_tile_groups *groups,
                             uint8_t *dst, size_t dst_stride) {
  for (size_t r = 0; r < tile->rows; r++)
    for (size_t c = 0; c < tile->cols; c++) {
      const size_t row = tile->row + r, col = tile->col + c, entry = tile->group_of[c] + r;
      const uint32_t code = code_of(tile->words, tile->stride, row, col);
      const float product = ((float)code - groups->zeros[entry]) * groups->scales[entry];
      amn_store_u32(dst + r * dst_stride + 4 * c, amn_f32_bits(product));
    }
}

AMN_FORCE_INLINE void zeros_of(value_fn value, int bits, const uint8_t *words, size_t first,
                               size_t n, int shift, float *zeros) {
  for (size_t r = 0; r < n; r++) {
    const uint32_t stored = value(words, 1, first + r);
    zeros[r] = (float)((stored + (uint32_t)shift) & ((1u << bits) - 1));
  }
}

#define planar_code gptq_code

#define PACKED(layout, NAME, name, bits, to_f32, to_16)                                          \
  static uint32_t name##_code(const uint8_t *words, size_t stride, size_t row, size_t col) {     \
    return layout##_code(name##_value, words, stride, row, col);                                 \
  }                                                                                              \
  void packed_##name##_scalar(const amn_tile *tile, const amn_tile_groups *groups, uint8_t *dst, \
                              size_t dst_stride) {                                               \
    packed(name##_code, tile, groups, dst, dst_stride);                                          \
  }                                                                                              \
  void zeros_##name##_scalar(const uint8_t *words, size_t first, size_t n, int shift,            \
                             float *zeros) {                                                     \
    zeros_of(name##_value, bits, words, first, n, shift, zeros);                                 \
  }
#include "../kernels.def"
