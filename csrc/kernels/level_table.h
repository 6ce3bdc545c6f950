/* The table of a level, out of the rows of the .def files. Who includes it defines
 *
 *   V_LEVEL         the level's name
 *   V_NAME(kernel)  the name of its own version of a kernel
 *   V_LETTER(...)   its letter of a row's brackets; the scalar level's is always S
 *   V_SUPPORTED     int (void): whether this CPU can run it; NULL if any can
 *   V_STREAM        its copy past the caches, or NULL
 *   V_STREAM_END    what ends such copies, or NULL
 *   V_OF_NO_ROW(kernel)  its version, or another level's, of a kernel that has no row
 */

/* A kernel to float32, or an encoder: the level's own (Y, S), AVX2's (X) or the scalar one.
 * Straight to another output: the level's own or none. */
#define SLOT_Y(kernel) V_NAME(kernel)
#define SLOT_X(kernel) kernel##_avx2
#define SLOT_N(kernel) kernel##_scalar
#define SLOT_S(kernel) kernel##_scalar
#define DIRECT_Y(kernel) V_NAME(kernel)
#define DIRECT_N(kernel) NULL
#define DIRECT_S(kernel) NULL

/* Whether it is vector code, or the scalar level's own. */
#define NATIVE_SLOT_Y 1
#define NATIVE_SLOT_X 1
#define NATIVE_SLOT_N 0
#define NATIVE_SLOT_S 1
#define NATIVE_DIRECT_Y 1
#define NATIVE_DIRECT_N 0
#define NATIVE_DIRECT_S 0

/* The letter is taken out of the brackets before it becomes a part of a name. */
#define CHOOSE(prefix, letter) CHOOSE_NOW(prefix, letter)
#define CHOOSE_NOW(prefix, letter) prefix##letter
#define SLOT(levels, kernel) CHOOSE(SLOT_, V_LETTER levels)(kernel)
#define DIRECT(levels, kernel) CHOOSE(DIRECT_, V_LETTER levels)(kernel)
#define NATIVE_SLOT(levels) CHOOSE(NATIVE_SLOT_, V_LETTER levels)
#define NATIVE_DIRECT(levels) CHOOSE(NATIVE_DIRECT_, V_LETTER levels)

const amn_level V_NAME(amn_level) = {
    .name = V_LEVEL,
    .is_supported = V_SUPPORTED,
    .stream = V_STREAM,
    .stream_end = V_STREAM_END,
    .measure = V_OF_NO_ROW(measure),
    .check = V_OF_NO_ROW(check),
    .rotate = V_OF_NO_ROW(rotate),
#define SCALED(NAME, name, to_f32, to_bf16) SLOT(to_f32, scaled_##name),
    .scaled =
        {
#include "kernels.def"
        },
#define SCALED(NAME, name, to_f32, to_bf16) DIRECT(to_bf16, scaled_bf16_##name),
    .scaled_bf16 =
        {
#include "kernels.def"
        },
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) SLOT(to_f32, absmax_##name),
    .absmax =
        {
#include "kernels.def"
        },
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) DIRECT(to_16, absmax_16_##name),
    .absmax_16 =
        {
#include "kernels.def"
        },
#define WIDEN(family, NAME, name, item_bytes, levels) SLOT(levels, widen_##name),
    .widen =
        {
#include "kernels.def"
        },
#define NARROW(NAME, name, item_bytes, levels) SLOT(levels, narrow_##name),
    .narrow =
        {
#include "kernels.def"
        },
#define PACKED(layout, NAME, name, bits, to_f32, to_16) SLOT(to_f32, packed_##name),
    .packed =
        {
#include "kernels.def"
        },
#define PACKED(layout, NAME, name, bits, to_f32, to_16) SLOT(to_f32, zeros_##name),
    .zeros =
        {
#include "kernels.def"
        },
#define PACKED(layout, NAME, name, bits, to_f32, to_16) DIRECT(to_16, packed_16_##name),
    .packed_16 =
        {
#include "kernels.def"
        },
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) \
  SLOT(to_f32, integers_##name),
    .integers =
        {
#include "kernels.def"
        },
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) \
  DIRECT(to_16, integers_16_##name),
    .integers_16 =
        {
#include "kernels.def"
        },
#define TRELLIS(NAME, name, levels) SLOT(levels, trellis_##name),
    .trellis =
        {
#include "kernels.def"
        },
#define SOURCE(NAME, name, item_bytes, levels) SLOT(levels, amax_##name),
    .amax =
        {
#include "kernels.def"
        },
#define SOURCE(NAME, name, item_bytes, levels) SLOT(levels, range_##name),
    .range =
        {
#include "kernels.def"
        },
#define SOURCE(NAME, name, item_bytes, levels) SLOT(levels, compare_##name),
    .compare =
        {
#include "kernels.def"
        },
#define QUANTIZE(NAME, name, bits, largest, levels) SLOT(levels, quantize_##name),
    .quantize =
        {
#include "kernels.def"
        },
#define PACK(NAME, name, bits, levels) SLOT(levels, pack_##name),
    .pack =
        {
#include "kernels.def"
        },
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) SLOT(to_f32, dequant_##name),
    .block =
        {
#include "blocks.def"
        },
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  DIRECT(to_bf16, dequant_bf16_##name),
    .block_bf16 =
        {
#include "blocks.def"
        },
#define ENCODE(NAME, name, weights, levels) SLOT(levels, encode_##name),
    .encode =
        {
#include "blocks.def"
        },
    .native =
        {
#define SCALED(NAME, name, to_f32, to_bf16) NATIVE_SLOT(to_f32), NATIVE_DIRECT(to_bf16),
#define ABSMAX(NAME, name, bits, entries, to_f32, to_16) NATIVE_SLOT(to_f32), NATIVE_DIRECT(to_16),
#define WIDEN(family, NAME, name, item_bytes, levels) NATIVE_SLOT(levels),
#define NARROW(NAME, name, item_bytes, levels) NATIVE_SLOT(levels),
#define PACKED(layout, NAME, name, bits, to_f32, to_16) NATIVE_SLOT(to_f32), NATIVE_DIRECT(to_16),
#define INTEGERS(layout, NAME, name, bits, codes, bytes, to_f32, to_16) \
  NATIVE_SLOT(to_f32), NATIVE_DIRECT(to_16),
#define TRELLIS(NAME, name, levels) NATIVE_SLOT(levels),
#define SOURCE(NAME, name, item_bytes, levels) NATIVE_SLOT(levels), NATIVE_SLOT(levels),
#define QUANTIZE(NAME, name, bits, largest, levels) NATIVE_SLOT(levels),
#define PACK(NAME, name, bits, levels) NATIVE_SLOT(levels),
#include "kernels.def"
#define BLOCK(ggml_id, NAME, name, elements, bytes, to_f32, to_bf16) \
  NATIVE_SLOT(to_f32), NATIVE_DIRECT(to_bf16),
#include "blocks.def"
#define ENCODE(NAME, name, weights, levels) NATIVE_SLOT(levels),
#include "blocks.def"
        },
};
