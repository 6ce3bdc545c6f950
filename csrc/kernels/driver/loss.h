/* What a row adds to the errors of a call. */
#ifndef AMN_DRIVER_LOSS_H
#define AMN_DRIVER_LOSS_H

#include "../levels.h"

/* With those of the run that the row's end ends. */
static inline double sum_of(const double *sums, const float *run) {
  double lanes[AMN_LOSS_LANES];
  for (int i = 0; i < AMN_LOSS_LANES; i++) lanes[i] = sums[i] + run[i];
  return (float)(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                 ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
}

static inline void add_row(amn_loss *loss, const amn_loss_lanes *lanes) {
  loss->absolute += sum_of(lanes->absolute, lanes->run.absolute);
  loss->squared += sum_of(lanes->squared, lanes->run.squared);
  loss->power += sum_of(lanes->power, lanes->run.power);
  for (int i = 0; i < AMN_LOSS_LANES; i++)
    if (lanes->largest[i] > loss->largest) loss->largest = lanes->largest[i];
}

#endif /* AMN_DRIVER_LOSS_H */
