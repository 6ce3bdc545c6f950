/* What a kernel is, and what a level is: shared by the driver and the levels. */
#ifndef AMN_LEVELS_H
#define AMN_LEVELS_H

#include "kernels.h"
#include "amn_platform.h"

/* Ids: positions in the tables below, in the order of kernels.def. */
typedef enum {
#define SCALED(NAME, name, to_f32, to_bf16) AMN_CODE_##NAME,
#include "kernels.def"
  AMN_N_CODES
} amn_code;

typedef enum {
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) AMN_ABSMAX_##NAME,
#include "kernels.def"
  AMN_N_ABSMAX
} amn_absmax_code;

typedef enum {
#define WIDEN(family, NAME, name, item_bytes, levels) AMN_FLOAT_##NAME,
#include "kernels.def"
  AMN_N_FLOATS
} amn_float;

typedef enum {
#define NARROW(NAME, name, item_bytes, levels) AMN_OUT_##NAME,
#include "kernels.def"
  AMN_N_OUTS
} amn_out;

typedef enum {
#define PACKED(layout, NAME, name, bits, to_f32, to_16) AMN_PACKING_##NAME,
#include "kernels.def"
  AMN_N_PACKINGS
} amn_packing;

typedef enum {
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) AMN_INTEGERS_##NAME,
#include "kernels.def"
  AMN_N_INTEGERS
} amn_integers_code;

typedef enum {
#define TRELLIS(NAME, name, levels) AMN_TRELLIS_##NAME,
#include "kernels.def"
  AMN_N_TRELLISES
} amn_trellis_code;

typedef enum {
#define SOURCE(NAME, name, item_bytes, levels) AMN_SOURCE_##NAME,
#include "kernels.def"
  AMN_N_SOURCES
} amn_source;

typedef enum {
#define QUANTIZE(NAME, name, bits, largest, levels) AMN_QUANTIZE_##NAME,
#include "kernels.def"
  AMN_N_QUANTIZE
} amn_quantize_code;

typedef enum {
#define PACK(NAME, name, bits, levels) AMN_PACK_##NAME,
#include "kernels.def"
  AMN_N_PACK
} amn_pack_code;

typedef enum {
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) AMN_BLOCK_##NAME,
#include "blocks.def"
  AMN_N_BLOCKS
} amn_block;

typedef enum {
#define ENCODE(NAME, name, weights, levels) AMN_ENCODE_##NAME,
#include "blocks.def"
  AMN_N_ENCODERS
} amn_encoder;

/* Kernels cannot fail, allocate or check: the driver has done that. Arrays may lie at any address
 * and must not overlap. Those that can turn a finite number into an infinity return how many they
 * did.
 */

/* n codes of one row times their scales. The first `first` codes belong to scales[0], each further
 * `block` codes to the next scale. To float32 at dst; to bfloat16 for the _bf16 kind, which takes
 * any first and block but is only worth calling for blocks of AMN_MIN_RUN or more. */
typedef void (*amn_scaled_fn)(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                              size_t first, size_t block);
typedef uint64_t (*amn_scaled_bf16_fn)(const uint8_t *src, uint8_t *dst, size_t n,
                                       const float *scales, size_t first, size_t block);

/* n codes with the absmax of their blocks, which count as above; codes of 4 bits start with a byte.
 * The _16 kind, to bfloat16 or half floats, wants first and block to be multiples of
 * AMN_ABSMAX_RUN. */
typedef void (*amn_absmax_fn)(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook,
                              const float *absmax, size_t first, size_t block);
typedef uint64_t (*amn_absmax_16_fn)(const uint8_t *src, amn_out out, uint8_t *dst, size_t n,
                                     const float *codebook, const float *absmax, size_t first,
                                     size_t block);

/* n numbers to float32 at dst. NaNs stay NaNs, of any payload. */
typedef uint64_t (*amn_widen_fn)(const uint8_t *src, uint8_t *dst, size_t n);

/* n < 2^32 float32 numbers to an output, rounded to nearest even; every NaN becomes the quiet one.
 * float32 to float32 may be in place. */
typedef uint64_t (*amn_narrow_fn)(const uint8_t *src, uint8_t *dst, size_t n);

