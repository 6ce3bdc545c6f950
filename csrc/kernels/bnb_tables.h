/* The codebooks of bitsandbytes, and where its codes change. */
#ifndef AMN_BNB_TABLES_H
#define AMN_BNB_TABLES_H

#include <stdint.h>

/* Steps to 1. A number's step is the whole number below its product with this, from -16 to 15; the
 * lowest bits of that are indices. No two midpoints have one step, but FP4's 0 and the next: 0 is
 * left out, as none of NF4's is. */
#define AMN_CODEBOOK_STEPS 15.5f

/* A codebook of 4 bits. A number's place among the sorted entries is how many of the midpoints
 * between them are below it. For bounds in bfloat16 the midpoints come in the order 0, 4, 8, 12, 1,
 * 5, 9, 13; 3, 7, 11, none, 2, 6, 10, 14. */
typedef struct {
  float entries[16];   /* by code */
  float numbers[16];   /* the same, sorted */
  float midpoints[15]; /* between each and the next */
  float search[4][8];  /* the midpoints that a binary search asks in each step, by what it found */
  float reduced[16];   /* their magnitudes, less 2^-20 of them */
  float within[16];    /* the largest float32 that is not beyond them: of those below 0, less */
  uint32_t signs[16];  /* all ones below 0 */
  uint32_t kept[16];   /* all ones, but of the midpoint 0 and of none, which have 1/2 above */
  float middles[32];   /* the midpoint in each of AMN_CODEBOOK_STEPS, if there is one; infinity */
  uint8_t before[64];  /* how many midpoints lie before that step */
  uint16_t step;       /* -0x0404; not known where it is used, or a product would become shifts */
  uint8_t codes[16];   /* of the sorted entries */
} amn_codebook4;

extern const amn_codebook4 amn_nf4, amn_fp4;

/* The one of 8 bits, and the first of 65,536 steps from -1 to 1 that has each code from 1 on. */
extern const float amn_dynamic[256];
extern const uint16_t amn_dynamic_begins[255];

#endif /* AMN_BNB_TABLES_H */
