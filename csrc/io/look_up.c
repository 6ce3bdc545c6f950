/* What a table has for bytes: pairs of bytes, a line of the table for each few of them. */
#include "amn_platform.h"
#include "reads.h"

enum { LINE = 256 * 2 };

int amn_look_up_pairs(const uint8_t *src, uint64_t group, const uint8_t *lines, uint64_t n_groups,
                      const uint8_t *table, uint64_t n_lines, uint8_t *dst) {
  for (uint64_t i = 0; i < n_groups; i++) {
    if (lines[i] >= n_lines) return 0;
    const uint8_t *line = table + (size_t)lines[i] * LINE;
    for (uint64_t k = 0; k < group; k++, src++, dst += 2)
      amn_store_u16(dst, amn_load_u16(line + 2 * (size_t)*src));
  }
  return 1;
}
