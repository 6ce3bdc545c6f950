/* The levels of this build and the table of kernels, both const. */
#include "amn_cpu.h"
#include "blocks.h"
#include "levels.h"

static const amn_level *const levels[] = {
#define LEVEL(name) &amn_level_##name,
    AMN_LEVELS(LEVEL)
#undef LEVEL
};

#define N_LEVELS ((int)(sizeof levels / sizeof levels[0]))

/* In the order of `native` in a level's table. */
static const amn_kernel kernels[] = {
#define SCALED(NAME, name, to_f32, to_bf16) \
  {"scaled", #NAME, AMN_CODE_##NAME, 1, 1}, {"scaled_bf16", #NAME, AMN_CODE_##NAME, 1, 1},
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) \
  {"absmax", #NAME, AMN_ABSMAX_##NAME, 8 / bits, 1},     \
      {"absmax_16", #NAME, AMN_ABSMAX_##NAME, 8 / bits, 1},
#define WIDEN(family, NAME, name, item_bytes, levels) \
  {#family, #NAME, AMN_FLOAT_##NAME, 1, item_bytes},
#define NARROW(NAME, name, item_bytes, levels) {"output", #NAME, AMN_OUT_##NAME, 1, item_bytes},
#define PACKED(layout, NAME, name, bits, to_f32, to_16) \
  {"packed", #NAME, AMN_PACKING_##NAME, 8, bits}, {"packed_16", #NAME, AMN_PACKING_##NAME, 8, bits},
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) \
  {"integers", #NAME, AMN_INTEGERS_##NAME, codes, bytes},               \
      {"integers_16", #NAME, AMN_INTEGERS_##NAME, codes, bytes},
#define TRELLIS(NAME, name, levels) {"trellis", #NAME, AMN_TRELLIS_##NAME, 8, 1},
#define SOURCE(NAME, name, item_bytes, levels)       \
  {"amax", #NAME, AMN_SOURCE_##NAME, 1, item_bytes}, \
      {"range", #NAME, AMN_SOURCE_##NAME, 1, item_bytes},
#define QUANTIZE(NAME, name, bits, largest, levels) \
  {"quantize", #NAME, AMN_QUANTIZE_##NAME, 8 / bits, 1},
#define PACK(NAME, name, bits, levels) {"pack", #NAME, AMN_PACK_##NAME, 8, bits},
#include "kernels.def"
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  {"block", #NAME, ggml_id, elements, bytes}, {"block_bf16", #NAME, ggml_id, elements, bytes},
#include "blocks.def"
#define ENCODE(NAME, name, weights, levels) \
  {"encode", #NAME, AMN_GGML_##NAME, AMN_ELEMENTS_##name, sizeof(block_##name)},
#include "blocks.def"
};

_Static_assert(sizeof kernels / sizeof kernels[0] == AMN_N_KERNELS, "as many as levels.h counts");

const amn_kernel *amn_kernel_at(int index) {
  return index >= 0 && index < AMN_N_KERNELS ? &kernels[index] : NULL;
}

int amn_kernel_is_native(int index, int level) {
  return levels[level]->native[index];
}

const amn_level *amn_level_at(int level) {
  return level >= 0 && level < N_LEVELS ? levels[level] : NULL;
}

const char *amn_level_name(int level) {
  const amn_level *found = amn_level_at(level);
  return found ? found->name : NULL;
}

uint64_t amn_streamed_from(int item_bytes) {
#if defined(AMN_ARCH_X86_64) || defined(AMN_ARCH_AARCH64)
  return amn_cpu_streamed_from(item_bytes);
#else
  (void)item_bytes;
  return 0;
#endif
}

int amn_level_supported(int level) {
  const amn_level *found = amn_level_at(level);
  return found != NULL && (found->is_supported == NULL || found->is_supported());
}
