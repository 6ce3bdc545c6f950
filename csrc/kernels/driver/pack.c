/* Numbers to dense integers in groups of a row: some groups of a row at a time, whose scales there
 * is room for. Where rows come out as columns, so many rows wait until their words are turned. */
#include "loss.h"
#include "sources.h"

#define GROUPS 64   /* of a row, at a time */
#define LINES 64    /* rows that wait, */
#define WORDS 128   /* of so many words; half as many rows of twice as many, of one group, */
#define WIDEST 1024 /* which has no more columns than these */

static const unsigned char pack_bits[] = {
#define PACK(NAME, name, bits, levels) bits,
#include "../kernels.def"
};

typedef struct {
  const amn_level *level;
  const amn_packing_plan *how;
  source_kind source;
  int bits;
  uint64_t groups; /* of a row */
  const uint8_t *src;
  uint8_t *codes, *scales, *shifts;
  amn_loss *loss;
} pack_job;

/* Some groups of a row, and what they are packed by. */
typedef struct {
  uint64_t row, group;
  size_t n_groups;
  _Alignas(64) float low[GROUPS];
  _Alignas(64) float high[GROUPS];
  _Alignas(64) float scales[GROUPS];
  _Alignas(64) float biases[GROUPS];
  _Alignas(64) float zeros[GROUPS];
  _Alignas(64) float stored_scales[GROUPS];
  _Alignas(64) float stored_biases[GROUPS];
} pack_unit;

static const uint8_t *unit_src(const pack_job *job, const pack_unit *unit) {
  const uint64_t at = unit->row * job->how->cols + unit->group * job->how->group;
  return job->src + at * job->source.item_bytes;
}

/* ---- scales ---- */

/* The least and the largest values; false if one is not finite. */
static int find_ranges(const pack_job *job, pack_unit *unit) {
  const size_t n = unit->n_groups * (size_t)job->how->group;
  const float first = job->how->rule == AMN_PACKING_MIRRORED ? 0 : FLT_MAX;
  uint32_t largest = 0;
  job->level->amax[job->how->source](unit_src(job, unit), n, n, &largest);
  if (largest >= 0x7f800000u) return 0;
  for (size_t i = 0; i < unit->n_groups; i++) unit->low[i] = first;
  for (size_t i = 0; i < unit->n_groups; i++) unit->high[i] = -first;
  job->level->range[job->how->source](unit_src(job, unit), n, (size_t)job->how->group, unit->low,
                                      unit->high);
  return 1;
}

/* Numbers as they are stored, and as they are read again. */
static void store_as(const pack_job *job, amn_out narrow, amn_float widen, const float *values,
                     size_t n, uint8_t *stored, float *again) {
  job->level->narrow[narrow]((const uint8_t *)values, stored, n);
  job->level->widen[widen](stored, (uint8_t *)again, n);
}

static void round_to_half(const pack_job *job, float *values, size_t n) {
  uint8_t rounded[2 * GROUPS];
  store_as(job, AMN_OUT_F16, AMN_FLOAT_F16, values, n, rounded, values);
}

/* To nearest even, of any size. */
static float to_whole(float value) {
  const float magnitude = value < 0 ? -value : value;
  const float whole = magnitude < 0x1p23f ? (magnitude + 0x1p23f) - 0x1p23f : magnitude;
  return value < 0 ? -whole : whole;
}

static void edge_scales(const pack_job *job, pack_unit *unit) {
  const size_t n = unit->n_groups;
  const float largest = (float)((1 << job->bits) - 1);
  const uint64_t first = unit->row * job->groups + unit->group;
  for (size_t i = 0; i < n; i++) {
    const float low = unit->low[i], high = unit->high[i];
    const int is_low = -low > (high < 0 ? -high : high);
    const float range = (high - low) / largest, least = range < 1e-7f ? 1e-7f : range;
    const float scale = is_low ? least : -least, edge = is_low ? low : high;
    const float steps = to_whole(edge / scale);
    unit->scales[i] = steps != 0 ? edge / steps : scale;
    unit->biases[i] = steps != 0 ? edge : 0;
    unit->zeros[i] = 0;
  }
  const uint64_t at = first * job->source.item_bytes;
  const amn_out narrow = job->source.narrow;
  const amn_float widen = job->source.widen;
  store_as(job, narrow, widen, unit->scales, n, job->scales + at, unit->stored_scales);
  store_as(job, narrow, widen, unit->biases, n, job->shifts + at, unit->stored_biases);
}

/* Those of a row in a column of [groups, rows]. */
static void store_column(const pack_job *job, pack_unit *unit) {
  uint8_t stored[2 * GROUPS];
  store_as(job, AMN_OUT_F16, AMN_FLOAT_F16, unit->scales, unit->n_groups, stored,
           unit->stored_scales);
  for (size_t i = 0; i < unit->n_groups; i++) {
    const uint64_t at = (unit->group + i) * job->how->rows + unit->row;
    memcpy(job->scales + 2 * at, stored + 2 * i, 2);
  }
}

