/* Integers of rows, with a grid of scales, zero points and biases. */
#include "leave.h"
#include "rounding.h"
#include <math.h>

#define GROUPS 512 /* scales widened to float32 at a time */
#define WORD_BITS 32

typedef struct {
  unsigned char bits, codes, bytes; /* so many codes in so many bytes */
} integers_kind;

static const integers_kind kinds[] = {
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) {bits, codes, bytes},
#include "../kernels.def"
};

/* What changes nothing where it is a scale, or a bias. */
typedef struct {
  _Alignas(64) float ones[GROUPS];
  _Alignas(64) float nothings[GROUPS];
} integers_neutral;

typedef struct {
  const amn_level *level;
  amn_integers_fn decode;
  amn_integers_16_fn direct; /* NULL: by way of float32 */
  amn_out out;
  integers_kind kind;
  int is_signed;
  amn_integers of;
  way_out *way;
  const integers_neutral *neutral; /* NULL if nothing is rounded on the way to a result */
} integers_job;

/* The float32 of each of some consecutive groups, or of listed ones. */
typedef struct {
  _Alignas(64) float zeros[GROUPS];
  _Alignas(64) float scales[GROUPS];
  _Alignas(64) float biases[GROUPS];
  int is_plain; /* whether no code of 8 bits becomes infinite or NaN, in the output either */
} integers_groups;

/* n codes of a row, the first of them `into` its group, which is number `first`. */
typedef struct {
  uint64_t first, into, block;
  size_t n, n_groups;
} integers_stretch;

/* How many times as long codes are as their kernel's units. */
static size_t width_of(const integers_job *job) {
  return job->of.planes.bits ? (size_t)job->of.planes.width : 1;
}

/* The line that holds a row. */
static uint64_t line_of(const integers_job *job, uint64_t row) {
  const amn_planes *planes = &job->of.planes;
  return planes->bits ? (row + planes->phase) / planes->stacked : row;
}

static int is_padded(integers_kind kind) {
  return kind.bits * kind.codes != kind.bytes * 8;
}

/* Group i of those that a stretch has: after `first`, or listed from there on. */
static uint64_t group_at(const integers_job *job, uint64_t first, size_t i) {
  const amn_bytes groups = job->of.groups;
  return groups.n_bytes == 0 ? first + i : amn_load_u32(groups.data + 4 * (first + i));
}

static void widen_groups(const integers_job *job, const uint8_t *row, uint64_t first, size_t n,
                         float *values) {
  const int dtype = job->of.scales.dtype;
  const size_t item = float_bytes[dtype];
  if (job->of.groups.n_bytes == 0) {
    job->level->widen[dtype](row + first * item, (uint8_t *)values, n);
    return;
  }
  uint8_t stored[8 * GROUPS];
  for (size_t i = 0; i < n; i++)
    memcpy(stored + i * item, row + group_at(job, first, i) * item, item);
  job->level->widen[dtype](stored, (uint8_t *)values, n);
}

/* Code `at` of those that words hold which lie `stride` words apart. */
static uint32_t stacked_code(const uint8_t *words, uint64_t stride, uint64_t at,
                             integers_kind kind) {
  const uint32_t mask = (1u << kind.bits) - 1;
  if (is_padded(kind)) {
    const uint32_t word = amn_load_u32(words + at / kind.codes * stride * 4);
    return word >> (at % kind.codes * kind.bits) & mask;
  }
  const uint64_t word = at / WORD_BITS * kind.bits + at % WORD_BITS * kind.bits / WORD_BITS;
  const unsigned shift = (unsigned)(at % WORD_BITS * kind.bits % WORD_BITS);
  uint32_t code = amn_load_u32(words + word * stride * 4) >> shift;
  if (shift + kind.bits > WORD_BITS)
    code |= amn_load_u32(words + (word + 1) * stride * 4) << (WORD_BITS - shift);
  return code & mask;
}

