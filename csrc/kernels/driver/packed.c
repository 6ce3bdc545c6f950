/* Integers packed into words, with a zero point and a scale for each group and out feature. */
#include "sizes.h"

typedef enum { LAYOUT_gptq, LAYOUT_planar, LAYOUT_awq } packed_layout;

typedef struct {
  unsigned char layout, bits;
} packing_facts;

static const packing_facts packings[] = {
#define PACKED(layout, NAME, name, bits, to_f32, to_16) {LAYOUT_##layout, bits},
#include "../kernels.def"
};

#define WORD_BYTES 4
#define WORD_BITS 32
#define AWQ_IN_WORD 8
#define PLANES_OF 32 /* values that fill whole words */

/* Rows of tiles that are done before the next columns: what follows in a line of words is then used
 * next. (1024 of AWQ's take 8 cache lines of words.) */
#define BLOCK_ROWS 1024

typedef struct {
  const amn_level *level;
  amn_packing packing;
  amn_out out;
  const uint8_t *src;
  uint8_t *dst;
  uint64_t rows, cols;        /* of src */
  uint64_t first_row, n_rows; /* of those, what dst takes */
  const amn_groups *groups;
  uint64_t dst_stride;
  int is_listed;                      /* act-order: each column has the group listed for it */
  uint64_t zeros_bytes, scales_bytes; /* of one group */
  uint64_t n_groups;
  size_t tile_rows; /* at most AMN_TILE_ROWS: those whose groups there is room for */
  uint8_t *stage;   /* if not NULL, dst is stored past the caches, from there */
} packed_job;

/* Bytes of the words that hold n values of one row of them. */
static int bytes_of_words(uint64_t n, int bits, uint64_t *n_bytes) {
  if (!multiply(n, (uint64_t)bits, n_bytes)) return 0;
  *n_bytes = (*n_bytes / WORD_BITS + (*n_bytes % WORD_BITS != 0)) * WORD_BYTES;
  return 1;
}

static amn_status check_arrays(const packed_job *job, uint64_t src_bytes, uint64_t dst_bytes) {
  const packing_facts facts = packings[job->packing];
  uint64_t needed, end;
  if (job->first_row % AMN_TILE_ROWS || !add(job->first_row, job->n_rows, &end) || end > job->rows)
    return AMN_BAD_ROWS;
  if (facts.layout == LAYOUT_planar && (job->rows % PLANES_OF || job->cols % PLANES_OF))
    return AMN_BAD_WORDS;
  if (facts.layout == LAYOUT_awq) {
    if (job->rows % AWQ_IN_WORD) return AMN_BAD_WORDS;
    if (!multiply(job->rows / AWQ_IN_WORD * WORD_BYTES, job->cols, &needed)) return AMN_BAD_SIZE;
  } else if (!bytes_of_words(job->cols, facts.bits, &needed) ||
             !multiply(needed, job->rows, &needed)) {
    return AMN_BAD_SIZE;
  }
  if (needed > src_bytes) return AMN_SHORT_SRC;
  if (!multiply(job->n_rows, job->cols, &needed) || !multiply(needed, out_bytes[job->out], &needed))
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
  if (job->is_listed) return amn_load_u32(groups->groups.data + col * sizeof(int32_t));
  return (groups->first_col % groups->group_size + col) / groups->group_size;
}

/* The first column of the next group. */
static uint64_t end_of_group(const packed_job *job, uint64_t col) {
  const amn_groups *groups = job->groups;
  if (job->is_listed) return col + 1;
  const uint64_t into = (groups->first_col % groups->group_size + col) % groups->group_size;
  const uint64_t left = groups->group_size - into;
  return min_u64(left, job->cols - col) + col;
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
  if (job->is_listed) return check_listed(job);
  uint64_t last;
  if (groups->group_size == 0) return AMN_BAD_GROUP;
  if (!add(groups->first_col % groups->group_size, job->cols - 1, &last)) return AMN_BAD_SIZE;
  last /= groups->group_size;
  if (last >= n_zeros) return AMN_SHORT_ZEROS;
  return last < n_scales ? AMN_OK : AMN_SHORT_SCALES;
}

/* ---- tiles ---- */

