/* The codebooks of the IQ types: data only, each once, derived by tools/derive_grids.py.
 *
 * A grid's entry is a row of values; each of its bytes is the index of one in the levels of that
 * grid, the first value in the lowest byte. */
#ifndef AMN_IQ_GRIDS_H
#define AMN_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t amn_iq2_xxs_grid[256]; /* of amn_iq2_levels, as the next two */
extern const uint64_t amn_iq2_xs_grid[512];
extern const uint64_t amn_iq2_s_grid[1024];
extern const uint32_t amn_iq3_xxs_grid[256];
extern const uint32_t amn_iq3_s_grid[512];
extern const uint64_t amn_iq1_s_grid[2048]; /* IQ1_M's too */

extern const int8_t amn_iq1_levels[3];
extern const int8_t amn_iq2_levels[3];
extern const int8_t amn_iq3_xxs_levels[8];
extern const int8_t amn_iq3_s_levels[8];
extern const int8_t amn_iq4_levels[16]; /* IQ4_NL and IQ4_XS, which have no grid */

/* Seven stored bits to the signs of eight values: the eighth makes their number even. */
extern const uint8_t amn_iq_signs[128];

#endif /* AMN_IQ_GRIDS_H */
