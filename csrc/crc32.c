/* CRC-32, as ZIP has it, of bytes that are in cache: by multiplication without carries.
 *
 * A CRC is what remains of the bytes, taken as a polynomial, after a division. Replacing 128 bits
 * by what has the same remainder further on takes two multiplications, so that a block of any
 * length folds to 128 bits, whose CRC any other code may compute: four sums side by side, or each
 * would wait for the one before. (V. Gopal et al., "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ Instruction", Intel, 2009.) */
#include "kernels.h"

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h> /* before the region, or its functions would get a second target */

#define LANES 4
#define LANE_BYTES 16

/* x^(d + 32) and x^(d - 32) modulo the polynomial, bits reversed and shifted up by one, for a
 * distance of d bits: four lanes, and one. */
#define FOUR_LANES 0x154442bd4, 0x1c6e41596
#define ONE_LANE 0x1751997d0, 0x0ccaa009e

AMN_TARGET_CLMUL_BEGIN

static inline __m128i load(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

/* What stands for `sum` at the place of `next`, added to it. */
static inline __m128i fold(__m128i sum, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static inline __m128i factors(int64_t low, int64_t high) {
  return _mm_set_epi64x(high, low);
}

uint64_t amn_crc32_fold(uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  const uint64_t step = LANES * LANE_BYTES;
  if (src.n_bytes < step) return 0;
  const __m128i far = factors(FOUR_LANES), near = factors(ONE_LANE);
  __m128i sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = load(src.data + i * LANE_BYTES);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)~crc));
  uint64_t done = step;
  for (; src.n_bytes - done >= step; done += step)
    for (int i = 0; i < LANES; i++)
      sums[i] = fold(sums[i], far, load(src.data + done + i * LANE_BYTES));
  for (int i = 1; i < LANES; i++) sums[i] = fold(sums[i - 1], near, sums[i]);
  _mm_storeu_si128((__m128i *)folded, sums[LANES - 1]);
  return done;
}

AMN_TARGET_END

#else

uint64_t amn_crc32_fold(uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  (void)crc, (void)src, (void)folded;
  return 0;
}

#endif