#define AMN_MIN_RUN 32
#define AMN_ABSMAX_RUN 16

/* What bitsandbytes multiplies by where it means 1 / 127. */
#define AMN_ONE_127TH ((float)7.874015718698502e-3)

/* n GGUF blocks to float32 at dst, which is aligned to 4 bytes. NaNs stay NaNs, of any payload. */
typedef void (*amn_block_fn)(const uint8_t *src, float *dst, size_t n);

/* The same to bfloat16, rounded and canonical as `narrow` does it. */
typedef uint64_t (*amn_block_bf16_fn)(const uint8_t *src, uint8_t *dst, size_t n);

/* A tile of a band of packed integers: its words, `stride` of them to a line; the first out and in
 * feature of the tile, multiples of the units; and how many there are. */
#define AMN_TILE_COLS 512
#define AMN_TILE_ENTRIES 4096 /* room for so many zero points: of groups times out features */
#define AMN_TILE_UNIT_ROWS 8  /* a tile of whole units is not ragged */
#define AMN_TILE_UNIT_COLS 32

typedef struct {
  const uint8_t *words;
  size_t stride;
  size_t row, col;
  size_t rows, cols;        /* at most AMN_TILE_ROWS, AMN_TILE_COLS */
  const uint16_t *group_of; /* where each column's group begins among the entries */
  size_t run;      /* if not 0: a multiple of the unit, and that is at c / run * AMN_TILE_ROWS */
  int is_streamed; /* whether results go past the caches; if so, rows begin with a cache line */
} amn_tile;

/* Zero points and scales of the tile's out features, group by group: out feature r of the tile has
 * entry r of a group. */
typedef struct {
  _Alignas(64) float zeros[AMN_TILE_ENTRIES];
  _Alignas(64) float scales[AMN_TILE_ENTRIES];
} amn_tile_groups;

/* A tile to float32, transposed: its rows are `dst_stride` bytes apart. NaNs stay NaNs, of any
 * payload. */
typedef void (*amn_packed_fn)(const amn_tile *tile, const amn_tile_groups *groups, uint8_t *dst,
                              size_t dst_stride);

/* A tile that is not ragged to bfloat16 or half floats. No product of its codes and scales may be
 * infinite or NaN, rounded or not. */
typedef void (*amn_packed_16_fn)(const amn_tile *tile, const amn_tile_groups *groups, amn_out out,
                                 uint8_t *dst, size_t dst_stride);

/* n zero points of a line of words, from value `first`, a multiple of AMN_TILE_UNIT_ROWS, on; to
 * each `shift` is added, modulo 2^bits. */
typedef void (*amn_zeros_fn)(const uint8_t *words, size_t first, size_t n, int shift, float *zeros);

/* A copy of rows, each `stride` bytes after the one before, that leaves no whole line of it in a
 * cache; and what puts all such copies before all later stores. */
typedef void (*amn_stream_fn)(const uint8_t *src, size_t src_stride, uint8_t *dst,
                              size_t dst_stride, size_t rows, size_t row_bytes);
typedef void (*amn_stream_end_fn)(void);

/* What is done with the codes of each block of a row: (code - zero) * scale + bias. */
typedef struct {
  const float *zeros, *scales, *biases;
} amn_affine;

/* n integers, the first of which is code `at` of src, to float32 at dst. The first `first` belong
 * to the first block. NaNs stay NaNs, of any payload. */
typedef void (*amn_integers_fn)(const uint8_t *src, size_t at, float *dst, size_t n,
                                amn_affine affine, size_t first, size_t block);

/* The same to bfloat16 or half floats. The first code begins a byte, unless codes are padded;
 * blocks that begin and end within the call have a multiple of AMN_INTEGERS_RUN codes. No result
 * may be infinite or NaN, rounded or not, of any code of 8 bits. */
#define AMN_INTEGERS_RUN 32
typedef void (*amn_integers_16_fn)(const uint8_t *src, size_t at, amn_out out, uint8_t *dst,
                                   size_t n, amn_affine affine, size_t first, size_t block);

/* AMN_TRELLIS_BLOCK out features of as many in features of a trellis, whose rows of tiles are
 * `stride` bytes apart, to float32: all in features of an out feature, then those of the next. NaNs
 * stay NaNs, of any payload. */
