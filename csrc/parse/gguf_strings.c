/* GGUF's strings: a length of 4 or 8 bytes, then that many bytes, one string after the other.
 *
 * A vocabulary has half a million of them, so they are stepped over here and not in Python. */
#include "parse.h"

#include <string.h>

static uint64_t length_at(const uint8_t *p, int length_bytes, int big_endian) {
  uint64_t length = 0;
  for (int i = 0; i < length_bytes; i++)
    length |= (uint64_t)p[i] << (8 * (big_endian ? length_bytes - 1 - i : i));
  return length;
}

/* The usual case, which compilers turn into one load. */
static uint64_t length_at_le64(const uint8_t *p) {
  return length_at(p, 8, 0);
}

int amn_string_at(amn_bytes src, uint64_t pos, int length_bytes, int big_endian,
                  amn_bytes *string) {
  if (pos > src.n_bytes || src.n_bytes - pos < (uint64_t)length_bytes) return 0;
  const uint8_t *p = src.data + pos;
  string->n_bytes =
      length_bytes == 8 && !big_endian ? length_at_le64(p) : length_at(p, length_bytes, big_endian);
  string->data = p + length_bytes;
  return 1;
}

uint64_t amn_skip_strings(amn_bytes src, uint64_t *pos, uint64_t count, int length_bytes,
                          int big_endian, uint64_t longest) {
  uint64_t done = 0;
  amn_bytes string;
  while (done < count && amn_string_at(src, *pos, length_bytes, big_endian, &string)) {
    if (string.n_bytes > longest) break;
    *pos += (uint64_t)length_bytes + string.n_bytes;
    done++;
  }
  return done;
}
