/* Every kernel on bytes from a fixed generator, without Python: what .ci/cross runs on machines
 * that are emulated.
 *
 * Each level that this CPU has must give the bytes of scalar, stored past the caches where it can. For each kernel, output and dtype of
 * scales, and for each encoder of GGUF blocks with and without importance, a line is printed with a
 * hash of the result; kernels.txt has the lines of x86-64, which are those of every machine. */
#include "kernels/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 45
#define COLS 512
#define N ((size_t)ROWS * COLS)
#define OUT_BYTES (N * 8)
#define SRC_BYTES (N * 8)
#define ENCODED_ROWS 6 /* fewer, for some encoders take long */

/* From an odd address on, so that no kernel can count on an alignment. */
static uint8_t src_room[SRC_BYTES + 1], scales_room[N * 8 + 1], zeros_room[N * 4 + 1];
static uint8_t outs[2][OUT_BYTES + 1];
static uint8_t groups_room[COLS * 4];
static uint8_t work_room[AMN_TRELLIS_WORK];
static float numbers[ENCODED_ROWS * COLS], importance[COLS];

static int failures;

/* splitmix64 */
static void fill(uint8_t *data, size_t n_bytes, uint64_t seed) {
  for (size_t i = 0; i < n_bytes; i++) {
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    data[i] = (uint8_t)((z ^ (z >> 31)) >> 56);
  }
}

/* FNV-1a */
static uint64_t hash(uint64_t seed, const uint8_t *data, size_t n_bytes) {
  for (size_t i = 0; i < n_bytes; i++) seed = (seed ^ data[i]) * UINT64_C(0x100000001b3);
  return seed;
}

/* A call of a kernel at a level, into `out_bytes` bytes; `of` and `with` are rows of the table. */
typedef amn_status call(int level, const amn_kernel *of, const amn_kernel *out,
                        const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow);

static amn_bytes part(const uint8_t *room, uint64_t n_bytes) {
  amn_bytes bytes = {room + 1, n_bytes};
  return bytes;
}

static int output_id(const char *name) {
  const amn_kernel *row;
  for (int i = 0; (row = amn_kernel_at(i)) != NULL; i++)
    if (strcmp(row->family, "output") == 0 && strcmp(row->name, name) == 0) return row->id;
  return -1;
}

static amn_status rounded_to(int rounded, int level, const amn_kernel *of, const amn_kernel *out,
                             const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  const uint64_t block_rows = 16, block_cols = 48, grid_rows = 4, stride = 12;
  amn_grid grid = {part(scales_room, grid_rows * stride * (uint64_t)with->item_bytes),
                   with->id,
                   rounded,
                   stride,
                   block_rows,
                   block_cols,
                   5,
                   7};
  return amn_dequantize_scaled(level, of->id, out->id, part(src_room, N), dst, ROWS, COLS, &grid,
                               n_overflow);
}

static amn_status scaled(int level, const amn_kernel *of, const amn_kernel *out,
                         const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  return rounded_to(output_id("F32"), level, of, out, with, dst, n_overflow);
}

static amn_status rounded(int level, const amn_kernel *of, const amn_kernel *out,
                          const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  return rounded_to(out->id, level, of, out, with, dst, n_overflow);
}

static amn_status absmax(int level, const amn_kernel *of, const amn_kernel *out,
                         const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  const int has_codebook = of->item_elements > 1;
  amn_bytes codebook = part(zeros_room, has_codebook ? 16 * 4 : 0);
  amn_absmax blocks = {part(scales_room, (N / 64 + 1) * (uint64_t)with->item_bytes), with->id, 64,
                       9};
  uint64_t n = N - (uint64_t)of->item_elements;
  dst.n_bytes -= (uint64_t)(of->item_elements * out->item_bytes);
  return amn_dequantize_absmax(level, of->id, out->id,
                               part(src_room, n / (uint64_t)of->item_elements), dst, n, codebook,
                               &blocks, n_overflow);
}

static amn_status widened(int level, const amn_kernel *of, const amn_kernel *out,
                          const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  (void)with;
  return amn_convert(level, of->id, out->id, part(src_room, N * (uint64_t)of->item_bytes), dst,
                     n_overflow);
}

