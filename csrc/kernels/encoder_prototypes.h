/* The encoders of a level by name: OF_LEVEL(kernel) is that of a kernel. No include guard: levels.h
 * needs it for each level whose encoders another one takes. */
#define SOURCE(NAME, name, item_bytes, levels)                                              \
  void OF_LEVEL(amax_##name)(const uint8_t *src, size_t n, size_t block, uint32_t *maxima); \
  void OF_LEVEL(range_##name)(const uint8_t *src, size_t n, size_t block, float *low,       \
                              float *high);                                                 \
  void OF_LEVEL(compare_##name)(const uint8_t *a, const uint8_t *b, size_t n,               \
                                amn_compare_lanes *lanes);
#define QUANTIZE(NAME, name, bits, largest, levels)                                               \
  void OF_LEVEL(quantize_##name)(const uint8_t *src, uint8_t *codes, const amn_quantize_run *run, \
                                 amn_loss_lanes *lanes);
#define PACK(NAME, name, bits, levels)                                                  \
  void OF_LEVEL(pack_##name)(const uint8_t *src, uint8_t *dst, const amn_pack_run *run, \
                             amn_loss_lanes *lanes);
#include "kernels.def"

#define ENCODE(NAME, name, weights, levels)                                              \
  void OF_LEVEL(encode_##name)(const float *src, uint8_t *dst, size_t rows, size_t cols, \
                               const float *importance);
#include "blocks.def"

void OF_LEVEL(measure)(const float *values, const float *decoded, size_t n, amn_loss_lanes *lanes);
void OF_LEVEL(check)(const uint8_t *src, size_t n, const amn_words *words, amn_check *found);
void OF_LEVEL(rotate)(const float *src, float *dst, size_t n_groups, size_t group);
