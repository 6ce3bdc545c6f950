/* Codes relative to the largest magnitude of their block, whatever their width. */
#include "leave.h"

/* Widened to float32 at a time: whole blocks, and parts at both ends. */
#define ABSMAX_AT_ONCE 513

#define MAX_ENTRIES 16

typedef struct {
  unsigned char bits, entries;
} code_size;

static const code_size code_sizes[] = {
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) {bits, entries},
#include "../kernels.def"
};

typedef struct {
  const amn_level *level;
  int code;
  amn_out out;
  float codebook[MAX_ENTRIES];
  int codebook_is_finite;
  const amn_absmax *absmax;
  way_out *way;
} absmax_job;

static int all_finite(const float *values, size_t n) {
  uint32_t carried = 0; /* an exponent of all ones carries into the bit above it */
  for (size_t i = 0; i < n; i++) carried |= (amn_f32_bits(values[i]) & 0x7f800000u) + 0x00800000u;
  return (carried & 0x80000000u) == 0;
}

/* FP4 has two zeros, and a file's codebook gives both as +0. bitsandbytes' own kernels make -0 of
 * code 8; so does this, or an encoder could not tell the two codes apart again. */
static void restore_minus_zero(float *codebook) {
  for (int code = MAX_ENTRIES / 2; code < MAX_ENTRIES; code++)
    if (amn_f32_bits(codebook[code]) == 0) codebook[code] = -0.0f;
}

/* The codes of a stretch, the first of them `into` its block, by way of the scratch. */
static uint64_t by_scratch(const absmax_job *job, const uint8_t *src, uint8_t *dst, size_t n,
                           const float *absmax, uint64_t into) {
  const uint64_t block = job->absmax->block;
  const unsigned int bits = code_sizes[job->code].bits;
  _Alignas(64) float values[SCRATCH];
  uint64_t n_overflow = 0;
  for (size_t done = 0; done < n; done += SCRATCH) {
    const size_t count = (size_t)min_u64(n - done, SCRATCH);
    const uint64_t first = block - (done + into) % block;
    job->level->absmax[job->code](src + done * bits / 8, (uint8_t *)values, count, job->codebook,
                                  absmax + (done + into) / block, (size_t)min_u64(first, SIZE_MAX),
                                  (size_t)min_u64(block, SIZE_MAX));
    n_overflow += job->level->narrow[job->out]((const uint8_t *)values,
                                               dst + done * out_bytes[job->out], count);
  }
  return n_overflow;
}

/* The same the shortest way. Products of finite numbers are no NaNs, so that float32 stands as it
 * is decoded. */
static uint64_t stretch(const absmax_job *job, const uint8_t *src, uint8_t *dst, size_t n,
                        const float *absmax, uint64_t into) {
  const uint64_t block = job->absmax->block;
  const size_t first = (size_t)min_u64(block - into, SIZE_MAX);
  const size_t further = (size_t)min_u64(block, SIZE_MAX);
  const amn_absmax_16_fn direct = job->level->absmax_16[job->code];
  if (job->out == AMN_OUT_F32) {
    job->level->absmax[job->code](src, dst, n, job->codebook, absmax, first, further);
    if (!job->codebook_is_finite || !all_finite(absmax, (size_t)((n - 1 + into) / block) + 1))
      job->level->narrow[AMN_OUT_F32](dst, dst, n);
    return 0;
  }
  if (direct != NULL && into % AMN_ABSMAX_RUN == 0 && block % AMN_ABSMAX_RUN == 0)
    return direct(src, job->out, dst, n, job->codebook, absmax, first, further);
  return by_scratch(job, src, dst, n, absmax, into);
}

/* Stretch by stretch: an even number of codes, so that each begins with a byte. */
static uint64_t dequantize_all(const absmax_job *job, const uint8_t *src, uint8_t *dst,
                               uint64_t n) {
  const amn_absmax *absmax = job->absmax;
  const uint64_t item = float_bytes[absmax->dtype];
  const uint64_t item_bytes = out_bytes[job->out];
  const uint64_t most =
      at_once(job->way, min_u64(absmax->block, 64) * (ABSMAX_AT_ONCE - 1), item_bytes);
  _Alignas(64) float values[ABSMAX_AT_ONCE];
  uint64_t n_overflow = 0;
  for (uint64_t done = 0, count; done < n; done += count) {
    const uint64_t index = (done + absmax->phase) / absmax->block;
    const uint64_t into = (done + absmax->phase) % absmax->block;
    count = min_u64(n - done, most);
    job->level->widen[absmax->dtype](absmax->data.data + index * item, (uint8_t *)values,
                                     (size_t)((count - 1 + into) / absmax->block) + 1);
    uint8_t *to = dst + done * item_bytes;
    n_overflow += stretch(job, src + done * code_sizes[job->code].bits / 8, room_for(job->way, to),
                          (size_t)count, values, into);
    leave(job->way, to, count * item_bytes);
  }
  return n_overflow;
}

