/* The GGUF types of 4-bit floats (E2M1).
 *
 * Canonical: dequantize_row_* of ggml-quants.c, which takes the codes for twice their value and
 * halves the scale instead. */
#include "../blocks.h"
#include "../levels.h"
#include "numeric.h"

static const int8_t twice_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128): E8M0 halved. No code is a NaN. */
static float half_of_e8m0(uint8_t code) {
  return amn_f32_from_bits(code < 2 ? 0x00200000u << code : (uint32_t)(code - 1) << 23);
}

/* UE4M3 halved: E4M3 without its sign bit, which counts only in that 0x80 is not 0 but a subnormal
 * of mantissa 0; the NaN 0x7f is 0, and 0xff is 480. */
static float half_of_ue4m3(uint8_t code) {
  if (code == 0x7f) return 0.0f;
  return amn_f8_finite_to_f32(code & 0x7f, 3, 7) * 0.5f;
}

void dequant_mxfp4_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_mxfp4 *block = (const block_mxfp4 *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_of_e8m0(block->e);
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)twice_e2m1[block->qs[i] & 15] * d;
      dst[16 + i] = (float)twice_e2m1[block->qs[i] >> 4] * d;
    }
  }
}

/* Four times 16 elements: 8 bytes with the first eight in their low nibbles. */
void dequant_nvfp4_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_nvfp4 *block = (const block_nvfp4 *)src;
  for (; n > 0; n--, block++)
    for (int group = 0; group < 4; group++, dst += 16) {
      const float d = half_of_ue4m3(block->d[group]);
      const uint8_t *qs = block->qs + 8 * group;
      for (int i = 0; i < 8; i++) {
        dst[i] = (float)twice_e2m1[qs[i] & 15] * d;
        dst[8 + i] = (float)twice_e2m1[qs[i] >> 4] * d;
      }
    }
}
