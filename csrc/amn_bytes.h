/* What the C side takes and gives: bytes and their number, at any address.
 *
 * Nothing here allocates, keeps state or knows Python. */
#ifndef AMN_BYTES_H
#define AMN_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  const uint8_t *data;
  uint64_t n_bytes;
} amn_bytes;

typedef struct {
  uint8_t *data;
  uint64_t n_bytes;
  int is_streamed; /* whether a decoder stores past the caches, where the level can */
} amn_buffer;

#endif /* AMN_BYTES_H */
