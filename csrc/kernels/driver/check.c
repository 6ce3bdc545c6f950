/* Looks through the words of a tensor, and through its rows. */
#include "../levels.h"
#include "sizes.h"

/* Zeros have any sign, but where that makes a NaN. */
static int is_zero_row(const amn_words *words, const uint8_t *row, uint64_t n_bytes) {
  const int last_byte = words->other_nan == 0x80 ? 0xff : 0x7f;
  for (uint64_t i = 0; i < n_bytes; i++)
    if (row[i] & ((i + 1) % (unsigned)words->n_bytes ? 0xff : last_byte)) return 0;
  return 1;
}

amn_status amn_check_values(int level, const amn_words *words, amn_bytes src, uint64_t cols,
                            amn_check *found) {
  const amn_level *table = amn_level_at(level);
  uint64_t row_bytes;
  memset(found, 0, sizeof *found);
  if (table == NULL) return AMN_BAD_LEVEL;
  if (words->n_bytes != 1 && words->n_bytes != 2 && words->n_bytes != 4) return AMN_BAD_DTYPE;
  if (cols == 0) return AMN_BAD_BLOCK;
  if (!multiply(cols, (uint64_t)words->n_bytes, &row_bytes)) return AMN_BAD_SIZE;
  if (src.n_bytes % row_bytes) return AMN_SHORT_SRC;
  if (src.n_bytes == 0) return AMN_OK;
  memcpy(&found->first, src.data, (size_t)words->n_bytes);
  table->check(src.data, (size_t)(src.n_bytes / (uint64_t)words->n_bytes), words, found);
  if (found->n_zero < cols) return AMN_OK;
  for (uint64_t row = src.n_bytes / row_bytes; row-- > 0;)
    if (is_zero_row(words, src.data + row * row_bytes, row_bytes)) {
      found->n_zero_rows++;
      found->first_zero_row = row;
    }
  return AMN_OK;
}
