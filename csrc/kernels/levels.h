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
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) AMN_BLOCK_##NAME,
#include "blocks.def"
  AMN_N_BLOCKS
} amn_block;

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
  size_t run; /* if not 0: a multiple of the unit, and that is at c / run * AMN_TILE_ROWS */
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
 * cache. */
typedef void (*amn_stream_fn)(const uint8_t *src, size_t src_stride, uint8_t *dst,
                              size_t dst_stride, size_t rows, size_t row_bytes);

/* How many rows the table of kernels has: a kernel to float32 and its kind straight to another
 * output have one each. */
enum {
  AMN_N_KERNELS = 0
#define SCALED(NAME, name, to_f32, to_bf16) +2
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) +2
#define WIDEN(family, NAME, name, item_bytes, levels) +1
#define NARROW(NAME, name, item_bytes, levels) +1
#define PACKED(layout, NAME, name, bits, to_f32, to_16) +2
#include "kernels.def"
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) +2
#include "blocks.def"
};

/* level_table.h makes one. */
typedef struct {
  const char *name;
  int (*is_supported)(void); /* by this CPU, under this operating system; NULL: by any */
  unsigned char native[AMN_N_KERNELS];
  amn_stream_fn stream; /* NULL: all stores go through the caches */
  amn_scaled_fn scaled[AMN_N_CODES];
  amn_scaled_bf16_fn scaled_bf16[AMN_N_CODES]; /* NULL: by way of float32 */
  amn_absmax_fn absmax[AMN_N_ABSMAX];
  amn_absmax_16_fn absmax_16[AMN_N_ABSMAX]; /* NULL: by way of float32 */
  amn_widen_fn widen[AMN_N_FLOATS];
  amn_narrow_fn narrow[AMN_N_OUTS];
  amn_packed_fn packed[AMN_N_PACKINGS];
  amn_zeros_fn zeros[AMN_N_PACKINGS];
  amn_packed_16_fn packed_16[AMN_N_PACKINGS]; /* NULL: by way of float32 */
  amn_block_fn block[AMN_N_BLOCKS];
  amn_block_bf16_fn block_bf16[AMN_N_BLOCKS]; /* NULL: by way of float32 */
} amn_level;

/* The levels of this build, slowest first: each needs more of the CPU than the one before. */
#if defined(AMN_ARCH_X86_64)
#define AMN_LEVELS(LEVEL) LEVEL(scalar) LEVEL(avx2)
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
#include "kernels.def"

#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  void dequant_##name##_scalar(const uint8_t *src, float *dst, size_t n);
#include "blocks.def"

/* dispatch.c: the level of that number, or NULL. */
const amn_level *amn_level_at(int level);

#endif /* AMN_LEVELS_H */
