/* Reads that are summed up while their bytes are in cache. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <unistd.h>
#endif

#include <errno.h>

#include "reads.h"

#if defined(_WIN32)

uint64_t amn_pread_crc32(int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits,
                         uint32_t *crc, int *error) {
  (void)fd, (void)offset, (void)dst, (void)bits, (void)crc;
  *error = ENOSYS; /* no positioned read */
  return done;
}

#else

uint64_t amn_pread_crc32(int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits,
                         uint32_t *crc, int *error) {
  *error = 0;
  while (done < dst.n_bytes) {
    const uint64_t left = dst.n_bytes - done;
    uint8_t *slice = dst.data + done;
    const ssize_t n = pread(fd, slice, (size_t)(left < AMN_CRC32_SLICE ? left : AMN_CRC32_SLICE),
                            (off_t)(offset + done));
    if (n < 0) *error = errno;
    if (n <= 0) break;
    const amn_bytes read = {slice, (uint64_t)n};
    *crc = amn_crc32(bits, *crc, read);
    done += (uint64_t)n;
  }
  return done;
}

#endif
