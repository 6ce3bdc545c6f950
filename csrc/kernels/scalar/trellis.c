/* EXL3: a code has a few bits of a stream, and the 16 that end with them are its state.
 *
 * Canonical: exllamav3's exl3_dq.cuh, codebook.cuh, reconstruct.cu, and had_ff_r_128_inner of its
 * hadamard_inner.cuh. */
#include "../levels.h"
#include "numeric.h"

/* What two half floats of a word are together, as a half float; all of them are normal. */
static float sum_of_halves(uint32_t word) {
  word = (word & 0x8fff8fffu) ^ 0x3b603b60u;
  const float low = amn_f16_to_f32((uint16_t)word), high = amn_f16_to_f32((uint16_t)(word >> 16));
  return amn_f16_to_f32(amn_f32_to_f16(amn_f32_bits(low + high)));
}

static float value_of_exl3_3inst(uint32_t state) {
  return sum_of_halves(state * 89226354u + 64248484u);
}

static float value_of_exl3_mcg(uint32_t state) {
  return sum_of_halves(state * 0xcbac1fedu);
}

/* The product and the sum are exact in float32, so that they round once, as a fused one does. */
static float value_of_exl3_mul1(uint32_t state) {
  const uint32_t word = state * 0x83dcd12du;
  const uint32_t sum = (word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24);
  const float scale = amn_f16_to_f32(0x1eee), bias = amn_f16_to_f32(0xc931);
  return amn_f16_to_f32(amn_f32_to_f16(amn_f32_bits((float)(1024 + sum) * scale + bias)));
}

/* The state of a code: bits of 32-bit words, the highest first, of which the last word comes before
 * the first. */
static uint32_t state_of(const uint8_t *tile, int bits, int code) {
  const int n_words = AMN_TRELLIS_CODES * bits / 32, end = (code + 1) * bits;
  const int last = (end - 1) / 32, before = (last + n_words - 1) % n_words;
  const uint64_t both =
      (uint64_t)amn_load_u32(tile + 4 * before) << 32 | amn_load_u32(tile + 4 * last);
  return (uint32_t)(both >> ((last + 1) * 32 - end)) & ((1u << AMN_TRELLIS_STATE) - 1);
}

/* The Hadamard transform, in natural order, of numbers that are `step` apart; then the scales. */
static void transform(float *values, size_t step, const float *scales) {
  for (size_t width = 1; width < AMN_TRELLIS_BLOCK; width *= 2)
    for (size_t i = 0; i < AMN_TRELLIS_BLOCK; i++) {
      if (i & width) continue;
      float *a = values + i * step, *b = values + (i + width) * step;
      const float sum = *a + *b, difference = *a - *b;
      *a = sum;
      *b = difference;
    }
  for (size_t i = 0; i < AMN_TRELLIS_BLOCK; i++)
    values[i * step] = values[i * step] * AMN_TRELLIS_NORM * scales[i];
}

typedef float (*value_fn)(uint32_t state);

/* The codes of a tile are in the order in which tensor cores want them: of 8, two and two of four
 * in features, of an out feature and of that 8 further on. */
AMN_FORCE_INLINE void decode_block(value_fn value, const amn_trellis_block *block, float *dst) {
  const size_t tile_bytes = (size_t)block->bits * AMN_TRELLIS_CODES / 8;
  for (size_t down = 0; down < AMN_TRELLIS_BLOCK; down += AMN_TRELLIS_TILE)
    for (size_t across = 0; across < AMN_TRELLIS_BLOCK; across += AMN_TRELLIS_TILE) {
      const uint8_t *tile = block->tiles + down / AMN_TRELLIS_TILE * block->stride +
                            across / AMN_TRELLIS_TILE * tile_bytes;
      for (int code = 0; code < AMN_TRELLIS_CODES; code++) {
        const int thread = code / 8, i = code % 8;
        const int in = thread % 4 * 2 + i % 2 + i % 4 / 2 * 8, out = thread / 4 + i / 4 * 8;
        dst[(across + (size_t)out) * AMN_TRELLIS_BLOCK + down + (size_t)in] =
            value(state_of(tile, block->bits, code));
      }
    }
  for (size_t out = 0; out < AMN_TRELLIS_BLOCK; out++)
    transform(dst + out * AMN_TRELLIS_BLOCK, 1, block->in_scales);
  for (size_t in = 0; in < AMN_TRELLIS_BLOCK; in++)
    transform(dst + in, AMN_TRELLIS_BLOCK, block->out_scales);
}

#define TRELLIS(NAME, name, levels)                                          \
  void trellis_##name##_scalar(const amn_trellis_block *block, float *dst) { \
    decode_block(value_of_##name, block, dst);                               \
  }
#include "../kernels.def"
