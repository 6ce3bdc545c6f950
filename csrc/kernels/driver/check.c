/* Looks through the words of a tensor, and through its rows. */
#include "../levels.h"
#include "sizes.h"

/* Most rows that are none begin with a word whose uppermost byte says so. */
static int is_zero_row(const amn_level *level, const amn_words *words, const uint8_t *row,
                       size_t cols) {
  amn_check found;
  if (row[words->n_bytes - 1] & 0x7f) return 0;
  memset(&found, 0, sizeof found);
  level->check(row, cols, words, &found);
  return found.n_zero == cols;
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
    if (is_zero_row(table, words, src.data + row * row_bytes, (size_t)cols)) {
      found->n_zero_rows++;
      found->first_zero_row = row;
    }
  return AMN_OK;
}
