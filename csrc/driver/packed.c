/* Integers packed into words, with a zero point and a scale for each group and out feature. */
#include "sizes.h"

typedef enum { LAYOUT_gptq, LAYOUT_awq } packed_layout;

typedef struct {
  unsigned char layout, bits;
} packing_facts;

static const packing_facts packings[] = {
#define PACKED(layout, NAME, name, bits, avx2, neon) {LAYOUT_##layout, bits},
#include "../kernels.def"
};

#define WORD_BYTES 4
#define WORD_BITS 32
#define AWQ_IN_WORD 8

typedef struct {
  const amn_level *level;
  amn_packing packing;
  amn_out out;
  const uint8_t *src;
  uint8_t *dst;
  uint64_t rows, cols;
  const amn_groups *groups;
  uint64_t zeros_bytes, scales_bytes; /* of one group */
  uint64_t n_groups;
} packed_job;

/* Bytes of the words that hold n values of one row of them. */
static int bytes_of_words(uint64_t n, int bits, uint64_t *n_bytes) {
  if (!multiply(n, (uint64_t)bits, n_bytes)) return 0;
  *n_bytes = (*n_bytes / WORD_BITS + (*n_bytes % WORD_BITS != 0)) * WORD_BYTES;
  return 1;
}

static amn_status check_arrays(const packed_job *job, uint64_t src_bytes, uint64_t dst_bytes) {
  const packing_facts facts = packings[job->packing];
  uint64_t needed;
  if (facts.layout == LAYOUT_awq) {
    if (job->rows % AWQ_IN_WORD) return AMN_BAD_WORDS;
    if (!multiply(job->rows / AWQ_IN_WORD * WORD_BYTES, job->cols, &needed)) return AMN_BAD_SIZE;
  } else if (!bytes_of_words(job->cols, facts.bits, &needed) ||
             !multiply(needed, job->rows, &needed)) {
    return AMN_BAD_SIZE;
  }
  if (needed > src_bytes) return AMN_SHORT_SRC;
  if (!multiply(job->rows, job->cols, &needed) || !multiply(needed, out_bytes[job->out], &needed))
    return AMN_BAD_SIZE;
  return needed <= dst_bytes ? AMN_OK : AMN_SHORT_DST;
}

/* The groups of act-order: any, in any order. */
static amn_status check_listed(const packed_job *job) {
  const amn_bytes listed = job->groups->groups;
  if (job->cols > listed.n_bytes / sizeof(int32_t)) return AMN_SHORT_GROUPS;
  for (uint64_t c = 0; c < job->cols; c++)
    if (amn_load_u32(listed.data + c * sizeof(int32_t)) >= job->n_groups) return AMN_BAD_GROUP;
  return AMN_OK;
}

static uint64_t group_of_col(const packed_job *job, uint64_t col) {
  const amn_groups *groups = job->groups;
  if (groups->groups.n_bytes > 0) return amn_load_u32(groups->groups.data + col * sizeof(int32_t));
  return (groups->first_col % groups->group_size + col) / groups->group_size;
}

/* Sets what a group has, and how many there are. */
static amn_status check_groups(packed_job *job) {
  const amn_groups *groups = job->groups;
  if (!bytes_of_words(job->rows, packings[job->packing].bits, &job->zeros_bytes) ||
      !multiply(job->rows, float_bytes[groups->scale_dtype], &job->scales_bytes))
    return AMN_BAD_SIZE;
  const uint64_t n_zeros = groups->zeros.n_bytes / job->zeros_bytes;
  const uint64_t n_scales = groups->scales.n_bytes / job->scales_bytes;
  job->n_groups = min_u64(n_zeros, n_scales);
  if (groups->groups.n_bytes > 0) return check_listed(job);
  uint64_t last;
  if (groups->group_size == 0) return AMN_BAD_GROUP;
  if (!add(groups->first_col % groups->group_size, job->cols - 1, &last)) return AMN_BAD_SIZE;
  last /= groups->group_size;
  if (last >= n_zeros) return AMN_SHORT_ZEROS;
  return last < n_scales ? AMN_OK : AMN_SHORT_SCALES;
}