/* Whether all are finite, as are those of mirrored ranges. */
static int mirrored_scales(const pack_job *job, pack_unit *unit) {
  const float most_steps = (float)((1 << job->bits) - 1);
  float largest = 0;
  for (size_t i = 0; i < unit->n_groups; i++) {
    const float low = unit->low[i], high = unit->high[i];
    const float most = -low > high ? -low : high;
    const float range = low < 0 ? most + most : most;
    unit->scales[i] = (most == 0 ? 2.0f : range) / most_steps;
    unit->zeros[i] = (float)(1 << (job->bits - 1));
    unit->biases[i] = unit->stored_biases[i] = 0;
    largest = unit->scales[i] > largest ? unit->scales[i] : largest;
  }
  store_column(job, unit);
  return largest <= FLT_MAX;
}

/* The same; false also where a value, or the largest number that codes may stand for, is infinite
 * as a half float. */
static int half_scales(const pack_job *job, pack_unit *unit) {
  const size_t n = unit->n_groups;
  int all_finite = 1;
  round_to_half(job, unit->low, n);
  round_to_half(job, unit->high, n);
  for (size_t i = 0; i < n; i++) unit->scales[i] = unit->high[i] - unit->low[i];
  round_to_half(job, unit->scales, n);
  for (size_t i = 0; i < n; i++) {
    const float range = unit->scales[i], least = 0x1.5p-17f; /* 1e-5, as a half float */
    if (!(range < 65504.0f)) all_finite = 0;                 /* 15 * (65504 / 15) is infinite */
    unit->scales[i] = (range < least ? least : range) / 15.0f;
  }
  round_to_half(job, unit->scales, n);
  for (size_t i = 0; i < n; i++) unit->zeros[i] = unit->low[i] / unit->scales[i];
  round_to_half(job, unit->zeros, n);
  for (size_t i = 0; i < n; i++) {
    const float zero = -to_whole(unit->zeros[i]);
    unit->zeros[i] = zero > 0 ? (zero < 15 ? zero : 15) : 0;
    unit->biases[i] = unit->stored_biases[i] = 0;
  }
  store_column(job, unit);
  return all_finite;
}

static int find_scales(const pack_job *job, pack_unit *unit) {
  if (!find_ranges(job, unit)) return 0;
  if (job->how->rule == AMN_PACKING_MIRRORED) return mirrored_scales(job, unit);
  if (job->how->rule == AMN_PACKING_HALF) return half_scales(job, unit);
  edge_scales(job, unit);
  return 1;
}

/* ---- codes ---- */

/* Whether a number that a code stands for, rounded to the source's dtype, has the same code. */
static int is_usual(const pack_job *job, const pack_unit *unit, size_t i) {
  return job->how->rule != AMN_PACKING_MIRRORED || unit->scales[i] >= job->source.least_scale;
}

/* The groups of a unit, as many at a time as are all usual, or all not. */
static void pack_unit_codes(const pack_job *job, const pack_unit *unit, uint8_t *dst) {
  amn_loss_lanes measured = {.n = 0};
  amn_loss_lanes *lanes = job->loss == NULL ? NULL : &measured;
  const size_t group = (size_t)job->how->group;
  amn_pack_run run = {.source = (amn_source)job->how->source, .block = group};
  run.is_half = job->how->rule == AMN_PACKING_HALF;
  for (size_t i = 0, n; i < unit->n_groups; i += n) {
    const int usual = is_usual(job, unit, i);
    for (n = 1; i + n < unit->n_groups && is_usual(job, unit, i + n) == usual;) n++;
    run.is_twice = !usual;
    run.n = n * group;
    run.scales = unit->scales + i;
    run.biases = unit->biases + i;
    run.zeros = unit->zeros + i;
    run.stored_scales = unit->stored_scales + i;
    run.stored_biases = unit->stored_biases + i;
    job->level->pack[job->how->code](unit_src(job, unit) + i * group * job->source.item_bytes,
                                     dst + i * group / 8 * (size_t)job->bits, &run, lanes);
  }
  if (lanes != NULL) add_row(job->loss, lanes);
}

static amn_status pack_rows(const pack_job *job) {
  const uint64_t row_bytes = job->how->cols / 8 * (uint64_t)job->bits;
  const uint64_t group_bytes = job->how->group / 8 * (uint64_t)job->bits;
  pack_unit unit;
  for (unit.row = 0; unit.row < job->how->rows; unit.row++)
    for (unit.group = 0; unit.group < job->groups; unit.group += unit.n_groups) {
      unit.n_groups = (size_t)min_u64(job->groups - unit.group, GROUPS);
      if (!find_scales(job, &unit)) return AMN_NOT_FINITE;
      pack_unit_codes(job, &unit, job->codes + unit.row * row_bytes + unit.group * group_bytes);
    }
  return AMN_OK;
}