static void find_zeros(const integers_job *job, uint64_t row, uint64_t grid_row, uint64_t first,
                       size_t n, float *zeros) {
  const amn_integers *of = &job->of;
  const uint64_t stride = of->scales.stride;
  switch (of->zeros_kind) {
    case AMN_ZEROS_FLOAT:
      widen_groups(job, of->zeros.data + grid_row * stride * float_bytes[of->scales.dtype], first,
                   n, zeros);
      break;
    case AMN_ZEROS_INT8:
      for (size_t i = 0; i < n; i++)
        zeros[i] = (int8_t)of->zeros.data[grid_row * stride + group_at(job, first, i)];
      break;
    case AMN_ZEROS_WORDS:
      for (size_t i = 0; i < n; i++)
        zeros[i] = (float)stacked_code(of->zeros.data + 4 * group_at(job, first, i), stride,
                                       row + of->zeros_phase, job->kind);
      break;
    default:
      for (size_t i = 0; i < n; i++) zeros[i] = (float)of->constant;
  }
}

/* The numbers of some groups, of which `count` codes have one, the first of them `into` the first
 * group: to the dtype that a library computes in. Returns how many codes have one that became
 * infinite. */
static uint64_t round_groups(const integers_job *job, float *values, const integers_stretch *at) {
  const int dtype = job->of.scales.rounded;
  if (dtype == AMN_OUT_F32) return 0;
  return round_blocks(job->level, dtype, values, at->n_groups, at->into, at->block, at->n);
}

/* A bias is what code 0 stands for; it is added where the code is the constant zero point. */
static uint64_t find_biases(const integers_job *job, const uint8_t *row, const integers_stretch *at,
                            integers_groups *groups) {
  const amn_integers *of = &job->of;
  const size_t n = at->n_groups;
  const float constant = (float)of->constant;
  float products[GROUPS];
  uint64_t n_overflow;
  widen_groups(job, row, at->first, n, groups->biases);
  n_overflow = round_groups(job, groups->biases, at);
  if (of->zeros_kind != AMN_ZEROS_CONSTANT || of->constant == 0) return n_overflow;
  for (size_t i = 0; i < n; i++) products[i] = constant * groups->scales[i];
  if (of->roundings & AMN_ROUND_BIASES) n_overflow += round_groups(job, products, at);
  for (size_t i = 0; i < n; i++) groups->biases[i] += products[i];
  if (of->roundings & AMN_ROUND_BIASES) n_overflow += round_groups(job, groups->biases, at);
  return n_overflow;
}

/* Whether results stay below a bound, with room for what rounding adds. */
static int are_plain(const integers_groups *groups, size_t n, float bound) {
  int n_beyond = 0;
  for (size_t i = 0; i < n; i++) {
    const float product = (256 + fabsf(groups->zeros[i])) * fabsf(groups->scales[i]);
    n_beyond += !(product + fabsf(groups->biases[i]) < bound); /* of a NaN as well */
  }
  return n_beyond == 0;
}

static uint64_t find_groups(const integers_job *job, uint64_t row, const integers_stretch *at,
                            integers_groups *groups) {
  const amn_grid *grid = &job->of.scales;
  const size_t n = at->n_groups;
  const uint64_t grid_row = (row + grid->row_phase) / grid->block_rows;
  const uint64_t begin = grid_row * grid->stride * float_bytes[grid->dtype];
  uint64_t n_overflow;
  widen_groups(job, grid->data.data + begin, at->first, n, groups->scales);
  n_overflow = round_groups(job, groups->scales, at);
  find_zeros(job, row, grid_row, at->first, n, groups->zeros);
  if (job->of.zeros_kind == AMN_ZEROS_FLOAT) n_overflow += round_groups(job, groups->zeros, at);
  if (job->of.biases.n_bytes)
    n_overflow += find_biases(job, job->of.biases.data + begin, at, groups);
  else
    for (size_t i = 0; i < n; i++) groups->biases[i] = -0.0f; /* adds nothing, not even a sign */
  if (job->direct != NULL)
    groups->is_plain = are_plain(groups, n, job->out == AMN_OUT_F16 ? 0x1p15f : 0x1p126f);
  return n_overflow;
}

/* The plane of a row, a byte a code; of two's complement where the kernel's bytes are. */
static const uint8_t *take_plane(const integers_job *job, uint64_t row, const uint8_t *src,
                                 size_t n, uint8_t *codes) {
  const amn_planes *planes = &job->of.planes;
  const int turn = (int)((row + planes->phase) % planes->stacked);
  const int shift = planes->shift + planes->bits * turn;
  const uint8_t mask = (uint8_t)((1u << planes->bits) - 1);
  const uint8_t sign = job->is_signed ? (uint8_t)(1u << (planes->bits - 1)) : 0;
  if (planes->width == WORD_BITS / 8)
    for (size_t i = 0; i < n; i++)
      codes[i] = (uint8_t)(((amn_load_u32(src + 4 * i) >> shift & mask) ^ sign) - sign);
  else
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(((src[i] >> shift & mask) ^ sign) - sign);
  return codes;
}

