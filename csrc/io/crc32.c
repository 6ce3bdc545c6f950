/* CRC-32, as ZIP has it, of bytes that are in cache: on x86-64 by multiplication without carries,
 * on aarch64 by the instructions that it has for it.
 *
 * A CRC is what remains of the bytes, taken as a polynomial, after a division. Replacing 128 bits
 * by what has the same remainder further on takes two multiplications, so that bytes of any number
 * fold to 128 bits, whose CRC any other code may compute: four sums side by side, or each would
 * wait for the one before. (V. Gopal et al., "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ Instruction", Intel, 2009.) */
#include "amn_cpu.h"
#include "reads.h"

#if !defined(AMN_ARCH_AARCH64)
/* By four bits at a time; entries are what the polynomial makes of them. */
static uint32_t by_nibbles(uint32_t crc, const uint8_t *src, size_t n) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                     0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                     0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  for (size_t i = 0; i < n; i++) {
    crc ^= src[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return crc;
}
#endif

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h> /* before the region, or its functions would get a second target */

#define LANES 4
#define LANE 16 /* bytes of a sum */

/* x^(d + 32) and x^(d - 32) modulo the polynomial, bits reversed and shifted up by one, for a
 * distance of d bits. */
#define OVER_1024_BITS 0x1e88ef372, 0x14a7fe880
#define OVER_512_BITS 0x154442bd4, 0x1c6e41596
#define OVER_128_BITS 0x1751997d0, 0x0ccaa009e

AMN_TARGET_BEGIN(AMN_CLMUL)

static inline __m128i load(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

static inline __m128i factors(int64_t low, int64_t high) {
  return _mm_set_epi64x(high, low);
}

/* `next` with `sum` carried over to its place. */
static inline __m128i fold(__m128i sum, __m128i over, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, over, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, over, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* The CRC of sums that lie side by side and of what follows them, as it is before its last bits are
 * inverted. */
static uint32_t finish(const __m128i *sums, int n_sums, const uint8_t *src, size_t n) {
  const __m128i over = factors(OVER_128_BITS);
  uint8_t folded[LANE];
  __m128i sum = sums[0];
  for (int i = 1; i < n_sums; i++) sum = fold(sum, over, sums[i]);
  for (; n >= LANE; n -= LANE, src += LANE) sum = fold(sum, over, load(src));
  _mm_storeu_si128((__m128i *)folded, sum);
  return by_nibbles(by_nibbles(0, folded, LANE), src, n);
}

static uint32_t by_128_bits(uint32_t crc, const uint8_t *src, size_t n) {
  const size_t step = LANES * LANE;
  if (n < step) return by_nibbles(crc, src, n);
  const __m128i over = factors(OVER_512_BITS);
  __m128i sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = load(src + i * LANE);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
  for (src += step, n -= step; n >= step; src += step, n -= step)
    for (int i = 0; i < LANES; i++) sums[i] = fold(sums[i], over, load(src + i * LANE));
  return finish(sums, LANES, src, n);
}

AMN_TARGET_END

AMN_TARGET_BEGIN(AMN_CLMUL_256)

static inline __m256i load_256(const uint8_t *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i fold_256_bits(__m256i sum, __m256i over, __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(sum, over, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(sum, over, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

/* The same with two sums in a register. */
static uint32_t by_256_bits(uint32_t crc, const uint8_t *src, size_t n) {
  const size_t step = 2 * LANES * LANE;
  if (n < step) return by_128_bits(crc, src, n);
  const __m256i over = _mm256_broadcastsi128_si256(factors(OVER_1024_BITS));
  __m256i sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = load_256(src + 2 * i * LANE);
  sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)crc));
  for (src += step, n -= step; n >= step; src += step, n -= step)
    for (int i = 0; i < LANES; i++)
      sums[i] = fold_256_bits(sums[i], over, load_256(src + 2 * i * LANE));
  __m128i halves[2 * LANES];
  for (int i = 0; i < LANES; i++) {
    halves[2 * i] = _mm256_castsi256_si128(sums[i]);
    halves[2 * i + 1] = _mm256_extracti128_si256(sums[i], 1);
  }
  return finish(halves, 2 * LANES, src, n);
}

AMN_TARGET_END

int amn_crc32_widths(void) {
  if (!amn_cpu_has_pclmul()) return 0;
  return amn_cpu_has_vpclmul() ? 256 | 128 : 128;
}

uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src) {
  const size_t n = (size_t)src.n_bytes;
  return ~(bits == 256 ? by_256_bits(~crc, src.data, n) : by_128_bits(~crc, src.data, n));
}

#elif defined(AMN_ARCH_AARCH64)
#if !defined(_MSC_VER)
#include <arm_acle.h>
#endif

AMN_TARGET_BEGIN(AMN_CRC)

/* One after another: 8 bytes in the three cycles that an instruction takes, more than files are
 * read. */
static uint32_t by_64_bits(uint32_t crc, const uint8_t *src, size_t n) {
  for (; n >= 8; n -= 8, src += 8) {
    uint64_t word;
    memcpy(&word, src, sizeof word);
    crc = __crc32d(crc, word);
  }
  for (; n > 0; n--, src++) crc = __crc32b(crc, *src);
  return crc;
}

AMN_TARGET_END

int amn_crc32_widths(void) {
  return amn_cpu_has_crc32() ? 64 : 0;
}

uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src) {
  (void)bits;
  return ~by_64_bits(~crc, src.data, (size_t)src.n_bytes);
}

#else

int amn_crc32_widths(void) {
  return 0;
}

uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src) {
  (void)bits;
  return ~by_nibbles(~crc, src.data, (size_t)src.n_bytes);
}

#endif
