/* The IQ types: values from a grid or a codebook (iq_grids.h) times the scale of 16 or 32 elements.
 *
 * Canonical: dequantize_row_* of ggml-quants.c. Each formula is evaluated as it is there,
 * in float32, left to right. */
#include "../blocks.h"
#include "../iq_grids.h"
#include "../levels.h"
#include "numeric.h"

static float half_at(const uint8_t *p) {
  return amn_f16_to_f32(amn_load_u16(p));
}

static float sign_at(uint32_t signs, int i) {
  return signs >> i & 1 ? -1.0f : 1.0f;
}

/* scale * level * sign for the eight values of an entry of an IQ2 grid; signs has a bit for each.
 */
static void iq2_row(uint64_t entry, uint32_t signs, float scale, float *dst) {
  for (int i = 0; i < 8; i++)
    dst[i] = scale * (float)amn_iq2_levels[entry >> 8 * i & 3] * sign_at(signs, i);
}

/* The same for two entries of four values, of an IQ3 grid. */
static void iq3_row(uint32_t first, uint32_t second, const int8_t *levels, uint32_t signs,
                    float scale, float *dst) {
  for (int i = 0; i < 4; i++) {
    dst[i] = scale * (float)levels[first >> 8 * i & 7] * sign_at(signs, i);
    dst[4 + i] = scale * (float)levels[second >> 8 * i & 7] * sign_at(signs, 4 + i);
  }
}

/* scale * (level + delta), levels -1, 0 and 1. */
static void iq1_row(uint32_t index, float delta, float scale, float *dst) {
  for (int i = 0; i < 8; i++)
    dst[i] = scale * ((float)amn_iq1_levels[amn_iq1_s_grid[index] >> 8 * i & 3] + delta);
}

static float iq1_delta(int negative) {
  return negative ? -0.125f : 0.125f;
}

static float iq2_scale(float d, uint32_t scale) {
  return d * (0.5f + (float)scale) * 0.25f;
}

/* For 32 elements, 4 bytes of indices and 32 bits: four times 7 bits of signs, and 4 of scale. */
void dequant_iq2_xxs_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq2_xxs *block = (const block_iq2_xxs *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint8_t *indices = block->qs + i / 4 * 8;
      const uint32_t rest = amn_load_u32(indices + 4);
      iq2_row(amn_iq2_xxs_grid[indices[i % 4]], amn_iq_signs[rest >> i % 4 * 7 & 127],
              iq2_scale(d, rest >> 28), dst + 8 * i);
    }
  }
}

/* For 8 elements, 9 bits of index and 7 of signs; for 16, a nibble of scale. */
void dequant_iq2_xs_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq2_xs *block = (const block_iq2_xs *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint32_t q = amn_load_u16(block->qs + 2 * i);
      const uint32_t scale = block->scales[i / 4] >> (i / 2 % 2 * 4) & 15u;
      iq2_row(amn_iq2_xs_grid[q & 511], amn_iq_signs[q >> 9], iq2_scale(d, scale), dst + 8 * i);
    }
  }
}

/* For 8 elements, a byte and, in qh, two bits of index, and a byte of signs after all indices. */
void dequant_iq2_s_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq2_s *block = (const block_iq2_s *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint32_t index = block->qs[i] | (block->qh[i / 4] >> i % 4 * 2 & 3u) << 8;
      const uint32_t scale = block->scales[i / 4] >> (i / 2 % 2 * 4) & 15u;
      iq2_row(amn_iq2_s_grid[index], block->qs[32 + i], iq2_scale(d, scale), dst + 8 * i);
    }
  }
}

/* As IQ2_XXS with two indices for 8 elements, but all indices come first. */
void dequant_iq3_xxs_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq3_xxs *block = (const block_iq3_xxs *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint8_t *indices = block->qs + 2 * i;
      const uint32_t rest = amn_load_u32(block->qs + 64 + i / 4 * 4);
      iq3_row(amn_iq3_xxs_grid[indices[0]], amn_iq3_xxs_grid[indices[1]], amn_iq3_xxs_levels,
              amn_iq_signs[rest >> i % 4 * 7 & 127], d * (0.5f + (float)(rest >> 28)) * 0.5f,
              dst + 8 * i);
    }
  }
}

