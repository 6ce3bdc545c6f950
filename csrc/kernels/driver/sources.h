/* The dtypes that encoders take numbers in. */
#ifndef AMN_DRIVER_SOURCES_H
#define AMN_DRIVER_SOURCES_H

#include "sizes.h"

/* As a tensor's dtype, and as an output. */
typedef struct {
  unsigned char item_bytes;
  amn_float widen;
  amn_out narrow;
  float epsilon;     /* from 1 to the next number */
  float least_scale; /* from which on a number that stands for a packed code is near enough */
} source_kind;

static const source_kind sources[] = {
    [AMN_SOURCE_F32] = {4, AMN_FLOAT_F32, AMN_OUT_F32, 0x1p-23f, 0x1p-149f},
    [AMN_SOURCE_F16] = {2, AMN_FLOAT_F16, AMN_OUT_F16, 0x1p-10f, 0x1p-22f},
    [AMN_SOURCE_BF16] = {2, AMN_FLOAT_BF16, AMN_OUT_BF16, 0x1p-7f, 0x1p-126f},
};

#endif /* AMN_DRIVER_SOURCES_H */
