/* Copies past the caches, of whole lines: a part of one would be read before it is written.
 *
 * Needs: vec.h alone. Defines: stream, stream_end. */

#define LINE AMN_CACHE_LINE

AMN_FORCE_INLINE void stream_row(uint8_t *dst, const uint8_t *src, size_t n) {
  const size_t to_line = (size_t)(-(uintptr_t)dst % LINE), head = n < to_line ? n : to_line;
  size_t i = head;
  memcpy(dst, src, head);
  for (; n - i >= LINE; i += LINE) {
    v_stream(dst + i, v_load(src + i));
    v_stream(dst + i + LINE / 2, v_load(src + i + LINE / 2));
  }
  memcpy(dst + i, src + i, n - i);
}

static void V_NAME(stream)(const uint8_t *src, size_t src_stride, uint8_t *dst, size_t dst_stride,
                           size_t rows, size_t row_bytes) {
  for (size_t r = 0; r < rows; r++)
    stream_row(dst + r * dst_stride, src + r * src_stride, row_bytes);
  v_end();
}

static void V_NAME(stream_end)(void) {
  v_stream_end();
}

#undef LINE