static amn_status block(int level, const amn_kernel *of, const amn_kernel *out,
                        const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  (void)with;
  uint64_t n_bytes = N / (uint64_t)of->item_elements * (uint64_t)of->item_bytes;
  return amn_dequantize_blocks(level, of->id, out->id, part(src_room, n_bytes), dst, n_overflow);
}

/* Words hold 8 codes, in or out features, so that both numbers are multiples of 32. */
static amn_status packed(int level, const amn_kernel *of, const amn_kernel *out,
                         const amn_kernel *with, int in_order, amn_buffer dst,
                         uint64_t *n_overflow) {
  const uint64_t rows = 32, group = 64, n_groups = COLS / group, bits = (uint64_t)of->item_bytes;
  amn_buffer stage = {NULL, 0, 0};
  amn_groups groups = {
      .zeros = part(zeros_room, n_groups * rows * bits / 8),
      .scales = part(scales_room, n_groups * rows * (uint64_t)with->item_bytes),
      .groups = {groups_room, in_order ? 0 : sizeof groups_room},
      .scale_dtype = with->id,
      .zeros_less_one = in_order,
      .group_size = group,
      .first_col = 0,
  };
  dst.n_bytes = rows * COLS * (uint64_t)out->item_bytes;
  return amn_dequantize_packed(level, of->id, out->id, part(src_room, rows * COLS * bits / 8), dst,
                               rows, COLS, 0, rows, &groups, stage, n_overflow);
}

static amn_status in_order(int level, const amn_kernel *of, const amn_kernel *out,
                           const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  return packed(level, of, out, with, 1, dst, n_overflow);
}

static amn_status act_order(int level, const amn_kernel *of, const amn_kernel *out,
                            const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  return packed(level, of, out, with, 0, dst, n_overflow);
}

static amn_status trellis(int level, const amn_kernel *of, const amn_kernel *out,
                          const amn_kernel *with, amn_buffer dst, uint64_t *n_overflow) {
  const uint64_t n = AMN_TRELLIS_BLOCK;
  const int bits = 3 + of->id;
  const amn_buffer work = {work_room, sizeof work_room, 0};
  const amn_trellis both = {
      .tiles = part(src_room, n * n * (uint64_t)bits / 8),
      .in_scales = part(scales_room, n * 2),
      .out_scales = part(zeros_room, n * 2),
      .bits = bits,
      .cols = n,
      .first_row = 3,
      .n_rows = n - 3,
      .first_col = 5,
      .n_cols = n - 7,
  };
  (void)with;
  return amn_dequantize_trellis(level, of->id, out->id, &both, dst, work, n_overflow);
}

/* Which rows another row is combined with: none, the floats, or the dtypes of scales. */
typedef enum { ALONE, FLOATS, SCALES } companions;

static int goes_with(companions which, const amn_kernel *other) {
  if (strcmp(other->family, "convert") == 0) return which != ALONE;
  return which == SCALES && strcmp(other->family, "scale") == 0;
}

static void compare(const char *what, call *run, const amn_kernel *of, const amn_kernel *out,
                    const amn_kernel *with) {
  uint64_t n_bytes = N * (uint64_t)out->item_bytes, expected = 0;
  for (int level = 0; amn_level_name(level) != NULL; level++) {
    if (!amn_level_supported(level)) continue;
    uint8_t *room = outs[level > 0];
    uint64_t n_overflow = 0;
    amn_buffer dst = {room + 1, n_bytes, 1};
    memset(room, 0xa5, OUT_BYTES + 1);
    amn_status status = run(level, of, out, with, dst, &n_overflow);
    if (level == 0) expected = n_overflow;
    if (status != AMN_OK || n_overflow != expected || memcmp(room, outs[0], OUT_BYTES + 1) != 0) {
      fprintf(stderr, "%s %s to %s at %s: status %d, or not what scalar gives\n", what, of->name,
              out->name, amn_level_name(level), (int)status);
      failures++;
    }
  }
  printf("%s %s %s %s %016" PRIx64 " %" PRIu64 "\n", what, of->name, out->name,
         with ? with->name : "-", hash(UINT64_C(0xcbf29ce484222325), outs[0] + 1, n_bytes),
         expected);
}

