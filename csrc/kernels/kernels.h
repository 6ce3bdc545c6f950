/* The kernels' public face, and the only header of theirs that Cython sees.
 *
 * A call either returns an error before it touches dst, or succeeds. */
#ifndef AMN_KERNELS_H
#define AMN_KERNELS_H

#include "amn_bytes.h"

typedef enum {
  AMN_OK = 0,
  AMN_BAD_LEVEL, /* no such level in this build */
  AMN_BAD_DTYPE, /* an id out of its table */
  AMN_BAD_BLOCK, /* a block of no rows or no columns */
  AMN_BAD_SIZE,  /* a size that overflows 64 bits: no buffer can hold it */
  AMN_SHORT_SRC, /* src, dst or scales hold fewer bytes than the sizes ask for */
  AMN_SHORT_DST,
  AMN_SHORT_SCALES,
  AMN_SHORT_STRIDE, /* a row of the tensor needs more scales than a grid row has */
  AMN_SHORT_ZEROS,  /* zeros, groups: as src, dst and scales */
  AMN_SHORT_GROUPS,
  AMN_BAD_GROUP,     /* groups of no columns, or an index past the last group */
  AMN_BAD_WORDS,     /* out features that do not fill the words they are packed into */
  AMN_BAD_ROWS,      /* a first row within a tile, or rows past the last of src */
  AMN_BAD_CODEBOOK,  /* not as many entries as the codes can name */
  AMN_BAD_RULE,      /* no such rule, or not one that the codes can follow */
  AMN_BAD_ALIGNMENT, /* float32 numbers that lie at no multiple of 4 bytes */
  AMN_BAD_WEIGHTS,   /* not as many as columns, or none where they are required */
  AMN_NOT_FINITE /* an infinity or a NaN, which no rule has an answer to, or too small a scale */
} amn_status;

/* One kernel, as kernels.def and blocks.def have it. `id` is what the calls below take; it is
 * unique within the kernels that share a parameter. An item is the fewest elements that fill bytes.
 * The ids of GGUF blocks are ggml's. */
typedef struct {
  const char *family;
  const char *name;
  int id;
  int item_elements;
  int item_bytes;
} amn_kernel;

/* The kernel in row `index`, or NULL past the last. */
const amn_kernel *amn_kernel_at(int index);

/* Whether a level has its own code for the kernel in a row; both must be there. */
int amn_kernel_is_native(int index, int level);

/* The name of a level compiled in, slowest first, or NULL past the last. */
const char *amn_level_name(int level);

/* Whether this CPU, under this operating system, can run a level. Slow (cpuid): ask once. */
int amn_level_supported(int level);

/* From how many bytes on this CPU had better store a decoder's results of 2 or 4 bytes each past
 * the caches, or 0 for never. Slow: ask once. */
uint64_t amn_streamed_from(int item_bytes);

/* A grid of scales over a tensor's rows and columns: element (r, c) has the scale in grid row
 * (r + row_phase) / block_rows and grid column (c + col_phase) / block_cols. The phases let a band
 * start inside a block. */
typedef struct {
  amn_bytes data;
  int dtype;       /* the id of a "convert" or "scale" kernel */
  int rounded;     /* what scales are rounded to first, as some libraries do: the id of an output */
  uint64_t stride; /* scales in a grid row */
  uint64_t block_rows, block_cols;
  uint64_t row_phase, col_phase;
} amn_grid;

/* dst = out(float32(code) * float32(scale)): one float32 multiply, one rounding to nearest even.
 * Every NaN becomes the one quiet NaN. *n_overflow counts finite float32 products which that
 * rounding made infinite, and codes whose finite scale became so before. The caller must have asked
 * amn_level_supported about `level`. */
amn_status amn_dequantize_scaled(int level, int code, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, const amn_grid *grid,
                                 uint64_t *n_overflow);

/* The largest magnitude of every `block` consecutive codes: code i of a call has number
 * (i + phase) / block. */
typedef struct {
  amn_bytes data;
  int dtype; /* the id of a "convert" kernel */
  uint64_t block, phase;
} amn_absmax;

/* dst = out(float32 value) for n codes, which start with the first byte of src: for CODEBOOK4 and
 * CODEBOOK4_LOW codebook[code] * absmax, for INT8 code * absmax * float32(1 / 127), product by
 * product in float32. The codebook holds a float32 for each code, and +0 in its upper half counts
 * as -0 in CODEBOOK4; INT8 has none. *n_overflow counts finite values that became infinite. */