#define AMN_TRELLIS_TILE 16
#define AMN_TRELLIS_CODES (AMN_TRELLIS_TILE * AMN_TRELLIS_TILE)
#define AMN_TRELLIS_STATE 16             /* bits of the stream that choose a value */
#define AMN_TRELLIS_NORM 0.088388347648f /* 1 / sqrt(128), as exllamav3 writes it */

typedef struct {
  const uint8_t *tiles;
  size_t stride;
  int bits;
  const float *in_scales, *out_scales;
} amn_trellis_block;

typedef void (*amn_trellis_fn)(const amn_trellis_block *block, float *dst);

/* Of each block of n numbers, the last of which may be shorter: the bits of its largest magnitude
 * in float32, if that is more than maxima[i]; its least and its largest value, if they are below
 * low[i] and above high[i]. Only the former may meet infinities and NaNs, which come out as such.
 */
typedef void (*amn_amax_fn)(const uint8_t *src, size_t n, size_t block, uint32_t *maxima);
typedef void (*amn_range_fn)(const uint8_t *src, size_t n, size_t block, float *low, float *high);

/* How the numbers of a call are encoded: n of them, all finite, in blocks of which the last may be
 * shorter. With is_divided, a number is divided by its block's scale, a zero point is added to
 * that, and both results are rounded to `rounded`; else it is multiplied by `forward` (which is 1 /
 * scale with is_divided) and rounded in the same way, or divided in float32 by `divisor`, which
 * only the scalar kernels know. `rounded` is the source or F32: of E2M1 either, else the source
 * with is_divided and F32 without. With is_within, scales are those of the largest magnitudes, or
 * ranges, of the numbers' own blocks. What a code stands for, less the zero point, times the scale
 * is its value; of INT8_ABSMAX, times AMN_ONE_127TH.
 */
typedef struct {
  amn_source source, rounded;
  int is_divided, is_within;
  size_t n, block;
  const float *forward, *scales, *zeros; /* zeros: NULL, or whole numbers */
  float divisor;                         /* 0: none */
} amn_quantize_run;

/* Errors are added up in float32 in so many lanes, a group of values of a block at a time, the last
 * of which ends with zeros: to lane i come those of values 2i and 2i + 1 of the group's first half,
 * and of its second half, (a + b) + (c + d). A run begins with a row; it ends where a block does,
 * or where AMN_LOSS_RUN values of one do, as soon as it has so many values. Then its lanes are
 * added to the sums. */
#define AMN_LOSS_LANES 8
#define AMN_LOSS_GROUP 32
#define AMN_LOSS_RUN 2048

typedef struct {
  float absolute[AMN_LOSS_LANES], squared[AMN_LOSS_LANES], power[AMN_LOSS_LANES];
} amn_loss_run;

/* Of the values of a row so far; n: those of the run that has not ended. */
typedef struct {
  amn_loss_run run;
  size_t n;
  double absolute[AMN_LOSS_LANES], squared[AMN_LOSS_LANES], power[AMN_LOSS_LANES];
  float largest[AMN_LOSS_LANES];
} amn_loss_lanes;

/* One byte for each code, whatever its bits. Nothing is measured if `lanes` is NULL. */
typedef void (*amn_quantize_fn)(const uint8_t *src, uint8_t *codes, const amn_quantize_run *run,
                                amn_loss_lanes *lanes);

/* How the numbers of a call are packed: n of them in blocks, both multiples of AMN_PACK_UNIT, all
 * of the same row. A code is round((number - bias) / scale) + zero, to nearest even, kept within
 * its bits; a NaN becomes 0. With is_half, numbers and quotients are first rounded to half floats.
 * With is_twice, which has no biases, the number that a code stands for is rounded to the source's
 * dtype and encoded once more. Errors are of (code - zero) * stored scale + stored bias. */
typedef struct {
  amn_source source;
  int is_half, is_twice;
  size_t n, block;
  const float *scales, *biases, *zeros;
  const float *stored_scales, *stored_biases;
} amn_pack_run;

#define AMN_PACK_UNIT 32 /* divides AMN_LOSS_RUN, after which a run of errors ends here */

