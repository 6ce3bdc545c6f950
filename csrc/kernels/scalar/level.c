/* The scalar level: the oracle of all others, and the fall-back. */
#include "../levels.h"

const amn_level amn_level_scalar = {
    "scalar",
#define SCALED(NAME, name, avx2, neon) scaled_##name##_scalar,
    {
#include "../kernels.def"
    },
#define SCALED_BF16(NAME, name, avx2, neon) NULL,
    {
#include "../kernels.def"
    },
#define ABSMAX(NAME, name, bits, entries, avx2, neon) absmax_##name##_scalar,
    {
#include "../kernels.def"
    },
#define ABSMAX_16(NAME, name, avx2, neon) NULL,
    {
#include "../kernels.def"
    },
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) widen_##name##_scalar,
    {
#include "../kernels.def"
    },
#define NARROW(NAME, name, item_bytes, avx2, neon) narrow_##name##_scalar,
    {
#include "../kernels.def"
    },
#define PACKED(layout, NAME, name, bits, avx2, neon) packed_##name##_scalar,
    {
#include "../kernels.def"
    },
#define PACKED(layout, NAME, name, bits, avx2, neon) zeros_##name##_scalar,
    {
#include "../kernels.def"
    },
#define PACKED_16(NAME, name, avx2, neon) NULL,
    {
#include "../kernels.def"
    },
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) dequant_##name##_scalar,
    {
#include "../blocks.def"
    },
#define BLOCK_BF16(NAME, name, avx2, neon) NULL,
    {
#include "../blocks.def"
    },
    NULL,
};
