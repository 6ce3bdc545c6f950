/* The directory of a ZIP archive and the local headers of its members, as archives of tensors have
 * them: at most the ZIP64 end before the end record, no comment; members that are stored, of less
 * than 4 GiB, their names in ASCII, with no extra field; local headers that say the same. Whatever
 * else may be there, and anything that may not, is left to a reader that can say what is wrong. */
#include "parse.h"

#include <string.h>

enum {
  MAGIC = 0x02014B50, /* PK\1\2 */
  LOCAL_MAGIC = 0x04034B50,
  END_MAGIC = 0x06054B50,
  LOCATOR_MAGIC = 0x07064B50,
  END64_MAGIC = 0x06064B50,
  END_BYTES = 22,
  LOCATOR_BYTES = 20,
  END64_BYTES = 56,
  FIXED_BYTES = 46,
  USUAL_VERSION = 45,      /* up to that of ZIP64 */
  HAS_DESCRIPTOR = 1 << 3, /* lengths and CRC follow the bytes, and are 0 before them */
  USUAL_FLAGS = 1 << 1 | 1 << 2 | HAS_DESCRIPTOR | 1 << 11,
  STORED = 0,
};

static uint32_t le16(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le32(const uint8_t *p) {
  return le16(p) | le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p) {
  return le32(p) | (uint64_t)le32(p + 4) << 32;
}

static int is_one_of(uint64_t told, uint64_t full, uint64_t none) {
  return told == full || told == none;
}

/* The ZIP64 end and its locator before the end record at `at`; what the latter cannot say is told
 * by all its bits. */
static int has_usual_zip64(amn_bytes end, uint64_t at, uint64_t start, amn_zip_end *found) {
  if (at < LOCATOR_BYTES + END64_BYTES) return 0;
  const uint8_t *locator = end.data + at - LOCATOR_BYTES, *p = locator - END64_BYTES;
  const uint8_t *record = end.data + at;
  uint64_t n_entries = le64(p + 32), n_bytes = le64(p + 40), offset = le64(p + 48);
  if (le32(locator + 4) != 0 || le64(locator + 8) != start + (uint64_t)(p - end.data) ||
      le32(locator + 16) > 1 || le32(p) != END64_MAGIC || le64(p + 4) != END64_BYTES - 12 ||
      le32(p + 16) != 0 || le32(p + 20) != 0 || le64(p + 24) != n_entries ||
      !is_one_of(le16(record + 8), n_entries, UINT16_MAX) ||
      !is_one_of(le16(record + 10), n_entries, UINT16_MAX) ||
      !is_one_of(le32(record + 12), n_bytes, UINT32_MAX) ||
      !is_one_of(le32(record + 16), offset, UINT32_MAX))
    return 0;
  *found = (amn_zip_end){n_entries, n_bytes, offset, start + (uint64_t)(p - end.data)};
  return 1;
}

int amn_zip_end_of(amn_bytes end, uint64_t start, amn_zip_end *found) {
  if (end.n_bytes < END_BYTES) return 0;
  uint64_t at = end.n_bytes - END_BYTES;
  const uint8_t *p = end.data + at;
  if (le32(p) != END_MAGIC || le32(p + 4) != 0 || le16(p + 20) != 0) return 0;
  if (at >= LOCATOR_BYTES && le32(p - LOCATOR_BYTES) == LOCATOR_MAGIC) {
    if (!has_usual_zip64(end, at, start, found)) return 0;
  } else {
    if (le16(p + 8) != le16(p + 10)) return 0;
    *found = (amn_zip_end){le16(p + 10), le32(p + 12), le32(p + 16), start + at};
  }
  return found->n_bytes <= found->stop - start && found->start == found->stop - found->n_bytes;
}

static int is_usual_name(amn_bytes name) {
  int usual = name.n_bytes > 0;
  for (uint64_t i = 0; i < name.n_bytes; i++) usual &= name.data[i] > 0 && name.data[i] < 0x80;
  return usual;
}

int amn_zip_member_at(amn_bytes directory, uint64_t *pos, amn_zip_member *member) {
  if (*pos > directory.n_bytes || directory.n_bytes - *pos < FIXED_BYTES) return 0;
  const uint8_t *p = directory.data + *pos;
  uint32_t n_name = le16(p + 28), n_extra = le16(p + 30), n_comment = le16(p + 32);
  uint32_t n_compressed = le32(p + 20), n_bytes = le32(p + 24), disk = le16(p + 34);
  member->flags = (int)le16(p + 8);
  member->crc = le32(p + 16);
  member->n_bytes = n_bytes;
  member->offset = le32(p + 42);
  if (le32(p) != MAGIC || p[6] > USUAL_VERSION || (member->flags & ~USUAL_FLAGS) != 0 ||
      le16(p + 10) != STORED || n_bytes != n_compressed || n_bytes == UINT32_MAX ||
      member->offset == UINT32_MAX || n_extra != 0 || disk != 0)
    return 0;
  uint64_t length = (uint64_t)FIXED_BYTES + n_name + n_comment;
  if (directory.n_bytes - *pos < length) return 0;
  member->name = (amn_bytes){p + FIXED_BYTES, n_name};
  if (!is_usual_name(member->name)) return 0;
  *pos += length;
  return 1;
}

uint64_t amn_zip_local_bytes(amn_bytes local, const amn_zip_member *member) {
  if (local.n_bytes < AMN_ZIP_LOCAL_BYTES) return 0;
  const uint8_t *p = local.data;
  uint32_t crc = le32(p + 14), n_compressed = le32(p + 18), n_bytes = le32(p + 22);
  uint64_t n_name = le16(p + 26), n_extra = le16(p + 28);
  int is_late = (member->flags & HAS_DESCRIPTOR) != 0 && crc == 0 && n_bytes == 0;
  int is_same = is_late || (crc == member->crc && n_bytes == member->n_bytes);
  if (le32(p) != LOCAL_MAGIC || (int)le16(p + 6) != member->flags || le16(p + 8) != STORED ||
      n_compressed != n_bytes || !is_same || n_name != member->name.n_bytes ||
      local.n_bytes - AMN_ZIP_LOCAL_BYTES < n_name ||
      memcmp(p + AMN_ZIP_LOCAL_BYTES, member->name.data, n_name) != 0)
    return 0;
  return AMN_ZIP_LOCAL_BYTES + n_name + n_extra;
}