static void each(const char *family, const char *what, call *run, companions which) {
  const amn_kernel *of, *out, *with;
  for (int i = 0; (of = amn_kernel_at(i)) != NULL; i++) {
    if (strcmp(of->family, family) != 0) continue;
    for (int j = 0; (out = amn_kernel_at(j)) != NULL; j++) {
      if (strcmp(out->family, "output") != 0) continue;
      if (which == ALONE) compare(what, run, of, out, NULL);
      for (int k = 0; (with = amn_kernel_at(k)) != NULL; k++)
        if (goes_with(which, with)) compare(what, run, of, out, with);
    }
  }
}

/* Of 16 bits, as every machine has them: of another magnitude in each block. */
static void make_numbers(void) {
  for (size_t i = 0; i < ENCODED_ROWS * COLS; i++) {
    const int number = (src_room[2 * i] | src_room[2 * i + 1] << 8) - 0x8000;
    numbers[i] = (float)number / (float)(1 << (i / 32 % 14 + 2));
  }
  for (size_t i = 0; i < COLS; i++) importance[i] = (float)scales_room[i] / 16.0f;
}

static void compare_encoder(const amn_kernel *of, int is_weighed) {
  const amn_encoding how = {
      .type = of->id,
      .rows = ENCODED_ROWS,
      .cols = COLS,
      .weights = {(const uint8_t *)importance, is_weighed ? sizeof importance : 0},
  };
  const amn_bytes src = {(const uint8_t *)numbers, sizeof numbers};
  for (int level = 0; amn_level_name(level) != NULL; level++) {
    if (!amn_level_supported(level)) continue;
    uint8_t *room = outs[level > 0];
    uint64_t where = 0;
    amn_buffer dst = {room + 1, sizeof numbers, 0};
    memset(room, 0xa5, OUT_BYTES + 1);
    const amn_status status = amn_encode_blocks(level, &how, src, dst, NULL, &where);
    if (status != AMN_OK || memcmp(room, outs[0], OUT_BYTES + 1) != 0) {
      fprintf(stderr, "encode %s at %s: status %d, or not what scalar gives\n", of->name,
              amn_level_name(level), (int)status);
      failures++;
    }
  }
  printf("encode %s %s - %016" PRIx64 " 0\n", of->name, is_weighed ? "importance" : "-",
         hash(UINT64_C(0xcbf29ce484222325), outs[0] + 1, sizeof numbers));
}

static void each_encoder(void) {
  const amn_kernel *of;
  for (int i = 0; (of = amn_kernel_at(i)) != NULL; i++) {
    if (strcmp(of->family, "encode") != 0) continue;
    const int weights = amn_encoder_weights(of->id);
    if (weights != AMN_WEIGHTS_REQUIRED) compare_encoder(of, 0);
    if (weights != AMN_WEIGHTS_IGNORED) compare_encoder(of, 1);
  }
}

int main(void) {
  fill(src_room, sizeof src_room, 1);
  fill(scales_room, sizeof scales_room, 2);
  fill(zeros_room, sizeof zeros_room, 3);
  for (size_t i = 0; i < COLS; i++) groups_room[4 * i] = (uint8_t)(i * 37 % (COLS / 64));
  each("scaled", "scaled", scaled, SCALES);
  each("scaled", "rounded", rounded, SCALES);
  each("absmax", "absmax", absmax, FLOATS);
  each("convert", "convert", widened, ALONE);
  each("block", "block", block, ALONE);
  each("packed", "packed", in_order, SCALES);
  each("packed", "act-order", act_order, SCALES);
  each("trellis", "trellis", trellis, ALONE);
  make_numbers();
  each_encoder();
  for (int level = 0; amn_level_name(level) != NULL; level++)
    if (amn_level_supported(level)) fprintf(stderr, "tested: %s\n", amn_level_name(level));
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
