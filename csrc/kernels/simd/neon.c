/* The NEON level: every template with its vocabulary, and the table of the level. */
#include "../blocks.h"
#include "../bnb_tables.h"
#include "../iq_grids.h"
#include "../iq_lists.h"
#include "../levels.h"

#if defined(AMN_ARCH_AARCH64)
#include <arm_neon.h>

#include "vec_neon.h"
#include "templates.h"
#define V_ENCODER static
#include "number_encoders.h"
#include "amax.tpl.h"
#include "compare.tpl.h"
#include "check.tpl.h"
#include "rotate.tpl.h"
#include "block_encoders.h"

#include "../level_table.h"

#else

typedef int amn_neon_is_for_aarch64; /* C forbids an empty file */

#endif
