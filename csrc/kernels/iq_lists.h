/* The neighbours that each point off a grid has on it: where the encoders of the IQ types look for
 * the entry that suits a group of values best.
 *
 * A *point* is the indices of a group's levels, packed: 8 of two bits (IQ1, IQ2), or 4 of three
 * (IQ3), the first in the lowest bits. Points with a level that a grid has not are never asked for.
 */
#ifndef AMN_IQ_LISTS_H
#define AMN_IQ_LISTS_H

#include "amn_platform.h"

typedef enum {
  AMN_IQ_LISTS_IQ2_XXS,
  AMN_IQ_LISTS_IQ2_XS,
  AMN_IQ_LISTS_IQ2_S,
  AMN_IQ_LISTS_IQ1, /* of both types */
  AMN_IQ_LISTS_IQ3_XXS,
  AMN_IQ_LISTS_IQ3_S,
} amn_iq_lists_id;

/* A vector may be loaded from any neighbour on: so many more may be read. */
#define AMN_IQ_LISTS_SLACK 32
#define AMN_IQ_NEIGHBOURS_MAX 292

typedef struct {
  const uint32_t *places;     /* of each point; what they hold, the functions below say */
  const uint16_t *neighbours; /* points, all lists one after another */
  const uint16_t *grid;       /* the grid's entries as points */
  int n_entries;
} amn_iq_lists;

/* Made by the first caller, in a fraction of a second, for the rest of the process. */
const amn_iq_lists *amn_iq_lists_of(amn_iq_lists_id id);

/* How many neighbours a point has: none if it is on the grid. */
static inline uint32_t amn_iq_n_neighbours(uint32_t place) {
  return place & 511;
}

/* Where among `neighbours` its list starts: the nearest first, equally near ones in the order of
 * the grid. */
static inline uint32_t amn_iq_start(uint32_t place) {
  return place >> 9;
}

/* Which entry of the grid a point on it is. */
static inline uint32_t amn_iq_index(uint32_t place) {
  return place >> 9;
}

#endif /* AMN_IQ_LISTS_H */
