/* Numbers to GGUF blocks. */
#include <string.h>

#include "../blocks.h"
#include "block_kinds.h"
#include "loss.h"
#include "sizes.h"

typedef struct {
  int ggml_id;
  amn_block block;
  amn_weights weights;
} encoder_row;

static const encoder_row encoders[] = {
#define ENCODE(NAME, name, weights, levels) \
  {AMN_GGML_##NAME, AMN_BLOCK_##NAME, AMN_WEIGHTS_##weights},
#include "../blocks.def"
};

/* The row of a type, or -1. */
static int encoder_of(int ggml_id) {
  for (int row = 0; row < AMN_N_ENCODERS; row++)
    if (encoders[row].ggml_id == ggml_id) return row;
  return -1;
}

int amn_encoder_weights(int type) {
  const int row = encoder_of(type);
  return row < 0 ? -1 : (int)encoders[row].weights;
}

static void measure_rows(const amn_level *level, const amn_encoding *how, amn_block block,
                         const float *src, const uint8_t *blocks, amn_loss *loss) {
  const block_size size = block_sizes[block];
  _Alignas(64) float decoded[SCRATCH];
  for (uint64_t r = 0; r < how->rows; r++) {
    amn_loss_lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    for (uint64_t done = 0, n; done < how->cols; done += n) {
      n = min_u64(how->cols - done, SCRATCH);
      level->block[block](blocks, decoded, (size_t)(n / size.elements));
      level->measure(src, decoded, (size_t)n, &lanes);
      src += n;
      blocks += n / size.elements * size.bytes;
    }
    add_row(loss, &lanes);
  }
}

/* The first of n that is infinite or a NaN; n if there is none. */
static uint64_t first_not_finite(const float *values, uint64_t n) {
  uint64_t i = 0;
  while (i < n && values[i] - values[i] == 0.0f) i++;
  return i;
}

/* Of blocks whose scale is infinite or a NaN, that is what it makes of one of the codes. */
static uint64_t first_bad_block(const amn_level *level, amn_block block, const uint8_t *blocks,
                                uint64_t n_blocks) {
  const block_size size = block_sizes[block];
  float decoded[AMN_BLOCK_ELEMENTS_MAX];
  uint64_t i = 0;
  for (; i < n_blocks; i++) {
    level->block[block](blocks + i * size.bytes, decoded, 1);
    if (first_not_finite(decoded, size.elements) < size.elements) break;
  }
  return i;
}

static amn_status encode_all(const amn_level *level, const amn_encoding *how, int row,
                             const float *src, const float *weights, uint8_t *dst, amn_loss *loss,
                             uint64_t *where) {
  const uint64_t n = how->rows * how->cols;
  const amn_block block = encoders[row].block;
  const uint64_t n_blocks = n / block_sizes[block].elements;
  uint32_t largest = 0;
  level->amax[AMN_SOURCE_F32]((const uint8_t *)src, (size_t)n, (size_t)n, &largest);
  if (largest >= 0x7f800000u) {
    *where = first_not_finite(src, n);
    return AMN_NOT_FINITE;
  }
  level->encode[row](src, dst, (size_t)how->rows, (size_t)how->cols, weights);
  if (may_have_nan(block, dst, (size_t)n_blocks)) {
    const uint64_t bad = first_bad_block(level, block, dst, n_blocks);
    *where = bad * block_sizes[block].elements;
    if (bad < n_blocks) return AMN_NOT_FINITE;
  }
  if (loss != NULL) measure_rows(level, how, block, src, dst, loss);
  return AMN_OK;
}

amn_status amn_encode_blocks(int level, const amn_encoding *how, amn_bytes src, amn_buffer dst,
                             amn_loss *loss, uint64_t *where) {
  const amn_level *table = amn_level_at(level);
  const int row = encoder_of(how->type);
  uint64_t n;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (row < 0) return AMN_BAD_DTYPE;
  const block_size size = block_sizes[encoders[row].block];
  if (!multiply(how->rows, how->cols, &n) || n > UINT64_MAX / sizeof(float)) return AMN_BAD_SIZE;
  if (how->cols % size.elements) return AMN_SHORT_SRC;
  if (src.n_bytes / sizeof(float) < n) return AMN_SHORT_SRC;
  if (dst.n_bytes / size.bytes < n / size.elements) return AMN_SHORT_DST;
  const amn_bytes weights = how->weights;
  if (weights.n_bytes != 0 ? weights.n_bytes / sizeof(float) != how->cols
                           : encoders[row].weights == AMN_WEIGHTS_REQUIRED)
    return AMN_BAD_WEIGHTS;
  if ((uintptr_t)src.data % sizeof(float) || (uintptr_t)weights.data % sizeof(float))
    return AMN_BAD_ALIGNMENT;
  if (n == 0) return AMN_OK;
  const uint64_t fp_mode = amn_fp_mode_enter();
  const amn_status status =
      encode_all(table, how, row, (const float *)(const void *)src.data,
                 weights.n_bytes == 0 ? NULL : (const float *)(const void *)weights.data, dst.data,
                 loss, where);
  amn_fp_mode_leave(fp_mode);
  return status;
}
