/* The templates of encoders that every level has, over those of templates.h. V_ENCODER is the
 * linkage of the kernels that they define: `static`, or none if another level takes them, too. */
#include "pairs.tpl.h"
#include "codebook.tpl.h"
#include V_BOUNDS
#include "quantize.tpl.h"
#include "e2m1.tpl.h"
#include "pack.tpl.h"
