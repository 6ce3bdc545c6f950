/* Canonical: iq2xs_init_impl and iq3xs_init_impl of ggml-quants.c. The neighbours of a point are
 * the entries of the grid at the one, two or three smallest distances that there are, by distance,
 * then by their place in the grid: counted out, since distances are small whole numbers.
 *
 * The tables are static: nothing can fail, they are as long for every process, and pages that
 * nobody asks for cost nothing. */
#include "iq_lists.h"
#include "amn_once.h"
#include "iq_grids.h"

#define ENTRIES_MAX 2048
#define DISTANCE_MAX 196 /* (7 * 7) * 4; of three levels, (2 * 2) * 8 */

typedef struct {
  int elements, bits, levels; /* of an entry */
  int n_entries, n_distances;
  uint32_t *places;
  uint16_t *neighbours, *grid;
} tables;

typedef struct {
  uint8_t level[8][ENTRIES_MAX];
} digits;

static uint32_t level_at(uint32_t point, const tables *of, int k) {
  return point >> of->bits * k & ((1u << of->bits) - 1);
}

static int is_possible(uint32_t point, const tables *of) {
  for (int k = 0; k < of->elements; k++)
    if (level_at(point, of, k) >= (uint32_t)of->levels) return 0;
  return 1;
}

static void measure(uint32_t point, const digits *entries, const tables *of, uint8_t *distances) {
  memset(distances, 0, (size_t)of->n_entries);
  for (int k = 0; k < of->elements; k++) {
    const int level = (int)level_at(point, of, k);
    for (int i = 0; i < of->n_entries; i++) {
      const int apart = entries->level[k][i] - level;
      distances[i] = (uint8_t)(distances[i] + apart * apart);
    }
  }
}

/* Appends the list of a point; returns how long it is: 0 on the grid. */
static uint32_t list(const uint8_t *distances, const tables *of, uint16_t *neighbours) {
  uint32_t counts[DISTANCE_MAX + 1] = {0}, starts[DISTANCE_MAX + 1], total = 0;
  for (int i = 0; i < of->n_entries; i++) counts[distances[i]]++;
  if (counts[0] > 0) return 0;
  int most = 0;
  for (int n = 0; n < of->n_distances; n += counts[most] > 0) {
    most++;
    starts[most] = total;
    total += counts[most];
  }
  for (int i = 0; i < of->n_entries; i++)
    if (distances[i] <= most) neighbours[starts[distances[i]]++] = of->grid[i];
  return total;
}

static void make(const tables *of) {
  digits entries;
  uint8_t distances[ENTRIES_MAX];
  uint32_t largest = 0, start = 0;
  for (int k = 0; k < of->elements; k++) {
    largest |= (uint32_t)(of->levels - 1) << of->bits * k;
    for (int i = 0; i < of->n_entries; i++)
      entries.level[k][i] = (uint8_t)level_at(of->grid[i], of, k);
  }
  for (uint32_t point = 0; point <= largest; point++) {
    if (!is_possible(point, of)) continue;
    measure(point, &entries, of, distances);
    const uint32_t n = list(distances, of, of->neighbours + start);
    of->places[point] = start << 9 | n;
    start += n;
  }
  for (int i = 0; i < of->n_entries; i++) of->places[of->grid[i]] = (uint32_t)i << 9;
}

/* A grid's entry has a byte for each level. */
static uint16_t packed(uint64_t entry, int elements, int bits) {
  uint32_t point = 0;
  for (int k = 0; k < elements; k++) point |= (uint32_t)(entry >> 8 * k & 7) << bits * k;
  return (uint16_t)point;
}

/* The last but one is ggml's nwant, the last the length of all lists together. */
#define ALL_LISTS(LISTS)                                  \
  LISTS(IQ2_XXS, iq2_xxs, 8, 2, 3, 43691, 256, 2, 113157) \
  LISTS(IQ2_XS, iq2_xs, 8, 2, 3, 43691, 512, 2, 181721)   \
  LISTS(IQ2_S, iq2_s, 8, 2, 3, 43691, 1024, 1, 44716)     \
  LISTS(IQ1, iq1_s, 8, 2, 3, 43691, 2048, 3, 327721)      \
  LISTS(IQ3_XXS, iq3_xxs, 4, 3, 8, 4096, 256, 2, 18985)   \
  LISTS(IQ3_S, iq3_s, 4, 3, 8, 4096, 512, 3, 24733)

#define TABLES(NAME, name, elements, bits, levels, n_points, n_entries, n_distances, n_all) \
  static uint32_t name##_places[n_points];                                                  \
  static uint16_t name##_neighbours[n_all + AMN_IQ_LISTS_SLACK], name##_points[n_entries];  \
  static amn_once name##_once = AMN_ONCE_INIT;                                              \
  static void make_##name(void) {                                                           \
    const tables of = {elements,          bits,         levels,                             \
                       n_entries,         n_distances,  name##_places,                      \
                       name##_neighbours, name##_points};                                   \
    for (int i = 0; i < n_entries; i++)                                                     \
      name##_points[i] = packed(amn_##name##_grid[i], elements, bits);                      \
    make(&of);                                                                              \
  }
ALL_LISTS(TABLES)

#define CASE(NAME, name, elements, bits, levels, n_points, n_entries, n_distances, n_all) \
  case AMN_IQ_LISTS_##NAME: {                                                             \
    static const amn_iq_lists lists = {name##_places, name##_neighbours, name##_points,   \
                                       n_entries};                                        \
    amn_run_once(&name##_once, make_##name);                                              \
    return &lists;                                                                        \
  }

const amn_iq_lists *amn_iq_lists_of(amn_iq_lists_id id) {
  switch (id) {
    ALL_LISTS(CASE)
    default:
      return NULL;
  }
}
