/* The AVX2 level: the templates of decoders with its vocabulary, and the table of the level, whose
 * encoders are in files of their own. */
#include "amn_cpu.h"
#include "../blocks.h"
#include "../bnb_tables.h"
#include "../iq_grids.h"
#include "../iq_lists.h"
#include "../levels.h"

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h> /* before the region, or its functions would get a second target */

AMN_TARGET_BEGIN(AMN_AVX2)

#include "vec_avx2.h"
#include "templates.h"
#include "stream.tpl.h"

AMN_TARGET_END

#include "../level_table.h"

#else

typedef int amn_avx2_is_for_x86_64; /* C forbids an empty file */

#endif
