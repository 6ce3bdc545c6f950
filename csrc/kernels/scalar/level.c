/* The scalar level: the oracle of all others, and the fall-back. */
#include "../levels.h"

#define V_LEVEL "scalar"
#define V_NAME(kernel) kernel##_scalar
#define V_LETTER(...) S
#define V_SUPPORTED NULL
#define V_OF_NO_ROW(kernel) kernel##_scalar
#define V_STREAM NULL
#define V_STREAM_END NULL
#include "../level_table.h"
