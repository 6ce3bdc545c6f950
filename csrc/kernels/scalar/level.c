/* The scalar level: the oracle of all others, and the fall-back. */
#include "../levels.h"

#define V_LEVEL "scalar"
#define V_NAME(kernel) kernel##_scalar
#define V_LETTER(...) S
#define V_SUPPORTED NULL
#define V_MEASURE measure_scalar
#define V_COMPARE compare_scalar
#define V_CHECK check_scalar
#define V_STREAM NULL
#define V_STREAM_END NULL
#include "../level_table.h"
