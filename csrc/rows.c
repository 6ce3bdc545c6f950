/* Pieces of the same length that lie at equal distances: some columns of a row-major matrix. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <unistd.h>
#endif

#include <errno.h>
#include <string.h>

#include "amn.h"

uint64_t amn_pread_rows(int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes,
                        amn_buffer dst, uint64_t done, int *error) {
  *error = 0;
#if defined(_WIN32)
  (void)fd, (void)offset, (void)stride, (void)row_bytes, (void)dst;
  *error = ENOSYS; /* no positioned read */
#else
  while (done < dst.n_bytes) {
    const uint64_t row = done / row_bytes, start = done % row_bytes;
    const uint64_t at = offset + row * stride + start;
    const ssize_t n = pread(fd, dst.data + done, (size_t)(row_bytes - start), (off_t)at);
    if (n < 0) *error = errno;
    if (n <= 0) break;
    done += (uint64_t)n;
  }
#endif
  return done;
}

void amn_copy_rows(amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst) {
  const uint8_t *row = src.data;
  for (uint64_t done = 0; done < dst.n_bytes; done += row_bytes, row += stride)
    memcpy(dst.data + done, row, (size_t)row_bytes);
}
