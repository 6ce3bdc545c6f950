/* The AVX2 level's encoders of numbers; avx2.c has its table. */
#include "amn_cpu.h"
#include "../bnb_tables.h"
#include "../iq_grids.h"
#include "../levels.h"

#if defined(AMN_ARCH_X86_64)
#include <immintrin.h> /* before the region, or its functions would get a second target */

AMN_TARGET_BEGIN(AMN_AVX2)

#include "vec_avx2.h"
#include "words.tpl.h"
#include V_WIDE
#include "bytes.tpl.h"
#define V_ENCODER /* AVX-512 takes them, too */
#include "number_encoders.h"
#include "amax.tpl.h"
#include "compare.tpl.h"
#include "check.tpl.h"
#include "rotate.tpl.h"

AMN_TARGET_END

#else

typedef int amn_avx2_is_for_x86_64; /* C forbids an empty file */

#endif
