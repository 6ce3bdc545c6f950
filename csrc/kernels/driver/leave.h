/* How results leave: stored where they are wanted, or by way of a tile that stays in the
 * first-level cache, from which whole lines go past all caches (amn_buffer says which). */
#ifndef AMN_DRIVER_LEAVE_H
#define AMN_DRIVER_LEAVE_H

#include "sizes.h"

#define TILE_BYTES 2048

typedef struct {
  amn_stream_fn stream; /* NULL: where they are wanted */
  _Alignas(AMN_CACHE_LINE) uint8_t tile[TILE_BYTES];
} way_out;

static inline void find_way_out(way_out *way, const amn_level *level, amn_buffer dst) {
  way->stream = dst.is_streamed ? level->stream : NULL;
}

/* At most so many of n results of `item_bytes` are made at a time. */
static inline uint64_t at_once(const way_out *way, uint64_t n, size_t item_bytes) {
  return way->stream ? min_u64(n, TILE_BYTES / item_bytes) : n;
}

/* Where those are made that belong to dst, and how they get there. */
static inline uint8_t *room_for(way_out *way, uint8_t *dst) {
  return way->stream ? way->tile : dst;
}

static inline void leave(const way_out *way, uint8_t *dst, uint64_t n_bytes) {
  if (way->stream) way->stream(way->tile, 0, dst, 0, 1, (size_t)n_bytes);
}

/* Before the call returns. */
static inline void end_way_out(const way_out *way, const amn_level *level) {
  if (way->stream) level->stream_end();
}

#endif /* AMN_DRIVER_LEAVE_H */