amn_status amn_dequantize_absmax(int level, int code, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t n, amn_bytes codebook, const amn_absmax *absmax,
                                 uint64_t *n_overflow);

/* dst = codebook[code] * absmax + offset in float32, for every byte of src: bitsandbytes' "double
 * quantisation" of the absmax above. The codebook has 256 float32, and absmax is of float32 too. */
amn_status amn_recover_absmax(amn_bytes src, amn_buffer dst, amn_bytes codebook,
                              const amn_absmax *absmax, float offset);

/* dst = out(float32(src)) for as many elements as src holds. *n_overflow counts finite elements
 * that became infinite. */
amn_status amn_convert(int level, int src_dtype, int out, amn_bytes src, amn_buffer dst,
                       uint64_t *n_overflow);

/* values += scale * (left @ right) in float32, for rows x cols values, columns from `first` on of
 * all that `right` has. left is rows x inner; right is inner x columns, in panels of AMN_PANEL
 * columns one behind the other, the last of which ends with zeros. */
#define AMN_PANEL 48
amn_status amn_add_product(int level, const float *left, const float *right, float scale,
                           float *values, size_t rows, size_t cols, size_t inner, size_t first);

/* dst = out(float32 value) for every element of the GGUF blocks in src, which must be whole ones.
 * *n_overflow counts finite values that became infinite. */
amn_status amn_dequantize_blocks(int level, int type, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t *n_overflow);

/* What belongs to the codes of a band of packed integers: for each group of in features, the zero
 * points of all out features, packed into words, and their scales. Element c of a row has group
 * groups[c], a little-endian int32; or, if groups is empty, group (first_col + c) / group_size,
 * counted from that of first_col. */
typedef struct {
  amn_bytes zeros, scales, groups;
  int scale_dtype;    /* the id of a "convert" or "scale" kernel */
  int zeros_less_one; /* 0 or 1: whether zero points are stored less 1 */
  uint64_t group_size, first_col;
} amn_groups;

/* A result of as many bytes is in no cache when it is next looked at, so it is stored past the
 * caches. (The bands of a file are smaller, and written from the cache at once.) */
#define AMN_STREAMED_BYTES ((uint64_t)16 << 20)
#define AMN_CACHE_LINE 64

/* Out features that the kernels of packed integers do at once. */
#define AMN_TILE_ROWS 32

/* Where those of a large result stay until they go past the caches. It is the caller's, for a
 * thread may have a stack of 128 KiB (musl's), and a call takes at most 64. */
#define AMN_STAGE_BYTES ((uint64_t)(64 << 10) + AMN_CACHE_LINE)

/* dst[r, c] = out(float32(code[c, r] - zero[g, r]) * float32(scale[g, r])), one float32 multiply,
 * one rounding: `rows` out features of `cols` in features each, whose codes src has
 * transposed. dst takes `n_rows` of them from `first_row`, a multiple of AMN_TILE_ROWS, on. Every
 * NaN becomes the one quiet NaN. *n_overflow counts finite products which that rounding made
 * infinite. `stage` is of AMN_STAGE_BYTES, or of none, and then all goes through the caches. */
amn_status amn_dequantize_packed(int level, int packing, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, uint64_t first_row, uint64_t n_rows,
                                 const amn_groups *groups, amn_buffer stage, uint64_t *n_overflow);

/* How the zero points of integers are stored: not at all, and then all are the constant; each
 * beside its scale, as an int8 or in the scales' dtype; in 32-bit words that hold consecutive rows
 * of one group, laid out as the codes are. */
typedef enum {
  AMN_ZEROS_CONSTANT = 0,
  AMN_ZEROS_INT8,
  AMN_ZEROS_FLOAT,
  AMN_ZEROS_WORDS,
  AMN_N_ZEROS
} amn_zeros_kind;

/* Codes of which an item of `width` bytes, 1 or 4, holds one of several rows: those of row r are
 * the `bits` from bit `shift` + bits * ((r + phase) % stacked) on of the items of line (r + phase)
 * / stacked, and the codes' kernel reads them as bytes. There are none such if `bits` is 0. */
typedef struct {
  uint64_t stacked, phase;
  int bits, shift, width;
} amn_planes;

