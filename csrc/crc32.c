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

/* x^(d + 32) and x^(d - 32) modulo the polynomial, bits reversed and shifted up by one, for a
 * distance of d bits. */
#define OVER_1024_BITS 0x1e88ef372, 0x14a7fe880
#define OVER_512_BITS 0x154442bd4, 0x1c6e41596
#define OVER_128_BITS 0x1751997d0, 0x0ccaa009e

AMN_TARGET_CLMUL_BEGIN

static inline __m128i load(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

static inline __m128i factors(int64_t low, int64_t high) {
  return _mm_set_epi64x(high, low);
}

/* What stands for `sum` at the place of `next`, added to it. */
static inline __m128i fold(__m128i sum, __m128i over, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, over, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, over, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Fold sums that lie side by side to one. */
static inline void fold_together(const __m128i *sums, int n, uint8_t folded[AMN_CRC32_FOLDED]) {
  __m128i sum = sums[0];
  for (int i = 1; i < n; i++) sum = fold(sum, factors(OVER_128_BITS), sums[i]);
  _mm_storeu_si128((__m128i *)folded, sum);
}

static uint64_t fold_128(uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  const uint64_t lane = 16, step = LANES * lane;
  if (src.n_bytes < step) return 0;
  const __m128i over = factors(OVER_512_BITS);
  __m128i sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = load(src.data + i * lane);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)~crc));
  uint64_t done = step;
  for (; src.n_bytes - done >= step; done += step)
    for (int i = 0; i < LANES; i++) sums[i] = fold(sums[i], over, load(src.data + done + i * lane));
  fold_together(sums, LANES, folded);
  return done;
}

AMN_TARGET_END

AMN_TARGET_CLMUL_256_BEGIN

static inline __m256i load_256(const uint8_t *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i fold_256_bits(__m256i sum, __m256i over, __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(sum, over, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(sum, over, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

/* The same with two sums in a register. */
static uint64_t fold_256(uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  const uint64_t lane = 32, step = LANES * lane;
  if (src.n_bytes < step) return fold_128(crc, src, folded);
  const __m256i over = _mm256_broadcastsi128_si256(factors(OVER_1024_BITS));
  __m256i sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = load_256(src.data + i * lane);
  sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)~crc));
  uint64_t done = step;
  for (; src.n_bytes - done >= step; done += step)
    for (int i = 0; i < LANES; i++)
      sums[i] = fold_256_bits(sums[i], over, load_256(src.data + done + i * lane));
  __m128i halves[2 * LANES];
  for (int i = 0; i < LANES; i++) {
    halves[2 * i] = _mm256_castsi256_si128(sums[i]);
    halves[2 * i + 1] = _mm256_extracti128_si256(sums[i], 1);
  }
  fold_together(halves, 2 * LANES, folded);
  return done;
}

AMN_TARGET_END

uint64_t amn_crc32_fold(int bits, uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  return bits == 256 ? fold_256(crc, src, folded) : fold_128(crc, src, folded);
}

#else

uint64_t amn_crc32_fold(int bits, uint32_t crc, amn_bytes src, uint8_t folded[AMN_CRC32_FOLDED]) {
  (void)bits, (void)crc, (void)src, (void)folded;
  return 0;
}

#endif
