/* GGUF blocks. */
#include "../blocks.h"
#include "block_kinds.h"
#include "leave.h"

/* The row of a type, or -1. */
static int block_row(int ggml_id) {
  switch (ggml_id) {
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  case ggml_id:                                                      \
    return AMN_BLOCK_##NAME;
#include "../blocks.def"
    default:
      return -1;
  }
}

_Static_assert(SCRATCH % AMN_BLOCK_ELEMENTS_MAX == 0, "the scratch holds whole blocks");

/* To float32, decoded where it is wanted: seldom is there a NaN to be made the quiet one. */
static void dequantize_to_f32(const amn_level *level, int row, const uint8_t *src, uint8_t *dst,
                              size_t n_blocks) {
  const block_size size = block_sizes[row];
  level->block[row](src, (float *)(void *)dst, n_blocks);
  if (may_have_nan(row, src, n_blocks))
    level->narrow[AMN_OUT_F32](dst, dst, n_blocks * size.elements);
}

static uint64_t dequantize_some(const amn_level *level, int row, int out, const uint8_t *src,
                                uint8_t *dst, size_t n_blocks) {
  const block_size size = block_sizes[row];
  const size_t most = SCRATCH / size.elements;
  const int in_place = out == AMN_OUT_F32 && (uintptr_t)dst % sizeof(float) == 0;
  if (out == AMN_OUT_BF16 && level->block_bf16[row] != NULL)
    return level->block_bf16[row](src, dst, n_blocks);
  _Alignas(64) float values[SCRATCH];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n_blocks; done += most) {
    const size_t count = (size_t)min_u64(n_blocks - done, most);
    const uint8_t *blocks = src + done * size.bytes;
    uint8_t *decoded = dst + done * size.elements * out_bytes[out];
    if (in_place) {
      dequantize_to_f32(level, row, blocks, decoded, count);
      continue;
    }
    level->block[row](blocks, values, count);
    n_overflow += level->narrow[out]((const uint8_t *)values, decoded, count * size.elements);
  }
  return n_overflow;
}

static uint64_t dequantize_all(const amn_level *level, int row, int out, const uint8_t *src,
                               amn_buffer dst, size_t n_blocks) {
  const size_t block_bytes = block_sizes[row].elements * out_bytes[out];
  way_out way;
  uint64_t n_overflow = 0;
  find_way_out(&way, level, dst);
  for (size_t done = 0, count; done < n_blocks; done += count) {
    uint8_t *to = dst.data + done * block_bytes;
    count = (size_t)at_once(&way, n_blocks - done, block_bytes);
    n_overflow += dequantize_some(level, row, out, src + done * block_sizes[row].bytes,
                                  room_for(&way, to), count);
    leave(&way, to, count * block_bytes);
  }
  end_way_out(&way, level);
  return n_overflow;
}

amn_status amn_dequantize_blocks(int level, int type, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  const int row = block_row(type);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (row < 0 || out < 0 || out >= AMN_N_OUTS) return AMN_BAD_DTYPE;
  const block_size size = block_sizes[row];
  if (src.n_bytes % size.bytes) return AMN_SHORT_SRC;
  const uint64_t n_blocks = src.n_bytes / size.bytes;
  if (n_blocks > dst.n_bytes / out_bytes[out] / size.elements) return AMN_SHORT_DST;
  if (n_blocks == 0) return AMN_OK;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = dequantize_all(table, row, out, src.data, dst, (size_t)n_blocks);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