/* What else is rounded to the dtype that scales are rounded to, where a library computes in that:
 * code - zero; that times the scale; what code 0 stands for; the result. */
enum {
  AMN_ROUND_DIFFERENCES = 1,
  AMN_ROUND_PRODUCTS = 2,
  AMN_ROUND_BIASES = 4,
  AMN_ROUND_SUMS = 8,
  AMN_ROUND_ALL = 15
};

/* Integers of rows. A row of codes starts `stride` bytes after the one before, with code `phase` of
 * src. Biases are absent, or lie as the scales do and are of their dtype;
 * with a constant zero point, they are what code 0 stands for. Column c belongs to group
 * groups[c] of its row, a little-endian int32; or, if there are none, to the grid's block. */
typedef struct {
  amn_bytes codes;
  uint64_t stride, phase;
  uint64_t rows, cols;
  amn_grid scales;
  amn_bytes biases, groups, zeros;
  int zeros_kind, constant;
  amn_planes planes;
  uint64_t zeros_phase; /* the row of the words' first code that is the first row's */
  int roundings;        /* AMN_ROUND_..., added up */
} amn_integers;

/* dst = out((float32(code) - zero) * scale + bias), of biases with a constant zero point that is
 * not 0 float32(bias + zero * scale): each operation rounds to float32, those of `roundings` then
 * to scales.rounded, the last one also to the output. Every NaN becomes the one quiet NaN.
 * *n_overflow counts values which a rounding from float32 made infinite, and codes whose scale one
 * did. */
amn_status amn_dequantize_integers(int level, int code, int out, const amn_integers *integers,
                                   amn_buffer dst, uint64_t *n_overflow);

/* A trellis of EXL3: tiles of 16 x 16 codes of 1 to 8 bits, as many to a row of tiles as fill
 * AMN_TRELLIS_BLOCK out features, and a row for each 16 in features of `cols`. `in_scales` are half
 * floats, one for each in feature, `out_scales` for each out feature. */
#define AMN_TRELLIS_BLOCK 128
#define AMN_TRELLIS_WORK ((uint64_t)(64 << 10) + AMN_CACHE_LINE)

typedef struct {
  amn_bytes tiles, in_scales, out_scales;
  int bits;
  uint64_t cols;                                 /* a multiple of AMN_TRELLIS_BLOCK */
  uint64_t first_row, n_rows, first_col, n_cols; /* of those, what dst takes */
} amn_trellis;

/* dst[o, i] = out(value): half floats of the codebook `code`, transformed in blocks of so many in
 * features, times 1 / sqrt(128), times the in scale; then the same of out features. A transform
 * adds and subtracts neighbours, then pairs, and so on; each operation rounds to float32. `work` is
 * of AMN_TRELLIS_WORK. Every NaN becomes the one quiet NaN. *n_overflow counts finite values which
 * the rounding to the output made infinite. */
amn_status amn_dequantize_trellis(int level, int code, int out, const amn_trellis *trellis,
                                  amn_buffer dst, amn_buffer work, uint64_t *n_overflow);

