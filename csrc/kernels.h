/* What a kernel is, and what a level is: shared by the driver and the levels. */
#ifndef AMN_KERNELS_H
#define AMN_KERNELS_H

#include "amn.h"
#include "amn_platform.h"

/* Ids: positions in the tables below, in the order of kernels.def. */
typedef enum {
#define SCALED(NAME, name, avx2, neon) AMN_CODE_##NAME,
#include "kernels.def"
  AMN_N_CODES
} amn_code;

typedef enum {
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) AMN_FLOAT_##NAME,
#include "kernels.def"
  AMN_N_FLOATS
} amn_float;

typedef enum {
#define NARROW(NAME, name, item_bytes, avx2, neon) AMN_OUT_##NAME,
#include "kernels.def"
  AMN_N_OUTS
} amn_out;

typedef enum {
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) AMN_BLOCK_##NAME,
#include "blocks.def"
  AMN_N_BLOCKS
} amn_block;

/* Kernels cannot fail, allocate or check: the driver has done that. Arrays may lie at any address
 * and must not overlap. Those that can turn a finite number into an infinity return how many they
 * did.
 */

/* n codes of one row times their scales. The first `first` codes belong to scales[0], each further
 * `block` codes to the next scale. To float32 at dst; to bfloat16 for the _bf16 kind, which needs
 * first and block of any size but is only worth calling for blocks of AMN_MIN_RUN or more. */
typedef void (*amn_scaled_fn)(const uint8_t *src, uint8_t *dst, size_t n, const float *scales,
                              size_t first, size_t block);
typedef uint64_t (*amn_scaled_bf16_fn)(const uint8_t *src, uint8_t *dst, size_t n,
                                       const float *scales, size_t first, size_t block);

/* n numbers to float32 at dst. NaNs stay NaNs, of any payload. */
typedef uint64_t (*amn_widen_fn)(const uint8_t *src, uint8_t *dst, size_t n);

/* n < 2^32 float32 numbers to an output, rounded to nearest even; every NaN becomes the quiet one.
 * float32 to float32 may be in place. */
typedef uint64_t (*amn_narrow_fn)(const uint8_t *src, uint8_t *dst, size_t n);

#define AMN_MIN_RUN 32

/* n GGUF blocks to float32 at dst, which is aligned to 4 bytes. NaNs stay NaNs, of any payload. */
typedef void (*amn_block_fn)(const uint8_t *src, float *dst, size_t n);

/* The same to bfloat16, rounded and canonical as `narrow` does it. */
typedef uint64_t (*amn_block_bf16_fn)(const uint8_t *src, uint8_t *dst, size_t n);

typedef struct {
  const char *name;
  amn_scaled_fn scaled[AMN_N_CODES];
  amn_scaled_bf16_fn scaled_bf16[AMN_N_CODES]; /* NULL: by way of float32 */
  amn_widen_fn widen[AMN_N_FLOATS];
  amn_narrow_fn narrow[AMN_N_OUTS];
  amn_block_fn block[AMN_N_BLOCKS];
  amn_block_bf16_fn block_bf16[AMN_N_BLOCKS]; /* NULL: by way of float32 */
} amn_level;

extern const amn_level amn_level_scalar;
#if defined(AMN_ARCH_X86_64)
extern const amn_level amn_level_avx2;
#endif

/* The scalar kernels by name: what an N in kernels.def and blocks.def
 * stands for. */
#define SCALED(NAME, name, avx2, neon)                                                         \
  void scaled_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n, const float *scales, \
                              size_t first, size_t block);
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) \
  uint64_t widen_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n);
#define NARROW(NAME, name, item_bytes, avx2, neon) \
  uint64_t narrow_##name##_scalar(const uint8_t *src, uint8_t *dst, size_t n);
#include "kernels.def"

#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) \
  void dequant_##name##_scalar(const uint8_t *src, float *dst, size_t n);
#include "blocks.def"

/* A slot of a level's table: Y the level's own function, N the scalar one or none. */
#define AMN_SLOT_Y(kernel) V_NAME(kernel)
#define AMN_SLOT_N(kernel) kernel##_scalar
#define AMN_SLOT_OR_NULL_Y(kernel) V_NAME(kernel)
#define AMN_SLOT_OR_NULL_N(kernel) NULL

/* dispatch.c: the level of that number, or NULL. */
const amn_level *amn_level_at(int level);

/* cpu.c */
int amn_cpu_has_avx2_f16c(void);

#endif /* AMN_KERNELS_H */
