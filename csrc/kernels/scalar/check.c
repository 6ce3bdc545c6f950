/* What words say of a tensor, one after the other. */
#include "../levels.h"

AMN_FORCE_INLINE uint32_t word_at(const uint8_t *src, int n_bytes) {
  return n_bytes == 1 ? *src : n_bytes == 2 ? amn_load_u16(src) : amn_load_u32(src);
}

static void count(uint64_t at, uint64_t *n, uint64_t *first) {
  if ((*n)++ == 0) *first = at;
}

void check_scalar(const uint8_t *src, size_t n, const amn_words *words, amn_check *found) {
  const uint32_t magnitude_bits = UINT32_MAX >> (33 - 8 * words->n_bytes);
  for (size_t i = 0; i < n; i++, src += words->n_bytes, found->n++) {
    const uint32_t word = word_at(src, words->n_bytes), magnitude = word & magnitude_bits;
    found->differs |= word != found->first;
    if (magnitude >= words->nan || word == words->other_nan)
      count(found->n, &found->n_nan, &found->first_nan);
    else if (magnitude >= words->infinity)
      count(found->n, &found->n_infinite, &found->first_infinite);
    else if (magnitude > found->largest)
      found->largest = magnitude;
    else
      found->n_zero += magnitude == 0;
  }
}
