/* The codebooks of bitsandbytes, and where its codes change. */
#ifndef AMN_BNB_TABLES_H
#define AMN_BNB_TABLES_H

#include <stdint.h>

/* A codebook of 4 bits. A number's place among the sorted entries is how many of the midpoints
 * between them are below it. */
typedef struct {
  float entries[16];   /* by code */
  float numbers[16];   /* the same, sorted */
  float midpoints[15]; /* between each and the next */
  float search[4][8];  /* the midpoints that a binary search asks in each step, by what it found */
  uint8_t codes[16];   /* of the sorted entries */
} amn_codebook4;

extern const amn_codebook4 amn_nf4, amn_fp4;

/* The one of 8 bits, and the first of 65,536 steps from -1 to 1 that has each code from 1 on. */
extern const float amn_dynamic[256];
extern const uint16_t amn_dynamic_begins[255];

#endif /* AMN_BNB_TABLES_H */
