/* Headers as known writers spell them, which is nearly all that there are; what is spelt otherwise,
 * and what is wrong, the parsers in Python read, which can say so. */
#ifndef AMN_PARSE_H
#define AMN_PARSE_H

#include "amn_bytes.h"

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
 * then where the next may stand. Returns 0 for anything else, which need not be wrong. */
int amn_tensor_entry_at(amn_bytes header, uint64_t *pos, amn_tensor_entry *entry);

/* What the end of a ZIP archive says: how many members its directory has, its length, where it
 * starts, and where what is behind it does. */
typedef struct {
  uint64_t n_entries, n_bytes, start, stop;
} amn_zip_end;

/* What `end`, an archive's bytes from `start` to its last, say of a directory that lies in them, if
 * it ends as usual. Returns 0 for anything else, which need not be wrong. */
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
 * stand. Returns 0 for anything else, which need not be wrong. */
int amn_zip_member_at(amn_bytes directory, uint64_t *pos, amn_zip_member *member);

/* The length of the member's local header, which `local` begins with, if it is of the plain kind
 * and says the same; else 0. */
uint64_t amn_zip_local_bytes(amn_bytes local, const amn_zip_member *member);

/* One of GGUF's strings, whose length is at `pos` of src in `length_bytes` bytes (4 or 8): its
 * bytes; src may hold fewer. Returns 0 if src does not hold the whole length. */
int amn_string_at(amn_bytes src, uint64_t pos, int length_bytes, int big_endian, amn_bytes *string);

/* Step over up to `count` strings from *pos on; returns how many. It stops before a string that is
 * longer than `longest` (at most 2^62), before one whose length src does not wholly hold, and after
 * one that ends beyond src: *pos is then past its end. */
uint64_t amn_skip_strings(amn_bytes src, uint64_t *pos, uint64_t count, int length_bytes,
                          int big_endian, uint64_t longest);

#endif /* AMN_PARSE_H */