/* values + by, or values * by, of n values in blocks whose first has `first` of them left. */
static void add_each(float *values, size_t n, const float *by, size_t first, size_t block) {
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n; by++) {
    for (const float one = *by; i < end; i++) values[i] += one;
    end = n - i > block ? i + block : n;
  }
}

static void multiply_each(float *values, size_t n, const float *by, size_t first, size_t block) {
  size_t end = first < n ? first : n;
  for (size_t i = 0; i < n; by++) {
    for (const float one = *by; i < end; i++) values[i] *= one;
    end = n - i > block ? i + block : n;
  }
}

/* One operation after the other, each on all codes, with what is rounded in between; a result that
 * goes to that dtype anyway is rounded there. Returns how many values became infinite. */
static uint64_t decode_by_steps(const integers_job *job, const uint8_t *codes, size_t at,
                                float *values, size_t n, amn_affine affine, size_t first,
                                size_t block) {
  const int steps = job->of.roundings, dtype = job->of.scales.rounded;
  const int by_difference = steps & AMN_ROUND_DIFFERENCES, is_last = job->of.biases.n_bytes == 0;
  const float *scales = by_difference ? job->neutral->ones : affine.scales;
  const amn_affine products = {affine.zeros, scales, job->neutral->nothings};
  uint64_t n_overflow = 0;
  job->decode(codes, at, values, n, products, first, block);
  if (by_difference) {
    n_overflow += round_values(job->level, dtype, values, n);
    multiply_each(values, n, affine.scales, first, block);
  }
  if (steps & AMN_ROUND_PRODUCTS && !(is_last && dtype == (int)job->out))
    n_overflow += round_values(job->level, dtype, values, n);
  if (is_last) return n_overflow;
  add_each(values, n, affine.biases, first, block);
  if (steps & AMN_ROUND_SUMS && dtype != (int)job->out)
    n_overflow += round_values(job->level, dtype, values, n);
  return n_overflow;
}

/* Whether the runs of a stretch may go straight to the output; the first of its codes is `begin`.
 */
static int is_direct(const integers_job *job, const integers_groups *groups,
                     const integers_stretch *at, uint64_t begin) {
  const uint64_t first = at->block - at->into % at->block;
  if (job->direct == NULL || !groups->is_plain) return 0;
  if (begin % job->kind.codes && !is_padded(job->kind)) return 0;
  return first >= at->n || (first % AMN_INTEGERS_RUN == 0 && at->block % AMN_INTEGERS_RUN == 0);
}

/* A stretch of integers, the first of which is code `begin` of src. */
static uint64_t decode_stretch(const integers_job *job, uint64_t row, const uint8_t *src,
                               uint64_t begin, uint8_t *dst, const integers_stretch *at,
                               const integers_groups *groups) {
  const integers_kind kind = job->kind;
  const size_t block = (size_t)min_u64(at->block, SIZE_MAX);
  _Alignas(64) float values[SCRATCH];
  uint8_t plane[SCRATCH];
  uint64_t n_overflow = 0;
  const int direct = is_direct(job, groups, at, begin);
  const uint64_t most = direct && !job->of.planes.bits ? at->n : SCRATCH;
  for (size_t done = 0, count; done < at->n; done += count) {
    count = (size_t)at_once(job->way, min_u64(at->n - done, most), out_bytes[job->out]);
    const uint64_t group = (done + at->into) / at->block;
    const size_t first = (size_t)min_u64(at->block - (done + at->into) % at->block, SIZE_MAX);
    const amn_affine affine = {groups->zeros + group, groups->scales + group,
                               groups->biases + group};
    const uint8_t *codes = src + (begin + done) / kind.codes * kind.bytes * width_of(job);
    const size_t place = (size_t)((begin + done) % kind.codes);
    uint8_t *to = dst + done * out_bytes[job->out], *decoded = room_for(job->way, to);
    if (job->of.planes.bits) codes = take_plane(job, row, codes, count, plane);
    if (direct) {
      job->direct(codes, place, job->out, decoded, count, affine, first, block);
    } else {
      if (job->neutral == NULL)
        job->decode(codes, place, values, count, affine, first, block);
      else
        n_overflow += decode_by_steps(job, codes, place, values, count, affine, first, block);
      n_overflow += job->level->narrow[job->out]((const uint8_t *)values, decoded, count);
    }
    leave(job->way, to, count * out_bytes[job->out]);
  }
  return n_overflow;
}