/* Where the work is: a tile, and what its columns' groups have. */
typedef struct {
  amn_tile tile;
  amn_tile_groups groups;
  uint16_t group_of[AMN_TILE_COLS];
  uint64_t resident_row; /* the tile's row for which all groups of the band are loaded, if any */
  int is_plain;          /* no product of these scales and any code is infinite or NaN */
} packed_place;

/* The columns of a tile that go by way of the scratch at a time. */
#define SCRATCH_COLS 128
typedef float packed_scratch[AMN_TILE_ROWS][SCRATCH_COLS];

/* A call's stack: these two, and at most 12 KiB of a kernel's and of the callers'. */
_Static_assert(sizeof(packed_place) + sizeof(packed_scratch) <= (64 - 12) << 10, "64 KiB in all");

/* At most `most` of n; a whole number of `unit`s, unless there are fewer. */
static size_t part_of(uint64_t n, size_t most, size_t unit) {
  const size_t part = (size_t)min_u64(n, most);
  return part < unit ? part : part - part % unit;
}

static int is_ragged(const amn_tile *tile) {
  return tile->rows % AMN_TILE_UNIT_ROWS || tile->cols % AMN_TILE_UNIT_COLS;
}

/* A code less a zero point is below 2^8, so that products stay below 2^127, and for half floats
 * below 2^16 - 2^8, which is none of those that round to infinity. */
static int are_plain(const float *scales, size_t n, amn_out out) {
  const uint32_t end = (127u + (out == AMN_OUT_F16 ? 8u : 119u)) << 23;
  uint32_t too_large = 0;
  for (size_t i = 0; i < n; i++) too_large |= (amn_f32_bits(scales[i]) & 0x7fffffffu) >= end;
  return !too_large;
}

/* The tile's zero points in `group`. Those stored less 1 get it back as GPTQModel's v1-to-v2
 * conversion gives it: all of a word in one addition, modulo 2^32, so that a 0, which borrowed from
 * its neighbour, pays back; values that straddle words one by one, modulo 2^bits. */
static void load_zeros(const packed_job *job, const amn_tile *tile, uint64_t group, float *zeros) {
  const amn_zeros_fn to_f32 = job->level->zeros[job->packing];
  const uint8_t *words = job->groups->zeros.data + group * job->zeros_bytes;
  const unsigned bits = packings[job->packing].bits;
  if (!job->groups->zeros_less_one || WORD_BITS % bits) {
    to_f32(words, tile->row, tile->rows, job->groups->zeros_less_one, zeros);
    return;
  }
  uint8_t whole[(AMN_TILE_ROWS * 8 / WORD_BITS + 1) * WORD_BYTES];
  const size_t in_word = WORD_BITS / bits, first = tile->row % in_word;
  const uint32_t ones = UINT32_MAX / ((1u << bits) - 1);
  words += tile->row / in_word * WORD_BYTES;
  for (size_t at = 0; at * in_word < (first + tile->rows) * WORD_BYTES; at += WORD_BYTES)
    amn_store_u32(whole + at, amn_load_u32(words + at) + ones);
  to_f32(whole, first, tile->rows, 0, zeros);
}

/* Zero points and scales of the tile's out features in `group`, from entry `at` on. */
static void load_group(const packed_job *job, packed_place *place, uint64_t group, size_t at) {
  const amn_groups *groups = job->groups;
  const amn_tile *tile = &place->tile;
  const uint8_t *scales = groups->scales.data + group * job->scales_bytes;
  load_zeros(job, tile, group, place->groups.zeros + at);
  job->level->widen[groups->scale_dtype](scales + tile->row * float_bytes[groups->scale_dtype],
                                         (uint8_t *)(place->groups.scales + at), tile->rows);
  place->is_plain &= are_plain(place->groups.scales + at, tile->rows, job->out);
}

/* All groups of the band, once for all tiles of these rows. */
static void load_listed(const packed_job *job, packed_place *place) {
  if (place->resident_row != place->tile.row) {
    place->is_plain = 1;
    for (uint64_t g = 0; g < job->n_groups; g++)
      load_group(job, place, g, (size_t)g * job->tile_rows);
    place->resident_row = place->tile.row;
  }
  const uint8_t *listed = job->groups->groups.data + place->tile.col * sizeof(int32_t);
  for (size_t c = 0; c < place->tile.cols; c++)
    place->group_of[c] = (uint16_t)(amn_load_u32(listed + c * sizeof(int32_t)) * job->tile_rows);
}

