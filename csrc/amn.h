/* The C core's whole public face, and the only header Cython sees.
 *
 * Bytes in, bytes out: every array is a byte pointer with its length in bytes and may lie at any
 * address. Nothing here allocates, keeps state or knows Python; a call either returns an error
 * before it touches dst, or succeeds.
 */
#ifndef AMN_H
#define AMN_H

#include <stddef.h>
#include <stdint.h>

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
  AMN_BAD_GROUP,   /* groups of no columns, or an index past the last group */
  AMN_BAD_WORDS,   /* out features that do not fill the words they are packed into */
  AMN_BAD_ROWS,    /* out features that src has not, or from within a tile on */
  AMN_BAD_CODEBOOK /* not as many entries as the codes can name */
} amn_status;

typedef struct {
  const uint8_t *data;
  uint64_t n_bytes;
} amn_bytes;

typedef struct {
  uint8_t *data;
  uint64_t n_bytes;
} amn_buffer;

/* One kernel, as kernels.def and blocks.def have it. `id` is what the calls below take; it is
 * unique within the kernels that share a parameter, and `native` has bit i set if level i has its
 * own code for it. An item is the fewest elements that fill bytes. The ids of GGUF blocks are
 * ggml's. */
typedef struct {
  const char *family;
  const char *name;
  int id;
  int item_elements;
  int item_bytes;
  uint32_t native;
} amn_kernel;

/* The kernel in row `index`, or NULL past the last. */
const amn_kernel *amn_kernel_at(int index);

/* The name of a level compiled in, slowest first, or NULL past the last. */
const char *amn_level_name(int level);

/* Whether this CPU, under this operating system, can run a level. Slow (cpuid): ask once. */
int amn_level_supported(int level);

/* A grid of scales over a tensor's rows and columns: element (r, c) has the scale in grid row
 * (r + row_phase) / block_rows and grid column (c + col_phase) / block_cols. The phases let a band
 * start inside a block. */
typedef struct {
  amn_bytes data;
  int dtype;       /* the id of a "convert" or "scale" kernel */
  uint64_t stride; /* scales in a grid row */
  uint64_t block_rows, block_cols;
  uint64_t row_phase, col_phase;
} amn_grid;

/* dst = out(float32(code) * float32(scale)): one float32 multiply, one rounding to nearest even.
 * Every NaN becomes the one quiet NaN. *n_overflow counts finite float32 products which that
 * rounding made infinite. The caller must have asked amn_level_supported about `level`. */
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

/* dst = out(float32 value) for n codes, which start with the first byte of src: for CODEBOOK4
 * codebook[code] * absmax, for INT8 code * absmax * float32(1 / 127), product by product in
 * float32. The codebook holds a float32 for each code, and +0 in its upper half counts as -0; INT8
 * has none. *n_overflow counts finite values that became infinite. */
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

/* dst[r, c] = out(float32(code[c, r] - zero[g, r]) * float32(scale[g, r])), one float32 multiply,
 * one rounding: `rows` out features of `cols` in features each, of which src has the codes
 * transposed. dst takes `n_rows` of them from `first_row`, a multiple of AMN_TILE_ROWS, on. Every
 * NaN becomes the one quiet NaN. *n_overflow counts finite products which that rounding made
 * infinite. */
amn_status amn_dequantize_packed(int level, int packing, int out, amn_bytes src, amn_buffer dst,
                                 uint64_t rows, uint64_t cols, uint64_t first_row, uint64_t n_rows,
                                 const amn_groups *groups, uint64_t *n_overflow);

/* One of GGUF's strings, whose length stands at `pos` of src in `length_bytes` bytes (4 or 8): its
 * bytes, of which src may hold fewer. Returns 0 if src does not hold the whole length. */
int amn_string_at(amn_bytes src, uint64_t pos, int length_bytes, int big_endian, amn_bytes *string);

/* Step over up to `count` strings from *pos on; returns how many. It stops before a string that is
 * longer than `longest` (at most 2^62), before one whose length src does not wholly hold, and after
 * one that ends beyond src: *pos is then past its end. */
uint64_t amn_skip_strings(amn_bytes src, uint64_t *pos, uint64_t count, int length_bytes,
                          int big_endian, uint64_t longest);

/* Fill dst with pieces of `row_bytes` bytes, which start at `offset` of a file and lie `stride`
 * apart. dst is a whole number of pieces, of which `done` bytes are there already. Returns how many
 * are there in the end: fewer than all where the file ends, or where *error is not 0 but an errno
 * (EINTR too). */