/* Codes low bits first, n * bits / 8 bytes. Nothing is measured if `lanes` is NULL. */
typedef void (*amn_pack_fn)(const uint8_t *src, uint8_t *dst, const amn_pack_run *run,
                            amn_loss_lanes *lanes);

/* `rows` of `cols` finite numbers, whole blocks, to GGUF blocks. `weights` says how important each
 * column is, or is NULL; REQUIRED ones are never NULL. Numbers too large for a block's scale make
 * it infinite or a NaN. */
typedef void (*amn_encode_fn)(const float *src, uint8_t *dst, size_t rows, size_t cols,
                              const float *weights);

/* The errors of n numbers, a multiple of AMN_LOSS_LANES, against what their codes stand for: number
 * i counts in lane i % AMN_LOSS_LANES. A call is a run. */
typedef void (*amn_measure_fn)(const float *values, const float *decoded, size_t n,
                               amn_loss_lanes *lanes);

/* Of n pairs, a multiple of AMN_COMPARE_GROUP, as float32: in lane i % AMN_COMPARE_LANES, those of
 * equal bits and the largest |a - b|. Sums of a run of AMN_COMPARE_RUN pairs, the last of which may
 * be shorter, are of float32 in as many lanes as a group has pairs; its halves are added, and that
 * to `sums`. Where a sum is infinite or a NaN, all else is undefined. */
#define AMN_COMPARE_GROUP 16
#define AMN_COMPARE_LANES 8
#define AMN_COMPARE_RUN 512

typedef struct {
  double sums[AMN_COMPARE_SUMS][AMN_COMPARE_LANES];
  float largest[AMN_COMPARE_LANES];
  uint32_t n_equal[AMN_COMPARE_LANES];
} amn_compare_lanes;

typedef void (*amn_compare_fn)(const uint8_t *a, const uint8_t *b, size_t n,
                               amn_compare_lanes *lanes);

/* Adds n words of `words` to what is found of those before; all but the rows. */
typedef void (*amn_check_fn)(const uint8_t *src, size_t n, const amn_words *words,
                             amn_check *found);

/* Groups of numbers, a power of 4 in each, times H / sqrt(group): H4 is 1, and -1 where the digits
 * of row and column are 3 together, and H is its Kronecker power. Sums are in order within a panel,
 * and so are the sums of panels; of 4 numbers, those of even ones and of odd ones are added. */
#define AMN_ROTATION_LARGEST 4096
#define AMN_ROTATION_PANEL(group) ((group) == 256 ? (size_t)128 : (size_t)192)

/* Whether H has -1 there: digits are 3 together where both of their bits differ. */
static inline int amn_is_turned(size_t row, size_t column) {
  size_t both = row ^ column;
  both &= both >> 1 & 0x5555;
  both ^= both >> 8;
  both ^= both >> 4;
  return (int)((both ^ both >> 2) & 1);
}

static inline float amn_rotation_norm(size_t group) {
  float norm = 1;
  for (; group > 1; group /= 4) norm /= 2;
  return norm;
}

typedef void (*amn_rotate_fn)(const float *src, float *dst, size_t n_groups, size_t group);

/* How many rows the table of kernels has: a kernel to float32 and its kind straight to another
 * output have one each. */
enum {
  AMN_N_KERNELS = 0
#define SCALED(NAME, name, to_f32, to_bf16) +2
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) +2
#define WIDEN(family, NAME, name, item_bytes, levels) +1
#define NARROW(NAME, name, item_bytes, levels) +1
#define PACKED(layout, NAME, name, bits, to_f32, to_16) +2
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) +2
#define TRELLIS(NAME, name, levels) +1
#define SOURCE(NAME, name, item_bytes, levels) +2
#define QUANTIZE(NAME, name, bits, largest, levels) +1
#define PACK(NAME, name, bits, levels) +1
#include "kernels.def"
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) +2
#define ENCODE(NAME, name, weights, levels) +1
#include "blocks.def"
};