/* Whether there is an absmax for each of n codes (not 0). */
static amn_status check_absmax(const amn_absmax *absmax, uint64_t n) {
  uint64_t needed;
  if (!blocks_touched(n, absmax->phase, absmax->block, &needed) ||
      !multiply(needed, float_bytes[absmax->dtype], &needed))
    return AMN_BAD_SIZE;
  return needed <= absmax->data.n_bytes ? AMN_OK : AMN_SHORT_SCALES;
}

static amn_status check(int code, int out, amn_bytes src, amn_buffer dst, uint64_t n,
                        amn_bytes codebook, const amn_absmax *absmax) {
  const code_size size = code_sizes[code];
  const uint64_t per_byte = 8 / size.bits;
  if (codebook.n_bytes != size.entries * sizeof(float)) return AMN_BAD_CODEBOOK;
  if (n == 0) return AMN_OK;
  if ((n - 1) / per_byte >= src.n_bytes) return AMN_SHORT_SRC;
  if (n > dst.n_bytes / out_bytes[out]) return AMN_SHORT_DST;
  return check_absmax(absmax, n);
}

amn_status amn_dequantize_absmax(int level, int code, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t n, amn_bytes codebook, const amn_absmax *absmax,
                                 uint64_t *n_overflow) {
  way_out way;
  absmax_job job = {.level = amn_level_at(level),
                    .code = code,
                    .out = (amn_out)out,
                    .absmax = absmax,
                    .way = &way};
  *n_overflow = 0;
  if (job.level == NULL) return AMN_BAD_LEVEL;
  if (code < 0 || code >= AMN_N_ABSMAX || out < 0 || out >= AMN_N_OUTS ||
      !is_convertible(absmax->dtype))
    return AMN_BAD_DTYPE;
  if (absmax->block == 0) return AMN_BAD_BLOCK;
  const amn_status status = check(code, out, src, dst, n, codebook, absmax);
  if (status != AMN_OK || n == 0) return status;
  if (codebook.n_bytes > 0) memcpy(job.codebook, codebook.data, (size_t)codebook.n_bytes);
  if (code == AMN_ABSMAX_CODEBOOK4) restore_minus_zero(job.codebook);
  job.codebook_is_finite = all_finite(job.codebook, code_sizes[code].entries);
  find_way_out(&way, job.level, dst);
  const uint64_t fp_mode = amn_fp_mode_enter();
  *n_overflow = dequantize_all(&job, src.data, dst.data, n);
  end_way_out(&way, job.level);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}

/* Once per band and a small part of it: no level has its own code for it. */
static void recover(const uint8_t *codes, uint8_t *dst, uint64_t n, const float codebook[256],
                    const amn_absmax *absmax, float offset) {
  const uint8_t *scales = absmax->data.data + absmax->phase / absmax->block * sizeof(float);
  uint64_t left = absmax->block - absmax->phase % absmax->block;
  for (uint64_t i = 0; n > 0; scales += sizeof(float), left = absmax->block) {
    const float scale = amn_f32_from_bits(amn_load_u32(scales));
    const uint64_t end = i + min_u64(left, n);
    n -= end - i;
    for (; i < end; i++)
      amn_store_u32(dst + 4 * i, amn_f32_bits(codebook[codes[i]] * scale + offset));
  }
}

amn_status amn_recover_absmax(amn_bytes src, amn_buffer dst, amn_bytes codebook,
                              const amn_absmax *absmax, float offset) {
  float entries[256];
  if (absmax->dtype != AMN_FLOAT_F32) return AMN_BAD_DTYPE;
  if (absmax->block == 0) return AMN_BAD_BLOCK;
  if (codebook.n_bytes != sizeof entries) return AMN_BAD_CODEBOOK;
  if (src.n_bytes == 0) return AMN_OK;
  if (src.n_bytes > dst.n_bytes / sizeof(float)) return AMN_SHORT_DST;
  const amn_status status = check_absmax(absmax, src.n_bytes);
  if (status != AMN_OK) return status;
  memcpy(entries, codebook.data, sizeof entries);
  const uint64_t fp_mode = amn_fp_mode_enter();
  recover(src.data, dst.data, src.n_bytes, entries, absmax, offset);
  amn_fp_mode_leave(fp_mode);
  return AMN_OK;
}