/* ---- columns ---- */

/* Words of codes of some rows, line by line; and their zero points. */
typedef struct {
  size_t stride;
  uint32_t words[LINES * WORDS];
  uint8_t zeros[LINES][GROUPS];
} pack_tile;

static uint32_t *tile_line(pack_tile *tile, size_t line) {
  return tile->words + line * tile->stride;
}

/* Of two lines of words, the codes of the odd places of one change places with those of the even
 * places of the other: places of 1, 2 or 4 codes. */
static void swap_codes(uint32_t *restrict a, uint32_t *restrict b, size_t n, int shift,
                       uint32_t mask) {
  for (size_t i = 0; i < n; i++) {
    const uint32_t differing = (a[i] >> shift ^ b[i]) & mask;
    b[i] ^= differing;
    a[i] ^= differing << shift;
  }
}

/* 8 lines of words of 8 columns, to lines of the first to the eighth of these, in words of 8 rows.
 */
static void turn_codes(uint32_t *lines, size_t stride, size_t n) {
  for (size_t i = 0; i < 4; i++)
    swap_codes(lines + i * stride, lines + (i + 4) * stride, n, 16, 0x0000ffff);
  for (size_t i = 0; i < 8; i++)
    if (i % 4 < 2) swap_codes(lines + i * stride, lines + (i + 2) * stride, n, 8, 0x00ff00ff);
  for (size_t i = 0; i < 8; i += 2)
    swap_codes(lines + i * stride, lines + (i + 1) * stride, n, 4, 0x0f0f0f0f);
}

/* Lines of words to columns of the result, whose rows have `stride` words. */
static void turn_words(const pack_tile *tile, size_t n_lines, size_t n, uint8_t *dst,
                       uint64_t stride) {
  for (size_t i = 0; i < n; i++)
    for (size_t line = 0; line < n_lines; line++)
      amn_store_u32(dst + (i * stride + line) * 4, tile->words[line * tile->stride + i]);
}

static const unsigned char half_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Which line of a tile a row is put into. */
static size_t line_of(const pack_job *job, size_t row) {
  if (job->how->rule != AMN_PACKING_HALF) return row;
  size_t place = 0;
  while (half_order[place] != row % 8) place++;
  return row / 8 * 8 + place;
}

/* Of each column, the words of all rows of the tile before those of the next, which are in another
 * page. */
static void store_half_tile(const pack_job *job, pack_tile *tile, uint64_t row, size_t n_rows,
                            uint64_t col, size_t n_words) {
  const uint64_t stride = job->how->rows / 8;
  for (size_t line = 0; line < n_rows; line += 8)
    turn_codes(tile_line(tile, line), tile->stride, n_words);
  for (size_t i = 0; i < n_words; i++)
    for (size_t j = 0; j < 8; j++) {
      uint8_t *dst = job->codes + ((col + 8 * i + j) * stride + row / 8) * 4;
      for (size_t line = 0; line < n_rows; line += 8)
        amn_store_u32(dst + line / 2, tile_line(tile, line + j)[i]);
    }
}

static void store_tile(const pack_job *job, pack_tile *tile, uint64_t row, size_t n_rows,
                       uint64_t col, size_t n_words) {
  const uint64_t rows = job->how->rows, first = col / 32 * (uint64_t)job->bits;
  if (job->how->rule == AMN_PACKING_HALF)
    store_half_tile(job, tile, row, n_rows, col, n_words);
  else
    turn_words(tile, n_rows, n_words, job->codes + (first * rows + row) * 4, rows);
}

/* Those of MIRRORED less 1, in one subtraction a word. */
static void store_zeros(const pack_job *job, const pack_tile *tile, uint64_t row, size_t n_rows,
                        uint64_t group, size_t n_groups) {
  const size_t bits = (size_t)job->bits, in_word = 32 / bits;
  const uint32_t ones = 0xffffffff / ((1u << bits) - 1);
  const uint32_t less = job->how->rule == AMN_PACKING_MIRRORED ? ones : 0;
  for (size_t g = 0; g < n_groups; g++)
    for (size_t line = 0; line < n_rows; line += in_word) {
      uint32_t word = 0;
      for (size_t j = 0; j < in_word; j++) word |= (uint32_t)tile->zeros[line + j][g] << (bits * j);
      const uint64_t at = (group + g) * (job->how->rows / in_word) + (row + line) / in_word;
      amn_store_u32(job->shifts + 4 * at, word - less);
    }
}

