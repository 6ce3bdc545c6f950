/* The AVX2 level: every template with the AVX2 vocabulary, and the table of the level. */
#include "../blocks.h"
#include "../iq_grids.h"
#include "../levels.h"

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h> /* before the region, or its functions would get a second target */

AMN_TARGET_AVX2_BEGIN

#include "vec_avx2.h"
#include "convert.tpl.h"
#include "fp8.tpl.h"
#include "blocks.tpl.h"
#include "legacy.tpl.h"
#include "ternary.tpl.h"
#include "fp4.tpl.h"
#include "kquants.tpl.h"
#include "iquants.tpl.h"
#include "iq1.tpl.h"
#include "iq4.tpl.h"
#include "absmax.tpl.h"
#include "packed.tpl.h"
#include "stream.tpl.h"

AMN_TARGET_END

const amn_level amn_level_avx2 = {
    "avx2",
#define SCALED(NAME, name, avx2, neon) AMN_SLOT_##avx2(scaled_##name),
    {
#include "../kernels.def"
    },
#define SCALED_BF16(NAME, name, avx2, neon) AMN_SLOT_OR_NULL_##avx2(scaled_bf16_##name),
    {
#include "../kernels.def"
    },
#define ABSMAX(NAME, name, bits, entries, avx2, neon) AMN_SLOT_##avx2(absmax_##name),
    {
#include "../kernels.def"
    },
#define ABSMAX_16(NAME, name, avx2, neon) AMN_SLOT_OR_NULL_##avx2(absmax_16_##name),
    {
#include "../kernels.def"
    },
#define WIDEN(family, NAME, name, item_bytes, avx2, neon) AMN_SLOT_##avx2(widen_##name),
    {
#include "../kernels.def"
    },
#define NARROW(NAME, name, item_bytes, avx2, neon) AMN_SLOT_##avx2(narrow_##name),
    {
#include "../kernels.def"
    },
#define PACKED(layout, NAME, name, bits, avx2, neon) AMN_SLOT_##avx2(packed_##name),
    {
#include "../kernels.def"
    },
#define PACKED(layout, NAME, name, bits, avx2, neon) AMN_SLOT_##avx2(zeros_##name),
    {
#include "../kernels.def"
    },
#define PACKED_16(NAME, name, avx2, neon) AMN_SLOT_OR_NULL_##avx2(packed_16_##name),
    {
#include "../kernels.def"
    },
#define BLOCK(ggml_id, NAME, name, elements, bytes, avx2, neon) AMN_SLOT_##avx2(dequant_##name),
    {
#include "../blocks.def"
    },
#define BLOCK_BF16(NAME, name, avx2, neon) AMN_SLOT_OR_NULL_##avx2(dequant_bf16_##name),
    {
#include "../blocks.def"
    },
    V_NAME(stream),
};

#else

typedef int amn_avx2_is_for_x86_64; /* C forbids an empty file */

#endif
