/* Integers of rows, with a grid of scales, zero points and biases. */
#include "sizes.h"
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

typedef struct {
  const amn_level *level;
  amn_integers_fn decode;
  amn_integers_16_fn direct; /* NULL: by way of float32 */
  amn_out out;
  integers_kind kind;
  int is_signed;
  amn_integers of;
} integers_job;

/* The float32 of each of some consecutive groups, or of listed ones. */
typedef struct {
  _Alignas(64) float zeros[GROUPS];
  _Alignas(64) float scales[GROUPS];
  _Alignas(64) float biases[GROUPS];
  int is_plain; /* whether no code of 8 bits becomes infinite or NaN, in the output either */
} integers_groups;

/* The line of bytes that holds a row. */
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

/* A bias is what code 0 stands for; it is added where the code is the constant zero point. */
static void find_biases(const integers_job *job, const uint8_t *row, uint64_t first, size_t n,
                        integers_groups *groups) {
  const float constant = (float)job->of.constant;
  widen_groups(job, row, first, n, groups->biases);
  if (job->of.zeros_kind != AMN_ZEROS_CONSTANT || job->of.constant == 0) return;
  for (size_t i = 0; i < n; i++) {
    const float product = constant * groups->scales[i];
    groups->biases[i] += product;
  }
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

static void find_groups(const integers_job *job, uint64_t row, uint64_t first, size_t n,
                        integers_groups *groups) {
  const amn_grid *grid = &job->of.scales;
  const uint64_t grid_row = (row + grid->row_phase) / grid->block_rows;
  const uint64_t begin = grid_row * grid->stride * float_bytes[grid->dtype];
  widen_groups(job, grid->data.data + begin, first, n, groups->scales);
  find_zeros(job, row, grid_row, first, n, groups->zeros);
  if (job->of.biases.n_bytes)
    find_biases(job, job->of.biases.data + begin, first, n, groups);
  else
    for (size_t i = 0; i < n; i++) groups->biases[i] = -0.0f; /* adds nothing, not even a sign */
  if (job->direct != NULL)
    groups->is_plain = are_plain(groups, n, job->out == AMN_OUT_F16 ? 0x1p15f : 0x1p126f);
}

/* The plane of a row, a byte a code; of two's complement where the kernel's bytes are. */
static const uint8_t *take_plane(const integers_job *job, uint64_t row, const uint8_t *src,
                                 size_t n, uint8_t *codes) {
  const amn_planes *planes = &job->of.planes;
  const int turn = (int)((row + planes->phase) % planes->stacked);
  const int shift = planes->shift + planes->bits * turn;
  const uint8_t mask = (uint8_t)((1u << planes->bits) - 1);
  const uint8_t sign = job->is_signed ? (uint8_t)(1u << (planes->bits - 1)) : 0;
  for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(((src[i] >> shift & mask) ^ sign) - sign);
  return codes;
}

/* Whether runs of codes may go straight to the output, the first of which has `first`. */
static int is_direct(const integers_job *job, const integers_groups *groups, uint64_t at, size_t n,
                     uint64_t first, uint64_t block) {
  if (job->direct == NULL || !groups->is_plain) return 0;
  if (at % job->kind.codes && !is_padded(job->kind)) return 0;
  return first >= n || (first % AMN_INTEGERS_RUN == 0 && block % AMN_INTEGERS_RUN == 0);
}

/* n integers from code `at` of a row on, whose first is `into` the first group. */
static uint64_t integers_stretch(const integers_job *job, uint64_t row, const uint8_t *src,
                                 uint64_t at, uint8_t *dst, size_t n, const integers_groups *groups,
                                 uint64_t into, uint64_t block) {
  const integers_kind kind = job->kind;
  _Alignas(64) float values[SCRATCH];
  uint8_t plane[SCRATCH];
  uint64_t n_overflow = 0;
  const int direct = is_direct(job, groups, at, n, block - into % block, block);
  const size_t at_once = direct && !job->of.planes.bits ? n : SCRATCH;
  for (size_t done = 0, count; done < n; done += count) {
    count = (size_t)min_u64(n - done, at_once);
    const uint64_t group = (done + into) / block, first = block - (done + into) % block;
    const amn_affine affine = {groups->zeros + group, groups->scales + group,
                               groups->biases + group};
    const uint8_t *codes = src + (at + done) / kind.codes * kind.bytes;
    const size_t into_word = (size_t)((at + done) % kind.codes);
    const size_t of_first = (size_t)min_u64(first, SIZE_MAX);
    const size_t of_block = (size_t)min_u64(block, SIZE_MAX);
    uint8_t *decoded = dst + done * out_bytes[job->out];
    if (job->of.planes.bits) codes = take_plane(job, row, codes, count, plane);
    if (direct) {
      job->direct(codes, into_word, job->out, decoded, count, affine, of_first, of_block);
      continue;
    }
    job->decode(codes, into_word, values, count, affine, of_first, of_block);
    n_overflow += job->level->narrow[job->out]((const uint8_t *)values, decoded, count);
  }
  return n_overflow;
}

static uint64_t integers_row(const integers_job *job, uint64_t row, uint8_t *dst) {
  const amn_integers *of = &job->of;
  const int is_listed = of->groups.n_bytes != 0;
  const uint64_t block = is_listed ? 1 : of->scales.block_cols;
  const uint64_t phase = is_listed ? 0 : of->scales.col_phase;
  const uint64_t at_once = block == 1 ? GROUPS : min_u64(block, SCRATCH) * (GROUPS - 1);
  integers_groups groups;
  uint64_t n_overflow = 0;
  for (uint64_t col = 0, count; col < of->cols; col += count) {
    const uint64_t first = (col + phase) / block, into = (col + phase) % block;
    count = min_u64(of->cols - col, at_once);
    find_groups(job, row, first, (size_t)((count - 1 + into) / block) + 1, &groups);
    n_overflow +=
        integers_stretch(job, row, of->codes.data + line_of(job, row) * of->stride, of->phase + col,
                         dst + col * out_bytes[job->out], (size_t)count, &groups, into, block);
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
  return multiply(codes / kind.codes, kind.bytes, n_bytes) && add(*n_bytes, rest, n_bytes) &&
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

/* Whether there are none, or all of a byte's are within it and its phase overflows nothing. */
static int are_planes(const amn_planes *planes, integers_kind kind) {
  if (planes->bits == 0) return 1;
  return planes->bits > 0 && planes->shift >= 0 && planes->shift < 8 && kind.bits == 8 &&
         kind.codes == 1 && planes->stacked > 0 && planes->stacked <= 8 && planes->phase < 8 &&
         planes->bits <= 8 && planes->shift + planes->bits * (int)planes->stacked <= 8;
}

amn_status amn_dequantize_integers(int level, int code, int out, const amn_integers *integers,
                                   amn_buffer dst, uint64_t *n_overflow) {
  const amn_level *at = amn_level_at(level);
  *n_overflow = 0;
  if (at == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_INTEGERS || out < 0 || out >= AMN_N_OUTS ||
      integers->scales.dtype < 0 || integers->scales.dtype >= AMN_N_FLOATS ||
      integers->zeros_kind < 0 || integers->zeros_kind >= AMN_N_ZEROS)
    return AMN_BAD_DTYPE;
  if (!are_planes(&integers->planes, kinds[code])) return AMN_BAD_WORDS;
  if (integers->scales.block_rows == 0 || integers->scales.block_cols == 0) return AMN_BAD_BLOCK;
  const integers_job job = {.level = at,
                            .decode = at->integers[code],
                            .direct = out == AMN_OUT_F32 ? NULL : at->integers_16[code],
                            .out = (amn_out)out,
                            .kind = kinds[code],
                            .is_signed = code == AMN_INTEGERS_INT8,
                            .of = *integers};
  const amn_status status = check_integers(&job, dst);
  if (status != AMN_OK || integers->rows == 0 || integers->cols == 0) return status;
  const uint64_t fp_mode = amn_fp_mode_enter();
  for (uint64_t r = 0; r < integers->rows; r++)
    *n_overflow += integers_row(&job, r, dst.data + r * integers->cols * out_bytes[out]);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