/* How the scale of a block comes from its largest magnitude, and codes from its values.
 *
 * A: the largest magnitude. Q: what the largest code stands for. F: what was found of all blocks.
 * v: a value. own(x): x rounded to the values' own dtype. s: the scale, stored as E8M0 or E4M3
 * where that is said. All else is float32. MX and NV have blocks of some values of a row.
 *
 *   rule           scale s                                   codes round     library
 *   -------------  ----------------------------------------  --------------  ------------------
 *   RECIPROCAL     1 / f, where f = 1 / A * Q                v * f           transformers (1)
 *   POWER_OF_TWO   E8M0: 1 / f, up to a power of two         v * (1 / s)     transformers (1)
 *   DIVIDED        own(A / Q), the dtype's epsilon for 0     own(v / s)      compressed-tensors
 *   WHOLE          own(A / (Q - 1/2)), 1e-30 or more (12)    own(v / s)      ComfyUI
 *   ASYMMETRIC     DIVIDED's, of the range of values (2)     own(v / s) (2)  compressed-tensors
 *   LATTICE        own(c * s) is v for all of a block (10)   own(v / s)      compressed-tensors
 *   ABSMAX         A                                         v * (1 / A * Q) bitsandbytes (3)
 *   NESTED         a code of A less F (4)                    as ABSMAX       bitsandbytes
 *   MX             E8M0: exponent of A (5), less that of Q   own(v / s)      compressed-tensors
 *   MX_UP          E8M0: log2(A / Q), rounded up             v / s           ModelOpt
 *   MX_POWER       E8M0: A / Q, up to a power of two (6)     v / s           Triton, for gpt-oss
 *   MX_OWN_POWER   E8M0: own(A / Q), up to a power of two    v / s (7)       MLX
 *   NV_DIVIDED     E4M3(F * own(A / Q)), 1/8 for 0           v / (s / F)     compressed-tensors
 *   NV_MULTIPLIED  E4M3(A / (Q * F)) (8)                     v / (s * F)     ModelOpt
 *   NV_QUOTIENT    E4M3(A / Q / F)                           v / (s * F) (11) ComfyUI
 *   NV_ALONE       E4M3(own(A / Q))                          own(v / s) (9)  MLX
 *
 * (1) Its Fp8Quantize, where torch divides a number by a tensor.
 * (2) From the least value to the largest; zero points are added, and every result is own.
 * (3) A block of 4-bit codes that is not whole, the last one, is divided instead, by no less than
 *     1e-38, which is stored then. Of INT8_ABSMAX, values are first rounded to half floats.
 * (4) By the largest difference of 256 blocks; F is the mean of all A.
 * (5) Which counts as the next power of two from 1.75 times one on. A scale that the values' dtype
 *     has as 0 is 1; of one that it has as infinity, all codes are zeros and 1 is stored.
 * (6) No less than 2^-126; a quotient of 0 has code 0, and codes of 0.
 * (7) A quotient of 0 has code 127, one below 2^-127 no code.
 * (8) Within 2^-9 and 448; for 0 it is that of 1.
 * (9) 0 where s is 0. Its E2M1_FIRST follows no other NV rule.
 * (10) Where there is such an s next to A / 7, or / 8, 6, … 1, and whole numbers c from -8 to 7;
 *      else DIVIDED's. Of INT4 only: so what was decoded gets its codes and its scales back.
 * (11) Zeros with any sign where s is 0.
 * (12) The dtype's epsilon for 0. Of INT8 only. */
typedef enum {
  AMN_RULE_RECIPROCAL = 0,
  AMN_RULE_POWER_OF_TWO,
  AMN_RULE_DIVIDED,
  AMN_RULE_WHOLE,
  AMN_RULE_ASYMMETRIC,
  AMN_RULE_LATTICE,
  AMN_RULE_ABSMAX,
  AMN_RULE_NESTED,
  AMN_RULE_MX,
  AMN_RULE_MX_UP,
  AMN_RULE_MX_POWER,
  AMN_RULE_MX_OWN_POWER,
  AMN_RULE_NV_DIVIDED,
  AMN_RULE_NV_MULTIPLIED,
  AMN_RULE_NV_QUOTIENT,
  AMN_RULE_NV_ALONE,
  AMN_N_RULES
} amn_rule;

/* Values to be encoded: `rows` x `cols` of them, in blocks that begin with the first and end with
 * the last row and column. What was found of all blocks is a float32 or nothing: the mean of the
 * largest magnitudes of NESTED, of NV rules but NV_ALONE the scale that all scales share,
 * else the largest of them. */
typedef struct {
  int source; /* the id of an "amax" kernel */
  int code;   /* the id of a "quantize" kernel */
  int rule;
  uint64_t rows, cols, block_rows, block_cols;
  amn_bytes found;
} amn_quantization;

/* Of what the codes stand for, in float32, against the values: sums of the errors, the largest, and
 * the sum of squared values. What a row adds to a sum is rounded to float32, so that those of some
 * thousand rows of about one magnitude add up exactly, in whatever order and bands. */
typedef struct {
  double absolute, largest, squared, power;
} amn_loss;

/* Codes of 8 bits one after the other; those of INT4 in words, plus 8, low ones first, and a row in
 * whole words; those of E2M1 in bytes, low ones first, and a row in whole bytes; those of
 * bitsandbytes' 4 bits, which are one row of blocks of an even size, in bytes, the first in the
 * high bits. Scales block by block. Zero points, of ASYMMETRIC only: words
 * of 8 rows each; of NESTED, the largest differences. Nothing is measured if `loss` is NULL. */