uint64_t amn_pread_rows(int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes,
                        amn_buffer dst, uint64_t done, int *error);

/* The same from memory; the caller has checked that src holds them all. */
void amn_copy_rows(amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst);

/* How many bits amn_crc32 may take at a time on this CPU: 256, 128, or 0 if it had better not run.
 * Slow (cpuid): ask once. */
int amn_crc32_supported(void);

/* The CRC-32 of src, which continues bytes of this CRC-32. */
uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src);

/* What is read is summed up in slices that stay in the second-level cache. */
#define AMN_CRC32_SLICE ((uint64_t)128 << 10)

/* Fill dst, of which `done` bytes are there already, from `offset` of a file on; what is read
 * continues bytes of the CRC-32 at *crc, which is that of it all in the end. Returns and *error are
 * those of amn_pread_rows. */
uint64_t amn_pread_crc32(int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits,
                         uint32_t *crc, int *error);

/* A tensor's entry in the header of a safetensors file; `another` if a comma follows. */
#define AMN_ENTRY_DIMS 64
typedef struct {
  amn_bytes name, dtype;
  uint64_t shape[AMN_ENTRY_DIMS];
  uint64_t offsets[2];
  int n_dims;
  int another;
} amn_tensor_entry;

/* The entry at *pos of a header in UTF-8, if it is spelt as writers do and its numbers fit; *pos is
 * then where the next may stand. Returns 0 for whatever else, which need not be wrong. */
int amn_tensor_entry_at(amn_bytes header, uint64_t *pos, amn_tensor_entry *entry);

/* What the end of a ZIP archive says: how many members its directory has, its length, where it
 * starts, and where what is behind it does. */
typedef struct {
  uint64_t n_entries, n_bytes, start, stop;
} amn_zip_end;

/* What `end`, an archive's bytes from `start` to its last, say of a directory that lies in them, if
 * it ends as usual. Returns 0 for whatever else, which need not be wrong. */
int amn_zip_end_of(amn_bytes end, uint64_t start, amn_zip_end *found);

/* A member in the central directory of a ZIP archive, stored in `n_bytes` bytes; its local header
 * is at `offset`. */
typedef struct {
  amn_bytes name;
  uint32_t crc;
  uint64_t n_bytes, offset;
  int flags;
} amn_zip_member;

#define AMN_ZIP_LOCAL_BYTES 30 /* of a local header, without its name and extra field */

/* The member at *pos of a directory, if it is of the plain kind; *pos is then where the next may
 * stand. Returns 0 for whatever else, which need not be wrong. */
int amn_zip_member_at(amn_bytes directory, uint64_t *pos, amn_zip_member *member);

/* The length of the member's local header, which `local` begins with, if it is of the plain kind
 * and says the same; else 0. */
uint64_t amn_zip_local_bytes(amn_bytes local, const amn_zip_member *member);

/* A tensor in the pickle of a torch file. What is fetched from the memo is told by its index there:
 * the function, the word, the class, the location, the class of the hooks. Bit i of `memoised` says
 * that part i was, of AMN_TORCH_PARTS: name, function, word, class, key, location, persistent id,
 * sizes, strides, class of the hooks, hooks, arguments, tensor. What has its bit was not fetched.
 */
#define AMN_TORCH_DIMS 8
#define AMN_TORCH_PARTS 13
#define AMN_TORCH_LONGEST 256 /* bytes of a text */
typedef struct {
  amn_bytes name, kind_name, key, location_name;
  int rebuild, word, kind, location, hooks;
  uint64_t n_elements, offset;
  uint64_t sizes[AMN_TORCH_DIMS], strides[AMN_TORCH_DIMS];
  int n_dims;
  int requires_grad;
  uint32_t memoised;
  uint64_t cost; /* the sum of the costs of its opcodes, and of the bytes of its texts */
  uint64_t end;
} amn_torch_tensor;

/* The tensor at `pos` of a pickle, with the name before it if one is written out, if they are spelt
 * as torch.save does and the memo has `n_memo` entries, under the indices below that. `costs` has a
 * number for each of the 256 opcodes. Returns 0 for whatever else, which need not be wrong. */
int amn_torch_tensor_at(amn_bytes pickle, uint64_t pos, uint64_t n_memo, const uint16_t *costs,
                        amn_torch_tensor *tensor);

#endif /* AMN_H */
