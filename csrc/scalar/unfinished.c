/* Types whose decoder is still to come: their rows exist, and they decode to NaN. Whoever writes
 * one takes its line away here. */
#include "../blocks.h"
#include "../kernels.h"

#define UNFINISHED(name, elements)                                         \
  void dequant_##name##_scalar(const uint8_t *src, float *dst, size_t n) { \
    (void)src;                                                             \
    memset(dst, 0xff, n * elements * sizeof *dst);                         \
  }

UNFINISHED(q2_k, 256)
UNFINISHED(q3_k, 256)
UNFINISHED(q4_k, 256)
UNFINISHED(q5_k, 256)
UNFINISHED(q6_k, 256)
UNFINISHED(iq1_s, 256)
UNFINISHED(iq1_m, 256)
UNFINISHED(iq2_xxs, 256)
UNFINISHED(iq2_xs, 256)
UNFINISHED(iq2_s, 256)
UNFINISHED(iq3_xxs, 256)
UNFINISHED(iq3_s, 256)
UNFINISHED(iq4_nl, 32)
UNFINISHED(iq4_xs, 256)

typedef int amn_unfinished; /* C forbids an empty file */
