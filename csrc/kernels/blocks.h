/* How the bytes of each GGUF block lie: ggml's structs (ggml-common.h), in bytes, so that a block
 * may stand at any address. Numbers of more than one byte are little-endian; d, m and dmin are half
 * floats except Q8_K's d, a float. */
#ifndef AMN_BLOCKS_H
#define AMN_BLOCKS_H

#include "amn_platform.h"

typedef struct {
  uint8_t d[2];
  uint8_t qs[16]; /* element i: low nibble of i; element 16 + i: high nibble */
} block_q4_0;

typedef struct {
  uint8_t d[2];
  uint8_t m[2];
  uint8_t qs[16];
} block_q4_1;

typedef struct {
  uint8_t d[2];
  uint8_t qh[4]; /* bit i: the fifth bit of element i */
  uint8_t qs[16];
} block_q5_0;

typedef struct {
  uint8_t d[2];
  uint8_t m[2];
  uint8_t qh[4];
  uint8_t qs[16];
} block_q5_1;

typedef struct {
  uint8_t d[2];
  uint8_t qs[32]; /* signed */
} block_q8_0;

typedef struct {
  uint8_t d[2];
  uint8_t s[2];   /* d times the sum of qs: for dot products */
  uint8_t qs[32]; /* signed */
} block_q8_1;

typedef struct {
  uint8_t scales[16]; /* scale in the low nibble, min in the high one */
  uint8_t qs[64];
  uint8_t d[2];
  uint8_t dmin[2];
} block_q2_k;

typedef struct {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12]; /* 16 of 6 bits */
  uint8_t d[2];
} block_q3_k;

typedef struct {
  uint8_t d[2];
  uint8_t dmin[2];
  uint8_t scales[12]; /* 8 scales and 8 mins of 6 bits */
  uint8_t qs[128];
} block_q4_k;

typedef struct {
  uint8_t d[2];
  uint8_t dmin[2];
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
} block_q5_k;

typedef struct {
  uint8_t ql[128];
  uint8_t qh[64];
  uint8_t scales[16]; /* signed */
  uint8_t d[2];
} block_q6_k;

typedef struct {
  uint8_t d[4];
  uint8_t qs[256];   /* signed */
  uint8_t bsums[32]; /* 16 sums of qs: for dot products */
} block_q8_k;

typedef struct {
  uint8_t d[2];
  uint8_t qs[64];
} block_iq2_xxs;

typedef struct {
  uint8_t d[2];
  uint8_t qs[64];
  uint8_t scales[8];
} block_iq2_xs;

typedef struct {
  uint8_t d[2];
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t scales[8];
} block_iq2_s;

typedef struct {
  uint8_t d[2];
  uint8_t qs[96];
} block_iq3_xxs;

typedef struct {
  uint8_t d[2];
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
} block_iq3_s;

typedef struct {
  uint8_t d[2];
  uint8_t qs[32];
  uint8_t qh[16];
} block_iq1_s;

typedef struct {
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8]; /* the super-block's half float d in their upper nibbles */
} block_iq1_m;

typedef struct {
  uint8_t d[2];
  uint8_t qs[16];
} block_iq4_nl;

typedef struct {
  uint8_t d[2];
  uint8_t scales_h[2];
  uint8_t scales_l[4];
  uint8_t qs[128];
} block_iq4_xs;

typedef struct {
  uint8_t qs[48]; /* five ternary digits in a byte */
  uint8_t qh[4];  /* four */
  uint8_t d[2];
} block_tq1_0;

typedef struct {
  uint8_t qs[64]; /* 2 bits an element */
  uint8_t d[2];
} block_tq2_0;

typedef struct {
  uint8_t e; /* E8M0 */
  uint8_t qs[16];
} block_mxfp4;

typedef struct {
  uint8_t d[4]; /* UE4M3, one for 16 elements */
  uint8_t qs[32];
} block_nvfp4;

typedef struct {
  uint8_t d[2];
  uint8_t qs[16]; /* a bit an element */
} block_q1_0;

typedef struct {
  uint8_t d[2];
  uint8_t qs[16]; /* 2 bits an element */
} block_q2_0;

#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  _Static_assert(sizeof(block_##name) == bytes, "block_" #name " is not as long as its row says");
#include "blocks.def"

/* The elements and the id of each, and the most elements of any. */
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  enum { AMN_ELEMENTS_##name = elements, AMN_GGML_##NAME = ggml_id };
#include "blocks.def"

#define AMN_BLOCK_ELEMENTS_MAX 256
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16)                           \
  _Static_assert(elements <= AMN_BLOCK_ELEMENTS_MAX && AMN_BLOCK_ELEMENTS_MAX % elements == 0, \
                 #name);
#include "blocks.def"

#endif /* AMN_BLOCKS_H */
