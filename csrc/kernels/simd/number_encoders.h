/* The templates of encoders that every level has, over those of templates.h. V_ENCODER is the
 * linkage of the kernels that they define: `static`, or none if another level takes them, too. */
#include "numbers.h"
#include "quantizers.tpl.h"
#include "pack.tpl.h"
