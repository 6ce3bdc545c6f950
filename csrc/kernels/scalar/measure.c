/* What encoding to GGUF blocks takes: sums of errors, which no library defines. */
#include <math.h>

#include "../levels.h"

void measure_scalar(const float *values, const float *decoded, size_t n, amn_loss_lanes *lanes) {
  amn_loss_run run = {{0}, {0}, {0}};
  for (size_t i = 0; i < n; i++) {
    const size_t lane = i % AMN_LOSS_LANES;
    const float value = values[i], error = fabsf(value - decoded[i]);
    run.absolute[lane] += error;
    run.squared[lane] += error * error;
    run.power[lane] += value * value;
    if (error > lanes->largest[lane]) lanes->largest[lane] = error;
  }
  for (int lane = 0; lane < AMN_LOSS_LANES; lane++) {
    lanes->absolute[lane] += run.absolute[lane];
    lanes->squared[lane] += run.squared[lane];
    lanes->power[lane] += run.power[lane];
  }
}