static amn_status pack_columns(const pack_job *job) {
  const uint64_t group_words = job->how->group / 32 * (uint64_t)job->bits;
  const uint64_t at_once = group_words > WORDS ? 1 : min_u64(WORDS / group_words, GROUPS);
  pack_unit unit;
  pack_tile tile;
  tile.stride = group_words > WORDS ? 2 * WORDS : WORDS;
  const uint64_t lines = LINES * WORDS / tile.stride;
  for (uint64_t row = 0; row < job->how->rows; row += lines)
    for (unit.group = 0; unit.group < job->groups; unit.group += unit.n_groups) {
      const size_t n_rows = (size_t)min_u64(job->how->rows - row, lines);
      unit.n_groups = (size_t)min_u64(job->groups - unit.group, at_once);
      for (size_t i = 0; i < n_rows; i++) {
        const size_t line = line_of(job, i);
        unit.row = row + i;
        if (!find_scales(job, &unit)) return AMN_NOT_FINITE;
        pack_unit_codes(job, &unit, (uint8_t *)tile_line(&tile, line));
        for (size_t g = 0; g < unit.n_groups; g++) tile.zeros[line][g] = (uint8_t)unit.zeros[g];
      }
      const size_t n_words = unit.n_groups * (size_t)group_words;
      store_tile(job, &tile, row, n_rows, unit.group * job->how->group, n_words);
      store_zeros(job, &tile, row, n_rows, unit.group, unit.n_groups);
    }
  return AMN_OK;
}

/* ---- checks ---- */

static amn_status check_plan(const amn_packing_plan *how) {
  if (how->source < 0 || how->source >= AMN_N_SOURCES || how->code < 0 || how->code >= AMN_N_PACK)
    return AMN_BAD_DTYPE;
  if (how->rule < 0 || how->rule >= AMN_N_PACKING_RULES) return AMN_BAD_RULE;
  if (how->group == 0 || how->group % AMN_PACK_UNIT || how->cols % how->group) return AMN_BAD_BLOCK;
  if (how->rule == AMN_PACKING_EDGE) return AMN_OK;
  const int bits = pack_bits[how->code];
  if (how->rule == AMN_PACKING_HALF ? bits != 4 : 32 % bits != 0) return AMN_BAD_RULE;
  if (how->group > WIDEST) return AMN_BAD_RULE;
  return how->rows % (uint64_t)(32 / bits) ? AMN_BAD_WORDS : AMN_OK;
}

static amn_status check_sizes(const pack_job *job, amn_bytes src, amn_buffer codes,
                              amn_buffer scales, amn_buffer shifts) {
  const amn_packing_plan *how = job->how;
  const int is_edge = how->rule == AMN_PACKING_EDGE;
  uint64_t n, n_bytes, grid;
  if (!multiply(how->rows, how->cols, &n) || !multiply(n, job->source.item_bytes, &n_bytes))
    return AMN_BAD_SIZE;
  if (n_bytes > src.n_bytes) return AMN_SHORT_SRC;
  if (n / 8 * (uint64_t)job->bits > codes.n_bytes) return AMN_SHORT_DST;
  if (!multiply(how->rows, job->groups, &grid)) return AMN_BAD_SIZE;
  const uint64_t item = is_edge ? job->source.item_bytes : 2;
  if (grid > scales.n_bytes / item) return AMN_SHORT_SCALES;
  const uint64_t in_bytes = grid / 8 * (uint64_t)job->bits + grid % 8 * (uint64_t)job->bits / 8;
  if (is_edge ? grid > shifts.n_bytes / item : in_bytes > shifts.n_bytes) return AMN_SHORT_ZEROS;
  return AMN_OK;
}

amn_status amn_pack(int level, const amn_packing_plan *how, amn_bytes src, amn_buffer codes,
                    amn_buffer scales, amn_buffer shifts, amn_loss *loss) {
  pack_job job = {
      .level = amn_level_at(level),
      .how = how,
      .src = src.data,
      .codes = codes.data,
      .scales = scales.data,
      .shifts = shifts.data,
      .loss = loss,
  };
  if (job.level == NULL) return AMN_BAD_LEVEL;
  amn_status status = check_plan(how);
  if (status != AMN_OK) return status;
  job.source = sources[how->source];
  job.bits = pack_bits[how->code];
  job.groups = how->cols / how->group;
  status = check_sizes(&job, src, codes, scales, shifts);
  if (status != AMN_OK || how->rows == 0 || how->cols == 0) return status;
  const uint64_t fp_mode = amn_fp_mode_enter();
  status = how->rule == AMN_PACKING_EDGE ? pack_rows(&job) : pack_columns(&job);
  amn_fp_mode_leave(fp_mode);
  return status;
}