static uint64_t integers_row(const integers_job *job, uint64_t row, uint8_t *dst) {
  const amn_integers *of = &job->of;
  const uint8_t *codes = of->codes.data + line_of(job, row) * of->stride;
  const int is_listed = of->groups.n_bytes != 0;
  const uint64_t block = is_listed ? 1 : of->scales.block_cols;
  const uint64_t phase = is_listed ? 0 : of->scales.col_phase;
  const uint64_t at_once = block == 1 ? GROUPS : min_u64(block, SCRATCH) * (GROUPS - 1);
  integers_groups groups;
  uint64_t n_overflow = 0;
  for (uint64_t col = 0, count; col < of->cols; col += count) {
    count = min_u64(of->cols - col, at_once);
    const uint64_t into = (col + phase) % block;
    const integers_stretch at = {(col + phase) / block, into, block, (size_t)count,
                                 (size_t)((count - 1 + into) / block) + 1};
    n_overflow += find_groups(job, row, &at, &groups);
    n_overflow += decode_stretch(job, row, codes, of->phase + col, dst + col * out_bytes[job->out],
                                 &at, &groups);
  }
  return n_overflow;
}

/* ---- sizes ---- */

static int code_bytes(const integers_job *job, uint64_t *n_bytes) {
  const integers_kind kind = job->kind;
  uint64_t codes, rest;
  if (!add(job->of.cols, job->of.phase, &codes)) return 0;
  rest = codes % kind.codes;
  rest = is_padded(kind) && rest ? kind.bytes : (rest * kind.bits + 7) / 8;
  return multiply(codes / kind.codes, kind.bytes * width_of(job), n_bytes) &&
         add(*n_bytes, rest, n_bytes) &&
         multiply(line_of(job, job->of.rows - 1), job->of.stride, &codes) &&
         add(codes, *n_bytes, n_bytes);
}

/* The words that hold the zero points, of which the last row's end at `groups`. */
static int zero_words(const integers_job *job, uint64_t groups, uint64_t *n) {
  const integers_kind kind = job->kind;
  uint64_t end, words;
  if (!add(job->of.rows - 1, job->of.zeros_phase, &end)) return 0;
  words = end / kind.codes;
  if (!is_padded(kind))
    words = end / WORD_BITS * kind.bits + (end % WORD_BITS * kind.bits + kind.bits - 1) / WORD_BITS;
  return multiply(words, job->of.scales.stride, n) && add(*n, groups, n);
}

/* How many groups of a row are touched; a list of them may name any. */
static amn_status count_groups(const amn_integers *of, uint64_t *groups) {
  const amn_grid *grid = &of->scales;
  if (of->groups.n_bytes == 0) {
    if (!blocks_touched(of->cols, grid->col_phase, grid->block_cols, groups)) return AMN_BAD_SIZE;
    return *groups > grid->stride ? AMN_SHORT_STRIDE : AMN_OK;
  }
  *groups = grid->stride;
  if (of->cols > of->groups.n_bytes / 4) return AMN_SHORT_GROUPS;
  for (uint64_t c = 0; c < of->cols; c++)
    if (amn_load_u32(of->groups.data + 4 * c) >= grid->stride) return AMN_BAD_GROUP;
  return AMN_OK;
}

