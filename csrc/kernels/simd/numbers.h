/* What all encoders share, over those of templates.h. */
#include "pairs.tpl.h"
#include "codebook.tpl.h"
#include V_BOUNDS
#include "quantize.tpl.h"
#include "e2m1.tpl.h"
