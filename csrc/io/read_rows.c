/* Pieces of the same length that lie at equal distances: some columns of a row-major matrix. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <unistd.h>
#endif

#include <errno.h>
#include <string.h>

#include "reads.h"

#if defined(_WIN32)

uint64_t amn_pread_rows(int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes,
                        amn_buffer dst, uint64_t done, int *error) {
  (void)fd, (void)offset, (void)stride, (void)row_bytes, (void)dst;
  *error = ENOSYS; /* no positioned read */
  return done;
}

#else

/* Pieces closer than this are read with what lies between them: copying 4 KiB costs less than a
 * system call. The buffer stays in the first-level cache. */
#define NEAR 4096
#define BUFFER (8 * NEAR)

/* Copies the pieces that the first n bytes of a stretch hold, the last one maybe in part; returns
 * how many bytes of them. */
static uint64_t gather(const uint8_t *stretch, uint64_t n, uint64_t stride, uint64_t row_bytes,
                       uint8_t *dst) {
  uint64_t copied = 0;
  for (uint64_t at = 0; at < n; at += stride) {
    const uint64_t held = n - at < row_bytes ? n - at : row_bytes;
    memcpy(dst + copied, stretch + at, (size_t)held);
    copied += held;
  }
  return copied;
}

uint64_t amn_pread_rows(int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes,
                        amn_buffer dst, uint64_t done, int *error) {
  uint8_t buffer[BUFFER];
  *error = 0;
  while (done < dst.n_bytes) {
    const uint64_t row = done / row_bytes, start = done % row_bytes;
    const off_t at = (off_t)(offset + row * stride + start);
    uint64_t rows = dst.n_bytes / row_bytes - row;
    ssize_t n;
    if (start == 0 && rows > 1 && row_bytes < stride && stride <= NEAR) {
      if (rows > BUFFER / stride) rows = BUFFER / stride;
      n = pread(fd, buffer, (size_t)((rows - 1) * stride + row_bytes), at);
      if (n > 0) done += gather(buffer, (uint64_t)n, stride, row_bytes, dst.data + done);
    } else {
      n = pread(fd, dst.data + done, (size_t)(row_bytes - start), at);
      if (n > 0) done += (uint64_t)n;
    }
    if (n < 0) *error = errno;
    if (n <= 0) break;
  }
  return done;
}

#endif

void amn_copy_rows(amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst) {
  const uint8_t *row = src.data;
  for (uint64_t done = 0; done < dst.n_bytes; done += row_bytes, row += stride)
    memcpy(dst.data + done, row, (size_t)row_bytes);
}