amn_status amn_quantize(int level, const amn_quantization *how, amn_bytes src, amn_buffer codes,
                        amn_buffer scales, amn_buffer zeros, amn_loss *loss);

/* How the groups of a row are packed: from the least and the largest value of a group, in float32.
 *
 *   rule      scale                                  shift                       library
 *   --------  -------------------------------------  --------------------------  ---------------
 *   EDGE      edge / steps (1)                       the bias: the edge          MLX
 *   MIRRORED  (largest - least) / largest code (2)   half the codes, less 1      GPTQModel (3)
 *   HALF      range / 15, of a range from 1e-5 on    -round(least / scale) (4)   AutoAWQ
 *
 * (1) The edge is what is farther from 0. steps = round(edge / step), step = range / largest code,
 *     at least 1e-7; negative, unless the least value's magnitude is larger than the largest's.
 *     Where steps are 0, the scale is the step, and the bias 0. Both are stored in the values'
 *     dtype; codes come from what they were before.
 * (2) Of a range that is made symmetric where a value is negative, and begins with 0 where none is;
 *     of zeros only, of a range of 2. Scales are stored as half floats. What is packed is what the
 *     codes stand for, in the values' dtype.
 * (3) Its round-to-nearest, in its first format.
 * (4) Kept from 0 to 15. The values, and every result, are first rounded to half floats. */
typedef enum {
  AMN_PACKING_EDGE = 0,
  AMN_PACKING_MIRRORED,
  AMN_PACKING_HALF,
  AMN_N_PACKING_RULES
} amn_packing_rule;

/* Values to be packed: rows of whole groups, which are multiples of 32 columns, of at most 1024 but
 * for EDGE. */
typedef struct {
  int source; /* the id of an "amax" kernel */
  int code;   /* the id of a "pack" kernel; MIRRORED's of 2, 4 or 8 bits, HALF's of 4 */
  int rule;
  uint64_t rows, cols, group;
} amn_packing_plan;

/* Of EDGE: rows of codes, scales [rows, groups] and biases of that shape as `shifts`.
 *
 * Of the others, of which rows fill words: scales [groups, rows]; zero points as `shifts`, words of
 * those of 8 rows, [groups, rows / 8]; words of codes, MIRRORED's [cols / 8, rows] of 8 columns
 * each, HALF's [cols, rows / 8] of 8 rows each. (Of 2 bits, a word has 16; of 8 bits, 4.) Of HALF's
 * words, those of rows 0 2 4 6 1 3 5 7 come from the lowest bits on. Nothing is measured if `loss`
 * is NULL. */
amn_status amn_pack(int level, const amn_packing_plan *how, amn_bytes src, amn_buffer codes,
                    amn_buffer scales, amn_buffer shifts, amn_loss *loss);

/* Groups of float32 numbers times a regular Hadamard matrix over the root of `group`, a power of 4:
 * ConvRot, which is its own inverse but for rounding. */
amn_status amn_rotate(int level, amn_bytes src, amn_buffer dst, uint64_t group);

/* 8-bit codes [rows, cols] times a float32 scale for each row, each group of columns rotated. */
typedef struct {
  amn_bytes codes, scales;
  uint64_t rows, cols, group;
} amn_rotation;

amn_status amn_dequantize_rotated(int level, int out, const amn_rotation *how, amn_buffer dst,
                                  uint64_t *n_overflow);

/* Rows of float32 numbers to W4A8 or W6A8, in two steps: scales of each AMN_W4A8_SIZE numbers,
 * which are fitted to the levels of a codebook, with a scale of INT8 for each row; and codes, by
 * whichever of `n_choices` scales of each group has the least error. The levels are AMN_W4A8_LEVELS
 * ascending numbers, or the AMN_W6A8_LEVELS whole numbers about 0. Scales are in units of a row's
 * scale in the second step. What is not finite makes scales that are not. */
#define AMN_W4A8_SIZE 16
#define AMN_W4A8_LEVELS 16
#define AMN_W6A8_LEVELS 63
amn_status amn_w4a8_fit(int level, const float *values, size_t rows, size_t cols,
                        const float *numbers, size_t count, float *scales, float *channels);
amn_status amn_w4a8_code(int level, const float *values, size_t rows, size_t cols,
                         const float *numbers, size_t count, const float *scales, size_t n_choices,
                         const float *channels, uint8_t *codes, uint8_t *chosen);