static amn_status check_groups(const integers_job *job) {
  const amn_integers *of = &job->of;
  const uint64_t item = float_bytes[of->scales.dtype];
  uint64_t groups, grid_rows, needed, words;
  const amn_status status = count_groups(of, &groups);
  if (status != AMN_OK) return status;
  if (!blocks_touched(of->rows, of->scales.row_phase, of->scales.block_rows, &grid_rows))
    return AMN_BAD_SIZE;
  if (!multiply(grid_rows - 1, of->scales.stride, &needed) || !add(needed, groups, &needed) ||
      needed > of->scales.data.n_bytes / item)
    return AMN_SHORT_SCALES;
  if (of->biases.n_bytes && needed > of->biases.n_bytes / item) return AMN_SHORT_SCALES;
  switch (of->zeros_kind) {
    case AMN_ZEROS_FLOAT:
      return needed > of->zeros.n_bytes / item ? AMN_SHORT_ZEROS : AMN_OK;
    case AMN_ZEROS_INT8:
      return needed > of->zeros.n_bytes ? AMN_SHORT_ZEROS : AMN_OK;
    case AMN_ZEROS_WORDS:
      if (!zero_words(job, groups, &words)) return AMN_BAD_SIZE;
      return words > of->zeros.n_bytes / 4 ? AMN_SHORT_ZEROS : AMN_OK;
    default:
      return AMN_OK;
  }
}

static amn_status check_integers(const integers_job *job, amn_buffer dst) {
  uint64_t n, n_bytes;
  if (!multiply(job->of.rows, job->of.cols, &n) || !multiply(n, out_bytes[job->out], &n_bytes))
    return AMN_BAD_SIZE;
  if (n == 0) return AMN_OK;
  if (n_bytes > dst.n_bytes) return AMN_SHORT_DST;
  if (!code_bytes(job, &n_bytes) || n_bytes > job->of.codes.n_bytes) return AMN_SHORT_SRC;
  return check_groups(job);
}

/* Whether there are none, or all of an item's are within it and its phase overflows nothing. */
static int are_planes(const amn_planes *planes, integers_kind kind) {
  if (planes->bits == 0) return 1;
  if ((planes->width != 1 && planes->width != WORD_BITS / 8) || kind.bits != 8) return 0;
  const int end = 8 * planes->width;
  return planes->bits > 0 && planes->bits <= 8 && planes->shift >= 0 && planes->shift < end &&
         kind.codes == 1 && planes->stacked > 0 && planes->stacked <= (uint64_t)end &&
         planes->phase < (uint64_t)end &&
         planes->shift + planes->bits * (int)planes->stacked <= end;
}

/* Whether results are rounded on the way; biases and scales are once for each group. */
static int goes_by_steps(const amn_integers *of) {
  return of->scales.rounded != AMN_OUT_F32 && of->roundings & ~AMN_ROUND_BIASES;
}

amn_status amn_dequantize_integers(int level, int code, int out, const amn_integers *integers,
                                   amn_buffer dst, uint64_t *n_overflow) {
  const amn_level *at = amn_level_at(level);
  integers_neutral neutral;
  *n_overflow = 0;
  if (at == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_INTEGERS || out < 0 || out >= AMN_N_OUTS ||
      integers->scales.dtype < 0 || integers->scales.dtype >= AMN_N_FLOATS ||
      integers->scales.rounded < 0 || integers->scales.rounded >= AMN_N_OUTS ||
      integers->zeros_kind < 0 || integers->zeros_kind >= AMN_N_ZEROS)
    return AMN_BAD_DTYPE;
  if (integers->roundings < 0 || integers->roundings > AMN_ROUND_ALL) return AMN_BAD_RULE;
  if (!are_planes(&integers->planes, kinds[code])) return AMN_BAD_WORDS;
  if (integers->scales.block_rows == 0 || integers->scales.block_cols == 0) return AMN_BAD_BLOCK;
  const int by_steps = goes_by_steps(integers);
  way_out way;
  const integers_job job = {
      .level = at,
      .decode = at->integers[code],
      .direct = out == AMN_OUT_F32 || by_steps ? NULL : at->integers_16[code],
      .out = (amn_out)out,
      .kind = kinds[code],
      .is_signed = code == AMN_INTEGERS_INT8,
      .of = *integers,
      .way = &way,
      .neutral = by_steps ? &neutral : NULL,
  };
  const amn_status status = check_integers(&job, dst);
  if (status != AMN_OK || integers->rows == 0 || integers->cols == 0) return status;
  if (job.neutral != NULL)
    for (int i = 0; i < GROUPS; i++) neutral.ones[i] = 1.0f, neutral.nothings[i] = -0.0f;
  find_way_out(&way, at, dst);
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (uint64_t r = 0; r < integers->rows; r++)
    *n_overflow += integers_row(&job, r, dst.data + r * integers->cols * out_bytes[out]);
  end_way_out(&way, at);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