/* level_table.h makes one. */
typedef struct {
  const char *name;
  int (*is_supported)(void); /* by this CPU, under this operating system; NULL: by any */
  unsigned char native[AMN_N_KERNELS];
  amn_stream_fn stream; /* NULL: all stores go through the caches */
  amn_stream_end_fn stream_end;
  amn_scaled_fn scaled[AMN_N_CODES];
  amn_scaled_bf16_fn scaled_bf16[AMN_N_CODES]; /* NULL: by way of float32 */
  amn_absmax_fn absmax[AMN_N_ABSMAX];
  amn_absmax_16_fn absmax_16[AMN_N_ABSMAX]; /* NULL: by way of float32 */
  amn_widen_fn widen[AMN_N_FLOATS];
  amn_narrow_fn narrow[AMN_N_OUTS];
  amn_packed_fn packed[AMN_N_PACKINGS];
  amn_zeros_fn zeros[AMN_N_PACKINGS];
  amn_packed_16_fn packed_16[AMN_N_PACKINGS]; /* NULL: by way of float32 */
  amn_integers_fn integers[AMN_N_INTEGERS];
  amn_integers_16_fn integers_16[AMN_N_INTEGERS]; /* NULL: by way of float32 */
  amn_trellis_fn trellis[AMN_N_TRELLISES];
  amn_amax_fn amax[AMN_N_SOURCES];
  amn_range_fn range[AMN_N_SOURCES];
  amn_compare_fn compare[AMN_N_SOURCES];
  amn_quantize_fn quantize[AMN_N_QUANTIZE];
  amn_pack_fn pack[AMN_N_PACK];
  amn_block_fn block[AMN_N_BLOCKS];
  amn_block_bf16_fn block_bf16[AMN_N_BLOCKS]; /* NULL: by way of float32 */
  amn_encode_fn encode[AMN_N_ENCODERS];
  amn_measure_fn measure; /* what they make */
  amn_rotate_fn rotate;
  amn_check_fn check;
} amn_level;

/* The levels of this build, slowest first: each needs more of the CPU than the one before. */
#if defined(AMN_ARCH_X86_64)
#define AMN_LEVELS(LEVEL) LEVEL(scalar) LEVEL(avx2) LEVEL(avx512)
#elif defined(AMN_ARCH_AARCH64)
#define AMN_LEVELS(LEVEL) LEVEL(scalar) LEVEL(neon)
#else
#define AMN_LEVELS(LEVEL) LEVEL(scalar)
#endif

#define LEVEL(name) extern const amn_level amn_level_##name;
AMN_LEVELS(LEVEL)
#undef LEVEL

/* The scalar kernels by name: what an N in kernels.def and blocks.def means. */
#define SCALED(NAME, name, to_f32, to_bf16)                                                    \
  void scaled_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales, \
                              size_t first, size_t block);
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16)                                         \
  void absmax_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *codebook, \
                              const float *absmax, size_t first, size_t block);
#define WIDEN(family, NAME, name, item_bytes, levels) \
  uint64_t widen_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n);
#define NARROW(NAME, name, item_bytes, levels) \
  uint64_t narrow_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n);
#define PACKED(layout, NAME, name, bits, to_f32, to_16)                                          \
  void packed_##name##_scalar(const amn_tile *tile, const amn_tile_groups *groups, uint8_t *dst, \
                              size_t dst_stride);                                                \
  void zeros_##name##_scalar(const uint8_t *words, size_t first, size_t n, int shift, float *zeros);
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16)              \
  void integers_##name##_scalar(const uint8_t *src, size_t at, float *dst, size_t n, \
                                amn_affine affine, size_t first, size_t block);
#define TRELLIS(NAME, name, levels) \
  void trellis_##name##_scalar(const amn_trellis_block *block, float *dst);
#include "kernels.def"

#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  void dequant_##name##_scalar(const uint8_t *src, float *dst, size_t n);
#include "blocks.def"

#define OF_LEVEL(kernel) kernel##_scalar
#include "encoder_prototypes.h"
#undef OF_LEVEL
#if defined(AMN_ARCH_X86_64) /* what an X means */
#define OF_LEVEL(kernel) kernel##_avx2
#include "encoder_prototypes.h"
#undef OF_LEVEL
#endif

/* dispatch.c: the level of that number, or NULL. */
const amn_level *amn_level_at(int level);

#endif /* AMN_LEVELS_H */