/* Whether an encoder of GGUF blocks looks at how important columns are. */
typedef enum { AMN_WEIGHTS_IGNORED = 0, AMN_WEIGHTS_OPTIONAL, AMN_WEIGHTS_REQUIRED } amn_weights;

/* -1 if there is no encoder of that type, which is ggml's id. */
int amn_encoder_weights(int type);

/* `rows` x `cols` float32 numbers at src to GGUF blocks at dst; ggml's quantize_<type> is the
 * definition. `weights` are a float32 for each column, or nothing. Nothing is measured if `loss` is
 * NULL. With AMN_NOT_FINITE, *where is the first number that is infinite or a NaN, or the first of
 * a block whose scale became so. */
typedef struct {
  int type;
  uint64_t rows, cols;
  amn_bytes weights;
} amn_encoding;

amn_status amn_encode_blocks(int level, const amn_encoding *how, amn_bytes src, amn_buffer dst,
                             amn_loss *loss, uint64_t *where);

/* The largest magnitude in src, in float32. */
amn_status amn_amax(int level, int source, amn_bytes src, float *amax);

/* The largest magnitude of each block of src, as ABSMAX has it of one row: float32 at dst. */
amn_status amn_blocks_amax(int level, int source, amn_bytes src, uint64_t block, amn_buffer dst);

/* How two arrays differ, as they are decoded to float32. Pairs of which one is infinite or a NaN
 * are in no sum and not in the largest |a - b|, which is rounded to float32. Sums are those of
 * blocks: in float32 where that holds them, else in double, so that none overflows, and none is 0
 * unless all its terms are.
 */
enum {
  AMN_COMPARE_ABSOLUTE,
  AMN_COMPARE_ERROR,
  AMN_COMPARE_A,
  AMN_COMPARE_B,
  AMN_COMPARE_PRODUCT,
  AMN_COMPARE_SUMS
};

typedef struct {
  uint64_t n_different, first_different; /* in bits; the first of none is undefined */
  uint64_t n_not_finite;
  float largest;
  uint64_t largest_at;           /* the first place; undefined for 0 */
  double sums[AMN_COMPARE_SUMS]; /* |a - b|, (a - b)^2, a^2, b^2, a * b */
} amn_comparison;

/* Sources are ids of "amax" kernels. */
amn_status amn_compare(int level, int source_a, int source_b, amn_bytes a, amn_bytes b,
                       amn_comparison *found);

/* Floats as words of 1, 2 or 4 bytes, of which the uppermost bit is the sign and the others are the
 * magnitude: infinite from `infinity` on, a NaN from `nan` on. `other_nan` is a NaN of 1 byte
 * whatever its magnitude says. */
typedef struct {
  int n_bytes;
  uint32_t infinity, nan, other_nan;
} amn_words;

/* What words say of a tensor; the first of none is undefined. */
typedef struct {
  uint64_t n; /* words */
  uint64_t n_nan, first_nan, n_infinite, first_infinite, n_zero;
  uint64_t n_zero_rows, first_zero_row;
  uint32_t largest; /* magnitude that is finite */
  uint32_t first;   /* word */
  int differs;      /* whether any word does from the first */
} amn_check;

/* Of rows of `cols` words. */
amn_status amn_check_values(int level, const amn_words *words, amn_bytes src, uint64_t cols,
                            amn_check *found);

/* torch's sum of float32 on one thread, with vectors of 8: numbers are added to AMN_SUM_LANES lanes
 * in turn, and so many additions to a lane to the level above. `lanes` are zeros at first; whole
 * rows of all lanes are added, `row` of them before, of about so many in all. */
#define AMN_SUM_LANES 32
#define AMN_SUM_LEVELS 4

typedef struct {
  float lanes[AMN_SUM_LEVELS][AMN_SUM_LANES];
} amn_sum;

void amn_sum_rows(amn_sum *sum, uint64_t row, uint64_t n_rows, const float *values, uint64_t total);

/* The sum with the fewer than AMN_SUM_LANES that are left; `total` counts all numbers. */
float amn_sum_end(const amn_sum *sum, const float *values, uint64_t total);

/* The codebooks of bitsandbytes, by code: 16 entries, or 256 of its dynamic map. */
amn_bytes amn_bnb_codebook(int index);

#endif /* AMN_KERNELS_H */