/* Zero points and scales of the tile's out features in `group`, to place `at`. */
static void load_group(const packed_job *job, const amn_tile *tile, uint64_t group, size_t at,
                       amn_tile_groups *loaded) {
  const amn_groups *groups = job->groups;
  const uint8_t *scales = groups->scales.data + group * job->scales_bytes;
  job->level->zeros[job->packing](groups->zeros.data + group * job->zeros_bytes, tile->row,
                                  tile->rows, groups->zero_shift, loaded->zeros[at]);
  job->level->widen[groups->scale_dtype](scales + tile->row * float_bytes[groups->scale_dtype],
                                         (uint8_t *)loaded->scales[at], tile->rows);
}

/* The groups of the tile's columns, loaded, and their places. All groups of the band stay loaded
 * for a whole row of tiles if there is room. */
static void load_groups(const packed_job *job, const amn_tile *tile, amn_tile_groups *loaded,
                        uint16_t *group_of) {
  const int are_listed = job->groups->groups.n_bytes > 0;
  if (are_listed && job->n_groups <= AMN_TILE_GROUPS) {
    for (uint64_t g = 0; g < job->n_groups && tile->col == 0; g++)
      load_group(job, tile, g, (size_t)g, loaded);
    for (size_t c = 0; c < tile->cols; c++)
      group_of[c] = (uint16_t)group_of_col(job, tile->col + c);
    return;
  }
  uint64_t group = UINT64_MAX;
  for (size_t c = 0, n = 0; c < tile->cols; c++) {
    if (group != group_of_col(job, tile->col + c)) {
      group = group_of_col(job, tile->col + c);
      load_group(job, tile, group, n++, loaded);
    }
    group_of[c] = (uint16_t)(n - 1);
  }
}

static uint64_t narrow_tile(const packed_job *job, const amn_tile *tile,
                            float values[][AMN_TILE_COLS]) {
  uint64_t n_overflow = 0;
  for (size_t r = 0; r < tile->rows; r++) {
    const uint64_t at = (tile->row + r) * job->cols + tile->col;
    n_overflow += job->level->narrow[job->out]((const uint8_t *)values[r],
                                               job->dst + at * out_bytes[job->out], tile->cols);
  }
  return n_overflow;
}

static uint64_t packed_tiles(const packed_job *job) {
  _Alignas(64) float values[AMN_TILE_ROWS][AMN_TILE_COLS];
  amn_tile_groups loaded;
  uint16_t group_of[AMN_TILE_COLS];
  uint64_t n_overflow = 0;
  const int is_awq = packings[job->packing].layout == LAYOUT_awq;
  amn_tile tile = {.words = job->src,
                   .stride = (size_t)(is_awq ? job->rows / AWQ_IN_WORD : job->rows)};
  for (tile.row = 0; tile.row < job->rows; tile.row += AMN_TILE_ROWS) {
    tile.rows = (size_t)min_u64(job->rows - tile.row, AMN_TILE_ROWS);
    for (tile.col = 0; tile.col < job->cols; tile.col += AMN_TILE_COLS) {
      tile.cols = (size_t)min_u64(job->cols - tile.col, AMN_TILE_COLS);
      load_groups(job, &tile, &loaded, group_of);
      job->level->packed[job->packing](&tile, &loaded, group_of, values);
      n_overflow += narrow_tile(job, &tile, values);
    }
  }
  return n_overflow;
}

amn_status amn_dequantize_packed(int level, int packing, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, const amn_groups *groups,
                                 uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (packing < 0 || packing >= AMN_N_PACKINGS || out < 0 || out >= AMN_N_OUTS ||
      groups->scale_dtype < 0 || groups->scale_dtype >= AMN_N_FLOATS)
    return AMN_BAD_DTYPE;
  if (rows == 0 || cols == 0) return AMN_OK;
  packed_job job = {.level = table,
                    .packing = (amn_packing)packing,
                    .out = (amn_out)out,
                    .src = src.data,
                    .dst = dst.data,
                    .rows = rows,
                    .cols = cols,
                    .groups = groups};
  amn_status status = check_arrays(&job, src.n_bytes, dst.n_bytes);
  if (status == AMN_OK) status = check_groups(&job);
  if (status != AMN_OK) return status;
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = packed_tiles(&job);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