/* The groups of the tile's columns, one after another. */
static void load_in_order(const packed_job *job, packed_place *place) {
  const uint64_t col = place->tile.col, cols = place->tile.cols;
  size_t n = 0;
  place->is_plain = 1;
  for (uint64_t c = 0, end; c < cols; n += AMN_TILE_ROWS) {
    end = min_u64(end_of_group(job, col + c) - col, cols);
    load_group(job, place, group_of_col(job, col + c), n);
    for (; c < end; c++) place->group_of[c] = (uint16_t)n;
  }
}

static uint64_t narrow_rows(const packed_job *job, const amn_tile *tile, const uint8_t *values,
                            size_t stride, uint8_t *dst, size_t dst_stride) {
  uint64_t n_overflow = 0;
  for (size_t r = 0; r < tile->rows; r++)
    n_overflow +=
        job->level->narrow[job->out](values + r * stride, dst + r * dst_stride, tile->cols);
  return n_overflow;
}

static uint64_t by_scratch(const packed_job *job, const packed_place *place, uint8_t *dst,
                           size_t dst_stride) {
  _Alignas(64) packed_scratch values;
  const size_t stride = sizeof values[0], cols = place->tile.cols;
  uint8_t *scratch = (uint8_t *)values;
  amn_tile part = place->tile;
  uint64_t n_overflow = 0;
  part.run = 0;
  for (size_t done = 0; done < cols; done += part.cols) {
    part.cols = (size_t)min_u64(cols - done, SCRATCH_COLS);
    part.col = place->tile.col + done;
    part.group_of = place->group_of + done;
    job->level->packed[job->packing](&part, &place->groups, scratch, stride);
    n_overflow +=
        narrow_rows(job, &part, scratch, stride, dst + done * out_bytes[job->out], dst_stride);
  }
  return n_overflow;
}

/* float32 stays as it is decoded, except NaNs. */
static void to_f32(const packed_job *job, const packed_place *place, uint8_t *dst,
                   size_t dst_stride) {
  job->level->packed[job->packing](&place->tile, &place->groups, dst, dst_stride);
  if (!place->is_plain) narrow_rows(job, &place->tile, dst, dst_stride, dst, dst_stride);
}

/* Whether the level has a kernel that makes 16 bits of the tile at once. */
static int is_direct(const packed_job *job, const packed_place *place) {
  return job->level->packed_16[job->packing] != NULL && job->out != AMN_OUT_F32 &&
         place->is_plain && !is_ragged(&place->tile);
}

/* The tile to dst, the shortest way. */
static uint64_t decode_tile(const packed_job *job, const packed_place *place, uint8_t *dst,
                            size_t dst_stride) {
  if (is_direct(job, place))
    job->level->packed_16[job->packing](&place->tile, &place->groups, job->out, dst, dst_stride);
  else if (job->out == AMN_OUT_F32)
    to_f32(job, place, dst, dst_stride);
  else
    return by_scratch(job, place, dst, dst_stride);
  return 0;
}

/* The tile to memory: by kernels that store whole lines, where rows begin with one, else by way of
 * a stage that stays in the second-level cache. */
static uint64_t stream_tile(const packed_job *job, packed_place *place, uint8_t *dst) {
  amn_tile *tile = &place->tile;
  tile->is_streamed =
      is_direct(job, place) && ((uintptr_t)dst | (uintptr_t)job->dst_stride) % AMN_CACHE_LINE == 0;
  if (tile->is_streamed) return decode_tile(job, place, dst, (size_t)job->dst_stride);
  const size_t row_bytes = tile->cols * out_bytes[job->out];
  const uint64_t n_overflow = decode_tile(job, place, job->stage, row_bytes);
  job->level->stream(job->stage, row_bytes, dst, (size_t)job->dst_stride, tile->rows, row_bytes);
  return n_overflow;
}

/* Whether all groups of the band are loaded for some rows, to be looked up by each column. */
static int is_resident(const packed_job *job) {
  return job->is_listed && job->n_groups <= AMN_TILE_ENTRIES / AMN_TILE_UNIT_ROWS;
}

