/* The AVX2 level: every template with the AVX2 vocabulary, and the table of the level. */
#include "amn_cpu.h"
#include "../blocks.h"
#include "../bnb_tables.h"
#include "../iq_grids.h"
#include "../iq_lists.h"
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
#include "integers.tpl.h"
#include "pairs.tpl.h"
#include "trellis.tpl.h"
#include "amax.tpl.h"
#include "codebook.tpl.h"
#include "quantize.tpl.h"
#include "e2m1.tpl.h"
#include "pack.tpl.h"
#include "search.tpl.h"
#include "encode_blocks.tpl.h"
#include "encode_legacy.tpl.h"
#include "encode_ternary.tpl.h"
#include "encode_fp4.tpl.h"
#include "encode_kquants.tpl.h"
#include "encode_iq4.tpl.h"
#include "neighbours.tpl.h"
#include "encode_iq2.tpl.h"
#include "encode_iq3.tpl.h"
#include "encode_iq1.tpl.h"

AMN_TARGET_END

#include "../level_table.h"

#else

typedef int amn_avx2_is_for_x86_64; /* C forbids an empty file */

#endif
