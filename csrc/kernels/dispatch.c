/* The levels of this build and the table of kernels, both const. */
#include "amn_cpu.h"
#include "levels.h"

static const amn_level *const levels[] = {
    &amn_level_scalar,
#if defined(AMN_ARCH_X86_64)
    &amn_level_avx2,
#endif
};

#define N_LEVELS ((int)(sizeof levels / sizeof levels[0]))

/* `native` by the letters of the .def files: bit 0 is scalar, bit 1 the level of this architecture.
 */
#define NATIVE_Y 2u
#define NATIVE_N 0u
#if defined(AMN_ARCH_X86_64)
#define NATIVE(avx2, neon) (1u | NATIVE_##avx2)
#define NATIVE_ONLY(avx2, neon) NATIVE_##avx2
#else
#define NATIVE(avx2, neon) 1u
#define NATIVE_ONLY(avx2, neon) 0u
#endif

/* Facts of a row under names, for the rows of its other kernels. */
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) \
  enum { ID_##NAME = ggml_id, ELEMENTS_##NAME = elements, BYTES_##NAME = bytes };
#include "blocks.def"

#define ABSMAX(NAME, name, bits, entries, avx2, neon) enum { BITS_##NAME = bits };
#define PACKED(layout, NAME, name, bits, avx2, neon) enum { BITS_##NAME = bits };
#include "kernels.def"

static const amn_kernel kernels[] = {
#define SCALED(NAME, name, avx2, neon) {"scaled", #NAME, AMN_CODE_##NAME, 1, 1, NATIVE(avx2, neon)},
#define SCALED_BF16(NAME, name, avx2, neon) \
  {"scaled_bf16", #NAME, AMN_CODE_##NAME, 1, 1, NATIVE_ONLY(avx2, neon)},
#define ABSMAX(NAME, name, bits, entries, avx2, neon) \
  {"absmax", #NAME, AMN_ABSMAX_##NAME, 8 / bits, 1, NATIVE(avx2, neon)},
#define ABSMAX_16(NAME, name, avx2, neon) \
  {"absmax_16", #NAME, AMN_ABSMAX_##NAME, 8 / BITS_##NAME, 1, NATIVE_ONLY(avx2, neon)},
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) \
  {#family, #NAME, AMN_FLOAT_##NAME, 1, item_bytes, NATIVE(avx2, neon)},
#define NARROW(NAME, name, item_bytes, avx2, neon) \
  {"output", #NAME, AMN_OUT_##NAME, 1, item_bytes, NATIVE(avx2, neon)},
#define PACKED(layout, NAME, name, bits, avx2, neon) \
  {"packed", #NAME, AMN_PACKING_##NAME, 8, bits, NATIVE(avx2, neon)},
#define PACKED_16(NAME, name, avx2, neon) \
  {"packed_16", #NAME, AMN_PACKING_##NAME, 8, BITS_##NAME, NATIVE_ONLY(avx2, neon)},
#include "kernels.def"
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) \
  {"block", #NAME, ggml_id, elements, bytes, NATIVE(avx2, neon)},
#include "blocks.def"
#define BLOCK_BF16(NAME, name, avx2, neon) \
  {"block_bf16", #NAME, ID_##NAME, ELEMENTS_##NAME, BYTES_##NAME, NATIVE_ONLY(avx2, neon)},
#include "blocks.def"
};

const amn_kernel *amn_kernel_at(int index) {
  const int n = (int)(sizeof kernels / sizeof kernels[0]);
  return index >= 0 && index < n ? &kernels[index] : NULL;
}

const amn_level *amn_level_at(int level) {
  return level >= 0 && level < N_LEVELS ? levels[level] : NULL;
}

const char *amn_level_name(int level) {
  const amn_level *found = amn_level_at(level);
  return found ? found->name : NULL;
}

int amn_level_supported(int level) {
  const amn_level *found = amn_level_at(level);
#if defined(AMN_ARCH_X86_64)
  if (found == &amn_level_avx2) return amn_cpu_has_avx2_f16c();
#endif
  return found != NULL;
}
