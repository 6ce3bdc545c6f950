"""csrc/kernels/kernels.h, as Cython sees it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from anamnesis._bytes cimport amn_buffer, amn_bytes


cdef extern from "kernels/kernels.h" nogil:
    ctypedef enum amn_status:
        AMN_OK
        AMN_BAD_LEVEL
        AMN_BAD_DTYPE
        AMN_BAD_BLOCK
        AMN_BAD_SIZE
        AMN_SHORT_SRC
        AMN_SHORT_DST
        AMN_SHORT_SCALES
        AMN_SHORT_STRIDE
        AMN_SHORT_ZEROS, AMN_SHORT_GROUPS
        AMN_BAD_GROUP
        AMN_BAD_WORDS
        AMN_BAD_ROWS
        AMN_BAD_CODEBOOK
        AMN_BAD_RULE, AMN_BAD_ALIGNMENT, AMN_BAD_WEIGHTS, AMN_NOT_FINITE

    ctypedef struct amn_kernel:
        const char *family
        const char *name
        int id, item_elements, item_bytes

    ctypedef struct amn_grid:
        amn_bytes data
        int dtype, rounded
        uint64_t stride, block_rows, block_cols, row_phase, col_phase

    ctypedef struct amn_groups:
        amn_bytes zeros, scales, groups
        int scale_dtype
        bint zeros_less_one
        uint64_t group_size, first_col

    ctypedef struct amn_absmax:
        amn_bytes data
        int dtype
        uint64_t block, phase

    ctypedef enum amn_zeros_kind:
        AMN_ZEROS_CONSTANT, AMN_ZEROS_INT8, AMN_ZEROS_FLOAT, AMN_ZEROS_WORDS

    ctypedef struct amn_planes:
        uint64_t stacked, phase
        int bits, shift, width

    enum:
        AMN_ROUND_DIFFERENCES, AMN_ROUND_PRODUCTS, AMN_ROUND_BIASES, AMN_ROUND_SUMS

    ctypedef struct amn_integers:
        amn_bytes codes
        uint64_t stride, phase, rows, cols
        amn_grid scales
        amn_bytes biases, groups, zeros
        int zeros_kind, constant
        amn_planes planes
        uint64_t zeros_phase
        int roundings

    ctypedef enum amn_rule:
        AMN_RULE_RECIPROCAL, AMN_RULE_POWER_OF_TWO, AMN_RULE_DIVIDED, AMN_RULE_ASYMMETRIC
        AMN_RULE_ABSMAX, AMN_RULE_NESTED, AMN_RULE_MX, AMN_RULE_MX_UP, AMN_RULE_MX_POWER
        AMN_RULE_MX_OWN_POWER, AMN_RULE_NV_ALONE, AMN_RULE_NV_DIVIDED
        AMN_RULE_NV_MULTIPLIED, AMN_RULE_NV_QUOTIENT, AMN_RULE_LATTICE, AMN_RULE_WHOLE

    ctypedef struct amn_quantization:
        int source, code, rule
        uint64_t rows, cols, block_rows, block_cols
        amn_bytes found

    ctypedef struct amn_loss:
        double absolute, largest, squared, power

    const amn_kernel *amn_kernel_at(int index) noexcept
    bint amn_kernel_is_native(int index, int level) noexcept
    const char *amn_level_name(int level) noexcept
    bint amn_level_supported(int level) noexcept
    uint64_t amn_streamed_from(int item_bytes) noexcept
    amn_status amn_dequantize_scaled(
        int level, int code, int out, amn_bytes src, amn_buffer dst, uint64_t rows, uint64_t cols,
        const amn_grid *grid, uint64_t *n_overflow) noexcept
    amn_status amn_dequantize_absmax(
        int level, int code, int out, amn_bytes src, amn_buffer dst, uint64_t n,
        amn_bytes codebook, const amn_absmax *absmax, uint64_t *n_overflow) noexcept
    amn_status amn_recover_absmax(
        amn_bytes src, amn_buffer dst, amn_bytes codebook, const amn_absmax *absmax,
        float offset) noexcept
    amn_status amn_convert(
        int level, int src_dtype, int out, amn_bytes src, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    int AMN_PANEL
    amn_status amn_add_product(
        int level, const float *left, const float *right, float scale, float *values, size_t rows,
        size_t cols, size_t inner, size_t first) noexcept
    size_t AMN_W4A8_SIZE
    amn_status amn_w4a8_fit(
        int level, const float *values, size_t rows, size_t cols, const float *numbers,
        size_t count, float *scales, float *channels) noexcept
    amn_status amn_w4a8_code(
        int level, const float *values, size_t rows, size_t cols, const float *numbers,
        size_t count, const float *scales, size_t n_choices, const float *channels,
        uint8_t *codes, uint8_t *chosen) noexcept
    amn_status amn_dequantize_blocks(
        int level, int type, int out, amn_bytes src, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    uint64_t AMN_STREAMED_BYTES
    uint64_t AMN_STAGE_BYTES
    int AMN_TILE_ROWS
    int AMN_CACHE_LINE
    int AMN_SUM_LANES
    amn_status amn_dequantize_packed(
        int level, int packing, int out, amn_bytes src, amn_buffer dst, uint64_t rows,
        uint64_t cols, uint64_t first_row, uint64_t n_rows, const amn_groups *groups,
        amn_buffer stage, uint64_t *n_overflow) noexcept
    amn_status amn_dequantize_integers(
        int level, int code, int out, const amn_integers *integers, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    amn_status amn_rotate(int level, amn_bytes src, amn_buffer dst, uint64_t group) noexcept
    ctypedef struct amn_rotation:
        amn_bytes codes, scales
        uint64_t rows, cols, group
    amn_status amn_dequantize_rotated(
        int level, int out, const amn_rotation *how, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    ctypedef struct amn_trellis:
        amn_bytes tiles, in_scales, out_scales
        int bits
        uint64_t cols, first_row, n_rows, first_col, n_cols

    uint64_t AMN_TRELLIS_WORK
    int AMN_TRELLIS_BLOCK
    amn_status amn_dequantize_trellis(
        int level, int code, int out, const amn_trellis *trellis, amn_buffer dst,
        amn_buffer work, uint64_t *n_overflow) noexcept
    ctypedef enum amn_weights:
        AMN_WEIGHTS_IGNORED, AMN_WEIGHTS_OPTIONAL, AMN_WEIGHTS_REQUIRED

    ctypedef struct amn_encoding:
        int type
        uint64_t rows, cols
        amn_bytes weights

    int amn_encoder_weights(int type) noexcept
    amn_status amn_encode_blocks(
        int level, const amn_encoding *how, amn_bytes src, amn_buffer dst, amn_loss *loss,
        uint64_t *where) noexcept
    amn_status amn_quantize(
        int level, const amn_quantization *how, amn_bytes src, amn_buffer codes,
        amn_buffer scales, amn_buffer zeros, amn_loss *loss) noexcept
    ctypedef enum amn_packing_rule:
        AMN_PACKING_EDGE, AMN_PACKING_MIRRORED, AMN_PACKING_HALF

    ctypedef struct amn_packing_plan:
        int source, code, rule
        uint64_t rows, cols, group

    amn_status amn_pack(
        int level, const amn_packing_plan *how, amn_bytes src, amn_buffer codes,
        amn_buffer scales, amn_buffer shifts, amn_loss *loss) noexcept
    amn_status amn_amax(int level, int source, amn_bytes src, float *amax) noexcept
    amn_status amn_blocks_amax(
        int level, int source, amn_bytes src, uint64_t block, amn_buffer dst) noexcept

    enum:
        AMN_COMPARE_ABSOLUTE, AMN_COMPARE_ERROR, AMN_COMPARE_A, AMN_COMPARE_B
        AMN_COMPARE_PRODUCT, AMN_COMPARE_SUMS

    ctypedef struct amn_comparison:
        uint64_t n_different, first_different, n_not_finite
        float largest
        uint64_t largest_at
        double sums[AMN_COMPARE_SUMS]

    amn_status amn_compare(
        int level, int source_a, int source_b, amn_bytes a, amn_bytes b,
        amn_comparison *found) noexcept

    ctypedef struct amn_words:
        int n_bytes
        uint32_t infinity, nan, other_nan

    ctypedef struct amn_check:
        uint64_t n_nan, first_nan, n_infinite, first_infinite, n_zero, n_zero_rows, first_zero_row
        uint32_t largest
        bint differs

    amn_status amn_check_values(
        int level, const amn_words *words, amn_bytes src, uint64_t cols,
        amn_check *found) noexcept

    ctypedef struct amn_sum:
        pass

    void amn_sum_rows(
        amn_sum *sum, uint64_t row, uint64_t n_rows, const float *values, uint64_t total) noexcept
    float amn_sum_end(const amn_sum *sum, const float *values, uint64_t total) noexcept
    amn_bytes amn_bnb_codebook(int index) noexcept