static uint64_t packed_tile(const packed_job *job, packed_place *place) {
  const amn_tile *tile = &place->tile;
  uint8_t *dst =
      job->dst + (tile->row - job->first_row) * job->dst_stride + tile->col * out_bytes[job->out];
  if (is_resident(job))
    load_listed(job, place);
  else
    load_in_order(job, place);
  return job->stage != NULL ? stream_tile(job, place, dst)
                            : decode_tile(job, place, dst, (size_t)job->dst_stride);
}

/* The columns of the tile that starts at tile->col. If they are not listed, its groups are runs
 * where they can be: a part of one group, or some whole ones. Else each may have a group of its
 * own. */
static void set_cols(const packed_job *job, amn_tile *tile) {
  const uint64_t group_size = job->groups->group_size;
  const uint64_t of_group = job->is_listed ? 1 : end_of_group(job, tile->col) - tile->col;
  uint64_t most = min_u64(job->cols - tile->col, AMN_TILE_COLS);
  tile->run = 0;
  if (of_group >= most) {
    tile->run = AMN_TILE_COLS;
  } else if (of_group % AMN_TILE_UNIT_COLS == 0) {
    tile->run = (size_t)of_group;
    most = of_group < group_size ? of_group : most - most % of_group;
  } else if (!is_resident(job)) {
    most = min_u64(most, AMN_TILE_ENTRIES / AMN_TILE_ROWS);
  }
  tile->cols = part_of(most, AMN_TILE_COLS, AMN_TILE_UNIT_COLS);
}

static uint64_t packed_tiles(const packed_job *job) {
  packed_place place;
  amn_tile *tile = &place.tile;
  uint64_t n_overflow = 0;
  const int is_awq = packings[job->packing].layout == LAYOUT_awq;
  *tile = (amn_tile){.words = job->src,
                     .stride = (size_t)(is_awq ? job->rows / AWQ_IN_WORD : job->rows),
                     .group_of = place.group_of};
  place.resident_row = UINT64_MAX;
  const uint64_t stop = job->first_row + job->n_rows;
  for (uint64_t end, row = job->first_row; row < stop; row = end) {
    end = row + min_u64(stop - row, job->is_listed ? job->tile_rows : BLOCK_ROWS);
    for (tile->col = 0; tile->col < job->cols; tile->col += tile->cols) {
      set_cols(job, tile);
      for (tile->row = row; tile->row < end; tile->row += tile->rows) {
        tile->rows = part_of(end - tile->row, job->tile_rows, AMN_TILE_UNIT_ROWS);
        n_overflow += packed_tile(job, &place);
      }
    }
  }
  return n_overflow;
}

amn_status amn_dequantize_packed(int level, int packing, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, uint64_t first_row, uint64_t n_rows,
                                 const amn_groups *groups, amn_buffer stage, uint64_t *n_overflow) {
  const amn_level *table = amn_level_at(level);
  *n_overflow = 0;
  if (table == NULL) return AMN_BAD_LEVEL;
  if (packing < 0 || packing >= AMN_N_PACKINGS || out < 0 || out >= AMN_N_OUTS ||
      groups->scale_dtype < 0 || groups->scale_dtype >= AMN_N_FLOATS)
    return AMN_BAD_DTYPE;
  if (n_rows == 0 || cols == 0) return AMN_OK;
  packed_job job = {.level = table,
                    .packing = (amn_packing)packing,
                    .out = (amn_out)out,
                    .src = src.data,
                    .dst = dst.data,
                    .rows = rows,
                    .cols = cols,
                    .first_row = first_row,
                    .n_rows = n_rows,
                    .groups = groups,
                    .dst_stride = cols * out_bytes[out],
                    .is_listed = groups->groups.n_bytes > 0,
                    .tile_rows = AMN_TILE_ROWS};
  amn_status status = check_arrays(&job, src.n_bytes, dst.n_bytes);
  if (status == AMN_OK) status = check_groups(&job);
  if (status != AMN_OK) return status;
  if (is_resident(&job))
    job.tile_rows = part_of(AMN_TILE_ENTRIES / job.n_groups, AMN_TILE_ROWS, AMN_TILE_UNIT_ROWS);
  if (table->stream != NULL && n_rows * job.dst_stride >= AMN_STREAMED_BYTES &&
      stage.n_bytes >= AMN_STAGE_BYTES)
    job.stage = stage.data + (size_t)(-(uintptr_t)stage.data % AMN_CACHE_LINE);
  uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = packed_tiles(&job);
  if (job.stage != NULL) table->stream_end();
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