/* For 4 elements, a byte and, in qh, a bit of index; for 8, a byte of signs; for 32, a nibble of
 * scale. */
void dequant_iq3_s_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq3_s *block = (const block_iq3_s *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint32_t high = (uint32_t)block->qh[i / 4] >> i % 4 * 2;
      const uint32_t first = block->qs[2 * i] | (high & 1) << 8;
      const uint32_t second = block->qs[2 * i + 1] | (high >> 1 & 1) << 8;
      const int scale = block->scales[i / 8] >> (i / 4 % 2 * 4) & 15;
      iq3_row(amn_iq3_s_grid[first], amn_iq3_s_grid[second], amn_iq3_s_levels, block->signs[i],
              d * (float)(1 + 2 * scale), dst + 8 * i);
    }
  }
}

/* For 8 elements, a byte of index; for 32, 16 bits: four times 3 more bits of index, 3 of scale,
 * and the sign of delta. */
void dequant_iq1_s_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq1_s *block = (const block_iq1_s *)src;
  for (; n > 0; n--, block++, dst += 256) {
    const float d = half_at(block->d);
    for (int i = 0; i < 32; i++) {
      const uint32_t rest = amn_load_u16(block->qh + i / 4 * 2);
      const uint32_t index = block->qs[i] | (rest >> i % 4 * 3 & 7) << 8;
      iq1_row(index, iq1_delta(rest >> 15), d * (float)(2 * (rest >> 12 & 7) + 1), dst + 8 * i);
    }
  }
}

/* For 8 elements, a byte of index and a nibble: 3 more bits of it, and the sign of delta. For 16, 3
 * bits of scale: four of them in each 16 bits of scales, above them 4 bits of d. */
void dequant_iq1_m_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq1_m *block = (const block_iq1_m *)src;
  for (; n > 0; n--, block++, dst += 256) {
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) half |= (uint32_t)block->scales[2 * i + 1] >> 4 << 4 * i;
    const float d = amn_f16_to_f32((uint16_t)half);
    for (int i = 0; i < 32; i++) {
      const uint32_t high = block->qh[i / 2] >> (i % 2 * 4) & 15u;
      const uint32_t index = block->qs[i] | (high & 7) << 8;
      const int scale = amn_load_u16(block->scales + i / 8 * 2) >> (i / 2 % 4 * 3) & 7;
      iq1_row(index, iq1_delta(high >> 3), d * (float)(2 * scale + 1), dst + 8 * i);
    }
  }
}

/* d * level; the lower nibbles hold the first 16 elements. */
void dequant_iq4_nl_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq4_nl *block = (const block_iq4_nl *)src;
  for (; n > 0; n--, block++, dst += 32) {
    const float d = half_at(block->d);
    for (int i = 0; i < 16; i++) {
      dst[i] = d * (float)amn_iq4_levels[block->qs[i] & 15];
      dst[16 + i] = d * (float)amn_iq4_levels[block->qs[i] >> 4];
    }
  }
}

/* (d * (scale - 32)) * level; scales of 6 bits for 32 elements, which lie as in IQ4_NL. */
void dequant_iq4_xs_scalar(const uint8_t *src, float *dst, size_t n) {
  const block_iq4_xs *block = (const block_iq4_xs *)src;
  for (; n > 0; n--, block++) {
    const float d = half_at(block->d);
    for (int i = 0; i < 8; i++, dst += 32) {
      const int low = block->scales_l[i / 2] >> (i % 2 * 4) & 15;
      const int high = amn_load_u16(block->scales_h) >> 2 * i & 3;
      const float scale = d * (float)((low | high << 4) - 32);
      for (int k = 0; k < 16; k++) {
        dst[k] = scale * (float)amn_iq4_levels[block->qs[16 * i + k] & 15];
        dst[16 + k] = scale * (float)amn_iq4_levels[block->qs[16 * i + k] >> 4];
      }
    }
  }
}
